"""Two training runs, or two folders of them, side by side at matched steps; T6 where one side has a LoRA. Exit code: T6's (0
PASS, 1 FAIL, 3 not evaluable), 0 where there is none, 2 where the runs do not match."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class CompareConfig:
    """What to set side by side."""

    a: Annotated[Path, tyro.conf.Positional]
    """A training run, or a folder with runs at any depth."""
    b: Annotated[Path, tyro.conf.Positional]
    """The other; runs are paired by arm and seed."""
    replay_a: NoPath = Path()
    """Vanilla replay of a pool against A's V, for T4's effect sizes."""
    replay_b: NoPath = Path()
    """The same rollouts against B's V."""
    out: NoPath = Path()
    """Write the tables here too (.md or .txt), the numbers (.json) beside them. Empty: print only."""


def main() -> int:
    config = cli.parse_plain(CompareConfig, __doc__)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_OK, BadInput
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.report.compare import compare
    from projected_grpo.verdicts.registry import exit_code

    if config.out.suffix == ".json":
        raise BadInput(f"--out {config.out}: the tables are text; end it in .md (the numbers go to .json beside it)")
    given = [path for path in (config.replay_a, config.replay_b) if path != Path()]
    if len(given) == 1:
        raise BadInput(f"{given[0]}: one replay alone; give both --replay-a and --replay-b, or neither")
    found = compare(config.a, config.b, (given[0], given[1]) if given else None)
    text = found.text()
    print(text)
    sys.stdout.flush()
    out = None
    if config.out != Path():
        out = config.out
        write_atomic(out.with_suffix(".json"), (json.dumps(found.json(), indent=1, allow_nan=False) + "\n").encode())
        write_atomic(out, f"```text\n{text}\n```\n".encode() if out.suffix == ".md" else f"{text}\n".encode())
    verdicts = [line.verdict for line in found.t6]
    if not verdicts:
        bottom_line(
            out, "⚪", "compared; T6 needs vanilla and projected runs of both adapters (`just toy chain=adapters`)"
        )
        return EXIT_OK
    code = exit_code(verdicts, [v.name for v in verdicts])
    each = "; ".join(f"{v.name} {v.status}: {v.why}" for v in verdicts)
    bottom_line(out, {0: "PASS", 1: "FAIL"}.get(code, "NOT_EVALUABLE"), f"{each}; exit code {code}")
    return code


if __name__ == "__main__":
    cli.run(main)
