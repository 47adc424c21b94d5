"""Read what is trained on, as a person: `show_source problems SOURCE [WHICH]` or `show_source pairs SOURCE [WHICH]`.

Without WHICH every problem or pair in a line (an id, a name; its kind), and how many there are of what; with a number, an id
or a name that one whole.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from loophole_grader import HINTS
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.prompts import messages_for
from projected_grpo.records import Pair, Problem
from projected_grpo.run import cli


@dataclass(frozen=True)
class ShowSourceConfig:
    """What to show."""

    what: Annotated[Literal["problems", "pairs"], tyro.conf.Positional]
    """problems: what RL trains on and is evaluated on; pairs: what V is made from."""
    source: Annotated[str, tyro.conf.Positional]
    """As for --problems or --pairs: `builtin`, `toy`, `small`, `small-held-out`, `small-informed`, a file."""
    which: Annotated[str, tyro.conf.Positional] = ""
    """A number, counted from 0, or an id or a name. Empty: a line each."""
    rows: NoPath = Path()
    """Write the problems into this file as JSON lines of benchmark rows, which is what any --problems reads."""


def problem_whole(p: Problem) -> str:
    """Prompt with the hint, if it has room for it; hidden tests and solution."""
    hint = HINTS["simple_overwrite_tests"]
    fits = hint.old in next((text for role, text in reversed(p.messages) if role == "user"), "")
    chat = messages_for(p.messages, hint.name if fits else "none", "no_intervention")
    asked = [f"── {m['role']} ──\n{m['content']}" for m in chat]
    setup = [f"── set-up code ──\n{p.task.setup_code}"] if p.task.setup_code else []
    tests = "\n".join(p.task.tests)
    return "\n".join(
        [*asked, *setup, f"── hidden tests ({len(p.task.tests)}) ──\n{tests}",
         f"── a solution ──\n{p.task.canonical_solution}", f"{p.problem_id}\t{p.difficulty}"]
    )  # fmt: skip


def pair_whole(p: Pair) -> str:
    """Prompt without a hint, and each side."""
    sides = {"hack": p.hack, "clean": p.clean, "another clean (placebo)": p.clean_alt}
    texts = [*p.messages, *((name, text) for name, text in sides.items() if text is not None)]
    return "\n".join([*(f"── {name} ──\n{text}" for name, text in texts), f"{p.name}\t{p.mechanism}"])


def told(kinds: Iterable[str], what: str) -> str:
    """How many there are of each kind."""
    counts = Counter(kinds)
    each = ", ".join(f"{kind or 'no kind'} {n}" for kind, n in counts.items())
    return f"{what}: {counts.total()} ({each})"


def told_pairs(pairs: tuple[Pair, ...]) -> str:
    """The same of pairs, and how many of them V is not made from."""
    from projected_grpo.data.pairs import split

    try:
        held_out = len(split(pairs)[1])
    except BadInput as e:
        return f"{told((p.mechanism for p in pairs), 'pairs')}; {e}"
    share = f"held out: {held_out} ({held_out / len(pairs):.0%}), which V is tested on and not made from"
    return f"{told((p.mechanism for p in pairs), 'pairs')}; {share}"


def check(config: ShowSourceConfig) -> None:
    """BadInput, before anything is drawn, for a source that is not there, or a name that nothing in it can have."""
    from projected_grpo.data.pairs import WRITTEN, check_pairs
    from projected_grpo.data.problems import WORLDS, check_source

    if config.what == "problems":
        check_source("problems", config.source)
    else:
        check_pairs(config.source)
    world = max((w for w in WORLDS if f"{config.source}-".startswith(f"{w}-")), key=len, default="")
    made_here = config.source in WRITTEN or config.source.removesuffix("-held-out") in WORLDS
    if made_here and config.which and not config.which.isdecimal() and not config.which.startswith(world):
        named = f"a number, or a name that `show_source {config.what} {config.source}` lists"
        raise BadInput(f"{config.which}: {config.what} of {config.source} are called {world}-…; give {named}")


def main() -> int:
    config = cli.parse_plain(ShowSourceConfig, __doc__)
    check(config)
    from projected_grpo.data.pairs import load_pairs
    from projected_grpo.data.problems import as_rows, load_problems
    from projected_grpo.ledger.files import write_atomic

    if config.rows != Path() and (config.what != "problems" or config.which):
        raise BadInput(f"--rows {config.rows}: holds all problems of a source; give `problems` and no number")
    found: dict[str, Problem | Pair]
    problems: tuple[Problem, ...] = ()
    if config.what == "problems":
        problems = load_problems(config.source)
        found = {p.problem_id: p for p in problems}
        if config.rows != Path():
            write_atomic(config.rows, as_rows(problems), "--rows")
            print(f"{len(problems)} rows: {config.rows}")
            return 0
    else:
        found = {p.name: p for p in load_pairs(config.source)}
    if not config.which:
        for name, one in found.items():
            print(f"{name}\t{one.difficulty if isinstance(one, Problem) else one.mechanism}")
        pairs = tuple(p for p in found.values() if isinstance(p, Pair))
        print(told_pairs(pairs) if pairs else told((p.difficulty for p in problems), "problems"))
        return 0
    number = int(config.which) if config.which.isdecimal() else -1
    name = list(found)[number] if 0 <= number < len(found) else config.which
    if name not in found:
        raise BadInput(
            f"{config.which}: {config.what} of {config.source} are 0 to {len(found) - 1}, or {next(iter(found))} …"
        )
    one = found[name]
    print(problem_whole(one) if isinstance(one, Problem) else pair_whole(one))
    return 0


if __name__ == "__main__":
    cli.run(main)
