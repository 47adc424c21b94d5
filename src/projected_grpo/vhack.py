"""v_hack: contrastive pairs -> per-pair gradients -> V, and the artefact that carries V with its provenance.

For each training pair D = g_hack - g_clean, [n_pairs, n] per module, each from its own gradient. V is the top-k right
singular vectors of D, each turned so that most pairs have D v > 0. Removing the part of g with V g > 0 then removes
the part whose descent makes the hack likelier: with advantage +1 on the hack and -1 on the clean completion the policy
gradient is exactly grad NLL(hack) - grad NLL(clean).

Controls are bases made by the same code: `random` (Haar rows of the same rank, the singular values of the real V so
that every cut treats both alike) and `placebo` (clean minus another clean completion of the same prompt).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.adapters.lora import warm_point
from projected_grpo.batching import micro_batches
from projected_grpo.errors import BadInput, NonFinite
from projected_grpo.logprobs import completion_logps, token_batch
from projected_grpo.losses import nll, policy_loss
from projected_grpo.model import LoadedModel
from projected_grpo.pairs import load_pairs, pairs_hash
from projected_grpo.problems import render
from projected_grpo.records import Pair
from projected_grpo.runs import progress
from projected_grpo.steps import write_atomic

PairLoss = Literal["nll", "grpo"]
Differences = dict[str, Float[Tensor, "pairs _n"]]
SV_EPS = 1e-5
"""Directions with a singular value below this fraction of the module's largest are rounding, not directions."""
PROBE_TOLERANCE = 0.02


@dataclass(frozen=True)
class PairSide:
    """One completion of a pair, tokenised; `advantage` is +1 for what is contrasted, -1 for what it is contrasted with."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    advantage: float


def pair_sides(
    pairs: Sequence[Pair], loaded: LoadedModel, hint: str, prompt_setup: str, placebo: bool = False
) -> list[PairSide]:
    """Both sides of every pair, in order: hack then clean, or (placebo) clean then clean_alt.

    BadInput when a pair does not fit the context, or has no second clean completion for the placebo.
    """
    sides = []
    for pair in pairs:
        if placebo and pair.clean_alt is None:
            raise BadInput(f"pair {pair.name!r}: --control placebo needs its second clean completion (clean_alt)")
        texts = (pair.clean, pair.clean_alt or "") if placebo else (pair.hack, pair.clean)
        for text, advantage in zip(texts, (1.0, -1.0), strict=True):
            ids = loaded.completion_ids(text)
            _, prompt_ids = render(
                pair.messages, hint, prompt_setup, loaded.tokenizer, loaded.context, len(ids), f"pair {pair.name!r}"
            )
            sides.append(PairSide(prompt_ids, ids, advantage))
    return sides


def pair_differences(
    loaded: LoadedModel, adapter: Adapter, sides: Sequence[PairSide], loss: PairLoss, max_new: int, token_budget: int
) -> Differences:
    """D [n_pairs, n] of every module, float32 on the CPU: the gradient of side 2i minus that of side 2i + 1.

    Per-sample gradients of batched backward passes; LoRA is moved to its warm point. NonFinite names module and pair.
    """
    pairs = len(sides) // 2
    out = {name: torch.zeros(pairs, n) for name, n in adapter.sizes.items()}
    rows: list[int] = []

    def keep(name: str, grads: Float[Tensor, "b n"]) -> None:
        for row, g in zip(rows, grads.float().cpu(), strict=True):
            if not torch.isfinite(g).all():
                raise NonFinite(f"extraction: gradient of pair {row // 2} is not finite in {name}")
            # grpo's advantage of -1 has turned the second side's gradient already; nll's has not.
            out[name][row // 2] += g if loss == "grpo" or row % 2 == 0 else -g

    lengths = [len(s.prompt_ids) + len(s.completion_ids) for s in sides]
    with warm_point(adapter) if adapter.kind == "lora" else nullcontext(), adapter.per_sample(keep):
        for batch_rows in progress(micro_batches(lengths, token_budget), "pair gradients"):
            rows[:] = batch_rows
            chosen = [sides[i] for i in rows]
            batch = token_batch(
                [s.prompt_ids for s in chosen], [s.completion_ids for s in chosen], loaded.pad_id, loaded.model.device
            )
            logps = completion_logps(loaded.model, batch)
            if loss == "nll":
                terms = nll(logps, batch.loss_mask)
            else:
                advantage = torch.tensor([s.advantage for s in chosen], device=logps.device)
                terms = policy_loss(
                    logps, batch.loss_mask, advantage, kind="dr_grpo", rows=2, max_new=max_new
                ).per_sample
            terms.sum().backward()
    adapter.zero_grad()
    return out


def basis_of(d: Float[Tensor, "pairs n"], k: int) -> tuple[Float[Tensor, "k2 n"], Float[Tensor, " k2"]]:
    """Top-k right singular vectors of D, oriented by majority vote over pairs, and their singular values.

    Fewer than k rows when D has lower rank; none when D is zero.
    """
    _, s, vh = torch.linalg.svd(d, full_matrices=False)
    keep = min(k, int((s > SV_EPS * s[0]).sum())) if s.numel() and s[0] > 0 else 0
    v, s = vh[:keep], s[:keep]
    along = d @ v.T
    votes = torch.sign(along).sum(0)
    votes = torch.where(votes == 0, torch.sign(along.sum(0)), votes)
    return v * torch.where(votes < 0, -1.0, 1.0)[:, None], s


def random_basis(shape: tuple[int, int], seed: int, name: str) -> Float[Tensor, "k n"]:
    """k orthonormal rows, uniform over all such (Haar), drawn for this seed and module."""
    draw = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:6], "little")
    gaussian = torch.randn(shape[1], shape[0], generator=torch.Generator().manual_seed(draw))
    q, r = torch.linalg.qr(gaussian)
    return (q * torch.sign(torch.diagonal(r))).T.contiguous()


@dataclass(frozen=True)
class VHack:
    """V of every module with singular values and provenance."""

    basis: dict[str, Float[Tensor, "_k _n"]]
    singular_values: dict[str, Float[Tensor, " _k"]]
    probes: dict[str, Float[Tensor, " _p"]]
    meta: dict[str, str]

    @property
    def directions(self) -> int:
        """Rows over all modules."""
        return sum(len(v) for v in self.basis.values())


def identity_of(loaded: LoadedModel, adapter: Adapter) -> dict[str, str]:
    """What an artefact must share with the run that uses it."""
    return {"model": loaded.model_id, "weights_hash": loaded.weights_hash, **adapter.metadata()}


def save_vhack(path: Path, v: VHack) -> None:
    """One safetensors file, atomically: V/<module>, S/<module>, probe/<module>, provenance as metadata."""
    tensors: dict[str, Tensor] = {}
    for name, rows in v.basis.items():
        tensors[f"V/{name}"] = rows.contiguous()
        tensors[f"S/{name}"] = v.singular_values[name].contiguous()
        tensors[f"probe/{name}"] = v.probes[name].contiguous()
    write_atomic(path, save(tensors, metadata=v.meta))


def read_vhack(path: Path) -> VHack:
    """Read an artefact as it is. BadInput when it is missing, damaged or not one."""
    try:
        with safe_open(path, "pt") as f:
            meta = f.metadata() or {}
            tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118 - safe_open is no dict
    except FileNotFoundError as e:
        raise BadInput(f"--vhack {path}: no such file; make one with `just extract-vhack`") from e
    except (OSError, SafetensorError) as e:
        raise BadInput(f"--vhack {path}: not a readable safetensors file ({e}); extract it again") from e
    parts: dict[str, dict[str, Tensor]] = {"V": {}, "S": {}, "probe": {}}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = tensor
    if not parts["V"] or not parts["V"].keys() == parts["S"].keys() == parts["probe"].keys():
        raise BadInput(f"--vhack {path}: not written by extract_vhack_grad (no V, S and probe per module)")
    return VHack(parts["V"], parts["S"], parts["probe"], meta)


def check_fits(path: Path, v: VHack, loaded: LoadedModel, adapter: Adapter) -> None:
    """BadInput, naming both sides, when V was made for another model, adapter, rank or basis."""
    for key, here in identity_of(loaded, adapter).items():
        if (there := v.meta.get(key)) != here:
            raise BadInput(
                f"--vhack {path}: made for {key}={there}, but this run has {key}={here}; extract it again with this run's "
                "preset and arguments (`just extract-vhack`; the probe recipes do, once the file is gone)"
            )
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
    pairs = load_pairs(source, [m for m in meta["modes"].split(",") if m != "all"])
    if (here := pairs_hash(pairs)) != meta["pairs_hash"]:
        raise BadInput(f"--pairs {source}: content hash {here}, but V was made from {meta['pairs_hash']}; {why}")
    return pairs


def cut(v: VHack, k_use: int = 0, noise_floor: float = 0.0) -> VHack:
    """Keep each module's top k_use rows (0 = all), then drop rows in the bottom `noise_floor` fraction of all singular
    values pooled over modules."""
    top = {n: s[: k_use or None] for n, s in v.singular_values.items()}
    pooled = torch.cat(list(top.values()))
    floor = torch.quantile(pooled, noise_floor) if noise_floor > 0 and len(pooled) else pooled.new_zeros(())
    kept = {n: int((s >= floor).sum()) for n, s in top.items()}
    return VHack(
        {n: v.basis[n][:k] for n, k in kept.items()}, {n: top[n][:k] for n, k in kept.items()}, v.probes, v.meta
    )


def load_vhack(
    path: Path, loaded: LoadedModel, adapter: Adapter, control: str | None, k_use: int = 0, noise_floor: float = 0.0
) -> VHack:
    """Read, check against the model and adapter at hand (and against the control that the arm needs), cut, and move to
    the adapter's device. BadInput names both sides of what does not match."""
    v = read_vhack(path)
    check_fits(path, v, loaded, adapter)
    if control is not None and v.meta.get("control") != control:
        raise BadInput(
            f"--vhack {path}: made with --control {v.meta.get('control')}, but this arm needs --control {control}"
        )
    v = cut(v, k_use, noise_floor)
    if not v.directions:
        raise BadInput(f"--vhack {path}: no direction is left with k_use={k_use}, noise_floor={noise_floor}")
    theta = adapter.vectors
    return VHack({n: rows.to(theta[n]) for n, rows in v.basis.items()}, v.singular_values, v.probes, v.meta)


@dataclass(frozen=True)
class HeldOut:
    """Held-out pairs against V and against random bases of the same ranks, all modules together."""

    energy: list[float]
    """Per pair: sum_m ||V_m d_m||^2 / ||d||^2."""
    null: list[float]
    """Per pair, its expectation under a random V: sum_m (k_m / n_m) ||d_m||^2 / ||d||^2."""
    cosine: list[float]
    """Per pair: sum_mi V_mi d_m / (||d|| sqrt(directions)); positive = hack-ward."""
    random_energy: list[float]
    """Per random basis: its mean energy over pairs."""
    random_cosine: list[float]
    """Per random basis: its mean cosine over pairs."""


def held_out_numbers(basis: Mapping[str, Tensor], d: Differences, draws: int, seed: int) -> HeldOut:
    """Energy and cosine of held-out differences D [pairs, n], beside `draws` random bases.

    The random bases are needed because the pairs share V: a random V is above the expected energy on all of them
    together, or below, and a paired test over pairs alone calls that significant.
    """
    whole = torch.stack([diffs.double().square().sum(1) for diffs in d.values()]).sum(0).clamp(min=1e-300)
    directions = max(sum(len(v) for v in basis.values()), 1)

    def against(rows_of: Callable[[str, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        energy, along = torch.zeros_like(whole), torch.zeros_like(whole)
        for name, v in basis.items():
            c = d[name].double() @ rows_of(name, v).double().cpu().T
            energy += c.square().sum(1)
            along += c.sum(1)
        return energy / whole, along / (whole.sqrt() * directions**0.5)

    energy, cosine = against(lambda _, v: v)
    null = torch.stack(
        [d[n].double().square().sum(1) * (v.shape[0] / v.shape[1]) for n, v in basis.items()]
    ).sum(0) / whole  # fmt: skip
    random_means: list[tuple[float, float]] = []
    for draw in progress(range(draws), "random bases"):
        e, c = against(lambda name, v, draw=draw: random_basis((v.shape[0], v.shape[1]), seed, f"{name} {draw}"))
        random_means.append((float(e.mean()), float(c.mean())))
    return HeldOut(
        energy.tolist(), null.tolist(), cosine.tolist(), [e for e, _ in random_means], [c for _, c in random_means]
    )
