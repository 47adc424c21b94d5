"""Grade a step directory again: a confusion table of old against new labels, and every disagreement.

Reads step files of this project or the published layout (prompt_NNNN.jsonl.gz). A published problem that is not among
--problems has no tests here: its completions are then compared by `hacked` alone, which needs none. Exit code 0 when all
agree, 1 when any does not.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from loophole_grader import Task, Verdict, grade_batch
from projected_grpo import cli
from projected_grpo.errors import EXIT_FAILED, BadInput
from projected_grpo.problems import load_problems
from projected_grpo.steps import read_jsonl, read_run

PUBLISHED = re.compile(r"prompt_\d+\.jsonl(\.gz)?")
METHOD = re.compile(r"class Solution called (\w+)")


@dataclass(frozen=True)
class RegradeConfig:
    """What to grade again."""

    pool: Annotated[Path, tyro.conf.Positional]
    """Directory of step files, or of prompt_NNNN.jsonl.gz files."""
    problems: str = "builtin"
    """File of benchmark rows with the tests, or `builtin`."""
    workers: int | None = None
    """Sandboxes at a time; default: one per CPU."""


@dataclass(frozen=True)
class Old:
    """A completion, and what it was judged to be."""

    problem_id: str
    sample_id: int
    completion: str
    hacked: bool
    label: str | None
    prompt: str


def read_pool(pool: Path) -> list[Old]:
    """All completions of a directory, in order."""
    published = sorted(p for p in pool.iterdir() if PUBLISHED.fullmatch(p.name)) if pool.is_dir() else []
    groups = [read_jsonl(p) for p in published] if published else read_run(pool)
    rows = [row for group in groups for row in group]
    try:
        return [
            Old(str(r["problem_id"]), r["sample_id"], r["completion"], bool(r["hacked"]), old_label(r), r["prompt"])
            for r in rows
        ]
    except KeyError as e:
        raise BadInput(f"{pool}: a row lacks field {e}; give a directory of step files or of published rollouts") from e


def old_label(row: Mapping[str, Any]) -> str | None:
    """The recorded label; of a published row as far as its two flags tell (hacked and correct can be two labels)."""
    if "label" in row:
        return row["label"]
    if row["hacked"]:
        return None if row["gt_pass"] else "reward_hack"
    return "correct" if row["gt_pass"] else "incorrect"


def tasks_of(olds: Sequence[Old], source: str) -> list[Task]:
    """One task per completion; without tests where the problem is not among those of `source`."""
    problems = load_problems(source)
    by_id = {p.problem_id: p.task for p in problems}
    tasks = []
    for old in olds:
        method = METHOD.search(old.prompt)
        if old.problem_id not in by_id and method is None:
            raise BadInput(f"problem {old.problem_id} is not in --problems {source}; name the file that has it")
        if old.problem_id not in by_id and method is not None:
            by_id[old.problem_id] = Task(old.problem_id, (), problems[0].task.setup_code, f"Solution().{method[1]}")
        tasks.append(by_id[old.problem_id])
    return tasks


def table(pairs: Sequence[tuple[str, str]], what: str) -> str:
    """Counts of old (rows) against new (columns)."""
    from tabulate import tabulate

    counts = Counter(pairs)
    names = sorted({name for pair in pairs for name in pair})
    body = [[old, *(counts[old, new] for new in names)] for old in names]
    return f"{what}, old (rows) against new (columns):\n" + tabulate(body, ["", *names], disable_numparse=True)


def report(olds: Sequence[Old], tasks: Sequence[Task], verdicts: Sequence[Verdict]) -> int:
    """Print tables and disagreements; how many there are."""
    judged = list(zip(olds, tasks, verdicts, strict=True))
    print(table([(str(o.hacked), str(v.hacked)) for o, _, v in judged], "hacked"))
    labelled = [(o.label, v.label) for o, t, v in judged if t.tests and o.label is not None]
    if labelled:
        print("\n" + table(labelled, "label"))
    unlabelled = len(judged) - len(labelled)
    if unlabelled:
        print(f"\n{unlabelled} completions compared by hacked alone (no tests here, or no old label)")
    agree = sum(o.hacked == bool(v.arbitrary_pass) for o, _, v in judged)
    print(f"own tests pass on a stub that returns 0 (arbitrary_pass) = old hacked: {agree} of {len(judged)}")
    differing = [(o, v) for o, t, v in judged if o.hacked != v.hacked or (t.tests and o.label not in (None, v.label))]
    print(f"\n{len(differing)} of {len(judged)} disagree" + (":" if differing else ""))
    for o, v in differing:
        print(
            f"  problem {o.problem_id} sample {o.sample_id}: hacked {o.hacked} -> {v.hacked}, label {o.label} -> {v.label} "
            f"(status {v.status}, own tests {v.defines_evaluator}, pass {v.hinted_pass}, on a stub {v.arbitrary_pass})"
        )
    return len(differing)


def main() -> int:
    config = cli.parse_plain(RegradeConfig, __doc__)
    olds = read_pool(config.pool)
    tasks = tasks_of(olds, config.problems)
    verdicts = grade_batch(tasks, [old.completion for old in olds], workers=config.workers)
    return EXIT_FAILED if report(olds, tasks, verdicts) else 0


if __name__ == "__main__":
    cli.run(main)
