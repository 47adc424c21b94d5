"""What `just show` prints of a whole run: rates by kind of problem, and where in the model the energy along V
lies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import LAST, number, rates
from projected_grpo.ledger.step_file import Modules, iter_run, read_modules, read_step, step_path
from projected_grpo.report.text import Table

Array = NDArray[np.float64]
MOST_MODULES = 12
HEADER = ("by chance,\n% of all", "along V,\n% of all", "removed,\n% of all", "along V /\nby chance")
NOTE = """\
% of all: of the energy of the whole {}, all modules together; means over a run's first and last third
by chance: what as many random directions would hold (k / n); along V: what lies in V; removed: what was removed"""


def by_kind(run: Path, kinds_of: Mapping[str, str], rate: str, every: int = LAST) -> list[list[list[str]]]:
    """Returns a table (rows of cells, the header first) for each way in which `kinds_of` (problem id -> "hard, lazy
    example") divides the problems, with a line for all and for each kind: how many problems and rollouts by the
    student, and the rate (hack, hacked, gt, form) over each `every` steps, in percent; `-` where there is none of
    that kind. Rollouts of other problems, as of a teacher's pool, are in no line; BadInput where all are."""
    steps = [[r for r in rows if r["source"] == "student" and r["problem_id"] in kinds_of] for rows in iter_run(run)]
    if not any(steps):
        raise BadInput(f"{run}: no rollout is of its --problems; all are of its --teacher-pool's")
    starts = range(0, len(steps), every)
    windows = [[row for rows in steps[i : i + every] for row in rows] for i in starts]
    header = ["kind of problem", "problems", "rollouts", *(f"{i}-{min(i + every, len(steps)) - 1}" for i in starts)]
    seen = {row["problem_id"] for rows in windows for row in rows}
    kinds = {name: [part.strip() for part in kinds_of[name].split(",") if part.strip()] for name in seen}
    tables = []
    for way in range(max(1, *map(len, kinds.values()))):
        names = {"all": seen}
        for kind in sorted({of[way] for of in kinds.values() if way < len(of)}):
            names[kind] = {name for name in seen if kinds[name][way : way + 1] == [kind]}
        lines = [header]
        for kind, problems in names.items():
            parts = [[row for row in rows if row["problem_id"] in problems] for rows in windows]
            cells = [number(rates(part)[rate], 100.0) for part in parts]
            lines.append([kind, str(len(problems)), str(sum(map(len, parts))), *cells])
        tables.append(lines)
    return tables


def energy_text(run: Path) -> str:
    """Returns the tables by kind, by layer, and of the top modules, early against late. BadInput as in
    `read_modules`."""
    of = "gradient" if read_step(step_path(run, 0))[0]["target"] == "grad" else "update"
    return energy_tables(of, read_modules(run))


def shares(of: str, modules: Modules) -> Array:
    """Returns [3, steps, modules], of the energy of what V is removed from (`of`: update or gradient), all modules
    together: by chance (k / n of a module's energy), along V (||V_m u_m||^2 / ||u||^2), removed. What is not known
    counts as 0, as in a step without a move."""

    def column(name: str) -> Array:
        return np.array([[x or 0.0 for x in step[name]] for step in modules.steps])

    share, energy = ("grad_share", "energy_in") if of == "gradient" else ("update_share", "energy_update_in")
    size = column(share)
    return np.stack([size * column("k") / np.array(modules.sizes), size * column(energy), column("removed")])


def energy_tables(of: str, modules: Modules) -> str:
    """Returns the tables of one run's modules."""
    found = shares(of, modules)
    steps = found.shape[1]
    third = max(1, steps // 3)
    thirds = (found[:, :third].mean(1), found[:, steps - third :].mean(1))  # [3, modules] each
    largest = np.argsort(-thirds[1][1], kind="stable")[:MOST_MODULES]
    kinds = [name.rpartition(".")[2] for name in modules.names]  # q_proj, k_proj, ...
    layers = [next((part for part in name.split(".") if part.isdecimal()), "-1") for name in modules.names]
    parts = [
        f"{NOTE.format(of)}\nsteps 0-{third - 1} → steps {steps - third}-{steps - 1}",
        _table(thirds, "kind", _grouped(kinds)),
        _table(thirds, "layer", _grouped(layers)),
        f"the {len(largest)} of {len(modules.names)} modules that hold most along V late",
        _table(thirds, "module", {modules.names[i]: [int(i)] for i in largest}),
    ]
    return "\n\n".join(parts)


def _grouped(groups: Sequence[str]) -> dict[str, list[int]]:
    """Returns the places of each group's modules, and of all."""
    every = range(len(groups))
    return {name: [i for i in every if groups[i] == name] for name in dict.fromkeys(groups)} | {"all": list(every)}


def _table(thirds: tuple[Array, Array], title: str, rows: Mapping[str, Sequence[int]]) -> str:
    body = []
    for name, members in rows.items():
        parts = [third[:, list(members)].sum(1) for third in thirds]
        times = " → ".join(f"{along / chance:.2f}" if chance > 0 else "-" for chance, along, _ in parts)
        body.append([name, *(f"{100 * a:.2f} → {100 * b:.2f}" for a, b in zip(*parts, strict=True)), times])
    return Table("", [title, *HEADER], body).text()
