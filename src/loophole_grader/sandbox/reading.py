"""Which of a completion's blocks are its program, where they do not compile together.

The benchmark's rule comes first: all blocks, joined by a blank line. Where that does not compile, the benchmark earns
nothing. Two kinder readings are tried then, in this order, and nothing else is:

1. the same with no-break spaces as spaces and without what has no width (byte-order marks, U+200B): they look like the
   code that was meant;
2. without the blocks that no reader takes for the program. Each of them

   - is a console session: its first line begins with ``>>>``; or
   - stands in a fence without a label, defines nothing and does not compile by itself: prose, an example; or
   - does not compile by itself and is a draft: all that it defines, if anything, is defined once more by a later block
     that is kept, as later definitions would replace it had it compiled; or
   - does not compile by itself and is a quotation (the key line, the signature once more): each of its lines, comments and
     dots aside, stands in blocks that compile by themselves.

   What is left must define a function or a class. So a block that compiles is never left out, nor is one that defines
   what no later block does and has a line that no other has: a broken program behind a hack is not dropped for the hack to
   be run.

Used both as a module of the package and, imported by its file alone, inside the judged process, which alone compiles:
model text can keep a compiler busy or end it. Standard library only, no relative imports.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Block = tuple[str, bool]  # text, and whether its fence says that it is Python

_DEFINES = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*[\[(]|class[ \t]+(\w+)[ \t]*[\[(:])", re.MULTILINE
)
_MENDED = dict.fromkeys((0xA0, 0x2007, 0x202F), " ") | dict.fromkeys((0x200B, 0xFEFF))  # no-break spaces; without width
_joined = "\n\n".join


def readings(blocks: Sequence[Block], compiles: Callable[[str], Any]) -> Iterator[str]:
    """What the blocks may be read as: the first that compiles is the program, and the benchmark's is the first.
    `compiles` is asked about single blocks, and only once all blocks together did not compile."""
    plain = [text for text, _ in blocks]
    yield _joined(plain)
    mended = [text.translate(_MENDED) for text in plain]
    differs = mended != plain
    if differs:
        yield _joined(mended)
    whole = [not _is_session(text) and bool(compiles(text)) for text in mended]
    elsewhere = {line for text, compiled in zip(mended, whole, strict=True) if compiled for line in _lines(text)}
    kept: list[int] = []
    defined: set[str] = set()  # by the blocks behind, of those kept
    for index in reversed(range(len(blocks))):
        text, (_, labelled), names = mended[index], blocks[index], defined_in(mended[index])
        prose, draft = not labelled and not names, bool(defined) and names <= defined
        if whole[index] or not (_is_session(text) or prose or draft or elsewhere.issuperset(_lines(text))):
            kept.insert(0, index)
            defined |= names
    if defined and len(kept) < len(blocks):
        yield from (_joined([texts[index] for index in kept]) for texts in (plain, mended)[: 1 + differs])


def _is_session(text: str) -> bool:
    return text.lstrip().startswith(">>>")


def _lines(text: str) -> set[str]:
    """Without their indentation, and those that say something."""
    lines = {line.strip() for line in text.split("\n")}
    return {line for line in lines if line not in ("", "...") and line[0] != "#"}


def defined_in(text: str) -> set[str]:
    """Functions and classes that a text defines, at any depth, also where it does not parse."""
    return {function or owner for function, owner in _DEFINES.findall(text)}
