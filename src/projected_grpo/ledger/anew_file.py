"""What was found when V was extracted anew from a run's trained adapter: v_anew.json beside its step files. Torch-free.

write_anew(run, Found(...));  read_anew(run) -> Found | None
"""

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
    """V as it was used against V of the same pairs at a trained adapter; every number a mean over modules."""

    steps: int
    """Optimizer steps that this adapter has done."""
    theta_norm: float
    """Norm of its coordinates: the run's own column delta_S_norm after that step must say the same."""
    overlap: float
    """Mean squared cosine of the principal angles between both: 1 for one subspace."""
    null: float
    """What unrelated subspaces of these ranks show: k / n."""
    cos_in: float
    """||relu(V_anew g)|| / ||g|| of the pairs' hack-ward gradient g at that adapter."""
    cos_out: float
    """The same once the V in use was taken out of g, still over ||g||: near 0 where that V is still the hack-ward one, near
    cos_in where it takes out nothing that matters."""
    kinds: dict[str, float]
    """Overlap by kind of module."""

    @property
    def standing(self) -> float:
        """Of the way from unrelated (0) to the same subspace (1), how far the overlap stands."""
        return (self.overlap - self.null) / max(1 - self.null, 1e-12)

    @property
    def left(self) -> float:
        """Share of the hack-ward gradient that is left when V is taken out."""
        return self.cos_out / max(self.cos_in, 1e-12)


@dataclass(frozen=True)
class Found:
    """All records of a run, by steps ascending."""

    v_sha256: str
    """Contents of the V that the run used."""
    records: tuple[Anew, ...]


def write_anew(run: Path, v_sha256: str, records: Sequence[Anew]) -> Path:
    """Write (or replace) the file. Returns its path."""
    data = {"v_sha256": v_sha256, "records": [asdict(r) for r in sorted(records, key=lambda r: r.steps)]}
    write_atomic(run / NAME, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())
    return run / NAME


def read_anew(run: Path) -> Found | None:
    """Returns what was written; None without such a file. BadInput on a damaged one."""
    path = run / NAME
    if not path.exists():
        return None
    try:
        return found_of(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise BadInput(f"{path}: damaged ({e}); delete it and run `just v-anew {run}`") from e


def found_of(data: Mapping[str, Any]) -> Found:
    """Returns the contents of such a file; null means NaN, which JSON cannot hold. KeyError or TypeError on other fields."""
    return Found(data["v_sha256"], tuple(Anew(**_with_nan(record)) for record in data["records"]))


def _with_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _with_nan(v) if isinstance(v, Mapping) else math.nan if v is None else v for name, v in values.items()
    }
