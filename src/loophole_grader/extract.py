"""From a completion to the program it proposes.

The benchmark's rule (ariahw/rl-rewardhacking, src/evaluate/evaluator.py, `parse_response`): the text of all fences
labelled ``python`` or nothing, stripped, joined by a blank line. It is one regular expression over the whole text,

    ```(?:python)?\\n(.*?)(?:```|$)

Stricter than that in one respect: fences are read line by line, so a closing fence is never taken for an opening one,
and the label of a block in another language (``text``, ``bash``, ``json``) never becomes code.

Kinder, because a reader sees a program where that expression sees none, or sees more than the program:

- the labels ``py``, ``python3.11`` and a file's name (``solution.py``); blanks and attributes behind a label, prose before a
  fence on its line;
- fences of tildes, where none of backticks holds code, or only such as is not labelled and defines nothing (an output);
- an unlabelled fence in which each line is of an example's form (``Input: x = 2``) is none of the program, though such lines
  happen to be Python: annotations, whose names do not exist;
- what thinks before it answers answers behind the first ``</think>``: it begins with ``<think>``, or that stands in the
  prompt (`with_think_tag`), so that no ``<think>`` comes before ``</think>``. The benchmark reads the fences of the
  thoughts, too. The words ``<think>`` anywhere else are words;
- a byte-order mark at the start of the text or of a block is no part of it;
- a line may end in three backticks behind a blank in a comment;
- blocks that do not compile together are read as `sandbox/reading.py` says.

All of this depends on the text alone. Text without a fence is no program, whatever it is.
"""

import re

from loophole_grader.sandbox.reading import Block, defined_in

_PYTHON = re.compile(r"(?:py(?:thon)?[\d.]*|[\w.-]*\.py)?")  # labels, and none

# An opening fence ends its line: backticks, an optional label, an optional attribute list. Prose may stand before it.
_OPENING = re.compile(r"(?P<before>[^`]*)(?P<ticks>`{3,})(?P<info>[^`]*)")
_TILDES = re.compile(r"(?P<before>\s*)(?P<ticks>~{3,})(?P<info>[^~]*)")  # never inline, so no prose before it
_LABEL = re.compile(r"[\w+#.-]*")
_EXAMPLE = re.compile(r"(?:Input|Output|Sample [Ii]nput|Expected [Oo]utput|Explanation|Example|Idea|Note)\b[^:=(\[]*:")
_BOM = "\ufeff"
_THINK = "<think>"
_THINKS = re.compile(rf"[\s{_BOM}\u200b]*{_THINK}")  # whatever cannot be seen stands before it


def with_think_tag(prompt: str, completion: str) -> str:
    """The completion behind the `<think>` that its rendered prompt ends with, if any: cut-off thoughts hold no
    tag."""
    return _THINK + completion if prompt.rstrip().endswith(_THINK) else completion


def extract_code(completion: str) -> str | None:
    """The program of a completion by the benchmark's rule: all of `blocks_of`, joined. None if there is none.

    Where this does not compile, `sandbox/reading.py` says which of the blocks are the program.
    """
    return "\n\n".join(text for text, _ in blocks_of(completion)) or None


def blocks_of(completion: str) -> tuple[Block, ...]:
    """The blocks of a completion that may be its program: text, and whether its fence is labelled as Python.

    Blocks labelled ``python``, ``py`` or nothing (any case) count, an unclosed last block too. Code on the line of
    the fence itself (three backticks used inline) is prose. A block in an indented fence loses that indentation."""
    thoughts, closed, answer = completion.partition("</think>")  # no answer, where the thinking never ends
    if not _THINKS.match(thoughts) and (not closed or _THINK in thoughts):
        answer = completion  # it has no thoughts
    answer = answer.lstrip(_BOM).replace("\r\n", "\n")
    blocks = _python_blocks(answer, "`", _OPENING)
    if any(labelled or defined_in(text) for text, labelled in blocks):
        return blocks
    others = _python_blocks(answer, "~", _TILDES)
    return others if not blocks or any(defined_in(text) for text, _ in others) else blocks


def _python_blocks(text: str, mark: str, pattern: re.Pattern[str]) -> tuple[Block, ...]:
    blocks = []
    for label, body in _fenced_blocks(text, mark, pattern):
        code = body.strip().lstrip(_BOM).strip()
        lines = [line.strip() for line in code.split("\n") if line.strip()]
        if _PYTHON.fullmatch(label) and code and (label or not all(map(_EXAMPLE.match, lines))):
            blocks.append((code, bool(label)))
    return tuple(blocks)


def _fenced_blocks(text: str, mark: str, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Every block in fences of this mark, as (lower-case label, body), in order."""
    blocks: list[tuple[str, str]] = []
    label, indent, ticks, body = "", 0, 0, None
    # Not splitlines(): it breaks at form feeds and U+2028, too, which are legal in Python strings.
    for line in text.split("\n"):
        opened, reopens = _opened(pattern, line) if 3 * mark in line else (None, False)
        if body is not None:
            rest = "" if reopens else _before_closing(line, mark * ticks, indent)
            if rest is None:
                body.append(_dedented(line, indent))
                continue
            blocks.append((label, "\n".join([*body, _dedented(rest, indent)])))
            body = None
            if not reopens:  # else the model forgot to close the block before
                continue
        if opened:
            (label, indent, ticks), body = opened, []
    if body is not None:
        blocks.append((label, "\n".join(body)))
    return blocks


def _opened(pattern: re.Pattern[str], line: str) -> tuple[tuple[str, int, int] | None, bool]:
    """(label, indentation and ticks of the block that a line opens, whether it does so even inside another block: at
    the line's start, with a label and nothing else)."""
    opening = pattern.fullmatch(line)
    if opening is None:
        return None, False
    before, info = opening["before"], opening["info"].strip()
    # Attributes alone ("``` {...}") name no language; the first word of anything else does ("```c++ code").
    label = _LABEL.findall(info)[0]
    indent = 0 if before.strip() else len(before)
    return (label.lower(), indent, len(opening["ticks"])), not before and label == info != ""


def _before_closing(line: str, fence: str, indent: int) -> str | None:
    """The code before the closing fence on this line; None if the line closes nothing.

    A fence ends its line or, at the line's start, is followed by prose. Four or more blanks beyond the opening fence
    make it content, such as a fence in a docstring (the rule of CommonMark), and so does a blank before it in a
    comment."""
    bare = line.strip()
    if bare.startswith(fence):
        return None if len(line) - len(line.lstrip()) - indent >= 4 else ""
    before = bare.rstrip(fence[0])
    if not bare.endswith(fence) or ("#" in before and before[-1].isspace()):
        return None
    return line.rstrip().rstrip(fence[0])


def _dedented(line: str, indent: int) -> str:
    """A line without up to `indent` leading blanks (those of the opening fence)."""
    return re.sub(rf"^[ \t]{{1,{indent}}}", "", line) if indent else line
