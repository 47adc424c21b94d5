"""V of a Hugging Face causal language model with an adapter on it, from pairs, without a script.

    v = VHack.extract(model, pairs, tokenizer=tokenizer)
    v.save("vhack.safetensors")
    v.verify(model, pairs, tokenizer=tokenizer)

With one of this project's adapters it is what scripts/extract_vhack_grad.py makes, bit for bit with
MKL_CBWR=AUTO,STRICT (which run/cli.py sets). With PEFT's LoRA each side of a pair has a forward and a backward pass,
through the model's logits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch.func import functional_call

import projected_grpo.vhack as vhack
from projected_grpo.adapters.lora_adapter import warm_columns
from projected_grpo.arms import Control
from projected_grpo.data import pairs as pair_sets
from projected_grpo.integrations.coordinates import Coordinates, coordinates_of, flat, lora_of
from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.ledger.files import content_hash, seed_of
from projected_grpo.model.load import LoadedModel, pad_of
from projected_grpo.model.logprobs import token_batch
from projected_grpo.records import Pair
from projected_grpo.verdicts.registry import Finding
from projected_grpo.vhack import Extraction, Sides

Pairs = Sequence[Pair] | Sequence[Mapping[str, Any]]
"""Pairs, or rows of {prompt or messages, hack, clean, clean_alt?, mechanism?, name?}. As in a trainer's dataset, a
row's `prompt` is what the model reads, and its `messages` go through the tokenizer's chat template. (In a file, as
everywhere in this project, a `prompt` is what a user says.)"""


class VHack(vhack.VBasis):
    """V of a model, from its pairs to its file: what a trainer of another project holds."""

    @classmethod
    def extract(
        cls, model: Any, pairs: Pairs, *, tokenizer: Any, name: str = "", token_budget: int = 8192, **how: Any
    ) -> "VHack":
        """The top k directions per module of the training pairs' gradient differences.

        name: what --model calls this model in this project's scripts; empty: where it was loaded from. how: fields of
        vhack.Extraction, such as k=32, loss="nll", control="random" or "placebo", pairs_draw, and for prompts that
        are messages hint and prompt_setup. The model is left in evaluation mode and, with an adapter of this
        project's, without gradients; its parameters as they were.

        Raises BadInput on too few pairs, a pair that does not fit the context, or a model without an adapter;
        NonFinite, naming module and pair."""
        made = Extraction(**how)
        for word, value, known in (("loss", made.loss, vhack.PairLoss), ("control", made.control, Control)):
            if value not in get_args(known):
                raise BadInput(f"{word}={value!r}: one of {', '.join(get_args(known))}")
        if made.control == "words":
            raise BadInput(f"control={made.control!r}: is of extract_vhack_grad alone")
        coordinates, given = coordinates_of(model), as_pairs(pairs)
        loaded = _loaded(coordinates, tokenizer, name)
        v = made.basis(
            lambda sides: differences(coordinates, loaded, sides, made, token_budget),
            made.sides(given, loaded), made.single_sides(given, loaded), coordinates.probes,
            vhack.facts_of(loaded, coordinates.metadata, given, "", sorted({p.mechanism for p in given})),
        )  # fmt: skip
        if not v.directions:
            raise BadInput("no module has a gradient that tells the sides apart: are hack and clean the same text?")
        return cls(**vars(v))

    def save(self, path: Path | str) -> None:
        """One safetensors file, atomically: what every script of this project reads."""
        vhack.save_vhack(Path(path), self)

    @classmethod
    def load(cls, path: Path | str) -> "VHack":
        """What `save` or extract_vhack_grad wrote. BadInput as in read_vhack."""
        return cls(**vars(vhack.read_vhack(Path(path))))

    def verify(self, model: Any, pairs: Pairs, *, tokenizer: Any, token_budget: int = 8192, seed: int = 41) -> Finding:
        """The verdict of verify_vhack on the held-out pairs whose prompt no training pair has: does V point hack-ward
        there, and more than random directions do? seed: of the random directions, as --seed there. BadInput when
        these are not the pairs that V was made from, or not its model."""
        from projected_grpo.verdicts.held_out import vhack_verdict  # scipy

        coordinates, given = coordinates_of(model), as_pairs(pairs)
        coordinates.check_made_for(self, pairs_hash=pair_sets.pairs_hash(given))
        loaded, made = _loaded(coordinates, tokenizer), Extraction.of(self.meta)
        unseen = pair_sets.unseen_pairs(given)
        if not unseen:
            raise BadInput("every held-out pair repeats a training pair's prompt: nothing is left to verify V on")
        sides = vhack.pair_sides(unseen, loaded, made.hint, made.prompt_setup)
        d = differences(coordinates, loaded, sides, made, token_budget)
        seen = vhack.held_out_numbers(self.basis, d, seed)
        return vhack_verdict(seen, [p.mechanism for p in unseen])


def as_pairs(pairs: Sequence[Any]) -> tuple[Pair, ...]:
    """Returns the pairs of whatever was given. BadInput names the pair that is none."""
    if all(isinstance(pair, Pair) for pair in pairs):
        return tuple(pairs)
    return tuple(
        replace(pair, messages=((vhack.RAW, row["prompt"]),)) if "prompt" in row else pair
        for pair, row in zip(pair_sets.pairs_from(pairs, "pairs"), pairs, strict=True)
    )


def differences(
    coordinates: Coordinates, loaded: LoadedModel, sides: Sequence[Sides], how: Extraction, token_budget: int
) -> vhack.Differences:
    """Returns D [rows, n] of every module, float32 on the CPU, as vhack.Extraction.differences does."""
    model = coordinates.model.eval()
    if coordinates.adapter is not None:
        return how.differences(loaded, coordinates.adapter, sides, token_budget)
    copies = warmed(coordinates)
    out = {name: torch.zeros(len(sides), n) for name, n in coordinates.sizes.items()}
    for i, side in progress([(i, side) for i, row in enumerate(sides) for side in row], "pair gradients"):
        batch = token_batch([side.prompt_ids], [side.completion_ids], loaded.pad_id, loaded.model.device)
        first = len(side.prompt_ids) - 1
        tokens = {"input_ids": batch.input_ids, "use_cache": False}
        logits = functional_call(model, copies, (), tokens).logits[:, first:-1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logps = logits.log_softmax(-1).gather(-1, batch.targets[:, first:, None]).squeeze(-1)
        advantage = torch.tensor([side.advantage], device=logps.device)
        loss = how.terms(logps, batch.loss_mask[:, first:], advantage).sum()
        grads = iter(torch.autograd.grad(loss, list(copies.values()), materialize_grads=True))
        for name, own in coordinates.parameters.items():
            g = flat([next(grads) for _ in own]).float().cpu()
            if not torch.isfinite(g).all():
                raise NonFinite(f"extraction: gradient of pair {i} is not finite in {name}")
            out[name][i] += g
    return out


def warmed(coordinates: Coordinates) -> dict[str, torch.Tensor]:
    """Returns copies of PEFT's A and B that may learn, by name, in the order of the modules. B is moved to where A
    has a gradient, as in adapters/lora_adapter.py: ||scaling B A|| = ||W|| / 1000."""
    copies = {id(p): p.detach().clone() for own in coordinates.parameters.values() for p in own}
    for name, own in coordinates.parameters.items():
        if len(own) == 1:  # B alone: it has a gradient where it is zero
            continue
        layer: Any = coordinates.model.get_submodule(name)
        a, b, scale = lora_of(layer)
        base, named = layer.get_base_layer(), getattr(layer, "parameter_name", "weight")
        weight = getattr(base, named, None)  # of target_parameters: all experts'
        if weight is None or a.ndim != 2 or not weight.is_floating_point():
            what = f"{name}: no V of a LoRA on {type(base).__name__}, which is quantised or no matrix"
            raise BadInput(f"{what}; extract V before quantisation, or leave this layer out of the LoRA")
        warm_columns(copies[id(a)], copies[id(b)], weight.float().norm() / abs(scale), seed_of(name))
    names = {id(p): name for name, p in coordinates.model.named_parameters()}
    return {names[key]: copy.requires_grad_() for key, copy in copies.items()}


def _loaded(coordinates: Coordinates, tokenizer: Any, name: str = "") -> LoadedModel:
    """Returns the model with what the extraction needs to know of it."""
    model: Any = coordinates.model
    words = content_hash([sorted(tokenizer.get_vocab().items()), tokenizer.chat_template])
    context = getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 20)
    return LoadedModel(
        model, tokenizer, name or model.config.name_or_path, coordinates.weights_hash(), words,
        frozenset({tokenizer.eos_token_id}), pad_of(tokenizer), context,
    )  # fmt: skip
