"""Advantage modification: a rollout that looks like a shortcut is rewarded less for having done well.

`advantage_times` and `advantage_plus` are the paper's: a reward is changed before the group's advantages are taken.

    s_b   = d . h_b                                     d: mean hack state minus mean clean state of the pairs; h_b: at
    z_b   = (s_b - mean s) / max(std s, .1)             the last token, mean over the layers at 60 to 75 % of the depth
    R'_b  = R_b (1 - alpha sigmoid(z_b)) where z_b > 0  advantage_times, alpha = 2; mean and std over the group
    R'_b  = R_b - alpha max(z_b, 0)                     advantage_plus

Deviation: the paper says the prompt's last token, which is the same for a whole group; here it is the completion's.

`advantage` was written when only the abstract was at hand:

    s_b  = cut( (d . h_b - c) / (k - c), 0, 1 )      d: from clean to hack; c, k: the pairs' clean and hack means along it
    A'_b = A_b (1 - s_b)   where A_b > 0             h_b: mean hidden state of the completion, at half of the depth
    A'_b = A_b             elsewhere

The identity for what lies where the clean sides lie. A rollout that did badly keeps its whole blame: scaled down it
would be spared for looking like a hack.

Its form, layer, pooling, scale and the positive half alone are ours. The source's pairs are domain-general; here they are
this project's.

Source: Wu and Tang 2026, "When Reward Hacking Rebounds", arXiv:2604.01476.
"""

from collections.abc import Sequence

from projected_grpo.interventions.base import Intervention, Rewards, Setup, StepContext

ALPHA, LEAST_STD = 2.0, 0.1


class Rebound(Intervention):
    """The paper's: rewards shrink with the score's place in its group."""

    def __init__(self, setup: Setup) -> None:
        self.direction = setup.pairs.hack.mean(0) - setup.pairs.clean.mean(0)
        self.times = setup.arm.startswith("advantage_times")

    def rewards(self, rewards: Rewards, context: StepContext) -> Rewards:
        scores, out = context.hidden @ self.direction, []
        for group in rewards:
            s, scores = scores[: len(group)], scores[len(group) :]
            z = (s - s.mean()) / s.std().clamp(min=LEAST_STD) if len(group) > 1 else s * 0
            times, minus = (1 - ALPHA * z.sigmoid() * (z > 0), 0) if self.times else (1, ALPHA * z.clamp(min=0))
            out.append(tuple((s.new_tensor(group) * times - minus).tolist()))
        return tuple(out)


class Advantage(Intervention):
    """Positive advantages shrink with the score."""

    def __init__(self, setup: Setup) -> None:
        self.direction = setup.pairs.direction
        self.clean, self.hack = (float(side.mean(0) @ self.direction) for side in (setup.pairs.clean, setup.pairs.hack))

    def advantages(self, advantages: Sequence[float], context: StepContext) -> Sequence[float]:
        along = context.hidden @ self.direction
        scores = ((along - self.clean) / max(self.hack - self.clean, 1e-12)).clamp(0, 1).tolist()
        return [a * (1 - s) if a > 0 else a for a, s in zip(advantages, scores, strict=True)]
