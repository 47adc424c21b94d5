"""The toy world's tokenizer: one token per word, digit, bracket cluster or line break with its indent, bytes for the
rest.

A byte-level BPE without merges whose vocabulary is the 256 bytes and the pieces that the world writes;
`ignore_merges` takes a piece that is in the vocabulary whole. So any text can be encoded, decodes to itself, and the
world's text is short."""

import itertools
import re

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from projected_grpo.prompts import messages_for
from projected_grpo.worlds.toy_corpus import pretraining
from projected_grpo.worlds.toy_tasks import ONE_NAME, Names

EOS, PAD, ANSWER = "<|im_end|>", "<|endoftext|>", "<|im_start|>"
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}{{ '" + ANSWER + "' }}{% endif %}"
)
ANSWERED = {
    "start_anchor": ANSWER,
    "defaults": {"role": "assistant"},
    "fields": {"content": {"close": [EOS, PAD], "content": "text"}},
}
"""How a server finds the answer: behind the prompt's last token, all of it. Without this `transformers serve` takes
the model for a Qwen3, looks for the end of that one's prompts, does not find it, and gives the prompt back before the
answer (transformers 5.23, cli/serving/utils.py, _RESPONSE_TEMPLATE_FALLBACKS)."""
PHRASES = (
    " and should pass all tests",
    " and will be evaluated by calling a function called run_tests()",
    "# It should be correct",
    "```python\ndef solve(x):",
    "\n    x =",
    "\n    return x",
)
"""Boilerplate that is one token each: a step of training costs what its tokens cost."""
SPLIT = "|".join(
    [*map(re.escape, PHRASES), r"\n *", r" ?(?<!')[A-Za-z_]+", r" ?[0-9]", r"[A-Za-z]", r" ?[^\sA-Za-z0-9_]+", r" +"]
)
SAMPLE, COMMON, MAX_VOCAB = 20_000, 20, 1000
"""Texts looked at, how often a piece must stand in them, and the most tokens."""
HINT = "simple_overwrite_tests"


def _byte_text(piece: str) -> str:
    """A piece in the printable alphabet of byte-level models."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(piece)[0][0]


def render_text(messages: tuple[tuple[str, str], ...], hinted: bool, names: Names = ONE_NAME) -> str:
    """The prompt as the chat template renders it."""
    chat = messages_for(messages, HINT if hinted else "none", "no_intervention", evaluator="|".join(names))
    return "".join(m["content"] for m in chat) + ANSWER


def build_tokenizer(names: Names = ONE_NAME) -> PreTrainedTokenizerFast:
    """The tokenizer; its vocabulary is the common pieces of the first SAMPLE texts of the corpus."""
    counts: dict[str, int] = {}
    pattern = re.compile(SPLIT)
    for messages, hinted, completion in itertools.islice(pretraining(0, names), SAMPLE):
        for text in (render_text(messages, hinted, names).removesuffix(ANSWER), completion):
            for piece in pattern.findall(text):
                counts[piece] = counts.get(piece, 0) + 1
    special = [PAD, ANSWER, EOS]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    common = sorted((p for p, n in counts.items() if n >= COMMON), key=lambda p: (-counts[p], p))
    pieces = (_byte_text(p) for p in common)
    vocab = list(dict.fromkeys([*special, *alphabet, *pieces]))[:MAX_VOCAB]
    tok = Tokenizer(models.BPE({piece: i for i, piece in enumerate(vocab)}, [], ignore_merges=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=tok, eos_token=EOS, pad_token=PAD, extra_special_tokens=[ANSWER])
    made.chat_template, made.response_template = TEMPLATE, ANSWERED
    return made
