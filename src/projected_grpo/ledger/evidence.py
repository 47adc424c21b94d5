"""Is a run's directory the whole of what the run wrote? A fingerprint at its end, and the check against it.

    seal(run)                           when a run ends: writes `evidence` and `finished` into its manifest
    check(run, read_manifest(run))      before it is judged: '' or why it is no evidence

A judge that reads the rows as well hands `check` a `visit`: every file is then unpacked and parsed once for both.

It finds what is missing, edited or added. Somebody who writes the manifest anew as well is not found: it is no signature.
"""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS
from projected_grpo.ledger import module_file
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import parsed, read_jsonl
from projected_grpo.ledger.folder import read_manifest, update_manifest
from projected_grpo.ledger.step_file import EVALUATIONS, evaluations_in, step_path, steps_in

CHANGED = "not the files that the run ended with"
ROUNDS, DEPLOYED = "rounds.jsonl", "deployed.safetensors"
"""What a run may end with beside its rows: a replica's record of its rounds; the coordinates that its arm deploys, where
they are not those that it trained."""
REQUIRED = ("steps", "rows", "sha256", "rollouts_sha256", "manifest_sha256")
"""Of `evidence`: without one of them nothing else is checked against what the run was."""
BESIDE = {"modules_sha256": module_file.NAME, "rounds_sha256": ROUNDS, "deployed_sha256": DEPLOYED}
"""What has come since, and of which file: a run that ended before has no fingerprint of it."""


def read_rounds(run: Path) -> list[dict[str, Any]]:
    """A replica's record of its outer rounds, a line each (replicas/record.py); none where there is no record."""
    return read_jsonl(run / ROUNDS) if (run / ROUNDS).exists() else []


@dataclass(frozen=True)
class File:
    """A step file, or one of a held-out evaluation, as it lies on disk: nothing in it was held against the schema."""

    path: Path
    folder: str
    """Of step_file.EVALUATIONS; empty for a step file."""
    place: int
    """The step; of an evaluation, the steps done before it."""
    rows: list[dict[str, Any]]
    rollouts: bytes = b""
    """What the student wrote in a step file: problem and completion ids, a line of JSON each."""


Visit = Callable[[File], None]


def _pass_by(_file: File) -> None:
    """Nobody else reads them."""


def fingerprint(run: Path) -> dict[str, Any]:
    """What a run's step files and evaluations hold.

    steps, rows: how many step files there are, and rows in them. sha256: over name and decompressed bytes of the step
    files in order, then of the evaluations. rollouts_sha256: over problem and completion ids of the student's rows in
    order, whatever arm and seed they name; None without such rows. modules_sha256: over the decompressed bytes of the side
    file of modules; rounds_sha256, deployed_sha256: of ROUNDS and DEPLOYED as they lie on disk; each None without its file.
    BadInput on a gap or a damaged file.
    """
    return _read(run)[0]


def seal(run: Path) -> None:
    """Mark a run as finished, with its fingerprint. One that is finished keeps what it has: a second --resume writes no
    rows, so what differs by then was changed by others."""
    if not read_manifest(run).get("finished"):
        sealed = {**fingerprint(run), "manifest_sha256": manifest_sha256(read_manifest(run))}
        update_manifest(run, evidence=sealed, finished=True)


def manifest_sha256(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest's canonical JSON, but for what marks the end."""
    said = {name: value for name, value in manifest.items() if name not in ("evidence", "finished")}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def digests(run: Path, known: Mapping[str, str] = {}) -> dict[str, str]:
    """SHA-256 of a run's step files, evaluations and side file as they lie on disk, by their path in it; `known` ones are
    not read, but for the side file, which grows."""
    paths = [path for place in (run, *(run / name for name in EVALUATIONS)) for path in place.glob("step_*.jsonl.gz")]
    names = {path.relative_to(run).as_posix(): path for path in paths}
    found = {name: known.get(name) or hashlib.sha256(path.read_bytes()).hexdigest() for name, path in names.items()}
    if (side := run / module_file.NAME).exists():
        found[module_file.NAME] = hashlib.sha256(side.read_bytes()).hexdigest()
    return found


def check(run: Path, manifest: Mapping[str, Any], visit: Visit = _pass_by) -> str:
    """Why a run with step files is no evidence, or an empty string if it is.

    `visit` sees the files in order, one in memory at a time: the steps, then the evaluations, as far as they can be read.
    What it has seen counts for nothing unless the answer is empty.
    """
    if not manifest.get("finished"):
        return "not finished; continue it with --resume"
    written = manifest.get("evidence")
    if not written:
        return "its manifest has no `evidence`, the fingerprint of its rows; repeat the run"
    if lacking := [name for name in REQUIRED if name not in written]:
        return f"the `evidence` of its manifest lacks {lacking[0]}; {CHANGED}"
    try:
        now, rows_of = _read(run, visit)
    except BadInput as e:
        return f"no evidence: {e}"
    config, kind = manifest["config"], manifest["kind"]
    done = manifest.get("steps_done", config["steps"]) if kind == "train" else written["steps"]
    if now["steps"] != done:
        return f"{now['steps']} step files, but its manifest says {done} steps; {CHANGED}"
    each = {"train": config.get("prompts_per_step", 0) * config.get("group_size", 0),
            "teacher_pool": config.get("group_size", 0)}.get(kind)  # fmt: skip
    if each and (odd := next((s for s, n in enumerate(rows_of) if n != each), None)) is not None:
        return f"{step_path(run, odd).name} holds {rows_of[odd]} rows, but its config says {each} a step; {CHANGED}"
    if put := [file for name, file in BESIDE.items() if now[name] and name not in {*written, *_writes(config)}]:
        return f"{put[0]} was put there afterwards; {CHANGED}"
    for name in written:
        if name != "manifest_sha256" and now.get(name) != written[name]:
            return f"its {name} is {now.get(name)}, its manifest says {written[name]}; {CHANGED}"
    if written["manifest_sha256"] != manifest_sha256(manifest):
        return "its manifest was edited after the run had ended; put it back, or repeat the run"
    return ""


def _writes(config: Mapping[str, Any]) -> set[str]:
    """Of which files beside its rows a run says itself that it writes them: of an older version's nothing else is known. A
    replica has ROUNDS; only an arm with a page of its own deploys what it has not trained."""
    arm = ARMS.get(config.get("arm", ""))
    return {
        *(["rounds_sha256"] if config.get("meet") else []),
        *(["deployed_sha256"] if arm and arm.page else []),
    }


def _read(run: Path, visit: Visit = _pass_by) -> tuple[dict[str, Any], list[int]]:
    """The fingerprint, and the number of rows of each step."""
    whole, rollouts = hashlib.sha256(), hashlib.sha256()
    rows_of, student = [], False
    for step in steps_in(run):
        rows = _rows(step_path(run, step), whole)
        written = rollouts_of(rows)
        rollouts.update(written)
        student |= bool(written)
        rows_of.append(len(rows))
        visit(File(step_path(run, step), "", step, rows, written))
    for folder in EVALUATIONS:
        for done, path in evaluations_in(run, folder).items():
            visit(File(path, folder, done, _rows(path, whole)))
    found = {
        "steps": len(rows_of),
        "rows": sum(rows_of),
        "sha256": whole.hexdigest(),
        "rollouts_sha256": rollouts.hexdigest() if student else None,
        "modules_sha256": module_file.content_sha256(run, len(rows_of)),
        "rounds_sha256": _sha256(run / ROUNDS),
        "deployed_sha256": _sha256(run / DEPLOYED),
    }
    return found, rows_of


def _sha256(path: Path) -> str | None:
    """Of a file's bytes; None without it."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def rollouts_of(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """[problem, completion ids] of the student's rows, a line of JSON each."""
    student = (row for row in rows if row.get("source") == "student")
    return b"".join(json.dumps([row.get("problem_id"), row.get("completion_ids")]).encode() + b"\n" for row in student)


def _rows(path: Path, whole: "hashlib._Hash") -> list[dict[str, Any]]:
    """Rows of a gzipped file; its name and every byte of it go into the digest. BadInput when it is damaged."""
    whole.update(f"{path.parent.name if path.parent.name in EVALUATIONS else ''}/{path.name}\n".encode())
    try:
        text = gzip.decompress(path.read_bytes())
        rows = [parsed(line) for line in io.BytesIO(text)]
        if odd := [type(row).__name__ for row in rows if not isinstance(row, dict)]:
            raise ValueError(f"a {odd[0]}, where a JSON object is expected")
    except (EOFError, OSError, ValueError, zlib.error) as e:
        raise BadInput(f"{path.name}: damaged ({e}); repeat the run") from e
    whole.update(text)
    return rows
