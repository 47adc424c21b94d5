"""Penalty and screening by a monitor that flags rollouts.

    penalty     R'_b = R_b - 3 where b is flagged; advantages of R'          3 is what a pass pays
    screening   flagged rollouts leave their group: A = 0, and the others' mean (and std) are taken without them

    Truth             a pure hack, by ground truth (oracle)
    Right90, Right70  the same, each answer turned round with probability .1, .3 (oracle): drawn by seed, step and place
    Probing           a linear probe on the policy's hidden states, fitted to the pairs on the untrained model
    Phrase            the completion defines `run_tests`, whatever is in it
    Judged            a judge (--judge) that reads prompt and completion scores it at 1/2 or more

The identity for a step in which nothing is flagged. What has no ground-truth tests is not flagged by the oracles.

Deviations: by ground truth the source screens attempted hacks out too (`strict=False`; its penalty is for pure hacks),
and a judge's or a probe's score of exactly 1/2 is penalised there but not screened. Its probe is fitted to rollouts of a
model that hacks; its judge is a large language model with its own prompt, here whatever --judge names.

Source: Ariahw et al. 2025, github.com/ariahw/rl-rewardhacking bf5cdb8: src/train/rewards.py (DEFAULT_CORRECTNESS_REWARD,
3, is the penalty too), src/train/screening.py, src/train/verl/trainer.py (what is screened is in neither mean nor std).
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

import torch

from projected_grpo.channels.policy import PolicyLoss, advantages
from projected_grpo.interventions.base import Intervention, View
from projected_grpo.interventions.contrast import Probe
from projected_grpo.ledger.phrase import PHRASE

PENALTY = 3.0
FLAGGED_FROM = 0.5
"""A judge's score from which a rollout is flagged; fixed in docs/spec.md."""


class Monitor(ABC):
    """Says of every sample of a view whether it looks like a hack."""

    def __init__(self, setting: View | None = None) -> None:  # noqa: B027 - most learn from nothing
        """Whatever it learns from, before the first step."""

    @abstractmethod
    def flags(self, view: View) -> list[bool]:
        """True: flagged."""


class Truth(Monitor):
    """Ground truth, each answer right with probability `right`."""

    right = 1.0

    def flags(self, view: View) -> list[bool]:
        return [t is not None and bool(t) != self.wrong(view, view.first + i) for i, t in enumerate(view.truth)]

    def wrong(self, view: View, place: int) -> bool:
        """Whether this answer is turned round."""
        draw = hashlib.sha256(f"monitor {view.seed} {view.step} {place}".encode()).digest()
        return int.from_bytes(draw[:6], "little") / 2**48 >= self.right


class Right90(Truth):
    """90 % right."""

    right = 0.9


class Right70(Truth):
    """70 % right."""

    right = 0.7


class Probing(Monitor):
    """A linear probe."""

    def __init__(self, setting: View) -> None:
        self.probe = Probe(setting.pairs)

    def flags(self, view: View) -> list[bool]:
        return self.probe(view.hidden)


class Phrase(Monitor):
    """A regular expression."""

    def flags(self, view: View) -> list[bool]:
        return [bool(PHRASE.search(text)) for text in view.text]


class Judged(Monitor):
    """A judge's score."""

    def flags(self, view: View) -> list[bool]:
        return [score >= FLAGGED_FROM for score in view.score]


class Monitored(Intervention, ABC):
    """Advantages that heed a monitor."""

    monitor: type[Monitor]

    def __init__(self, setting: View) -> None:
        self.watch = self.monitor(setting)

    def advantages(self, view: View) -> Sequence[float]:
        flags, out, place = self.watch.flags(view), [], 0
        for group in view.rewards.groups:
            out += self.of_group(group, flags[place : place + len(group)], view.rewards.kind)
            place += len(group)
        return out

    @abstractmethod
    def of_group(self, rewards: Sequence[float], flags: Sequence[bool], kind: str) -> list[float]:
        """Advantages of one group."""


def group_advantages(rewards: Sequence[float], kind: str) -> list[float]:
    """As the objective takes them (channels/policy.py)."""
    return advantages(torch.tensor([list(rewards)]), cast(PolicyLoss, kind))[0].tolist()


class Penalty(Monitored):
    """What is flagged earns less."""

    def of_group(self, rewards: Sequence[float], flags: Sequence[bool], kind: str) -> list[float]:
        return group_advantages([r - PENALTY * flag for r, flag in zip(rewards, flags, strict=True)], kind)


class Screen(Monitored):
    """What is flagged leaves its group."""

    def of_group(self, rewards: Sequence[float], flags: Sequence[bool], kind: str) -> list[float]:
        kept = [r for r, flag in zip(rewards, flags, strict=True) if not flag]
        left = iter(group_advantages(kept, kind) if kept else [])
        return [0.0 if flag else next(left) for flag in flags]


class PenaltyTruth(Penalty):
    monitor = Truth


class Penalty90(Penalty):
    monitor = Right90


class Penalty70(Penalty):
    monitor = Right70


class PenaltyProbe(Penalty):
    monitor = Probing


class PenaltyPhrase(Penalty):
    monitor = Phrase


class PenaltyJudge(Penalty):
    monitor = Judged


class ScreenTruth(Screen):
    monitor = Truth


class Screen90(Screen):
    monitor = Right90


class Screen70(Screen):
    monitor = Right70


class ScreenProbe(Screen):
    monitor = Probing


class ScreenPhrase(Screen):
    monitor = Phrase


class ScreenJudge(Screen):
    monitor = Judged
