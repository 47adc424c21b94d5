"""Principal angles between two V, module by module. Exit code 0: two bases; 1: one subspace under two names (the same loss,
or the same tensors up to signs, order and rounding)."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli

if TYPE_CHECKING:
    from projected_grpo.projection import ModuleAngles
    from projected_grpo.vhack import VBasis

SHOWN = ("loss", "control", "adapter", "pairs_hash", "pairs_draw", "k", "directions", "energy")
ANGLES = ("min °", "mean °", "max °", "overlap", "null")
NOTES = """\
Principal angles between the spans of both bases, in degrees. overlap: mean squared cosine, 1 for one subspace; null: k / n,
expected of unrelated ones. Identical: no angle above {:.2f}° in most modules."""


@dataclass(frozen=True)
class CompareVConfig:
    """The two artefacts of extract_vhack_grad."""

    a: Annotated[Path, tyro.conf.Positional]
    """One vhack.safetensors."""
    b: Annotated[Path, tyro.conf.Positional]
    """The other."""
    out: NoPath = Path()
    """Write the printout here too (a .txt or .md file), and its numbers (.json) next to it. Empty: print only."""


def check_coordinates(config: CompareVConfig, one: "VBasis", other: "VBasis") -> None:
    """BadInput when the two are of other coordinates: another model, adapter or basis, so that no angle means anything."""
    from projected_grpo.ledger.errors import BadInput
    from projected_grpo.vhack import same_coordinates

    if config.a.resolve() == config.b.resolve():
        raise BadInput(f"{config.a}: given twice; name two artefacts")
    for key in ("weights_hash", "adapter", "lora_rank", "lora_seed"):
        if (here := one.meta.get(key)) != (there := other.meta.get(key)):
            raise BadInput(f"{config.a} has {key}={here}, {config.b} has {key}={there}: other coordinates")
    if why := same_coordinates(one, other.probes, {name: rows.shape[1] for name, rows in other.basis.items()}):
        raise BadInput(f"{config.a} and {config.b}: {why}; extract both on one machine")


def cells(modules: "Sequence[ModuleAngles]") -> list[str]:
    """Returns the columns ANGLES of these modules."""
    degrees = [math.degrees(a) for m in modules for a in m.angles]
    means = (sum(m.overlap for m in modules) / len(modules), sum(m.null for m in modules) / len(modules))
    return [f"{x:.2f}" for x in (min(degrees), sum(degrees) / len(degrees), max(degrees))] + [f"{x:.4f}" for x in means]


def main() -> int:
    config = cli.parse_plain(CompareVConfig, __doc__)
    from tabulate import tabulate

    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK, BadInput
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.projection import SAME, compared, one_subspace
    from projected_grpo.vhack import content_of, read_vhack

    if config.out.suffix == ".json":
        raise BadInput(f"--out {config.out}: the printout is text; end it in .txt (the numbers go to .json next to it)")
    one, other = read_vhack(config.a), read_vhack(config.b)
    check_coordinates(config, one, other)
    modules = compared(one.basis, other.basis)
    if not modules:
        raise BadInput(f"{config.a} and {config.b}: no module in which both have directions; extract them again")
    identical = one_subspace(modules)
    facts = [[name, one.meta.get(name, "-")[:16], other.meta.get(name, "-")[:16]] for name in SHOWN]
    facts.append(["v_sha256", content_of(one.basis)[:16], content_of(other.basis)[:16]])  # whatever the files say
    kinds = {kind: [m for m in modules if m.kind == kind] for kind in dict.fromkeys(m.kind for m in modules)}
    text = "\n\n".join(
        [
            tabulate(facts, ["", str(config.a), str(config.b)], disable_numparse=True),
            tabulate([[m.name, m.k, m.n, *cells([m])] for m in modules], ["module", "k", "n", *ANGLES]),
            tabulate([[k, len(ms), *cells(ms)] for k, ms in kinds.items()], ["kind of module", "modules", *ANGLES]),
            NOTES.format(math.degrees(SAME)),
        ]
    )
    print(text)
    if config.out != Path():
        numbers = [{"name": m.name, "k": m.k, "n": m.n, "radians": m.angles, "overlap": m.overlap} for m in modules]
        data = {"a": str(config.a), "b": str(config.b), "identical": identical, "modules": numbers}
        write_atomic(config.out.with_suffix(".json"), (json.dumps(data, indent=1) + "\n").encode())
        write_atomic(config.out, f"{text}\n".encode())
    *_, overlap, null = cells(modules)
    bottom_line(
        config.out if config.out != Path() else None,
        "FAIL" if identical else "PASS",
        f"{'identical: one subspace under two names' if identical else 'two bases'}; overlap {overlap} over "
        f"{len(modules)} modules (1: the same, {null}: unrelated)",
    )
    return EXIT_FAILED if identical else EXIT_OK


if __name__ == "__main__":
    cli.run(main)
