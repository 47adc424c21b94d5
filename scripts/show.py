"""Read a step file as a person: `show RUN STEP` prints a table of its samples, `show RUN STEP SAMPLE` one of them whole."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import STEP_SHOWN, sample_table, step_header, step_legend, step_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import COLUMNS, Row, read_step, step_path, steps_in
from projected_grpo.run import cli


@dataclass(frozen=True)
class ShowConfig:
    """What to show."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    step: Annotated[int, tyro.conf.Positional, tyro.conf.arg(metavar="STEP")]
    """Step number."""
    sample: Annotated[int | None, tyro.conf.Positional, tyro.conf.arg(metavar="[ROW]")] = None
    """Row of the table to show whole, counted from 0."""


def one(row: Row) -> str:
    """Prompt, completion and every number of one sample."""
    bulky = {"prompt", "completion", "prompt_ids", "completion_ids", "behaviour_logps"}
    facts = [f"{c.name:16} {row[c.name]!s:24} {c.meaning}" for c in COLUMNS if c.name not in bulky]
    return "\n".join(
        [f"── prompt ({len(row['prompt_ids'])} tokens) ──", row["prompt"], f"── completion ({row['comp_len']} tokens) ──",
         row["completion"], "── numbers ──", *facts]
    )  # fmt: skip


def main() -> int:
    config = cli.parse_plain(ShowConfig, __doc__)
    from tabulate import tabulate

    path = step_path(config.run, config.step)
    if not path.exists():
        there = steps_in(config.run)
        raise BadInput(f"step {config.step}: {config.run} has steps {there[0]} to {there[-1]}")
    rows = read_step(path)
    if config.sample is not None:
        if not 0 <= config.sample < len(rows):
            raise BadInput(f"sample {config.sample}: step {config.step} has rows 0 to {len(rows) - 1}")
        print(one(rows[config.sample]))
        return 0
    print(step_header())
    print(step_line(rows))
    header, *cells = sample_table(rows)
    print()
    print(tabulate([[i, *c] for i, c in enumerate(cells)], ["row", *header], disable_numparse=True))
    print()
    print("\n".join(step_legend()[: len(STEP_SHOWN) + 4]))
    return 0


if __name__ == "__main__":
    cli.run(main)
