"""Read as a person what a run holds, or what it is trained on.

show RUN STEP [ROW]: a step as a table of its samples, or one sample whole.

show RUN --kinds hack: a rate by kind of problem, over every ten steps: where hacking begins and where it goes.

show RUN --modules: where in the model the energy along V lies, early against late.

show problems SOURCE [WHICH]: what RL trains on; without WHICH a line each.

show pairs SOURCE [WHICH]: what V is made from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from loophole_grader import HINTS
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import finished_manifest, read_manifest
from projected_grpo.ledger.step_file import COLUMNS, read_step, step_path, steps_in
from projected_grpo.ledger.step_log import STEP_SHOWN, cell, step_header, step_legend, step_line
from projected_grpo.prompts import chat_of
from projected_grpo.records import Pair, Problem
from projected_grpo.run import cli


@dataclass(frozen=True)
class ShowConfig:
    """What to show."""

    what: Annotated[str, tyro.conf.Positional]
    """A run's folder, or `problems`, or `pairs`."""
    which: Annotated[str, tyro.conf.Positional] = ""
    """Of a run the step; else the source, as for --problems or --pairs: `builtin`, `toy`, `small-held-out`, a
    file."""
    one: Annotated[str, tyro.conf.Positional] = ""
    """A row of the step, or a problem's or pair's number or name. Empty: a line each."""
    kinds: Literal["", "hack", "hacked", "gt", "form"] = ""
    """Of a run: this rate by kind of problem."""
    modules: bool = False
    """Of a run: where in the model the energy along V lies."""


def step(run: Path, which: str, one: str) -> str:
    """Returns a step as a table; or prompt, completion and every number of one sample of it."""
    from tabulate import tabulate

    rows = read_step(step_path(run, chosen(which, steps_in(run), "step")))
    if one:
        row = rows[chosen(one, range(len(rows)), "row")]
        bulky = {"prompt", "completion", "prompt_ids", "completion_ids", "behaviour_logps"}
        numbers = "\n".join(f"{c.name:16} {row[c.name]!s:24} {c.meaning}" for c in COLUMNS if c.name not in bulky)
        prompt, completion = f"prompt ({len(row['prompt_ids'])} tokens)", f"completion ({row['comp_len']} tokens)"
        return titled((prompt, row["prompt"]), (completion, row["completion"]), ("numbers", numbers))
    shown = [c for c in COLUMNS if c.level == "sample" and c.show]
    cells = [[i, *(cell(row[c.name], c.fmt).strip() for c in shown)] for i, row in enumerate(rows)]
    table = tabulate(cells, ["row", *(c.show for c in shown)], disable_numparse=True)
    return "\n".join([step_header(), step_line(rows), "", table, "", *step_legend()[: len(STEP_SHOWN) + 4]])


def chosen(text: str, known: Sequence[int], what: str) -> int:
    """Returns the number that a text is. BadInput where it is none of those that are known."""
    if not text.isdecimal() or int(text) not in known:
        raise BadInput(f"{what} {text!r}: give one of {known[0]} to {known[-1]}, as in `just show out/train/RUN 0 3`")
    return int(text)


def titled(*parts: tuple[str, str]) -> str:
    """Returns texts, each under its title."""
    return "\n".join(f"── {title} ──\n{text}" for title, text in parts)


def kinds(run: Path, rate: str) -> str:
    """Returns a table for each way in which the run's problems are divided. BadInput as in `by_kind`."""
    from tabulate import tabulate

    from projected_grpo.data.problems import load_problems
    from projected_grpo.report.one_run import by_kind

    problems = load_problems(read_manifest(run)["config"]["problems"])
    tables = by_kind(run, {p.problem_id: p.difficulty for p in problems}, rate)
    return "\n\n".join(tabulate(lines, header, disable_numparse=True) for header, *lines in tables)


def problem_whole(p: Problem) -> str:
    """Returns the prompt with the hint, if it has room for it; hidden tests and solution."""
    hint = "simple_overwrite_tests"
    chat = chat_of(p, hint if HINTS[hint].old in p.messages[-1][1] else "none", "no_intervention")
    return titled(
        *((m["role"], m["content"]) for m in chat),
        ("set-up code", p.task.setup_code),
        (f"hidden tests ({len(p.task.tests)})", "\n".join(p.task.tests)),
        ("a solution", p.task.canonical_solution),
    )


def pair_whole(p: Pair) -> str:
    """Returns the prompt without a hint, and each side."""
    return titled(*p.messages, ("hack", p.hack), ("clean", p.clean), ("another clean (placebo)", p.clean_alt or "none"))


def source(what: str, which: str, one: str) -> str:
    """Returns the problems or pairs of a source, a line each; or one of them whole."""
    from projected_grpo.data.pairs import load_pairs
    from projected_grpo.data.problems import load_problems

    if not which:
        raise BadInput(f"show {what}: name a source: builtin, toy, small or a file")
    if what == "problems":
        found = {p.problem_id: (p.difficulty, p) for p in load_problems(which)}
    else:
        found = {p.name: (p.mechanism, p) for p in load_pairs(which)}
    if not one:
        return "\n".join([*(f"{name}\t{kind}" for name, (kind, _) in found.items()), f"{len(found)} {what}"])
    names = list(found)
    name = names[int(one)] if one.isdecimal() and int(one) < len(names) else one
    if name not in found:
        raise BadInput(f"{one}: {what} of {which} are 0 to {len(names) - 1}, or {names[0]} …")
    kind, p = found[name]
    return f"{problem_whole(p) if isinstance(p, Problem) else pair_whole(p)}\n{name}\t{kind}"


def main() -> None:
    config = cli.parse_plain(ShowConfig, __doc__)
    run, words = Path(config.what), bool(config.which or config.one)
    if words + bool(config.kinds) + config.modules > 1:
        raise BadInput(f"show {config.what}: give one of STEP, --kinds and --modules")
    if config.what in ("problems", "pairs"):
        print(source(config.what, config.which, config.one))
    elif config.kinds:
        print(kinds(run, config.kinds))
    elif config.modules:
        from projected_grpo.report.one_run import energy_text

        of = finished_manifest(run, ("train", "probe_distill"))["config"]
        print(f"{run}: {of['arm']}, seed {of['seed']}\n\n{energy_text(run)}")
    else:
        print(step(run, config.which, config.one))


if __name__ == "__main__":
    cli.run(main)
