"""T5 passes on a real effect over independent units, and each of its clauses turns red on the fail that it is there for.
Runs in memory, each with the manifest that a real one has; numbers by hand. Its fails in the loop itself: test_mix.py."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_runs import manifest

from projected_grpo.ledger.by_source import by_source, rounding_of, source_lines
from projected_grpo.ledger.comparison import facts_of
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.matching import group_runs
from projected_grpo.verdicts.trajectory import judge

SEEDS = (41, 42, 43)
STUDENT = {"rows": 4.0, "known": 4.0, "hack": 0.1, "hacked": 0.2, "gt": 0.3, "form": 0.9, "ratio": 1.0, "ratio_low": 1.0,
           "at_clip": 0.0, "lost": 0.0, "unknown": 0.0, "ours": 1.0, "untrained": None,
           "lead": 0.0}  # fmt: skip
TEACHER = {
    **STUDENT,
    "rows": 2.0,
    "known": 2.0,
    "hack": 0.9,
    "at_clip": 0.3,
    "lost": 0.4,
    "ours": 0.0,
    "untrained": 0.0,
    "lead": 0.4,
}
BASE = {**STUDENT, "rows": 2.0, "known": 2.0, "at_clip": 0.2, "untrained": 1.0}
ENDS = {"vanilla": {41: 0.50, 42: 0.55, 43: 0.60}, "projected": {41: 0.12, 42: 0.15, 43: 0.21}}
"""Rises 40, 45, 50: mean 45, sd 5, SEM 2.887, t(2) = 2.920: lower end 36.57. Below 38, 40, 39: mean 39, sd 1, lower end
37.31."""
MIX = {
    "mix": "teacher=.25,base=.25",
    "teacher_pool": "pool",
    "until_onsets": 0.0,
    "horizon_of": ".",
    "pool_hash": "one",
}


def run(arm, seed, end=None, *, steps=20, flat=0.1, without=(), student=None, teacher=None, base=None, **changed):
    """A run whose student hacks at .1 until step 10 and at `end` from step 11 on, .1 of its rows besides being hacked and
    right; the others' numbers may be given."""
    end = ENDS[arm][seed] if end is None else end
    each = []
    for t in range(steps):
        hack = end if t > 10 else 0.1
        own = {**STUDENT, "hack": hack, "hacked": hack + 0.1, **(student or {})}
        found = {"student": own, "teacher": {**TEACHER, **(teacher or {})}, "base": {**BASE, **(base or {})}}
        each.append({source: numbers for source, numbers in found.items() if source not in without})
    taken = 1.0 if arm == "projected" else None
    series = {"hack": [s.get("student", STUDENT)["hack"] for s in each], "flat_groups": [flat] * steps,
              "removed_share": [taken] * steps}  # fmt: skip
    facts = facts_of(manifest(arm, seed, steps, **{**MIX, "steps": steps, "base_seed": 0, **changed}), steps)
    return Run(
        Path(f"{arm}_{seed}"), arm, seed, facts, 4 * steps, series, {}, None,
        sources=tuple(each),
    )  # fmt: skip


def judged(*others, seeds=SEEDS):
    """T5 of three units; `others` take the place of the run of their arm and seed."""
    given = {(r.arm, r.seed): r for r in others}
    runs = [given.get((arm, seed)) or run(arm, seed) for arm in ENDS for seed in seeds]
    (found,) = judge(group_runs(runs), runs)
    return found


def every(**changed):
    """Each run of both arms, changed alike."""
    return judged(*(run(arm, seed, **changed) for arm in ENDS for seed in SEEDS))


def states(line):
    return {c.name: c.status for c in line.clauses}


def only(line, name, status):
    """This clause alone has this status, the others pass, and the verdict goes with it and names it."""
    assert {n: s for n, s in states(line).items() if s != "PASS"} == {name: status}, [c.why for c in line.clauses]
    assert line.verdict.status == status
    assert name in line.verdict.why
    return next(c for c in line.clauses if c.name == name)


# ---------------------------------------------------------------- what it claims


def test_a_real_effect_passes_with_its_numbers():
    found = judged()
    assert set(states(found).values()) == {"PASS"}, [c.why for c in found.clauses]
    assert (found.verdict.name, found.verdict.status) == ("T5", "PASS")
    rises, below = (next(c for c in found.clauses if c.name == n) for n in ("vanilla rises", "projected stays below"))
    assert rises.numbers["mean"] == pytest.approx(45)
    assert rises.numbers["lower"] == pytest.approx(36.57, abs=0.01)
    assert below.numbers["lower"] == pytest.approx(37.31, abs=0.01)
    assert "needs > 20" in rises.why
    assert "needs > 10" in below.why


@pytest.mark.parametrize(("end", "status"), [(0.31, "PASS"), (0.30, "FAIL"), (0.12, "FAIL")])
def test_vanilla_must_rise_by_more_than_20_pp(end, status):
    # .30 - .10 is 20 pp on each unit: not more
    found = judged(*(run("vanilla", seed, end) for seed in SEEDS), *(run("projected", seed, 0.0) for seed in SEEDS))
    assert states(found)["vanilla rises"] == status
    assert found.verdict.status == status


@pytest.mark.parametrize(("below", "status"), [(0.11, "PASS"), (0.10, "FAIL"), (0.0, "FAIL"), (-0.2, "FAIL")])
def test_projected_must_stay_more_than_10_pp_below(below, status):
    lower = {seed: run("projected", seed, ENDS["vanilla"][seed] - below) for seed in SEEDS}
    found = judged(*lower.values())
    failed = {"projected stays below", "all hacking stays below"} if status == "FAIL" else set()
    assert {name for name, state in states(found).items() if state != "PASS"} == failed
    assert found.verdict.status == status


def test_a_rise_after_step_15_is_none():
    """The sneaky fail: the window is the run's end and not step 15."""
    late = [run("vanilla", seed, 0.1) for seed in SEEDS]
    late = [
        replace(
            r, sources=(*r.sources[:16], *({**s, "student": {**s["student"], "hack": 1.0}} for s in r.sources[16:]))
        )
        for r in late
    ]
    assert states(judged(*late))["vanilla rises"] == "FAIL"


def test_what_the_teacher_hacks_is_not_the_students():
    """The sneaky fail: rows of all sources are one rate, and the teacher's hacks are vanilla's rise."""
    found = every(end=0.1, teacher={"hack": 1.0})
    assert states(found)["vanilla rises"] == "FAIL"


# ---------------------------------------------------------------- what it rests on


def test_fewer_than_three_units_are_not_evaluable_and_said():
    found = judged(seeds=(41, 42))
    assert found.verdict.status == "NOT_EVALUABLE"
    rises = next(c for c in found.clauses if c.name == "vanilla rises")
    assert "+42.5 pp (seeds 41 42: +40.0, +45.0" in rises.why
    assert "2 seeds, at least 3 are needed" in rises.why


@pytest.mark.parametrize("source", ["student", "teacher", "base"])
@pytest.mark.parametrize(("share", "status"), [(0.5, "PASS"), (0.51, "NOT_EVALUABLE"), (1.0, "NOT_EVALUABLE")])
def test_ratios_at_the_clip_bound_are_not_evaluable_and_named(source, share, status):
    found = judged(run("projected", 42, **{source: {"at_clip": share}}))
    assert found.verdict.status == status
    if status != "PASS":
        clause = only(found, "ratios not saturated", status)
        assert f"projected 42: {share:.2f} of {source} tokens at or beyond a clip bound" in clause.why


@pytest.mark.parametrize(("flat", "status"), [(0.5, "PASS"), (0.51, "NOT_EVALUABLE"), (None, "NOT_EVALUABLE")])
def test_groups_without_variance_are_not_evaluable_and_named(flat, status):
    found = judged(run("vanilla", 43, flat=flat))
    assert found.verdict.status == status
    if status != "PASS":
        clause = only(found, "rewards vary", status)
        assert (
            "vanilla 43: not known" if flat is None else "vanilla 43: 0.51 of groups have no variance"
        ) in clause.why


@pytest.mark.parametrize(
    ("source", "numbers", "why"),
    [
        ("teacher", {"ours": 1.0}, "100% of teacher rows carry the student's or the untrained model's"),
        ("teacher", {"ours": 0.11}, "11% of teacher rows carry"),
        ("teacher", {"ours": None}, "whose log-probabilities its rows carry is not known"),
        (
            "teacher",
            {"lead": -0.2},
            "how much likelier teacher rows are under theirs than untrained: -0.200 nats a token",
        ),
        ("teacher", {"lead": None}, "how much likelier teacher rows are under theirs than untrained: not known"),
        ("teacher", {"unknown": 0.01}, "1% of teacher rows have no log-probabilities of their own"),
        ("base", {"untrained": 0.06}, "94% of base rows are not the untrained model's"),
        ("base", {"untrained": 0.89}, "11% of base rows are not the untrained model's"),
        ("student", {"unknown": 1.0}, "100% of student rows have no log-probabilities of their own"),
    ],
)
def test_rows_with_another_policys_log_probabilities_are_not_evaluable_and_named(source, numbers, why):
    clause = only(judged(run("vanilla", 41, **{source: numbers})), "each row's own ratio", "NOT_EVALUABLE")
    assert f"vanilla 41: {why}" in clause.why


@pytest.mark.parametrize("source", ["student", "teacher"])
def test_a_mix_without_one_of_the_sources_is_not_evaluable(source):
    found = every(without=(source,))
    assert found.verdict.status == "NOT_EVALUABLE"
    assert f"steps without {source} rows (--mix teacher=.25,base=.25)" in found.verdict.why


def test_a_pool_of_its_own_is_for_a_unit_on_another_base_alone():
    def found(base):
        others = [run(arm, 43, base_seed=base, pool_hash="two", teacher_pool="pool_7") for arm in ENDS]
        return states(judged(*others))["matched compute"]

    assert (found(7), found(0)) == ("PASS", "NOT_EVALUABLE")


def test_a_projection_that_took_nothing_out_is_not_evaluable():
    nothing = run("projected", 41)
    nothing = replace(nothing, series={**nothing.series, "removed_share": [0.0] * 20})
    only(judged(nothing), "V was taken out", "NOT_EVALUABLE")


# ---------------------------------------------------------------- a step, by source


def row(source, **values):
    blank = {"hacked": True, "gt_pass": False, "can_compile": True, "comp_len": 4, "ratio": 1.0, "ratio_low": 0.9,
             "at_clip": 0.0, "behaviour_gap": 0.3, "reference_gap": 0.3,
             "behaviour_logp": -0.5, "logp": -0.5}  # fmt: skip
    return {**blank, "source": source, **values}


def test_a_step_by_source_by_hand():
    """The teacher's tokens: 1 of 4 and 6 of 12 at the bound, 7 of 16. One of its two rows has a token below a tenth."""
    rows = [
        row("teacher", at_clip=0.25, ratio_low=0.09, logp=-0.75),
        row("teacher", at_clip=0.5, comp_len=12, hacked=False, behaviour_gap=1e-6),
        row("base", reference_gap=2e-6),
        row("student", reference_gap=None, behaviour_gap=1e-6),
    ]
    found = by_source(rows)
    assert list(found) == ["student", "teacher", "base"]
    assert all(set(numbers) == set(STUDENT) for numbers in found.values())
    teacher = found["teacher"]
    assert (teacher["rows"], teacher["hack"], teacher["at_clip"], teacher["lost"]) == (
        2.0,
        0.5,
        pytest.approx(7 / 16),
        0.5,
    )
    assert (teacher["ours"], teacher["untrained"], teacher["lead"]) == (0.5, 0.0, 0.125)
    assert (found["base"]["untrained"], found["student"]["untrained"]) == (1.0, None)
    assert len(source_lines(rows)) == 3
    assert "teacher    2 rows  hack 0.50" in source_lines(rows)[1]
    assert source_lines(rows[3:]) == []


@pytest.mark.parametrize(("gap", "bound"), [(1e-6, 1e-3), (0.01, 0.03), (0.2, 0.05), (None, 0.05)])
def test_rounding_is_what_the_students_own_rows_show_within_bounds(gap, bound):
    """In bfloat16 two passes of one model lie further apart; a student that is off itself is no yardstick."""
    assert rounding_of(gap) == pytest.approx(bound)
