"""V, the hack direction: contrastive pairs -> per-pair gradients -> V and its controls, and the file that holds it.

For each training pair D = g_hack - g_clean, [n_pairs, n] per module, from per-sample gradients. V is the top-k right
singular vectors of D, each turned so that most pairs have D v > 0. Removing the part of g with V g > 0 then removes
the part whose descent makes the hack likelier: with advantage +1 on the hack and -1 on the clean completion the
policy gradient is exactly grad NLL(hack) - grad NLL(clean).

Controls are made by the same code (docs/method.md has the table). `random` rows get V's singular values, so that
every cut treats both alike."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Bool, Float
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from projected_grpo.adapters.base import Adapter
from projected_grpo.adapters.lora_adapter import WARM_RATIO, warm_point
from projected_grpo.arms import Control
from projected_grpo.channels.policy import nll, policy_loss
from projected_grpo.data.pairs import name_of, pairs_hash, resampled, split
from projected_grpo.data.vhack_meta import check_meta, vhack_meta
from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.ledger.files import seed_of, write_atomic
from projected_grpo.ledger.folder import git_state
from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import completion_logps, micro_batches, shared_batch
from projected_grpo.prompts import render
from projected_grpo.records import HeldOut, Pair

UNUSED = "unused"
"""Value in the metadata of what a V does not depend on."""
RAW = "as it is"
"""Role of a prompt that is text already: no chat template is put around it."""
PairLoss = Literal["nll", "grpo"]
Differences = dict[str, Float[Tensor, "pairs _n"]]

# ---------------------------------------------------------------- completions


@dataclass(frozen=True)
class PairSide:
    """One tokenised completion of a pair; `advantage` is +1 for the contrasted one, -1 for the other."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    advantage: float


Sides = tuple[PairSide, ...]
"""The completions whose gradients add up to a row of D."""


def pair_sides(
    pairs: Sequence[Pair], loaded: LoadedModel, hint: str, prompt_setup: str, control: str = "none"
) -> list[Sides]:
    """Returns the completions that make each pair's row of D. Placebo: clean minus clean_alt; clean: clean only; else
    hack minus clean.

    BadInput when a pair does not fit the context, or has no second clean completion for the placebo.
    """
    rows = []
    for pair in pairs:
        (role, text), *_ = pair.messages
        where = f"pair {pair.name!r}"
        if control == "placebo" and pair.clean_alt is None:
            raise BadInput(f"{where}: --control placebo needs its second clean completion (clean_alt)")
        if role == RAW and (hint, prompt_setup) != ("none", "no_intervention"):
            raise BadInput(f"{where}: hint and prompt_setup go into messages; leave them out for a prompt that is text")
        if role == RAW:
            prompt_ids = tuple(loaded.tokenizer(text)["input_ids"])  # as a trainer reads it
        else:
            evaluator = pair.problem.task.evaluator_name if pair.problem else "run_tests"
            _, prompt_ids = render(
                pair.messages, hint, prompt_setup, loaded.tokenizer, loaded.context, 0, where, evaluator
            )
        texts = {"placebo": (pair.clean, pair.clean_alt or ""), "clean": (pair.clean,)}.get(
            control, (pair.hack, pair.clean)
        )
        completions = [loaded.completion_ids(text) for text in texts]
        if (n := len(prompt_ids) + max(map(len, completions))) > loaded.context:
            raise BadInput(f"{where}: its {n} tokens exceed the context of {loaded.context}")
        signed = zip(completions, (1.0, -1.0), strict=False)
        rows.append(tuple(PairSide(prompt_ids, ids, advantage) for ids, advantage in signed))
    return rows


# ---------------------------------------------------------------- directions


def basis_of(d: Float[Tensor, "pairs n"], k: int) -> tuple[Float[Tensor, "k2 n"], Float[Tensor, " k2"]]:
    """Returns the top-k right singular vectors of D, oriented by majority vote over pairs, and their singular values.

    Fewer than k rows when D has lower rank; none when D is zero.
    """
    _, s, vh = torch.linalg.svd(d, full_matrices=False)
    keep = min(k, int((s > 1e-5 * s[0]).sum())) if s.numel() and s[0] > 0 else 0  # smaller ones are rounding errors
    v, s = vh[:keep], s[:keep]
    along = d @ v.T
    votes = torch.sign(along).sum(0)
    votes = torch.where(votes == 0, torch.sign(along.sum(0)), votes)
    return v * torch.where(votes < 0, -1.0, 1.0)[:, None], s


def random_basis(shape: tuple[int, int], seed: int, name: str) -> Float[Tensor, "k n"]:
    """Returns k orthonormal rows, uniform over all such (Haar), drawn for this seed and module."""
    draw = torch.Generator().manual_seed(seed_of(f"{seed} {name}"))
    gaussian = torch.randn(shape[1], shape[0], generator=draw)
    q, r = torch.linalg.qr(gaussian)
    return (q * torch.sign(torch.diagonal(r))).T.contiguous()


def energy_shares(basis: Mapping[str, Tensor], gradients: Differences) -> dict[str, float]:
    """Returns for each module the share of the gradients' energy along its V: sum ||V g||^2 / sum ||g||^2 over
    rows."""
    return {
        name: float((g @ basis[name].to(g).T).square().sum() / g.square().sum().clamp(min=1e-30))
        for name, g in gradients.items()
    }


def rank_of_share(share: float, n: int) -> int:
    """Returns how many random directions hold that share of the energy: k of n hold k / n."""
    return min(n, max(1, round(share * n)))


@dataclass(frozen=True, repr=False)
class VBasis:
    """V of every module with its singular values, fingerprints of its coordinates and its metadata."""

    basis: dict[str, Float[Tensor, "_k _n"]]
    singular_values: dict[str, Float[Tensor, " _k"]]
    probes: dict[str, Float[Tensor, " _p"]]
    meta: dict[str, str]

    @property
    def directions(self) -> int:
        """Rows over all modules."""
        return sum(len(v) for v in self.basis.values())

    def __repr__(self) -> str:
        known = ", ".join(f"{key}={self.meta.get(key)!r}" for key in ("model", "adapter", "loss", "control"))
        return f"{type(self).__name__}({known}, {len(self.basis)} modules, {self.directions} directions)"


@dataclass(frozen=True)
class Extraction:
    """How V is made from pairs. The one path for the script, a refresh in training, trained adapters and other
    trainers."""

    loss: PairLoss = "nll"
    control: Control = "none"
    k: int = 32
    max_new: int = 1024
    """Constant in the denominator of the loss grpo."""
    pairs_draw: int = 0
    hint: str = "none"
    prompt_setup: str = "no_intervention"
    seed: int = 0
    """Of random directions."""

    @classmethod
    def of(cls, meta: Mapping[str, str]) -> "Extraction":
        """Returns how the V with this metadata was made."""
        fields = {name: type(default) for name, default in asdict(cls()).items()}
        return cls(**{name: of(meta[name]) for name, of in fields.items() if meta.get(name, UNUSED) != UNUSED})

    def sides(self, pairs: Sequence[Pair], loaded: LoadedModel) -> list[Sides]:
        """Returns the completions of the training pairs. BadInput as in `pair_sides`."""
        chosen = resampled(split(pairs)[0], self.pairs_draw)
        return pair_sides(chosen, loaded, self.hint, self.prompt_setup, self.control)

    def single_sides(self, pairs: Sequence[Pair], loaded: LoadedModel) -> list[Sides]:
        """Returns every completion of the held-out pairs with a row each: D then holds gradients."""
        rows = pair_sides(split(pairs)[1], loaded, self.hint, self.prompt_setup)
        return [(replace(side, advantage=1.0),) for row in rows for side in row]

    def terms(
        self, logps: Float[Tensor, "b t"], mask: Bool[Tensor, "b t"], advantage: Float[Tensor, " b"]
    ) -> Float[Tensor, " b"]:
        """Returns each side's loss with its sign: the gradient of the sum over a pair's sides is its row of D."""
        if self.loss == "nll":
            return nll(logps, mask) * advantage
        return policy_loss(logps, mask, advantage, kind="dr_grpo", rows=2, max_new=self.max_new).per_sample

    def differences(
        self, loaded: LoadedModel, adapter: Adapter, rows: Sequence[Sides], token_budget: int
    ) -> Differences:
        """Returns D [rows, n] of every module, float32 on the CPU: each row the signed sum of its sides' gradients.

        Per-sample gradients of batched backward passes; LoRA is moved to its warm point. The sides of a row share one
        forward pass of their prompt, whose gradient is then their sum with their signs. Equal rows, as a bootstrap
        sample has, are run once. NonFinite names module and pair."""
        different = list(dict.fromkeys(rows))
        indices = [different.index(row) for row in rows]
        out = {name: torch.zeros(len(different), n) for name, n in adapter.sizes.items()}
        lengths = [len(row[0].prompt_ids) + sum(len(s.completion_ids) for s in row) for row in different]
        chosen: list[int] = []

        def keep(name: str, grads: Float[Tensor, "b n"]) -> None:
            # The prompts' part has a row per row of D, the completions' part one per side.
            of_sides = [index for index in chosen for _ in different[index]]
            for index, g in zip(of_sides if len(grads) == len(of_sides) else chosen, grads.float().cpu(), strict=True):
                if not torch.isfinite(g).all():
                    raise NonFinite(f"extraction: gradient of pair {indices.index(index)} is not finite in {name}")
                out[name][index] += g

        with warm_point(adapter), adapter.merged(), adapter.per_sample(keep):
            for chosen in progress(micro_batches(lengths, token_budget), "pair gradients"):
                batched = [(index, side) for index in chosen for side in different[index]]
                prompts, completions = [s.prompt_ids for _, s in batched], [s.completion_ids for _, s in batched]
                tokens = (prompts, completions, loaded.pad_id, loaded.model.device)
                batch = shared_batch(*tokens, groups=[index for index, _ in batched])
                logps = completion_logps(loaded.model, batch)
                advantage = torch.tensor([s.advantage for _, s in batched], device=logps.device)
                self.terms(logps, batch.loss_mask, advantage).sum().backward()
        adapter.zero_grad()
        return {name: found[indices] for name, found in out.items()}

    def basis(
        self, gradients: Callable[[Sequence[Sides]], Differences], sides: Sequence[Sides], single: Sequence[Sides],
        probes: Mapping[str, Tensor], facts: Mapping[str, str],
    ) -> VBasis:  # fmt: skip
        """Returns V of `sides`. `single`: held-out completions, on which the energy that V holds is measured: on its
        training pairs it holds more. `facts`: metadata of the model and of the pairs."""
        found = {name: basis_of(rows, self.k) for name, rows in gradients(sides).items()}
        basis, values = {name: v for name, (v, _) in found.items()}, {name: s for name, (_, s) in found.items()}
        shares = energy_shares(basis, gradients(single))
        if self.control in ("random", "random_energy"):
            for name, (v, s) in found.items():
                k, n = v.shape
                if self.control == "random_energy":
                    k = rank_of_share(shares[name], n)
                basis[name] = random_basis((k, n), self.seed, name)
                values[name] = F.pad(s, (0, k - len(s)), value=float(s[-1]) if len(s) else 0.0)  # cut, or continued
        meta = {
            **facts, **{name: str(value) for name, value in asdict(self).items()},
            "n_train": str(len(sides)),
            "max_new": str(self.max_new) if self.loss == "grpo" else UNUSED,
            "lora_warm_ratio": str(WARM_RATIO) if facts["adapter"] in ("lora", "peft-lora") else UNUSED,
            "directions": str(sum(map(len, basis.values()))),
            "energy": f"{sum(shares.values()) / len(shares):.4f}",
            "v_sha256": content_of(basis),
            "commit": git_state()["commit"] or "unknown",
        }  # fmt: skip
        return VBasis(basis, values, dict(probes), meta)


def held_out_numbers(basis: Mapping[str, Tensor], d: Differences, seed: int, draws: int = 99) -> HeldOut:
    """Returns energy and cosine of held-out differences D [pairs, n] along V and along `draws` random bases of its
    rank.

    The pairs share V, so a test over pairs only would call a random V significant that lies a little above its
    expectation on all of them."""
    whole = torch.stack([diffs.double().square().sum(1) for diffs in d.values()]).sum(0).clamp(min=1e-300)
    directions = max(sum(len(v) for v in basis.values()), 1)

    def against(rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        energy, along = torch.zeros_like(whole), torch.zeros_like(whole)
        for name, v in rows.items():
            c = d[name].double() @ v.double().cpu().T
            energy += c.square().sum(1)
            along += c.sum(1)
        return energy / whole, along / (whole.sqrt() * directions**0.5)

    energy, cosine = against(basis)
    expected = [d[n].double().square().sum(1) * (v.shape[0] / v.shape[1]) for n, v in basis.items()]
    null = torch.stack(expected).sum(0) / whole
    found = []
    for draw in progress(range(draws), "random bases"):
        random = {n: random_basis((len(v), v.shape[1]), seed, f"{n} {draw}") for n, v in basis.items()}
        found.append([float(numbers.mean()) for numbers in against(random)])
    return HeldOut(energy.tolist(), null.tolist(), cosine.tolist(), [e for e, _ in found], [c for _, c in found])


def separability(d: Differences, k: int, rounds: int = 5) -> tuple[list[float], float]:
    """Returns how well what is left of the pairs tells hack from clean, before a V is removed and after 1, 2, ... rounds
    of it, as AUROCs; and the standard error of one by chance, about .5.

    The pairs' differences D [pairs, n] are cut in three. The first third's mean difference scores the last third, and
    V of that first third, k directions at most a half of its pairs, is removed from all; then the second third's
    residuals do the same, in turn, until nothing is left. AUROC of the scores s = sum_m mean_m . d_m against -s: a
    pair's hack against another's clean side, both about the pair's mean. Its error is that of Wilcoxon's signed ranks.

    After Belrose et al. 2023 (LEACE, arXiv:2306.03819), who erase and fit again; here per module, and by V's directions.
    """
    rest, found = dict(d), []
    n = len(next(iter(d.values())))
    k, tested = min(k, max(1, n // 6)), len(range(2, n, 3))
    most = max(float(rows.norm()) for rows in d.values())
    for turn in range(rounds + 1):
        if max(float(rows.norm()) for rows in rest.values()) < 1e-4 * most:  # rounding is all that is left
            break
        fitted = {name: rows[turn % 2 :: 3] for name, rows in rest.items()}
        scores = torch.stack([rest[name][2::3] @ rows.mean(0) for name, rows in fitted.items()]).sum(0)
        wins = torch.sign(scores[:, None] + scores[None, :])
        found.append(float((wins.mean() + 1) / 2))
        v = {name: basis_of(rows, k)[0] for name, rows in fitted.items()}
        rest = {name: rows - (rows @ v[name].T) @ v[name] for name, rows in rest.items()}
    return found, ((2 * tested + 1) / (6 * tested * (tested + 1))) ** 0.5


# ---------------------------------------------------------------- the file


def identity_of(loaded: LoadedModel, of_adapter: Mapping[str, str]) -> dict[str, str]:
    """Returns the metadata that a V shares with the run that uses it. of_adapter: the adapter's."""
    return {"model": loaded.model_id, "weights_hash": loaded.weights_hash, **of_adapter}


def facts_of(
    loaded: LoadedModel, of_adapter: Mapping[str, str], pairs: Sequence[Pair], source: str, modes: Sequence[str]
) -> dict[str, str]:
    """Returns what the metadata of a V says of its model and of its pairs. source: their name or file; modes: the
    mechanisms that were asked for, none for all."""
    return {
        **identity_of(loaded, of_adapter),
        "tokenizer_hash": loaded.tokenizer_hash,
        "dtype": str(next(loaded.model.parameters()).dtype).removeprefix("torch."),
        "pairs": name_of(source, pairs),
        "pairs_hash": pairs_hash(pairs),
        "modes": ",".join(modes) or "all",
    }


def content_of(basis: Mapping[str, Tensor]) -> str:
    """Returns the SHA-256 of V's numbers: two replicates with the same one are not independent."""
    digest = hashlib.sha256()
    for name in sorted(basis):
        digest.update(name.encode() + basis[name].float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_vhack(path: Path, v: VBasis) -> None:
    """Writes one safetensors file, atomically: V/<module>, S/<module>, probe/<module>, and the metadata."""
    parts = {"V": v.basis, "S": v.singular_values, "probe": v.probes}
    tensors = {f"{part}/{name}": of_part[name].contiguous() for name in v.basis for part, of_part in parts.items()}
    write_atomic(path, save(tensors, metadata=dict(v.meta)))


def read_vhack(path: Path) -> VBasis:
    """Returns the V of a file as it is. BadInput as in `vhack_meta`."""
    meta, parts = vhack_meta(path), dict[str, dict[str, Tensor]]()
    with safe_open(path, "pt") as f:
        for key in f.keys():  # noqa: SIM118 - not a mapping
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = f.get_tensor(key)
    return VBasis(parts["V"], parts["S"], parts.get("probe", {}), meta)


def same_coordinates(v: VBasis, probes: Mapping[str, Tensor], sizes: Mapping[str, int]) -> str:
    """Returns what differs between the coordinates of V and those with these fingerprints and sizes; empty:
    nothing."""
    there = {name: rows.shape[1] for name, rows in v.basis.items()}
    for name in {**there, **sizes}:
        if there.get(name) != sizes.get(name):
            return f"{name} has {there.get(name)} coordinates there, {sizes.get(name)} here"
        gap = (probes[name] - v.probes[name]).norm() / probes[name].norm().clamp(min=1e-12)
        if gap > 0.02:  # more than two fingerprints of one basis ever differ
            return f"{name} is written in another singular basis (fingerprints differ by {float(gap):.3f})"
    return ""


def cut(v: VBasis, k_use: int = 0, noise_floor: float = 0.0) -> VBasis:
    """Returns V with each module's top k_use rows (0 = all), without those in the bottom `noise_floor` fraction of
    all singular values pooled over modules. BadInput for random directions of equal energy, as a part of them holds
    less, and for more rows than any module has."""
    if (k_use or noise_floor) and v.meta.get("control") == "random_energy":
        how = f"--k-use {k_use}, --noise-floor {noise_floor}: rows of --control random_energy"
        raise BadInput(
            f"{how} remove as much as V only all together; extract it with the --k of the V that it is to match"
        )
    if k_use > (most := max(map(len, v.singular_values.values()), default=0)):
        raise BadInput(f"--k-use {k_use}: no module of this V has more than {most} directions; leave it out to use all")
    top = {n: s[: k_use or None] for n, s in v.singular_values.items()}
    pooled = torch.cat(list(top.values()))
    floor = torch.quantile(pooled, noise_floor) if noise_floor > 0 else pooled.new_zeros(())
    kept = {n: int((s >= floor).sum()) for n, s in top.items()}
    basis, values = {n: v.basis[n][:k] for n, k in kept.items()}, {n: top[n][:k] for n, k in kept.items()}
    return replace(v, basis=basis, singular_values=values)


def load_vhack(
    path: Path, loaded: LoadedModel, adapter: Adapter, control: str | None, k_use: int = 0, noise_floor: float = 0.0
) -> VBasis:
    """Returns the V of a file, cut, on the adapter's device. BadInput, naming both sides, when it was made for
    another model, adapter or singular basis, or is of another control than the arm needs (None: any)."""
    v = read_vhack(path)
    check_meta(path, v.meta, identity_of(loaded, adapter.metadata()), control)
    if why := same_coordinates(v, adapter.basis_probes(), adapter.sizes):
        raise BadInput(f"--vhack {path}: {why}, e.g. made on another machine; extract it again here")
    v, theta = cut(v, k_use, noise_floor), adapter.vectors
    return replace(v, basis={n: rows.to(theta[n]) for n, rows in v.basis.items()})
