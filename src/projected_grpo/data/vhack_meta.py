"""The metadata of a V file, read and checked without torch: before a model is loaded, and without the tensors, which
are several GB for a LoRA at 4B's shapes."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from projected_grpo.data.pairs import HELD_OUT, load_pairs, pairs_hash
from projected_grpo.ledger.errors import BadInput
from projected_grpo.records import Pair


def vhack_meta(path: Path) -> dict[str, str]:
    """Returns a file's metadata. BadInput when it is missing, damaged or something else."""
    fix = "make one with `just extract-vhack`"
    if not path.is_file():
        what = "a folder; name the vhack.safetensors in it" if path.is_dir() else "no such file"
        raise BadInput(f"--vhack {path}: {what}; {fix}")
    try:
        with safe_open(path, "np") as f:
            meta, keys = f.metadata() or {}, list(f.keys())
    except (OSError, SafetensorError) as e:
        raise BadInput(f"--vhack {path}: not a readable safetensors file ({e}); {fix}") from e
    if not any(key.startswith("V/") for key in keys):
        raise BadInput(f"--vhack {path}: not written by extract_vhack_grad (no V of a module)")
    if (held_out := meta.get("held_out", str(HELD_OUT))) != str(HELD_OUT):  # of a version that had a choice
        raise BadInput(f"--vhack {path}: held_out={held_out}, which is always {HELD_OUT} here; extract it again")
    return meta


def check_meta(path: Path, meta: Mapping[str, str], identity: Mapping[str, str], control: str | None) -> None:
    """BadInput when V is of another identity (model, adapter, ...), or of another control than the arm needs (None:
    any)."""
    needed = identity if control is None else {**identity, "control": control}
    for key, here in needed.items():
        if (there := meta.get(key)) != here:
            fix = f"choose its --arm, or add --control {here} and " * (key == "control") + "extract it again"
            raise BadInput(f"--vhack {path}: made for {key}={there}, but this run has {key}={here}; {fix} for it")


def pairs_of(meta: Mapping[str, str], source: str, why: str) -> tuple[Pair, ...]:
    """Returns the pairs that a V was made from, loaded from `source`. BadInput, saying `why`, when they differ."""
    modes = meta["modes"].split(",")
    pairs = tuple(p for p in load_pairs(source) if modes == ["all"] or p.mechanism in modes)
    if pairs_hash(pairs) != meta["pairs_hash"]:
        raise BadInput(f"--pairs {source}: not the pairs that V was made from ({meta['pairs']}); give those, as {why}")
    return pairs
