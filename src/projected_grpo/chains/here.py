"""Run a chain on this machine, in the foreground: links as soon as their needs are met, as many at once as there are
threads for. Needs no queue to be installed.

Finished links are skipped, cut ones resumed, so a chain can be stopped and started again at any point. A failed link
stops what depends on it and nothing else.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loguru import logger

from projected_grpo.chains.left import ALMOST, minutes_left, startable, told
from projected_grpo.chains.links import Link, by_name, write_chain
from projected_grpo.chains.run_link import is_done, log_of
from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK
from projected_grpo.ledger.processes import die_with_parent, end

POLL_S = 0.2
REPORT_S = 60.0
GRACE_S = 60.0
"""For a link that is told to end; then it is killed, and resumes from its last whole step."""


def progress_of(link: Link) -> float:
    """Share of a link that is done, from its step files; 0 where that cannot be seen."""
    if "--steps" not in link.argv:
        return 0.0
    total = int(link.argv[link.argv.index("--steps") + 1])
    return min(1.0, sum(1 for _ in link.out.glob("step_*.jsonl.gz")) / total)


def last_lines(name: str, home: Path, lines: int) -> list[str]:
    """The end of a link's log; empty before it has one."""
    path = log_of(name, home)
    if not path.exists():
        return []
    with path.open("rb") as f:
        f.seek(max(0, path.stat().st_size - 65536))
        return f.read().decode("utf-8", "replace").splitlines()[-lines:]


def _how(code: int) -> str:
    """How a link has ended, in words."""
    number = -code if code < 0 else code - 128
    if number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        return f"ended from outside ({signal.Signals(number).name}); the same command goes on from here"
    return f"exit code {code}"


def _interrupted(*_: object) -> None:
    """SIGTERM as Ctrl-C: no link may outlive the chain that would start it again."""
    raise KeyboardInterrupt


@dataclass
class ChainRun:
    """One pass over a chain. `home` holds logs/, with a log per link."""

    links: Sequence[Link]
    home: Path
    threads: int
    done: set[str] = field(default_factory=set)
    failed: dict[str, int] = field(default_factory=dict)
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    began_at: dict[str, float] = field(default_factory=dict)
    """Share that was done already when a link was started, for the estimate."""
    took: dict[str, float] = field(default_factory=dict)
    """Seconds of each link that has ended here."""

    def run(self) -> int:
        """Exit code: 0 when every link is done, 1 when one failed. Ctrl-C ends the running links, which can be resumed."""
        chain = by_name(self.links)
        self.done = {t.name for t in self.links if is_done(t, self.home, chain)}
        clock = last = time.monotonic()
        left = told(minutes_left(self.links, self.done, (), {}, self._taken, self.threads))
        logger.info(
            f"{len(self.links)} links, {len(self.done)} done already, {left} on a machine that does nothing else; logs in "
            f"{self.home / 'logs'}{os.sep}"
        )
        before = signal.signal(signal.SIGTERM, _interrupted)
        try:
            while self._start_what_can() or self.running:
                time.sleep(POLL_S)
                if self._collect() or time.monotonic() - last > REPORT_S:
                    last = time.monotonic()
                    logger.info(self.line(last - clock))
        finally:
            self._stop()
            signal.signal(signal.SIGTERM, before)
        return EXIT_FAILED if self.failed else EXIT_OK

    def _taken(self, link: Link) -> int:
        """Threads that a link takes of ours; one that names none takes them all."""
        return min(link.threads, self.threads) or self.threads

    def _start_what_can(self) -> bool:
        free = self.threads - sum(self._taken(t) for t in self.links if t.name in self.running)
        waiting = [t for t in self.links if t.name not in {*self.done, *self.failed, *self.running}]
        for link in startable(waiting, self.done, self._taken, free):
            self._start(link)
        return bool(self.running)

    def _start(self, link: Link) -> None:
        self.began_at[link.name] = progress_of(link)
        command = (sys.executable, "-m", "projected_grpo.chains.run_link", str(self.home), link.name)
        self.running[link.name] = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        self.started[link.name] = time.monotonic()

    def _collect(self) -> bool:
        """Take in what has ended; whether anything has."""
        ended = [
            (t, code)
            for t in self.links
            if t.name in self.running and (code := self.running[t.name].poll()) is not None
        ]
        for link, code in ended:
            del self.running[link.name]
            seconds = self.took[link.name] = self._ran(link.name)
            if code == EXIT_OK:
                self.done.add(link.name)
                logger.info(f"done    {link.name:24} {seconds:6.0f} s   {link.why}")
            else:
                self.failed[link.name] = code
                tail = "\n".join(f"    {line}" for line in last_lines(link.name, self.home, 4))
                logger.error(f"FAILED  {link.name:24} {seconds:6.0f} s   {_how(code)}; the end of its log:\n{tail}")
        return bool(ended)

    def line(self, elapsed: float) -> str:
        """What is done, what runs, what remains and how long that takes at the pace so far."""
        chain = by_name(self.links)
        seen = {n: progress_of(chain[n]) for n in self.running}
        pace = self._pace(seen)
        shares = {n: share or min(ALMOST, self._ran(n) / (60 * pace * chain[n].cost)) for n, share in seen.items()}
        left = pace * minutes_left(self.links, self.done, self.failed, shares, self._taken, self.threads)
        now = ", ".join(f"{n} {share:.0%}" if share else n for n, share in seen.items()) or "nothing"
        failed = f", {len(self.failed)} failed" if self.failed else ""
        eta = told(left) if shares or left else "nothing left that can run" if self.failed else "at its end"
        return f"{len(self.done)} of {len(self.links)} done{failed}; running: {now}; {elapsed / 60:.0f} min, {eta}"

    def _ran(self, name: str) -> float:
        return time.monotonic() - self.started[name]

    def _pace(self, seen: Mapping[str, float]) -> float:
        """Minutes that a minute of cost takes, from what has ended here and what is seen of what runs; 1 at first."""
        chain = by_name(self.links)
        spent = [(chain[n].cost * (1 - self.began_at[n]), s) for n, s in self.took.items() if n in self.done]
        spent += [(chain[n].cost * (share - self.began_at[n]), self._ran(n)) for n, share in seen.items()
                  if share > self.began_at[n]]  # fmt: skip
        cost = sum(of for of, _ in spent)
        return sum(seconds for _, seconds in spent) / 60 / cost if cost else 1.0

    def _stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            end(process, GRACE_S)


def show_ends(home: Path) -> None:
    """What the links that judge have printed in their last run: the answer of a chain."""
    for name in ("uat", "judge_teachers", "trace_pairs", "results", "channels"):
        log = log_of(name, home)
        if log.exists():
            print(f"\n── {name} ──\n{log.read_text('utf-8').rpartition('$ python')[2].partition(chr(10))[2]}")


def run_chain(links: Sequence[Link], home: Path, threads: int) -> int:
    """Run a chain: the exit code of ChainRun.run. BadInput as in write_chain."""
    return ChainRun(write_chain(home, links), home, threads).run()
