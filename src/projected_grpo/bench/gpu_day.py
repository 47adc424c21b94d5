"""A GPU day's checklist: commands one after the other, each with its log, and one report of how they ended."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from projected_grpo.bench.settings import GpuDayConfig
from projected_grpo.ledger.errors import EXIT_OK
from projected_grpo.ledger.step_file import step_path

INTERRUPTED = 130
"""Exit code of a run that was told to stop with Ctrl-C."""
SAID = re.compile(
    r"bars reached|measured, .* predicted|of what was predicted|measured / predicted|"
    r"^(sampling|evaluation|extraction|training step)|V: .* directions|resumed after|steps done"
)
"""Lines of a log that belong in the report."""
PATIENCE = 0.5
"""Seconds between two looks for a step file."""


@dataclass(frozen=True)
class Check:
    """One command. `until`: a file at whose appearance it is told to stop; `ends`: exit codes that are as they should be."""

    name: str
    argv: Sequence[str]
    ends: Sequence[int] = (EXIT_OK,)
    until: Path | None = None


@dataclass(frozen=True)
class Ended:
    """How one ended."""

    check: Check
    code: int
    seconds: float
    said: Sequence[str]

    @property
    def passed(self) -> bool:
        return self.code in self.check.ends


def checklist(config: GpuDayConfig) -> list[Check]:
    """Bench, prediction, extraction, training that is cut half way, and its resumption (which ends with all its steps)."""
    out, preset = config.out, config.preset
    problems = ["--problems", config.problems] if config.problems else []
    quick = ["--quick"] if config.quick else []
    train = [
        "scripts/train.py", preset, "--arm", "projected", "--vhack", str(out / "vhack" / "vhack.safetensors"), *problems,
        "--device", "cuda", "--deterministic", "--steps", str(config.steps), "--out", str(out / "train"),
    ]  # fmt: skip
    half = step_path(out / "train", config.steps // 2 - 1)
    return [
        # A bar that is missed, and a card that is too small, are findings: they are reported, and the day goes on.
        Check("bench", ["scripts/bench.py", "--device", "cuda", "--out", str(out / "bench.md"), *quick], (0, 1)),
        Check("fits, measured", ["scripts/fits.py", preset, *problems, "--device", "cuda", "--measure"], (0, 1)),
        Check("extraction", ["scripts/extract_vhack_grad.py", preset, "--device", "cuda", "--out", str(out / "vhack")]),
        Check("training, interrupted half way", train, (INTERRUPTED,), half),
        Check("training, resumed", [*train, "--resume"]),
    ]


def run(check: Check, log: Path) -> Ended:
    """Run a command to its end, or to its file; what it says goes to `log`."""
    start = time.monotonic()
    with log.open("wb") as f:
        process = subprocess.Popen([sys.executable, *check.argv], stdout=f, stderr=subprocess.STDOUT)
        try:
            while check.until and process.poll() is None and not check.until.exists():
                time.sleep(PATIENCE)
            if check.until and process.poll() is None:
                process.send_signal(signal.SIGINT)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    lines = log.read_text("utf-8", "replace").splitlines()
    said = [line.strip() for line in lines if SAID.search(line)]
    return Ended(check, code, time.monotonic() - start, said[-8:])


def report(gpu: str, ended: Sequence[Ended], skipped: Sequence[Check]) -> str:
    """Markdown: a row per check, then what each said of itself."""
    rows = [
        f"| {e.check.name} | {'as it should' if e.passed else f'**exit {e.code}**'} | {e.seconds:.0f} s |"
        for e in ended
    ]
    rows += [f"| {check.name} | not run: the one before failed | |" for check in skipped]
    said = [
        "\n".join(["", f"{e.check.name}: `{shlex.join(e.check.argv)}`", "", *(f"    {line}" for line in e.said)])
        for e in ended
    ]
    return "\n".join([f"# A day of {gpu}\n", "| check | ended | took |", "|---|---|---|", *rows, *said]) + "\n"
