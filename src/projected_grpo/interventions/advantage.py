"""Advantage modification: a rollout that looks like a shortcut is rewarded less for having done well.

    s_b  = cut( (d . h_b - c) / (k - c), 0, 1 )      d: from clean to hack; c, k: the pairs' clean and hack means along it
    A'_b = A_b (1 - s_b)   where A_b > 0             h_b: mean hidden state of the completion, at half of the depth
    A'_b = A_b             elsewhere

The identity for what lies where the clean sides lie. A rollout that did badly keeps its whole blame: scaled down it
would be spared for looking like a hack.

Deviations: of the source only the abstract was at hand: scores of a shortcut concept enter GRPO's advantages so as to
penalise hacks. The form here, advantages scaled by the score, is this project's reading; layer, pooling, scale and
the positive half alone are ours. The source's pairs are domain-general; here they are this project's.

Source: Wu and Tang 2026, "When Reward Hacking Rebounds", arXiv:2604.01476.
"""

from collections.abc import Sequence

from projected_grpo.interventions.base import Intervention, Setup, StepContext


class Advantage(Intervention):
    """Positive advantages shrink with the score."""

    def __init__(self, setup: Setup) -> None:
        self.direction = setup.pairs.direction
        self.clean, self.hack = (float(side.mean(0) @ self.direction) for side in (setup.pairs.clean, setup.pairs.hack))

    def advantages(self, advantages: Sequence[float], context: StepContext) -> Sequence[float]:
        along = context.hidden @ self.direction
        scores = ((along - self.clean) / max(self.hack - self.clean, 1e-12)).clamp(0, 1).tolist()
        return [a * (1 - s) if a > 0 else a for a, s in zip(advantages, scores, strict=True)]
