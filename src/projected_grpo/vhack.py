"""v_hack: contrastive pairs -> per-pair gradients -> V, and the artefact that carries V with its provenance.

For each training pair D = g_hack - g_clean, [n_pairs, n] per module, each from its own gradient. V is the top-k right
singular vectors of D, each turned so that most pairs have D v > 0. Removing the part of g with V g > 0 then removes
the part whose descent makes the hack likelier: with advantage +1 on the hack and -1 on the clean completion the policy
gradient is exactly grad NLL(hack) - grad NLL(clean).

Controls are bases made by the same code: `random` (Haar rows of the same rank, the singular values of the real V so
that every cut treats both alike), `random_energy` (as many Haar rows as hold the energy that V holds), `placebo` (clean
minus another clean completion of the same prompt), `clean` (the clean completions' own gradients) and `words` (V of pairs
that share the words of a hack alone).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.adapters.lora_adapter import warm_point
from projected_grpo.channels.policy import nll, policy_loss
from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.model.batches import logps_of, micro_batches
from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import token_batch
from projected_grpo.model.shared_prompt import can_share, shared_batch
from projected_grpo.prompts import render
from projected_grpo.records import HeldOut, Pair

RAW = "as it is"
"""Role of a prompt that is text already: no chat template is put around it."""
PairLoss = Literal["nll", "grpo"]
Differences = dict[str, Float[Tensor, "pairs _n"]]
SV_EPS = 1e-5
"""Directions with a singular value below this fraction of the module's largest are rounding, not directions."""


@dataclass(frozen=True)
class PairSide:
    """One completion of a pair, tokenised; `advantage` is +1 for what is contrasted, -1 for what it is contrasted with."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    advantage: float
    row: int
    """Which row of D it is added to."""


def pair_sides(
    pairs: Sequence[Pair], loaded: LoadedModel, hint: str, prompt_setup: str, control: str = "none"
) -> list[PairSide]:
    """The completions that make each pair's row of D, in order: hack minus clean; placebo: clean minus clean_alt; clean: the
    clean one alone.

    BadInput when a pair does not fit the context, or has no second clean completion for the placebo.
    """
    sides = []
    for row, pair in enumerate(pairs):
        if control == "placebo" and pair.clean_alt is None:
            raise BadInput(f"pair {pair.name!r}: --control placebo needs its second clean completion (clean_alt)")
        texts = {"placebo": (pair.clean, pair.clean_alt or ""), "clean": (pair.clean,)}.get(
            control, (pair.hack, pair.clean)
        )
        for text, advantage in zip(texts, (1.0, -1.0), strict=False):
            sides.append(_side(pair, text, advantage, row, loaded, hint, prompt_setup))
    return sides


def sides_alone(pairs: Sequence[Pair], loaded: LoadedModel, hint: str, prompt_setup: str) -> list[PairSide]:
    """Every hack and every clean completion with a row of its own: D then holds gradients, not differences."""
    texts = [(pair, text) for pair in pairs for text in (pair.hack, pair.clean)]
    return [_side(pair, text, 1.0, row, loaded, hint, prompt_setup) for row, (pair, text) in enumerate(texts)]


def _side(
    pair: Pair, text: str, advantage: float, row: int, loaded: LoadedModel, hint: str, prompt_setup: str
) -> PairSide:
    ids, place = loaded.completion_ids(text), f"pair {pair.name!r}"
    (role, prompt), *_ = pair.messages
    if role == RAW:
        prompt_ids = tuple(loaded.tokenizer(prompt)["input_ids"])  # as a trainer reads it
        if hint != "none" or prompt_setup != "no_intervention":
            raise BadInput(
                f"{place}: hint and prompt_setup are put into messages; a prompt that is text stays as it is"
            )
        if len(prompt_ids) + len(ids) > loaded.context:
            raise BadInput(f"{place}: {len(prompt_ids)} + {len(ids)} tokens exceed the context of {loaded.context}")
    else:
        _, prompt_ids = render(pair.messages, hint, prompt_setup, loaded.tokenizer, loaded.context, len(ids), place)
    return PairSide(prompt_ids, ids, advantage, row)


def pair_differences(
    loaded: LoadedModel, adapter: Adapter, sides: Sequence[PairSide], loss: PairLoss, max_new: int, token_budget: int
) -> Differences:
    """D [rows, n] of every module, float32 on the CPU: each row the sum of its sides' gradients, by sign of advantage.

    Per-sample gradients of batched backward passes; LoRA is moved to its warm point. The sides of a row share their prompt,
    which is run once for them: what comes back through it is their sum, with their signs, and so the row's own. (Where the
    model gives no cache each side is a row of tokens.) Equal rows, as a draw of pairs has, are run once. NonFinite names
    module and pair.
    """
    by_row: dict[int, list[PairSide]] = {}
    for side in sides:
        by_row.setdefault(side.row, []).append(side)
    alike: dict[tuple, list[int]] = {}
    for row, own in by_row.items():
        alike.setdefault(tuple((s.prompt_ids, s.completion_ids, s.advantage) for s in own), []).append(row)
    twins = {rows[0]: rows for rows in alike.values()}
    out = {name: torch.zeros(1 + max(by_row), n) for name, n in adapter.sizes.items()}
    shared = can_share(loaded.model)
    chosen: list[PairSide] = []

    def keep(name: str, grads: Float[Tensor, "b n"]) -> None:
        # The prompts' part has a row per row of D, the completions' part one per side; the first of each comes first.
        places = [s.row for s in chosen] if len(grads) == len(chosen) else list(dict.fromkeys(s.row for s in chosen))
        for row, g in zip(places, grads.float().cpu(), strict=True):
            if not torch.isfinite(g).all():
                raise NonFinite(f"extraction: gradient of pair {row} is not finite in {name}")
            out[name][twins[row]] += g

    ordered = [by_row[row] for row in twins]
    lengths = [
        len(row[0].prompt_ids) * (1 if shared else len(row)) + sum(len(s.completion_ids) for s in row)
        for row in ordered
    ]
    with warm_point(adapter) if adapter.kind == "lora" else nullcontext(), adapter.held(), adapter.per_sample(keep):
        for part in progress(micro_batches(lengths, token_budget), "pair gradients"):
            chosen[:] = [side for place in part for side in ordered[place]]
            tokens = (
                [s.prompt_ids for s in chosen],
                [s.completion_ids for s in chosen],
                loaded.pad_id,
                loaded.model.device,
            )
            batch = shared_batch(*tokens, groups=[s.row for s in chosen]) if shared else token_batch(*tokens)
            logps = logps_of(loaded.model, batch, 1.0)
            advantage = torch.tensor([s.advantage for s in chosen], device=logps.device)
            pair_terms(logps, batch.loss_mask, advantage, loss, max_new).sum().backward()
    adapter.zero_grad()
    return out


def pair_terms(
    logps: Float[Tensor, "b t"], mask: Bool[Tensor, "b t"], advantage: Float[Tensor, " b"], loss: PairLoss, max_new: int
) -> Float[Tensor, " b"]:
    """Each side's term, with its sign: the gradient of a pair's two is its row of D."""
    if loss == "nll":
        return nll(logps, mask) * advantage
    return policy_loss(logps, mask, advantage, kind="dr_grpo", rows=2, max_new=max_new).per_sample


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


def energy_shares(basis: Mapping[str, Tensor], gradients: Differences) -> dict[str, float]:
    """Of every module, how much of the gradients' energy lies along its V: sum ||V g||^2 / sum ||g||^2 over rows."""
    return {
        name: float((g @ basis[name].to(g).T).square().sum() / g.square().sum().clamp(min=1e-30))
        for name, g in gradients.items()
    }


def ranks_of_energy(shares: Mapping[str, float], sizes: Mapping[str, int]) -> dict[str, int]:
    """Of every module, how many random directions hold that share of a gradient's energy: k random ones of n hold k / n."""
    return {name: min(sizes[name], max(1, round(share * sizes[name]))) for name, share in shares.items()}


def stretched(values: Float[Tensor, " k"], k: int) -> Float[Tensor, " k2"]:
    """Singular values for a basis of another rank: as they are, cut or continued with the last one."""
    return torch.cat(
        [values[:k], values.new_full((max(0, k - len(values)),), float(values[-1]) if len(values) else 0.0)]
    )


@dataclass(frozen=True)
class VBasis:
    """V of every module with singular values and provenance. `projected_grpo.VHack` makes, saves and judges one."""

    basis: dict[str, Float[Tensor, "_k _n"]]
    singular_values: dict[str, Float[Tensor, " _k"]]
    probes: dict[str, Float[Tensor, " _p"]]
    meta: dict[str, str]

    @property
    def directions(self) -> int:
        """Rows over all modules."""
        return sum(len(v) for v in self.basis.values())


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
    null = (
        torch.stack([d[n].double().square().sum(1) * (v.shape[0] / v.shape[1]) for n, v in basis.items()]).sum(0)
        / whole
    )
    random_means: list[tuple[float, float]] = []
    for draw in progress(range(draws), "random bases"):
        e, c = against(lambda name, v, draw=draw: random_basis((v.shape[0], v.shape[1]), seed, f"{name} {draw}"))
        random_means.append((float(e.mean()), float(c.mean())))
    return HeldOut(
        energy.tolist(), null.tolist(), cosine.tolist(), [e for e, _ in random_means], [c for _, c in random_means]
    )
