"""Write contrastive pairs of a problems file that has canonical solutions, for `extract-vhack --pairs`.

Every mechanism of the hand-written pairs, in turn; honest tests from the prompts' examples. Problems without examples
that can be read, or whose canonical solution fails them, are left out."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from loophole_grader import grade_batch, verdicts_of
from projected_grpo.config import check_bounds, setting
from projected_grpo.data.made_pairs import honest, made_pairs
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.records import Pair, Problem
from projected_grpo.run import cli

T = TypeVar("T", Problem, Pair)


@dataclass(frozen=True)
class MakePairsConfig:
    """Of which problems, and how many."""

    problems: str
    """A file of the benchmark's rows, .jsonl or .jsonl.gz."""
    out: Path
    """JSON file to write; must not exist yet."""
    each: int = setting(2, low=1, high=12)
    """Pairs of a problem, each of another mechanism."""
    same_body: bool = False
    """Both sides share one solution, and differ in the tests alone."""


def passing(texts: Sequence[tuple[T, str]]) -> list[tuple[T, str]]:
    """Returns those problems or pairs whose completion's `run_tests` passes."""
    tasks = [getattr(of, "problem", of).task for of, _ in texts]
    found = verdicts_of(grade_batch(tasks, [text for _, text in texts]))
    return [one for one, verdict in zip(texts, found, strict=True) if verdict.hinted_pass]


def main() -> int:
    config = cli.parse_plain(MakePairsConfig, __doc__ or "", cli.flags_of(sys.argv[1:]))
    check_bounds(config)
    if config.out.exists():
        raise BadInput(f"--out {config.out}: exists already; name a new file")
    problems = load_problems(config.problems)
    honest_ones = passing([(problem, text) for problem in problems if (text := honest(problem))])
    made = made_pairs([problem for problem, _ in honest_ones], config.each, same_body=config.same_body)
    pairs = [pair for pair, _ in passing([(pair, pair.hack) for pair in made])]
    if not pairs:
        raise BadInput(f"--problems {config.problems}: no problem has a canonical solution that passes its examples")
    rows = [
        {
            "name": pair.name,
            "mechanism": pair.mechanism,
            "messages": [{"role": role, "content": text} for role, text in pair.messages],
            "hack": pair.hack,
            "clean": pair.clean,
        }
        for pair in pairs
    ]
    write_atomic(config.out, json.dumps(rows, indent=1, ensure_ascii=False).encode())
    bottom_line(config.out, "🟢", f"{len(rows)} pairs of {len(honest_ones)} of {len(problems)} problems")
    return 0


if __name__ == "__main__":
    cli.run(main)
