"""What the verdicts take from finished runs, in one small file: tables can then be made again where no step file is.

    write_summaries(path, directory, load_runs(directory).runs)        a run is some 30 KB, its step files some 3 MB
    found = read_summaries(path);  runs_at(directory or such a file)

The runs were checked against their fingerprints when the summary was written. That of each run's rollouts stands in it, and
whoever has the step files can compare. A summary proves nothing by itself.
"""

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import read_jsonl, write_atomic
from projected_grpo.ledger.folder import plain
from projected_grpo.verdicts.finished_runs import Found, MechanismOf, Run, load_runs

VERSION = 1
SUFFIX = ".runs.jsonl.gz"
DIGITS = 7
"""Of every number: a rate over 64 rollouts is exact in six."""
_BY_STEPS = ("evals", "tested", "flaws")
_FIELDS = tuple(f.name for f in dataclasses.fields(Run))


def is_summary(path: Path) -> bool:
    """Whether a path names a file of summaries."""
    return path.name.endswith(SUFFIX)


def default_out(path: Path, name: str) -> Path:
    """Where a script writes unless told: `name` in a directory with runs; for a file of summaries, which has nothing below
    it, out/NAME/STEM: toy-dose.runs.jsonl.gz gives out/results/toy-dose."""
    return Path("out") / name / path.name.removesuffix(SUFFIX) if is_summary(path) else path / name


def runs_at(path: Path, mechanism_of: MechanismOf | None = None) -> Found:
    """The runs below a directory, or of a file of summaries. BadInput as in `load_runs` and `read_summaries`."""
    return read_summaries(path) if is_summary(path) else load_runs(path, mechanism_of)


def write_summaries(path: Path, root: Path, runs: Sequence[Run]) -> None:
    """One JSON line a run, behind one that says what the file is. Runs are named as seen from `root`. BadInput when the
    name has another ending, or the file cannot be written."""
    if not is_summary(path):
        raise BadInput(f"{path}: a file of run summaries ends in {SUFFIX}; name it so")
    lines = [{"run_summaries": VERSION, "runs": len(runs)}, *(_summary(run, root) for run in runs)]
    text = "".join(json.dumps(plain(line), allow_nan=False, separators=(",", ":")) + "\n" for line in lines)
    write_atomic(path, gzip.compress(text.encode(), mtime=0))


def read_summaries(path: Path) -> Found:
    """The runs of such a file, each named as if it lay below it. BadInput on one that is damaged or of another version."""
    rows = read_jsonl(path)
    head = rows[0] if rows else {}
    if head.get("run_summaries") != VERSION:
        raise BadInput(f"{path}: no run summaries of version {VERSION}; write it again with `just summarise`")
    if head.get("runs") != len(rows) - 1:
        raise BadInput(f"{path}: holds {len(rows) - 1} runs, its first line says {head.get('runs')}; write it again")
    runs = []
    for number, row in enumerate(rows[1:], 2):
        if missing := [name for name in _FIELDS if name not in row]:
            raise BadInput(f"{path}:{number}: lacks {missing[0]}; write it again with `just summarise`")
        runs.append(_run(row, path))
    return Found(tuple(runs), (), path)


def _summary(run: Run, root: Path) -> dict[str, Any]:
    """A run as JSON. Which rollouts an evaluation is of, in few bytes: what of one prompt is one number."""
    row = {name: _short(getattr(run, name)) for name in _FIELDS if name not in ("tested", "facts")}
    tested = {done: sorted([_of_prompt(prompt), i] for prompt, i in own) for done, own in run.tested.items()}
    return {**row, "path": run.path.relative_to(root).as_posix(), "facts": run.facts, "tested": tested}


def _of_prompt(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()[:8]


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _short(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_short(own) for own in value]
    return value


def _run(row: dict[str, Any], place: Path) -> Run:
    own: dict[str, Any] = {name: row[name] for name in _FIELDS}
    own |= {name: {int(done): value for done, value in row[name].items()} for name in _BY_STEPS}
    own["tested"] = {done: frozenset((p, i) for p, i in of) for done, of in own["tested"].items()}
    own["beside"] = {folder: {int(d): rates for d, rates in of.items()} for folder, of in row["beside"].items()}
    own |= {"path": place / row["path"], "step_hashes": tuple(row["step_hashes"])}
    return Run(**own)
