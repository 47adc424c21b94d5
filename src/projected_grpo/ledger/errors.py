"""The ways in which a run ends early, the exit codes that a queue reads, and the one line that says why.

0 all well; 1 a verdict failed or the run broke; 2 bad input; 3 not evaluable.
"""

import os
import sys

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_NOT_EVALUABLE = 0, 1, 2, 3


class BadInput(ValueError):  # noqa: N818 - the name is what the user reads
    """The user's input cannot be used. The message is one line: the value, where it is, and the fix. Exit code 2."""


class NonFinite(ArithmeticError):  # noqa: N818
    """A loss or gradient is NaN or infinite. The message names step, module and sample. Exit code 1."""


class JudgeFailed(RuntimeError):  # noqa: N818
    """A judge (--judge) failed, or said what is no score. Exit code 1."""


class BrokenWorld(RuntimeError):  # noqa: N818
    """Another process of the same run is gone or silent. Exit code 1."""


class Unfinished(RuntimeError):  # noqa: N818
    """Work stopped cleanly; what is done is on disk. The message says why and how to go on. Exit code 1."""


def speaker() -> str:
    """Returns `rank 3: ` in one of several processes of torchrun, to mark its lines; empty on rank 0."""
    rank = os.environ.get("RANK", "0") if "LOCAL_WORLD_SIZE" in os.environ else "0"  # others set RANK alone
    return "" if rank == "0" else f"rank {rank}: "


def fail(message: str, code: int = EXIT_BAD_INPUT) -> None:
    """Print one line to stderr and exit."""
    print(f"{speaker()}error: " + " ".join(message.split()), file=sys.stderr, flush=True)
    raise SystemExit(code)
