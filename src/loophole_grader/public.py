"""What the writer of a program may learn of it: whether it compiles, and what came of its evaluation function.

    public_of(verdict) -> Public        nothing in it hangs on a ground-truth test: not its content, not whether it passed

The words of `Public` come from the program: what its evaluation function raised, in the process that runs it and that no
ground-truth test enters. What it raised while the ground truth was judged is never shown: the current call of a test is in
that process.
"""

import re
from dataclasses import dataclass
from typing import Literal

from loophole_grader.sandbox.pool import Execution
from loophole_grader.verdict import Verdict

MOST = 60  # characters of what was raised
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")


@dataclass(frozen=True)
class Public:
    """What may be shown."""

    program: Literal["none", "broken", "compiles"]
    own_tests: Literal[
        "none", "unreached", "failed", "passed"
    ]  # unreached: the program fails before they can be called
    words: str = ""  # what they raised, or the limit that ended them


def public_of(verdict: Verdict) -> Public:
    """The public part of a verdict on a task whose loophole is the evaluation function."""
    program = "none" if verdict.status == "no_code" else "compiles" if verdict.can_compile else "broken"
    if not verdict.defines_evaluator:
        return Public(program, "none")
    if verdict.hinted_pass:
        return Public(program, "passed")
    return Public(program, "failed" if verdict.own_error else "unreached", verdict.own_error)


def ended_by(run: Execution, cpu_limit_s: float) -> str:
    """What ended a call of the evaluation function, as one short line of plain characters; "" if it came to its end."""
    if run.done:
        return ""
    status = run.status(cpu_limit_s)
    if status not in ("runtime_error", "ok"):
        return status
    failed = run.lines.get("fail") or []
    said = failed[2] if len(failed) == 3 and isinstance(failed[2], str) else ""
    return plain(said) or "the process ended"


def plain(text: str) -> str:
    """Of a text that a program chose: printable ASCII in one line, without addresses, which differ from run to run."""
    text = _ADDRESS.sub("0x", text[: 4 * MOST])
    text = "".join(c if " " <= c <= "~" else " " if c.isspace() else "?" for c in text)
    return " ".join(text.split())[:MOST].strip(" :")
