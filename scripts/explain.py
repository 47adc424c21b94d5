"""Where the hack lives in one run: kinds of module, layers and modules by their energy along V, early against late, beside
chance; and a heat map over the steps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class ExplainConfig:
    """Which run."""

    run: Annotated[Path, tyro.conf.Positional]
    """A finished training run with a V (--vhack)."""
    out: NoPath = Path()
    """Directory for the heat maps; what stands there is replaced. Empty: explain in RUN."""


def main() -> int:
    config = cli.parse_plain(ExplainConfig, __doc__)
    from projected_grpo.report.lives import concentration, lives_of, text
    from projected_grpo.report.lives_plot import TITLES, heat_map
    from projected_grpo.report.plots import save
    from projected_grpo.verdicts.finished_runs import read_runs

    found = read_runs([config.run])
    if not found.runs:
        why = found.left_out[0][1] if found.left_out else "not a training run"
        raise BadInput(f"{config.run}: {why}")
    (run,), lives = found.runs, lives_of(config.run)
    title = f"{run.arm}, seed {run.seed}, {run.steps} steps"
    out = config.out if config.out != Path() else config.run / "explain"
    for what in TITLES:
        save(heat_map([lives], what, title), out, f"lives_{what.replace(' ', '_')}")
    print(f"{config.run}: {title}\n\n{text(lives)}\n")
    bottom_line(out, "⚪", concentration(lives).told)
    return 0


if __name__ == "__main__":
    cli.run(main)
