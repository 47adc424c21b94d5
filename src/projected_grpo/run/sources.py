"""Where a training step's graded groups come from: live sampling, mixed with a cached pool when there is one."""

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path

from loguru import logger

from loophole_grader import check_solutions
from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.groups.live import live_groups, render_all, workers
from projected_grpo.groups.pairs import pool_pairs
from projected_grpo.groups.pool import load_pool, pool_hash, written_pool
from projected_grpo.groups.problems import load_problems, problems_hash, schedule
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.records import Group, Problem
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.prepare import dump_first_batch, log_isolation
from projected_grpo.run.session import Session


def mixed(live: Group | None, cached: Group, n_cached: int, key: str) -> Group:
    """The live group followed by `n_cached` rollouts of the cached one, drawn by `key`; sample ids are renumbered."""
    if n_cached > len(cached.rollouts):
        raise BadInput(
            f"--teacher-fraction asks for {n_cached} cached rollouts of problem {cached.problem_id}, the pool has "
            f"{len(cached.rollouts)}; lower it or --group-size"
        )
    chosen = sorted(random.Random(key).sample(range(len(cached.rollouts)), n_cached))
    rollouts = [*(live.rollouts if live else ()), *(cached.rollouts[i] for i in chosen)]
    return Group(
        cached.problem_id,
        cached.hint,
        tuple(dataclasses.replace(r, sample_id=i) for i, r in enumerate(rollouts)),
        (*(live.rewards if live else ()), *(cached.rewards[i] for i in chosen)),
        (*(live.outcomes if live else ()), *(cached.outcomes[i] for i in chosen)),
    )


def check_same_prompt(live: Prompt, cached: Group, pool: str) -> None:
    """BadInput when a pool's prompt is not the one that live completions are sampled for: one group, one prompt."""
    if any(r.prompt_ids != live.ids for r in cached.rollouts):
        raise BadInput(
            f"--teacher-pool {pool}: problem {live.problem_id} was sampled with another prompt (hint {cached.hint}, "
            "maybe another --prompt-setup); sample the pool with the arguments of this run"
        )


def check_temperature(config: TrainConfig) -> None:
    """BadInput when a pool of ours was sampled at another temperature: its recorded log-probabilities, and so every
    ratio, would be of another distribution."""
    manifest = Path(config.teacher_pool) / "manifest.json"
    if manifest.exists() and (theirs := read_manifest(manifest.parent)["config"]["temperature"]) != config.temperature:
        raise BadInput(
            f"--temperature {config.temperature}: the pool {config.teacher_pool} was sampled at {theirs}; use the same"
        )


def check_reward(config: TrainConfig) -> None:
    """BadInput when a pool's rewards were not paid as this arm pays: cached rollouts keep the reward they have."""
    manifest = Path(config.teacher_pool) / "manifest.json"
    arm = read_manifest(manifest.parent)["config"].get("arm") if manifest.exists() else "vanilla"
    paid = arm not in ARMS or ARMS[arm].loophole
    if paid != config.loophole:
        raise BadInput(
            f"--teacher-pool {config.teacher_pool}: its rewards {'pay' if paid else 'do not pay'} the loophole, "
            f"--arm {config.arm} {'does not' if paid else 'does'}; sample one with "
            f"`probe_distill --teacher-only --arm {config.arm}`"
        )


class GroupSource:
    """Gives the groups of any step; the same step gives the same problems and the same cached rollouts."""

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        log_isolation()
        self.pool: dict[str, Group] = {}
        problems: Sequence[Problem] = load_problems(config.problems)
        if Path(config.problems).is_file():
            session.world.from_first(lambda: check_solutions([p.task for p in problems], workers=workers(config)))
        source = config.problems
        if config.teacher_pool == "pairs":
            groups = written_pool(session.loaded, config.hint, config.prompt_setup, config.loophole, workers(config))
            self.pool = {g.problem_id: g for g in groups}
            problems = [p.problem for p in pool_pairs() if p.problem]
            source = "those of the built-in pairs"
        elif config.teacher_pool:
            self.pool = {g.problem_id: g for g in load_pool(Path(config.teacher_pool), session.loaded)}
            check_temperature(config)
            check_reward(config)
            problems = [p for p in problems if p.problem_id in self.pool]
            if not problems:
                raise BadInput(
                    f"--teacher-pool {config.teacher_pool}: none of its problems is in --problems {config.problems}"
                )
        self.n_cached = round(config.group_size * config.teacher_fraction) if self.pool else 0
        self.problems = list(problems)
        self.prompts = render_all(config, session.loaded, self.problems)
        for prompt in self.prompts if self.n_cached else ():
            check_same_prompt(prompt, self.pool[prompt.problem_id], config.teacher_pool)
        self.tasks = {p.problem_id: p.task for p in self.problems}
        self.problems_hash = problems_hash(self.problems)
        self.pool_hash = pool_hash(self.pool.values()) if self.pool else None
        lengths = [len(p.ids) for p in self.prompts]
        logger.info(
            f"{len(problems)} problems ({source}), prompts of {min(lengths)} to {max(lengths)} tokens; each group "
            f"{config.group_size - self.n_cached} live + {self.n_cached} cached"
        )

    def groups(self, step: int) -> tuple[list[Group], dict[str, float]]:
        """Graded groups of one step (of several ranks: this one's share), and the seconds that sampling and grading took."""
        config, session = self.config, self.session
        chosen = schedule(len(self.problems), config.prompts_per_step, step, config.seed)
        mine = session.world.share(list(enumerate(chosen)))  # (place in the step, problem)
        live: list[Group | None] = [None] * len(mine)
        timing = {"generate": 0.0, "grade": 0.0}
        if n_live := config.group_size - self.n_cached:
            keys = [f"train {config.seed} {step} {place}" for place, _ in mine]
            with session.adapter.folded():
                groups, timing = live_groups(
                    config, session.loaded, [self.prompts[i] for _, i in mine], self.tasks, n_live, keys, "student",
                    loophole=config.loophole,
                )  # fmt: skip
            live = list(groups)
        if self.n_cached:
            live = [
                mixed(g, self.pool[self.problems[i].problem_id], self.n_cached, f"{config.seed} {step} {place}")
                for (place, i), g in zip(mine, live, strict=True)
            ]
        whole = [g for g in live if g is not None]
        if step == session.next_step and whole:
            dump_first_batch(whole)
        return whole, timing
