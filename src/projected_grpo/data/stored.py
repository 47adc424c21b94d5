"""Graded groups as they stand on disk: step files, or published prompt_NNNN.jsonl[.gz] files. Torch-free."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, read_jsonl
from projected_grpo.ledger.step_file import in_groups, read_run
from projected_grpo.records import Group, Outcome, Rollout

PUBLISHED = re.compile(r"prompt_\d+\.jsonl(\.gz)?")


def _published_files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob("prompt_*") if PUBLISHED.fullmatch(p.name))


def is_published(directory: Path) -> bool:
    """Whether a directory holds published rollouts rather than step files of ours."""
    return bool(_published_files(directory))


def read_groups(directory: Path) -> list[Group]:
    """All groups of a directory, in file order. BadInput when it is missing, damaged or neither layout."""
    if files := _published_files(directory):
        check_once(((path.name, path.name.partition(".")[0]) for path in files), directory)
        return [_published_group(p) for p in files]
    return [_group_of_rows(group) for rows in read_run(directory) for group in in_groups(rows)]


def by_problem(groups: Iterable[Group], place: Path | str) -> dict[str, Group]:
    """Returns a pool's groups by their problem. BadInput, naming the place, where a problem has two."""
    groups = tuple(groups)
    check_once(((f"problem {g.problem_id}", g.problem_id) for g in groups), place)
    return {g.problem_id: g for g in groups}


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
    rollouts, outcomes, rewards = [], [], []
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
            rewards.append(float(row["reward"]))
        except (KeyError, TypeError, ValueError) as e:
            raise BadInput(f"{path}:{i}: not a published rollout ({type(e).__name__}: {e})") from e
    if not rollouts:
        raise BadInput(f"{path}: no rollouts in it")
    check_once(((f"sample {r.sample_id}", r.sample_id) for r in rollouts), path)
    return Group(rollouts[0].problem_id, tuple(rollouts), tuple(rewards), tuple(outcomes))


def _group_of_rows(rows: Sequence[Mapping[str, Any]]) -> Group:
    """A group from the rows of a step file."""
    rollouts = tuple(
        Rollout(
            r["problem_id"], r["sample_id"], r["source"], r["prompt"], r["completion"], tuple(r["prompt_ids"]),
            tuple(r["completion_ids"]), r["truncated"],
            None if r["behaviour_logps"] is None else tuple(r["behaviour_logps"]),
        )
        for r in rows
    )  # fmt: skip
    outcomes = tuple(Outcome(r["can_compile"], r["hacked"], r["gt_pass"], r["label"]) for r in rows)
    return Group(rows[0]["problem_id"], rollouts, tuple(r["reward"] for r in rows), outcomes)
