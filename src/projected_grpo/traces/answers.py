"""What teachers answered, one JSON line an answer (`answers.jsonl`), and what that adds up to: dollars, seconds."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import lines_of, row_of
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.traces.price_table import Teacher
from projected_grpo.traces.record import State
from projected_grpo.verdicts.teachers import Asked, p95

KIND, STATES, NAME = "teachers", "states.jsonl.gz", "answers.jsonl"
Call = tuple[str, str]
"""(state_id, teacher): what is asked once."""


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


_ANSWER, _STATE = TypeAdapter(Answer), TypeAdapter(State)


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

    def asked(self) -> Asked:
        """As the verdict takes it."""
        names, missing = [t.name for t in self.teachers], {s.state_id for s, _ in self.missing}
        return Asked(
            whole=self.whole,
            traces=len({s.trace_id for s in self.states}),
            seconds=[
                max(self.seconds[s.state_id, name] for name in names) for s in self.states if s.state_id not in missing
            ],
            usd=self.usd,
            unknown_usd=sum(a.usd for a in self.lines if a.prompt_tokens is None),
            free=[t.name for t in self.teachers if not t.usd(1, 1)],
            models={name: frozenset(a.model for a in self.answers.values() if a.teacher == name) for name in names},
            over_cap=self.usd - self.budget,
        )


def read_answers(folder: Path) -> Folder:
    """Returns what teachers answered, so far; BadInput where it is no such folder."""
    manifest = read_manifest(folder)
    if manifest["kind"] != KIND:
        raise BadInput(f"{folder}: a run of kind {manifest['kind']}, where teachers' answers are expected")
    path, states = folder / NAME, folder / STATES
    # A kill may have torn the last line.
    lines = [(n, line) for n, line in lines_of(path) if line.endswith(b"\n")] if path.exists() else []
    return Folder(
        [row_of(_STATE, line, f"{states}:{number}") for number, line in lines_of(states)],
        [Teacher(**row) for row in manifest["teachers"]],
        [row_of(_ANSWER, line, f"{path}:{number}") for number, line in lines],
        manifest.get("budget", 0.0),
    )


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
