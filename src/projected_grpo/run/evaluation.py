"""Held-out evaluation during training: the policy on problems that it never trains on, in
<run>/eval/step_NNN.jsonl.gz.

NNN is the number of optimizer steps taken. Draws depend on the seed, NNN and the problem alone, so a run's training
numbers are the same with and without evaluation, and a resumed run evaluates to the same numbers.

What is evaluated is the policy as it would be deployed; other policies and prompts have folders of their own
(step_file.EVALUATIONS).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from loguru import logger

from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig, due
from projected_grpo.data.live import live_groups, render_all
from projected_grpo.data.problems import load_problems, problems_hash
from projected_grpo.interventions.monitors import Monitored
from projected_grpo.ledger.rates import rates_text
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import EVALUATIONS, step_path, write_step
from projected_grpo.records import Group, Problem
from projected_grpo.run.intervening import context_of
from projected_grpo.run.policy import Policy


class Evaluator:
    """Evaluates every `eval_every` steps, before the first and after the last; 0 = never."""

    def __init__(self, config: TrainConfig, policy: Policy, trained_on: Sequence[Problem]) -> None:
        self.config, self.policy = config, policy
        self.problems = load_problems(config.eval_problems) if config.eval_every else ()
        self.problems_hash = problems_hash(self.problems) if self.problems else None
        intervention = policy.intervention
        usual = replace(config, prompt_setup=policy.prompt_setup) if intervention.prompt_stays else config
        self.settings = {"eval": (usual, intervention.deployed)}
        """By folder: the config of its prompts, and a context around the policy that answers them."""
        if config.eval_plain:
            self.settings["eval_plain"] = (replace(usual, hint="none"), intervention.deployed)
        if intervention.separate_deployment:
            self.settings["eval_trained"] = (replace(config, prompt_setup=policy.prompt_setup), intervention.training)
        if intervention.part:
            self.settings["eval_part"] = (config, intervention.only_part)
        self.prompts = {folder: render_all(c, policy.loaded, self.problems) for folder, (c, _) in self.settings.items()}
        known = {p.problem_id for p in trained_on}
        if both := sum(p.problem_id in known for p in self.problems):
            logger.warning(f"--eval-problems {config.eval_problems}: {both} are trained on too, so not held out")

    def evaluate_if_due(self, done: int, last: bool = False) -> None:
        """Evaluates what is due after `done` optimizer steps (the `last` ones), except what is on disk."""
        every, run = self.config.eval_every, self.config.run_folder
        if not every or not (due(done, every) or done in self.config.eval_at or last):
            return
        ends = last or done == 0
        wanted = {"eval": True, "eval_plain": ends, "eval_trained": last, "eval_part": ends}
        for folder in filter(wanted.get, self.settings):
            if not self.policy.ranks.on_rank0(step_path(run / folder, done).exists):
                self.evaluate(done, folder)

    def detected(self, groups: Sequence[Group]) -> list[dict[str, bool]]:
        """Returns what the arm's detector says of rollouts, by the policy as it is and by the untrained model: one that
        the first evades and the second does not has learned to look clean. Nothing without one, or of an oracle."""
        policy, arm = self.policy, ARMS[self.config.arm]
        if arm.labels or not isinstance(policy.intervention, Monitored) or "score" in arm.sees:
            return []
        read = partial(context_of, self.config, policy, groups, judged=False)  # a judge scores what is trained on
        live = policy.intervention.flags(read())
        with policy.adapter.disabled():
            base = policy.intervention.flags(read())
        return [{"flagged": now, "flagged_base": before} for now, before in zip(live, base, strict=True)]

    def evaluate(self, done: int, folder: str) -> None:
        """Samples, grades, writes and logs."""
        policy, ranks, (config, deployed) = self.policy, self.policy.ranks, self.settings[folder]
        how = "held out" if folder == "eval" else f"held out, {EVALUATIONS[folder]}"
        mine = ranks.share(list(enumerate(self.prompts[folder])))
        keys = [f"{folder} {config.seed} {done} {i}" for i, _ in mine]
        with deployed(), policy.intervention.sampling(policy.adapter.merged) as each:
            groups, _, timing = live_groups(
                config, policy.loaded, [p for _, p in mine], {p.problem_id: p.task for p in self.problems},
                config.eval_samples, keys, "student", loophole=config.loophole and folder != "eval_plain", each=each,
                bar=how,
            )  # fmt: skip
            seen = self.detected(groups)
        timing["total"] = sum(timing.values())
        rows = ranks.gather(rows_of(groups, seen, {"timing": timing}, step=done))
        ranks.on_rank0(lambda: write_step(config.run_folder / folder, done, rows))
        logger.info(f"{how}, after {done} steps: {rates_text(rows)}  ({len(rows)} rollouts, {timing['total']:.1f} s)")
