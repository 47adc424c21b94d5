"""Penalty and screening by a monitor that flags rollouts.

    penalty     R'_b = R_b - 3 where b is flagged; advantages of R'          3 is what a pass pays
    screening   flagged rollouts leave their group: A = 0, and the others' mean (and std) are taken without them

    truth   a pure hack, by ground truth (oracle)
    90, 70  the same, each answer turned round with probability .1, .3 (oracle): drawn by seed, step and place
    probe   a linear probe on the policy's hidden states, fitted to the pairs on the untrained model
    phrase  the completion defines `run_tests`, whatever is in it
    judge   a judge (--judge) that reads prompt and completion scores it at 1/2 or more

The identity for a step in which nothing is flagged. What has no ground-truth tests is not flagged by the oracles.

Deviations: by ground truth the source screens attempted hacks out too (`strict=False`; its penalty is for pure hacks),
and a judge's or a probe's score of exactly 1/2 is penalised there but not screened. Its probe is fitted to rollouts of a
model that hacks; its judge is a large language model with another prompt, here whatever --judge names.

Source: Ariahw et al. 2025, github.com/ariahw/rl-rewardhacking bf5cdb8: src/train/rewards.py (DEFAULT_CORRECTNESS_REWARD,
3, is the penalty too), src/train/screening.py, src/train/verl/trainer.py (what is screened is in neither mean nor std).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch

from projected_grpo.channels.policy import PolicyLoss, advantages
from projected_grpo.interventions.base import Intervention, Rewards, Setup, StepContext
from projected_grpo.interventions.contrast import Probe
from projected_grpo.records import PHRASE

PENALTY = 3.0
FLAGGED_FROM = 0.5
"""A judge's score from which a rollout is flagged; fixed in docs/spec.md."""

Monitor = Callable[[StepContext], list[bool]]
"""Returns of every sample whether it is flagged as a hack."""


def by_truth(right: float, seed: int) -> Monitor:
    """Ground truth, each answer right with probability `right`. What is not known is not flagged."""

    def wrong(step: int, place: int) -> bool:
        draw = hashlib.sha256(f"monitor {seed} {step} {place}".encode()).digest()
        return int.from_bytes(draw[:6], "little") / 2**48 >= right

    return lambda context: [
        t is not None and bool(t) != wrong(context.step, context.first + i) for i, t in enumerate(context.truth or ())
    ]


def by_probe(setup: Setup) -> Monitor:
    """A linear probe, fitted to the pairs."""
    probe = Probe(setup.pairs)
    return lambda context: probe(context.hidden)


MONITORS: Mapping[str, Callable[[Setup], Monitor]] = {
    "truth": lambda setup: by_truth(1.0, setup.seed),
    "90": lambda setup: by_truth(0.9, setup.seed),
    "70": lambda setup: by_truth(0.7, setup.seed),
    "probe": by_probe,
    "phrase": lambda _: lambda context: [bool(PHRASE.search(text)) for text in context.text],
    "judge": lambda _: lambda context: [score >= FLAGGED_FROM for score in context.score],
}
"""By the second part of the arm's name."""


def group_advantages(rewards: Sequence[float], kind: str) -> list[float]:
    """Advantages of one group, by the objective (channels/policy.py)."""
    return advantages(torch.tensor([list(rewards)]), cast(PolicyLoss, kind))[0].tolist()


def penalty(rewards: Sequence[float], flags: Sequence[bool], kind: str) -> list[float]:
    """Advantages of one group in which a flagged rollout earns less."""
    return group_advantages([r - PENALTY * flag for r, flag in zip(rewards, flags, strict=True)], kind)


def screen(rewards: Sequence[float], flags: Sequence[bool], kind: str) -> list[float]:
    """Advantages of one group that flagged rollouts leave."""
    kept = [r for r, flag in zip(rewards, flags, strict=True) if not flag]
    left = iter(group_advantages(kept, kind) if kept else [])
    return [0.0 if flag else next(left) for flag in flags]


class Monitored(Intervention):
    """Advantages that heed a monitor; the arm's name says which: penalty_truth, screen_probe, ..."""

    def __init__(self, setup: Setup) -> None:
        kind, _, monitor = setup.arm.partition("_")
        self.of_group = {"penalty": penalty, "screen": screen}[kind]
        self.flags = MONITORS[monitor](setup)

    def advantages(self, rewards: Rewards, context: StepContext) -> Sequence[float]:
        flags, out, place = self.flags(context), [], 0
        for group in rewards.groups:
            out += self.of_group(group, flags[place : place + len(group)], rewards.kind)
            place += len(group)
        return out
