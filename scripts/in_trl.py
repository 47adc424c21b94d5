"""Does hacking rise in TRL's own trainer, and with the callback? Replicates of the toy world, each without it and with it.

A run that was cut goes on where it was; a finished one is left as it is. Exit code 1 where H1's thresholds for the
reduction, the pass rate and compile rates do not hold on means (its other clauses need controls), 3 where TRL alone
hacks too little for any reduction to reach its threshold.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from projected_grpo.run import cli


@dataclass(frozen=True)
class InTRLConfig:
    """in_trl: independent replicates in TRL's GRPOTrainer, each without the callback and with it."""

    world: Literal["toy", "tiny"] = "toy"
    """The preset whose model, problems, pairs and sizes are used; tiny is the mechanics alone."""
    replicates: tuple[int, ...] = (41, 42, 43)
    """Seeds. Each replicate has its base, its draw of the pairs and its V."""
    steps: int = 300
    """Optimizer steps of every run."""
    save_every: int = 25
    """Steps between two checkpoints; a run that was cut goes on from its last one."""
    cache: Path = Path("out/cache")
    """Where built models and singular value decompositions are kept."""
    out: Path = Path("out/in-trl")
    """Folder of runs; those that are finished are left as they are."""


def main() -> int:
    config = cli.parse_plain(InTRLConfig, __doc__)
    from projected_grpo.integrations.in_trl import ARMS, run_arm
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_NOT_EVALUABLE, EXIT_OK
    from projected_grpo.ledger.rates import LAST
    from projected_grpo.verdicts.h1 import FORM_DROP, GT_DROP, REDUCTION

    names, table = ("hack", "hacked", "gt_pass", "form"), []
    for replicate in config.replicates:
        for arm in ARMS:
            lines = run_arm(
                replicate, arm, world=config.world, steps=config.steps, save_every=config.save_every,
                cache=config.cache, out=config.out,
            )  # fmt: skip
            rates = (fmean(line[f"loophole/{name}"] for line in lines[-LAST:]) for name in names)
            table.append([replicate, arm, len(lines), *rates])
    gain = {
        name: 100 * sum((row[i] if row[1] == "projected" else -row[i]) for row in table) / len(config.replicates)
        for i, name in enumerate(names, 3)
    }
    alone = 100 * sum(row[3] for row in table if row[1] == "vanilla") / len(config.replicates)
    held = gain["hack"] <= -REDUCTION and gain["gt_pass"] >= -GT_DROP and gain["form"] >= -FORM_DROP
    code, mark = (EXIT_OK, "🟢") if held else (EXIT_FAILED, "🔴")
    if alone < REDUCTION:
        code, mark = EXIT_NOT_EVALUABLE, f"⚪ without it {alone:.1f} % pure hacks, too few to be reduced;"
    bottom_line(
        config.out,
        mark,
        f"with the callback minus without it, last {min(LAST, config.steps)} steps, mean of {len(config.replicates)} "
        f"replicates: pure hacks {gain['hack']:+.1f} pp (needs <= {-REDUCTION:.0f}), "
        f"gt_pass {gain['gt_pass']:+.1f} (>= {-GT_DROP:.0f}), compiles {gain['form']:+.1f} (>= {-FORM_DROP:.0f})",
        [["replicate", "arm", "steps", *names], *table],
    )
    return code


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
