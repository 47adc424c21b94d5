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
NUMBERS = ("theta_norm", "overlap", "null", "cos_in", "cos_out")


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
    """What was written; None where there is no such file. BadInput on a damaged one."""
    path = run / NAME
    if not path.exists():
        return None
    try:
        return found_of(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise BadInput(f"{path}: damaged ({e}); delete it and run `just v-anew {run}`") from e


def found_of(data: Mapping[str, Any]) -> Found:
    """Such a file's contents. KeyError, TypeError or ValueError where something of it is lacking or of another kind."""
    return Found(str(data["v_sha256"]), tuple(map(_record, data["records"])))


def _record(data: Mapping[str, Any]) -> Anew:
    numbers = {name: _number(name, data[name]) for name in NUMBERS}
    if not (isinstance(data["steps"], int) and isinstance(data["kinds"], dict)):
        raise ValueError(f"steps is {data['steps']!r:.40}, kinds {data['kinds']!r:.40}")
    return Anew(steps=data["steps"], **numbers, kinds={name: _number(name, of) for name, of in data["kinds"].items()})


def _number(name: str, value: Any) -> float:
    """None stands for what is no finite number, which JSON cannot say."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ValueError(f"{name} is {value!r:.40}, where a number is expected")
    return math.nan if value is None else float(value)
