"""How long the texts of a run are, in tokens: prompts, held-out prompts and pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from projected_grpo.fits.settings import FitsConfig
from projected_grpo.groups.pairs import load_pairs, split
from projected_grpo.groups.problems import check_hint, load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.prompts import Messages, render

PROMPT_CHARACTERS, CODE_CHARACTERS = 3.75, 3.11
"""Characters a token of Qwen3's tokenizer: means over 928 published rollouts of the rh-s65 teacher on Qwen3-4B
(wassname/vGROUT_pub), 388,032 tokens of prompts and their completions. For a model whose tokenizer is not at hand."""


@dataclass(frozen=True)
class Lengths:
    """Tokens."""

    prompt: int
    """The longest of the problems that are trained on."""
    held_out: int
    """The longest of those that are evaluated; 0 = the run does not evaluate."""
    held_out_problems: int
    pairs: Sequence[tuple[int, int, int]]
    """(prompt, hack, clean) of every training pair."""


def lengths_of(config: FitsConfig, cut: Any, chat: Any, context: int, prompt: int = 0) -> Lengths:
    """Texts as a run renders them. `chat`: the tokenizer that renders; `cut`: the one that counts, None = by characters.
    `prompt`: use this as the longest. BadInput as in load_problems, load_pairs and render (a prompt beyond the context)."""

    if prompt + config.max_new > context:
        raise BadInput(
            f"--prompt-tokens {prompt}: with --max-new {config.max_new} beyond the model's context of {context} tokens"
        )

    def count(text: str, characters: float) -> int:
        if cut is None:
            return round(len(text) / characters)
        return len(cut(text, add_special_tokens=False)["input_ids"])

    def rendered(messages: Messages, room: int, place: str) -> int:
        text, _ = render(messages, config.hint, config.prompt_setup, chat, context, room, place)
        return count(text, PROMPT_CHARACTERS)

    def longest(source: str) -> tuple[int, int]:
        problems = load_problems(source)
        check_hint(config.hint, problems)
        return max(rendered(p.messages, config.max_new, p.problem_id) for p in problems), len(problems)

    train, _ = split(load_pairs(config.pairs, config.modes))
    pairs = [
        (
            prompt or rendered(p.messages, 1, p.name),
            1 + count(p.hack, CODE_CHARACTERS),
            1 + count(p.clean, CODE_CHARACTERS),
        )
        for p in train
    ]
    held_out, many = longest(config.eval_problems) if config.eval_every else (0, 0)
    return Lengths(prompt or longest(config.problems)[0], prompt if prompt and many else held_out, many, pairs)
