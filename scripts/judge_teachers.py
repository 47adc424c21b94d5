"""Judge a folder of ask_teachers from its files alone: $ per trace, p95 latency per state.

Exit code: 0 PASS, 1 FAIL, 3 NOT_EVALUABLE.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.run import cli


@dataclass(frozen=True)
class JudgeConfig:
    """The folder."""

    folder: Annotated[Path, tyro.conf.Positional]
    """What ask_teachers wrote, whole or not."""


def main() -> int:
    config = cli.parse_plain(JudgeConfig, __doc__)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.teachers.answers import read_answers
    from projected_grpo.teachers.told import cost_table
    from projected_grpo.verdicts.registry import CLAIMS, exit_code

    found = read_answers(config.folder)
    print(cost_table(found))
    verdict = CLAIMS["teachers"].judged(found.asked())
    bottom_line(config.folder, verdict.status, f"{verdict.status}: {verdict.why}")
    return exit_code([verdict], [verdict.name])


if __name__ == "__main__":
    cli.run(main)
