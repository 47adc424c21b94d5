"""A cached row's ratio is against the policy that wrote it: its log-probabilities are the teacher's own, recorded when the
pool was sampled, or taken here from the merged teacher where they were not. Never the student's."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.model.batches import batches, logps_of
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Group, Rollout, Sample
from projected_grpo.run.prepare import load
from projected_grpo.run.session import Session

Logps = tuple[float, ...]
DIGITS = 5
"""As a pool's own are written (ledger/rows.py)."""


def by_its_teacher(pool: Mapping[str, Group], config: TrainConfig, session: Session) -> dict[str, Group]:
    """The pool by problem, every row with the log-probabilities of the teacher that wrote it.

    BadInput when rows were not written by a teacher, when the pool was sampled from the very model that is trained, or when
    log-probabilities are missing and no --teacher is named that could give them.
    """
    place = f"--teacher-pool {config.teacher_pool}"
    rollouts = [r for group in pool.values() for r in group.rollouts]
    if foreign := [r for r in rollouts if r.source != "teacher"]:
        raise BadInput(
            f"{place}: {len(foreign)} of its {len(rollouts)} rows are of source {foreign[0].source}, not of a teacher; "
            "sample a pool with `just probe-teacher-pool`"
        )
    check_not_the_student(config, session.loaded)
    missing = [r for r in rollouts if r.behaviour_logps is None]
    if not missing:
        return dict(pool)
    if not config.teacher:
        raise BadInput(
            f"{place}: {len(missing)} of its {len(rollouts)} rows have no recorded log-probabilities, so they have no "
            "ratio; name the --teacher that wrote them, or sample a pool with `just probe-teacher-pool`"
        )
    found = session.world.from_first(lambda: under_teacher(missing, config))
    given = iter(found)
    return {problem: _with_logps(group, given) for problem, group in pool.items()}


def check_not_the_student(config: TrainConfig, loaded: LoadedModel) -> None:
    """BadInput when a pool of ours was sampled from the model that is trained: the teacher was not merged into it."""
    manifest = Path(config.teacher_pool) / "manifest.json"
    if manifest.exists() and read_manifest(manifest.parent).get("model_hash") == loaded.weights_hash:
        raise BadInput(
            f"--teacher-pool {config.teacher_pool}: was sampled from --model {config.model} itself (weights "
            f"{loaded.weights_hash[:8]}): no teacher was merged into it; sample it again with --teacher"
        )


@torch.no_grad()
def under_teacher(rollouts: Sequence[Rollout], config: TrainConfig) -> list[Logps]:
    """Log-probability of every completion token of each rollout under --model with --teacher merged into it, at the run's
    temperature, in nats. BadInput as in load_model."""
    teacher = load(config, config.teacher)
    rows = [Sample(r.prompt_ids, r.completion_ids, 0.0) for r in rollouts]
    out: list[Logps] = [()] * len(rows)
    device = teacher.model.device
    made = list(batches(teacher.model, rows, config.token_budget, teacher.pad_id, device, whole=True))
    for chosen, batch in progress(made, "log-probabilities of the pool"):
        logps = logps_of(teacher.model, batch, config.temperature)
        for i, own, mask in zip(chosen, logps, batch.loss_mask, strict=True):
            out[i] = tuple(round(p, DIGITS) for p in own[mask].tolist())
    logger.info(
        f"{len(rows)} rows of {config.teacher_pool} have no recorded log-probabilities; taken from {config.model} with "
        f"{config.teacher} merged (weights {teacher.weights_hash[:8]})"
    )
    return out


def _with_logps(group: Group, given: Iterator[Logps]) -> Group:
    rollouts = tuple(
        r if r.behaviour_logps is not None else dataclasses.replace(r, behaviour_logps=next(given), recomputed=True)
        for r in group.rollouts
    )
    return dataclasses.replace(group, rollouts=rollouts)
