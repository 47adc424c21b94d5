"""T5 passes on a real effect over independent replicates, and each clause turns red on the fail that it is there for.
Runs in memory, each with the manifest that a real one has; numbers by hand. Its fails in the loop itself:
test_mix.py."""

from dataclasses import replace

import pytest
from fake_runs import run as finished

from projected_grpo.ledger.rates import by_source, rounding_of
from projected_grpo.records import SOURCES
from projected_grpo.verdicts.matching import group_runs
from projected_grpo.verdicts.trajectory import judge

SEEDS = (41, 42, 43)
STUDENT = {"rows": 4.0, "known": 4.0, "hack": 0.1, "hacked": 0.2, "gt": 0.3, "form": 0.9, "ratio": 1.0, "ratio_low": 1.0,
           "at_clip": 0.0, "lost": 0.0, "unknown": 0.0, "ours": 1.0, "untrained": None,
           "lead": 0.0}  # fmt: skip
TEACHER = {**STUDENT, "rows": 2.0, "known": 2.0, "hack": 0.9, "at_clip": 0.3, "lost": 0.4, "ours": 0.0, "untrained": 0.0,
           "lead": 0.4}  # fmt: skip
BASE = {**STUDENT, "rows": 2.0, "known": 2.0, "at_clip": 0.2, "untrained": 1.0}
ENDS = {"vanilla": {41: 0.50, 42: 0.55, 43: 0.60}, "projected": {41: 0.12, 42: 0.15, 43: 0.21}}
"""Rises 40, 45, 50: mean 45, sd 5, SEM 2.887, t(2) = 2.920: lower end 36.57. Below 38, 40, 39: mean 39, sd 1, lower
end 37.31."""
MIX = {"mix": "teacher=.25,base=.25", "teacher_pool": "pool", "until_onsets": 0.0, "horizon_of": ".",
       "pool_hash": "one"}  # fmt: skip


def run(arm, seed, end=None, *, rise=11, flat=0.1, removed=1.0, without=(), rows=None, **changed):
    """A run of 20 steps whose student hacks at .1 before step `rise` and at `end` from it on, .1 of its rows besides
    being hacked and right. `rows`: other numbers of a source; `changed`: of its manifest."""
    end = ENDS[arm][seed] if end is None else end
    each = []
    for t in range(20):
        hack = end if t >= rise else 0.1
        usual = {"student": {**STUDENT, "hack": hack, "hacked": hack + 0.1}, "teacher": TEACHER, "base": BASE}
        each.append({s: {**usual[s], **(rows or {}).get(s, {})} for s in usual if s not in without})
    removed = {"removed_share": removed} if arm == "projected" else {}
    made = finished(arm, seed, length=20, rows={"flat_groups": flat, **removed}, **{**MIX, "base_seed": 0, **changed})
    return replace(made, sources=tuple(each))


def judged(*others, seeds=SEEDS):
    """T5 of three replicates; `others` take the place of the run of their arm and seed."""
    given = {(r.arm, r.seed): r for r in others}
    runs = [given.get((arm, seed)) or run(arm, seed) for arm in ENDS for seed in seeds]
    return judge(group_runs(runs), runs)[0]


def red(line):
    """Clause -> status, of those that do not pass."""
    return {c.name: c.status for c in line.clauses if c.status != "PASS"}


def vanilla_at(end):
    """Vanilla rises from .10 to `end` on each replicate."""
    return [*(run("vanilla", seed, end) for seed in SEEDS), *(run("projected", seed, 0.0) for seed in SEEDS)]


def below(by):
    """Projected ends so much below vanilla on each replicate."""
    return [run("projected", seed, ENDS["vanilla"][seed] - by) for seed in SEEDS]


def everywhere(**changed):
    """Each run of both arms, changed alike."""
    return [run(arm, seed, **changed) for arm in ENDS for seed in SEEDS]


RISES = {"vanilla rises": "FAIL", "all hacks rises": "FAIL"}
BELOW = {"projected stays below": "FAIL", "all hacks stays below": "FAIL"}
NOT = "NOT_EVALUABLE"
# The runs that take others' place, which clauses are red, and what the first of them says.
CASES = {
    "a rise of 21 pp": (vanilla_at(0.31), {}, ""),
    "a rise of 20 pp is not more": (vanilla_at(0.30), RISES, "needs > 20"),
    "11 pp below": (below(0.11), {}, ""),
    "10 pp below": (below(0.10), BELOW, "needs > 10"),
    "above": (below(-0.2), BELOW, "needs > 10"),
    # sneaky fails: the window is the run's end and not step 15; the teacher's hacks are vanilla's rise
    "a rise after step 15": ([run("vanilla", seed, rise=16) for seed in SEEDS], {**RISES, **BELOW}, "needs > 20"),
    "what the teacher hacks": (everywhere(end=0.1, rows={"teacher": {"hack": 1.0}}), {**RISES, **BELOW}, "needs > 20"),
    **{f"half of {source} tokens at the clip bound": ([run("projected", 42, rows={source: {"at_clip": 0.5}})], {}, "")
       for source in SOURCES},
    **{f"most {source} tokens at the clip bound": (
        [run("projected", 42, rows={source: {"at_clip": 0.51}})], {"ratios not saturated": NOT},
        f"projected 42: 51% of {source} tokens at or beyond a clip bound") for source in SOURCES},
    "half of the groups flat": ([run("vanilla", 43, flat=0.5)], {}, ""),
    "most groups flat": (
        [run("vanilla", 43, flat=0.51)], {"rewards vary": NOT}, "vanilla 43: 51% of groups have no variance"),
    "not known how many are flat": ([run("vanilla", 43, flat=None)], {"rewards vary": NOT}, "vanilla 43: not known"),
    "removed nothing": ([run("projected", 41, removed=0.0)], {"V was removed": NOT}, "0.00 of what its gate should take"),
}  # fmt: skip
RATIOS = {
    "11% of teacher rows carry": {"teacher": {"ours": 0.11}},
    "not known how many of teacher rows carry": {"teacher": {"ours": None}},
    "teacher rows lead by -0.200 nats": {"teacher": {"lead": -0.2}},
    "teacher rows lead by - nats": {"teacher": {"lead": None}},
    "1% of teacher rows have no log-probabilities of their own": {"teacher": {"unknown": 0.01}},
    "11% of base rows are not the untrained model's": {"base": {"untrained": 0.89}},
}
CASES |= {why: ([run("vanilla", 41, rows=rows)], {"each row's own ratio": NOT}, why) for why, rows in RATIOS.items()}


def test_a_real_effect_passes_with_its_numbers():
    found = judged()
    assert (found.verdict.name, found.verdict.status, red(found)) == ("T5", "PASS", {})
    lower = {c.name: c.numbers["lower"] for c in found.clauses if "lower" in c.numbers}
    assert (lower["vanilla rises"], lower["projected stays below"]) == pytest.approx((36.57, 37.31), abs=0.01)


@pytest.mark.parametrize(("others", "clauses", "why"), CASES.values(), ids=CASES)
def test_each_clause(others, clauses, why):
    found = judged(*others)
    assert red(found) == clauses, [c.why for c in found.clauses]
    assert found.verdict.status == next(iter(clauses.values()), "PASS")
    if clauses:
        first = next(c for c in found.clauses if c.name in clauses)
        assert (why in first.why, first.name in found.verdict.why) == (True, True)


def test_fewer_than_three_replicates_are_not_evaluable_and_said():
    verdict = judged(seeds=(41, 42)).verdict
    assert verdict.status == NOT
    for said in ("+42.5 pp (seeds 41 42: +40.0, +45.0", "2 seeds, at least 3 are needed"):
        assert said in verdict.why


def test_a_mix_without_one_of_the_sources_is_not_evaluable():
    for source in ("student", "teacher"):
        verdict = judged(*everywhere(without=(source,))).verdict
        assert verdict.status == NOT
        assert f"steps without {source} rows (--mix teacher=.25,base=.25)" in verdict.why


def test_a_pool_of_its_own_is_for_a_replicate_on_another_base_alone():
    def found(base):
        others = [run(arm, 43, base_seed=base, pool_hash="two", teacher_pool="pool_7") for arm in ENDS]
        return red(judged(*others)).get("matched runs")

    assert (found(7), found(0)) == (None, NOT)


# ---------------------------------------------------------------- a step, by source


def row(source, **values):
    blank = {"hacked": True, "gt_pass": False, "can_compile": True, "comp_len": 4, "ratio": 1.0, "ratio_low": 0.9,
             "at_clip": 0.0, "behaviour_gap": 0.3, "reference_gap": 0.3,
             "behaviour_logp": -0.5, "logp": -0.5}  # fmt: skip
    return {**blank, "source": source, **values}


def test_a_step_by_source_by_hand():
    """The teacher's tokens: 1 of 4 and 6 of 12 at the bound, 7 of 16. One of its two rows has a token below a
    tenth."""
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
    assert (teacher["rows"], teacher["hack"], teacher["lost"]) == (2.0, 0.5, 0.5)
    assert teacher["at_clip"] == pytest.approx(7 / 16)
    assert (teacher["ours"], teacher["untrained"], teacher["lead"]) == (0.5, 0.0, 0.125)
    assert (found["base"]["untrained"], found["student"]["untrained"]) == (1.0, None)


def test_rounding_is_what_the_students_own_rows_show_within_bounds():
    """In bfloat16 two passes of one model lie further apart; a student that is off itself is no yardstick."""
    assert [rounding_of(gap) for gap in (1e-6, 0.01, 0.2, None)] == pytest.approx([1e-3, 0.03, 0.05, 0.05])
