"""Held-out evaluation during training: the policy on problems that it never trains on, in <run>/eval/step_NNN.jsonl.gz.

NNN is the number of optimizer steps taken. Draws depend on the seed, NNN and the problem alone, so a run's training numbers
are the same with and without evaluation, and a resumed run evaluates to the same numbers.

What is evaluated is the policy as it would be deployed; other policies and prompts have folders of their own
(step_file.EVALUATIONS).
"""

from dataclasses import replace

from loguru import logger

from projected_grpo.config import TrainConfig, due
from projected_grpo.data.live import live_groups, render_all
from projected_grpo.data.problems import load_problems, problems_hash
from projected_grpo.ledger.rates import rates_text
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import EVALUATIONS, step_path, write_step
from projected_grpo.run.session import Session


class Evaluator:
    """Evaluates every `eval_every` steps, before the first and after the last; 0 = never."""

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        self.problems = load_problems(config.eval_problems) if config.eval_every else ()
        self.problems_hash = problems_hash(self.problems) if self.problems else None
        intervention = session.intervention
        self.policies = {"eval": (config, intervention.deployed)}
        """By folder: the config of its prompts, and a context around the policy that answers them."""
        if config.eval_plain:
            self.policies["eval_plain"] = (replace(config, hint="none"), intervention.deployed)
        if intervention.separate_deployment:
            setup = intervention.prompt_setup or config.prompt_setup
            self.policies["eval_trained"] = (replace(config, prompt_setup=setup), intervention.training)
        if intervention.part:
            self.policies["eval_part"] = (config, intervention.only_part)
        self.prompts = {
            folder: render_all(c, session.loaded, self.problems) for folder, (c, _) in self.policies.items()
        }

    def evaluate_due(self, done: int, last: bool = False) -> None:
        """Evaluates what is due after `done` optimizer steps (the `last` ones), except what is on disk."""
        every, run = self.config.eval_every, self.session.run
        if not every or not (due(done, every) or last):
            return
        ends = last or done == 0
        wanted = {"eval": True, "eval_plain": ends, "eval_trained": last, "eval_part": ends}
        for folder in filter(wanted.get, self.policies):
            if not self.session.world.from_first(step_path(run / folder, done).exists):
                self.evaluate(done, folder)

    def evaluate(self, done: int, folder: str) -> None:
        """Samples, grades, writes and logs."""
        session, world, (config, policy) = self.session, self.session.world, self.policies[folder]
        how = "held out" if folder == "eval" else f"held out, {EVALUATIONS[folder]}"
        mine = world.share(list(enumerate(self.prompts[folder])))
        keys = [f"{folder} {config.seed} {done} {place}" for place, _ in mine]
        with policy(), session.intervention.sampling(session.adapter.folded) as each:
            groups, _, timing = live_groups(
                config, session.loaded, [p for _, p in mine], {p.problem_id: p.task for p in self.problems},
                config.eval_samples, keys, "student", loophole=config.loophole and folder != "eval_plain", each=each,
                bar=how,
            )  # fmt: skip
        timing["total"] = sum(timing.values())
        rows = world.gather(rows_of(groups, [], {"timing": timing}, step=done))
        world.from_first(lambda: write_step(session.run / folder, done, rows))
        logger.info(f"{how}, after {done} steps: {rates_text(rows)}  ({len(rows)} rollouts, {timing['total']:.1f} s)")
