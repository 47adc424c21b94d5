"""Run a chain on this machine: tasks as soon as their needs are met, as many at once as there are threads for.

Finished tasks are skipped, cut ones resumed, so a chain can be stopped and started again at any point. A failed task
stops what depends on it and nothing else.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loguru import logger

from projected_grpo.chain import Task
from projected_grpo.errors import EXIT_FAILED, EXIT_OK, BadInput
from projected_grpo.runs import read_manifest
from projected_grpo.steps import write_atomic

POLL_S = 0.2
REPORT_S = 60.0


def is_done(task: Task, home: Path) -> bool:
    """A run is done when its manifest says so; a check, when it passed after its runs."""
    if task.kind == "check":
        return _passed_marker(task, home).exists()
    manifest = task.out / "manifest.json"
    return manifest.exists() and bool(read_manifest(task.out)["finished"])


def _passed_marker(task: Task, home: Path) -> Path:
    return home / "logs" / f"{task.name}.passed"


def prepared(task: Task) -> tuple[str, ...]:
    """Arguments to start a task that is not done: resumed from its checkpoint, or anew after a cut before one."""
    if task.kind == "run" and (task.out / "checkpoint.pt").exists():
        return (*task.argv, "--resume")
    if task.kind != "check" and task.out.exists():
        shutil.rmtree(task.out)  # cut before anything could be resumed from it
    return task.argv


def progress_of(task: Task) -> float:
    """Share of a running task that is done, from its step files; 0 where that cannot be seen."""
    if "--steps" not in task.argv:
        return 0.0
    total = int(task.argv[task.argv.index("--steps") + 1])
    return min(1.0, sum(1 for _ in task.out.glob("step_*.jsonl.gz")) / total)


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
        names = [t.name for t in self.tasks]
        if unknown := {n for t in self.tasks for n in t.needs} - set(names):
            raise ValueError(f"needs of no task: {sorted(unknown)}")
        self.done = {t.name for t in self.tasks if is_done(t, self.home)}
        (self.home / "logs").mkdir(parents=True, exist_ok=True)
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

    def _start_what_can(self) -> bool:
        free = self.threads - sum(min(t.threads, self.threads) for t in self.tasks if t.name in self.running)
        for task in self.tasks:
            waiting = task.name not in self.done and task.name not in self.failed and task.name not in self.running
            if waiting and set(task.needs) <= self.done and min(task.threads, self.threads) <= free:
                self._start(task)
                free -= min(task.threads, self.threads)
        return bool(self.running)

    def _start(self, task: Task) -> None:
        argv = prepared(task)
        self.began_at[task.name] = progress_of(task)
        environment = {**os.environ, "OMP_NUM_THREADS": str(task.threads), "PYTHONUNBUFFERED": "1"}
        with (self.home / "logs" / f"{task.name}.txt").open("ab") as log:
            log.write(f"$ {task.command}\n".encode())
            log.flush()
            self.running[task.name] = subprocess.Popen(
                [sys.executable, *argv], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
            )
        self.started[task.name] = time.monotonic()

    def _collect(self) -> bool:
        """Take in what has ended; whether anything has."""
        ended = [(t, code) for t in self.tasks if t.name in self.running
                 and (code := self.running[t.name].poll()) is not None]  # fmt: skip
        for task, code in ended:
            del self.running[task.name]
            seconds = time.monotonic() - self.started[task.name]
            if code == EXIT_OK or (code in task.accept and task.out.exists()):
                self.done.add(task.name)
                if task.kind == "check":
                    write_atomic(_passed_marker(task, self.home), b"")
                logger.info(f"done    {task.name:24} {seconds:6.0f} s   {task.why}")
            else:
                self.failed[task.name] = code
                tail = self.tail(task)
                logger.error(f"FAILED  {task.name:24} {seconds:6.0f} s   exit code {code}; the end of its log:\n{tail}")
        return bool(ended)

    def tail(self, task: Task, lines: int = 4) -> str:
        """The end of a task's log."""
        text = (self.home / "logs" / f"{task.name}.txt").read_text("utf-8", "replace").splitlines()
        return "\n".join(f"    {line}" for line in text[-lines:])

    def line(self, elapsed: float) -> str:
        """What is done, what runs, what remains and how long that takes at the speed so far."""
        by_name = {t.name: t for t in self.tasks}
        shares = {n: progress_of(by_name[n]) for n in self.running}
        spent = sum(by_name[n].cost * (1 - self.began_at[n]) for n in self.started if n in self.done)
        spent += sum(by_name[n].cost * (share - self.began_at[n]) for n, share in shares.items())
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
    """Run a chain. BadInput when `home` cannot be written; else the exit code of ChainRun.run."""
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"--out {home}: cannot be made ({e.strerror or e})") from e
    plan = [{"name": t.name, "needs": t.needs, "command": t.command, "why": t.why} for t in tasks]
    write_atomic(home / "chain.json", (json.dumps(plan, indent=1) + "\n").encode())
    return ChainRun(tasks, home, threads).run()
