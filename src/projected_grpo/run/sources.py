"""Where a training step's graded groups come from: sampled live, from the student and (`--mix base=`) from the
untrained model, and mixed with a cached pool when there is one (`--mix teacher=`).

A cached row's ratio is against the policy that wrote it: its log-probabilities are the teacher's, recorded when the
pool was sampled, or computed here from the merged teacher where they were not. Hand-written rows have none and count
as on-policy."""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from loguru import logger

from loophole_grader import check_solutions
from projected_grpo.config import TrainConfig
from projected_grpo.data.live import live_groups, render_all, workers
from projected_grpo.data.pool import by_problem, pool_hash, pool_of, published_files
from projected_grpo.data.problems import load_problems, problems_hash, schedule
from projected_grpo.interventions.base import Intervention
from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.model.logprobs import completion_logps, token_batches
from projected_grpo.records import Group, Outcome, Problem, Rollout
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.policy import Policy
from projected_grpo.run.prepare import dump_first_batch, load, log_isolation

GradedRow = tuple[Rollout, float, Outcome]
DIGITS = 5
"""As a pool's log-probabilities are written (ledger/rows.py)."""


class GroupSource:
    """Gives the groups of any step; the same step gives the same problems and the same cached rollouts."""

    def __init__(self, config: TrainConfig, policy: Policy) -> None:
        """Loads problems and pool. BadInput as in `problems_of`, `teacher_pool` and `check_pool_rows`."""
        self.config, self.policy, self.shown = config, policy, False
        log_isolation()
        setting = dataclasses.replace(config, prompt_setup=policy.prompt_setup)
        self.pool = teacher_pool(setting, policy)
        self.problems = problems_of(config, policy, self.pool)
        if self.pool:
            self.pool = {p.problem_id: self.pool[p.problem_id] for p in self.problems}
        self.prompts = render_all(setting, policy.loaded, self.problems)
        plain = policy.intervention.learns_plain
        self.learned = render_all(config, policy.loaded, self.problems) if plain else self.prompts
        """Prompts whose answers are learned."""
        check_pool_rows(self.pool, self.prompts, config)
        if config.teacher_pool not in ("", "pairs"):
            self.pool = with_teacher_logps(self.pool, config, policy)
        self.tasks = {p.problem_id: p.task for p in self.problems}
        self.problems_hash = problems_hash(self.problems)
        self.pool_hash = pool_hash(self.pool.values()) if self.pool else None
        lengths = [len(p.ids) for p in self.prompts]
        rows = " + ".join(f"{n} {source}" for source, n in config.mixed_rows.items() if n)
        logger.info(f"{len(lengths)} problems, prompts of {min(lengths)} to {max(lengths)} tokens; each group {rows}")

    def groups(self, step: int) -> tuple[list[Group], dict[str, float]]:
        """Returns the graded groups of one step (of several ranks: this one's share), and the seconds that sampling
        and grading took."""
        with self.policy.ranks.raise_together():
            return self._groups(step)

    def _groups(self, step: int) -> tuple[list[Group], dict[str, float]]:
        config, policy = self.config, self.policy
        chosen = schedule(len(self.problems), config.prompts_per_step, step, config.stream)
        mine = policy.ranks.share(list(enumerate(chosen)))  # (index in the step, problem)
        prompts, timing = [self.prompts[i] for _, i in mine], {"generate": 0.0, "grade": 0.0}
        parts: list[list[GradedRow]] = [[] for _ in mine]
        # Who is sampled, with which weights, and the key of its draws: with one key both would write the same text
        # before the first update.
        adapter = policy.adapter
        for source, weights, draws in (("student", adapter.merged, "train"), ("base", adapter.disabled, "base")):
            if not (n := config.mixed_rows[source]):
                continue
            keys = [f"{draws} {config.stream} {step} {index}" for index, _ in mine]
            # An arm's intervention is about the student: the untrained model writes as it is.
            by = policy.intervention if source == "student" else Intervention()
            with by.training(), by.sampling(weights) as each:
                groups, _, seconds = live_groups(
                    config, policy.loaded, prompts, self.tasks, n, keys, source, loophole=config.loophole, each=each
                )
            timing = {part: timing[part] + seconds[part] for part in timing}
            for part, group in zip(parts, groups, strict=True):
                part += graded_rows(group)
        if n := config.mixed_rows["teacher"]:
            for part, (index, i) in zip(parts, mine, strict=True):
                cached = graded_rows(self.pool[self.problems[i].problem_id])
                draw = random.Random(f"{config.stream} {step} {index}").sample(range(len(cached)), n)
                part += [cached[j] for j in sorted(draw)]
        groups = [group_of(part) for part in parts]
        if self.learned is not self.prompts:
            learned = (self.learned[i] for _, i in mine)
            groups = [as_answers_to(prompt, group) for prompt, group in zip(learned, groups, strict=True)]
        if groups and not self.shown:
            dump_first_batch(groups)
            self.shown = True
        return groups, timing


def as_answers_to(prompt: Prompt, group: Group) -> Group:
    """Returns a group whose completions stand behind another prompt; their log-probabilities stay those of sampling."""
    rollouts = tuple(dataclasses.replace(r, prompt=prompt.text, prompt_ids=prompt.ids) for r in group.rollouts)
    return dataclasses.replace(group, rollouts=rollouts)


def problems_of(config: TrainConfig, policy: Policy, pool: Mapping[str, Group]) -> Sequence[Problem]:
    """Returns the problems of this run, or of this replica: with a pool those that are in it. BadInput when none
    remains, or when a file's canonical solution fails its own tests."""
    problems: Sequence[Problem] = load_problems(config.problems)
    if Path(config.problems).is_file():
        policy.ranks.on_rank0(lambda: check_solutions([p.task for p in problems], workers=workers(config)))
    if pool:
        problems = [p for p in problems if p.problem_id in pool]
    if not (mine := problems[config.replica :: config.replicas]):
        raise BadInput(
            f"--problems {config.problems}: none is left; each of --replicas {config.replicas} needs one that is in "
            f"--teacher-pool {config.teacher_pool or '(none)'}"
        )
    return mine


def check_pool_rows(pool: Mapping[str, Group], prompts: Sequence[Prompt], config: TrainConfig) -> None:
    """BadInput when a pool's rows have another prompt than the run's, or are fewer than a group needs."""
    wanted = config.mixed_rows["teacher"]
    for prompt in prompts if pool else ():
        cached, where = pool[prompt.problem_id].rollouts, f"problem {prompt.problem_id}"
        if any(r.prompt_ids != prompt.ids for r in cached):  # one group, one prompt
            raise BadInput(
                f"--teacher-pool {config.teacher_pool}: {where} was sampled with another prompt (another --hint or "
                "--prompt-setup); sample the pool with the arguments of this run"
            )
        if len(cached) < wanted:
            has = f"{where} has {len(cached)} teacher rows, {wanted} are asked for"
            raise BadInput(f"--mix {config.mix}: {has}; lower the share or --group-size")


def graded_rows(group: Group) -> list[GradedRow]:
    return list(zip(group.rollouts, group.rewards, group.outcomes, strict=True))


def group_of(rows: Sequence[GradedRow]) -> Group:
    """Returns one group of several sources' rollouts of one problem, samples renumbered."""
    rollouts, rewards, outcomes = zip(*rows, strict=True)
    rollouts = tuple(dataclasses.replace(r, sample_id=i) for i, r in enumerate(rollouts))
    return Group(rollouts[0].problem_id, rollouts, rewards, outcomes)


# ---------------------------------------------------------------- the teacher's pool


def teacher_pool(config: TrainConfig, policy: Policy) -> dict[str, Group]:
    """Returns the run's pool by problem; empty without a --teacher-pool. BadInput as in load_pool, or when the pool
    was sampled from the very model that is trained."""
    folder, weights = Path(config.teacher_pool), policy.loaded.weights_hash
    if not config.teacher_pool:
        return {}
    sampled = config.teacher_pool != "pairs" and not published_files(folder)
    if sampled and read_manifest(folder)["model_hash"] == weights:
        raise BadInput(
            f"--teacher-pool {folder}: was sampled from --model {config.model} itself (weights {weights[:8]}): no teacher "
            "was merged into it; sample it again with --teacher"
        )
    return by_problem(pool_of(config.teacher_pool, config, policy.loaded), f"--teacher-pool {folder}")


def with_teacher_logps(pool: Mapping[str, Group], config: TrainConfig, policy: Policy) -> dict[str, Group]:
    """Returns the pool with the teacher's log-probabilities in every row. BadInput when they are missing and no
    --teacher is named that could give them."""
    missing = [r for group in pool.values() for r in group.rollouts if r.behaviour_logps is None]
    if missing and not config.teacher:
        raise BadInput(
            f"--teacher-pool {config.teacher_pool}: {len(missing)} of its rows have no recorded log-probabilities, so they "
            "have no ratio; name the --teacher that wrote them, or sample a pool with `just probe-teacher-pool`"
        )
    if not missing and config.teacher != (sampled := read_manifest(Path(config.teacher_pool))["config"]["teacher"]):
        logger.warning(f"--teacher {config.teacher}: the pool has recorded log-probabilities, of --teacher {sampled}")
    found = iter(policy.ranks.on_rank0(lambda: under_teacher(missing, config)) if missing else ())

    def filled(r: Rollout) -> Rollout:
        known = r.behaviour_logps is not None
        return r if known else dataclasses.replace(r, behaviour_logps=next(found))

    return {name: dataclasses.replace(g, rollouts=tuple(map(filled, g.rollouts))) for name, g in pool.items()}


@torch.no_grad()
def under_teacher(rollouts: Sequence[Rollout], config: TrainConfig) -> list[tuple[float, ...]]:
    """Returns the log-probability in nats of every completion token of each rollout under --model with --teacher
    merged into it, at the run's temperature. BadInput as in load_model."""
    teacher = load(config, config.teacher)
    prompts, completions = [r.prompt_ids for r in rollouts], [r.completion_ids for r in rollouts]
    out: list[tuple[float, ...]] = [()] * len(rollouts)
    made = list(token_batches(prompts, completions, config.token_budget, teacher.pad_id, teacher.model.device))
    for chosen, batch in progress(made, "log-probabilities of the pool"):
        logps = completion_logps(teacher.model, batch, config.temperature)
        for i, row, mask in zip(chosen, logps, batch.loss_mask, strict=True):
            out[i] = tuple(round(p, DIGITS) for p in row[mask].tolist())
    logger.info(f"{len(out)} rows of {config.teacher_pool} have no recorded log-probabilities; they are computed here")
    return out
