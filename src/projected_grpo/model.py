"""Load a model and its tokenizer; build the tiny random one; merge a PEFT teacher. Never downloads.

`tiny` is a real `Qwen3ForCausalLM` with random weights and a byte-level BPE tokenizer trained on the text that ships with
this package; `toy` and `toy-deep` are pre-trained by `toy/pretrain.py`. All are saved once, in Hugging Face format, under a
hash of all that made them, and then loaded by the same code as any other model.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from projected_grpo.adapters.base import TARGETS
from projected_grpo.built import built_once
from projected_grpo.errors import BadInput
from projected_grpo.pairs import builtin_pairs
from projected_grpo.peft_compat import peft_asks_the_old_way
from projected_grpo.problems import content_hash, load_problems
from projected_grpo.toy.pretrain import built_base
from projected_grpo.toy.pretrain import built_teacher as built_toy_teacher
from projected_grpo.toy.shapes import SHAPES as TOY_SHAPES

transformers_logging.disable_progress_bar()  # its bars ("Loading weights") draw even when nobody watches

EOS, PAD = "<|im_end|>", "<|endoftext|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
"""ChatML as Qwen3 renders it, thinking switched off by an empty think block (checked against a published prompt)."""

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {"vocab_size": 2048, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
}  # fmt: skip
CONTEXT = 4096
TINY_LORA_RANK = 4


@dataclass(frozen=True)
class LoadedModel:
    """A frozen model with what the loop needs to know of it."""

    model: Any
    """A transformers causal LM in eval mode."""
    tokenizer: Any
    model_id: str
    weights_hash: str
    tokenizer_hash: str
    eos_ids: frozenset[int]
    pad_id: int
    context: int
    """Longest prompt + completion, in tokens."""

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that names its own special tokens."""
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def completion_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a written completion, end-of-sequence token included."""
        return (*self.text_ids(text), self.tokenizer.eos_token_id)


def _corpus() -> Iterator[str]:
    """Text that ships with the package, in a fixed order."""
    for p in load_problems("builtin"):
        yield from (content for _, content in p.messages)
        yield f"```python\n{p.task.canonical_solution}\n```"
    for pair in builtin_pairs():
        yield from (content for _, content in pair.messages)
        yield from (pair.hack, pair.clean, pair.clean_alt or "")


def train_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE over the package's own text, ChatML special tokens, eos and pad distinct."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, "<|im_start|>", EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tok.train_from_iterator(_corpus(), trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tok, eos_token=EOS, pad_token=PAD)
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def random_model(shape: str, seed: int, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A random Qwen3 of a named shape (SHAPES), float32, tied embeddings; the global RNG is left as it was."""
    sizes: dict[str, Any] = dict(SHAPES[shape])
    config = Qwen3Config(
        **sizes,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def built_model(shape: str, seed: int, cache: Path) -> Path:
    """Folder of a random model, built on first use."""
    key = content_hash([SHAPES[shape], CONTEXT, CHAT_TEMPLATE, seed, list(_corpus())])

    def build(folder: Path) -> None:
        tokenizer = train_tokenizer(SHAPES[shape]["vocab_size"])
        random_model(shape, seed, tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return built_once(cache / "models" / f"{shape}-{key}", build)


def built_teacher(shape: str, seed: int, base: Path, cache: Path) -> Path:
    """Folder of a random, non-zero LoRA for a built base model: it exercises the merge, it knows no hack."""

    def build(folder: Path) -> None:
        with torch.random.fork_rng(), peft_asks_the_old_way():
            torch.manual_seed(seed)
            config = LoraConfig(r=TINY_LORA_RANK, target_modules=list(TARGETS), init_lora_weights=False)
            get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(str(folder))

    return built_once(cache / "teachers" / f"{shape}-{content_hash([base.name, seed, TINY_LORA_RANK])}", build)


def hash_weights(model: nn.Module) -> str:
    """Hash of every parameter's name, type, shape and bytes; tied parameters once."""
    digest = hashlib.blake2b(digest_size=16)
    for name, p in model.named_parameters():
        digest.update(f"{name} {p.dtype} {tuple(p.shape)}".encode())
        digest.update(p.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def pick_device(device: str) -> torch.device:
    """`auto` is cuda when there is one. BadInput on a device that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as e:
        raise BadInput(f"--device {device}: no such device; use auto, cpu or cuda") from e
    if chosen.type not in ("cpu", "cuda") or (chosen.type == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"--device {device}: not available here; use --device auto")
    return chosen


def _missing(what: str, name: str, e: Exception) -> BadInput:
    return BadInput(
        f"{what} {name}: neither a folder nor in the hub cache ({type(e).__name__}); run `just download-model` "
        "to fetch Qwen3-4B and the rh-s65 teacher"
    )


def _folder(name: str, seed: int, cache: Path) -> str | Path:
    """Where a model's files are; the small ones are made here when they are missing."""
    if name in TOY_SHAPES:
        return built_base(name, cache)
    return built_model(name, seed, cache) if name in SHAPES else name


def load_model(
    name: str, dtype: Literal["float32", "bfloat16"], device: str, seed: int, cache: Path, teacher: str | None = None
) -> LoadedModel:
    """Load `name` (tiny, toy, a folder or a cached hub id), frozen and in eval mode; with `teacher`, merge that LoRA.

    BadInput when the model, the teacher or the device is missing, or when a merged teacher equals its base.
    """
    place = pick_device(device)
    folder: str | Path = _folder(name, seed, cache)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), local_files_only=True, attn_implementation="sdpa"
        )
    except (OSError, ValueError) as e:
        raise _missing("--model", name, e) from e
    if teacher is not None:
        if teacher in SHAPES or teacher in TOY_SHAPES:
            if teacher != name:
                raise BadInput(f"--teacher {teacher}: made for --model {teacher}, not {name}")
            known = built_toy_teacher(teacher, Path(folder), cache) if teacher in TOY_SHAPES else None
            teacher = str(known or built_teacher(teacher, seed, Path(folder), cache))
        model = merge_teacher(model, teacher)
    model.requires_grad_(False).eval().to(place)
    eos = model.generation_config.eos_token_id if model.generation_config else None
    eos_ids = {i for i in (tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])) if i is not None}
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return LoadedModel(
        model,
        tokenizer,
        name,
        hash_weights(model),
        content_hash([sorted(tokenizer.get_vocab().items()), tokenizer.chat_template]),
        frozenset(eos_ids),
        pad_id,
        model.config.max_position_embeddings,
    )


def enable_checkpointing(model: Any) -> None:
    """Recompute activations in the backward pass. transformers ties that to train mode; Qwen3 has no dropout, so nothing
    else changes by it."""
    model.train()
    # transformers renamed it in 5.2x and warns about the old name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def relative_change(
    before: dict[str, Float[torch.Tensor, "..."]], after: dict[str, Float[torch.Tensor, "..."]]
) -> float:
    """||after - before|| / ||before|| over all weights."""
    moved = sum(float((after[k].float() - b.float()).square().sum()) for k, b in before.items())
    whole = sum(float(b.float().square().sum()) for b in before.values())
    return (moved / whole) ** 0.5


def merge_teacher(model: Any, teacher: str) -> Any:
    """Merge a PEFT LoRA into the model's weights. BadInput when it is missing or when merging changed nothing."""
    linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear) and n.rpartition(".")[2] in TARGETS}
    before = {n: m.weight.detach().clone() for n, m in linears.items()}
    try:
        with peft_asks_the_old_way():
            merged = PeftModel.from_pretrained(model, teacher, local_files_only=True).merge_and_unload()
    except (OSError, ValueError) as e:
        raise _missing("--teacher", teacher, e) from e
    after = {n: merged.get_submodule(n).weight for n in before}
    if relative_change(before, after) == 0.0:
        raise BadInput(f"--teacher {teacher}: merging it left every weight of the base as it was; it is no teacher")
    return merged
