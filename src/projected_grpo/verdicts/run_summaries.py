"""What the verdicts take from finished runs, in one small file: tables can then be made again where no step file is.

    write_summaries(path, (directory, load_runs(directory)))       a run is some 30 KB, its step files some 3 MB
    found = read_summaries(path);  runs_at(directory or such a file)

Replicates of several machines are brought together in one such file, of directories and of files: (place, found)
each."""

import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from loophole_grader import LABELS
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import read_jsonl, write_atomic
from projected_grpo.ledger.rates import TITLES
from projected_grpo.verdicts.finished_runs import Found, Run, load_runs

VERSION = 1
SUFFIX = ".runs.jsonl.gz"
DIGITS = 7
"""Of what is measured. A share is kept as it is: thresholds lie where counts of rollouts do, and 10 of 30 minus 1 of
30 is 30 points on either side of the file or on neither."""
EXACT = frozenset({*TITLES, *LABELS, "flat_groups", "at_clip", "lost", "unknown", "ours", "untrained"})
"""Series that are shares: of rollouts, groups, tokens."""
_RUN = TypeAdapter(Run)


def is_summary(path: Path) -> bool:
    return path.name.endswith(SUFFIX)


def runs_at(path: Path) -> Found:
    """Returns the runs below a directory, or of a file of summaries. BadInput as in `load_runs` and
    `read_summaries`."""
    return read_summaries(path) if is_summary(path) else load_runs(path)


def write_summaries(path: Path, *studies: tuple[Path, Found]) -> int:
    """Writes one JSON line a run, behind one that says which runs are not in it, and why. Runs are named as seen from
    their study's directory; copies of one run under one name are one. Returns how many runs it holds. BadInput when
    two runs have one name, or the file cannot be written."""
    rows: dict[str, dict[str, Any]] = {}
    for root, found in studies:
        for run in found.runs:
            row = _summary(run, root)
            first = rows.get(row["path"], row)
            # V may have been extracted again in between.
            if any(row[name] != first[name] for name in row if name != "re_extracted"):
                raise BadInput(f"{run.path}: another run has this name; rename one, or name only the runs that are new")
            rows[row["path"]] = first if first["re_extracted"] else row
    lost = [[_name(run, root), why] for root, found in studies for run, why in found.left_out]
    lost = [[name, why] for name, why in lost if name not in rows]  # cut in one place, finished in another
    head = {"run_summaries": VERSION, "runs": len(rows), "left_out": lost}
    lines = [json.dumps(line, allow_nan=False, separators=(",", ":")) for line in (head, *rows.values())]
    write_atomic(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    return len(rows)


def _name(run: Path, root: Path) -> str:
    """As seen from `root`; a run that was given by itself by its folder's name."""
    return run.name if run == root else run.relative_to(root).as_posix()


def read_summaries(path: Path) -> Found:
    """Returns the runs of such a file, each named as if it lay below it. BadInput on one of another version."""
    head, *rows = read_jsonl(path) or [{}]
    if head.get("run_summaries") != VERSION:
        raise BadInput(f"{path}: no run summaries of version {VERSION}; write it again with `just results DIR --out`")
    left_out = tuple((path / run, why.partition(";")[0]) for run, why in head.get("left_out", []))
    for row in rows:
        row["path"] = path / row["path"]
        if again := row.pop("anew", None):  # its older name
            row["re_extracted"] = again["records"]
    return Found(tuple(map(_RUN.validate_python, rows)), left_out)


def _summary(run: Run, root: Path) -> dict[str, Any]:
    """A run as JSON. Which rollouts an evaluation is of, in few bytes: a prompt is its hash, as in a file that is
    read."""

    def named(prompt: str) -> str:
        return prompt if is_summary(root) else hashlib.sha256(prompt.encode()).hexdigest()[:8]

    tested = {str(done): sorted([named(prompt), i] for prompt, i in of) for done, of in run.tested.items()}
    row = _short(_RUN.dump_python(run, mode="json", exclude={"tested", "facts", "mechanisms"}))
    return {**row, "path": _name(run.path, root), "facts": run.facts, "tested": tested, "mechanisms": run.mechanisms}


def _short(value: Any, name: str | int = "") -> Any:
    if isinstance(value, float) and name not in EXACT:
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _short(part, key) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_short(part, name) for part in value]
    return value
