"""The teacher's rows of a run: its pool, checked against the run, each row with the log-probabilities of who wrote it.

A cached row's ratio is against the policy that wrote it: its log-probabilities are the teacher's, recorded when the pool was
sampled, or taken here from the merged teacher where they were not. Never the student's.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from loguru import logger

from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.data.live import workers
from projected_grpo.data.pool import load_pool, written_pool
from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.model.batches import batches, logps_of
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Group, Rollout, Sample
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.prepare import load
from projected_grpo.run.session import Session

DIGITS = 5
"""As a pool's log-probabilities are written (ledger/rows.py)."""


def pool_of(config: TrainConfig, session: Session) -> dict[str, Group]:
    """Returns the run's pool by problem; empty without a --teacher-pool. BadInput when it was not made for such a run."""
    if config.teacher_pool == "pairs":
        groups = written_pool(session.loaded, config.hint, config.prompt_setup, config.loophole, workers(config))
        return {g.problem_id: g for g in groups}
    if not config.teacher_pool:
        return {}
    check_pool(config, session.loaded)
    return {g.problem_id: g for g in load_pool(Path(config.teacher_pool), session.loaded)}


def check_pool(config: TrainConfig, loaded: LoadedModel) -> None:
    """BadInput when a pool was sampled at another temperature (its ratios would be of another distribution), was paid in
    another way than this arm pays, or was sampled from the very model that is trained. Published pools have no manifest."""
    folder, place = Path(config.teacher_pool), f"--teacher-pool {config.teacher_pool}"
    manifest = read_manifest(folder) if (folder / "manifest.json").exists() else {"config": {"arm": "vanilla"}}
    if (theirs := manifest["config"].get("temperature", config.temperature)) != config.temperature:
        raise BadInput(f"--temperature {config.temperature}: the pool {folder} was sampled at {theirs}; use the same")
    arm = manifest["config"].get("arm")
    paid = arm not in ARMS or ARMS[arm].loophole
    if paid != config.loophole:
        raise BadInput(
            f"{place}: its rewards {'pay' if paid else 'do not pay'} the loophole, --arm {config.arm} "
            f"{'does not' if paid else 'does'}; sample one with `probe_distill --teacher-only --arm {config.arm}`"
        )
    if manifest.get("model_hash") == loaded.weights_hash:
        raise BadInput(
            f"{place}: was sampled from --model {config.model} itself (weights {loaded.weights_hash[:8]}): no teacher was "
            "merged into it; sample it again with --teacher"
        )


def check_prompts(config: TrainConfig, prompts: Sequence[Prompt], pool: Mapping[str, Group]) -> None:
    """BadInput when a pool's prompt is not the one that live completions are sampled for: one group, one prompt."""
    for live in prompts:
        cached = pool[live.problem_id]
        if any(r.prompt_ids != live.ids for r in cached.rollouts):
            raise BadInput(
                f"--teacher-pool {config.teacher_pool}: problem {live.problem_id} was sampled with another prompt (hint "
                f"{cached.hint}, maybe another --prompt-setup); sample the pool with the arguments of this run"
            )


def with_teacher_logps(pool: Mapping[str, Group], config: TrainConfig, session: Session) -> dict[str, Group]:
    """Returns the pool with the teacher's log-probabilities in every row.

    BadInput when rows were not written by a teacher, or when log-probabilities are missing and no --teacher is named that
    could give them.
    """
    place = f"--teacher-pool {config.teacher_pool}"
    rollouts = [r for group in pool.values() for r in group.rollouts]
    if foreign := [r for r in rollouts if r.source != "teacher"]:
        raise BadInput(
            f"{place}: {len(foreign)} of its {len(rollouts)} rows are of source {foreign[0].source}, not of a teacher; "
            "sample a pool with `just probe-teacher-pool`"
        )
    missing = [r for r in rollouts if r.behaviour_logps is None]
    if not missing:
        return dict(pool)
    if not config.teacher:
        raise BadInput(
            f"{place}: {len(missing)} of its {len(rollouts)} rows have no recorded log-probabilities, so they have no "
            "ratio; name the --teacher that wrote them, or sample a pool with `just probe-teacher-pool`"
        )
    found = iter(session.world.from_first(lambda: under_teacher(missing, config)))

    def filled(r: Rollout) -> Rollout:
        known = r.behaviour_logps is not None
        return r if known else dataclasses.replace(r, behaviour_logps=next(found), recomputed=True)

    return {
        problem: dataclasses.replace(group, rollouts=tuple(map(filled, group.rollouts)))
        for problem, group in pool.items()
    }


@torch.no_grad()
def under_teacher(rollouts: Sequence[Rollout], config: TrainConfig) -> list[tuple[float, ...]]:
    """Returns the log-probability in nats of every completion token of each rollout under --model with --teacher merged into
    it, at the run's temperature. BadInput as in load_model."""
    teacher = load(config, config.teacher)
    rows = [Sample(r.prompt_ids, r.completion_ids, 0.0) for r in rollouts]
    out: list[tuple[float, ...]] = [()] * len(rows)
    device = teacher.model.device
    made = list(batches(teacher.model, rows, config.token_budget, teacher.pad_id, device, whole=True))
    for chosen, batch in progress(made, "log-probabilities of the pool"):
        logps = logps_of(teacher.model, batch, config.temperature)
        for i, row, mask in zip(chosen, logps, batch.loss_mask, strict=True):
            out[i] = tuple(round(p, DIGITS) for p in row[mask].tolist())
    logger.info(
        f"{len(rows)} rows of {config.teacher_pool} have no recorded log-probabilities; taken from {config.model} with "
        f"{config.teacher} merged (weights {teacher.weights_hash[:8]})"
    )
    return out
