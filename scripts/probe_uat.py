"""Verdicts T1 to T4, and T4's companion, from step files alone, with effect sizes and a random V beside V; T7 where a V of
--loss grpo was replayed too.

Prints each verdict; writes all numbers (uat.txt, uat.json) and a histogram of cosines. Exit code: 0 all required PASS, 1 one
FAILs, 3 one is NOT_EVALUABLE.
"""

import json
from pathlib import Path

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.files import write_atomic
from projected_grpo.report.uat.inputs import UatConfig
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse_plain(UatConfig, __doc__)
    from projected_grpo.report import plots
    from projected_grpo.report.uat.inputs import read_replays
    from projected_grpo.report.uat.numbers import as_json, uat
    from projected_grpo.report.uat.text import printout, summary
    from projected_grpo.verdicts.registry import exit_code

    replays = read_replays(config)
    found = uat(replays)
    out = config.out.with_suffix(".txt") if config.out != Path() else config.projected / "uat.txt"
    plots.save(plots.cosine_histogram(replays), out.parent, f"{out.stem}_cosines")
    numbers = out.with_suffix(".json")
    write_atomic(numbers, (json.dumps(as_json(found), indent=1, allow_nan=False) + "\n").encode())
    text = printout(found, replays)
    write_atomic(out, f"{text}\n".encode())
    print(text if config.details else summary(found, replays))
    print(f"\ndetails: {out} (or --details); numbers: {numbers.name}; histogram of cosines: {out.stem}_cosines.png")
    code = exit_code(found.verdicts, config.require)
    states = " ".join(f"{v.name} {v.status}" for v in found.verdicts)
    bottom = f"{states}; required {' '.join(config.require)}: exit code {code}"
    bottom_line(out, {0: "PASS", 1: "FAIL"}.get(code, "NOT_EVALUABLE"), bottom)
    return code


if __name__ == "__main__":
    cli.run(main)
