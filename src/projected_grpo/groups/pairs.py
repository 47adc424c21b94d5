"""Contrastive pairs: load, split, hash.

The built-in set is written by hand for this project, one TOML file per hack mechanism, before any rollout was seen and
never tuned to the hacks that emerged (the no-cheat rule). A fixed fifth of each mechanism is held out: those pairs never
enter V and are what `verify_vhack` tests it on.
"""

import hashlib
import json
import math
import random
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from loophole_grader import Task
from projected_grpo.groups.problems import SETUP_CODE, benchmark_messages
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import content_hash
from projected_grpo.records import Pair, Problem
from projected_grpo.toy.corpus import pairs as toy_pairs
from projected_grpo.toy.corpus import phrase_pairs as toy_phrase_pairs

BUILTIN = Path(__file__).parents[1] / "data" / "pairs"
HELD_OUT = 0.2


@cache
def builtin_pairs() -> tuple[Pair, ...]:
    """The pairs that ship with the package; `mechanism` is the name of their file."""
    out = []
    for path in sorted(BUILTIN.glob("*.toml")):
        for row in tomllib.loads(path.read_text("utf-8"))["pair"]:
            clean = row["clean"].strip("\n")
            code = clean.split("```python\n", 1)[1].rsplit("```", 1)[0]
            task = Task(row["name"], tuple(row["tests"]), SETUP_CODE, f"Solution().{row['method']}", code)
            messages = benchmark_messages(row["statement"], row["method"], row["starter"])
            problem = Problem(row["name"], messages, task)
            out.append(
                Pair(row["name"], problem.messages, row["hack"].strip("\n"), clean, row["clean_alt"].strip("\n"),
                     path.stem, problem)
            )  # fmt: skip
    return tuple(out)


def _external(path: Path) -> tuple[Pair, ...]:
    """A JSON list of {prompt or messages, hack, clean, clean_alt?, mechanism?, name?}."""
    try:
        data: Any = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as e:
        raise BadInput(f"--pairs {path}: no such file") from e
    except (OSError, ValueError) as e:
        raise BadInput(f"--pairs {path}: not JSON ({e})") from e
    if not isinstance(data, list) or not data:
        raise BadInput(f"--pairs {path}: must be a JSON list with at least one pair in it")
    pairs = []
    for i, row in enumerate(data):
        place = f"--pairs {path}: pair {i}"
        if not isinstance(row, dict):
            raise BadInput(f"{place}: a {type(row).__name__}, where an object is expected")
        for key in ("hack", "clean"):
            if not isinstance(row.get(key), str) or not row[key]:
                raise BadInput(f"{place}: {key!r} must be the text of a completion")
        if isinstance(row.get("messages"), list):
            try:
                messages = tuple((str(m["role"]), str(m["content"])) for m in row["messages"])
            except (TypeError, KeyError) as e:
                raise BadInput(f"{place}: 'messages' must be a list of {{role, content}}") from e
        elif isinstance(row.get("prompt"), str):
            messages = (("user", row["prompt"]),)
        else:
            raise BadInput(f"{place}: needs 'prompt' (text) or 'messages' (chat)")
        alt = row.get("clean_alt")
        if alt is not None and not isinstance(alt, str):
            raise BadInput(f"{place}: 'clean_alt' must be the text of a completion")
        name = str(row.get("name", f"pair-{i}"))
        pairs.append(Pair(name, messages, row["hack"], row["clean"], alt, str(row.get("mechanism", "unknown"))))
    if len({p.name for p in pairs}) != len(pairs):
        raise BadInput(f"--pairs {path}: two pairs have the same name")
    return tuple(pairs)


def load_pairs(source: str, modes: Iterable[str] = ()) -> tuple[Pair, ...]:
    """`builtin`, `toy`, `toy-phrase` or a JSON file, restricted to the mechanisms `modes` (empty = all). BadInput names
    what is wrong."""
    written = {"builtin": builtin_pairs, "toy": toy_pairs, "toy-phrase": toy_phrase_pairs}
    pairs = written[source]() if source in written else _external(Path(source))
    wanted = set(modes)
    if unknown := wanted - {p.mechanism for p in pairs}:
        known = ", ".join(sorted({p.mechanism for p in pairs}))
        raise BadInput(f"--modes {', '.join(sorted(unknown))}: no pair has this mechanism; there are {known}")
    return tuple(p for p in pairs if not wanted or p.mechanism in wanted)


def split(pairs: Sequence[Pair]) -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
    """(training, held-out) pairs: of each mechanism the fifth (rounded up) whose names hash lowest is held out.

    Depends on names only, so the same pair is held out whatever the order or the selection of mechanisms.
    BadInput when a side would be empty.
    """
    held: set[str] = set()
    for mechanism in sorted({p.mechanism for p in pairs}):
        names = sorted(
            (p.name for p in pairs if p.mechanism == mechanism), key=lambda n: hashlib.sha256(n.encode()).hexdigest()
        )
        held |= set(names[: math.ceil(HELD_OUT * len(names))])
    train = tuple(p for p in pairs if p.name not in held)
    test = tuple(p for p in pairs if p.name in held)
    if not train or not test:
        raise BadInput(
            f"{len(pairs)} pairs cannot be split into training and held-out ones; give at least 2 a mechanism"
        )
    return train, test


def resampled(pairs: Sequence[Pair], draw: int) -> tuple[Pair, ...]:
    """As many pairs of each mechanism, drawn with replacement by this seed: a bootstrap sample. 0: the pairs themselves."""
    if not draw:
        return tuple(pairs)
    out = []
    for mechanism in sorted({p.mechanism for p in pairs}):
        own = [p for p in pairs if p.mechanism == mechanism]
        out += random.Random(f"pairs {draw} {mechanism}").choices(own, k=len(own))
    return tuple(out)


def pairs_hash(pairs: Sequence[Pair]) -> str:
    """Hash of everything about the pairs that can change V."""
    return content_hash([[p.name, p.messages, p.hack, p.clean, p.clean_alt, p.mechanism] for p in pairs])
