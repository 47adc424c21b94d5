"""What the bench measures and at which sizes. No torch here: --help stays fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from projected_grpo.config import at_least
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath

Part = Literal[
    "floor", "generation", "backward", "memory", "step", "trl", "grading", "extraction", "results", "startup", "dev_run"
]
PARTS: tuple[Part, ...] = get_args(Part)
OF_A_MODEL: tuple[Part, ...] = ("floor", "generation", "backward", "step", "extraction")
"""Parts whose figures hang on the model's shapes, and that a real model can be measured by in an hour of two cores."""
DOCUMENT = Path("docs/bench.md")
WARMUP, SEED = 1, 41
"""Measurements of each side that are thrown away first; the seed of random weights, prompts and sampling."""


@dataclass(frozen=True)
class BenchConfig:
    """bench: every part of a training step against a named baseline, in one run on one machine."""

    only: tuple[Part, ...] = ()
    """Measure these parts alone; empty = all. The document then goes to out/bench.md."""
    quick: bool = False
    """Tiny sizes, few repeats, no bars: catches a part that does not run. The document then goes to out/bench.md."""
    shapes: Literal["", "small"] = ""
    """small: the shapes of SmolLM2-135M (preset `small`), in the parts that hang on them, to docs/bench-small.md. No bars.
    Empty: the reference point's."""
    repeats: int = 0
    """Measurements of each side, one side after the other in turn; the median counts. 0 = 7, on a GPU 2, --quick 1."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N. On a GPU the sizes are those of Qwen3-4B."""
    out: NoPath = Path()
    """Markdown document to write (replaced); its numbers go beside it as .json. Empty: docs/bench.md for a whole run."""

    def validate(self) -> None:
        """BadInput on a number of repeats that nothing can be measured with, and on two sizes at once."""
        at_least(self, "repeats", 0)
        if self.shapes and self.quick:
            raise BadInput(f"--shapes {self.shapes} --quick: --quick has sizes of its own; leave one out")

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is measured, in the document's order. A smoke does not wait for fast-dev-run unless told to."""
        if self.shapes and not self.only:
            return OF_A_MODEL
        return tuple(p for p in PARTS if (p in self.only if self.only else not self.quick or p != "dev_run"))

    @property
    def document(self) -> Path:
        """Where the document goes: a part of the numbers, or a smoke's, never replaces the whole."""
        if self.out != Path():
            return self.out
        if self.only or self.quick:
            return Path("out/bench.md")
        return DOCUMENT.with_name(f"bench-{self.shapes}.md") if self.shapes else DOCUMENT


@dataclass(frozen=True)
class Sizes:
    """A Qwen3 with random weights, and how much work it is given: lengths in tokens, `pairs` and `directions` of V,
    `repeats` of a measurement unless asked for otherwise."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    prompts: int = 4
    group: int = 8
    max_new: int = 64
    pairs: int = 8
    directions: int = 48
    token_budget: int = 16384
    grading_problems: int = 20
    result_files: int = 10_000
    repeats: int = 7
    dtype: Literal["float32", "bfloat16"] = "float32"
    checkpointing: bool = False

    @property
    def rows(self) -> int:
        """Completions of a step."""
        return self.prompts * self.group


CPU = Sizes(256, 4, 4, 2, 64, 768, 4096)
SMALL = Sizes(576, 30, 9, 3, 64, 1536, 49152, pairs=4, directions=96, token_budget=2048, repeats=3)
QUICK = Sizes(
    32, 2, 4, 2, 8, 64, 768, prompts=2, group=2, max_new=6, pairs=2, directions=4, grading_problems=1, result_files=12,
    repeats=1,
)  # fmt: skip
GPU = Sizes(  # Qwen3-4B, with gradient checkpointing on every side, as its presets have it; one repeat takes minutes
    2560, 36, 32, 8, 128, 9728, 151936, prompts=8, group=12, max_new=1024, pairs=16, directions=32, repeats=2,
    dtype="bfloat16", checkpointing=True,
)  # fmt: skip


def sizes_for(device_type: str, *, quick: bool, shapes: str = "") -> Sizes:
    """The reference point on this kind of device, or a named model's shapes."""
    if quick:
        return QUICK
    if shapes == "small":
        return SMALL
    return GPU if device_type == "cuda" else CPU
