"""Compare two runs number by number, timing aside: exit 0 if every row is the same, 1 with the first difference."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.module_file import NAME, read_modules
from projected_grpo.ledger.step_file import NAMES, read_run
from projected_grpo.run import cli


@dataclass(frozen=True)
class DiffConfig:
    """The two run directories."""

    a: Annotated[Path, tyro.conf.Positional]
    """One run."""
    b: Annotated[Path, tyro.conf.Positional]
    """The other run."""


def first_difference(a: Path, b: Path) -> str:
    """Where two runs first differ, or an empty string. Raises BadInput on a damaged run."""
    left, right = read_run(a), read_run(b)
    for step, (rows_a, rows_b) in enumerate(zip(left, right, strict=False)):
        if len(rows_a) != len(rows_b):
            return f"step {step}: {len(rows_a)} rows against {len(rows_b)}"
        for i, (x, y) in enumerate(zip(rows_a, rows_b, strict=True)):
            for name in NAMES:
                if name != "timing" and x[name] != y[name]:
                    return f"step {step}, row {i}, {name}: {x[name]!r:.80} against {y[name]!r:.80}"
    if len(left) != len(right):
        return f"{len(left)} steps against {len(right)}"
    sides = [read_modules(run) if (run / NAME).exists() else None for run in (a, b)]
    return "" if sides[0] == sides[1] else f"{NAME}: not the same numbers (or one run has none)"


def main() -> int:
    config = cli.parse_plain(DiffConfig, __doc__)
    difference = first_difference(config.a, config.b)
    status = "FAIL" if difference else "PASS"
    bottom_line(None, status, difference or f"{config.a} and {config.b} hold the same numbers")
    return 1 if difference else 0


if __name__ == "__main__":
    cli.run(main)
