"""Things that are expensive to make and the same every time: made once, kept in the cache, never half-written."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from projected_grpo.ledger.errors import BadInput


def built_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Build into a temporary folder and rename it into place; a second builder that lost the race drops its copy.

    BadInput when the cache cannot be written.
    """
    if folder.is_dir():
        return folder
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        build(temporary)
        temporary.rename(folder)
    except OSError as e:
        if not folder.is_dir():
            raise BadInput(f"--cache {folder.parent}: cannot write ({e}); free some space or choose another") from e
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
