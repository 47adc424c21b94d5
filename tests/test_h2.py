"""H2 passes on a V that matters at its share of the update, and turns red or silent on what would fake it. By hand."""

from dataclasses import replace

import pytest
from fake_runs import ONSETS, run, states

from projected_grpo.verdicts import h2
from projected_grpo.verdicts.matching import group_runs

CONTROLS = {"random_share": (0.80, 0.75, 0.70), "placebo_share": (0.50, 0.60, 0.55)}


def ended(arm, seed, hacks, removed=0.33, **changed):
    """A run at k = 16 that ends with so many held-out hacks."""
    made = run(arm, seed, rows={"update_removed": removed}, hack=0.0, k_use=16, **changed)
    return replace(made, evals={**made.evals, made.steps: {"gt": 0.3, "hack": hacks}})


def judged(v=(0.05, 0.10, 0.15), controls=CONTROLS, removed=0.33, without=(), **changed):
    runs = [ended("projected", seed, rate, **changed) for seed, rate in zip(ONSETS, v, strict=True)]
    for arm, rates in controls.items():
        both = zip(ONSETS, rates, strict=True)
        runs += [ended(arm, seed, rate, removed) for seed, rate in both if (arm, seed) not in without]
    return h2.judge(group_runs(runs), runs)


def test_a_v_that_beats_both_controls_at_its_share_passes_with_its_numbers():
    (line,) = judged()
    assert line.verdict.name == "H2 projected@16"
    assert line.verdict.status == "PASS"
    found = {c.name: c.numbers for c in line.clauses}
    # 75, 65, 55: mean 65, sd 10, SEM 5.7735; t of .95 with 2 degrees of freedom 2.91999
    assert found["beats random_share"]["lower"] == pytest.approx(65 - 2.91999 * 5.7735, abs=1e-2)
    # 45, 50, 40: mean 45, sd 5
    assert found["beats placebo_share"]["lower"] == pytest.approx(45 - 2.91999 * 2.8868, abs=1e-2)


@pytest.mark.parametrize(
    ("changed", "clause", "status"),
    [
        ({"v": (0.75, 0.70, 0.72)}, "beats random_share", "FAIL"),  # any direction does it
        ({"v": (0.48, 0.55, 0.50)}, "beats placebo_share", "FAIL"),  # any contrast does it
        ({"removed": 0.30}, "same share", "NOT_EVALUABLE"),  # the controls removed less, and so hack more
        ({"removed": 0.36}, "same share", "NOT_EVALUABLE"),
        ({"without": {("random_share", 42)}}, "beats random_share", "NOT_EVALUABLE"),  # the run that went wrong is gone
        ({"controls": {"random_share": CONTROLS["random_share"]}}, "beats placebo_share", "NOT_EVALUABLE"),
    ],
)
def test_each_clause_turns_red_or_silent(changed, clause, status):
    (line,) = judged(**changed)
    assert states(line)[clause] == status
    assert line.verdict.status == status


def test_a_control_of_a_seed_that_v_lacks_is_missing_evidence():
    runs = [ended("projected", seed, 0.1) for seed in (41, 42)]
    runs += [ended(arm, seed, 0.8) for arm in CONTROLS for seed in ONSETS]
    (line,) = h2.judge(group_runs(runs), runs)
    assert line.verdict.status == states(line)["beats random_share"] == "NOT_EVALUABLE"


def test_another_pair_set_or_no_control_is_no_line():
    assert judged(**{"vhack.pairs_hash": "same bodies"}) == []
    assert judged(controls={}) == []
