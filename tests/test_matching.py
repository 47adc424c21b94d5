"""What may be compared: every field that an arm is not about is held equal, and what differs is named with both values.
Runs in memory, each with the manifest that a real one has."""

from pathlib import Path

import pytest

from projected_grpo.arms import ARMS, arms_of
from projected_grpo.config import TrainConfig
from projected_grpo.ledger import comparison
from projected_grpo.ledger.comparison import SHARED, facts_of
from projected_grpo.ledger.folder import plain
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.h1 import judge
from projected_grpo.verdicts.matching import differences, group_runs

ENDS = {"vanilla": 0.85, "projected": 0.02, "no_loophole": 0.0, **dict.fromkeys(arms_of("control"), 0.6)}
ONSETS = {41: 60, 42: 70, 43: 80}


def manifest(arm, seed, done, **changed):
    """As `just train` writes it. `changed` are fields of the config, or whole facts (`model_hash`, `vhack.k`)."""
    kind = ARMS[arm].measured
    config = {
        **plain(TrainConfig()), "arm": arm, "seed": seed, "base_seed": seed % 3, "steps": done,
        "vhack": f"out/v_{kind}_{seed}.safetensors", "out": f"out/{arm}_{seed}", "horizon_of": f"out/vanilla_{seed}",
    }  # fmt: skip
    if arm == "vanilla":
        config |= {"steps": 900, "horizon_of": ".", "until_onsets": 3.0}
    v = {"control": kind, "k": "48", "pairs_draw": str(seed), "seed": str(seed), "v_sha256": f"{kind} {seed}",
         "pairs_hash": "words" if kind == "words" else "p", "directions": "1008", "commit": f"c{seed}"}  # fmt: skip
    out = {
        "kind": "train", "config": config, "vhack": v, "model_hash": f"base {seed % 3}", "tokenizer_hash": f"t{seed % 3}",
        "problems_hash": "toy", "adapter": {"adapter": "antipasto"}, "modules": 21, "processes": 1, "source_hash": "s",
        "versions": {"torch": "2.15"}, "commit": f"{arm} {seed}", "started": f"{arm} {seed}",
    }  # fmt: skip
    for name, value in changed.items():
        group, _, field = name.partition(".")
        if field:
            out[group] = {**out[group], field: value}
        elif name in config:
            config[name] = value
        else:
            out[name] = value
    return out


TESTED = frozenset((f"p{i}", j) for i in range(25) for j in range(4))


def run(arm, seed, place="", tested=(TESTED, TESTED), **changed):
    """A finished run of three of its unit's onsets; vanilla hacks from its onset on. `rows`: of its series."""
    onset, end = ONSETS[seed], ENDS[arm]
    steps = changed.pop("length", 3 * onset)
    # The mean of steps t-9 to t is first above one half at t = onset: six of the ten are at .85.
    hack = [0.85 if t > onset - 6 else 0.0 for t in range(steps)] if arm == "vanilla" else [end] * steps
    series = {"hack": hack, "hacked": hack, "gt": [0.3] * steps, "form": [0.97] * steps, "seconds": [1.0] * steps}
    share = 1.0 if ARMS[arm].projects else None
    columns = {"removed_share": share, "update_removed": 0.6, "update_norm": 0.2, **changed.pop("rows", {})}
    series |= {name: [value] * steps for name, value in columns.items()}
    return Run(
        Path(f"{arm}_{seed}{place}"), arm, seed, facts_of(manifest(arm, seed, steps, **changed), steps),
        10 * steps, series, {0: {"gt": 0.2}, steps: {"gt": 0.3}}, None,
        tested={0: tested[0], steps: tested[1]},
    )  # fmt: skip


def study(*others):
    """Every arm of three units; `others` take the place of the run of their arm and seed."""
    given = {(r.arm, r.seed): r for r in others}
    return [given.get((arm, seed)) or run(arm, seed) for arm in ENDS for seed in ONSETS]


def judged(*others):
    runs = study(*others)
    (found,) = judge(group_runs(runs), runs)
    return found


def test_how_many_processes_is_part_of_bnpo_alone():
    """Each divides by its own tokens; of the other losses it is the order of a sum."""
    runs = [[run("vanilla", 41, loss=loss, processes=n) for n in (1, 4)] for loss in ("grpo", "bnpo")]
    assert differences(*runs[0]) == []
    assert differences(*runs[1]) == ["processes: 1 against 4"]


def test_a_whole_study_passes_in_every_line():
    found = judged()
    assert [line.verdict.status for line in found.lines] == ["PASS"] * 3, [line.verdict.why for line in found.lines]
    assert "41: 180 42: 210 43: 240" in found.preregistered.clauses[0].why
    assert "3 base(s): base_seed 2: 41; base_seed 0: 42; base_seed 1: 43" in found.prevention.clauses[1].why


UNEQUAL = {
    "config.weight_decay": ("weight_decay", 0.3, "0.3 against 0.0"),
    "problems_hash": ("problems_hash", "easier", "'easier' against 'toy'"),
    "config.prompts_per_step": ("prompts_per_step", 1, "1 against 16"),
}


@pytest.mark.parametrize(
    ("arm", "field"),
    [("random", "config.weight_decay"), ("vanilla", "config.prompts_per_step"), ("kl", "problems_hash")],
)
def test_arms_that_differ_in_what_they_are_not_about_are_refused_by_name(arm, field):
    name, value, told = UNEQUAL[field]
    found = judged(run(arm, 42, **{name: value}))
    for line in found.lines:
        assert line.verdict.status == "NOT_EVALUABLE"
        assert f"{arm} 42 and projected 42 differ in {field}: {told}" in line.verdict.why


@pytest.mark.parametrize("name", SHARED)
def test_each_fact_of_the_list_is_compared(name):
    """And no other: where the files are, and how the work is shared out."""
    one = run("projected", 41).facts
    assert comparison.differences({**one, name: "other"}, one) == [f"{name}: 'other' against {one.get(name)!r}"]
    for other in ("config.out", "config.device", "config.cache", "vhack.commit", "vhack.pairs"):
        assert comparison.differences({**one, other: "other"}, one) == []


def test_the_weight_of_the_kl_arm_is_its_own_and_the_same_on_every_unit():
    """It was not free to differ: the arm could not be judged with a weight chosen for it."""
    chosen = [run("kl", seed, kl_beta=0.3) for seed in ONSETS]
    assert [line.verdict.status for line in judged(*chosen).lines] == ["PASS"] * 3
    found = judged(run("kl", 42, kl_beta=0.3))
    assert "kl 42 and kl 41 differ in config.kl_beta: 0.3 against 0.1" in found.prevention.verdict.why


def test_arms_of_two_bases_are_refused():
    found = judged(run("random", 42, model_hash="base 9"))
    assert "random 42 and projected 42 differ in model_hash: 'base 9' against 'base 0'" in found.held.verdict.why


def test_arms_of_two_lengths_are_refused():
    found = judged(run("random", 42, length=190))
    assert "random 42 and projected 42 differ in steps done: 190 against 210" in found.preregistered.verdict.why


@pytest.mark.parametrize("field", ["vhack.k", "vhack.pairs_hash", "gate"])
def test_a_control_has_the_rank_the_pairs_and_the_recipe_of_the_method(field):
    found = judged(run("placebo", 42, **{field: "other"}))
    assert "placebo 42 and projected 42 differ in" in found.held.verdict.why
    assert field.rpartition(".")[2] in found.held.verdict.why


def test_a_v_that_was_told_the_hack_never_goes_by_its_arms_own_name():
    """Not even alone: a summary without another projected run called *informed* `projected`, and H1 judged it as that."""
    told = {"vhack.pairs": "small-informed", "config.pairs": "small"}
    alone = [run("projected", 41, **told)]
    assert [group.name for group in group_runs(alone)] == ["projected informed V.pairs=small-informed"]
    both = [run("projected", 41), run("projected", 41, place="_informed", **told), run("vanilla", 41, **told)]
    assert [group.name.partition(" V.")[0] for group in group_runs(both)] == [
        "vanilla",
        "projected",
        "projected informed",
    ]
    found = judged(*(run("projected", seed, **told) for seed in ONSETS))
    assert [line.verdict.status for line in found.lines] == ["NOT_EVALUABLE"] * 3
    assert "projected 41: its V is from small-informed, written when the hack had been seen" in found.held.verdict.why


# ---------------------------------------------------------------- what the runs say of themselves


@pytest.mark.parametrize("arm", ["projected", "random", "words"])
@pytest.mark.parametrize(("share", "told"), [(None, "known of 0 of 210 steps"), (0.0, "0.00 of what its gate should take"),
                                             (0.89, "0.89 of"), (1.11, "1.11 of")])  # fmt: skip
def test_a_run_that_took_nothing_out_is_no_projection(arm, share, told):
    found = judged(run(arm, 42, rows={"removed_share": share}))
    assert [line.verdict.status for line in found.lines] == ["NOT_EVALUABLE"] * 3
    assert f"{arm} 42: {told}" in found.preregistered.verdict.why


@pytest.mark.parametrize(
    ("arm", "rows", "status"),
    [
        ("random_energy", {"update_removed": 0.01}, "NOT_EVALUABLE"),
        ("random_energy", {"update_removed": 0.47}, "NOT_EVALUABLE"),  # .8 of .6 is .48
        ("random_energy", {"update_removed": 0.49}, "PASS"),
        ("shrunk", {"update_norm": 0.6}, "NOT_EVALUABLE"),
        ("shrunk", {"update_norm": 0.23}, "NOT_EVALUABLE"),
        ("shrunk", {"update_norm": 0.17}, "NOT_EVALUABLE"),
        ("shrunk", {"update_norm": 0.21}, "PASS"),
        ("shrunk", {"update_norm": None}, "NOT_EVALUABLE"),
        ("kl", {"gt": 0.09}, "NOT_EVALUABLE"),  # as vanilla, which hacks: its weight is too small to be a control
        ("kl", {"gt": 0.199}, "NOT_EVALUABLE"),  # projected solves .3
        ("kl", {"gt": 0.2}, "PASS"),
        ("kl", {"gt": None}, "NOT_EVALUABLE"),
        ("kl", {"hack": 0.85, "hacked": 0.85}, "NOT_EVALUABLE"),  # it solves as much as projected, and so does vanilla
        ("random_energy", {"update_removed": 1.2}, "NOT_EVALUABLE"),  # no update loses more than it has
    ],
)
def test_a_control_that_does_less_is_no_match(arm, rows, status):
    found = judged(*(run(arm, seed, rows=rows) for seed in ONSETS))
    assert (found.held.verdict.status, found.prevention.verdict.status) == ("PASS", status)


@pytest.mark.parametrize(
    ("tested", "told"),
    [
        ((frozenset({("p0", 0)}),) * 2, "evaluated on 1 different rollouts; at least 100"),
        ((TESTED, frozenset((p, j + 1) for p, j in TESTED)), "other problems or samples"),
        ((TESTED, TESTED | {("p9", 9)}), "other problems or samples"),
    ],
)
def test_an_evaluation_is_of_enough_rollouts_and_of_the_same_before_and_after(tested, told):
    found = judged(run("projected", 42, tested=tested))
    assert (found.preregistered.verdict.status, found.held.verdict.status) == ("PASS", "NOT_EVALUABLE")
    assert told in found.held.verdict.why


def test_one_unit_whose_control_does_a_sixtieth_is_not_hidden_by_the_mean():
    """.6 removed by the method in each unit; by the control .01, .95 and .95: a mean of .64, and no control in unit 41."""
    taken = {41: 0.01, 42: 0.95, 43: 0.95}
    found = judged(*(run("random_energy", seed, rows={"update_removed": x}) for seed, x in taken.items()))
    assert (found.held.verdict.status, found.prevention.verdict.status) == ("PASS", "NOT_EVALUABLE")
    assert "random_energy 41's update_removed is 0.02 of projected's" in found.prevention.verdict.why
    norms = {41: 0.1, 42: 0.2, 43: 0.3}  # .2 each: half, as long, half as long again; mean .2
    found = judged(*(run("shrunk", seed, rows={"update_norm": x}) for seed, x in norms.items()))
    assert found.prevention.verdict.status == "NOT_EVALUABLE"
    unknown = run("random_energy", 42, rows={"update_removed": None})
    assert judged(unknown).prevention.verdict.status == "NOT_EVALUABLE"


@pytest.mark.parametrize("arm", ["placebo", "words"])
def test_a_v_of_another_kind_under_an_arms_name_is_refused(arm):
    found = judged(run(arm, 42, **{"vhack.control": "random"}))
    assert [line.verdict.status for line in found.lines] == ["NOT_EVALUABLE"] * 3
    assert f"{arm} 42 was run with a V of the kind random" in found.preregistered.verdict.why


# ---------------------------------------------------------------- independent units


@pytest.mark.parametrize("arm", ["projected", "random", "placebo", "shrunk"])
def test_units_that_share_a_v_are_named(arm):
    kind = ARMS[arm].measured
    shared = {"vhack.v_sha256": "one and the same"}
    same = [run(a, s, **shared) for a in ENDS for s in (41, 43) if ARMS[a].measured == kind]
    found = judged(*same)
    assert found.held.verdict.status == "PASS"
    assert found.prevention.verdict.status == "NOT_EVALUABLE"
    assert f"seeds 41 and 43 share {arm}'s V: v_sha256 one and" in found.prevention.verdict.why


def test_units_that_share_a_draw_of_pairs_are_named_but_random_directions_come_from_none():
    """Another base, another V, the same pairs."""
    found = judged(*(run(arm, seed, **{"vhack.pairs_draw": "0"}) for arm in ENDS for seed in ONSETS))
    assert "seeds 41 and 42 share projected's V: pairs_draw 0" in found.prevention.verdict.why
    assert "share placebo's V" in found.prevention.verdict.why
    assert "share random" not in found.prevention.verdict.why


def test_a_base_that_three_units_share_is_said():
    found = judged(*(run(arm, seed, base_seed=7) for arm in ENDS for seed in ONSETS))  # three builds, a bit different
    assert found.prevention.verdict.status == "PASS"
    assert "1 base(s): base_seed 7: 41, 42, 43" in found.prevention.clauses[1].why
    assert found.prevention.notes[0].startswith("of the world: not known")


# ---------------------------------------------------------------- doses, and the code


def test_random_directions_of_equal_energy_are_compared_by_the_rank_that_v_is_cut_to():
    """projected takes the first 8 of 96 directions; its control is drawn to hold the energy of a V of 8."""
    cut_to_8 = run("projected", 41, **{"vhack.k": "96", "k_use": 8})
    assert differences(run("random_energy", 41, **{"vhack.k": "8"}), cut_to_8) == []
    assert differences(run("random_energy", 41, **{"vhack.k": "8"}), run("placebo", 41, k_use=8)) == []
    assert differences(run("random_energy", 41, **{"vhack.k": "96"}), cut_to_8) == ["config.k_use: 0 against 8"]
    assert differences(run("random_energy", 41, **{"vhack.k": "4"}), cut_to_8) == [
        "config.k_use: 0 against 8", "vhack.k: '4' against '96'",
    ]  # fmt: skip
    assert differences(run("placebo", 41, **{"vhack.k": "8"}), cut_to_8) == [
        "config.k_use: 0 against 8", "vhack.k: '8' against '96'",
    ]  # fmt: skip
