"""Folders in the cache that are expensive to build and the same every time: built once, never left half-written."""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from loguru import logger
from safetensors import SafetensorError

from projected_grpo.ledger.errors import BadInput


def built_once(folder: Path, build: Callable[[Path], None], what: str = "") -> Path:
    """Returns `folder`. If it does not exist, `build` writes a temporary folder, which is then renamed.

    One process builds, the others wait for it. `what` is logged before the build: what is built, and how long that takes.
    BadInput when the cache cannot be written.
    """
    if folder.is_dir():
        return folder
    temporary = folder.with_name(f".{folder.name}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if not folder.is_dir():
                if what:
                    logger.info(what)
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


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info(f"another process builds {folder.name}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
