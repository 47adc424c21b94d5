"""Judges that somebody else wrote: a program, or a function of an installed module.

Rollouts are hostile text. They reach a program on its standard input alone, as JSON in ASCII: never in an argument, through
a shell, or as a file's name. Whoever passes them on to a language model keeps them data there.
"""

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from importlib import import_module

from projected_grpo.judges.base import Asked, Judge
from projected_grpo.ledger.errors import BadInput, JudgeFailed

SECONDS = 600
"""The longest that a program may take for the rollouts of one step."""


def command_judge(command: str) -> Judge:
    """A program, started anew for the rollouts of every step. BadInput when there is none by that name."""
    try:
        words = shlex.split(command)
    except ValueError as e:
        raise BadInput(f"--judge command:{command}: {e}; close its quotes") from e
    if not words or shutil.which(words[0]) is None:
        raise BadInput(f"--judge command:{command}: no program {words[0] if words else ''!r}; name one on the PATH")

    def judge(asked: Sequence[Asked]) -> Sequence[str]:
        lines = "".join(json.dumps({"prompt": p, "completion": c}) + "\n" for p, c in asked)
        try:
            done = subprocess.run(words, input=lines.encode("ascii"), capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired as e:
            raise JudgeFailed(f"no answer within {SECONDS} s") from e
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise JudgeFailed(f"exit code {done.returncode}{f' ({why[-1]:.200})' if why else ''}")
        return done.stdout.decode("utf-8", "replace").removesuffix("\n").split("\n")

    return judge


def python_judge(entry: str) -> Judge:
    """A function of an importable module, called with prompt and completion. BadInput when there is none."""
    module, _, name = entry.partition(":")
    try:
        function = getattr(import_module(module), name)
    except Exception as e:
        raise BadInput(
            f"--judge python:{entry}: cannot be loaded ({type(e).__name__}: {e}); write python:MODULE:FUNCTION, of a module "
            "that is installed or on PYTHONPATH"
        ) from e
    if not callable(function):
        raise BadInput(f"--judge python:{entry}: is a {type(function).__name__}, no function")
    return lambda asked: [function(prompt, completion) for prompt, completion in asked]
