"""Where in the model the energy along V lies, early and late in a run, and what chance would put there.

    found = energy_of(run_directory);  print(text(found))

Of what V is removed from (the update; of arms that remove it from the gradient, the gradient), all modules together, each
number is a share of the whole's energy, mean over the steps of a third of the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from projected_grpo.ledger.module_file import Modules, read_modules
from projected_grpo.ledger.step_file import read_step, step_path

MOST_SHOWN = 12
"""Modules in the table."""
HEADER = ("by chance,\n% of all", "along V,\n% of all", "removed,\n% of all", "along V /\nby chance")
NOTE = """\
% of all: of the energy of the whole {}, all modules together; means over a run's first and last third
by chance: what as many random directions would hold (k / n); along V: what lies in V; removed: what was removed"""


@dataclass(frozen=True)
class ModuleEnergy:
    """Shares of the whole's energy, each [steps, modules]. What is not known counts as 0, as in a step without a move."""

    of: str
    """`update` or `gradient`: what V is removed from."""
    names: Sequence[str]
    chance: NDArray[np.float64]
    """What as many random directions as V has would hold: k / n of a module's energy."""
    along: NDArray[np.float64]
    """||V_m u_m||^2 / ||u||^2."""
    removed: NDArray[np.float64]
    """What is gone between before and after."""

    @property
    def thirds(self) -> tuple[slice, slice]:
        """The steps of the first and of the last third, at least one each."""
        steps = len(self.along)
        size = max(1, steps // 3)
        return slice(0, size), slice(steps - size, steps)

    def part(self, members: Sequence[int], steps: slice) -> tuple[float, float, float]:
        """Returns (by chance, along V, removed) of some modules together, mean over steps."""
        chance, along, removed = (
            float(x[steps][:, list(members)].sum(1).mean()) for x in (self.chance, self.along, self.removed)
        )
        return chance, along, removed


def energy_of(run: Path) -> ModuleEnergy:
    """Returns what a run's side file says. BadInput as in `read_modules`."""
    of_gradient = read_step(step_path(run, 0))[0]["target"] == "grad"
    return module_energy("gradient" if of_gradient else "update", read_modules(run))


def module_energy(of: str, modules: Modules) -> ModuleEnergy:
    """Returns the shares of `update` or `gradient`."""

    def column(name: str) -> NDArray[np.float64]:
        return np.array([[x or 0.0 for x in step[name]] for step in modules.steps])

    share, energy = ("grad_share", "energy_in") if of == "gradient" else ("update_share", "energy_update_in")
    size = column(share)
    chance = size * column("k") / np.array(modules.sizes)
    return ModuleEnergy(of, modules.names, chance, size * column(energy), column("removed"))


def text(found: ModuleEnergy) -> str:
    """Returns the tables by kind, by layer, and of the top modules, early against late."""
    early, late = (range(len(found.along))[third] for third in found.thirds)
    when = f"steps {early[0]}-{early[-1]} → steps {late[0]}-{late[-1]}"
    largest = np.argsort(-found.along[found.thirds[1]].mean(0), kind="stable")[:MOST_SHOWN]
    top = {found.names[i]: [int(i)] for i in largest}
    kinds = [name.rpartition(".")[2] for name in found.names]  # q_proj, k_proj, ...
    layers = [next((part for part in name.split(".") if part.isdecimal()), "-1") for name in found.names]
    parts = [
        NOTE.format(found.of),
        f"by kind of module, {when}\n{_table(found, 'kind', _grouped(kinds))}",
        f"by layer, {when}\n{_table(found, 'layer', _grouped(layers))}",
        f"the {len(top)} of {len(found.names)} modules that hold most along V late, {when}",
        _table(found, "module", top),
    ]
    return "\n\n".join(parts)


def _grouped(groups: Sequence[str]) -> dict[str, list[int]]:
    """Returns the places of each group's modules, and of all."""
    places: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        places.setdefault(group, []).append(i)
    return {**places, "all": list(range(len(groups)))}


def _table(found: ModuleEnergy, title: str, rows: Mapping[str, Sequence[int]]) -> str:
    body = []
    for name, members in rows.items():
        parts = [found.part(members, third) for third in found.thirds]
        times = " → ".join(f"{along / chance:.2f}" if chance > 0 else "-" for chance, along, _ in parts)
        body.append([name, *(f"{100 * a:.2f} → {100 * b:.2f}" for a, b in zip(*parts, strict=True)), times])
    align = ["left", *["right"] * len(HEADER)]
    return tabulate(body, [title, *HEADER], "simple", colalign=align, disable_numparse=True)
