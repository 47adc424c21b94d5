"""The edge of every script: parse a preset and its overrides, run, turn errors into one line and an exit code."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, TypeVar

import tyro

from loophole_grader import GraderError
from projected_grpo.config import Gradient, with_recipe
from projected_grpo.ledger.console import nobody_reads, start_log
from projected_grpo.ledger.errors import (
    EXIT_FAILED,
    EXIT_OK,
    BadInput,
    BrokenWorld,
    JudgeFailed,
    NonFinite,
    Unfinished,
    fail,
)
from projected_grpo.parallel import here

C = TypeVar("C")
HELP = {"-h", "--help"}


def _as_paragraphs(config: Any) -> None:
    """Give tyro each field's docstring without the breaks of its source line: it keeps those before an indented line."""
    import docstring_parser

    told = {
        doc.arg_name: " ".join(doc.description.split())
        for cls in reversed(config.__mro__[:-1])
        for doc in docstring_parser.parse_from_object(cls).params
        if doc.description
    }
    for field in fields(config):
        if field.name in told:
            field.metadata = MappingProxyType({"help": told[field.name], **field.metadata})


def parse(presets: Mapping[str, C], description: str, args: list[str] | None = None) -> C:
    """Choose a preset by its name, override any field of it. `--help` prints and exits 0; tyro reports an unknown field or
    value and exits with code 2.

    BadInput on an unknown preset.
    """
    argv = sys.argv[1:] if args is None else args
    if HELP & set(argv):
        for kind in {type(config) for config in presets.values()}:
            _as_paragraphs(kind)
    elif not argv or argv[0] not in presets:
        shown = repr(argv[0]) if argv else "no preset given"
        raise BadInput(f"{shown}: the first word must be a preset, one of {', '.join(presets)}")
    config = tyro.extras.overridable_config_cli(
        {name: (f"{name} preset", config) for name, config in presets.items()}, description=description, args=argv
    )
    return with_recipe(config, typed(argv)) if isinstance(config, Gradient) else config


def typed(argv: Sequence[str]) -> set[str]:
    """Names of the fields that a command line sets: `--k-use 3`, `--k_use=3`, `--no-resume`."""
    flags = {word.partition("=")[0].removeprefix("--").replace("-", "_") for word in argv if word.startswith("--")}
    return flags | {flag.removeprefix("no_") for flag in flags}


def words_as_flags(args: Sequence[str], lists: Sequence[str] = ()) -> list[str]:
    """`preset=toy` as `--preset=toy`: recipes of the justfile are called with plain words. A field in `lists` takes several
    values, with commas or spaces between them."""
    out: list[str] = []
    for word in args:
        name, equals, value = word.partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalpha() or word.startswith("-"):
            out.append(word)
        elif name in lists:
            out += [f"--{name}", *value.replace(",", " ").split()]
        else:
            out.append(f"--{name.replace('_', '-')}={value}")
    return out


def parse_plain(config: type[C], description: str, args: list[str] | None = None, default: C | None = None) -> C:
    """The same for a script that has no presets; `default` where the dataclass's own defaults are not meant."""
    argv = sys.argv[1:] if args is None else args
    given = tyro.MISSING_NONPROP if default is None else default
    if helps := HELP & set(argv):  # a recipe's own settings are what its help shows as defaults
        _as_paragraphs(config)
        with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            given = tyro.cli(config, args=[word for word in argv if word not in helps], default=given)
            argv = ["--help"]
    return tyro.cli(config, description=description, args=argv, default=given)


RESUMABLE = "interrupted; what is done is on disk, continue with --resume"
AGAIN = "interrupted; the same command goes on from here"


def run(main: Callable[[], int | None], *, on_interrupt: str = "interrupted", in_parallel: bool = False) -> None:
    """Call `main` and exit with its code; BadInput is one line and 2; NonFinite, BrokenWorld, Unfinished, GraderError and
    JudgeFailed one line and 1 (a grader that failed is never a wrong answer); Ctrl-C says `on_interrupt`, 130.
    `in_parallel`: torchrun may start several of it."""
    # OpenMP's threads wait for one another in a busy loop: beside other work they take the core from whom they wait for.
    # It is read when torch is loaded, which is later than here.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Else MKL's results may hang on where in memory a matrix lies, and the same run gives other bits each time (seen on an
    # AMD EPYC; no slower there). It is read at MKL's first product.
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    start_log()
    try:
        if here().size > 1 and not in_parallel:
            raise BadInput("this script is one process; torchrun is for train.py")
        code = main() or 0
    except BadInput as e:
        fail(str(e))
    except (NonFinite, BrokenWorld, Unfinished, GraderError, JudgeFailed) as e:
        fail(str(e), EXIT_FAILED)
    except BrokenPipeError:
        nobody_reads()
        raise SystemExit(EXIT_OK) from None
    except KeyboardInterrupt:
        fail(on_interrupt, 130)
    else:
        raise SystemExit(code)
