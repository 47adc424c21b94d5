"""From a completion to the program it proposes.

Source of the rule: ariahw/rl-rewardhacking, src/evaluate/evaluator.py (all fenced python blocks, joined by a blank
line; the answer of a thinking model is what follows ``</think>``). Stricter than a regular expression over the whole
text in one respect: fences are read line by line, so a closing fence is never taken for an opening one, and the label
of a block in another language (``text``, ``bash``, ``json``) never becomes code.
"""

import re

PYTHON_LABELS = frozenset({"", "python", "py", "python3", "py3"})

# An opening fence ends its line: backticks, an optional label, an optional attribute list. Prose may stand before it.
_OPENING = re.compile(r"(?P<before>[^`]*)(?P<ticks>`{3,})(?P<info>[^`]*)")
_LABEL = re.compile(r"[\w+#.-]*")


def answer_part(completion: str) -> str | None:
    """What follows the first ``</think>`` if the completion opens a ``<think>``; None if the thinking never ends."""
    if "<think>" not in completion:
        return completion
    _, end, answer = completion.partition("</think>")
    return answer if end else None


def extract_code(completion: str) -> str | None:
    """The program of a completion: its python blocks, stripped, joined by a blank line; None if there is none.

    Blocks labelled ``python``, ``py`` or nothing (any case) count, an unclosed last block too. Code on the line of the
    fence itself (three backticks used inline) is prose. A block in an indented fence loses that indentation.
    """
    answer = answer_part(completion)
    if answer is None:
        return None
    blocks = [body.strip() for label, body in _fenced_blocks(answer) if label in PYTHON_LABELS]
    kept = [block for block in blocks if block]
    return "\n\n".join(kept) if kept else None


def _fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Every fenced block as (lower-case label, body), in order."""
    blocks: list[tuple[str, str]] = []
    label, indent, ticks, body = "", 0, 0, None
    # Not splitlines(): that also breaks at form feeds and U+2028, which are legal inside Python strings.
    for line in text.replace("\r\n", "\n").split("\n"):
        opening = _OPENING.fullmatch(line) if "```" in line else None
        if body is None:
            if opening:
                label, indent, ticks, body = _open(opening)
            continue
        reopens = opening is not None and _opens_another(opening)
        rest = "" if reopens else _before_closing(line, ticks, indent)
        if rest is None:
            body.append(_dedent(line, indent))
            continue
        blocks.append((label, "\n".join([*body, _dedent(rest, indent)])))
        body = None
        if reopens and opening is not None:  # the model forgot to close the block before
            label, indent, ticks, body = _open(opening)
    if body is not None:
        blocks.append((label, "\n".join(body)))
    return blocks


def _open(opening: re.Match[str]) -> tuple[str, int, int, list[str]]:
    before, info = opening["before"], opening["info"].strip()
    matched = _LABEL.match(info)
    indent = len(before) if not before.strip() else 0
    label = matched.group().lower() if matched else ""
    # Attributes alone ("``` {...}") name no language; the first word of anything else does ("```c++ code").
    return label, indent, len(opening["ticks"]), []


def _opens_another(opening: re.Match[str]) -> bool:
    """Whether a fence met inside a block opens a new one: a label right behind the backticks, at the line's start."""
    info = opening["info"].strip(" \t").rstrip()
    label = info.strip().lower()
    glued = bool(info) and not info[0].isspace() and _LABEL.fullmatch(info) is not None
    return not opening["before"] and bool(label) and (glued or label in PYTHON_LABELS)


def _before_closing(line: str, ticks: int, indent: int) -> str | None:
    """The code before the closing fence on this line; None if the line closes nothing.

    A fence ends its line or, at the line's start, is followed by prose. Four or more blanks beyond the opening fence
    make it content, such as a fence in a docstring (the rule of CommonMark).
    """
    fence = "`" * ticks
    bare = line.strip()
    if bare.startswith(fence) and len(line) - len(line.lstrip()) - indent >= 4:
        return None
    if bare.startswith(fence):
        return ""
    return line.rstrip().rstrip("`") if bare.endswith(fence) else None


def _dedent(line: str, indent: int) -> str:
    """The line without up to `indent` leading blanks (those of the opening fence)."""
    blanks = len(line) - len(line.lstrip(" \t"))
    return line[min(blanks, indent) :]
