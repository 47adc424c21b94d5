"""What kinds of values a run's summary may hold: whoever edits one gets a line, and not a traceback of a table.

wrong = shape_problem(row)       "" or what is wrong
"""

import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.folder import plain
from projected_grpo.ledger.rates import rates

OF_ROW: Mapping[str, tuple[type, ...]] = {
    "path": (str,), "arm": (str,), "seed": (int,), "facts": (dict,), "rollouts_sha256": (str, type(None)),
    "rollouts": (int,), "series": (dict,), "evals": (dict,), "mechanisms": (dict, type(None)), "trained_on": (int,),
    "tested": (dict,), "step_hashes": (list,), "undone": (int,), "flaws": (dict,), "sources": (list,), "beside": (dict,),
}  # fmt: skip
RATES = tuple(rates(()))
"""Of each evaluation."""
SEES = "page.sees"
"""What an arm's page is shown: the one fact that is a list."""
NUMBERED = ("vhack.k", "vhack.n_train", "vhack.directions")
"""Facts of V that its file holds as text."""


LARGEST = 1e100
"""Of a number: sums and squares of what is smaller are finite."""


def is_number(value: Any) -> bool:
    """Whether a value of a file is a number that can be reckoned with."""
    return type(value) in (int, float) and abs(value) < LARGEST


def shape_problem(row: Mapping[str, Any]) -> str:
    """The first value of a kind that it cannot be, or an empty string."""
    for name, kinds in OF_ROW.items():
        if type(row[name]) not in kinds:
            return f"{name!r} is {row[name]!r:.40}, where {_told(kinds)} is expected"
    place = PurePosixPath(row["path"])
    if not row["path"].isprintable() or not place.parts or place.is_absolute() or ".." in place.parts:
        return f"'path' is {row['path']!a:.40}, where a path below the study is expected"
    if row["rollouts"] and not (row["rollouts_sha256"] or row["step_hashes"]):
        return "of its rollouts no hash is known"
    if odd := [text for text in row["step_hashes"] if not isinstance(text, str)]:
        return f"'step_hashes' hold {odd[0]!r:.40}, which is no text"
    places = {**row["evals"], **{f"{of} {at}": own for of, by in row["beside"].items() for at, own in by.items()}}
    for place, own in places.items():
        if lacking := [rate for rate in RATES if rate not in own]:
            return f"the evaluation {place} lacks {lacking[0]!r}"
    wrong = (_fact_problem(name, value) for name, value in row["facts"].items())
    return next(filter(None, wrong), "")


def _fact_problem(name: str, value: Any) -> str:
    if name == SEES:
        right = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return "" if right else f"{name!r} is {value!r:.40}, where a list of texts is expected"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name!r} is {value}, where a finite number is expected"
    usual = _CONFIG.get(name)
    if name in NUMBERED and not (isinstance(value, str) and value.isdecimal()):
        return f"{name!r} is {value!r:.40}, where the digits of a number are expected"
    if usual is None:
        known = (str, int, float, bool, type(None))
        return "" if isinstance(value, known) else f"{name!r} is {value!r:.40}, where one value is expected"
    kinds = (int, float) if type(usual) is float else (type(usual),)
    return "" if type(value) in kinds else f"{name!r} is {value!r:.40}, where {_told(kinds)} is expected"


def _told(kinds: tuple[type, ...]) -> str:
    words: dict[type, str] = {
        str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object",
        list: "a list", type(None): "nothing",
    }  # fmt: skip
    return " or ".join(words[kind] for kind in kinds)


_CONFIG = {f"config.{name}": value for name, value in plain(TrainConfig()).items()}
"""Today's fields, each with a value of its kind; an older run's others may be any one value."""
