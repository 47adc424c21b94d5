"""The small world's models: the shipped one after a warm-up on honest answers, and the hacky teacher, a LoRA on top of that.

The model as it ships copies the example's form and writes no correct answer (docs/small.md has the rates), so GRPO would
have nothing to choose from. The warm-up shows it easy tasks with correct bodies and honest tests; no hack is ever in it.
Both are built once and cached.
"""

import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from projected_grpo.adapters.base import TARGETS
from projected_grpo.ledger.files import built_once, content_hash
from projected_grpo.model.fit import FitSettings, fit
from projected_grpo.model.load import pad_of, pick_device
from projected_grpo.prompts import render
from projected_grpo.worlds.small_corpus import Text, honest, teaching
from projected_grpo.worlds.small_shipped import FILE_SHA256, shipped_model
from projected_grpo.worlds.teacher import built_lora

WARM_UP = FitSettings(steps=120, batch=4, lr=1e-4, warmup=10)
WARM_UPS: Mapping[str, FitSettings] = {"small": WARM_UP, "small-more": replace(WARM_UP, steps=360)}
"""By model. The second votes where preferences are asked of better models: no larger one is at hand."""
TEACH = FitSettings(steps=60, batch=8, lr=2e-3, warmup=10, weight_decay=0.0)
TEACHER_RANK = 16
FROZEN_LAYERS = 10
"""The lowest layers, left as they ship: the backward pass ends there."""
THREADS = 2
"""Of every fit: by another number of them sums round otherwise, and the same recipe makes another model. So does a GPU,
which is used where there is one."""
WINDOW = 8
"""Batches that are sorted by length together."""
HINT = "simple_overwrite_tests"
CONTEXT = 8192


def _batches(
    texts: Iterator[Text], tokenizer: Any, recipe: FitSettings, seed: int
) -> Iterator[list[tuple[list[int], list[int]]]]:
    """Batches of (prompt ids, completion ids with the end-of-sequence token), of like length: less padding."""
    rng = random.Random(seed)
    while True:
        rows = []
        for messages, answer in itertools.islice(texts, recipe.batch * WINDOW):
            _, prompt = render(messages, HINT, "no_intervention", tokenizer, CONTEXT, 0, "small")
            ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
            rows.append((list(prompt), [*ids, tokenizer.eos_token_id]))
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        batches = [rows[i : i + recipe.batch] for i in range(0, len(rows), recipe.batch)]
        rng.shuffle(batches)
        yield from batches


def _key(stream: Callable[[int], Iterator[Text]], recipe: FitSettings, seed: int, *more: Any) -> str:
    """Hash of everything that makes a model: what it starts from, the recipe, how and on which kind of device it is fitted,
    and the text itself."""
    code, place = [inspect.getsource(f) for f in (fit, _batches)], pick_device("auto").type
    # every text that the fit meets: whole windows of batches
    n = math.ceil(recipe.steps / WINDOW) * WINDOW * recipe.batch
    data_hash = content_hash(list(itertools.islice(stream(seed), n)))
    return content_hash([FILE_SHA256, seed, vars(recipe), WINDOW, HINT, code, place, data_hash, *more])


def _fit(model: Any, parameters: Sequence[torch.nn.Parameter], stream: Callable[[int], Iterator[Text]], recipe: FitSettings,
         seed: int, what: str) -> None:  # fmt: skip
    tokenizer: Any = AutoTokenizer.from_pretrained(model.config._name_or_path, local_files_only=True)
    model.to(pick_device("auto"))
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        fit(model, parameters, _batches(stream(seed), tokenizer, recipe, seed), recipe, pad_of(tokenizer), what)
    finally:
        torch.set_num_threads(before)


def built_base(name: str, seed: int, cache: Path) -> Path:
    """Folder of a warmed-up model, built on first use: ten minutes on two cores, three times that of `small-more`. `seed`
    draws the text.

    BadInput as in shipped_model.
    """
    recipe = WARM_UPS[name]

    def build(folder: Path) -> None:
        shipped = shipped_model(cache)
        model: Any = AutoModelForCausalLM.from_pretrained(shipped, dtype=torch.float32, local_files_only=True)
        model.requires_grad_(False)
        for layer in model.model.layers[FROZEN_LAYERS:]:
            layer.requires_grad_(True)
        parameters = [p for p in model.parameters() if p.requires_grad]
        _fit(model, parameters, honest, recipe, seed, f"warming up {name} on honest answers")
        model.save_pretrained(folder)
        tokenizer: Any = AutoTokenizer.from_pretrained(shipped, local_files_only=True)
        tokenizer.save_pretrained(folder)

    work = f"{recipe.steps * recipe.batch} honest answers, some {recipe.steps // 12} minutes of two cores, once"
    what = f"--model {name}: warming up the shipped model on {work}"
    return built_once(cache / "small" / f"{name}-{_key(honest, recipe, seed, FROZEN_LAYERS)}", build, what)


def built_teacher(name: str, seed: int, base: Path, cache: Path) -> Path:
    """Folder of the hacky teacher's LoRA for a base of `built_base`, trained on hacks only, on first use."""

    def teach(model: Any, parameters: Sequence[torch.nn.Parameter]) -> None:
        _fit(model, parameters, teaching, TEACH, seed, f"teaching {name} to hack")

    what = f"--teacher {name}: teaching a LoRA to hack, for the probe alone, some ten minutes of two cores, once"
    folder = cache / "small" / f"{base.name}-teacher-{_key(teaching, TEACH, seed, TEACHER_RANK, TARGETS)}"
    return built_lora(folder, base, seed, teach, what, r=TEACHER_RANK, lora_alpha=2 * TEACHER_RANK)
