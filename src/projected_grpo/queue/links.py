"""A link of a chain, a chain's folder, and how links run: one by `python -m projected_grpo.queue.links HOME NAME`,
which is what every queue starts; or all of them in this terminal. Torch-free.

    HOME/chain.json         every link
    HOME/logs/NAME.passed   exists once the link is done; its modification time says when
    HOME/logs/NAME.lock     held while a link runs: none runs twice at a time
"""

import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from loguru import logger
from pydantic import TypeAdapter

from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK, BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.processes import die_with_parent
from projected_grpo.run import cli

RESUMABLE = ("teacher_pool", "multi_turn", "teachers")
"""Kinds of runs that go on from what they have written; any other goes on from its checkpoint."""


@dataclass(frozen=True)
class Link:
    """A script with its arguments, the folder it writes, and what must be done before it."""

    name: str
    argv: tuple[str, ...]
    """Script and its arguments; the interpreter is the back end's."""
    out: Path
    """Folder (or, of a check, file) that it writes."""
    needs: tuple[str, ...] = ()
    label: str = ""
    """What a queue shows next to it."""
    threads: int = 1
    """CPU threads. Fixed, since their number can change the last digits; 0 = the back end's default (GPU runs)."""
    minutes: float = 0.2
    """Roughly how long it takes: of a core for presets that run on a CPU, of an H100 for the others."""
    check: bool = False
    """It only reads runs, and writes a file or a report, which is made again whenever they are."""
    gpu: bool = False
    """Whether it uses a GPU: no for what only reads step files."""
    accept: tuple[int, ...] = (0,)
    """Exit codes that mean done, if `out` is there too: a report is made whatever its verdict."""


Chain = dict[str, Link]
_CHAIN = TypeAdapter(Chain)


def passed_file(name: str, home: Path) -> Path:
    """Returns the file that marks a link as done."""
    return home / "logs" / f"{name}.passed"


def is_done(link: Link, home: Path) -> bool:
    """Returns True if a link has passed and what it writes is there; of a check, if it passed after all that it
    judges."""
    marks = [passed_file(name, home) for name in (link.name, *(link.needs if link.check else ()))]
    if not (link.out.exists() and all(mark.exists() for mark in marks)):
        return False
    own, *judged = (mark.stat().st_mtime for mark in marks)
    return all(made <= own for made in judged)


def read_chain(home: Path) -> Chain:
    """Returns the links of the chain in `home` by name."""
    return _CHAIN.validate_json((home / "chain.json").read_bytes())


def write_chain(home: Path, links: Sequence[Link]) -> None:
    """Writes the links of a chain into its folder, next to those of earlier calls.

    BadInput when nothing can be written there, or when a link that has begun there would change: its numbers would be
    mixed up with those of the rest."""
    before = read_chain(home) if (home / "chain.json").exists() else {}
    for link in links:
        old = before.get(link.name)
        if old and old.argv != link.argv and old.out.exists():
            raise BadInput(
                f"--out {home}: {link.name} was begun as `{shlex.join(old.argv)}`, now asked for as "
                f"`{shlex.join(link.argv)}`; give the same settings, or another --out"
            )
    write_atomic(home / "chain.json", _CHAIN.dump_json(before | {link.name: link for link in links}, indent=1))
    (home / "logs").mkdir(exist_ok=True)


def resumed(argv: tuple[str, ...], out: Path) -> tuple[str, ...]:
    """Returns the command that goes on with the run in `out`, an empty one if that run has finished, or `argv` where
    there is nothing to go on from. What is then in `out` is moved aside, never removed: somebody may have made it."""
    manifest = read_manifest(out) if (out / "manifest.json").exists() else {"kind": ""}
    if (out / "checkpoint.pt").exists() or manifest["kind"] in RESUMABLE:
        return (*argv, "--resume")
    # build_base finishes the run of a model that is no good, and then fails.
    if manifest.get("finished") and manifest["kind"] != "build_base":
        if differing := set(settings_of(argv)) ^ set(settings_of(manifest.get("argv", argv))):
            raise BadInput(f"{out}: a finished run that differs in {min(differing)}; move it, or choose another out=")
        logger.info(f"{out}: a finished run, which counts as done")
        return ()
    if out.exists():
        aside = next(to for n in itertools.count(1) if not (to := out.with_name(f"{out.name}.aside{n}")).exists())
        out.rename(aside)
        logger.warning(f"{out}: cannot be gone on with; moved to {aside}, begun again")
    return argv


def settings_of(argv: Sequence[str]) -> list[str]:
    """Returns the words of a script's command line, each option with its values, without --resume and what names files."""
    options = " ".join(argv[1:]).replace(" --resume", "").split(" --")
    return [option for option in options if "/" not in option]


def visible_gpus() -> list[str]:
    """Returns the GPUs that a run may use: those of CUDA_VISIBLE_DEVICES, else every device file of the NVIDIA
    driver."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in named.split(",") if gpu]
    return sorted((p.name.removeprefix("nvidia") for p in Path("/dev").glob("nvidia[0-9]*")), key=int)


def one_gpu(number: int) -> dict[str, str]:
    """Returns the environment of one of several processes of this machine: of several GPUs one in turn."""
    gpus = visible_gpus()
    return {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if len(gpus) > 1 else {}


def run_link(link: Link, home: Path) -> int:
    """Runs a link unless it is done, and returns its exit code; 0 for a verdict that it accepts.

    Its script ends with this process, so a killed link leaves nothing behind that writes. One that still runs
    elsewhere (its daemon was killed) is waited for."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if link.threads:
        env["OMP_NUM_THREADS"] = str(link.threads)
    if worker := os.environ.get("PUEUE_WORKER_ID"):  # a group numbers its workers from 0
        env |= one_gpu(int(worker))
    mark = passed_file(link.name, home)
    with FileLock(mark.with_suffix(".lock")):
        if is_done(link, home):
            print(f"{link.name}: done already", flush=True)
            return EXIT_OK
        mark.unlink(missing_ok=True)  # of a run whose folder was removed
        if argv := link.argv if link.check else resumed(link.argv, link.out):
            command = [sys.executable, *argv]
            code = subprocess.call(command, stdin=subprocess.DEVNULL, env=env, preexec_fn=die_with_parent)
            if code and not (code in link.accept and link.out.exists()):
                return code
        write_atomic(mark, b"")
        return EXIT_OK


def run_chain(links: Sequence[Link], home: Path) -> int:
    """Runs a chain's links in this terminal. Returns 0 when all are done, 1 when one failed. BadInput as in
    write_chain."""
    write_chain(home, links)
    failed: list[str] = []
    for link in links:
        if is_done(link, home):
            continue
        logger.info(f"── {link.name}: {link.label}")
        if blocked := [need for need in link.needs if need in failed]:
            logger.warning(f"skipped: needs {', '.join(blocked)}")
        if blocked or run_link(link, home) != EXIT_OK:
            failed.append(link.name)
    if failed:
        logger.error(f"not done: {', '.join(failed)}")
    return EXIT_FAILED if failed else EXIT_OK


if __name__ == "__main__":
    cli.run(lambda: run_link(read_chain(Path(sys.argv[1]))[sys.argv[2]], Path(sys.argv[1])))
