"""The file of a run that says what became of its V at its trained adapters (`just re-extract`)."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from projected_grpo.ledger.files import write_atomic

RE_EXTRACTED = "re_extracted.json"


@dataclass(frozen=True)
class ReExtracted:
    """V extracted again from its pairs at a trained adapter, against the V in use; every number a mean over
    modules."""

    steps: int
    """Optimizer steps that this adapter has done."""
    theta_norm: float
    """Norm of its coordinates: the run's column delta_S_norm after that step must say the same."""
    overlap: float
    """Mean squared cosine of the principal angles between both: 1 for one subspace."""
    null: float
    """What unrelated subspaces of these ranks show: k / n."""
    cos_in: float
    """||relu(V_again g)|| / ||g|| of the pairs' hack-ward gradient g at that adapter."""
    cos_out: float
    """The same after the V in use was removed from g, over the same ||g||."""

    @property
    def standing(self) -> float:
        """Where the overlap lies between unrelated (0) and the same subspace (1)."""
        return (self.overlap - self.null) / max(1 - self.null, 1e-12)

    @property
    def left(self) -> float:
        """Share of the hack-ward gradient that remains after V is removed."""
        return self.cos_out / max(self.cos_in, 1e-12)


def write_re_extracted(run: Path, records: Sequence[ReExtracted]) -> Path:
    """Writes (or replaces) the file, records by steps ascending. Returns its path."""
    write_atomic(run / RE_EXTRACTED, json.dumps({"records": [asdict(r) for r in records]}, indent=1).encode())
    return run / RE_EXTRACTED


def read_re_extracted(run: Path) -> tuple[ReExtracted, ...]:
    """Returns what was written; nothing without such a file."""
    path = run / RE_EXTRACTED
    return tuple(ReExtracted(**r) for r in json.loads(path.read_bytes())["records"]) if path.exists() else ()
