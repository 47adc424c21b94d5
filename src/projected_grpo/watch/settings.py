"""What scripts/watch.py asks for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.config import at_least
from projected_grpo.ledger.errors import BadInput

A_DAY = 86400.0
"""Longest wait between two looks: a clock has an end, and infinity is past it."""


@dataclass(frozen=True)
class WatchConfig:
    """watch: hack, gt, form and cosines as they come, of one run or of every link of a chain."""

    run: Annotated[Path, tyro.conf.Positional]
    """A run directory, or a chain's folder (it has a chain.json)."""
    once: bool = False
    """Print the page as it is now and end, as it does by itself where nobody watches or all is finished."""
    every: float = 2.0
    """Seconds between two looks."""
    lines: int = 8
    """Last lines of the log that are shown."""

    def validate(self) -> None:
        """BadInput on values that no page could use."""
        at_least(self, "lines", 0)
        if not 0 < self.every <= A_DAY:
            raise BadInput(f"--every {self.every:g}: must be above 0, and {A_DAY:g} (a day) at most")
