"""Teachers: what they cost (a TOML file, one [[teacher]] each), and the folder of what they answered, one JSON line an
answer. The keys of their endpoints are in the environment and nowhere else."""

import json
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, first_fault, read_jsonl
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.prompts import from_chat
from projected_grpo.traces.record import State
from projected_grpo.verdicts.registry import Finding
from projected_grpo.verdicts.teachers import judge, p95

KIND, STATES, NAME = "teachers", "states.jsonl.gz", "answers.jsonl"
MILLION = 1_000_000
TOKENS_PER_MESSAGE = 16
"""More than any chat template in use puts around one message."""

Price = Annotated[float, Field(ge=0, le=MILLION)]
Call = tuple[str, str]
"""(state_id, teacher): what is asked once."""


# ---------------------------------------------------------------- the price table


@dataclass(frozen=True)
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
            teachers.append(_TEACHER.validate_python({"name": row.get("model", ""), **row}, extra="forbid"))
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


# ---------------------------------------------------------------- answers


@dataclass(frozen=True)
class Answer:
    """A line: what a call brought."""

    state: str
    teacher: str
    text: str
    finish: str
    """Why it ended: `stop`, or `length` where max_tokens cut it."""
    model: str
    """Under which name it came."""
    prompt_tokens: int | None
    """None: the endpoint does not say; `usd` is then the most that it can have cost."""
    completion_tokens: int | None
    usd: float
    seconds: float
    """From the first attempt to the last, waits included."""
    error: str = ""
    """Why there is no answer; it is then asked for again."""


@dataclass(frozen=True)
class Folder:
    """A folder that `ask_teachers` wrote, whole or not."""

    states: Sequence[State]
    teachers: Sequence[Teacher]
    lines: Sequence[Answer]
    budget: float
    """The cap of the last session, in $."""

    @cached_property
    def answers(self) -> dict[Call, Answer]:
        """By call; those that brought none are left out."""
        return {(a.state, a.teacher): a for a in self.lines if not a.error}

    @property
    def missing(self) -> list[tuple[State, Teacher]]:
        """Calls without an answer, in order."""
        return [(s, t) for s in self.states for t in self.teachers if (s.state_id, t.name) not in self.answers]

    @property
    def whole(self) -> str:
        """Why it is not whole; empty if it is."""
        return f"{len(self.missing)} answers are missing; --resume it" if self.missing else ""

    @property
    def usd(self) -> float:
        """All that was spent; what is not known, at its most."""
        return sum(a.usd for a in self.lines)

    @cached_property
    def seconds(self) -> dict[Call, float]:
        """Of each call, failed ones and all sessions added up."""
        found: dict[Call, float] = defaultdict(float)
        for a in self.lines:
            found[a.state, a.teacher] += a.seconds
        return found

    def answers_to(self, state: State) -> list[Answer]:
        """One answer of each teacher, in the order of the price table. KeyError where one is missing."""
        return [self.answers[state.state_id, t.name] for t in self.teachers]

    def finding(self) -> Finding:
        """Whether they are cheap and fast enough."""
        names, missing = [t.name for t in self.teachers], {s.state_id for s, _ in self.missing}
        answered = [s.state_id for s in self.states if s.state_id not in missing]
        return judge(
            whole=self.whole,
            traces=len({s.trace_id for s in self.states}),
            seconds=[max(self.seconds[state, name] for name in names) for state in answered],
            usd=self.usd,
            free=[t.name for t in self.teachers if not t.usd(1, 1)],
            models={name: frozenset(a.model for a in self.answers.values() if a.teacher == name) for name in names},
            budget=self.budget,
        )


def read_answers(folder: Path) -> Folder:
    """Returns what teachers answered, so far. BadInput where it is no such folder."""
    manifest, path = read_manifest(folder), folder / NAME
    states = [State(r["state_id"], r["trace_id"], from_chat(r["messages"])) for r in read_jsonl(folder / STATES)]
    teachers = [Teacher(**row) for row in manifest["teachers"]]
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith(b"\n")]  # a kill may have torn the last one
    return Folder(states, teachers, [Answer(**json.loads(line)) for line in whole], manifest.get("budget", 0.0))


def cost_table(found: Folder) -> list[list[object]]:
    """Returns one row a teacher, the header first. `cut`: answers that max_tokens ended."""
    table: list[list[object]] = [["teacher", "answers", "cut", "tokens in", "tokens out", "$", "s p95"]]
    for t in found.teachers:
        got = [a for a in found.answers.values() if a.teacher == t.name]
        table.append([
            t.name, f"{len(got)} of {len(found.states)}", sum(a.finish == "length" for a in got),
            sum(a.prompt_tokens or 0 for a in got), sum(a.completion_tokens or 0 for a in got),
            sum(a.usd for a in found.lines if a.teacher == t.name),
            p95([found.seconds[a.state, a.teacher] for a in got]) if got else None,
        ])  # fmt: skip
    return table
