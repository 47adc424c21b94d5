"""What the verdicts take from finished runs, in one small file: tables can then be made again where no step file is.

    write_summaries(path, (directory, load_runs(directory)))       a run is some 30 KB, its step files some 3 MB
    found = read_summaries(path);  runs_at(directory or such a file)

Units that ran on several machines are brought together in one such file, of directories and of files: (place, found) each.
"""

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import read_jsonl, write_atomic
from projected_grpo.ledger.folder import plain
from projected_grpo.verdicts.finished_runs import Found, MechanismOf, Run, load_runs
from projected_grpo.verdicts.step_numbers import SERIES, SHARES

VERSION = 1
SUFFIX = ".runs.jsonl.gz"
ENDINGS = (SUFFIX, ".losses.json", ".json")
"""Of files that a study is kept in: its runs, or T7's units (extraction_file.py)."""
PLAIN, KEPT_IN = ("losses.json",), ("losses",)
"""A file that scripts write under one name, and the folder in a study's that they write it to."""
DIGITS = 7
"""Of what is measured. A share is kept as it is: thresholds lie where counts of rollouts do, and 10 of 30 minus 1 of 30 is
30 points on either side of the file or on neither."""
EXACT = frozenset({*SHARES, "at_clip", "lost", "unknown", "ours", "untrained"})
_FIELDS = tuple(f.name for f in dataclasses.fields(Run) if f.name != "re_extracted")


def is_summary(path: Path) -> bool:
    """Whether a path names a file of summaries."""
    return path.name.endswith(SUFFIX)


def study_of(path: Path) -> str:
    """A study's name: its directory's, or that of the file that it is kept in, without the ending. A file with a plain name,
    DIR/losses/losses.json, is DIR's."""
    if path.name in PLAIN and (places := [place for place in path.absolute().parts[:-1] if place not in KEPT_IN]):
        return places[-1]
    return next((path.name.removesuffix(end) for end in ENDINGS if path.name.endswith(end)), path.name)


def default_out(path: Path, name: str) -> Path:
    """Where a script writes unless told: `name` in a directory; for a file that a study is kept in, which has nothing below
    it, out/NAME/STUDY: toy-dose.runs.jsonl.gz gives out/results/toy-dose."""
    return path / name if path.is_dir() else Path("out") / name / study_of(path)


def runs_at(path: Path, mechanism_of: MechanismOf | None = None) -> Found:
    """The runs below a directory, or of a file of summaries. BadInput as in `load_runs` and `read_summaries`."""
    return read_summaries(path) if is_summary(path) else load_runs(path, mechanism_of)


def write_summaries(path: Path, *studies: tuple[Path, Found]) -> int:
    """One JSON line a run, behind one that says what the file is and which runs are not in it, and why. Runs are named as
    seen from their study's directory, or as in the file that it was read from; of copies of one run the first is
    taken. How many runs it then holds.
    BadInput when the name has another ending, two runs have one name, or the file cannot be written."""
    if not is_summary(path):
        raise BadInput(f"{path}: a file of run summaries ends in {SUFFIX}; name it so")
    lost = [[_name(run, root), why] for root, found in studies for run, why in found.left_out]
    rows = _each_once([(run.path, plain(_summary(run, root))) for root, found in studies for run in found.runs])
    head = {"run_summaries": VERSION, "runs": len(rows), **({"left_out": lost} if lost else {})}
    lines = [json.dumps(line, allow_nan=False, separators=(",", ":")) for line in (head, *rows)]
    write_atomic(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    return len(rows)


def _each_once(rows: Sequence[tuple[Path, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Without the copies: what is equal in all but its name. `re_extracted` may have been measured in between. BadInput on
    two runs of one name."""
    once: dict[str, tuple[Path, dict[str, Any]]] = {}
    for place, row in rows:
        key = json.dumps({**row, "path": "", "re_extracted": None}, sort_keys=True)
        there, first = once.setdefault(key, (place, row))
        once[key] = (there, {**row, **first})
    names: dict[str, Path] = {}
    for place, row in once.values():
        if other := names.get(row["path"]):
            raise BadInput(
                f"{other} and {place}: two runs of one name; where both are wanted rename one, else give only what is new "
                f"in {place.parent} (its runs can be named one by one)"
            )
        names[row["path"]] = place
    return [row for _, row in once.values()]


def _name(run: Path, root: Path) -> str:
    """As seen from `root`; a run that was given by itself by its own folder's name."""
    return run.name if run == root else run.relative_to(root).as_posix()


def read_summaries(path: Path) -> Found:
    """The runs of such a file, each named as if it lay below it. BadInput on one that is damaged or of another version."""
    rows = read_jsonl(path)
    head = rows[0] if rows else {}
    if head.get("run_summaries") != VERSION:
        raise BadInput(f"{path}: no run summaries of version {VERSION}; write it again with `just summarise`")
    runs = []
    for number, row in enumerate(rows[1:], 2):
        try:
            runs.append(_run(row, path))
        except (KeyError, TypeError, ValueError) as e:
            why = " ".join(str(e).split())
            raise BadInput(f"{path}:{number}: damaged ({why:.200}); write it again with `just summarise`") from e
    return Found(tuple(runs), tuple((path / run, _then(why)) for run, why in head.get("left_out", [])), path)


THEN = "when the summary was written: "


def _then(why: str) -> str:
    """Why a run is not in the file, without what could be done about it where it lay."""
    return f"{THEN}{why.removeprefix(THEN).partition(';')[0]}"


def _summary(run: Run, root: Path) -> dict[str, Any]:
    """A run as JSON. Which rollouts an evaluation is of, in few bytes: what of one prompt is one number."""
    row = {name: _short(getattr(run, name)) for name in _FIELDS if name not in ("tested", "facts", "mechanisms")}
    row |= {"re_extracted": _short(dataclasses.asdict(run.re_extracted))} if run.re_extracted else {}
    named = str if is_summary(root) else _of_prompt  # of a file they are short already
    tested = {done: sorted([named(prompt), i] for prompt, i in own) for done, own in run.tested.items()}
    return {**row, "path": _name(run.path, root), "facts": run.facts, "tested": tested,
            "mechanisms": run.mechanisms}  # fmt: skip


def _of_prompt(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()[:8]


def _short(value: Any, name: str | int = "") -> Any:
    if isinstance(value, float) and name not in EXACT:
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _short(own, key) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_short(own, name) for own in value]
    return value


def _run(row: dict[str, Any], place: Path) -> Run:
    """ValueError (pydantic's) on a value of another kind than the field's."""
    run = _reader().validate_python({**row, "path": place / row["path"]})
    if lacking := [name for name in SERIES if name not in run.series]:
        raise ValueError(f"its series lack {lacking[0]!r}")
    return run


@cache
def _reader() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Run)
