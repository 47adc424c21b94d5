"""The estimate as text: a table of stages, a line for every card, and what the numbers leave out."""

from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from projected_grpo.fits.cards import GIB, Card
from projected_grpo.fits.estimate import MARGIN, RESERVE, Stage, room_on
from projected_grpo.fits.lengths import Lengths
from projected_grpo.fits.settings import FitsConfig


@dataclass(frozen=True)
class Line:
    """Whether all stages fit a card, in words."""

    card: Card
    fits: bool
    told: str


def table(stages: Sequence[Stage], cards: Sequence[Card]) -> str:
    """A row per stage: what is there before it, its peak, its work, and the least seconds on every card."""
    header = ["stage", "largest batch, tokens", "before, GiB", "peak, GiB", "TFLOP", *(f"{c.name}, s" for c in cards)]
    rows = [
        [s.name, s.batch, f"{s.base / GIB:.3g}", f"{s.peak / GIB:.3g}", f"{s.flops / 1e12:,.4g}",
         *(f"{s.seconds(card):,.3g}" for card in cards)]
        for s in stages
    ]  # fmt: skip
    return tabulate(
        rows,
        header,
        tablefmt="simple",
        colalign=("left", "left", *["right"] * (len(header) - 2)),
        disable_numparse=True,
    )


def verdict(card: Card, stages: Sequence[Stage]) -> Line:
    """Every stage against a card, and for those that do not fit the setting that would."""
    room = room_on(card)
    over = [s for s in stages if s.peak > room]
    start = f"{card.name}: {room / GIB:.1f} of {card.memory:.1f} GiB to fill"
    if not over:
        return Line(card, True, f"{start}: every stage fits")
    mends = []
    for s in over:
        less = s.smaller(room)
        mends.append(
            f"{s.name} needs {s.peak / GIB:.1f}" + (f" (try {s.setting} {less})" if less else " (not at any batch)")
        )
    return Line(card, False, f"{start}: {'; '.join(mends)}")


def remarks(config: FitsConfig, lengths: Lengths, counted: bool) -> list[str]:
    """What a reader has to know beside the numbers."""
    guessed = "by the model's tokenizer" if counted else "estimated from characters (--prompt-tokens sets it)"
    how = "as given" if config.prompt_tokens else guessed
    told = [
        f"longest prompt {lengths.prompt} tokens, {how}; every completion {config.max_new}",
        f"margins: {RESERVE:g} GiB for CUDA's context and libraries, {1 - MARGIN:.0%} of the rest for fragmentation; "
        "neither is measured",
        "seconds: products alone at the card's peak or bandwidth, all lengths at their longest; Python, grading and all "
        "else come on top",
    ]
    if config.left_out:
        told.append(f"not counted: {', '.join(config.left_out)}")
    return told
