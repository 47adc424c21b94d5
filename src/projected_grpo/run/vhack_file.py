"""The artefact that carries V with its provenance: written, read, checked against the model at hand, cut."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.data.pairs import HELD_OUT, load_pairs, pairs_hash
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Pair
from projected_grpo.vhack import VBasis

PROBE_TOLERANCE = 0.02
ORTHONORMAL_TOLERANCE = 1e-3


def identity_of(loaded: LoadedModel, adapter: Adapter) -> dict[str, str]:
    """What an artefact must share with the run that uses it."""
    return {"model": loaded.model_id, "weights_hash": loaded.weights_hash, **adapter.metadata()}


def content_of(basis: Mapping[str, Tensor]) -> str:
    """SHA-256 of V's numbers: two units of a study that share it are not independent."""
    digest = hashlib.sha256()
    for name in sorted(basis):
        digest.update(name.encode() + basis[name].float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_vhack(path: Path, v: VBasis) -> None:
    """One safetensors file, atomically: V/<module>, S/<module>, probe/<module>, provenance as metadata."""
    tensors: dict[str, Tensor] = {}
    for name, rows in v.basis.items():
        tensors[f"V/{name}"] = rows.contiguous()
        tensors[f"S/{name}"] = v.singular_values[name].contiguous()
        tensors[f"probe/{name}"] = v.probes[name].contiguous()
    write_atomic(path, save(tensors, metadata=dict(v.meta)))


def _stored(path: Path, *, rows: bool = True) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What an artefact says of itself and, with `rows`, its tensors. BadInput when it is missing or damaged."""
    if path.is_dir():
        raise BadInput(
            f"--vhack {path}: a folder; name the vhack.safetensors in it; make one with `just extract-vhack`"
        )
    try:
        with safe_open(path, "pt") as f:
            return f.metadata() or {}, {k: f.get_tensor(k) for k in f.keys() if rows}  # noqa: SIM118 - safe_open is no dict
    except FileNotFoundError as e:
        raise BadInput(f"--vhack {path}: no such file; make one with `just extract-vhack`") from e
    except (OSError, SafetensorError) as e:
        raise BadInput(f"--vhack {path}: not a readable safetensors file ({e}); extract it again") from e


def read_vhack(path: Path) -> VBasis:
    """Read an artefact as it is. BadInput when it is missing, damaged or not one."""
    meta, tensors = _stored(path)
    parts: dict[str, dict[str, Tensor]] = {"V": {}, "S": {}, "probe": {}}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = tensor
    if not parts["V"] or not parts["V"].keys() == parts["S"].keys() == parts["probe"].keys():
        raise BadInput(f"--vhack {path}: not written by extract_vhack_grad (no V, S and probe per module)")
    _check_rows(path, parts["V"])
    return VBasis(parts["V"], parts["S"], parts["probe"], meta)


def _check_rows(path: Path, basis: Mapping[str, Tensor]) -> None:
    """BadInput when V is not orthonormal: projection would not take out what lies in it."""
    for name, rows in basis.items():
        gap = (rows.float() @ rows.float().T - torch.eye(len(rows))).abs()
        if not bool((gap <= ORTHONORMAL_TOLERANCE).all()):  # nan is above every tolerance
            raise BadInput(
                f"--vhack {path}: the rows of {name} are not orthonormal (V V^T is {float(gap.max()):.1e} away from I); "
                "extract it again"
            )


def _check_same(path: Path, meta: Mapping[str, str], identity: Mapping[str, str]) -> None:
    for key, here in identity.items():
        if (there := meta.get(key)) != here:
            raise BadInput(
                f"--vhack {path}: made for {key}={there}, but this run has {key}={here}; extract it again with this run's "
                "preset and arguments (`just extract-vhack`; the probe recipes do, once the file is gone)"
            )


def check_label(path: Path, model: str, adapter: str, control: str | None) -> None:
    """BadInput, naming both sides, when what an artefact says of itself is enough to refuse it: another model or adapter by
    name, or another control than the arm needs (None: any). Said before a model is built or loaded: that takes minutes."""
    meta, _ = _stored(path, rows=False)
    _check_same(path, meta, {"model": model, "adapter": adapter})
    _check_control(path, meta, control)


def _check_control(path: Path, meta: Mapping[str, str], control: str | None) -> None:
    if control is not None and meta.get("control") != control:
        raise BadInput(
            f"--vhack {path}: made with --control {meta.get('control')}, but this arm needs --control {control}"
        )


def check_fits(path: Path, v: VBasis, loaded: LoadedModel, adapter: Adapter) -> None:
    """BadInput, naming both sides, when V was made for another model, adapter, rank or basis."""
    _check_same(path, v.meta, identity_of(loaded, adapter))
    there_sizes = {n: rows.shape[1] for n, rows in v.basis.items()}
    if there_sizes != adapter.sizes:
        odd = sorted(set(there_sizes.items()) ^ set(adapter.sizes.items()))[0][0]
        raise BadInput(
            f"--vhack {path}: module {odd} has {there_sizes.get(odd)} coordinates there, {adapter.sizes.get(odd)} here"
        )
    for name, here_probe in adapter.basis_probes().items():
        gap = (here_probe - v.probes[name]).norm() / here_probe.norm().clamp(min=1e-12)
        if gap > PROBE_TOLERANCE:
            raise BadInput(
                f"--vhack {path}: {name} is written in another singular basis (fingerprints differ by {float(gap):.3f}, "
                "e.g. made on another machine); extract it again here"
            )


def pairs_of(meta: Mapping[str, str], source: str, why: str) -> tuple[Pair, ...]:
    """The pairs that a V was made from, loaded again from `source`. BadInput, saying `why` it matters, when they differ."""
    try:
        pairs = load_pairs(source, [m for m in meta["modes"].split(",") if m != "all"])
    except BadInput as e:
        raise BadInput(f"--pairs {source}: not the pairs that V was made from ({e}); {why}") from e
    if (here := pairs_hash(pairs)) != meta["pairs_hash"]:
        raise BadInput(f"--pairs {source}: content hash {here}, but V was made from {meta['pairs_hash']}; {why}")
    return pairs


def held_out_of(meta: Mapping[str, str]) -> float:
    """The share of each mechanism's pairs that this V has never seen."""
    return float(meta.get("held_out", HELD_OUT))


def cut(v: VBasis, k_use: int = 0, noise_floor: float = 0.0) -> VBasis:
    """Keep each module's top k_use rows (0 = all), then drop rows in the bottom `noise_floor` fraction of all singular
    values pooled over modules. BadInput for random directions that match an energy, as a part of them holds less, and for
    more rows than any module has, as a dose that was asked for and not given would look like one that was."""
    for flag, value in (("--k-use", k_use), ("--noise-floor", noise_floor)):
        if value and v.meta.get("control") == "random_energy":
            raise BadInput(
                f"{flag} {value}: V is of --control random_energy, whose rows match an energy only all together; extract it "
                "with the --k of the V that it is to match"
            )
    if k_use > (most := max(map(len, v.singular_values.values()), default=0)):
        raise BadInput(f"--k-use {k_use}: no module of this V has more than {most} directions; leave it out to use all")
    top = {n: s[: k_use or None] for n, s in v.singular_values.items()}
    pooled = torch.cat(list(top.values()))
    floor = torch.quantile(pooled, noise_floor) if noise_floor > 0 and len(pooled) else pooled.new_zeros(())
    kept = {n: int((s >= floor).sum()) for n, s in top.items()}
    return VBasis(
        {n: v.basis[n][:k] for n, k in kept.items()}, {n: top[n][:k] for n, k in kept.items()}, v.probes, v.meta
    )


def load_vhack(
    path: Path, loaded: LoadedModel, adapter: Adapter, control: str | None, k_use: int = 0, noise_floor: float = 0.0
) -> VBasis:
    """Read, check against the model and adapter at hand (and against the control that the arm needs), cut, and move to
    the adapter's device. BadInput names both sides of what does not match."""
    v = read_vhack(path)
    check_fits(path, v, loaded, adapter)
    _check_control(path, v.meta, control)
    v = cut(v, k_use, noise_floor)
    if not v.directions:
        raise BadInput(f"--vhack {path}: no direction is left with k_use={k_use}, noise_floor={noise_floor}")
    theta = adapter.vectors
    return VBasis({n: rows.to(theta[n]) for n, rows in v.basis.items()}, v.singular_values, v.probes, v.meta)
