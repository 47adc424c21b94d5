"""Two V set side by side, as files: are they of the same coordinates, are they two, and how far do they lie apart?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from projected_grpo.ledger.errors import BadInput
from projected_grpo.projection import SAME, ModuleAngles, compared, one_subspace
from projected_grpo.run.vhack_file import PROBE_TOLERANCE, content_of, read_vhack
from projected_grpo.vhack import VBasis

SHOWN = ("loss", "control", "adapter", "pairs_hash", "pairs_draw", "k", "directions", "energy", "v_sha256")
"""Metadata that stand above the angles; the contents are hashed again, whatever the file says."""


@dataclass(frozen=True)
class TwoBases:
    """Both artefacts and what their rows say."""

    paths: tuple[Path, Path]
    facts: list[tuple[str, str, str]]
    modules: list[ModuleAngles]

    @property
    def identical(self) -> bool:
        """One subspace in most of the modules."""
        return one_subspace(self.modules)

    @property
    def kinds(self) -> dict[str, list[ModuleAngles]]:
        """Modules by kind, all of them last."""
        out: dict[str, list[ModuleAngles]] = {}
        for m in self.modules:
            out.setdefault(m.kind, []).append(m)
        return {**out, "all": self.modules}

    def text(self) -> str:
        """Facts, every module, kinds of module."""
        head = ["", *map(str, self.paths)]
        body = [[m.name, str(m.k), str(m.n), *_cells([m])] for m in self.modules]
        by_kind = [[kind, str(len(own)), *_cells(own)] for kind, own in self.kinds.items()]
        angles = ["least °", "mean °", "worst °", "overlap", "null", "rms cos", "null"]
        parts = [
            tabulate(self.facts, head, disable_numparse=True),
            _table(["module", "k", "n", *angles], body),
            _table(["kind of module", "modules", *angles], by_kind),
            NOTES,
        ]
        return "\n\n".join(parts)

    def json(self) -> dict[str, Any]:
        """Every number."""
        return {
            "a": str(self.paths[0]), "b": str(self.paths[1]), "identical": self.identical, "same_below_radians": SAME,
            "facts": {name: [one, other] for name, one, other in self.facts},
            "modules": [
                {"name": m.name, "k": m.k, "n": m.n, "radians": m.angles, "overlap": m.overlap, "null": m.null}
                for m in self.modules
            ],
        }  # fmt: skip


NOTES = f"""\
Angles: principal angles between both bases' spans, in degrees; signs, order and turns of the rows do not count. overlap:
mean squared cosine, 1 for one subspace; null: k / n, of unrelated ones. rms cos: its root, beside sqrt(k / n). Identical:
no angle above {math.degrees(SAME):.2f}° in most modules; what rounding to bfloat16 makes of a row is a tenth of that."""


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _cells(own: Sequence[ModuleAngles]) -> list[str]:
    angles = [math.degrees(a) for m in own for a in m.angles]
    overlap, null = _mean([m.overlap for m in own]), _mean([m.null for m in own])
    return [
        f"{min(angles):.2f}", f"{_mean(angles):.2f}", f"{max(angles):.2f}", f"{overlap:.4f}", f"{null:.4f}",
        f"{overlap**0.5:.4f}", f"{null**0.5:.4f}",
    ]  # fmt: skip


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return tabulate(body, header, disable_numparse=True, colalign=["left", *["right"] * (len(header) - 1)])


def two_bases(a: Path, b: Path) -> TwoBases:
    """Both files read and set side by side. BadInput when one is damaged, or they are of other coordinates: another model,
    adapter or basis, so that no angle between them means anything."""
    if a.resolve() == b.resolve():
        raise BadInput(f"{a}: given twice; name two artefacts")
    one, other = read_vhack(a), read_vhack(b)
    _check_coordinates(a, one, b, other)
    modules = compared(one.basis, other.basis)
    if not modules:
        raise BadInput(f"{a} and {b}: no module in which both have directions; extract them again")
    facts = [(name, _fact(one, name), _fact(other, name)) for name in SHOWN]
    return TwoBases((a, b), facts, modules)


def _fact(v: VBasis, name: str) -> str:
    found = content_of(v.basis) if name == "v_sha256" else v.meta.get(name, "-")
    return found[:16]


def _sizes(v: VBasis) -> dict[str, int]:
    return {name: rows.shape[1] for name, rows in v.basis.items()}


def _check_coordinates(a: Path, one: VBasis, b: Path, other: VBasis) -> None:
    for key in ("weights_hash", "adapter", "lora_rank", "lora_seed"):
        if (here := one.meta.get(key)) != (there := other.meta.get(key)):
            raise BadInput(f"{a} has {key}={here}, {b} has {key}={there}: other coordinates, no angle means anything")
    if (mine := _sizes(one)) != (theirs := _sizes(other)):
        odd = sorted(set(mine.items()) ^ set(theirs.items()))[0][0]
        raise BadInput(f"{a} and {b}: module {odd} has {mine.get(odd)} and {theirs.get(odd)} coordinates")
    for name, probe in one.probes.items():
        gap = (probe - other.probes[name]).norm() / probe.norm().clamp(min=1e-12)
        if gap > PROBE_TOLERANCE:
            raise BadInput(
                f"{a} and {b}: {name} is written in two singular bases (fingerprints differ by {float(gap):.3f}, "
                "e.g. made on two machines); extract both on one"
            )
