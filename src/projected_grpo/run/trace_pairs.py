"""From a student's rollouts and those of N frozen teachers on the same problems to a file of preference pairs. Torch-free.

A trace here is one rollout of the student: one state, its prompt, and one action, its completion. At that state the j-th
rollout of each teacher is what it proposes. Two actions are the same where their texts are, white space at the end aside.
Rewards and labels stand in the same files, and none of them is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from projected_grpo.channels.preference_pairs import Proposals, pairs_of
from projected_grpo.data.preferences import StoredPair
from projected_grpo.data.stored import read_groups
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.records import Group, Rollout


@dataclass(frozen=True)
class Replayed:
    """What was replayed, and the pairs that it gives."""

    pairs: tuple[StoredPair, ...]
    traces: int
    cut: int
    """Traces beyond those, in which an action was cut at its longest: half an action is nothing to prefer."""
    without: int
    """Traces on whose problem a teacher has nothing."""
    tokenizer_hash: str


def replayed(student: Path, teachers: Sequence[Path]) -> Replayed:
    """BadInput on folders that hold no finished rollouts, of different tokenizers, on one folder or its copy twice, or on a
    problem that they were asked in different words."""
    folders = [student, *teachers]
    if len({p.resolve() for p in folders}) != len(folders):
        raise BadInput(
            "--student and --teachers: a folder stands twice; its rollouts would vote twice, or for themselves"
        )
    whose = {folder: _tokenizer_of(folder) for folder in folders}
    if odd := [folder for folder in folders if whose[folder] != whose[student]]:
        raise BadInput(
            f"{odd[0]}: of tokenizer {whose[odd[0]]}, {student} of {whose[student]}; token ids of the two are not the same"
        )
    asked = list(read_groups(student))
    proposed = [{g.problem_id: g for g in read_groups(folder)} for folder in teachers]
    _check_different(folders, [{g.problem_id: g for g in asked}, *proposed])
    pairs: list[StoredPair] = []
    traces = cut = without = 0
    for place, group in enumerate(asked):
        theirs = [groups.get(group.problem_id) for groups in proposed]
        there = [g for g in theirs if g is not None]
        _check_prompts(group, there)
        for j, own in enumerate(group.rollouts):
            actions = [g.rollouts[j % len(g.rollouts)] for g in there]
            if len(there) < len(teachers):
                without += 1
            elif any(r.truncated for r in (own, *actions)):
                cut += 1
            else:
                traces += 1
                pairs += _pairs(f"{place}/{group.problem_id}/{own.sample_id}", own, actions)
    if not traces:
        raise BadInput(f"{student}: none of its {cut + without} rollouts can be replayed ({cut} cut, {without} of problems "
                       "that a teacher was not asked)")  # fmt: skip
    return Replayed(tuple(pairs), traces, cut, without, whose[student])


def _pairs(trace: str, own: Rollout, actions: Sequence[Rollout]) -> list[StoredPair]:
    found = pairs_of(Proposals(own.prompt_ids, own, list(actions)), key=lambda r: r.completion.rstrip())
    return [
        StoredPair(
            trace, 0, len(actions), p.votes, p.reason, p.state, p.chosen.completion_ids, p.rejected.completion_ids
        )
        for p in found
        if p.chosen.completion_ids != p.rejected.completion_ids
    ]


def _tokenizer_of(folder: Path) -> str:
    """BadInput on what is no finished run, or one that does not say it."""
    manifest = read_manifest(folder)
    if not manifest.get("finished"):
        raise BadInput(f"{folder}: not finished; continue it with --resume")
    if not isinstance(manifest.get("tokenizer_hash"), str):
        raise BadInput(f"{folder}: its manifest has no tokenizer_hash; it holds no rollouts of a model")
    return manifest["tokenizer_hash"]


def _check_different(folders: Sequence[Path], groups: Sequence[Mapping[str, Group]]) -> None:
    """BadInput where two folders hold the same rollouts of one model, word for word: a copy is no second opinion."""
    seen: dict[tuple, Path] = {}
    for folder, by_problem in zip(folders, groups, strict=True):
        words = frozenset((p, tuple(r.completion_ids for r in g.rollouts)) for p, g in by_problem.items())
        model = read_manifest(folder).get("model_hash")
        if model and (first := seen.setdefault((words, model), folder)) != folder:
            raise BadInput(
                f"{folder}: the same rollouts as in {first}, word for word; they would vote twice, or for themselves; give "
                "another teacher's"
            )


def _check_prompts(group: Group, theirs: Sequence[Group]) -> None:
    """BadInput where a teacher was asked in other words: its proposal is of another state."""
    asked = {r.prompt_ids for g in (group, *theirs) for r in g.rollouts}
    if len(asked) > 1:
        raise BadInput(
            f"problem {group.problem_id}: student and teachers were asked in different words (hint, prompt set-up); sample "
            "all of them with the same --hint and --prompt-setup"
        )
