"""Run a chain on this machine, in the foreground: tasks as soon as their needs are met, as many at once as there are
threads for. Needs no queue to be installed.

Finished tasks are skipped, cut ones resumed, so a chain can be stopped and started again at any point. A failed task
stops what depends on it and nothing else.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loguru import logger

from projected_grpo.chains.link import die_with_parent, is_done, log_of
from projected_grpo.chains.task import Task, by_name, write_chain
from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK

POLL_S = 0.2
REPORT_S = 60.0


def progress_of(task: Task) -> float:
    """Share of a task that is done, from its step files; 0 where that cannot be seen."""
    if "--steps" not in task.argv:
        return 0.0
    total = int(task.argv[task.argv.index("--steps") + 1])
    return min(1.0, sum(1 for _ in task.out.glob("step_*.jsonl.gz")) / total)


def last_lines(name: str, home: Path, lines: int) -> list[str]:
    """The end of a link's log; empty before it has one."""
    path = log_of(name, home)
    if not path.exists():
        return []
    with path.open("rb") as f:
        f.seek(max(0, path.stat().st_size - 65536))
        return f.read().decode("utf-8", "replace").splitlines()[-lines:]


def _interrupted(*_: object) -> None:
    """SIGTERM as Ctrl-C: no task may outlive the chain that would start it again."""
    raise KeyboardInterrupt


@dataclass
class ChainRun:
    """One pass over a chain. `home` holds logs/, with a log per task."""

    tasks: Sequence[Task]
    home: Path
    threads: int
    done: set[str] = field(default_factory=set)
    failed: dict[str, int] = field(default_factory=dict)
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    began_at: dict[str, float] = field(default_factory=dict)
    """Share that was done already when a task was started, for the estimate."""

    def run(self) -> int:
        """Exit code: 0 when every task is done, 1 when one failed. Ctrl-C ends the running tasks, which can be resumed."""
        chain = by_name(self.tasks)
        self.done = {t.name for t in self.tasks if is_done(t, self.home, chain)}
        clock = last = time.monotonic()
        logger.info(f"{len(self.tasks)} tasks, {len(self.done)} done already; logs in {self.home / 'logs'}{os.sep}")
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

    def _taken(self, task: Task) -> int:
        """Threads that a task takes of ours; one that names none takes them all."""
        return min(task.threads, self.threads) or self.threads

    def _start_what_can(self) -> bool:
        free = self.threads - sum(self._taken(t) for t in self.tasks if t.name in self.running)
        for task in self.tasks:
            waiting = task.name not in self.done and task.name not in self.failed and task.name not in self.running
            if waiting and set(task.needs) <= self.done and self._taken(task) <= free:
                self._start(task)
                free -= self._taken(task)
        return bool(self.running)

    def _start(self, task: Task) -> None:
        self.began_at[task.name] = progress_of(task)
        link = (sys.executable, "-m", "projected_grpo.chains.link", str(self.home), task.name)
        self.running[task.name] = subprocess.Popen(
            link, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )  # fmt: skip
        self.started[task.name] = time.monotonic()

    def _collect(self) -> bool:
        """Take in what has ended; whether anything has."""
        ended = [(t, code) for t in self.tasks if t.name in self.running
                 and (code := self.running[t.name].poll()) is not None]  # fmt: skip
        for task, code in ended:
            del self.running[task.name]
            seconds = time.monotonic() - self.started[task.name]
            if code == EXIT_OK:
                self.done.add(task.name)
                logger.info(f"done    {task.name:24} {seconds:6.0f} s   {task.why}")
            else:
                self.failed[task.name] = code
                tail = "\n".join(f"    {line}" for line in last_lines(task.name, self.home, 4))
                logger.error(f"FAILED  {task.name:24} {seconds:6.0f} s   exit code {code}; the end of its log:\n{tail}")
        return bool(ended)

    def line(self, elapsed: float) -> str:
        """What is done, what runs, what remains and how long that takes at the speed so far."""
        chain = by_name(self.tasks)
        shares = {n: progress_of(chain[n]) for n in self.running}
        spent = sum(chain[n].cost * (1 - self.began_at[n]) for n in self.started if n in self.done)
        spent += sum(chain[n].cost * (share - self.began_at[n]) for n, share in shares.items())
        left = sum(t.cost * (1 - shares.get(t.name, 0.0)) for t in self.tasks if t.name not in self.done)
        eta = f"about {elapsed * left / spent / 60:.0f} min left" if spent > 0 else "no estimate yet"
        now = ", ".join(f"{n} {share:.0%}" if share else n for n, share in shares.items()) or "nothing"
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{len(self.done)} of {len(self.tasks)} done{failed}; running: {now}; {elapsed / 60:.0f} min, {eta}"

    def _stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()


def run_chain(tasks: Sequence[Task], home: Path, threads: int) -> int:
    """Run a chain: the exit code of ChainRun.run. BadInput as in write_chain."""
    write_chain(home, tasks)
    return ChainRun(tasks, home, threads).run()
