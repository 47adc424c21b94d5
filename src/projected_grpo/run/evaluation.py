"""Held-out evaluation during training: the policy on problems that it never trains on, in <run>/eval/step_NNN.jsonl.gz.

NNN is the number of optimizer steps taken. Draws hang on the seed, NNN and the problem alone, so a run's training numbers
are the same with and without evaluation, and a resumed run evaluates to the same numbers. Several ranks share the problems.
"""

from collections.abc import Sequence

from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.groups.live import live_groups, render_all
from projected_grpo.groups.problems import load_problems, problems_hash
from projected_grpo.ledger.rates import told_rates
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import Row, step_path, write_step
from projected_grpo.run.session import Session


class Evaluator:
    """Evaluates every `eval_every` steps, before the first and after the last; 0 = never."""

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        problems = load_problems(config.eval_problems) if config.eval_every else ()
        self.prompts = render_all(config, session.loaded, problems)
        self.tasks = {p.problem_id: p.task for p in problems}
        self.problems_hash = problems_hash(problems) if problems else None
        self.seconds = 0.0
        """Spent evaluating, in this call."""

    def due(self, done: int, last: bool = False) -> bool:
        """Whether to evaluate after `done` optimizer steps, which were the `last` ones."""
        every = self.config.eval_every
        if not every or not (done % every == 0 or last):
            return False
        return self.session.world.from_first(lambda: not step_path(self.session.run / "eval", done).exists())

    def cost(self, step_seconds: float) -> str:
        """Its share of the run's time beside the training steps', as the last lines of a run state it."""
        if not self.seconds:
            return ""
        share = self.seconds / (self.seconds + step_seconds)
        return f"; held-out evaluation took {self.seconds:.0f} s, {share:.0%} of the time"

    def evaluate(self, done: int) -> Sequence[Row]:
        """Sample, grade, write, and log one line."""
        config, session, world = self.config, self.session, self.session.world
        mine = world.share(list(enumerate(self.prompts)))
        keys = [f"eval {config.seed} {done} {place}" for place, _ in mine]
        with session.adapter.folded():
            groups, timing = live_groups(
                config, session.loaded, [p for _, p in mine], self.tasks, config.eval_samples, keys, "student",
                loophole=config.loophole,
            )  # fmt: skip
        timing = world.slowest({**timing, "total": sum(timing.values())})
        self.seconds += timing["total"]
        own = rows_of(groups, [], {"timing": timing}, step=done, arm=config.arm, seed=config.seed)
        rows = world.gather(own)
        world.from_first(lambda: write_step(session.run / "eval", done, rows))
        logger.info(
            f"held out, after {done} steps: {told_rates(rows)}  ({len(rows)} rollouts, {timing['total']:.1f} s)"
        )
        return rows
