"""Grade a step directory again: a confusion table of old against new labels, and every disagreement.

Reads step files of this project or the published layout (prompt_NNNN.jsonl.gz). A published problem that is not among
--problems has no tests here: its completions are then compared by `hacked` alone, which needs none. Exit code 0 when
all agree, 1 when any does not."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from loophole_grader import Task, grade_batch, verdicts_of
from projected_grpo.data.pool import read_groups
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import EXIT_FAILED, BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.records import Rollout
from projected_grpo.run import cli

METHOD = re.compile(r"class Solution called (\w+)")


@dataclass(frozen=True)
class RegradeConfig:
    """What to grade again."""

    pool: Annotated[Path, tyro.conf.Positional]
    """Directory of step files, or of prompt_NNNN.jsonl.gz files."""
    problems: str = ""
    """A source of problems, as for `train`. Empty: that of the run's manifest; `builtin` without one."""


def tasks_of(rollouts: Sequence[Rollout], source: str) -> list[Task]:
    """One task per completion; without tests where the problem is not among those of `source`."""
    problems = load_problems(source)
    by_id = {p.problem_id: p.task for p in problems}
    for r in rollouts:
        if r.problem_id not in by_id:
            method = METHOD.search(r.prompt)
            if method is None:
                raise BadInput(f"problem {r.problem_id} is not in --problems {source}; name the file that has it")
            by_id[r.problem_id] = Task(r.problem_id, (), problems[0].task.setup_code, f"Solution().{method[1]}")
    return [by_id[r.problem_id] for r in rollouts]


def table(what: str, pairs: Sequence[tuple[object, object]]) -> str:
    """Counts of old (rows) against new (columns)."""
    from tabulate import tabulate

    counts = Counter((str(old), str(new)) for old, new in pairs)
    names = sorted({name for pair in counts for name in pair})
    body = [[old, *(counts[old, new] for new in names)] for old in names]
    return f"{what}, old (rows) against new (columns):\n{tabulate(body, ['', *names], disable_numparse=True)}\n"


def main() -> int:
    config = cli.parse_plain(RegradeConfig, __doc__)
    groups = read_groups(config.pool)
    rollouts = [r for g in groups for r in g.rollouts]
    outcomes = [o for g in groups for o in g.outcomes]
    named = (config.pool / "manifest.json").exists() and read_manifest(config.pool)["config"].get("problems")
    tasks = tasks_of(rollouts, config.problems or named or "builtin")
    verdicts = verdicts_of(grade_batch(tasks, [r.graded_text for r in rollouts]))
    labelled, differing = [], []
    for r, old, task, new in zip(rollouts, outcomes, tasks, verdicts, strict=True):
        known = bool(task.tests) and old.label is not None
        if known:
            labelled.append((old.label, new.label))
        if old.hacked != new.hacked or (known and old.label != new.label):
            differing.append(
                f"  problem {r.problem_id} sample {r.sample_id}: hacked {old.hacked} -> {new.hacked}, label {old.label} -> "
                f"{new.label} (status {new.status}, own tests {new.defines_evaluator}, pass {new.hinted_pass}, on a stub "
                f"{new.arbitrary_pass})"
            )
    both = list(zip(outcomes, verdicts, strict=True))
    agree = sum(old.hacked == bool(new.arbitrary_pass) for old, new in both)
    print(table("hacked", [(old.hacked, new.hacked) for old, new in both]))
    print(table("label", labelled))
    print(f"{len(both) - len(labelled)} completions compared by hacked alone (no tests here, or no old label)")
    print(f"own tests pass on a stub that returns 0 (arbitrary_pass) = old hacked: {agree} of {len(both)}")
    print("\n".join([f"{len(differing)} of {len(both)} disagree", *differing]))
    return EXIT_FAILED if differing else 0


if __name__ == "__main__":
    cli.run(main)
