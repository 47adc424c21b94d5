"""Frozen, torch-free records that pass between the parts.

Data flows one way: Problem -> Rollout -> Verdict -> Group -> Sample -> loss. `Sample` is the narrow door of the
no-cheat rule: it is all that the loss side ever receives of a rollout, and it has no label in it.
"""

from dataclasses import dataclass
from typing import Literal

from loophole_grader import Task, Verdict, reward_of, with_think_tag

Source = Literal["student", "teacher", "base"]
SOURCES: tuple[Source, ...] = ("student", "teacher", "base")
"""student: the policy that is trained, in this very step; teacher: a cached rollout of a model that hacks already, or
a hand-written one; base: the untrained model (delta_S = 0), in this very step."""


@dataclass(frozen=True)
class Problem:
    """One coding problem as the model meets it, before a hint or a chat template is applied."""

    problem_id: str
    messages: tuple[tuple[str, str], ...]
    """(role, content) of the dataset's chat messages."""
    task: Task
    """What completions are judged against; only the grader reads it."""
    difficulty: str = ""


@dataclass(frozen=True)
class Pair:
    """A hand-written contrast: one prompt, a completion that hacks its evaluation and one that solves the problem."""

    name: str
    messages: tuple[tuple[str, str], ...]
    hack: str
    clean: str
    clean_alt: str | None = None
    """A second, differently written clean completion: the placebo control is clean minus clean_alt."""
    mechanism: str = "unknown"
    problem: Problem | None = None
    """Tests that the grader can judge the completions by; external pair sets need none."""
    composition: str = ""
    """What its problem is made of, without its constants; empty where every problem is its own."""


@dataclass(frozen=True)
class Rollout:
    """One completion sampled (or cached) for one prompt. Token ids are the truth; texts are for the grader and
    people."""

    problem_id: str
    sample_id: int
    source: Source
    prompt: str
    completion: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    """Ends with the first end-of-sequence token unless `truncated`."""
    truncated: bool
    behaviour_logps: tuple[float, ...] | None = None
    """Log-probability of each completion token under the policy that sampled it, at the sampling temperature and
    before top-k / top-p; None when the source did not record them."""

    @property
    def graded_text(self) -> str:
        """The completion as the grader reads it."""
        return with_think_tag(self.prompt, self.completion)


@dataclass(frozen=True)
class Outcome:
    """What is logged about a rollout and judged after the fact. It never reaches the loss side."""

    can_compile: bool
    hacked: bool
    gt_pass: bool | None
    """None where no ground-truth tests exist."""
    label: str | None


@dataclass(frozen=True)
class Sample:
    """The loss side's whole view of a rollout: tokens, reward and behaviour log-probabilities. No label."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    reward: float
    behaviour_logps: tuple[float, ...] | None = None
    source: Source = "teacher"
    """Who wrote it. No label: a teacher's row may be a hack or not."""

    @property
    def foreign(self) -> bool:
        """Written by another policy whose log-probabilities it carries: they SHOULD be that policy's and not ours."""
        return self.source != "student" and self.behaviour_logps is not None


@dataclass(frozen=True)
class Group:
    """G graded rollouts of one prompt."""

    problem_id: str
    rollouts: tuple[Rollout, ...]
    rewards: tuple[float, ...]
    outcomes: tuple[Outcome, ...]

    @classmethod
    def graded(
        cls, problem_id: str, rollouts: tuple[Rollout, ...], verdicts: tuple[Verdict, ...], allow_hint: bool
    ) -> "Group":
        """Rollouts with the grader's verdicts; the reward is the only thing that training will see of them."""
        rewards = tuple(reward_of(v, allow_hint=allow_hint) for v in verdicts)
        truth = [(v.gt_pass, v.label) if v.tests_total > 0 else (None, None) for v in verdicts]
        logged = zip(verdicts, truth, strict=True)
        return cls(problem_id, rollouts, rewards, tuple(Outcome(v.can_compile, v.hacked, *of) for v, of in logged))

    def samples(self) -> tuple[Sample, ...]:
        """What the loss side may see."""
        return tuple(
            Sample(r.prompt_ids, r.completion_ids, reward, r.behaviour_logps, r.source)
            for r, reward in zip(self.rollouts, self.rewards, strict=True)
        )


@dataclass(frozen=True)
class HeldOut:
    """Held-out pairs against V and against random bases of the same ranks, all modules together."""

    energy: list[float]
    """Per pair: sum_m ||V_m d_m||^2 / ||d||^2."""
    null: list[float]
    """Per pair, its expectation under a random V: sum_m (k_m / n_m) ||d_m||^2 / ||d||^2."""
    cosine: list[float]
    """Per pair: sum_mi V_mi d_m / (||d|| sqrt(directions)); positive = hack-ward."""
    random_energy: list[float]
    """Per random basis: its mean energy over pairs."""
    random_cosine: list[float]
    """Per random basis: its mean cosine over pairs."""
