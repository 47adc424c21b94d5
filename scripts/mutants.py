"""Inject the sneaky fails one by one and print which verdicts turn red: a matrix, mutants by verdicts.

Every check earns trust by failing once. Exit code 0 when the unharmed pipeline passes and every mutant is caught by the
verdict that is there to catch it, else 1.
"""

from projected_grpo.run import cli
from projected_grpo.toy.settings import MutantsConfig


def main() -> int:
    config = cli.parse_plain(MutantsConfig, __doc__)
    config.validate()
    from tabulate import tabulate

    from projected_grpo.ledger.console import CUES, bottom_line, progress
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.ledger.folder import check_new
    from projected_grpo.run.mutants import MUTANTS, VERDICTS, run_mutants

    check_new(config.out)
    caught = True
    table = []
    for row in progress(run_mutants(config), "mutants"):
        cells = []
        for name in VERDICTS:
            if name not in row.found:
                cells.append("")
                continue
            status = row.found[name].status
            aimed = "  <- aim" if name in row.mutant.aims else ""
            cells.append(f"{CUES[status]} {status}{aimed}")
        ok = row.as_expected
        caught &= ok
        table.append([row.mutant.name, *cells, "yes" if ok else "NO"])
    text = tabulate(table, ["mutant", *VERDICTS, "as expected"], disable_numparse=True)
    print(text)
    write_atomic(config.out / "matrix.txt", f"{text}\n".encode())
    bottom_line(
        config.out,
        "🟢" if caught else "🔴",
        f"{sum(bool(m.aims) for m in MUTANTS)} mutants; SHOULD each be red where it is aimed, ELSE a verdict cannot fail",
    )
    return 0 if caught else 1


if __name__ == "__main__":
    cli.run(main)
