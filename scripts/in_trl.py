"""Does hacking rise in TRL's own trainer, and with the callback? Units of the toy world, each without it and with it.

A run that was cut goes on where it was; a finished one is left as it is.
"""

from projected_grpo.elsewhere.settings import InTRLConfig, rate_over
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse_plain(InTRLConfig, __doc__)
    config.validate()
    from projected_grpo.elsewhere.in_trl import ARMS, check_installed, run_arm
    from projected_grpo.ledger.console import bottom_line

    check_installed()
    names, table = ("hack", "hacked", "gt_pass", "form"), []
    for unit in config.units:
        for arm in ARMS:
            lines = run_arm(config, unit, arm)
            table.append([unit, arm, len(lines), *(rate_over(lines, name) for name in names)])
    means = {arm: sum(row[3] for row in table if row[1] == arm) / len(config.units) for arm in ARMS}
    bottom_line(
        config.out,
        "🟢" if means["projected"] < means["vanilla"] else "🔴",
        f"pure hacks over the last 10 steps, mean of {len(config.units)} units: {means['vanilla']:.1%} without the "
        f"callback, {means['projected']:.1%} with it; no rate means anything without gt_pass beside it",
        [["unit", "arm", "steps", *names], *table],
    )
    return 0


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
