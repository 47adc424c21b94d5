"""Run a chain in this terminal, one link after the other. Needs no queue to be installed.

Finished links are skipped and cut ones resumed, so a chain can be stopped and started again at any point. A failed link
stops what depends on it and nothing else.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from loguru import logger

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK
from projected_grpo.ledger.processes import die_with_parent, end
from projected_grpo.queue.links import Link, by_name, write_chain
from projected_grpo.queue.run_link import is_done, log_of

GRACE_S = 60.0
"""For a link that is told to end; then it is killed, and resumes from its last whole step."""


def run_chain(links: Sequence[Link], home: Path) -> int:
    """Run a chain's links. Returns 0 when all are done, 1 when one failed. BadInput as in write_chain."""
    links = write_chain(home, links)
    chain, failed = by_name(links), set[str]()
    for link in progress(links, "chain"):
        if failed & set(link.needs):
            failed.add(link.name)
            logger.warning(f"skipped {link.name}: needs {', '.join(sorted(failed & set(link.needs)))}")
        elif not is_done(link, home, chain):
            logger.info(f"{link.name}: {link.why} (log: {log_of(link.name, home)})")
            if code := _run(link, home):
                failed.add(link.name)
                tail = log_of(link.name, home).read_text("utf-8", "replace").splitlines()[-4:]
                logger.error(f"{link.name}: exit code {code}; the end of its log:\n    " + "\n    ".join(tail))
    return EXIT_FAILED if failed else EXIT_OK


def _run(link: Link, home: Path) -> int:
    """Run one link in a process of its own, which Ctrl-C ends. Returns its exit code."""
    command = (sys.executable, "-m", "projected_grpo.queue.run_link", str(home), link.name)
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    try:
        return process.wait()
    finally:
        end(process, GRACE_S)


def print_answers(home: Path) -> None:
    """Print what the links that judge have printed in their last run: the answer of a chain."""
    for name in ("uat", "judge_teachers", "trace_pairs", "results", "results_controls", "channels"):
        log = log_of(name, home)
        if log.exists():
            print(f"\n── {name} ──\n{log.read_text('utf-8').rpartition('$ python')[2].partition(chr(10))[2]}")
