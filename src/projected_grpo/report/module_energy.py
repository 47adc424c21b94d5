"""Where in the model the energy along V lies, early and late in a run, and what chance would put there.

Of what V is removed from (the update; of arms that remove it from the gradient, the gradient), all modules together, each
number is a share of the whole's energy, mean over the steps of a third of the run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from projected_grpo.ledger.step_file import Modules, read_modules, read_step, step_path

MOST_SHOWN = 12
"""Modules in the table."""
HEADER = ("by chance,\n% of all", "along V,\n% of all", "removed,\n% of all", "along V /\nby chance")
NOTE = """\
% of all: of the energy of the whole {}, all modules together; means over a run's first and last third
by chance: what as many random directions would hold (k / n); along V: what lies in V; removed: what was removed"""
Array = NDArray[np.float64]


def energy_text(run: Path) -> str:
    """Returns the tables by kind, by layer, and of the top modules, early against late. BadInput as in `read_modules`."""
    of = "gradient" if read_step(step_path(run, 0))[0]["target"] == "grad" else "update"
    return tables(of, read_modules(run))


def shares(of: str, modules: Modules) -> Array:
    """Returns [3, steps, modules], of the energy of the whole update or gradient: by chance (k / n of a module's energy),
    along V (||V_m u_m||^2 / ||u||^2), removed. What is not known counts as 0, as in a step without a move."""

    def column(name: str) -> Array:
        return np.array([[x or 0.0 for x in step[name]] for step in modules.steps])

    share, energy = ("grad_share", "energy_in") if of == "gradient" else ("update_share", "energy_update_in")
    size = column(share)
    return np.stack([size * column("k") / np.array(modules.sizes), size * column(energy), column("removed")])


def tables(of: str, modules: Modules) -> str:
    """Returns the tables of one run's modules; `of`: update or gradient, what V is removed from."""
    found = shares(of, modules)
    steps = found.shape[1]
    third = max(1, steps // 3)
    late = steps - third
    thirds = (found[:, :third].mean(1), found[:, late:].mean(1))  # [3, modules] each
    largest = np.argsort(-thirds[1][1], kind="stable")[:MOST_SHOWN]
    top = {modules.names[i]: [int(i)] for i in largest}
    kinds = [name.rpartition(".")[2] for name in modules.names]  # q_proj, k_proj, ...
    layers = [next((part for part in name.split(".") if part.isdecimal()), "-1") for name in modules.names]
    when = f"steps 0-{third - 1} → steps {late}-{steps - 1}"
    parts = [
        NOTE.format(of),
        f"by kind of module, {when}\n{_table(thirds, 'kind', _grouped(kinds))}",
        f"by layer, {when}\n{_table(thirds, 'layer', _grouped(layers))}",
        f"the {len(top)} of {len(modules.names)} modules that hold most along V late, {when}",
        _table(thirds, "module", top),
    ]
    return "\n\n".join(parts)


def _grouped(groups: Sequence[str]) -> dict[str, list[int]]:
    """Returns the places of each group's modules, and of all."""
    places: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        places.setdefault(group, []).append(i)
    return {**places, "all": list(range(len(groups)))}


def _table(thirds: tuple[Array, Array], title: str, rows: Mapping[str, Sequence[int]]) -> str:
    body = []
    for name, members in rows.items():
        parts = [third[:, list(members)].sum(1) for third in thirds]
        times = " → ".join(f"{along / chance:.2f}" if chance > 0 else "-" for chance, along, _ in parts)
        body.append([name, *(f"{100 * a:.2f} → {100 * b:.2f}" for a, b in zip(*parts, strict=True)), times])
    align = ["left", *["right"] * len(HEADER)]
    return tabulate(body, [title, *HEADER], "simple", colalign=align, disable_numparse=True)
