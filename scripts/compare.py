"""Two of a kind, side by side: training runs or folders of them at matched steps, with T6 where one side has a LoRA;
or two V files, by their principal angles. Exit code: T6's (0 PASS, 1 FAIL, 3 not evaluable), else 0; 1 for V files
that are one subspace, and for runs that differ with --exact; 2 where the two do not match."""

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
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
    """Write the printout here too; not with --exact. Empty: print only."""


def of_v(a: Path, b: Path) -> tuple[str, str, int]:
    """Returns the printout, the last line and the exit code of two V files. BadInput when they are of other
    coordinates (another model, adapter or basis), so that no angle means anything."""
    from tabulate import tabulate

    from projected_grpo.projection import SAME, compared, one_subspace
    from projected_grpo.vhack import read_vhack, same_coordinates

    one, other = read_vhack(a), read_vhack(b)
    if why := same_coordinates(one, other.probes, {name: rows.shape[1] for name, rows in other.basis.items()}):
        raise BadInput(f"{a} and {b}: {why}; extract both from one model, on one machine")
    if not (modules := compared(one.basis, other.basis)):
        raise BadInput(f"{a} and {b}: no module in which both have directions; extract them again")
    kinds, body = [m.name.rpartition(".")[2] for m in modules], []  # q_proj, k_proj, ...
    for kind in (*dict.fromkeys(kinds), "all"):
        members = [m for m, of in zip(modules, kinds, strict=True) if kind in (of, "all")]
        degrees = [math.degrees(angle) for m in members for angle in m.angles]
        angles = [f"{x:.2f}" for x in (min(degrees), fmean(degrees), max(degrees))]
        shares = [f"{x:.4f}" for x in (fmean(m.overlap for m in members), fmean(m.null for m in members))]
        body.append([kind, len(members), *angles, *shares])
    facts = [[name, one.meta.get(name, "-")[:16], other.meta.get(name, "-")[:16]] for name in FACTS]
    tables = [tabulate(rows, header, disable_numparse=True) for rows, header in ((facts, ["", a, b]), (body, HEADER))]
    identical = one_subspace(modules)
    found = "identical: one subspace under two names" if identical else "two bases"
    bottom = f"{found}; overlap {body[-1][-2]} over {len(modules)} modules (1: the same, {body[-1][-1]}: unrelated)"
    return "\n\n".join([*tables, NOTES.format(math.degrees(SAME))]), bottom, int(identical)


def of_runs(a: Path, b: Path) -> tuple[str, str, int]:
    """Returns the same of two runs, or of two folders of them."""
    from projected_grpo.report.compare import compare
    from projected_grpo.verdicts.registry import exit_code

    text, t6 = compare(a, b)
    verdicts = [line.verdict for line in t6]
    if not verdicts:
        return text, "compared; T6 needs runs of both adapters (`just toy chain=adapters`)", 0
    bottom = "; ".join(f"{v.name} {v.status}: {v.why}" for v in verdicts)
    return text, bottom, exit_code(verdicts, [v.name for v in verdicts])


def main() -> int:
    config = cli.parse_plain(CompareConfig, __doc__)
    if config.exact and config.out != Path():
        raise BadInput(f"--out {config.out}: --exact prints one line and writes nothing; leave it out")
    if config.exact:
        from projected_grpo.report.compare import first_difference

        difference = first_difference(config.a, config.b)
        same = f"{config.a} and {config.b} hold the same numbers"
        bottom_line(None, "FAIL" if difference else "PASS", difference or same)
        return int(bool(difference))
    text, bottom, code = (of_v if config.a.suffix == ".safetensors" else of_runs)(config.a, config.b)
    print(text)
    out = config.out if config.out != Path() else None
    if out:
        write_atomic(out, f"{text}\n".encode())
    bottom_line(out, {0: "PASS", 1: "FAIL"}.get(code, "NOT_EVALUABLE"), bottom)
    return code


if __name__ == "__main__":
    cli.run(main)
