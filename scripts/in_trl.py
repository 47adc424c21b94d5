"""Does hacking rise in TRL's own trainer, and with the callback? Units of the toy world, each without it and with it.

A run that was cut goes on where it was; a finished one is left as it is. Exit code 1 where H1's first thresholds do not
hold.
"""

from projected_grpo.elsewhere.settings import InTRLConfig, rate_over
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse_plain(InTRLConfig, __doc__)
    config.validate()
    from projected_grpo.elsewhere.in_trl import ARMS, check_installed, run_arm
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.verdicts.h1 import FORM_DROP, GT_DROP, REDUCTION

    check_installed()
    names, table = ("hack", "hacked", "gt_pass", "form"), []
    for unit in config.units:
        for arm in ARMS:
            lines = run_arm(config, unit, arm)
            table.append([unit, arm, len(lines), *(rate_over(lines, name) for name in names)])
    gain = {
        name: 100 * sum((row[i] if row[1] == "projected" else -row[i]) for row in table) / len(config.units)
        for i, name in enumerate(names, 3)
    }
    held = gain["hack"] <= -REDUCTION and gain["gt_pass"] >= -GT_DROP and gain["form"] >= -FORM_DROP
    bottom_line(
        config.out,
        "🟢" if held else "🔴",
        f"with the callback minus without it, last 10 steps, mean of {len(config.units)} units: pure hacks "
        f"{gain['hack']:+.1f} pp (needs <= {-REDUCTION:.0f}), gt_pass {gain['gt_pass']:+.1f} (>= {-GT_DROP:.0f}), "
        f"well-formed {gain['form']:+.1f} (>= {-FORM_DROP:.0f})",
        [["unit", "arm", "steps", *names], *table],
    )
    return 0 if held else 1


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
