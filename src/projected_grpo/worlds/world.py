"""What a world is: problems, pairs, models, their bars and presets that belong together. Torch-free.

A new one is a file with a `World`, and its name in registry.py (docs/extending.md).
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from projected_grpo.records import Pair, Problem

Bars = Mapping[str, tuple[float, float]]
"""Kind of answer (ledger/rates.py) -> least and greatest rate on held-out problems."""


@dataclass(frozen=True)
class BuiltModel:
    """A model that is built on first use and kept in the cache.

    Its functions are named "module:function" (in worlds/), so that no torch is loaded where worlds are only listed.
    """

    base: str
    """(model name, seed, cache) -> folder of the model."""
    teacher: str = ""
    """(model name, seed, base folder, cache) -> folder of the hacky teacher's LoRA; empty: it has none."""
    rebuild: str = ""
    """(model name, seed, cache) -> makes the weights again that come with the package; empty: none do."""
    starts_from: str = ""
    """The built model that it was fine-tuned from; build-base reports its rates too."""
    width: int = 0
    """Its hidden size, where a chain scales V's rank by it; 0: the preset's k."""


@dataclass(frozen=True)
class Preset:
    """A world at one size: settings of scripts and of chains."""

    name: str
    values: Mapping[str, Any]
    """Fields of the scripts' configs by name; `Config.field` is for that config alone."""
    pool_problems: int
    """Problems of the teacher's pool in a chain."""
    replays: int
    """Groups of it that a chain replays."""
    threads: int = 0
    """CPU threads of a link, fixed since their number can change the last digits; 0: its links share the GPUs."""
    builds_base: bool = False
    """Its base model is built and compared with its bars before anything else."""
    teacher_share: Literal["", "pairs", "pool"] = ""
    """What a chain mixes into every training group: nothing, the hand-written completions, or the teacher's pool."""
    instructed: bool = True
    """Whether its model reads instructions; else an arm that tells it something in words tells it nothing."""
    judges: bool = True
    """Whether its model has room for a judge's question, which a chain asks it as it was untrained."""
    better: str = ""
    """The built model whose votes make preference pairs; empty: none."""
    onsets: float = 0.0
    """A sweep's replicate runs for so many times its vanilla's onset; 0 = the preset's steps."""
    cap: int = 0
    """The most steps that a vanilla run may take for that."""
    step_s: float = 1.0
    """Seconds that one of its steps takes, roughly, on a core or on an H100: for the hours that queue-dry prints."""
    quick_steps: int = 4
    """Steps of a pilot (--quick)."""
    required: tuple[str, ...] = ("T1", "T2", "T3")
    """Verdicts that decide the exit code of its UAT. T4 is a finding and decides nothing: in the toy world it fails,
    and projection keeps hacking down all the same."""


@dataclass(frozen=True)
class World:
    """One world."""

    name: str
    presets: tuple[Preset, ...]
    problems: Mapping[str, Callable[[], Sequence[Problem]] | Path] = field(default_factory=dict)
    """By --problems name: a function, or a file of benchmark rows. `NAME-held-out`: those that nothing trains on."""
    pairs: Mapping[str, Callable[[], tuple[Pair, ...]]] = field(default_factory=dict)
    """By --pairs name. `NAME-phrase`: a control of words alone. `NAME-informed`: written when a hack had been
    seen."""
    unseen_pairs: Callable[[Container[str], Container[str]], tuple[Pair, ...]] | None = None
    """(compositions to avoid, mechanisms) -> further pairs to verify a V on; None: only the held-out ones."""
    models: Mapping[str, BuiltModel] = field(default_factory=dict)
    """By --model name. Any other model is a folder or a hub id."""
    bars: Mapping[str, Bars] = field(default_factory=dict)
    """Of its `base` and its `teacher`: rates on held-out problems without which a run means nothing."""
