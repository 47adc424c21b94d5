"""Things that are expensive to make and the same every time: made once, kept in the cache, never half-written, and taken
from there only as they were made."""

import fcntl
import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from loguru import logger
from safetensors import SafetensorError

from projected_grpo.ledger.errors import BadInput

SUMS = "sha256.json"
"""Beside the files that it is of: the SHA-256 of each, and the name of the folder that they were made for."""
FOLDER = "folder"


def built_once(folder: Path, build: Callable[[Path], None], what: str = "") -> Path:
    """Build into a temporary folder and rename it into place. Of several processes one builds, the others wait; what a
    killed one has left is removed. `what` is said before it begins: what is built, and how long that takes.

    BadInput when the cache cannot be written, and when a file in it is not the one that was built.
    """
    if not folder.is_dir():
        try:
            with _alone(folder):
                if not folder.is_dir():
                    if what:
                        logger.info(what)
                    _build(folder, build)
        except (OSError, SafetensorError) as e:  # safetensors says in its own words that a disk is full
            if not folder.is_dir():
                raise BadInput(f"--cache {folder.parent}: cannot write ({e}); free some space or choose another") from e
    _check(folder)
    return folder


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    for left in folder.parent.glob(f".{folder.name}.*.tmp"):  # nobody else builds: of one that was killed
        shutil.rmtree(left, ignore_errors=True)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir()
        build(temporary)
        made = {FOLDER: folder.name, **_sums(temporary)}
        (temporary / SUMS).write_text(json.dumps(made, indent=1), "utf-8")
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info(f"another process builds {folder.name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sums(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != SUMS):
        with path.open("rb") as f:
            found[path.relative_to(folder).as_posix()] = hashlib.file_digest(f, "sha256").hexdigest()
    return found


def _check(folder: Path) -> None:
    try:
        made, found = json.loads((folder / SUMS).read_text("utf-8")), _sums(folder)
        name = made.pop(FOLDER, "")
        odd = next((name for name in sorted({*made, *found}) if made.get(name) != found.get(name)), "")
    except FileNotFoundError as e:
        raise BadInput(
            f"{folder}: has no {SUMS}, so it was cut or an older version made it; remove it, it is made again"
        ) from e
    except (AttributeError, OSError, ValueError) as e:
        raise BadInput(f"{folder}: damaged ({e}); remove it, it is made again") from e
    if name != folder.name:
        whose = f"made as {name}" if name else "made by an older version"
        raise BadInput(f"{folder}: {whose}; remove it, it is made again")
    if odd:
        raise BadInput(f"{folder / odd}: not the file that was made here; remove the folder, it is made again")
