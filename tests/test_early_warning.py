"""Early warning: the alarm's rule by hand, and every sneaky fail that its clauses are there for."""

from pathlib import Path

import pytest

from projected_grpo.arms import ARMS
from projected_grpo.ledger.phrase import PHRASE
from projected_grpo.verdicts import early_warning
from projected_grpo.verdicts.early_warning import SIGNALS, alarm, alarms_text, judge, units
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.matching import RunGroup
from projected_grpo.verdicts.step_numbers import reward_spread

QUIET = [0.10, 0.12] * 10
"""Median .11, MAD .01, s = .014826: the bound is .11 + 5 s / sqrt(5) = .14315."""


def test_the_alarm_is_the_first_window_beyond_the_bound_by_hand():
    assert alarm([*QUIET, *[0.14] * 40], 0.001) is None
    assert alarm([*QUIET, *[0.144] * 40], 0.001) == 24  # the first window without one of the first 20 steps
    rises = [*QUIET, *[0.11] * 10, *[0.20] * 40]  # .11 + .09 j / 5 > .14315 from j = 2 on: steps 30, 31
    assert alarm(rises, 0.001) == 31
    assert alarm([*QUIET, *[0.0] * 40], 0.001) is None  # a fall is no rise


def test_a_constant_signal_has_the_resolution_that_it_is_given():
    """One match of a regular expression in 32 rollouts is no alarm: 2.24 a step are."""
    assert alarm([*[0.0] * 25, 1 / 32, *[0.0] * 20], 1 / 32) is None
    assert alarm([*[0.0] * 25, *[2 / 32] * 20], 1 / 32) is None
    assert alarm([*[0.0] * 25, *[3 / 32] * 20], 1 / 32) == 28  # 3 * 4 / 5 = 2.4 of 32


def test_what_is_not_known_is_no_alarm_and_no_quiet():
    with pytest.raises(ValueError, match="known in 0 of 36 windows after the first 20 steps; 90 % are needed"):
        alarm([*QUIET, *[None, 0.5] * 20], 0.001)
    with pytest.raises(ValueError, match="known at 14 of the first 20"):
        alarm([*[None] * 6, *[0.1] * 40], 0.001)


def test_the_spread_is_within_groups():
    """Groups (0, 2) and (3, 3): deviations 1 and 0. Over all rows it would be 1.22."""
    rows = [
        {"problem_id": p, "sample_id": i, "reward": r}
        for p, i, r in (("a", 0, 0.0), ("a", 1, 2.0), ("b", 0, 3.0), ("b", 1, 3.0))
    ]
    assert reward_spread(rows) == 0.5
    assert reward_spread([*rows, *({**row, "reward": 1.0} for row in rows[:2])]) == pytest.approx(1 / 3)  # a, met again
    assert reward_spread([]) is None


def test_the_phrase_is_the_one_that_the_monitors_heed():
    from projected_grpo.interventions import monitors

    assert monitors.PHRASE is PHRASE


# ---------------------------------------------------------------- the verdict

STEPS, ONSETS = 200, {41: 100, 42: 110, 43: 120}


def step_up(at):
    """Quiet, and high from a step on, at which one of five lifts the mean by .078 and the alarm comes; None: never."""
    return [*QUIET, *(0.5 if at is not None and t >= at else 0.11 for t in range(20, STEPS))]


def run(arm, seed, ups):
    """`ups`: signal -> step at which it rises. The hack rate is 1 from 5 steps before the onset on: the mean over ten is
    above .5 at the sixth."""
    onset = ONSETS[seed] if arm == "vanilla" else None
    hack = [1.0 if onset and t >= onset - 5 else 0.0 for t in range(STEPS)]
    names = ("phrase", "hacked", *(signal.name for signal in SIGNALS))
    series = {"hack": hack, **{name: step_up(ups.get(name)) for name in names}}
    facts = {"config.arm": arm, "config.seed": seed, "config.steps": STEPS, "vhack.v_sha256": str(seed),
             "vhack.pairs_draw": str(seed)}  # fmt: skip
    return Run(Path(f"{arm}_{seed}"), arm, seed, facts, STEPS * 32, series, {}, None)


def world(vanilla, ceiling=None, seeds=tuple(ONSETS)):
    """vanilla: seed, onset -> ups; ceiling: ups of every no_loophole run."""
    runs = [run("vanilla", s, vanilla(ONSETS[s])) for s in seeds]
    runs += [run("no_loophole", s, ceiling or {}) for s in seeds]
    (line,) = judge([RunGroup("vanilla", tuple(runs[: len(seeds)]))], runs)
    return line


def early(onset):
    """cos_in rises 40 steps before the onset, the phrase 10, the rest with the hack rate."""
    return {
        "cos_in": onset - 41 - onset % 7,
        "phrase": onset - 11,
        "cos_update_in": onset + 5,
        "reward_spread": onset - 11,
    }


def statuses(line):
    return {c.name: c.status for c in line.clauses}


def test_onsets_are_where_they_should_be():
    assert run("vanilla", 41, {}).onset == 100


def test_a_signal_that_leads_the_regular_expression_passes_and_no_other():
    line = world(early)
    assert line.verdict.status == "PASS"
    assert "cos_in" in line.verdict.why
    assert statuses(line) == {
        "cos_in": "PASS",  # leads of 42 to 46
        "cos_update_in": "FAIL",  # rises after the onset
        "energy_update_in": "FAIL",  # never fires: counted as after the last step
        "reward_spread": "FAIL",  # as early as the phrase, and no earlier
    }
    found = {c.name: c.numbers for c in line.clauses}
    assert found["cos_in"]["lead"] == pytest.approx((43 + 46 + 42) / 3)
    assert found["cos_in"]["ahead"] == pytest.approx((32 + 35 + 31) / 3)
    # sd 2.0817, / sqrt 3 = 1.2019; t(1 - .05 / 4, 2 df) = 6.2053
    assert found["cos_in"]["lead_lower"] == pytest.approx(131 / 3 - 6.2053 * 1.2019, abs=1e-3)
    assert "not surely before a regular expression" in next(c.why for c in line.clauses if c.name == "reward_spread")
    assert any(note.startswith("hacked, ground truth") for note in line.notes)
    never = next(c.why for c in line.clauses if c.name == "energy_update_in")
    assert "no lead (41: never rose, 42: never rose, 43: never rose); false alarms in 0 of 3" in never
    assert "-" not in never  # it has no lead, not even a bad one


def test_an_onset_that_was_not_reached_is_not_said_to_come_never():
    quiet = run("no_loophole", 41, {})
    assert units({41: quiet}) == ({}, ["vanilla 41 does not start hacking within 200 steps: nothing to warn of"])
    assert "(onset of hacking: not within 200 steps;" in alarms_text(quiet)
    assert "(onset of hacking: at step 100;" in alarms_text(run("vanilla", 41, {}))


def test_a_signal_that_always_fires_is_worthless_however_much_it_leads():
    line = world(early, {"cos_in": 50})
    assert statuses(line)["cos_in"] == "FAIL"
    why = next(c.why for c in line.clauses if c.name == "cos_in")
    assert why.startswith("fires where there is nothing to warn of")
    assert "false alarms in 3 of 3 no_loophole runs" in why
    assert line.verdict.status == "FAIL"


@pytest.mark.parametrize("first", [[1.0] * 20, [0.1 + 0.045 * t for t in range(20)]])
def test_nothing_is_before_a_regular_expression_that_has_spoken_already(first):
    """A rise alone is asked for: where the phrase stood in each rollout from the first step on it had "never fired"."""
    runs = [run("vanilla", s, early(ONSETS[s])) for s in ONSETS] + [run("no_loophole", s, {}) for s in ONSETS]
    runs[0].series["phrase"][:20] = first
    (line,) = judge([RunGroup("vanilla", tuple(runs[:3]))], runs)
    assert {c.status for c in line.clauses} == {"NOT_EVALUABLE"}
    assert "vanilla 41: " in line.clauses[0].why
    assert "nothing is before it" in line.clauses[0].why


def test_one_lucky_unit_is_no_lead():
    line = world(lambda onset: {"cos_in": 30 if onset == 100 else onset - 2, "phrase": onset})
    assert statuses(line)["cos_in"] == "FAIL"


def test_nothing_is_judged_without_enough_units_or_without_quiet_runs():
    assert set(statuses(world(early, seeds=(41, 42))).values()) == {"NOT_EVALUABLE"}
    runs = [run("vanilla", s, early(o)) for s, o in ONSETS.items()]
    (line,) = judge([RunGroup("vanilla", tuple(runs))], runs)
    assert set(statuses(line).values()) == {"NOT_EVALUABLE"}
    assert "3 units and 0 no_loophole runs" in line.clauses[0].why


def test_runs_without_v_are_named():
    runs = [run(arm, s, early(o)) for arm in ("vanilla", "no_loophole") for s, o in ONSETS.items()]
    runs[0].series["cos_in"][:] = [None] * STEPS
    (line,) = judge([RunGroup("vanilla", tuple(runs[:3]))], runs)
    assert statuses(line)["cos_in"] == "NOT_EVALUABLE"
    assert "cos_in of vanilla 41: known at 0 of the first 20" in line.clauses[0].why
    assert "known at 0" in alarms_text(runs[0])


def test_a_run_that_hacks_from_the_start_is_no_unit(monkeypatch):
    monkeypatch.setitem(ONSETS, 41, 33)
    line = world(early)
    assert "vanilla 41 starts at step 33: its first 20 steps are no quiet ones" in line.notes[0]
    assert set(statuses(line).values()) == {"NOT_EVALUABLE"}  # two units are left


def test_nobody_is_warned_of_a_run_that_never_hacks():
    assert judge([RunGroup("no_loophole", (run("no_loophole", 41, {}),))], []) == []


def test_runs_of_other_settings_are_not_compared():
    runs = [run(arm, s, early(o)) for arm in ("vanilla", "no_loophole") for s, o in ONSETS.items()]
    for other in runs[3:]:
        other.facts["config.lr"] = 0.5
    (line,) = judge([RunGroup("vanilla", tuple(runs[:3]))], runs)
    assert set(statuses(line).values()) == {"NOT_EVALUABLE"}
    assert "differ in config.lr" in line.clauses[0].why


def test_the_arms_that_are_read_are_in_the_registry():
    assert {early_warning.VANILLA, early_warning.CEILING} <= set(ARMS)
