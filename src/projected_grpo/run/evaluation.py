"""Held-out evaluation during training: the policy on problems that it never trains on, in <run>/eval/step_NNN.jsonl.gz.

NNN is the number of optimizer steps taken. Draws depend on the seed, NNN and the problem alone, so a run's training numbers
are the same with and without evaluation, and a resumed run evaluates to the same numbers.

What is evaluated is the policy as it would be deployed; other policies and prompts have folders of their own
(step_file.EVALUATIONS).
"""

from collections.abc import Sequence
from dataclasses import replace

from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.data.live import live_groups, render_all
from projected_grpo.data.problems import load_problems, problems_hash
from projected_grpo.ledger.rates import rates_text
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import EVALUATIONS, Row, step_path, write_step
from projected_grpo.run.session import Session


class Evaluator:
    """Evaluates every `eval_every` steps, before the first and after the last; 0 = never."""

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        problems = self.problems = load_problems(config.eval_problems) if config.eval_every else ()
        plain = replace(config, hint="none")
        self.prompts = {"eval": render_all(config, session.loaded, problems)}
        if config.eval_plain:
            self.prompts["eval_plain"] = render_all(plain, session.loaded, problems)
        if session.intervention.separate_deployment:
            setup = session.intervention.prompt_setup or config.prompt_setup
            self.prompts["eval_trained"] = render_all(replace(config, prompt_setup=setup), session.loaded, problems)
        if session.intervention.part:
            self.prompts["eval_part"] = self.prompts["eval"]
        self.tasks = {p.problem_id: p.task for p in problems}
        self.problems_hash = problems_hash(problems) if problems else None
        self.seconds = 0.0
        """Spent evaluating, in this call."""

    def evaluate_due(self, done: int, last: bool = False) -> None:
        """Evaluates what is due after `done` optimizer steps (the `last` ones), except what is on disk."""
        every, run = self.config.eval_every, self.session.run
        if not every or not (done % every == 0 or last):
            return
        ends = last or done == 0
        wanted = {"eval": True, "eval_plain": ends, "eval_trained": last, "eval_part": ends}
        for folder in filter(wanted.get, self.prompts):
            if not self.session.world.from_first(step_path(run / folder, done).exists):
                self.evaluate(done, folder)

    def cost(self, rows: Sequence[Row]) -> str:
        """Returns its share of the time of a run with these rows, in words."""
        if not self.seconds:
            return ""
        share = self.seconds / (self.seconds + sum({r["step"]: r["timing"]["total"] for r in rows}.values()))
        return f"; held-out evaluation took {self.seconds:.0f} s, {share:.0%} of the time"

    def evaluate(self, done: int, folder: str = "eval") -> Sequence[Row]:
        """Samples, grades, writes and logs; returns the rows."""
        config, session, world = self.config, self.session, self.session.world
        how = "held out" if folder == "eval" else f"held out, {EVALUATIONS[folder]}"
        asked = len(self.prompts[folder])
        logger.info(
            f"evaluates {asked * config.eval_samples} rollouts of {asked} problems after {done} steps ({how}); "
            "--eval-every 0 leaves evaluations out"
        )
        if folder == "eval_plain":
            config = replace(config, hint="none")
        mine = world.share(list(enumerate(self.prompts[folder])))
        keys = [f"{folder} {config.seed} {done} {place}" for place, _ in mine]
        intervention = session.intervention
        policy = {"eval_trained": intervention.training, "eval_part": intervention.only_part}.get(
            folder, intervention.deployed
        )
        with policy():
            once, each = intervention.sampling_weights(session.adapter.folded)
            with once:
                groups, timing = live_groups(
                    config, session.loaded, [p for _, p in mine], self.tasks, config.eval_samples, keys, "student",
                    loophole=config.loophole and folder != "eval_plain", each=each, bar=how,
                )  # fmt: skip
        timing = world.slowest({**timing, "total": sum(timing.values())})
        self.seconds += timing["total"]
        own = rows_of(groups, [], {"timing": timing}, step=done)
        rows = world.gather(own)
        world.from_first(lambda: write_step(session.run / folder, done, rows))
        logger.info(f"{how}, after {done} steps: {rates_text(rows)}  ({len(rows)} rollouts, {timing['total']:.1f} s)")
        return rows
