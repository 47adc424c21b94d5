"""Where a chain stands: each link's state, how long it took, the last line of its log. From the chain's folder, and from
the queue where it can be asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from projected_grpo.chains.here import last_lines, progress_of
from projected_grpo.chains.links import Link, read_chain
from projected_grpo.chains.queueing import QueuedLink
from projected_grpo.chains.run_link import is_done, is_running, note_of

State = Literal["done", "running", "waiting", "failed", "cut", "stopped", "not queued", "unknown"]
CUES: Mapping[State, str] = {
    "done": "🟢", "running": "🔵", "waiting": "⚪", "failed": "🔴", "cut": "🟠", "stopped": "⚫", "not queued": "⚪",
    "unknown": "⚪",
}  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """One link of a chain at this moment."""

    link: Link
    state: State
    note: str
    """What the state alone does not say: a job's id, an exit code, who stopped it."""
    seconds: float | None
    last_line: str


def standings(home: Path, jobs: Mapping[str, QueuedLink] | None) -> list[Standing]:
    """Every link of the chain in `home`; `jobs` None = its queue cannot be asked. BadInput as in read_chain."""
    chain = read_chain(home)
    states: dict[str, State] = {}
    out = []
    for link in chain.values():
        state, note = _state(link, home, chain, jobs, states)
        states[link.name] = state
        out.append(Standing(link, state, note, _seconds(link, home, state), _last_line(link, home)))
    return out


def _state(
    link: Link,
    home: Path,
    chain: Mapping[str, Link],
    jobs: Mapping[str, QueuedLink] | None,
    before: Mapping[str, State],
) -> tuple[State, str]:
    job = (jobs or {}).get(link.name)
    if is_done(link, home, chain):
        return "done", ""
    if is_running(link.name, home):
        share = progress_of(link)
        return "running", f"{share:.0%}" if share else ""
    if job:
        return "waiting", f"job {job.job_id}"
    code = note_of(link.name, home).get("code")
    if code:
        return "failed", f"exit code {code}"
    if "started" in note_of(link.name, home) and code is None:
        return "cut", "queue it again to go on"
    if lost := [n for n in link.needs if before.get(n) in ("failed", "cut", "stopped")]:
        return "stopped", f"needs {lost[0]}"
    return ("unknown" if jobs is None else "not queued"), ""


def _seconds(link: Link, home: Path, state: State) -> float | None:
    """How long the latest attempt took, or has taken so far."""
    note = note_of(link.name, home)
    if "started" not in note or ("ended" not in note and state != "running"):
        return None
    end = datetime.now(UTC) if state == "running" else datetime.fromisoformat(note["ended"])
    return (end - datetime.fromisoformat(note["started"])).total_seconds()


def _last_line(link: Link, home: Path) -> str:
    lines = [line for line in last_lines(link.name, home, 12) if line.strip()]
    told = [line for line in lines if not line.startswith(("I argv:", "I out:"))]
    return told[-1].strip() if told else ""


def took(seconds: float | None) -> str:
    """`1 h 02 min`, `3 min 20 s`, `7 s`, or `-`."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
