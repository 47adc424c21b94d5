"""What two runs must share to be compared: one list for every comparison. No torch.

    differences(facts_of(a), facts_of(b), but_for=OF_SEED)

A comparison is about something: an arm, a seed, an adapter, V, the channels. What it is about may differ, and is a
short set of names below the list. Whatever is not in the list may always differ."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.losses import AUXILIARY

CONFIG = tuple(of.name for of in fields(TrainConfig) if of.metadata["role"] == "setting")
OF_DATA = tuple(loss.data for loss in AUXILIARY.values() if loss.data)
"""Hashes of what auxiliary losses learn from."""
V = (
    "control", "loss", "max_new", "k", "modes", "modules", "n_train", "pairs_hash", "pairs_draw", "hint", "prompt_setup",
    "v_sha256",
)  # fmt: skip
SHARED = (
    *(f"config.{name}" for name in CONFIG), *(f"vhack.{name}" for name in V),
    "model_hash", "problems_hash", "eval_hash", "pool_hash", *OF_DATA, "judge", "steps done",
)  # fmt: skip
"""What two runs of a comparison must share, by the names of `facts_of`."""

RECORDED = ("argv", "started", "commit", "diff", "finished", "steps_done", "resumed")
"""Of a manifest: for the reader alone."""

OF_SEED = frozenset({
    "config.seed", "config.base_seed", "config.lora_seed", "model_hash", "taid_teacher_hash", "steps done",
    "vhack.pairs_draw", "vhack.v_sha256",
})  # fmt: skip
"""Between replicates: all that makes one seed another one."""
OF_BASE = frozenset({"config.teacher_pool", "pool_hash"})
"""Between replicates on two base models: each base has its own teacher, and that one its own pool."""
SETTINGS: tuple[str, ...] = tuple(
    name.removeprefix("config.").replace("vhack.", "V.")
    for name in SHARED if name not in OF_SEED | OF_BASE | {"config.arm"}
)  # fmt: skip
"""Settings that tell runs of one arm apart: all that they must share, in the order in which a group's name lists
them."""
OF_PROJECTION = frozenset({
    *(f"vhack.{name}" for name in V),
    *(f"config.{name}" for name in ("pairs", "k_use", "noise_floor", "gate", "project", "overshoot", "preserve_magnitude",
                                    "refresh_every")),
})  # fmt: skip
"""Where one of two arms removes nothing: its V is only measured."""
OF_V = frozenset({"vhack.control", "vhack.v_sha256"})
"""Where two arms need V of different kinds: of the same rank and the same pairs."""
OF_EQUAL_REMOVAL = frozenset({"random_energy", "random_share"})
"""Kinds of V of as many random directions as remove as much as V removes; random_share is one of runs before
2026-11-29."""
OF_RANK = frozenset({"config.k_use", "vhack.k"})
"""Where one of the two V is of `OF_EQUAL_REMOVAL`, which are drawn for a rank and never cut to it."""
OF_LOSS = frozenset({"vhack.loss", "vhack.max_new", "vhack.v_sha256"})
"""Between V of the training loss and V of the NLL."""
OF_ADAPTER = frozenset({"config.adapter", "config.lora_rank", "config.lora_seed", "config.lr", "vhack.v_sha256"})
"""Between a LoRA and the singular basis: V has other coordinates, and the learning rate another unit."""
OF_CHANNELS = frozenset({
    *OF_DATA, "config.teacher",
    *(f"config.{name}" for loss in AUXILIARY.values() for name in (loss.weight, *loss.options)),
})  # fmt: skip
"""Between runs that learn from other channels."""


def of_arms(*arms: str) -> frozenset[str]:
    """What these arms are about: in this a run of one of them may differ from a run of another arm."""
    out = {"config.arm"}
    for arm in (ARMS[name] for name in arms):
        if not arm.projects:
            out |= OF_PROJECTION
        if arm.recipe:
            out |= {"config.gate", "config.project"}
        if arm.vhack not in (None, "none"):
            out |= OF_V
        if arm.vhack == "words":  # its V has pairs of its own
            out |= {"vhack.pairs_hash", "vhack.n_train", "vhack.modes", "config.pairs"}
        if arm.more_kl:  # the weight is chosen for this arm, and the others do not use it, nor it theirs
            out |= {"config.kl_beta", "config.beta"}
        if arm.derived:  # of a finished run: it has as many steps as its rates are taken over
            out.add("steps done")
        if "score" in arm.sees:  # the others' judge scores rollouts and changes nothing
            out |= {"config.judge", "judge"}
        if "teacher" in arm.sees:  # it freezes the teacher in; the others' pool is the same whatever they name
            out.add("config.teacher")
        if not arm.loophole:  # a prompt without a loophole has no hint
            out.add("config.hint")
    return frozenset(out)


def facts_of(manifest: Mapping[str, Any], steps: int | None = None) -> dict[str, Any]:
    """A manifest as one flat dict, without what it only records: config.lr, model_hash, vhack.k, ... `steps`: how
    many the run has done."""
    out: dict[str, Any] = {} if steps is None else {"steps done": steps}
    for key, value in manifest.items():
        if key not in RECORDED:
            out |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return out


def differences(
    a: Mapping[str, Any], b: Mapping[str, Any], but_for: Collection[str] = (), among: Collection[str] = SHARED
) -> str:
    """In which of the facts `among` two runs differ, each with both values, without what the comparison is about;
    empty if in none."""
    if "bnpo" in (a.get("config.loss"), b.get("config.loss")):  # each process divides by its own tokens
        among = [*among, "processes"]
    wrong = (name for name in sorted(among) if name not in but_for and a.get(name) != b.get(name))
    return "; ".join(f"{name}: {a.get(name)!r} against {b.get(name)!r}" for name in wrong)
