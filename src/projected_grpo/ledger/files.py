"""Files written whole or not at all, folders built once, JSON lines read strictly."""

import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import uuid
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson
from filelock import FileLock
from loguru import logger
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError

from projected_grpo.ledger.errors import BadInput

T = TypeVar("T")
FAULTS: Mapping[str, str] = {
    "missing": "is missing", "string_type": "must be a text in quotes", "dataclass_type": "must be an object, {...}",
    "unexpected_keyword_argument": "is no known field", "tuple_type": "must be a list", "list_type": "must be a list",
}  # fmt: skip
"""What is wrong with a value, by pydantic's type of error; of the others its own words are clear."""


def content_hash(content: Any) -> str:
    """First 16 hex digits of the SHA-256 of the content's canonical JSON."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def seed_of(key: str) -> int:
    """Returns a number below 2^48 that is a function of the text: what a random draw starts from."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "little")


def write_atomic(path: Path, data: bytes) -> None:
    """Writes to a temporary name in the same folder and renames it: a reader sees all of it or none, and any number
    of writers may race. BadInput when the disk is full or the folder cannot be written; nothing is left behind."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    except OSError as e:
        with contextlib.suppress(OSError):  # below a file there is nothing to take away
            temporary.unlink()
        raise BadInput(f"cannot write {path}: {e.strerror or e}; free some space or choose another folder") from e


def write_new(path: Path, data: bytes) -> None:
    """Writes a file whole, gzipped where its name ends with .gz. BadInput when the disk refuses, or it exists with
    something else in it: a command that is given again finds what it wrote."""
    data = gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data
    if path.exists() and path.read_bytes() != data:
        raise BadInput(f"--out {path}: exists with something else in it and is never overwritten; choose another")
    write_atomic(path, data)


def json_line(value: Mapping[str, Any]) -> bytes:
    """Returns a line of JSON; non-finite numbers are null."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line of a plain or gzipped file that is not blank, without a byte-order mark. BadInput
    names the file that is missing or damaged."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as f:
            for number, read in enumerate(f, 1):
                if (line := read.removeprefix(BOM_UTF8) if number == 1 else read).strip():
                    yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as e:
        raise BadInput(f"{path}: truncated or damaged gzip ({e}); gzip it again, or name it without .gz") from e
    except OSError as e:
        raise BadInput(f"{path}: {(e.strerror or str(e)).lower()}") from e


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """JSON objects of a plain or gzipped JSON-lines file. BadInput names the file and line that is torn."""
    rows = []
    for number, line in lines_of(path):
        try:
            row = orjson.loads(line)
        except ValueError as e:
            raise BadInput(f"{path}:{number}: not JSON ({e}); correct the line, or make the file again") from e
        if not isinstance(row, dict):
            raise BadInput(f"{path}:{number}: a {type(row).__name__}, where a JSON object is expected")
        rows.append(row)
    return rows


def check_once(named: Iterable[tuple[str, Hashable]], where: Path | str) -> None:
    """BadInput, naming file and record, where two of (name, content) have the same content."""
    seen: set[Hashable] = set()
    for name, content in named:
        if content in seen:
            raise BadInput(f"{where}: {name} is there twice; remove one")
        seen.add(content)


def row_of(kind: TypeAdapter[T], line: bytes, where: str, mend: str = "correct it") -> T:
    """A line of JSON as a value of this kind, with no other field. BadInput says where, what is wrong and how to fix
    it."""
    try:
        return kind.validate_json(line, strict=True, extra="forbid")
    except ValidationError as e:
        raise BadInput(f"{where}: {first_fault(e)}; {mend}") from e


def first_fault(error: ValidationError, root: str = "") -> str:
    """Returns the field below `root` that is wrong, and why; the value itself, which may be a key, is not
    repeated."""
    first = error.errors()[0]
    where = root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    why = FAULTS.get(first["type"]) or re.sub(r"^\w+ should (?=be|have|match)", "must ", first["msg"])
    return f"{where.removeprefix('.')} {why}".strip()


def built_once(folder: Path, build: Callable[[Path], None], what: str = "") -> Path:
    """Returns `folder`. If it does not exist, `build` writes a temporary folder, which is then renamed.

    One process builds, the others wait for it. `what` is logged before the build: what is built, and how long that
    takes. BadInput when the cache cannot be written."""
    if folder.is_dir():
        return folder
    temporary = folder.with_name(f".{folder.name}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if not folder.is_dir():
                logger.info(what or f"builds {folder}")
                shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
                temporary.mkdir()
                try:
                    build(temporary)
                    temporary.rename(folder)
                finally:
                    shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, SafetensorError) as e:  # safetensors raises its own error when a disk is full
        raise BadInput(f"--cache {folder.parent}: cannot write ({e}); free some space or choose another") from e
    return folder
