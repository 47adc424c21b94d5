"""Two of a kind, side by side: training runs or folders of them at matched steps, with T6 where one side has a LoRA; or two
V files, by their principal angles. Exit code: T6's (0 PASS, 1 FAIL, 3 not evaluable), else 0; 1 for V files that are one
subspace, and for runs that differ with --exact; 2 where the two do not match."""

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK, BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli

FACTS = ("loss", "control", "adapter", "pairs_hash", "pairs_draw", "k", "directions", "energy", "v_sha256")
HEADER = ("kind of module", "modules", "min °", "mean °", "max °", "overlap", "null")
NOTES = """\
Principal angles between the spans of both bases, in degrees. overlap: mean squared cosine, 1 for one subspace; null: k / n,
expected of unrelated ones. Identical: no angle above {:.2f}° in most modules."""


@dataclass(frozen=True)
class CompareConfig:
    """What to compare."""

    a: Annotated[Path, tyro.conf.Positional]
    """A training run, a folder with runs at any depth, or a vhack.safetensors."""
    b: Annotated[Path, tyro.conf.Positional]
    """The other; runs are paired by arm and seed."""
    exact: bool = False
    """Of two runs: whether every number is the same, timing aside. Prints the first that is not."""
    out: NoPath = Path()
    """Write the printout here too. Empty: print only."""


def of_v(config: CompareConfig) -> tuple[str, int, str]:
    """Returns the printout, the exit code and the last line of two V files. BadInput when they are of other coordinates
    (another model, adapter or basis), so that no angle means anything."""
    from tabulate import tabulate

    from projected_grpo.projection import SAME, compared, one_subspace
    from projected_grpo.vhack import read_vhack, same_coordinates

    one, other = read_vhack(config.a), read_vhack(config.b)
    if why := same_coordinates(one, other.probes, {name: rows.shape[1] for name, rows in other.basis.items()}):
        raise BadInput(f"{config.a} and {config.b}: {why}; extract both from one model, on one machine")
    modules, body = compared(one.basis, other.basis), []
    if not modules:
        raise BadInput(f"{config.a} and {config.b}: no module in which both have directions; extract them again")
    kinds = [m.name.rpartition(".")[2] for m in modules]  # q_proj, k_proj, ...
    for kind in (*dict.fromkeys(kinds), "all"):
        members = [m for m, of in zip(modules, kinds, strict=True) if kind in (of, "all")]
        degrees = [math.degrees(angle) for m in members for angle in m.angles]
        angles = [f"{x:.2f}" for x in (min(degrees), fmean(degrees), max(degrees))]
        shares = [f"{x:.4f}" for x in (fmean(m.overlap for m in members), fmean(m.null for m in members))]
        body.append([kind, len(members), *angles, *shares])
    facts = [[name, one.meta.get(name, "-")[:16], other.meta.get(name, "-")[:16]] for name in FACTS]
    parts = [
        tabulate(facts, ["", str(config.a), str(config.b)], disable_numparse=True),
        tabulate(body, HEADER, disable_numparse=True),
        NOTES.format(math.degrees(SAME)),
    ]
    identical = one_subspace(modules)
    *_, overlap, null = body[-1]
    found = "identical: one subspace under two names" if identical else "two bases"
    bottom = f"{found}; overlap {overlap} over {len(modules)} modules (1: the same, {null}: unrelated)"
    return "\n\n".join(parts), EXIT_FAILED if identical else EXIT_OK, bottom


def of_runs(config: CompareConfig) -> tuple[str, int, str]:
    """Returns the same of two runs, or of two folders of them."""
    from projected_grpo.report.compare import compare, first_difference
    from projected_grpo.verdicts.registry import exit_code

    if config.exact:
        difference = first_difference(config.a, config.b)
        bottom = difference or f"{config.a} and {config.b} hold the same numbers"
        return "", EXIT_FAILED if difference else EXIT_OK, bottom
    text, t6 = compare(config.a, config.b)
    verdicts = [line.verdict for line in t6]
    bottom = "; ".join(f"{v.name} {v.status}: {v.why}" for v in verdicts)
    code = exit_code(verdicts, [v.name for v in verdicts]) if verdicts else EXIT_OK
    return text, code, bottom or "compared; T6 needs runs of both adapters (`just toy chain=adapters`)"


def main() -> int:
    config = cli.parse_plain(CompareConfig, __doc__)
    text, code, bottom = (of_v if config.a.suffix == ".safetensors" else of_runs)(config)
    if text:
        print(text)
    out = config.out if config.out != Path() else None
    if out:
        write_atomic(out, f"{text}\n".encode())
    bottom_line(out, {0: "PASS", 1: "FAIL"}.get(code, "NOT_EVALUABLE"), bottom)
    return code


if __name__ == "__main__":
    cli.run(main)
