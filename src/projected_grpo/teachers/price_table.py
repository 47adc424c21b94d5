"""The teachers and what they cost: a TOML file, one [[teacher]] each. The keys of their endpoints are in the environment
and nowhere else."""

import posixpath
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from projected_grpo.ledger.errors import BadInput
from projected_grpo.teachers.states import State

MILLION = Decimal(1_000_000)
MOST = MILLION
"""A price or a temperature above it is a slip, and beyond what a request can say."""
TOKENS_PER_MESSAGE = 16
"""More than any chat template in use puts around one message."""
SECRET = re.compile(r"(?<!max_)(?<!overhead_)(key|token|secret|passw|auth|bearer|credential)", re.IGNORECASE)
KEYLIKE = re.compile(
    r"(?i:^(sk|key|tok|api)[-_][\w-]{8,})|^(?=[\w-]{24,}$)(?=.*[0-9])(?=.*[A-Za-z])(?!.*(?:[a-z]+-){3})"
)
"""A path segment that may be a key: with a key's beginning, or long, of letters and digits, and no words with hyphens."""
LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
SHORTEST_KEY = 8
"""A shorter one is a dummy (`EMPTY`) and no secret: it may occur in any text."""


@dataclass(frozen=True)
class Teacher:
    """One [[teacher]] of the file. Prices are in $ per million tokens."""

    name: str
    """How it is called in every file; default: the model."""
    url: str
    """The endpoint, as in `http://127.0.0.1:8000/v1`."""
    model: str
    usd_per_million_in: Decimal
    usd_per_million_out: Decimal
    key_env: str = ""
    """The environment variable that holds the key; empty: the endpoint needs none."""
    max_tokens: int = 1024
    """Most tokens of an answer, thoughts included."""
    temperature: Decimal = Decimal(0)
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """How the endpoint calls the limit."""
    overhead_tokens: int = 256
    """Most tokens that the endpoint's template adds to the messages, such as a system prompt of its own."""

    @property
    def free(self) -> bool:
        """Whether nothing that it does costs anything, by the table."""
        return not self.usd_per_million_in and not self.usd_per_million_out

    def usd(self, prompt_tokens: int, completion_tokens: int) -> Decimal:
        """What so many tokens cost, in $, exactly."""
        paid = prompt_tokens * self.usd_per_million_in + completion_tokens * self.usd_per_million_out
        return paid / MILLION

    def most_prompt_tokens(self, state: State) -> int:
        """An upper bound: in the byte-level vocabularies of today no token is less than a byte of text."""
        text = sum(len(role) + len(content.encode()) + TOKENS_PER_MESSAGE for role, content in state.messages)
        return text + self.overhead_tokens

    def most_usd(self, state: State) -> Decimal:
        """The most that one attempt at a state can cost, in $."""
        return self.usd(self.most_prompt_tokens(state), self.max_tokens)

    def told(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {k: str(v) if isinstance(v, Decimal) else v for k, v in asdict(self).items()}


FIELDS = tuple(f.name for f in fields(Teacher))
PRICES = ("usd_per_million_in", "usd_per_million_out")
NUMBERS = {"max_tokens": 1, "overhead_tokens": 0}


def _number(value: Any) -> Decimal | None:
    """A number from 0 to MOST, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    found = Decimal(value)
    return found if found.is_finite() and 0 <= found <= MOST else None


def _check_fields(row: Mapping[str, Any], place: str) -> None:
    """BadInput on a field that is none, or that holds a secret. No value of such a field is repeated."""
    for name in row.keys() - set(FIELDS):
        if SECRET.search(name):
            raise BadInput(
                f"{place}: the field {name} looks like a key; keys are never in a file: put it into an environment variable "
                'and name that, as in key_env = "TEACHER_KEY"'
            )
        raise BadInput(f"{place}: unknown field {name}; there are {', '.join(FIELDS)}")
    if "key_env" in row and row["key_env"] != "" and not VARIABLE.fullmatch(str(row["key_env"])):
        raise BadInput(
            f"{place}: key_env is no name of an environment variable in capitals (not repeated here: it may be a key); "
            'write the variable\'s name, as in key_env = "TEACHER_KEY"'
        )


def _check_url(url: Any, place: str) -> None:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        fit = parts and parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
        fit = fit and url.isprintable() and _is_host(parts.hostname, address="[" in parts.netloc)
    except ValueError:
        parts = fit = None
    if parts is None or not fit:
        raise BadInput(f'{place}: url is no address of an endpoint; write one as in url = "http://127.0.0.1:8000/v1"')
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadInput(f"{place}: url holds a user, a query or a fragment, where keys hide; key_env names the key")
    if any(KEYLIKE.search(part) for part in parts.path.split("/")):
        raise BadInput(f"{place}: url's path holds what looks like a key (not repeated here); key_env names the key")


def _is_host(name: str, *, address: bool) -> bool:
    """Whether a URL's host is an address or a name that can be looked up. ValueError where it is neither."""
    if address:
        return bool(ip_address(name))
    return re.fullmatch(rb"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", name.encode("idna").lower()) is not None


def _server(url: str) -> tuple[str, str]:
    """Where a URL leads, however it is spelled: this machine has several names, and a path may go in circles."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname in LOCAL else (parts.hostname or "").rstrip(".")
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return f"{host}:{port}", posixpath.normpath(unquote(parts.path or "/"))


def _teacher(row: Any, file: Path, number: int) -> Teacher:
    place = f"{file}: [[teacher]] {number}"
    if not isinstance(row, dict):
        raise BadInput(f"{place}: not a table; begin each teacher with a line [[teacher]]")
    _check_fields(row, place)
    if not isinstance(row.get("model"), str) or not row["model"]:
        raise BadInput(f'{place}: no model; add the line model = "..." as the endpoint calls it')
    place = f"{file}: teacher {row.get('name', row['model'])!r}"
    _check_url(row.get("url"), place)
    for price in PRICES:
        if price not in row:
            raise BadInput(f"{place} has no price; add the line {price} = ... ($ per million tokens; 0 for none)")
    given: dict[str, Any] = {"name": row["model"], **row, "url": row["url"].rstrip("/")}
    for name in (*PRICES, "temperature"):
        if name in given:
            given[name] = _number(given[name])
            if given[name] is None:
                raise BadInput(f"{place}: {name} = {row[name]}: must be a number from 0 to {MOST}")
    for name, least in NUMBERS.items():
        if name in given and (type(given[name]) is not int or given[name] < least):
            raise BadInput(f"{place}: {name} = {row[name]!r}: must be a whole number, {least} or more")
    if not isinstance(given["name"], str) or not given["name"]:
        raise BadInput(f"{place}: name must be a text")
    if given.get("max_tokens_field", "max_tokens") not in ("max_tokens", "max_completion_tokens"):
        raise BadInput(f"{place}: max_tokens_field = {row['max_tokens_field']!r}: max_tokens or max_completion_tokens")
    return Teacher(**given)


def read_teachers(path: Path) -> list[Teacher]:
    """The teachers of a TOML file, in its order.

    BadInput, naming the file, the teacher and the mend, on one without a price, on a field that is unknown or holds a key
    (which is not repeated), and on a teacher that is there twice: it would have two votes.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    except FileNotFoundError as e:
        raise BadInput(f"{path}: no such file; docs/teachers.md shows one") from e
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: not TOML ({e})") from e
    if strange := sorted(table.keys() - {"teacher"}):
        what = "a key; keys are never in a file" if SECRET.search(strange[0]) else "no field of this file"
        raise BadInput(f"{path}: {strange[0]} is {what}; it holds [[teacher]] tables alone")
    rows = table.get("teacher", [])
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"{path}: no teacher in it; begin each with a line [[teacher]]")
    teachers = [_teacher(row, path, i) for i, row in enumerate(rows, 1)]
    check_once(teachers, str(path))
    return teachers


def check_once(teachers: Sequence[Teacher], place: str) -> None:
    """BadInput on a name, or a model of one server, that stands twice."""
    for i, one in enumerate(teachers):
        for other in teachers[:i]:
            if one.name == other.name:
                raise BadInput(f"{place}: two teachers are called {one.name!r}; give each a name of its own")
            if (_server(one.url), one.model) == (_server(other.url), other.model):
                raise BadInput(f"{place}: {other.name!r} and {one.name!r} are one model, which would have two votes")


def read_keys(teachers: Sequence[Teacher], environment: Mapping[str, str]) -> dict[str, str]:
    """Teacher -> key of its endpoint; `none` where it needs none. BadInput, which never repeats a key, where the variable is
    not set or cannot be sent in a header."""
    found = {}
    for teacher in teachers:
        key = environment.get(teacher.key_env, "") if teacher.key_env else "none"
        if not key.strip():
            raise BadInput(
                f"teacher {teacher.name!r}: the environment variable {teacher.key_env} is not set; export it, or leave "
                "key_env out if the endpoint needs no key"
            )
        if not re.fullmatch(r"[!-~]+", key):
            raise BadInput(
                f"teacher {teacher.name!r}: the environment variable {teacher.key_env} holds a space, a line break or a "
                "character that no key has; export it anew"
            )
        found[teacher.name] = key
    return found


def secrets_of(keys: Mapping[str, str]) -> tuple[str, ...]:
    """What must be in no file, the longest first: one key may be the beginning of another."""
    return tuple(sorted({key for key in keys.values() if len(key) >= SHORTEST_KEY}, key=lambda key: -len(key)))
