"""Where a training step's graded groups come from: sampled live, from the student and (`--mix base=`) from the untrained
model, and mixed with a cached pool when there is one (`--mix teacher=`)."""

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from loguru import logger

from loophole_grader import check_solutions
from projected_grpo.adapters import Adapter
from projected_grpo.config import TrainConfig
from projected_grpo.data.live import live_groups, render_all, workers
from projected_grpo.data.pool import pool_hash
from projected_grpo.data.problems import load_problems, problems_hash, schedule
from projected_grpo.ledger.errors import BadInput
from projected_grpo.records import Group, Problem, Source
from projected_grpo.run.prepare import dump_first_batch, log_isolation
from projected_grpo.run.session import Session
from projected_grpo.run.teacher_pool import check_prompts, pool_of, with_teacher_logps
from projected_grpo.worlds.builtin import pool_pairs

LIVE: tuple[tuple[Source, Callable[[Adapter], AbstractContextManager[None]], str], ...] = (
    ("student", Adapter.folded, "train"),
    ("base", Adapter.disabled, "base"),
)
"""Who is sampled in a step, with which weights, and the word that its draws are keyed by: were it the same, both would write
the same before the first update."""


def drawn(cached: Group, n: int, key: str) -> Group:
    """`n` rollouts of a cached group, drawn by `key`, in their order. BadInput when it has fewer."""
    if n > len(cached.rollouts):
        raise BadInput(
            f"--mix asks for {n} teacher rows of problem {cached.problem_id}, the pool has {len(cached.rollouts)}; lower "
            "the share or --group-size"
        )
    chosen = sorted(random.Random(key).sample(range(len(cached.rollouts)), n))
    return Group(
        cached.problem_id,
        cached.hint,
        tuple(cached.rollouts[i] for i in chosen),
        tuple(cached.rewards[i] for i in chosen),
        tuple(cached.outcomes[i] for i in chosen),
    )


def mixed(parts: Sequence[Group]) -> Group:
    """One group of several sources' rollouts of one problem, one source after the other; sample ids are renumbered."""
    rollouts = [r for part in parts for r in part.rollouts]
    return Group(
        parts[0].problem_id,
        parts[0].hint,
        tuple(dataclasses.replace(r, sample_id=i) for i, r in enumerate(rollouts)),
        tuple(reward for part in parts for reward in part.rewards),
        tuple(outcome for part in parts for outcome in part.outcomes),
    )


def share_of(problems: Sequence[Problem], config: TrainConfig) -> list[Problem]:
    """The problems of this replica: every N-th, from its own number on; all of them where the run is alone. BadInput when
    there is none left for it."""
    mine = list(problems[config.replica :: config.replicas])
    if not mine:
        raise BadInput(f"--replicas {config.replicas}: of {len(problems)} problems replica {config.replica} has none")
    return mine


class GroupSource:
    """Gives the groups of any step; the same step gives the same problems and the same cached rollouts."""

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        log_isolation()
        problems: Sequence[Problem] = load_problems(config.problems)
        if Path(config.problems).is_file():
            session.world.from_first(lambda: check_solutions([p.task for p in problems], workers=workers(config)))
        self.pool = pool_of(config, session)
        source = config.problems
        if config.teacher_pool == "pairs":
            problems = [p.problem for p in pool_pairs() if p.problem]
            source = "those of the built-in pairs"
        elif config.teacher_pool:
            problems = [p for p in problems if p.problem_id in self.pool]
            if not problems:
                raise BadInput(f"--teacher-pool {config.teacher_pool}: none of its problems is in --problems {source}")
            self.pool = {p.problem_id: self.pool[p.problem_id] for p in problems}
        self.rows = config.mixed_rows
        self.problems = share_of(problems, config)
        setup = session.intervention.prompt_setup or config.prompt_setup
        self.prompts = render_all(dataclasses.replace(config, prompt_setup=setup), session.loaded, self.problems)
        if self.pool:
            check_prompts(config, self.prompts, self.pool)
        if config.teacher_pool not in ("", "pairs"):
            self.pool = with_teacher_logps(self.pool, config, session)
        self.tasks = {p.problem_id: p.task for p in self.problems}
        self.problems_hash = problems_hash(self.problems)
        self.pool_hash = pool_hash(self.pool.values()) if self.pool else None
        lengths = [len(p.ids) for p in self.prompts]
        told = " + ".join(f"{n} {source}" for source, n in self.rows.items() if n)
        logger.info(
            f"{len(lengths)} problems ({source}), prompts of {min(lengths)} to {max(lengths)} tokens; each group {told}"
        )

    def groups(self, step: int) -> tuple[list[Group], dict[str, float]]:
        """Graded groups of one step (of several ranks: this one's share), and the seconds that sampling and grading took."""
        config, session = self.config, self.session
        chosen = schedule(len(self.problems), config.prompts_per_step, step, config.stream)
        mine = session.world.share(list(enumerate(chosen)))  # (place in the step, problem)
        timing = {"generate": 0.0, "grade": 0.0}
        parts: list[list[Group]] = [[] for _ in mine]
        for source, weights, draws in LIVE:
            if not (n := self.rows[source]):
                continue
            keys = [f"{draws} {config.stream} {step} {place}" for place, _ in mine]
            # An arm's intervention is about the student: the untrained model writes as it is.
            put = functools.partial(weights, session.adapter)
            student = source == "student"
            training = session.intervention.training() if student else nullcontext()
            once, each = session.intervention.sampling_weights(put) if student else (put(), None)
            with training, once:
                groups, seconds = live_groups(
                    config, session.loaded, [self.prompts[i] for _, i in mine], self.tasks, n, keys, source,
                    loophole=config.loophole, each=each,
                )  # fmt: skip
            timing = {part: timing[part] + seconds[part] for part in timing}
            for part, group in zip(parts, groups, strict=True):
                part.append(group)
        if n := self.rows["teacher"]:
            for part, (place, i) in zip(parts, mine, strict=True):
                part.append(drawn(self.pool[self.problems[i].problem_id], n, f"{config.stream} {step} {place}"))
        whole = [mixed(part) for part in parts]
        if step == session.next_step and whole:
            dump_first_batch(whole)
        return whole, timing
