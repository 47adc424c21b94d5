"""V of a Hugging Face causal language model with an adapter on it, from pairs, without a script.

    v = VHack.extract(model, pairs);  v.save("vhack.safetensors");  v.verify(model, pairs)

With one of this project's adapters it is what scripts/extract_vhack_grad.py makes, bit for bit with MKL_CBWR=AUTO,STRICT
(which run/cli.py sets). With PEFT's LoRA each side of a pair has a forward and a backward pass, through the model's
logits.
"""

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from transformers import AutoTokenizer

import projected_grpo.vhack as vhack
from projected_grpo.adapters.lora_adapter import warm_columns
from projected_grpo.data import pairs as pair_sets
from projected_grpo.integrations.coordinates import Coordinates, coordinates_of
from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.ledger.files import content_hash
from projected_grpo.model.load import LoadedModel, pad_of
from projected_grpo.model.logprobs import token_batch
from projected_grpo.records import Pair
from projected_grpo.verdicts.registry import CLAIMS, Finding
from projected_grpo.vhack import RAW, PairLoss

Control = Literal["none", "random", "placebo"]

Pairs = Sequence[Pair | Mapping[str, Any]] | str | Path
"""Pairs, rows of {prompt or messages, hack, clean, clean_alt?, mechanism?, name?}, or the name or file of a set. As in a
trainer's dataset, a row's `prompt` is what the model reads, and its `messages` go through the tokenizer's chat template. (In
a file, as everywhere in this project, a `prompt` is what a user says.)"""


@dataclass(frozen=True)
class VHack(vhack.VBasis):
    """V of a model, from its pairs to its file: what a trainer of another project holds."""

    @classmethod
    def extract(
        cls,
        model: Any,
        pairs: Pairs,
        *,
        tokenizer: Any = None,
        k: int = 32,
        loss: PairLoss = "nll",
        max_new: int = 1024,
        held_out: float = pair_sets.HELD_OUT,
        pairs_draw: int = 0,
        control: Control = "none",
        hint: str = "none",
        prompt_setup: str = "no_intervention",
        seed: int = 0,
        name: str = "",
        token_budget: int = 8192,
    ) -> "VHack":
        """The top k directions per module of the training pairs' gradient differences.

        held_out: the share of each mechanism's pairs that V never sees. pairs_draw:
        not 0, a bootstrap sample of the others. control: random directions of V's rank, or clean minus clean_alt. hint,
        prompt_setup: of prompts that are messages, as in this project's runs. name: what --model calls this model in this
        project's scripts; empty: where it was loaded from. The model is left as it was: mode, gradients, parameters.

        Raises BadInput on too few pairs, a pair that does not fit the context, or a model without an adapter; NonFinite,
        naming module and pair.
        """
        for word, value, known_words in (("loss", loss, PairLoss), ("control", control, Control)):
            if value not in get_args(known_words):
                raise BadInput(f"{word}={value!r}: one of {', '.join(get_args(known_words))}")
        coordinates = coordinates_of(model)
        known, given = _loaded(coordinates, tokenizer, name), as_pairs(pairs)
        how = vhack.Extraction(loss, control, k, max_new, pairs_draw, hint, prompt_setup, seed, held_out)
        facts = {
            "model": known.model_id,
            "weights_hash": known.weights_hash,
            **coordinates.metadata,
            "tokenizer_hash": known.tokenizer_hash,
            "dtype": str(next(coordinates.model.parameters()).dtype).removeprefix("torch."),
            "pairs": pair_sets.name_of(str(pairs) if isinstance(pairs, (str, Path)) else "", given),
            "pairs_hash": pair_sets.pairs_hash(given),
            "modes": ",".join(sorted({p.mechanism for p in given})),
        }
        v = how.basis(
            lambda sides: differences(coordinates, known, sides, how, token_budget),
            how.sides(given, known), how.single_sides(given, known), coordinates.probes, facts,
        )  # fmt: skip
        if not v.directions:
            raise BadInput("no module has a gradient that tells the sides apart: are hack and clean the same text?")
        return cls(v.basis, v.singular_values, v.probes, v.meta)

    def save(self, path: Path | str) -> None:
        """One safetensors file, atomically: what every script of this project reads."""
        vhack.save_vhack(Path(path), self)

    @classmethod
    def load(cls, path: Path | str) -> "VHack":
        """What `save` or extract_vhack_grad wrote. BadInput as in read_vhack."""
        v = vhack.read_vhack(Path(path))
        return cls(v.basis, v.singular_values, v.probes, v.meta)

    def verify(
        self,
        model: Any,
        pairs: Pairs,
        *,
        tokenizer: Any = None,
        random_bases: int = vhack.RANDOM_BASES,
        token_budget: int = 8192,
    ) -> Finding:
        """The verdict of verify_vhack on the held-out pairs whose prompt no training pair has: does V point hack-ward there,
        and more than random directions do? BadInput when these are not the pairs that V was made from, or not its model."""
        coordinates = coordinates_of(model)
        known, given = _loaded(coordinates, tokenizer, ""), as_pairs(pairs)
        facts = {"pairs_hash": pair_sets.pairs_hash(given), "weights_hash": known.weights_hash, **coordinates.metadata}
        for key, here in facts.items():
            if self.meta[key] != here:
                raise BadInput(
                    f"V was made with {key}={self.meta[key]}, here it is {here}; verify it where it was made"
                )
        how = vhack.Extraction.of(self.meta)
        unseen = pair_sets.unseen_pairs(pairs if isinstance(pairs, str) else "", given, how.held_out)
        if not unseen:
            raise BadInput("every held-out pair repeats a training pair's prompt: nothing is left to verify V on")
        sides = vhack.pair_sides(unseen, known, how.hint, how.prompt_setup)
        d = differences(coordinates, known, sides, how, token_budget)
        seen = vhack.held_out_numbers(self.basis, d, random_bases, how.seed)
        return CLAIMS["verify"].judged(seen, [p.mechanism for p in unseen])


# ---------------------------------------------------------------- pairs


def as_pairs(pairs: Pairs) -> tuple[Pair, ...]:
    """Returns the pairs of whatever was given. BadInput names the pair that is none."""
    if isinstance(pairs, (str, Path)):
        return pair_sets.load_pairs(str(pairs))
    known, rows = [p for p in pairs if isinstance(p, Pair)], [dict(p) for p in pairs if not isinstance(p, Pair)]
    for row in rows:
        if "prompt" in row:
            row["messages"] = [{"role": RAW, "content": row["prompt"]}]
    return (*known, *(pair_sets.pairs_from(rows, "pairs") if rows else ()))


# ---------------------------------------------------------------- gradients


def differences(
    coordinates: Coordinates,
    known: LoadedModel,
    sides: Sequence[vhack.PairSide],
    how: vhack.Extraction,
    token_budget: int,
) -> vhack.Differences:
    """Returns D [rows, n] of every module, float32 on the CPU, as vhack.Extraction.differences does."""
    with _quiet(coordinates):
        if coordinates.adapter is not None:
            return how.differences(known, coordinates.adapter, sides, token_budget)
        sites, parameters = coordinates.sites, [p for s in coordinates.sites.values() for p in s.params]
        out = {n: torch.zeros(1 + max(s.row for s in sides), site.size) for n, site in sites.items()}
        for side in progress(sides, "pair gradients"):
            term = _term(known, side, how)
            grads = iter(torch.autograd.grad(term, parameters, allow_unused=True))
            for n, site in sites.items():
                g = site.vector([next(grads) for _ in site.params]).float().cpu()
                if not torch.isfinite(g).all():
                    raise NonFinite(f"extraction: gradient of pair {side.row} is not finite in {n}")
                out[n][side.row] += g
    return out


def _term(known: LoadedModel, side: vhack.PairSide, how: vhack.Extraction) -> torch.Tensor:
    batch = token_batch([side.prompt_ids], [side.completion_ids], known.pad_id, known.model.device)
    first = len(side.prompt_ids) - 1
    logits = known.model(input_ids=batch.input_ids, use_cache=False).logits[:, first:-1]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logps = logits.log_softmax(-1).gather(-1, batch.targets[:, first:, None]).squeeze(-1)
    advantage = torch.tensor([side.advantage], device=logps.device)
    return how.terms(logps, batch.loss_mask[:, first:], advantage).sum()


@contextmanager
def _quiet(coordinates: Coordinates) -> Generator[None]:
    """Evaluation mode, the parameters free, a LoRA at its warm point; afterwards everything is as it was."""
    model, parameters = coordinates.model, [p for s in coordinates.sites.values() for p in s.params]
    modes = {m: m.training for m in model.modules()}
    before = [(p, p.requires_grad, p.grad, p.detach().clone()) for p in parameters]
    model.eval()
    for p in parameters:
        p.grad = None  # not into what the caller has accumulated
        p.requires_grad_(True)
    if coordinates.adapter is None:
        for name in coordinates.sites:
            _warm(coordinates, name)
    try:
        with torch.enable_grad():
            yield
    finally:
        for m, mode in modes.items():
            m.training = mode
        for p, free, grad, value in before:
            p.requires_grad_(free)
            p.grad = grad
            p.data.copy_(value)


@torch.no_grad()
def _warm(coordinates: Coordinates, name: str) -> None:
    """Move PEFT's B to where A has a gradient, as adapters/lora_adapter.py does: ||scaling B A|| = ||W|| / 1000."""
    layer: Any = coordinates.model.get_submodule(name)
    weight = layer.get_base_layer().weight
    if not weight.is_floating_point():
        raise BadInput(f"{name}: its base weight is quantised ({weight.dtype}); extract V on the model before that")
    a, b = coordinates.sites[name].params
    scale = abs(float(next(s for key, s in layer.scaling.items() if layer.lora_A[key].weight is a)))
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "little")
    warm_columns(a.detach(), b, weight.float().norm() / scale, seed)


def _loaded(coordinates: Coordinates, given: Any, name: str) -> LoadedModel:
    """Returns the model with what the extraction needs to know of it: the tokenizer is the one given, or the one next to the
    model."""
    model: Any = coordinates.model
    source = getattr(model.config, "_name_or_path", "")
    tokenizer: Any = given if given is not None else AutoTokenizer.from_pretrained(source, local_files_only=True)
    context = int(getattr(model.config, "max_position_embeddings", 1 << 20))
    words = content_hash([sorted(tokenizer.get_vocab().items()), tokenizer.chat_template])
    eos = frozenset({tokenizer.eos_token_id})
    weights = coordinates.weights_hash()
    return LoadedModel(model, tokenizer, name or source or "unnamed", weights, words, eos, pad_of(tokenizer), context)
