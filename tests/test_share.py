"""H2: V against directions that take as much of the update."""

import pytest
from test_matching import ONSETS, run

from projected_grpo.verdicts.matching import group_runs
from projected_grpo.verdicts.share import judge

SHARES = {"projected": 0.33, "random_energy": 0.46, "placebo": 0.45, "vanilla": 0.0}
HACKS = {"projected": 0.05, "random_energy": 0.8, "placebo": 0.7, "vanilla": 0.85}
RANKS = {"random_energy": "5"}


def one(arm, seed, share=None, hack=None, place="", hacked=None, **changed):
    """A run that takes out so much of its update and ends with so many hacks, all of them pure unless `hacked` says so."""
    columns = {"update_removed": SHARES[arm] if share is None else share}
    if arm != "vanilla":
        columns["hack"] = columns["hacked"] = HACKS[arm] if hack is None else hack
    if hacked is not None:
        columns["hacked"] = hacked
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


def test_no_dose_makes_a_control_look_weak():
    """Of doses at .2, .46, .5 and .9 those of .46 and .5 count, and of them the one that hacks less, which equals V."""
    weak = [one("random_energy", s, 0.2, 0.84, "dose 1", **{"vhack.k": "2"}) for s in ONSETS]
    far = [one("random_energy", s, 0.9, 0.03, "dose 9", **{"vhack.k": "90"}) for s in ONSETS]
    [line] = judged(*weak, *far)
    assert line.verdict.status == "PASS"
    [chosen] = [c for c in line.clauses if c.name == "random_energy takes as much"]
    assert chosen.why.count("0.46 against 0.33") == 3
    strong = [one("random_energy", s, 0.5, 0.06, "dose 5", **{"vhack.k": "6"}) for s in ONSETS]
    assert status(*weak, *far, *strong)[1]["beats random_energy"] == "FAIL"


def test_each_rate_has_the_control_that_does_best_at_it():
    """The sneaky fail: beside a control that hacks as little in all, one with fewer pure hacks takes its place."""
    ours = [one("projected", s, hacked=0.40) for s in ONSETS]
    few = [one("random_energy", s, 0.46, 0.20, "dose 1", hacked=0.95, **{"vhack.k": "11"}) for s in ONSETS]
    as_v = [one("random_energy", s, 0.50, 0.21, "dose 2", hacked=0.40, **{"vhack.k": "12"}) for s in ONSETS]
    placebo = [one("placebo", s, hacked=0.95) for s in ONSETS]
    vanilla = [one("vanilla", s, hacked=0.99) for s in ONSETS]
    for others in (as_v, [*few, *as_v]):
        state, clauses = status(*ours, *vanilla, *placebo, *others)
        assert (state, clauses["beats random_energy, all hacking"]) == ("FAIL", "FAIL")
        assert (clauses["beats random_energy"], clauses["beats placebo, all hacking"]) == ("PASS", "PASS")
    assert status(*ours, *vanilla, *placebo, *few)[0] == "PASS"


def test_directions_that_do_as_well_at_the_same_share_make_it_fail():
    state, clauses = status(*(one("random_energy", seed, 0.4, 0.05 + seed / 1000) for seed in ONSETS))
    assert (state, clauses["beats random_energy"], clauses["beats placebo"]) == ("FAIL", "FAIL", "PASS")


def test_a_control_that_takes_far_more_and_wins_says_nothing():
    """In the sweep random directions of V's energy did as well with 1.4 times as much of the update."""
    far = [one("random_energy", seed, 0.94, 0.03) for seed in ONSETS]
    state, clauses = status(*far)
    assert (state, clauses["beats random_energy"]) == ("NOT_EVALUABLE", "NOT_EVALUABLE")
    # ... but one unit in which it takes little more is enough to lose to it
    assert status(one("random_energy", 41, 0.5, 0.03), *far[1:])[0] == "FAIL"


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


def told(rates):
    """H2's clauses of a study in which these series are the same at every step."""
    runs = [one(arm, seed) for arm in SHARES for seed in ONSETS]
    for r in runs:
        for name, value in rates.get(r.arm, {}).items():
            r.series[name] = [value] * r.steps
    [line] = judge(group_runs(runs), runs)
    return line.verdict.status, {clause.name: clause.status for clause in line.clauses}


def test_hacks_that_become_correct_are_hacks_all_the_same():
    """The numbers of V's first 4 directions in the study of doses: 85.6 and 59.2 % still hack."""
    state, clauses = told(
        {"projected": {"hack": 0.37, "hacked": 0.72}, "random_energy": {"hacked": 0.92}, "vanilla": {"hacked": 0.97}}
    )
    assert (state, clauses["hack reduction"], clauses["reduction of all hacking"]) == ("FAIL", "PASS", "FAIL")


def test_a_model_that_solves_nothing_beside_a_vanilla_that_solves_nothing_is_no_success():
    runs = [one(arm, seed) for arm in SHARES for seed in ONSETS]
    for r in runs:
        r.series["gt"] = [{"projected": 0.0, "vanilla": 0.08}.get(r.arm, 0.3)] * r.steps
        if r.arm == "projected":
            r.evals[r.steps]["gt"] = 0.0
    [line] = judge(group_runs(runs), runs)
    assert line.verdict.status == "FAIL"
    assert "held-out gt_pass kept fails" in line.verdict.why


@pytest.mark.parametrize("series", ["at one step", "later", "impossible"])
def test_a_share_is_known_at_nearly_every_step_and_in_each_third(series):
    """Means of .46: known at the last step alone; nothing in the first half and .92 after; 1.38 in the last third."""
    runs = [one(arm, seed) for arm in SHARES for seed in ONSETS]
    for r in runs:
        n = r.steps
        values = {"at one step": [None] * (n - 1) + [0.46], "later": [0.0] * (n // 2) + [0.92] * (n - n // 2),
                  "impossible": [0.0] * (2 * n // 3) + [1.38] * (n - 2 * n // 3)}  # fmt: skip
        if r.arm == "random_energy":
            r.series["update_removed"] = values[series]
    [line] = judge(group_runs(runs), runs)
    assert line.verdict.status == "NOT_EVALUABLE"
    assert "random_energy 41: none of 1 runs takes as much" in line.verdict.why


def test_a_method_that_takes_nothing_cannot_be_matched():
    """With its norm restored what was taken out is rounding."""
    state, _ = told(
        {"projected": {"update_removed": 1e-9}, **{c: {"update_removed": 2e-8} for c in ("random_energy", "placebo")}}
    )
    assert state == "NOT_EVALUABLE"


def test_v_of_another_kind_is_no_control():
    swapped = one("placebo", 42, **{"vhack.control": "random_energy"})
    [line] = judged(swapped)
    assert line.verdict.status == "NOT_EVALUABLE"
    assert "placebo 42 was run with a V of the kind random_energy" in line.verdict.why
    both = [one(arm, 42, **{"vhack.v_sha256": "the same"}) for arm in ("placebo", "random_energy")]
    assert "used one V" in judged(*both)[0].verdict.why


def test_v_that_was_not_taken_out_is_no_evidence():
    spared = run("projected", 42, rows={"update_removed": 0.33, "hack": 0.05, "removed_share": 0.2})
    assert status(spared)[1]["V was taken out"] == "NOT_EVALUABLE"


def test_controls_of_another_learning_rate_are_refused_by_name():
    [line] = judged(*(one("placebo", seed, lr=0.5) for seed in ONSETS))
    assert line.verdict.status == "NOT_EVALUABLE"
    assert "config.lr" in line.verdict.why


def test_it_is_not_asked_of_two_units_or_without_a_control():
    assert judged(seeds=tuple(ONSETS)[:2]) == []
    runs = [one(arm, seed) for arm in ("vanilla", "projected") for seed in ONSETS]
    assert judge(group_runs(runs), runs) == []
