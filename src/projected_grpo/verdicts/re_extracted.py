"""re_extracted.json of a run: V extracted again from its pairs at its trained adapters, compared with the V that it used."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from projected_grpo.ledger.files import write_atomic

NAME = "re_extracted.json"


@dataclass(frozen=True)
class ReExtracted:
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


@dataclass(frozen=True)
class ReExtractions:
    """All records of a run, by steps ascending."""

    v_sha256: str
    """Contents of the V that the run used."""
    records: tuple[ReExtracted, ...]


_FILE = TypeAdapter(ReExtractions)


def write_re_extracted(run: Path, found: ReExtractions) -> Path:
    """Writes (or replaces) the file. Returns its path."""
    write_atomic(run / NAME, _FILE.dump_json(found, indent=1))
    return run / NAME


def read_re_extracted(run: Path) -> ReExtractions | None:
    """Returns what was written; None without such a file."""
    path = run / NAME
    return _FILE.validate_json(path.read_bytes()) if path.exists() else None
