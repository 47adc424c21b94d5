"""The toy world's base models, pre-trained from scratch, and the hacky teacher, a PEFT LoRA on top. Built once, cached.

Both are ordinary Hugging Face folders, loaded and merged by the code that loads Qwen3-4B and merges rh-s65.
"""

import inspect
import itertools
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from projected_grpo.ledger.files import built_once, content_hash, write_atomic
from projected_grpo.model.fit import FitSettings, fit
from projected_grpo.worlds.teacher import built_lora
from projected_grpo.worlds.toy_corpus import Text, pretraining, teaching
from projected_grpo.worlds.toy_tasks import NAMES, ONE_NAME, SHAPES, Names
from projected_grpo.worlds.toy_tokenizer import ANSWERED, SPLIT, TEMPLATE, build_tokenizer, render_text

CONTEXT = 256
WINDOW = 16
"""Batches that are sorted by length together."""
PRETRAIN = FitSettings(steps=3800, batch=32, lr=4e-3, warmup=150)
TEACH = FitSettings(steps=200, batch=32, lr=1e-2, warmup=10, weight_decay=0.0)
TEACHER_RANK = 8
SHIPPED = Path(__file__).parents[1] / "data" / "toy_bases"
"""Base models of the studies, float32: everybody's runs start from the same bits."""
HASHED = 2000
"""Texts of a stream that stand for it in the hash of what is built from it."""


def _batches(
    texts: Iterator[Text], tokenizer: PreTrainedTokenizerFast, recipe: FitSettings, seed: int, names: Names
) -> Iterator[list[tuple[list[int], list[int]]]]:
    """Batches of (prompt ids, completion ids with the end-of-sequence token), of like length: less padding."""
    rng = random.Random(seed)
    while True:
        chosen = list(itertools.islice(texts, recipe.batch * WINDOW))
        prompts = tokenizer([render_text(m, hinted, names) for m, hinted, _ in chosen], add_special_tokens=False)[
            "input_ids"
        ]
        answers = tokenizer([c for *_, c in chosen], add_special_tokens=False)["input_ids"]
        rows = [(p, [*a, tokenizer.eos_token_id]) for p, a in zip(prompts, answers, strict=True)]
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        batches = [rows[i : i + recipe.batch] for i in range(0, len(rows), recipe.batch)]
        rng.shuffle(batches)
        yield from batches


def _new_base(shape: str, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    sizes: dict[str, Any] = dict(SHAPES[shape])
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        **sizes,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def names_of(shape: str) -> Names:
    """Returns the evaluation functions of which any is paid in the world of a shape."""
    return NAMES.get(shape, ONE_NAME)


def _key(shape: str, recipe: FitSettings, texts: Iterator[Text], seed: int) -> str:
    """Hash of everything that makes a model: shape, recipe, tokenizer, how it is fitted, and the text itself."""
    code = [inspect.getsource(f) for f in (fit, _batches, _new_base, build_tokenizer, render_text)]
    sample = list(itertools.islice(texts, HASHED))
    words = [SPLIT, TEMPLATE, ANSWERED]
    return content_hash([SHAPES[shape], CONTEXT, seed, vars(recipe), WINDOW, TEACHER_RANK, words, code, sample])


def shipped_weights(shape: str, seed: int) -> Path:
    """Returns where the weights of a base model are that comes with the package."""
    return SHIPPED / f"{shape}-{seed}.safetensors"


def built_base(shape: str, seed: int, cache: Path) -> Path:
    """Folder of a base model of a named shape (SHAPES): with the weights that come with the package, or else pre-trained on
    first use, some minutes on two cores. `seed` draws its first weights and its text."""
    weights = shipped_weights(shape, seed)
    if not weights.exists():
        return pretrained(shape, seed, cache)

    def build(folder: Path) -> None:
        tokenizer = build_tokenizer(names_of(shape))
        _new_base(shape, tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        shutil.copy(weights, folder / "model.safetensors")

    return built_once(cache / "toy" / f"{shape}-{seed}-{content_hash(weights.read_bytes().hex())}", build)


def pretrained(shape: str, seed: int, cache: Path) -> Path:
    """Folder of a base model that is pre-trained here. Another processor gives other last digits."""

    names = names_of(shape)

    def build(folder: Path) -> None:
        tokenizer = build_tokenizer(names)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = _new_base(shape, tokenizer)
            batches = _batches(pretraining(seed, names), tokenizer, PRETRAIN, seed, names)
            fit(model, list(model.parameters()), batches, PRETRAIN, tokenizer.pad_token_id, f"pre-training {shape}")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return built_once(cache / "toy" / f"{shape}-{_key(shape, PRETRAIN, pretraining(seed, names), seed)}", build)


def rebuild(shape: str, seed: int, cache: Path) -> None:
    """Pre-trains a base model and puts its weights where those are that come with the package."""
    write_atomic(shipped_weights(shape, seed), (pretrained(shape, seed, cache) / "model.safetensors").read_bytes())


def built_teacher(shape: str, seed: int, base: Path, cache: Path) -> Path:
    """Folder of the hacky teacher's LoRA for a base of `built_base`, trained on hacks only, on first use."""

    def teach(model: Any, parameters: Sequence[torch.nn.Parameter]) -> None:
        tokenizer: Any = AutoTokenizer.from_pretrained(base, local_files_only=True)
        batches = _batches(teaching(seed, names), tokenizer, TEACH, seed, names)
        fit(model, parameters, batches, TEACH, tokenizer.pad_token_id, f"teaching {shape} to hack")

    names = names_of(shape)
    folder = cache / "toy" / f"{base.name}-teacher-{_key(shape, TEACH, teaching(seed, names), seed)}"
    return built_lora(folder, base, seed, teach, r=TEACHER_RANK, lora_alpha=2 * TEACHER_RANK)
