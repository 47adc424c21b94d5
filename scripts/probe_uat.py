"""Verdicts T1 to T4, and T4's companion, from step files alone, with effect sizes and a random V beside V; T7 where a
V of --loss grpo was replayed too.

Prints each verdict; writes all numbers (uat.txt, uat.json) and a histogram of cosines. Exit code: 0 all required
PASS, 1 one FAILs, 3 one is NOT_EVALUABLE."""

from pathlib import Path

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.files import write_atomic
from projected_grpo.report.replays import UatConfig, read_replays
from projected_grpo.run import cli
from projected_grpo.verdicts.registry import exit_code


def main() -> int:
    config = cli.parse_plain(UatConfig, __doc__)
    from projected_grpo.report import plots, uat

    replays = read_replays(config)
    found = uat.uat(replays)
    out = config.out.with_suffix(".txt") if config.out != Path() else config.projected / "uat.txt"
    plots.save(plots.cosine_histogram(replays), out.parent, f"{out.stem}_cosines")
    write_atomic(out.with_suffix(".json"), uat.as_json(found).encode())
    text = uat.printout(found, replays)
    write_atomic(out, f"{text}\n".encode())
    print(text if config.details else uat.summary(found, replays))
    print(f"\ndetails: {out} (or --details); numbers: {out.stem}.json; histogram of cosines: {out.stem}_cosines.png")
    code = exit_code(found.verdicts, config.require)
    states = " ".join(f"{v.name} {v.status}" for v in found.verdicts)
    bottom = f"{states}; required {' '.join(config.require)}: exit code {code}"
    bottom_line(out, {0: "PASS", 1: "FAIL"}.get(code, "NOT_EVALUABLE"), bottom)
    return code


if __name__ == "__main__":
    cli.run(main)
