"""The teachers and what they cost: a TOML file, one [[teacher]] each. The keys of their endpoints are in the environment
and nowhere else."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, first_fault
from projected_grpo.traces.record import State

MILLION = 1_000_000
TOKENS_PER_MESSAGE = 16
"""More than any chat template in use puts around one message."""

Price = Annotated[float, Field(ge=0, le=MILLION)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Teacher:
    """One [[teacher]] of the file. Prices are in $ per million tokens."""

    name: str
    """How it is called in every file; default: the model."""
    url: Annotated[str, Field(pattern=r"^https?://[^@?#\s]+$")]
    """The endpoint, as in `http://127.0.0.1:8000/v1`; no user and no query, where keys hide."""
    model: Annotated[str, Field(min_length=1)]
    usd_per_million_in: Price
    usd_per_million_out: Price
    key_env: Annotated[str, Field(pattern=r"^([A-Z][A-Z0-9_]*)?$")] = ""
    """The environment variable that holds the key; empty: the endpoint needs none."""
    max_tokens: Annotated[int, Field(ge=1)] = 1024
    """Most tokens of an answer, thoughts included."""
    temperature: Annotated[float, Field(ge=0, le=MILLION)] = 0.0
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """How the endpoint calls the limit."""
    overhead_tokens: Annotated[int, Field(ge=0)] = 256
    """Most tokens that the endpoint's template adds to the messages, such as a system prompt."""

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """What so many tokens cost, in $."""
        return (prompt_tokens * self.usd_per_million_in + completion_tokens * self.usd_per_million_out) / MILLION

    def most_prompt_tokens(self, state: State) -> int:
        """An upper bound: in the byte-level vocabularies of today no token is less than a byte of text."""
        text = sum(len(role) + len(content.encode()) + TOKENS_PER_MESSAGE for role, content in state.messages)
        return text + self.overhead_tokens

    def most_usd(self, state: State) -> float:
        """The most that one answer to a state can cost, in $."""
        return self.usd(self.most_prompt_tokens(state), self.max_tokens)


_TEACHER = TypeAdapter(Teacher)


def read_teachers(path: Path) -> list[Teacher]:
    """Returns the teachers of a TOML file, in its order.

    BadInput, naming the file, the teacher and the field, on one without a price, on an unknown field (its value, which may
    be a key, is not repeated), and on a teacher that is there twice: it would have two votes.
    """
    try:
        rows: Any = tomllib.loads(path.read_text("utf-8")).get("teacher")
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: no TOML file ({e}); docs/integrations.md shows one") from e
    if not isinstance(rows, list):
        raise BadInput(f"{path}: no teacher in it; begin each with a line [[teacher]]")
    teachers = []
    for i, row in enumerate(rows, 1):
        try:
            teachers.append(_TEACHER.validate_python({"name": row.get("model", ""), **row}))
        except ValidationError as e:
            raise BadInput(
                f"{path}: [[teacher]] {i}: {first_fault(e)} (prices are usd_per_million_in and usd_per_million_out, 0 for "
                "none; a key is never in a file: key_env names its environment variable)"
            ) from None
    check_once(((f"teacher {t.name!r}", t.name) for t in teachers), path)
    check_once(((f"the model of {t.name!r}", (t.url.rstrip("/"), t.model)) for t in teachers), path)
    return teachers


def read_keys(teachers: Sequence[Teacher], environment: Mapping[str, str]) -> dict[str, str]:
    """Returns teacher -> key of its endpoint; `none` where it needs none. BadInput where the variable is not set."""
    keys = {t.name: environment.get(t.key_env, "").strip() if t.key_env else "none" for t in teachers}
    for teacher in teachers:
        if not keys[teacher.name]:
            raise BadInput(
                f"teacher {teacher.name!r}: the environment variable {teacher.key_env} is not set; export it, or leave "
                "key_env out if the endpoint needs no key"
            )
    return keys
