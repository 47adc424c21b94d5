"""H2: V against directions that take as much of the update, chosen by that share alone."""

import pytest
from test_matching import ONSETS, run

from projected_grpo.verdicts.matching import group_runs
from projected_grpo.verdicts.share import judge

SHARES = {"projected": 0.33, "random_energy": 0.46, "placebo": 0.45, "vanilla": 0.0}
HACKS = {"projected": 0.05, "random_energy": 0.8, "placebo": 0.7, "vanilla": 0.85}
RANKS = {"random_energy": "5"}


def one(arm, seed, share=None, hack=None, place="", **changed):
    """A run that takes out so much of its update and ends with so many hacks."""
    columns = {"update_removed": SHARES[arm] if share is None else share}
    if arm != "vanilla":
        columns["hack"] = HACKS[arm] if hack is None else hack
    if arm in RANKS:
        changed.setdefault("vhack.k", RANKS[arm])
    return run(arm, seed, rows=columns, place=place, **changed)


def judged(*others, seeds=tuple(ONSETS)):
    """Four arms at three units; `others` take the place of the runs of their arm and seed, or stand beside them."""
    given = {(r.arm, r.seed) for r in others if "dose" not in str(r.path)}
    runs = [one(arm, seed) for arm in SHARES for seed in seeds if (arm, seed) not in given] + list(others)
    return judge(group_runs(runs), runs)


def status(*others):
    [line] = judged(*others)
    return line.verdict.status, {clause.name: clause.status for clause in line.clauses}


def test_v_that_does_more_at_less_of_the_update_passes():
    assert status()[0] == "PASS"


def test_a_control_is_chosen_by_its_share_and_never_by_its_hacks():
    """Of three doses at .2, .46 and .9 that of .46 is held against V, though the others hack more and less."""
    weak = [one("random_energy", s, 0.2, 0.84, "dose 1", **{"vhack.k": "2"}) for s in ONSETS]
    strong = [one("random_energy", s, 0.9, 0.03, "dose 9", **{"vhack.k": "90"}) for s in ONSETS]
    [line] = judged(*weak, *strong)
    assert line.verdict.status == "PASS"
    [chosen] = [c for c in line.clauses if c.name == "random_energy takes as much"]
    assert chosen.why.count("0.46 against 0.33") == 3


def test_directions_that_do_as_well_at_the_same_share_make_it_fail():
    state, clauses = status(*(one("random_energy", seed, 0.4, 0.05 + seed / 1000) for seed in ONSETS))
    assert (state, clauses["beats random_energy"], clauses["beats placebo"]) == ("FAIL", "FAIL", "PASS")


def test_a_control_that_takes_far_more_and_wins_says_nothing():
    """In the sweep random directions of V's energy did as well with 1.4 times as much of the update."""
    state, clauses = status(*(one("random_energy", seed, 0.94, 0.03) for seed in ONSETS))
    assert (state, clauses["beats random_energy"]) == ("NOT_EVALUABLE", "NOT_EVALUABLE")


@pytest.mark.parametrize("share", [0.32, None])
def test_a_control_that_takes_less_in_one_unit_is_none(share):
    unit = one("placebo", 42)
    series = unit.series["update_removed"]
    unit.series["update_removed"] = [share for _ in series]
    state, clauses = status(unit)
    assert (state, clauses["placebo takes as much"]) == ("NOT_EVALUABLE", "NOT_EVALUABLE")


def test_a_margin_is_asked_of_the_lower_end():
    """10 pp in the mean, and one unit in which the control is no worse."""
    hacks = dict(zip(ONSETS, (0.05, 0.15, 0.25), strict=True))
    assert status(*(one("placebo", seed, hack=hacks[seed]) for seed in ONSETS))[1]["beats placebo"] == "FAIL"


def test_v_that_was_not_taken_out_is_no_evidence():
    spared = run("projected", 42, rows={"update_removed": 0.33, "hack": 0.05, "removed_share": 0.2})
    assert status(spared)[1]["V was taken out"] == "NOT_EVALUABLE"


def test_one_run_under_two_names_is_no_control():
    copy = one("random_energy", 42, rollouts="projected 42", hashes=["projected 42 0"] * 5)
    assert (
        status(copy, one("projected", 42, rollouts="projected 42", hashes=["projected 42 0"] * 5))[0] == "NOT_EVALUABLE"
    )


def test_controls_of_another_learning_rate_are_refused_by_name():
    [line] = judged(*(one("placebo", seed, lr=0.5) for seed in ONSETS))
    assert line.verdict.status == "NOT_EVALUABLE"
    assert "config.lr" in line.verdict.why


def test_it_is_not_asked_of_two_units_or_without_a_control():
    assert judged(seeds=tuple(ONSETS)[:2]) == []
    runs = [one(arm, seed) for arm in ("vanilla", "projected") for seed in ONSETS]
    assert judge(group_runs(runs), runs) == []
