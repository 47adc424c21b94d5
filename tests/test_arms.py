"""One meaning for every arm: train, queue, results and the documents speak of the same configuration."""

import dataclasses
import functools
from pathlib import Path

import pytest
from harness import flags

from projected_grpo.arms import ARMS, RECIPE, arms_of
from projected_grpo.config import BuildConfig, ExtractConfig, ProbeConfig, TrainConfig, VerifyConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import PRESETS, presets
from projected_grpo.queue.chains import chain_of
from projected_grpo.queue.settings import QueueConfig
from projected_grpo.run import cli

OWN_TO_A_QUEUE = {"vhack": None, "out": None, "seed": 0, "grader_workers": 0, "teacher_pool": "", "steps": 0,
                  "until_onsets": 0, "horizon_of": None}  # fmt: skip
"""Where a queue's runs lie, how long they are, and how many share the machine: nothing that an arm is about."""


def typed(preset, arm):
    """The configuration of `train PRESET --arm ARM`, as a user types it."""
    share = ["--share-of", "run"] if ARMS[arm].matches else []
    return cli.parse(presets(TrainConfig), "", [preset, "--arm", arm, "--vhack", "v", *share])


@functools.cache
def links_of(preset):
    return {link.name: link for link in chain_of(QueueConfig(preset=preset, controls="all"))}


def queued(preset, arm):
    """The configuration of the same arm in the queue's chain, parsed from the link's own command."""
    return cli.parse(presets(TrainConfig), "", list(links_of(preset)[f"train_{arm}_41"].argv[1:]))


def method(config):
    return {k: v for k, v in dataclasses.asdict(config).items() if k not in OWN_TO_A_QUEUE}


@pytest.mark.parametrize("arm", ["vanilla", "projected", "literal", "random", "placebo"])
@pytest.mark.parametrize("preset", ["toy", "small", "fast", "full"])
def test_an_arm_is_the_same_configuration_in_train_and_in_the_queue(preset, arm):
    assert method(queued(preset, arm)) == method(typed(preset, arm))


def test_projected_is_the_recipe_in_every_preset_and_its_controls_differ_in_v_alone():
    assert {typed(preset, "projected").recipe for preset in PRESETS} == {RECIPE}
    projected = method(typed("full", "projected"))
    for control in arms_of("control"):
        differing = {**projected, "arm": control, "share_of": Path("run" if ARMS[control].matches else "")}
        assert method(typed("full", control)) == differing


def test_the_v_of_the_queue_is_that_of_extract_vhack_and_directions_of_a_share_wait_for_its_run():
    links = links_of("toy")
    queue = cli.parse(presets(ExtractConfig), "", list(links["extract_none_41"].argv[1:]))
    assert queue.pairs_draw == 41  # a replicate has a V of its own
    assert dataclasses.replace(queue, out=Path(), pairs_draw=0) == presets(ExtractConfig)["toy"]
    control = links["train_random_share_42"]
    assert "train_projected_42" in control.needs
    assert flags(control)["--share-of"] == str(links["train_projected_42"].out)


def test_only_what_is_typed_stands_against_an_arms_own_recipe():
    config = dataclasses.replace(typed("toy", "projected"), arm="literal")
    assert config.with_recipe().recipe == ARMS["literal"].recipe
    with pytest.raises(BadInput, match="literal: is one_sided on the gradient, not no_gate on the applied update"):
        config.with_recipe(["gate", "project"]).validate()
    with pytest.raises(BadInput, match="--arm literal"):
        config.validate()  # made by hand, and not what its name says


V, POOL = ["--vhack", "v"], ["--teacher-pool", "pool"]
IGNORED = [
    (TrainConfig, ["--kl-beta", "1"]),
    (TrainConfig, ["--arm", "kl", "--beta", "1"]),
    (TrainConfig, ["--lora-rank", "4"]),
    (TrainConfig, ["--k-use", "4"]),
    (TrainConfig, [*V, "--gate", "reverse"]),
    (TrainConfig, [*V, "--arm", "shrunk", "--preserve-magnitude"]),
    (TrainConfig, ["--teacher", "tiny"]),
    (TrainConfig, [*POOL, "--mix", "base=.5", "--teacher-pool", "pool"]),
    (TrainConfig, ["--pairs", "toy"]),
    (TrainConfig, ["--horizon-of", "run", "--steps", "9"]),
    (TrainConfig, ["--eval-plain"]),
    (TrainConfig, ["--eval-every", "1", "--hint", "none", "--eval-plain"]),
    (TrainConfig, ["--distill-loss", "sdpo"]),
    (TrainConfig, ["--trace-batch", "2"]),
    (TrainConfig, ["--replica", "1"]),
    (TrainConfig, ["--teacher-pool", "pairs", "--problems", "mine.jsonl"]),
    (ExtractConfig, ["--max-new", "9"]),
    (ExtractConfig, ["--control", "words", "--modes", "empty_loop"]),
    (VerifyConfig, ["--hint", "none"]),
    (ProbeConfig, ["--teacher-only", "--lr", "1"]),
    (ProbeConfig, ["--pool", "pool", "--temperature", "1"]),
]  # fmt: skip


@pytest.mark.parametrize(("config", "words"), IGNORED, ids=[" ".join(words) for _, words in IGNORED])
def test_an_option_that_is_typed_and_not_used_is_refused(config, words):
    name = next(word for word in reversed(words) if word.startswith("--"))
    with pytest.raises(BadInput, match=f"^{name} .*is not used .*leave it out"):
        cli.parse(presets(config), "", ["tiny", *words])


CONFIGS = {"train": TrainConfig, "probe_distill": ProbeConfig, "extract_vhack_grad": ExtractConfig,
           "verify_vhack": VerifyConfig, "build_base": BuildConfig}  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "chain"), [*((name, "interventions") for name in PRESETS), ("toy", "toy"), ("tiny", "grpo")]
)
def test_a_chain_types_what_its_links_use(preset, chain):
    for link in chain_of(QueueConfig(preset=preset, chain=chain, gpu_gb=24)):
        if config := CONFIGS.get(Path(link.argv[0]).stem):
            cli.parse(presets(config), "", list(link.argv[1:]))


@pytest.mark.parametrize("arm", [arm for arm in ARMS.values() if arm.needs_v], ids=lambda arm: arm.name)
def test_only_an_arm_that_removes_as_much_as_another_run_must_be_given_it(arm):
    faults = [w for w in TrainConfig(arm=arm.name).with_recipe().faults() if "--share-of" in w]
    assert len(faults) == (arm.name in ("random_share", "placebo_share"))


def test_a_dose_is_the_first_directions_of_the_replicates_v_and_its_controls_remove_what_it_removed():
    arms = ("vanilla", "projected", "random_share@16", "placebo_share@16")
    links = {link.name: link for link in chain_of(QueueConfig(preset="toy", chain="full", arms=arms, seeds=(41,)))}
    dose = links["train_projected@16_41"]
    assert flags(dose)["--k-use"] == "16"
    assert flags(dose)["--vhack"] == flags(links["train_projected_41"])["--vhack"]
    for control in ("random_share", "placebo_share"):
        given = flags(links[f"train_{control}@16_41"])
        assert given["--share-of"] == str(dose.out)
        assert "--k-use" not in given
    for word in ("projected@0", "projected@", "projected@k", "nobody@16"):
        with pytest.raises(BadInput, match=f"^--arms {word}: .*no number of directions behind @"):
            chain_of(QueueConfig(preset="toy", arms=("vanilla", word)))


def test_an_oracle_is_called_one():
    assert ARMS["penalty_truth"].title == "penalty_truth (oracle)"
    assert ARMS["penalty_probe"].title == "penalty_probe"
    oracles = {f"{kind}_{monitor}" for kind in ("penalty", "screen") for monitor in ("truth", "90", "70", "blind")}
    assert {arm.name for arm in ARMS.values() if arm.labels} == oracles


def test_a_smaller_card_gives_its_flags_to_every_script_that_loads_the_model():
    links = chain_of(QueueConfig(preset="full", gpu_gb=24))
    loads = [link for link in links if link.argv[0] != "scripts/results.py"]
    assert {flags(link)["--token-budget"] for link in loads} == {"2048"}
    assert all(("--rollout-batch" in link.argv) == (link.argv[0] == "scripts/train.py") for link in loads)
