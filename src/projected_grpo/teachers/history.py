"""What the journal adds up to: answers by state and teacher, dollars, seconds. Read back from the files alone."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.teachers.journal import NAME, Answered, Event, Lost, Sent, Session, read_events
from projected_grpo.teachers.price_table import PRICES, Teacher, check_once
from projected_grpo.teachers.states import State, read_states, states_hash
from projected_grpo.verdicts.teachers import Asked

KIND = "teachers"
STATES = "states.jsonl.gz"
Call = tuple[str, str]
"""(state_id, teacher): what is asked once."""
NOTHING = Decimal(0)


@dataclass
class History:
    """Folded from events, in their order."""

    answers: dict[Call, Answered] = field(default_factory=dict)
    calls: dict[int, Call] = field(default_factory=dict)
    """Attempt -> what it asked."""
    lost: dict[Call, list[Lost]] = field(default_factory=lambda: defaultdict(list))
    spent: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    """Teacher -> $ of its settled attempts, and of those that no event settles once their session is over."""
    unknown: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    """The part of it that is taken at its most."""
    seconds: dict[Call, float] = field(default_factory=lambda: defaultdict(float))
    """From the first attempt to the answer (or the last failure), sessions added up."""
    over_cap: Decimal = Decimal("-Infinity")
    """The most that spent and promised dollars were above their session's cap at any instant."""
    _under_way: dict[int, Sent] = field(default_factory=dict)
    _first: dict[Call, float] = field(default_factory=dict)
    _until: dict[Call, float] = field(default_factory=dict)
    """Of calls that this session has begun: its first attempt, its last failure."""
    _cap: Decimal | None = None
    _last: float = 0.0

    @property
    def usd(self) -> Decimal:
        """All that was spent."""
        return sum(self.spent.values(), NOTHING)

    def add(self, event: Event) -> None:
        """Take in the next event. ValueError where no run of this program writes it there."""
        if isinstance(event, Session):
            self.end_session()
            self._cap = event.budget
        elif self._cap is None:
            raise ValueError("an attempt before any session")
        elif event.at < self._last:
            raise ValueError(f"at {event.at:g} s, after an event at {self._last:g} s")
        elif isinstance(event, Sent):
            self._send(event)
        else:
            self._settle(event)
        self._last = event.at
        held = sum((s.usd for s in self._under_way.values()), NOTHING)
        if self._cap is not None:
            self.over_cap = max(self.over_cap, self.usd + held - self._cap)

    def _send(self, sent: Sent) -> None:
        call = (sent.state, sent.teacher)
        if sent.attempt != len(self.calls):
            raise ValueError(f"attempt {sent.attempt} where {len(self.calls)} comes next")
        if call in self.answers:
            raise ValueError(f"{call} is asked again after its answer")
        if any(self.calls[n] == call for n in self._under_way):
            raise ValueError(f"{call} is asked twice at once")
        self.calls[sent.attempt] = call
        self._under_way[sent.attempt] = sent
        self._first.setdefault(call, sent.at)

    def _settle(self, event: Answered | Lost) -> None:
        sent = self._under_way.pop(event.attempt, None)
        if sent is None:
            raise ValueError(f"attempt {event.attempt} ends without having been sent, or twice")
        call = self.calls[event.attempt]
        self.spent[sent.teacher] += event.usd
        if isinstance(event, Lost):
            self.unknown[sent.teacher] += event.usd
            self.lost[call].append(event)
            self._until[call] = event.at
            return
        self.answers[call] = event
        self.seconds[call] += event.at - self._first.pop(call)
        if event.prompt_tokens is None:
            self.unknown[sent.teacher] += event.usd

    def end_session(self) -> None:
        """What is under way will be settled by nobody: it may have been paid for."""
        for sent in self._under_way.values():
            self.spent[sent.teacher] += sent.usd
            self.unknown[sent.teacher] += sent.usd
            self._until[sent.state, sent.teacher] = self._last
        for call, first in self._first.items():
            self.seconds[call] += self._until[call] - first
        for of_session in (self._under_way, self._first, self._until):
            of_session.clear()


def history_of(events: Sequence[Event], path: Path) -> History:
    """The history of a journal whose last session is over. BadInput on events that no run writes."""
    found = History()
    for number, event in enumerate(events, 1):
        try:
            found.add(event)
        except (ValueError, TypeError) as e:
            raise BadInput(f"{path}: event {number}: {e}; the file is not as it was written") from e
    found.end_session()
    return found


def journal_sha256(folder: Path) -> str:
    """Of the journal's bytes: what a finished run's manifest says of it."""
    return hashlib.sha256((folder / NAME).read_bytes()).hexdigest()


def teachers_of(manifest: dict[str, Any]) -> list[Teacher]:
    """The teachers as the manifest has them. BadInput on what the table of no run is: damaged, or a teacher twice."""
    found = []
    try:
        for row in manifest["teachers"]:
            exact: dict[str, Any] = {name: Decimal(row[name]) for name in (*PRICES, "temperature")}
            found.append(Teacher(**{**row, **exact}))
            if found[-1].told() != row or not all(n.is_finite() and n >= 0 for n in exact.values()):
                raise ValueError(f"teacher {row['name']!r}")
    except (KeyError, TypeError, ValueError, ArithmeticError) as e:
        raise BadInput(f"manifest.json: its teachers are damaged ({type(e).__name__}: {e}); ask again") from e
    check_once(found, "manifest.json")
    return found


@dataclass(frozen=True)
class Folder:
    """A folder that `ask_teachers` wrote, whole or not."""

    states: Sequence[State]
    teachers: Sequence[Teacher]
    history: History
    whole: str
    """Why it is not the whole of a finished run; empty if it is."""

    @property
    def missing(self) -> list[Call]:
        """Calls without an answer, in order."""
        every = ((s.state_id, t.name) for s in self.states for t in self.teachers)
        return [call for call in every if call not in self.history.answers]

    def answers_to(self, state: State) -> list[Answered]:
        """One answer of each teacher, in the order of the price table. KeyError where one is missing."""
        return [self.history.answers[state.state_id, t.name] for t in self.teachers]

    def asked(self) -> Asked:
        """As the verdict takes it."""
        missing = set(self.missing)
        names = [t.name for t in self.teachers]
        seconds = [
            max(self.history.seconds[s.state_id, name] for name in names)
            for s in self.states
            if not any((s.state_id, name) in missing for name in names)
        ]
        under = {name: frozenset(a.model for (_, t), a in self.history.answers.items() if t == name) for name in names}
        return Asked(
            whole=self.whole,
            traces=len({s.trace_id for s in self.states}),
            seconds=seconds,
            usd=self.history.usd,
            unknown_usd=sum(self.history.unknown.values(), NOTHING),
            free=[t.name for t in self.teachers if t.free],
            models=under,
            over_cap=self.history.over_cap,
        )


def _why_not_whole(folder: Path, manifest: dict[str, Any], missing: int) -> str:
    if missing:
        return f"{missing} answers are missing; --resume it"
    if not manifest["finished"]:
        return "not finished; --resume it"
    if manifest.get("journal_sha256") != journal_sha256(folder):
        return f"{NAME} is not the file that the run ended with"
    return ""


def _check_paid(folder: Path, teachers: Sequence[Teacher], history: History) -> None:
    """BadInput where an answer did not cost what its teacher's prices say: they are not those that it was asked at."""
    of = {teacher.name: teacher for teacher in teachers}
    for (state, name), a in history.answers.items():
        known = a.prompt_tokens is not None and a.completion_tokens is not None
        if known and a.usd != (usd := of[name].usd(a.prompt_tokens or 0, a.completion_tokens or 0)):
            raise BadInput(
                f"{folder}: {name!r} at state {state!r} cost ${a.usd}, by the prices in manifest.json ${usd}: edited since; "
                "ask again"
            )


def read_answers(folder: Path) -> Folder:
    """What teachers answered, from the folder alone. BadInput where it is none, is damaged, or names states or teachers that
    are not its own; a run that is not finished is read as far as it is, and says so in `whole`."""
    manifest = read_manifest(folder)
    if manifest["kind"] != KIND:
        raise BadInput(f"{folder}: a run of kind {manifest['kind']}, where teachers' answers are expected")
    try:
        states, teachers = read_states(folder / STATES), teachers_of(manifest)
    except BadInput as e:
        raise BadInput(f"{folder}: {e}") from e
    if states_hash(states) != manifest.get("states_hash"):
        raise BadInput(f"{folder / STATES}: not the states that were asked about (manifest.json: states_hash)")
    events, _ = read_events(folder / NAME)
    history = history_of(events, folder / NAME)
    known = {(s.state_id, t.name) for s in states for t in teachers}
    if strange := set(history.calls.values()) - known:
        raise BadInput(f"{folder / NAME}: asks {min(strange)}, which is none of the run's states and teachers")
    _check_paid(folder, teachers, history)
    found = Folder(states, teachers, history, "")
    return Folder(states, teachers, history, _why_not_whole(folder, manifest, len(found.missing)))
