"""Teachers: what they cost (a TOML file, one [[teacher]] each), and the folder of what they answered, one JSON line
an answer. The keys of their endpoints are in the environment and nowhere else."""

import json
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, first_fault, read_jsonl
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.prompts import from_chat
from projected_grpo.traces.record import State
from projected_grpo.verdicts.registry import Finding
from projected_grpo.verdicts.teachers import judge

KIND, STATES, NAME = "teachers", "states.jsonl.gz", "answers.jsonl"
MILLION = 1_000_000
TOKENS_PER_MESSAGE = 16
"""More than any chat template in use puts around one message."""

Price = Annotated[float, Field(ge=0, le=MILLION)]


@dataclass(frozen=True)
class Teacher:
    """One [[teacher]] of the file. Prices are in $ per million tokens."""

    url: Annotated[str, Field(pattern=r"^https?://[^@?#\s]+$")]
    """The endpoint, as in `http://127.0.0.1:8000/v1`; no user and no query, where keys hide."""
    model: Annotated[str, Field(min_length=1)]
    usd_per_million_in: Price
    usd_per_million_out: Price
    name: str = ""
    """How it is called in every file; default: the model."""
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

    def most_usd(self, state: State) -> float:
        """The most that one answer to a state can cost, in $: in the byte-level vocabularies of today no token is
        less than a byte of text."""
        text = sum(len(role) + len(content.encode()) + TOKENS_PER_MESSAGE for role, content in state.messages)
        return self.usd(text + self.overhead_tokens, self.max_tokens)


@dataclass(frozen=True)
class _File:
    teacher: list[Teacher]


_FILE = TypeAdapter(_File)


def read_teachers(path: Path) -> list[Teacher]:
    """Returns the teachers of a TOML file, in its order.

    BadInput, naming the file, the teacher and the field, on one without a price, on an unknown field (its value,
    which may be a key, is not repeated), and on a teacher that is there twice: it would have two votes."""
    try:
        found = _FILE.validate_python(tomllib.loads(path.read_text("utf-8-sig")), extra="forbid")
    except (OSError, ValueError) as e:
        why = first_fault(e) if isinstance(e, ValidationError) else e
        raise BadInput(
            f"{path}: {why}; each [[teacher]] has its prices, 0 for none, and never a key: key_env names the environment "
            "variable (docs/integrations.md)"
        ) from None
    teachers = [replace(t, name=t.name or t.model) for t in found.teacher]
    check_once(((f"teacher {t.name!r}", t.name) for t in teachers), path)
    check_once(((f"the model of {t.name!r}", (t.url.rstrip("/"), t.model)) for t in teachers), path)
    return teachers


@dataclass
class Answer:
    """A line: what a call brought."""

    state: str
    teacher: str
    usd: float
    """Where the endpoint does not say: the most that it can have cost."""
    text: str = ""
    finish: str = ""
    """Why it ended: `stop`, or `length` where max_tokens cut it."""
    model: str = ""
    """Under which name it came."""
    prompt_tokens: int | None = None
    """None: the endpoint does not say."""
    completion_tokens: int | None = None
    seconds: float = 0.0
    """From the first attempt to the last, waits included."""
    error: str = ""
    """Why there is no answer; it is then asked for again."""

    @property
    def where(self) -> str:
        """Whose it is, for messages."""
        return f"teacher {self.teacher!r} at state {self.state!r}"


@dataclass(frozen=True)
class Folder:
    """A folder that `ask_teachers` wrote, whole or not."""

    states: Sequence[State]
    teachers: Sequence[Teacher]
    lines: Sequence[Answer]
    budget: float
    """The cap of the last session, in $."""

    @cached_property
    def answers(self) -> dict[tuple[str, str], Answer]:
        """By state and teacher; calls that brought none are left out."""
        return {(a.state, a.teacher): a for a in self.lines if not a.error}

    @property
    def missing(self) -> list[tuple[State, Teacher]]:
        """Calls without an answer, in order."""
        return [(s, t) for s in self.states for t in self.teachers if (s.state_id, t.name) not in self.answers]

    @property
    def usd(self) -> float:
        """All that was spent; what is not known, at its most."""
        return sum(a.usd for a in self.lines)

    def finding(self) -> Finding:
        """Whether they are cheap and fast enough."""
        names, missing = [t.name for t in self.teachers], {s.state_id for s, _ in self.missing}
        answered = [s.state_id for s in self.states if s.state_id not in missing]
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        for a in self.lines:  # of failed attempts and earlier sessions too
            seconds[a.state, a.teacher] += a.seconds
        return judge(
            whole=f"{len(self.missing)} answers are missing; --resume it" if missing else "",
            traces=len({s.trace_id for s in self.states}),
            seconds=[max(seconds[state, name] for name in names) for state in answered],
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
    table: list[list[object]] = [["teacher", "answers", "cut", "tokens in", "tokens out", "$", "s, slowest"]]
    for t in found.teachers:
        lines = [a for a in found.lines if a.teacher == t.name]
        got = [a for a in lines if not a.error]
        table.append([
            t.name, f"{len(got)} of {len(found.states)}", sum(a.finish == "length" for a in got),
            sum(a.prompt_tokens or 0 for a in got), sum(a.completion_tokens or 0 for a in got),
            sum(a.usd for a in lines), max((a.seconds for a in lines), default=None),
        ])  # fmt: skip
    return table
