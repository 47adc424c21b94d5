"""Serve a model of this machine, or several builds of it, as an OpenAI-compatible endpoint (`transformers serve`), until
Ctrl-C; or for as long as the command after `--` runs, whose exit code is then this one's."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.config import Common
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.ledger.processes import die_with_parent
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


def while_it_runs(command: Sequence[str]) -> int:
    """Returns the exit code of a command, which ends with this process; a .py file is run by this interpreter. BadInput on a
    command that is none."""
    python = (sys.executable,) if command[0].endswith(".py") else ()
    try:
        return subprocess.call([*python, *command], preexec_fn=die_with_parent)
    except OSError as e:
        raise BadInput(f"{command[0]}: cannot be run ({e.strerror or e}); give a command or a script behind --") from e


def folders_of(config: ServeConfig) -> dict[str, Path]:
    """Returns teacher -> folder of its model, built on first use. BadInput on an unknown model, or several seeds of a
    folder."""
    from projected_grpo.worlds.models import BUILT, folder_of

    if len(config.seeds) > 1 and config.model not in BUILT:
        raise BadInput(f"--seeds: {config.model} is a folder, and so one build; leave --seeds out")
    one = len(config.seeds) == 1
    return {
        config.model if one else f"{config.model}-{seed}": folder_of(config.model, seed, config.cache)
        for seed in config.seeds
    }


def main() -> int:
    words = sys.argv[1:]
    command = words[words.index("--") + 1 :] if "--" in words else []
    config = cli.parse_plain(ServeConfig, __doc__, words[: words.index("--")] if "--" in words else words)
    from loguru import logger

    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.traces.local_server import served, table_of

    folders = folders_of(config)
    config.log.parent.mkdir(parents=True, exist_ok=True)
    with served(list(folders.values()), config.port, config.log) as url:
        logger.info(f"serving {', '.join(folders)}; the log is {config.log}. For the file of teachers:")
        table = "\n".join(table_of(url, str(folder), name, config.max_tokens) for name, folder in folders.items())
        print(table, flush=True)
        if config.table != Path():
            write_atomic(config.table, table.encode())
        if command:
            return while_it_runs(command)
        signal.pause()
    return 0


if __name__ == "__main__":
    cli.run(main, on_interrupt="stopped")
