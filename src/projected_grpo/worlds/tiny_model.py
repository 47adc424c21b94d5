"""The tiny model: a real `Qwen3ForCausalLM` with random weights, a byte-level BPE tokenizer trained on the text that
ships with this package, and a random LoRA as its teacher. It exercises the mechanics; it can do nothing.

`tiny-answering` is the same model after some seconds of training: whatever it is asked, it says one of two short
programs and ends. Random weights never end by themselves and no two of them agree, so that teachers' votes cannot be
tried on them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from loophole_grader.problems import BUILTIN as PROBLEMS
from projected_grpo.ledger.files import built_once, content_hash, read_jsonl
from projected_grpo.worlds.builtin import builtin_pairs
from projected_grpo.worlds.teacher import built_lora

EOS, PAD = "<|im_end|>", "<|endoftext|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
"""ChatML as Qwen3 renders it, thinking switched off by an empty think block (checked against a published prompt)."""

SHAPE: dict[str, Any] = {
    "vocab_size": 2048, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
CONTEXT = 4096
TINY_LORA_RANK = 4
ANSWERS = ("x = 1", "x = 2")
"""What `tiny-answering` says, each as often. Neither tests itself: an environment of several turns asks again."""
BEFORE_AN_ANSWER = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
ANSWERING = {"steps": 60, "rows": 8, "longest": 64}
"""Optimizer steps, rows of each, most tokens of nonsense before an answer."""


def _corpus() -> Iterator[str]:
    """Text that ships with the package, in a fixed order."""
    for row in read_jsonl(PROBLEMS):
        yield from (message["content"] for message in row["prompt"])
        yield f"```python\n{row['canonical_solution']}\n```"
    for pair in builtin_pairs():
        yield from (content for _, content in pair.messages)
        yield from (pair.hack, pair.clean, pair.clean_alt or "")


def train_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE over the package's problems and pairs, ChatML special tokens, eos and pad distinct."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SHAPE["vocab_size"],
        special_tokens=[PAD, "<|im_start|>", EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tok.train_from_iterator(_corpus(), trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tok, eos_token=EOS, pad_token=PAD)
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def built_model(name: str, seed: int, cache: Path) -> Path:
    """Folder of a random Qwen3 of SHAPE, float32, tied embeddings, built on first use; `tiny-answering` is taught to
    answer. The global RNG is left as it was."""
    taught = [ANSWERS, ANSWERING] if name == "tiny-answering" else []
    key = content_hash([SHAPE, CONTEXT, CHAT_TEMPLATE, *taught, seed, list(_corpus())])

    def build(folder: Path) -> None:
        tokenizer = train_tokenizer()
        config = Qwen3Config(
            **SHAPE,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = Qwen3ForCausalLM(config)
            if taught:
                torch.manual_seed(seed)
                teach_to_answer(model, tokenizer)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return built_once(cache / "models" / f"{name}-{key}", build)


def built_teacher(name: str, seed: int, base: Path, cache: Path) -> Path:
    """Folder of a random, non-zero LoRA for a built base model: it exercises the merge, it knows no hack."""
    folder = cache / "teachers" / f"{name}-{content_hash([base.name, seed, TINY_LORA_RANK])}"
    return built_lora(folder, base, seed, r=TINY_LORA_RANK, init_lora_weights=False)


def teach_to_answer(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Cross-entropy on an answer drawn for each row, behind nonsense of any length: so it depends on no prompt."""

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    before, answers = ids(BEFORE_AN_ANSWER), [[*ids(a), tokenizer.eos_token_id] for a in ANSWERS]
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(ANSWERING["steps"]):
        nonsense = torch.randint(len(tokenizer), (ANSWERING["rows"], int(torch.randint(1, ANSWERING["longest"], ()))))
        rows = [[*row, *before, *answers[int(torch.randint(len(answers), ()))]] for row in nonsense.tolist()]
        tokens = torch.tensor([row[: min(map(len, rows))] for row in rows])
        labels = tokens.clone()
        labels[:, : nonsense.shape[1] + len(before)] = -100
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
