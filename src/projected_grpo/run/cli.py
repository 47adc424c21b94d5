"""The edge of every script: parse a preset and its overrides, run, turn errors into one line and an exit code."""

import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import tyro

from loophole_grader import GraderError
from projected_grpo.config import Common, Gradient
from projected_grpo.ledger import errors
from projected_grpo.ledger.console import start_log
from projected_grpo.ledger.errors import BadInput, fail

# Both are read when torch is loaded. OpenMP's threads would wait in a busy loop, which takes the cores from other
# work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Else MKL's results may depend on where in memory a matrix lies, and the same run gives other bits each time.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
C = TypeVar("C")
P = TypeVar("P", bound=Common)
HELP = {"-h", "--help"}


def parse(presets: Mapping[str, P], description: str, args: list[str] | None = None) -> P:
    """Returns the preset that the first word names, with the fields that follow. tyro prints their --help, and exits
    with code 2 on an unknown field or value. BadInput on an unknown preset, and as in `validate`."""
    name, *options = words(args) or [""]
    names = ", ".join(presets)
    if name in HELP:
        usage = f"usage: {sys.argv[0]} PRESET [OPTIONS]; PRESET --help lists them."
        print(f"{description.strip()}\n\n{usage}\nPresets: {names}")
        raise SystemExit(errors.EXIT_OK)
    if name not in presets:
        raise BadInput(f"{repr(name) if name else 'no preset given'}: the first word must be a preset, one of {names}")
    usual, prog = presets[name], f"{sys.argv[0]} {name}"
    config = tyro.cli(type(usual), default=usual, args=options, prog=prog, description=description)
    typed = fields_in(options)
    config = config.with_recipe(typed) if isinstance(config, Gradient) else config
    config.validate(typed)
    return config


def words(args: list[str] | None) -> list[str]:
    """Returns the words of a command line (None: this process's), with `~` and `--out=~/run` expanded as a shell
    would."""

    def expanded(word: str) -> str:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        return flag + equals + os.path.expanduser(value)  # noqa: PTH111 - not every word is a path

    return [expanded(word) for word in (sys.argv[1:] if args is None else args)]


def flags_of(words: Sequence[str], lists: Sequence[str] = ()) -> list[str]:
    """Returns `preset=toy` as `--preset=toy`: some of the justfile's recipes are called with plain words. A field of
    `lists` takes several values, with commas or spaces between them."""
    out: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or word.startswith("-"):
            out.append(word)
        elif name in lists:
            out += [f"--{name}", *value.replace(",", " ").split()]
        else:
            out.append(f"--{word}")
    return out


def fields_in(argv: Sequence[str]) -> set[str]:
    """Returns the names of the fields that a command line sets: `--k-use 3`, `--k_use=3`, `--no-resume`."""
    flags = {word.partition("=")[0].removeprefix("--").replace("-", "_") for word in argv if word.startswith("--")}
    return flags | {flag.removeprefix("no_") for flag in flags}


def parse_plain(config: type[C], description: str, args: list[str] | None = None) -> C:
    """Returns the config of a script that has no presets."""
    return tyro.cli(config, description=description, args=words(args))


RESUMABLE = "interrupted; continue with --resume, or without it where the run's folder has no manifest.json"
AGAIN = "interrupted; the same command goes on from here"
EXTRAS = {
    "datasets": "bench", "gguf": "small", "matplotlib": "report", "openai": "teachers", "tabulate": "report",
    "torchft": "diloco", "trackio": "track", "trl": "bench",
}  # fmt: skip
"""Which extra brings a package."""
ERRORS = (errors.NonFinite, errors.BrokenWorld, errors.Unfinished, errors.JudgeFailed, GraderError)
"""A grader that failed is never a wrong answer."""


def run(main: Callable[[], int | None], *, on_interrupt: str = "interrupted") -> None:
    """Calls `main` and exits with its code. Bad input is one line and 2; what broke the run (ERRORS) one line and 1;
    Ctrl-C says `on_interrupt`, 130."""
    start_log()
    sys.setswitchinterval(5e-4)  # the thread that launches kernels waits at most so long for the grader's
    try:
        code = main() or 0
    except BadInput as e:
        fail(str(e))
    except ERRORS as e:
        fail(str(e), errors.EXIT_FAILED)
    except ModuleNotFoundError as e:
        if e.name not in (*EXTRAS, "wandb"):
            raise
        how = f"uv sync --extra {EXTRAS[e.name]}" if e.name in EXTRAS else f"uv pip install {e.name}"
        fail(f"{e.name} is not installed; run `{how}`")
    except BrokenPipeError:
        raise SystemExit(errors.EXIT_OK) from None
    except KeyboardInterrupt:
        fail(on_interrupt, 130)
    else:
        raise SystemExit(code)


def call(script: str, *args: object, verdict: bool = False) -> int:
    """Runs scripts/SCRIPT.py in this process, as its command would, and returns its exit code: torch is imported once
    for all. Another code than 0 (or, of a `verdict`, 1 and 3) ends this process with it."""
    path = f"scripts/{script}.py"
    before, sys.argv = sys.argv, [path, *map(str, args)]
    print(f"\n── {' '.join(sys.argv)} ──", flush=True)
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as e:
        code = int(e.code or 0)
    finally:
        sys.argv = before
    if code not in ((0, 1, 3) if verdict else (0,)):
        raise SystemExit(code)
    return code
