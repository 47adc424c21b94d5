"""Serve a model of this machine, or several builds of it, as an OpenAI-compatible endpoint (`transformers serve`), until
Ctrl-C; or for as long as the command after `--` runs, whose exit code is then this one's."""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.config import Common
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class ServeConfig:
    """What to serve, and where."""

    model: Annotated[str, tyro.conf.Positional]
    """`tiny`, `tiny-answering`, `toy`, `toy-deep`, `small`, `small-more`, `small-shipped` (built or fetched on first use),
    or a folder of a model."""
    port: int = 8000
    """On 127.0.0.1."""
    seeds: tuple[int, ...] = (Common.base_seed,)
    """Which builds of a model that is made here, a teacher each."""
    cache: Path = Common.cache
    """As in every script."""
    table: NoPath = Path()
    """Write the file of teachers that asks these here, for a command that needs it. Empty: print it only."""
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


def check_found(command: Sequence[str]) -> None:
    """BadInput on a command that is none, before a server is started for it."""
    from projected_grpo.ledger.errors import BadInput

    if not (Path(command[0]).is_file() if command[0].endswith(".py") else shutil.which(command[0])):
        raise BadInput(f"{command[0]}: no such command or file; give one that can be run behind --")


def while_it_runs(command: Sequence[str]) -> int:
    """The exit code of a command; a .py file is run by the interpreter of this one. Interrupted, it may end in its own way
    first: answers under way are paid for."""
    python = (sys.executable,) if command[0].endswith(".py") else ()
    with subprocess.Popen([*python, *command]) as process:
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


def folders_of(config: ServeConfig) -> dict[str, Path]:
    """Teacher -> folder of its model, built on first use. BadInput on a model that is none, or a seed that stands twice."""
    from projected_grpo.ledger.errors import BadInput
    from projected_grpo.worlds.models import BUILT, folder_of

    seeds = config.seeds
    if len(set(seeds)) != len(seeds) or not seeds:
        raise BadInput(f"--seeds {' '.join(map(str, seeds))}: give at least one, each once: a build has one vote")
    if config.model in BUILT:
        names = [config.model] if len(seeds) == 1 else [f"{config.model}-{seed}" for seed in seeds]
        return {name: folder_of(config.model, seed, config.cache) for name, seed in zip(names, seeds, strict=True)}
    folder = folder_of(config.model, seeds[0], config.cache)
    if len(seeds) > 1:
        raise BadInput(f"--seeds: {config.model} is a folder, and so one build; leave --seeds out")
    return {config.model: folder}


def main() -> int:
    words = sys.argv[1:]
    command = words[words.index("--") + 1 :] if "--" in words else []
    config = cli.parse_plain(ServeConfig, __doc__, words[: words.index("--")] if "--" in words else words)
    from loguru import logger

    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.teachers.local_server import check_installed, served, table_of

    check_installed()
    if command:
        check_found(command)
    folders = folders_of(config)
    config.log.parent.mkdir(parents=True, exist_ok=True)
    with ended_by_sigterm_too(), served(list(folders.values()), config.port, config.log) as url:
        logger.info(f"serving {', '.join(folders)}; the log is {config.log}. For the file of teachers:")
        table = "\n".join(table_of(url, str(folder), name, config.max_tokens) for name, folder in folders.items())
        print(table, flush=True)
        if config.table != Path():
            write_atomic(config.table, table.encode(), "--table")
        return while_it_runs(command) if command else until_interrupted()


if __name__ == "__main__":
    cli.run(main)
