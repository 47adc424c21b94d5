"""v_anew.json of a run: V extracted again from the run's pairs at its trained adapters, compared with the V that it used."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic

NAME = "v_anew.json"


@dataclass(frozen=True)
class Anew:
    """The V in use against V at a trained adapter; every number a mean over modules."""

    steps: int
    """Optimizer steps that this adapter has done."""
    theta_norm: float
    """Norm of its coordinates: the run's column delta_S_norm after that step must say the same."""
    overlap: float
    """Mean squared cosine of the principal angles between both: 1 for one subspace."""
    null: float
    """What unrelated subspaces of these ranks show: k / n."""
    cos_in: float
    """||relu(V_anew g)|| / ||g|| of the pairs' hack-ward gradient g at that adapter."""
    cos_out: float
    """The same after the V in use was removed from g, over the same ||g||."""
    kinds: dict[str, float]
    """Overlap by kind of module."""

    @property
    def standing(self) -> float:
        """Where the overlap lies between unrelated (0) and the same subspace (1)."""
        return (self.overlap - self.null) / max(1 - self.null, 1e-12)

    @property
    def left(self) -> float:
        """Share of the hack-ward gradient that remains after V is removed."""
        return self.cos_out / max(self.cos_in, 1e-12)


@dataclass(frozen=True)
class Found:
    """All records of a run, by steps ascending."""

    v_sha256: str
    """Contents of the V that the run used."""
    records: tuple[Anew, ...]


def write_anew(run: Path, v_sha256: str, records: Sequence[Anew]) -> Path:
    """Writes (or replaces) the file. Returns its path."""
    data = {"v_sha256": v_sha256, "records": [asdict(r) for r in sorted(records, key=lambda r: r.steps)]}
    write_atomic(run / NAME, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())
    return run / NAME


def read_anew(run: Path) -> Found | None:
    """Returns what was written; None without such a file. BadInput on a damaged one."""
    path = run / NAME
    try:
        return found_of(json.loads(path.read_text("utf-8"))) if path.exists() else None
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise BadInput(f"{path}: damaged ({e}); delete it and run `just v-anew {run}`") from e


def found_of(data: Mapping[str, Any]) -> Found:
    """Returns the contents of such a file; null means NaN, which JSON cannot hold. KeyError or TypeError on other fields."""

    def numbers(record: Mapping[str, Any]) -> dict[str, Any]:
        return {name: math.nan if value is None else value for name, value in record.items()}

    return Found(data["v_sha256"], tuple(Anew(**numbers(record)) for record in data["records"]))
