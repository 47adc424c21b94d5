"""Serve a model of this machine, or several builds of it, as an OpenAI-compatible endpoint (`transformers serve`),
until Ctrl-C; or for as long as the command after `--` runs, whose exit code is then this one's."""

import signal
import subprocess
import sys
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
    """`tiny`, `tiny-answering`, `toy`, `toy-deep`, `small`, `small-more`, `small-shipped` (built or fetched on first
    use), or a folder of a model."""
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


def main() -> int:
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    command = words[split + 1 :]
    config = cli.parse_plain(ServeConfig, __doc__, words[:split])
    from loguru import logger

    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.traces.local_server import served, table_of
    from projected_grpo.worlds.models import folder_of
    from projected_grpo.worlds.registry import MODELS

    name = Path(config.model).name
    if len(config.seeds) > 1 and config.model not in MODELS:
        raise BadInput(
            f"--seeds {config.seeds}: {config.model} is one model; only those that are built here have seeds"
        )
    folders = {f"{name}-{seed}": folder_of(config.model, seed, config.cache) for seed in config.seeds}
    config.log.parent.mkdir(parents=True, exist_ok=True)
    with served(list(folders.values()), config.port, config.log) as url:
        logger.info(f"serving {', '.join(folders)}; the log is {config.log}. For the file of teachers:")
        table = "\n".join(table_of(url, str(folder), name, config.max_tokens) for name, folder in folders.items())
        print(table, flush=True)
        if config.table != Path():
            write_atomic(config.table, table.encode())
        while not command:
            signal.pause()
        python = [sys.executable] if command[0].endswith(".py") else []
        try:
            return subprocess.call([*python, *command], preexec_fn=die_with_parent)
        except OSError as e:
            raise BadInput(f"{command[0]}: cannot be run ({e}); give a command or a script behind --") from e


if __name__ == "__main__":
    cli.run(main, on_interrupt="stopped")
