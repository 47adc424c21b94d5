"""Read as a person what a run holds, or what it is trained on.

show RUN STEP [ROW]            a step as a table of its samples, or one sample whole
show RUN --kinds hack          a rate by kind of problem, over every ten steps: where hacking begins and where it goes
show RUN --modules             where in the model the energy along V lies, early against late
show problems SOURCE [WHICH]   what RL trains on; without WHICH a line each
show pairs SOURCE [WHICH]      what V is made from
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from loophole_grader import HINTS
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath, finished_manifest, read_manifest
from projected_grpo.ledger.step_file import COLUMNS, Row, read_step, step_path, steps_in
from projected_grpo.ledger.step_log import STEP_SHOWN, cell, step_header, step_legend, step_line
from projected_grpo.prompts import messages_for
from projected_grpo.records import Pair, Problem
from projected_grpo.run import cli


@dataclass(frozen=True)
class ShowConfig:
    """What to show."""

    what: Annotated[str, tyro.conf.Positional]
    """A run's folder, or `problems`, or `pairs`."""
    which: Annotated[str, tyro.conf.Positional] = ""
    """Of a run the step; else the source, as for --problems or --pairs: `builtin`, `toy`, `small-held-out`, a file."""
    one: Annotated[str, tyro.conf.Positional] = ""
    """A row of the step, or a problem's or pair's number or name. Empty: a line each."""
    kinds: Literal["", "hack", "hacked", "gt", "form"] = ""
    """Of a run: this rate by kind of problem."""
    modules: bool = False
    """Of a run: where in the model the energy along V lies."""
    out: NoPath = Path()
    """Of `problems SOURCE`: write them as JSON lines, which any --problems reads."""


# ---------------------------------------------------------------- a run


def step(run: Path, which: str, one: str) -> str:
    """Returns a step as a table, or one sample of it whole."""
    from tabulate import tabulate

    path = step_path(run, number(which, "step"))
    if not path.exists():
        there = steps_in(run)
        raise BadInput(f"step {which}: {run} has steps {there[0]} to {there[-1]}")
    rows = read_step(path)
    if one:
        if not 0 <= number(one, "sample") < len(rows):
            raise BadInput(f"sample {one}: step {which} has rows 0 to {len(rows) - 1}")
        return sample(rows[int(one)])
    shown = [c for c in COLUMNS if c.level == "sample" and c.show]
    cells = [[i, *(cell(row[c.name], c.fmt).strip() for c in shown)] for i, row in enumerate(rows)]
    table = tabulate(cells, ["row", *(c.show for c in shown)], disable_numparse=True)
    return "\n".join([step_header(), step_line(rows), "", table, "", *step_legend()[: len(STEP_SHOWN) + 4]])


def number(text: str, what: str) -> int:
    """BadInput on what is no whole number."""
    if not text.isdecimal():
        raise BadInput(f"{what} {text!r}: give its number, as in `just show out/train/RUN 0`")
    return int(text)


def sample(row: Row) -> str:
    """Returns prompt, completion and every number of one sample."""
    bulky = {"prompt", "completion", "prompt_ids", "completion_ids", "behaviour_logps"}
    facts = [f"{c.name:16} {row[c.name]!s:24} {c.meaning}" for c in COLUMNS if c.name not in bulky]
    return "\n".join(
        [f"── prompt ({len(row['prompt_ids'])} tokens) ──", row["prompt"], f"── completion ({row['comp_len']} tokens) ──",
         row["completion"], "── numbers ──", *facts]
    )  # fmt: skip


def kinds(run: Path, rate: str) -> str:
    """Returns a table for each way in which the run's problems are divided. BadInput as in `by_kind`."""
    from tabulate import tabulate

    from projected_grpo.data.problems import load_problems
    from projected_grpo.report.by_kind import by_kind

    manifest = read_manifest(run)
    if manifest.get("kind") != "train":
        raise BadInput(f"{run}: a {manifest.get('kind')}, not a training run")
    source = manifest["config"]["problems"]
    tables = by_kind(run, {p.problem_id: p.difficulty for p in load_problems(source)}, rate)
    return "\n\n".join(tabulate(lines, header, disable_numparse=True) for header, *lines in tables)


def modules(run: Path) -> str:
    """Returns where the energy along V lies."""
    from projected_grpo.report.module_energy import energy_text

    config = finished_manifest(run, ("train", "probe_distill"))["config"]
    return f"{run}: {config['arm']}, seed {config['seed']}\n\n{energy_text(run)}"


# ---------------------------------------------------------------- problems and pairs


def problem_whole(p: Problem) -> str:
    """Returns the prompt with the hint, if it has room for it; hidden tests and solution."""
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
    """Returns the prompt without a hint, and each side."""
    sides = {"hack": p.hack, "clean": p.clean, "another clean (placebo)": p.clean_alt}
    texts = [*p.messages, *((name, text) for name, text in sides.items() if text is not None)]
    return "\n".join([*(f"── {name} ──\n{text}" for name, text in texts), f"{p.name}\t{p.mechanism}"])


def counted(kinds: Iterable[str], what: str) -> str:
    """Returns how many there are of each kind."""
    counts = Counter(kind or "no kind" for kind in kinds)
    return f"{what}: {counts.total()} ({', '.join(f'{kind} {n}' for kind, n in counts.items())})"


def pairs_counted(pairs: Sequence[Pair]) -> str:
    """Returns the same of pairs, and how many of them V is not made from."""
    from projected_grpo.data.pairs import split

    found = counted((p.mechanism for p in pairs), "pairs")
    try:
        held_out = len(split(tuple(pairs))[1])
    except BadInput as e:
        return f"{found}; {e}"
    return f"{found}; held out: {held_out} ({held_out / len(pairs):.0%}), which V is tested on and not made from"


def source(config: ShowConfig) -> str:
    """Returns the problems or pairs of a source, a line each; or one of them whole."""
    from projected_grpo.data.pairs import load_pairs
    from projected_grpo.data.problems import as_rows, load_problems
    from projected_grpo.ledger.files import write_atomic

    if config.out != Path() and (config.what != "problems" or config.one):
        raise BadInput(f"--out {config.out}: holds all problems of a source; give `problems` and no number")
    problems = load_problems(config.which) if config.what == "problems" else ()
    pairs = load_pairs(config.which) if config.what == "pairs" else ()
    if config.out != Path():
        write_atomic(config.out, as_rows(problems))
        return f"{len(problems)} rows: {config.out}"
    lines = {p.problem_id: p.difficulty for p in problems} | {p.name: p.mechanism for p in pairs}
    if not config.one:
        count = pairs_counted(pairs) if pairs else counted(lines.values(), "problems")
        return "\n".join([*(f"{name}\t{kind}" for name, kind in lines.items()), count])
    names = list(lines)
    places = {name: i for i, name in enumerate(names)} | {str(i): i for i in range(len(names))}
    if config.one not in places:
        raise BadInput(f"{config.one}: {config.what} of {config.which} are 0 to {len(names) - 1}, or {names[0]} …")
    place = places[config.one]
    return problem_whole(problems[place]) if problems else pair_whole(pairs[place])


def main() -> int:
    config = cli.parse_plain(ShowConfig, __doc__)
    run = Path(config.what)
    if config.what in ("problems", "pairs"):
        print(source(config))
    elif config.kinds:
        print(kinds(run, config.kinds))
    elif config.modules:
        print(modules(run))
    else:
        print(step(run, config.which, config.one))
    return 0


if __name__ == "__main__":
    cli.run(main)
