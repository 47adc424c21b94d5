"""Runs a chain in this terminal, one link after the other. Needs no queue to be installed."""

from collections.abc import Sequence
from pathlib import Path

from loguru import logger

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK
from projected_grpo.queue.links import Link, is_done, write_chain
from projected_grpo.queue.run_link import run_link

ANSWERS = ("uat", "answers", "trace_pairs", "results", "results_controls", "channels", "rivals", "compare", "losses")
"""Links whose output answers the chain's question; printed at its end."""


def log_of(link: Link, home: Path) -> Path:
    """Where the latest attempt of a link prints."""
    return home / "logs" / f"{link.name}.txt"


def run_chain(links: Sequence[Link], home: Path) -> int:
    """Runs a chain's links. Returns 0 when all are done, 1 when one failed. BadInput as in write_chain."""
    chain, failed = write_chain(home, links), set[str]()
    for link in progress(links, "chain"):
        if blocked := failed & set(link.needs):
            failed.add(link.name)
            logger.warning(f"skipped {link.name}: needs {', '.join(sorted(blocked))}")
        elif not is_done(link, home, chain):
            path = log_of(link, home)
            logger.info(f"{link.name}: {link.why} (log: {path})")
            with path.open("wb") as log:
                code = run_link(link, home, chain, log)
            if code:
                failed.add(link.name)
                tail = path.read_text("utf-8", "replace").splitlines()[-4:]
                logger.error(f"{link.name}: exit code {code}; the end of its log:\n    " + "\n    ".join(tail))
    for link in links:
        if link.name in ANSWERS and log_of(link, home).exists():
            print(f"\n── {link.name} ──\n{log_of(link, home).read_text('utf-8')}")
    return EXIT_FAILED if failed else EXIT_OK
