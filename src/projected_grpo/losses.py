"""Registries of losses, by name: the policy losses of --loss, and the auxiliary losses with the options that turn
them on. The losses themselves are in channels/. Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True)
class PolicyLoss:
    """One policy loss; channels/policy.py has the formulas."""

    divisor: Literal["max_new", "own_tokens", "local_tokens", "all_tokens"]
    """What a sample's sum over tokens is divided by: rows x the longest completion, its own tokens x rows, the tokens
    of each process's batch, or those of the whole step."""
    centred: bool = False
    """Its advantage is R - mean; else that is also divided by the group's standard deviation."""
    clipped: bool = True
    """PPO's clipped ratio; else channels/dppo.py, which has a term on rows of zero advantage too."""


POLICY_LOSSES: Mapping[str, PolicyLoss] = {
    "dr_grpo": PolicyLoss("max_new", centred=True),
    "grpo": PolicyLoss("own_tokens"),
    "bnpo": PolicyLoss("local_tokens"),
    "dapo": PolicyLoss("all_tokens"),
    "dppo": PolicyLoss("all_tokens", centred=True, clipped=False),
}


@dataclass(frozen=True)
class Auxiliary:
    """One auxiliary loss of `train`."""

    weight: str
    """The config field of its weight; 0 = off."""
    options: tuple[str, ...] = ()
    """Config fields that only count with that weight."""
    data: str = ""
    """Name in the manifest of the hash of what it learns from."""
    metrics: tuple[tuple[str, str], ...] = ()
    """What it adds to the column `channels`: name and meaning."""


AUXILIARY: Mapping[str, Auxiliary] = {
    "hint_distill": Auxiliary(
        "alpha",
        ("distill_hint", "distill_loss", "distill_teacher"),
        metrics=(("rows", "completions that were distilled"),),
    ),
    "trace_dpo": Auxiliary(
        "trace_weight",
        ("trace_pairs", "trace_batch", "trace_loss"),
        data="pairs_sha256",
        metrics=(
            ("rows", "preference pairs of the step"),
            ("margin", "mean of how much higher the preferred one's reward is (DPO: beta x log-ratio)"),
            ("accuracy", "share of pairs in which it is higher"),
        ),
    ),
    "taid": Auxiliary(
        "taid_weight",
        data="taid_teacher_hash",
        metrics=(
            ("rows", "completions that were distilled"),
            ("t", "how far the target has moved from student to teacher"),
        ),
    ),
}
"""In the order of tables."""

if TYPE_CHECKING:
    LossName = str
else:
    LossName = Literal[tuple(POLICY_LOSSES)]
