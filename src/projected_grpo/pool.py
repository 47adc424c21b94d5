"""Cached groups: a teacher's pool of graded rollouts, from our own step files, from the published layout, or written.

Token ids are the truth and are replayed as they were sampled. A pool of another tokenizer is refused, unless its text is
re-tokenised on purpose (`--retokenize`, said in the log): ids then differ from what the teacher sampled, and recorded
behaviour log-probabilities are dropped.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loguru import logger

from loophole_grader import grade_batch
from loophole_grader.hints import HINTS
from projected_grpo.errors import BadInput
from projected_grpo.model import LoadedModel
from projected_grpo.pairs import builtin_pairs
from projected_grpo.problems import render
from projected_grpo.records import Group, Outcome, Rollout
from projected_grpo.runs import read_manifest
from projected_grpo.steps import read_jsonl, read_run

PUBLISHED = re.compile(r"prompt_\d+\.jsonl(\.gz)?")


def _without_padding(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Published rows are padded to the longest of their group: the first `comp_len` ids are the completion.

    ValueError when what follows is not one repeated padding token.
    """
    ids, length = [int(t) for t in row["completion_ids"]], int(row["comp_len"])
    if length > len(ids) or len(set(ids[length:])) > 1:
        raise ValueError(f"comp_len is {length}, but completion_ids are {len(ids)} and not padded after it")
    return tuple(ids[:length])


def _published_group(path: Path) -> Group:
    """One prompt_NNNN.jsonl[.gz] of published rollouts: labels are their authors', reward theirs too."""
    rows = read_jsonl(path)
    rollouts, outcomes = [], []
    for i, row in enumerate(rows, 1):
        try:
            rollouts.append(
                Rollout(
                    str(row["problem_id"]), int(row["sample_id"]), "teacher", str(row["prompt"]), str(row["completion"]),
                    tuple(int(t) for t in row["prompt_ids"]), _without_padding(row), truncated=False,
                )
            )  # fmt: skip
            hacked, gt_pass = bool(row["hacked"]), bool(row["gt_pass"])
            label = None if hacked and gt_pass else "reward_hack" if hacked else "correct" if gt_pass else "incorrect"
            outcomes.append(Outcome(bool(row["fmt_ok"]), hacked, gt_pass, label))
        except (KeyError, TypeError, ValueError) as e:
            raise BadInput(f"{path}:{i}: not a published rollout ({type(e).__name__}: {e})") from e
    if not rollouts:
        raise BadInput(f"{path}: no rollouts in it")
    hint = next((n for n, h in HINTS.items() if h.new and h.new in rollouts[0].prompt), "none")
    rewards = tuple(float(r["reward"]) for r in rows)
    return Group(rollouts[0].problem_id, hint, tuple(rollouts), rewards, tuple(outcomes))


def _group_of_rows(rows: Sequence[Mapping[str, Any]]) -> Group:
    """A group from the rows of one of our own step files."""
    rollouts = tuple(
        Rollout(
            r["problem_id"], r["sample_id"], r["source"], r["prompt"], r["completion"], tuple(r["prompt_ids"]),
            tuple(r["completion_ids"]), r["truncated"],
            None if r["behaviour_logps"] is None else tuple(r["behaviour_logps"]),
        )
        for r in rows
    )  # fmt: skip
    outcomes = tuple(Outcome(r["can_compile"], r["hacked"], r["gt_pass"], r["label"]) for r in rows)
    return Group(rows[0]["problem_id"], rows[0]["hint"], rollouts, tuple(r["reward"] for r in rows), outcomes)


def _by_problem(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """A step's rows as one group per problem, order kept."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["problem_id"], []).append(row)
    return [_group_of_rows(g) for g in groups.values()]


def _retokenized(group: Group, loaded: LoadedModel) -> Group:
    def again(r: Rollout) -> Rollout:
        ids = loaded.tokenizer(r.completion, add_special_tokens=False)["input_ids"]
        prompt = loaded.tokenizer(r.prompt, add_special_tokens=False)["input_ids"]
        end = () if r.truncated else (loaded.tokenizer.eos_token_id,)
        return dataclasses.replace(r, prompt_ids=tuple(prompt), completion_ids=(*ids, *end), behaviour_logps=None)

    return dataclasses.replace(group, rollouts=tuple(again(r) for r in group.rollouts))


def _same_tokens(group: Group, loaded: LoadedModel) -> bool:
    """The recorded ids, decoded by our tokenizer, are the recorded text."""
    r = group.rollouts[0]
    vocab = len(loaded.tokenizer)
    if max((*r.prompt_ids, *r.completion_ids), default=0) >= vocab:
        return False
    return loaded.tokenizer.decode(r.prompt_ids) == r.prompt


def _check_context(group: Group, loaded: LoadedModel, place: Path) -> None:
    for r in group.rollouts:
        if (n := len(r.prompt_ids) + len(r.completion_ids)) > loaded.context:
            raise BadInput(
                f"{place}: problem {r.problem_id}, sample {r.sample_id} has {n} tokens, the model's context is "
                f"{loaded.context}; leave the problem out"
            )


def load_pool(directory: Path, loaded: LoadedModel, retokenize: bool = False) -> list[Group]:
    """Groups of a pool in file order: our own run directory, or published prompt_NNNN.jsonl[.gz] files.

    BadInput on a missing or damaged pool, one of another tokenizer (without `retokenize`), or a sample that is longer
    than the model's context.
    """
    if not directory.is_dir():
        raise BadInput(f"--pool {directory}: no such directory; sample one with `just probe-teacher-pool`")
    files = sorted(p for p in directory.iterdir() if PUBLISHED.fullmatch(p.name))
    if files:
        groups = [_published_group(p) for p in files]
        foreign = None if _same_tokens(groups[0], loaded) else "published with another tokenizer"
        if foreign is None:
            groups = [_mark_truncated(g, loaded) for g in groups]
    else:
        groups = [g for rows in read_run(directory) for g in _by_problem(rows)]
        theirs = read_manifest(directory).get("tokenizer_hash")
        foreign = None if theirs == loaded.tokenizer_hash else f"of tokenizer {theirs}, this model's is "
        foreign = foreign and foreign + loaded.tokenizer_hash
    if foreign and not retokenize:
        raise BadInput(
            f"--pool {directory}: {foreign}; replay it with the model it belongs to, or pass --retokenize to cut its "
            "text anew"
        )
    if foreign:
        logger.warning(
            f"pool {directory}: {foreign}; its TEXT IS RE-TOKENISED, so token ids are not those that were sampled"
        )
        groups = [_retokenized(g, loaded) for g in groups]
    for group in groups:
        _check_context(group, loaded, directory)
    return groups


def _mark_truncated(group: Group, loaded: LoadedModel) -> Group:
    """Published rows do not say whether they were cut: their last token does."""
    rollouts = tuple(
        dataclasses.replace(r, truncated=not r.completion_ids or r.completion_ids[-1] not in loaded.eos_ids)
        for r in group.rollouts
    )
    return dataclasses.replace(group, rollouts=rollouts)


def written_pool(
    loaded: LoadedModel, hint: str, prompt_setup: str, allow_hint: bool, workers: int | None
) -> list[Group]:
    """The hand-written completions of the built-in pairs as a graded pool: hack, clean and clean_alt of each prompt.

    A pool of known content for a model that cannot write code itself; not for experiments on what v_hack prevents,
    since V is made from the same completions.
    """
    rollouts: list[tuple[Rollout, ...]] = []
    pairs = builtin_pairs()
    for pair in pairs:
        texts = [t for t in (pair.hack, pair.clean, pair.clean_alt) if t is not None]
        ids = [
            (*loaded.tokenizer(t, add_special_tokens=False)["input_ids"], loaded.tokenizer.eos_token_id) for t in texts
        ]
        room = max(map(len, ids))
        text, prompt_ids = render(
            pair.messages, hint, prompt_setup, loaded.tokenizer, loaded.context, room, f"pair {pair.name!r}"
        )
        rollouts.append(
            tuple(
                Rollout(pair.name, j, "teacher", text, t, prompt_ids, tuple(i), truncated=False)
                for j, (t, i) in enumerate(zip(texts, ids, strict=True))
            )
        )
    tasks = [pair.problem.task for pair in pairs if pair.problem]
    flat = [(task, r) for task, group in zip(tasks, rollouts, strict=True) for r in group]
    verdicts = iter(grade_batch([t for t, _ in flat], [r.completion for _, r in flat], workers=workers))
    return [Group.graded(g[0].problem_id, hint, g, tuple(next(verdicts) for _ in g), allow_hint) for g in rollouts]
