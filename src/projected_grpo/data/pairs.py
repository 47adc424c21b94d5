"""Contrastive pairs: load, split, hash.

A fixed fifth of each mechanism is held out: those pairs never enter V, and `verify_vhack` tests it on those whose
composition no training pair has.
"""

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from projected_grpo.config import ExtractConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, content_hash, first_fault
from projected_grpo.prompts import Message, from_chat
from projected_grpo.records import Pair
from projected_grpo.worlds.registry import PAIRS, WORLDS

HELD_OUT = 0.2
IN_A_POOL = 3
"""Pairs of each mechanism in a pool of written completions: all of them would take longer to grade than a tiny run
takes."""


@dataclass
class _Row:
    hack: Annotated[str, Field(min_length=1)]
    clean: Annotated[str, Field(min_length=1)]
    prompt: str | None = None
    messages: list[Message] | None = None
    clean_alt: str | None = None
    mechanism: str = "unknown"
    name: str | None = None


_ROWS = TypeAdapter(list[_Row])


def pairs_from(data: Any, source: str) -> tuple[Pair, ...]:
    """Pairs of a list of {prompt or messages, hack, clean, clean_alt?, mechanism?, name?}. BadInput, naming the
    source and the pair, on anything else."""
    try:
        rows = _ROWS.validate_python(data, extra="forbid")
    except ValidationError as e:
        raise BadInput(f"{source}: {first_fault(e, 'pairs')}; write it as docs/use.md says") from e
    pairs = []
    for i, row in enumerate(rows):
        if row.hack == row.clean:
            raise BadInput(f"{source}: pair {i}: hack and clean are the same completion, so it contrasts nothing")
        if not row.messages and row.prompt is None:
            raise BadInput(f"{source}: pair {i}: needs 'prompt' (text) or 'messages' (chat)")
        messages = from_chat(row.messages) if row.messages else (("user", row.prompt or ""),)
        pairs.append(Pair(row.name or f"pair-{i}", messages, row.hack, row.clean, row.clean_alt, row.mechanism))
    if not pairs:
        raise BadInput(f"{source}: there is no pair in it; write some (docs/use.md)")
    check_once(((f"the name {p.name!r}", p.name) for p in pairs), source)
    check_once(((f"pair {p.name!r}", (p.messages, p.hack, p.clean)) for p in pairs), source)
    return tuple(pairs)


def load_pairs(source: str, modes: Iterable[str] = ()) -> tuple[Pair, ...]:
    """Returns the pairs of a name (worlds/registry.py) or of a JSON file, of the mechanisms `modes` alone (empty =
    all). BadInput names what is wrong."""
    if source in PAIRS:
        pairs = PAIRS[source]()
    else:
        try:
            data = json.loads(Path(source).read_text("utf-8-sig"))
        except (OSError, ValueError) as e:
            why = getattr(e, "strerror", e)
            raise BadInput(f"--pairs {source}: no JSON file ({why}); give a list, or {', '.join(PAIRS)}") from e
        pairs = pairs_from(data, f"--pairs {source}")
    wanted = set(modes)
    if unknown := wanted - {p.mechanism for p in pairs}:
        known = ", ".join(sorted({p.mechanism for p in pairs}))
        raise BadInput(
            f"--pairs {source}: no pair has the mechanism {', '.join(sorted(unknown))} of --modes (typed, or the preset's); "
            f"there are {known}; type --modes with some of these, or without a word for all"
        )
    return tuple(p for p in pairs if not wanted or p.mechanism in wanted)


def pairs_for(config: ExtractConfig) -> tuple[str, tuple[Pair, ...]]:
    """Returns the name of the pair set, and its pairs. BadInput as in load_pairs, or where there are none of words
    alone."""
    if config.control != "words":
        return config.pairs, load_pairs(config.pairs, config.modes)
    source = f"{config.pairs}-phrase"
    if source not in PAIRS:
        raise BadInput(f"--pairs {config.pairs}: has no pairs of words alone, which --control words needs; use builtin")
    return source, load_pairs(source)


def pool_pairs(source: str) -> tuple[Pair, ...]:
    """A few pairs of every mechanism: what a pool of written completions is made of. BadInput as in load_pairs, or
    for pairs without tests."""
    pairs = load_pairs(source)
    if any(pair.problem is None for pair in pairs):
        raise BadInput(f"--pairs {source}: its pairs have no tests that a pool of them could be graded by; use builtin")
    kinds = itertools.groupby(pairs, key=lambda pair: pair.mechanism)
    return tuple(pair for _, of_kind in kinds for pair in itertools.islice(of_kind, IN_A_POOL))


def name_of(source: str, pairs: Sequence[Pair]) -> str:
    """How tables call a pair set: a file by its contents, as a path says nothing of them."""
    return source if source in PAIRS else pairs_hash(pairs)[:8]


def split(pairs: Sequence[Pair]) -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
    """(training, held-out) pairs: of each mechanism the fifth (rounded up) whose names hash lowest is held out.

    Depends on names only, so the same pair is held out whatever the order or the selection of mechanisms.
    BadInput when a side would be empty.
    """
    held: set[str] = set()
    for mechanism in sorted({p.mechanism for p in pairs}):
        names = [p.name for p in pairs if p.mechanism == mechanism]
        names.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        held |= set(names[: math.ceil(HELD_OUT * len(names))])
    train, test = (tuple(p for p in pairs if (p.name in held) is side) for side in (False, True))
    if not train or not test:
        raise BadInput(f"{len(pairs)} pairs, each of its own mechanism: none can be held out; give 2 or more of one")
    return train, test


def resampled(pairs: Sequence[Pair], draw: int) -> tuple[Pair, ...]:
    """As many pairs of each mechanism, drawn with replacement by this seed: a bootstrap sample. 0: the pairs
    themselves."""
    if not draw:
        return tuple(pairs)
    out = []
    for mechanism in sorted({p.mechanism for p in pairs}):
        same = [p for p in pairs if p.mechanism == mechanism]
        out += random.Random(f"pairs {draw} {mechanism}").choices(same, k=len(same))
    return tuple(out)


def composition_of(pair: Pair) -> str:
    """What a pair's problem is made of, without its constants; where nothing says it, every problem is a
    composition."""
    return pair.composition or pair.messages[-1][1]


def unseen_pairs(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The pairs that judge a V made from the training pairs of these: the held-out ones whose composition no training
    pair has in other constants, and those that their world draws for this."""
    train, held_out = split(pairs)
    seen = {composition_of(p) for p in train}
    unseen = tuple(p for p in held_out if composition_of(p) not in seen)
    for world in WORLDS.values():
        if world.unseen_pairs and set(pairs) <= set(world.pairs[world.name]()):
            unseen += world.unseen_pairs({composition_of(p) for p in pairs}, {p.mechanism for p in pairs})
    return unseen


def pairs_hash(pairs: Sequence[Pair]) -> str:
    """Hash of everything about the pairs that can change V."""
    return content_hash([[p.name, p.messages, p.hack, p.clean, p.clean_alt, p.mechanism] for p in pairs])
