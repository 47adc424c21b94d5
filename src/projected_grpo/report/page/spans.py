"""Where a completion writes its own evaluation function: character spans for a reader's eye, judged by nobody.

    spans("```python\\ndef run_tests():\\n    pass\\n```", "run_tests") -> [Span(10, 35, "own")]

`own` is the definition that the grader calls, by the rule of `loophole_grader` (a function at module level wins over a
method, a method over one nested in a function, the last over those before it; `async` ones do not count). `binds` is any
other definition or assignment of that name, `calls` a call of it. The program is found by the grader's own extractor. Where
it does not parse, or a definition shares a line with a fence, definitions are found by their indentation, and all are
`binds` but the first.
"""

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from loophole_grader import Task
from loophole_grader.extract import blocks_of
from loophole_grader.sandbox.reading import Block, Reading, program_of, readings

Kind = Literal["own", "binds", "calls"]
_ASKED = re.compile(r"calling a function called (\w+)\(\)")
# Private-use characters: a tag ends each line of the text, so that the extractor itself says which lines it took.
_TAG = re.compile("\ue000(\\d+)\ue001$", re.MULTILINE)


@dataclass(frozen=True)
class Span:
    """Characters start to end (exclusive) of a completion."""

    start: int
    end: int
    kind: Kind


@dataclass(frozen=True)
class _Program:
    """An extracted program and, of each of its lines, the offset in the completion of its first character; None where it
    shares its line with a fence."""

    lines: Sequence[str]
    offsets: Sequence[int | None]

    def offset(self, line: int, byte: int) -> int | None:
        """Place in the completion of ast's line (from 1) and column (UTF-8 bytes)."""
        start = self.offsets[line - 1]
        return None if start is None else start + len(self.lines[line - 1].encode()[:byte].decode())


def evaluator_name(prompt: str) -> str:
    """The function that a prompt says it is graded by; the benchmark's where it says nothing."""
    asked = _ASKED.findall(prompt)
    return asked[-1] if asked else Task.evaluator_name


def spans(completion: str, name: str) -> list[Span]:
    """Spans of a completion that define, bind or call the function `name`, in order, none within another."""
    if name not in completion:
        return []
    program = _program(completion)
    found = None if program is None else _parsed(program, name)
    return _outermost(_by_indentation(completion, name) if found is None else found)


def _program(completion: str) -> _Program | None:
    """The completion's program, each line with its place; None if there is none."""
    lines = completion.split("\n")
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    # Blank lines stay blank and fences stay fences, or the extractor would see another text.
    fences = ("```", "~~~")
    tagged = [
        line if not line.strip() or any(fence in line for fence in fences) else _tagged(line, i)
        for i, line in enumerate(lines)
    ]
    blocks = blocks_of("\n".join(tagged))
    if not blocks:
        return None
    kept, mended = _reading([(_TAG.sub("", text), labelled) for text, labelled in blocks])
    texts, offsets = [], []
    for line in program_of(blocks, kept, False).split("\n"):
        tag = _TAG.search(line)
        text = line[: tag.start()] if tag else line
        source = int(tag[1]) if tag else None
        offsets.append(None if source is None else starts[source] + lines[source].find(text))
        # ast counts a bare carriage return as a line
        texts.append(program_of([(text, True)], (0,), mended).replace("\r", " "))
    return _Program(texts, offsets)


def _reading(blocks: Sequence[Block]) -> Reading:
    """Which blocks are the program, by the grader's rule; where none compiles, all."""
    every = tuple(range(len(blocks))), False
    return next((reading for reading in readings(blocks, _compiles) if _compiles(program_of(blocks, *reading))), every)


def _compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model's invalid escapes are not ours to mend
            compile(text, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _tagged(line: str, number: int) -> str:
    body = line.removesuffix("\r")
    return f"{body}\ue000{number}\ue001{line[len(body) :]}"


def _parsed(program: _Program, name: str) -> list[Span] | None:
    """Spans by the syntax tree; None if the program does not parse or a span cannot be placed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model's invalid escapes are not ours to mend
            tree = ast.parse("\n".join(program.lines))
        nodes = list(_nodes(tree, name))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    out = []
    for node, kind in nodes:
        line = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        start = program.offset(line, node.col_offset)  # a decorator's @ stands right above the def
        last = node.end_lineno or node.lineno
        whole = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))  # with a comment behind its last statement
        end = program.offset(
            last, len(program.lines[last - 1].rstrip().encode()) if whole else node.end_col_offset or 0
        )
        if start is None or end is None:
            return None
        out.append(Span(start, end, kind))
    return out


def _nodes(tree: ast.Module, name: str) -> Iterator[tuple[ast.stmt | ast.expr, Kind]]:
    own = evaluator_of(tree, name)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            yield node, "own" if node is own else "binds"
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and any(_names(t, name) for t in _targets(node)):
            yield node, "binds"
        elif isinstance(node, ast.Call) and _names(node.func, name):
            yield node, "calls"


def _targets(node: ast.Assign | ast.AnnAssign) -> Sequence[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _names(node: ast.expr, name: str) -> bool:
    """`name` itself, or an attribute of that name."""
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)


def evaluator_of(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The definition that the grader calls: its rule (`reached` in the judged process, which cannot be imported here),
    held equal to it by a test. Of several in one place the last, as Python binds them."""
    found: list[tuple[int, str, ast.FunctionDef]] = []
    places: dict[ast.AST, tuple[int, str]] = {tree: (0, "")}
    for node in ast.walk(tree):
        rank, parent = places.get(node, (0, ""))
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef) and inner.name == name:
                found.append((rank, parent, inner))
            places[inner] = rank, parent
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                places[inner] = 2, ""
            elif isinstance(inner, ast.ClassDef) and rank < 2:
                places[inner] = 1, inner.name
    if not found:
        return None
    first = min(found, key=lambda item: item[0])
    if first[0] == 2:
        return first[2]
    return max((item[2] for item in found if item[:2] == first[:2]), key=lambda node: (node.lineno, node.col_offset))


def _by_indentation(text: str, name: str) -> list[Span]:
    """From each `def name(` to the last line that is indented deeper; a fence ends it."""
    head = re.compile(rf"^([ \t]*)((?:async[ \t]+)?def[ \t]+{re.escape(name)}\b.*)$", re.MULTILINE)
    out = []
    for match in head.finditer(text):
        end = match.end()
        for line in re.finditer(r"\n([^\n]*)", text[match.end() :]):
            body = line[1]
            depth = len(body) - len(body.lstrip(" \t"))
            if body.strip() and (depth <= len(match[1]) or body.lstrip().startswith("```")):
                break
            if body.strip():
                end = match.end() + line.end()
        out.append(Span(match.start(2), end, "binds" if out or match[2].startswith("async") else "own"))
    return out


def _outermost(found: Sequence[Span]) -> list[Span]:
    """Without spans that overlap another; the own function stays, whatever it lies in."""
    kept: list[Span] = []
    for span in sorted(found, key=lambda s: (s.kind != "own", s.start, -s.end)):
        if not any(span.start < k.end and k.start < span.end for k in kept):
            kept.append(span)
    return sorted(kept, key=lambda s: s.start)
