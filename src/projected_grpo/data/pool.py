"""Cached groups: a teacher's pool of graded rollouts, from step files, from the published layout, or written.

Token ids are the truth and are replayed as they were sampled; a pool of another tokenizer is refused.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from loophole_grader import grade_batch, verdicts_of
from projected_grpo.config import Gradient
from projected_grpo.data.live import workers
from projected_grpo.data.stored import is_published, read_groups
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import content_hash
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.model.load import LoadedModel
from projected_grpo.prompts import render
from projected_grpo.records import Group, Rollout
from projected_grpo.worlds.builtin import pool_pairs


def pool_hash(groups: Iterable[Group]) -> str:
    """Hash of a pool's rollouts: the same tokens in the same order."""
    return content_hash([[r.completion_ids for r in g.rollouts] for g in groups])


def _same_tokens(group: Group, loaded: LoadedModel) -> bool:
    """The recorded ids, decoded by our tokenizer, are the recorded text."""
    r = group.rollouts[0]
    vocab = len(loaded.tokenizer)
    if max((*r.prompt_ids, *r.completion_ids), default=0) >= vocab:
        return False
    return loaded.tokenizer.decode(r.prompt_ids) == r.prompt


def pool_of(source: str, config: Gradient, loaded: LoadedModel) -> list[Group]:
    """Returns a pool's groups: of a directory, as in load_pool, or with `pairs` the hand-written ones."""
    return written_pool(config, loaded) if source == "pairs" else load_pool(Path(source), loaded)


def load_pool(directory: Path, loaded: LoadedModel) -> list[Group]:
    """Returns the groups of a pool in file order: a run directory, or published prompt_NNNN.jsonl[.gz] files.

    BadInput on a damaged pool, one of another tokenizer, or a sample that is longer than the model's context.
    """
    groups = read_groups(directory)
    if is_published(directory):
        same, theirs = _same_tokens(groups[0], loaded), "another tokenizer"
        groups = [_mark_truncated(g, loaded) for g in groups]
    else:
        theirs = read_manifest(directory)["tokenizer_hash"]
        same = theirs == loaded.tokenizer_hash
    if not same:
        raise BadInput(
            f"--pool {directory}: its token ids are of {theirs}, this model's of {loaded.tokenizer_hash}; use the model "
            "that it belongs to"
        )
    for r in (r for group in groups for r in group.rollouts):
        if (n := len(r.prompt_ids) + len(r.completion_ids)) > loaded.context:
            raise BadInput(
                f"{directory}: problem {r.problem_id}, sample {r.sample_id} has {n} tokens, the model's context is "
                f"{loaded.context}; leave the problem out"
            )
    return groups


def _mark_truncated(group: Group, loaded: LoadedModel) -> Group:
    """Published rows do not say whether they were cut: their last token does."""
    rollouts = tuple(
        dataclasses.replace(r, truncated=not r.completion_ids or r.completion_ids[-1] not in loaded.eos_ids)
        for r in group.rollouts
    )
    return dataclasses.replace(group, rollouts=rollouts)


def written_pool(config: Gradient, loaded: LoadedModel) -> list[Group]:
    """The hand-written completions of some built-in pairs as a graded pool: hack, clean and clean_alt of each prompt.

    A pool of known content for a model that cannot write code itself; not for experiments on what v_hack prevents,
    since V is made from the same completions.
    """
    rollouts: list[tuple[Rollout, ...]] = []
    pairs = pool_pairs()
    for pair in pairs:
        texts = [t for t in (pair.hack, pair.clean, pair.clean_alt) if t is not None]
        ids = [loaded.completion_ids(t) for t in texts]
        room, place = max(map(len, ids)), f"pair {pair.name!r}"
        text, prompt_ids = render(
            pair.messages, config.hint, config.prompt_setup, loaded.tokenizer, loaded.context, room, place
        )
        rollouts.append(
            tuple(
                Rollout(pair.name, j, "teacher", text, t, prompt_ids, tuple(i), truncated=False)
                for j, (t, i) in enumerate(zip(texts, ids, strict=True))
            )
        )
    tasks = [pair.problem.task for pair in pairs if pair.problem]
    flat = [(task, r) for task, group in zip(tasks, rollouts, strict=True) for r in group]
    found = grade_batch([t for t, _ in flat], [r.completion for _, r in flat], workers=workers(config))
    verdicts = iter(verdicts_of(found, [f"pair {r.problem_id!r}, completion {r.sample_id}" for _, r in flat]))
    return [Group.graded(g[0].problem_id, g, tuple(next(verdicts) for _ in g), config.loophole) for g in rollouts]
