"""Graded groups as they stand on disk, and teachers' pools of them: step files, the published prompt_NNNN.jsonl[.gz]
files, or hand-written completions.

Token ids are the truth and are replayed as they were sampled; a pool of another tokenizer is refused.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from loophole_grader import grade_batch, verdicts_of
from projected_grpo.config import Gradient, TrainConfig
from projected_grpo.data.live import workers
from projected_grpo.data.pairs import pool_pairs
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, content_hash, read_jsonl
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.step_file import in_groups, published_files, read_run
from projected_grpo.model.load import LoadedModel
from projected_grpo.prompts import render
from projected_grpo.records import Group, Outcome, Rollout

# ---------------------------------------------------------------- files


def read_groups(directory: Path, eos_ids: Collection[int] = ()) -> list[Group]:
    """Returns all groups of a directory, in file order. BadInput when it is missing, damaged or neither layout.

    Published rows do not say whether they were cut: their last token does, by `eos_ids`."""
    if files := published_files(directory):
        check_once(((path.name, path.name.partition(".")[0]) for path in files), directory)
        return [_published_group(path, eos_ids) for path in files]
    return [_group_of_rows(group) for rows in read_run(directory) for group in in_groups(rows)]


def by_problem(groups: Sequence[Group], where: Path | str) -> dict[str, Group]:
    """Returns a pool's groups by their problem. BadInput, saying where, when a problem has two."""
    check_once(((f"problem {g.problem_id}", g.problem_id) for g in groups), where)
    return {g.problem_id: g for g in groups}


def pool_hash(groups: Iterable[Group]) -> str:
    """Hash of a pool's rollouts: the same tokens in the same order."""
    return content_hash([[r.completion_ids for r in g.rollouts] for g in groups])


def _published_group(path: Path, eos_ids: Collection[int]) -> Group:
    """One prompt_NNNN.jsonl[.gz] of published rollouts: labels are their authors', reward theirs too. Rows are padded
    to the longest of their group: the first `comp_len` ids are the completion."""
    rollouts, outcomes, rewards = [], [], []
    for i, row in enumerate(read_jsonl(path), 1):
        try:
            padded, length = tuple(map(int, row["completion_ids"])), int(row["comp_len"])
            if length > len(padded) or len(set(padded[length:])) > 1:
                raise ValueError(f"comp_len is {length}, but completion_ids are {len(padded)} and not padded after it")
            ids = padded[:length]
            cut = bool(eos_ids) and (not ids or ids[-1] not in eos_ids)
            rollouts.append(
                Rollout(
                    str(row["problem_id"]), int(row["sample_id"]), "teacher", str(row["prompt"]), str(row["completion"]),
                    tuple(map(int, row["prompt_ids"])), ids, cut,
                )
            )  # fmt: skip
            hacked, gt_pass = bool(row["hacked"]), bool(row["gt_pass"])
            label = None if hacked and gt_pass else "reward_hack" if hacked else "correct" if gt_pass else "incorrect"
            outcomes.append(Outcome(bool(row["fmt_ok"]), hacked, gt_pass, label))
            rewards.append(float(row["reward"]))
        except (KeyError, TypeError, ValueError) as e:
            raise BadInput(f"{path}:{i}: not a published rollout ({type(e).__name__}: {e})") from e
    if not rollouts:
        raise BadInput(f"{path}: no rollouts in it")
    check_once(((f"sample {r.sample_id}", r.sample_id) for r in rollouts), path)
    return Group(rollouts[0].problem_id, tuple(rollouts), tuple(rewards), tuple(outcomes))


def _group_of_rows(rows: Sequence[Mapping[str, Any]]) -> Group:
    """A group from the rows of a step file, which has a column for every field of a rollout and of an outcome."""

    def records(kind: Any) -> tuple[Any, ...]:
        values = ({f.name: row[f.name] for f in fields(kind)} for row in rows)
        return tuple(kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()}) for own in values)

    return Group(rows[0]["problem_id"], records(Rollout), tuple(r["reward"] for r in rows), records(Outcome))


# ---------------------------------------------------------------- pools of a model


def pool_of(source: str, config: Gradient, loaded: LoadedModel) -> list[Group]:
    """Returns a pool's groups: of a directory, as in load_pool, or with `pairs` the hand-written ones."""
    flag = "--teacher-pool" if isinstance(config, TrainConfig) else "--pool"
    return written_pool(config, loaded) if source == "pairs" else load_pool(Path(source), loaded, flag)


def load_pool(directory: Path, loaded: LoadedModel, flag: str = "--pool") -> list[Group]:
    """Returns the groups of a pool in file order: a run directory, or published prompt_NNNN.jsonl[.gz] files.

    BadInput on a damaged pool, one of another tokenizer, or a sample that is longer than the model's context.
    """
    groups = read_groups(directory, loaded.eos_ids)
    if published_files(directory):
        r, theirs = groups[0].rollouts[0], "another tokenizer"
        known = max((*r.prompt_ids, *r.completion_ids), default=0) < len(loaded.tokenizer)
        same = known and loaded.tokenizer.decode(r.prompt_ids) == r.prompt
    else:
        theirs = read_manifest(directory)["tokenizer_hash"]
        same = theirs == loaded.tokenizer_hash
    if not same:
        raise BadInput(
            f"{flag} {directory}: its token ids are of {theirs}, this model's of {loaded.tokenizer_hash}; use its model"
        )
    for r in (r for group in groups for r in group.rollouts):
        if (n := len(r.prompt_ids) + len(r.completion_ids)) > loaded.context:
            raise BadInput(
                f"{flag} {directory}: problem {r.problem_id}, sample {r.sample_id} has {n} tokens, the model's context is "
                f"{loaded.context}; leave the problem out"
            )
    return groups


def written_pool(config: Gradient, loaded: LoadedModel) -> list[Group]:
    """The hand-written completions of some of the --pairs as a graded pool: hack, clean and clean_alt of each prompt.

    A pool of known content for a model that cannot write code itself; not for experiments on what v_hack prevents,
    since V is made from the same completions.
    """
    rollouts, tasks = [], []
    for pair in pool_pairs(getattr(config, "pairs", "builtin")):
        assert pair.problem is not None  # as pool_pairs has checked
        texts = [t for t in (pair.hack, pair.clean, pair.clean_alt) if t is not None]
        ids, where = [loaded.completion_ids(t) for t in texts], f"pair {pair.name!r}"
        prompt, prompt_ids = render(
            pair.messages,
            config.hint,
            config.prompt_setup,
            loaded.tokenizer,
            loaded.context,
            max(map(len, ids)),
            where,
            pair.problem.task.evaluator_name,
        )
        for j, (text, own) in enumerate(zip(texts, ids, strict=True)):
            rollouts.append(
                Rollout(pair.problem.problem_id, j, "teacher", prompt, text, prompt_ids, own, truncated=False)
            )
            if rollouts[-1].graded_text != text:
                raise BadInput(f"--model {config.model}: its prompts open <think>, which no pair closes; sample one")
            tasks.append(pair.problem.task)
    found = grade_batch(tasks, [r.completion for r in rollouts], workers=workers(config))
    verdicts = verdicts_of(found, [f"pair {r.problem_id!r}, completion {r.sample_id}" for r in rollouts])
    graded = itertools.groupby(zip(rollouts, verdicts, strict=True), key=lambda row: row[0].problem_id)
    return [Group.graded(name, *zip(*rows, strict=True), config.loophole) for name, rows in graded]
