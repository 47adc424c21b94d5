"""Serve a model of this machine as an OpenAI-compatible endpoint (`transformers serve`), until Ctrl-C; or for as long as
the command after `--` runs, whose exit code is then this one's."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.config import Common
from projected_grpo.run import cli


@dataclass(frozen=True)
class ServeConfig:
    """What to serve, and where."""

    model: Annotated[str, tyro.conf.Positional]
    """`tiny`, `toy`, `small`, `small-shipped` (built or fetched on first use), or a folder of a model."""
    port: int = 8000
    """On 127.0.0.1."""
    seed: int = Common.base_seed
    """Which build of a model that is made here."""
    cache: Path = Common.cache
    """As in every script."""
    table: Path = Path()
    """Write the file of teachers that asks this one here, for a command that needs it. Empty: print it only."""
    max_tokens: int = 256
    """Most tokens of an answer, in that file."""
    log: Path = Path("out/serve_teacher.log")
    """What the server says."""


@contextlib.contextmanager
def ended_by_sigterm_too() -> Generator[None]:
    """SIGTERM as Ctrl-C: the server is ended with this process."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def while_it_runs(command: Sequence[str]) -> int:
    """The exit code of a command. Interrupted, it may end in its own way first: answers under way are paid for."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            return process.wait()


def until_interrupted() -> int:
    """Wait for Ctrl-C."""
    try:
        signal.pause()
    except KeyboardInterrupt:
        print("stopped")
    return 0


def main() -> int:
    words = sys.argv[1:]
    command = words[words.index("--") + 1 :] if "--" in words else []
    config = cli.parse_plain(ServeConfig, __doc__, words[: words.index("--")] if "--" in words else words)
    from loguru import logger

    from projected_grpo.ledger.errors import BadInput
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.teachers.local_server import check_installed, served, table_of

    check_installed()
    from projected_grpo.run.models import BUILT

    folder = Path(config.model)
    if config.model in BUILT:
        folder = BUILT[config.model].base(config.model, config.seed, config.cache)
    elif not (folder / "config.json").is_file():
        raise BadInput(f"{config.model}: neither a folder of a model nor one of {', '.join(BUILT)}")
    config.log.parent.mkdir(parents=True, exist_ok=True)
    with ended_by_sigterm_too(), served(folder, config.port, config.log) as url:
        logger.info(f"serving {folder}; its log is {config.log}. For the file of teachers:")
        table = table_of(url, str(folder), config.model, config.max_tokens)
        print(table, flush=True)
        if config.table != Path():
            write_atomic(config.table, table.encode(), "--table")
        return while_it_runs(command) if command else until_interrupted()


if __name__ == "__main__":
    cli.run(main)
