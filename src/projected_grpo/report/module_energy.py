"""Where in the model the energy along V lies, early and late in a run, and what chance would put there.

    found = energy_of(run_directory);  print(text(found))

Of what V is removed from (the update; of arms that remove it from the gradient, the gradient), all modules together, each
number is a share of the whole's energy, mean over the steps of a third of the run:

    along     ||V_m u_m||^2 / ||u||^2
    chance    k / n of the module's energy: what as many random directions would hold
    removed   what is gone between before and after
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from projected_grpo.ledger.module_file import Modules, read_modules
from projected_grpo.ledger.step_file import read_step, step_path

TENTH = 0.1
MOST_SHOWN = 12
"""Modules in the table; a tenth of them where that is more."""
HEADER = ("by chance,\n% of all", "along V,\n% of all", "removed,\n% of all", "along V /\nby chance")


@dataclass(frozen=True)
class Part:
    """Some modules over some steps: shares of the whole's energy."""

    along: float
    chance: float
    removed: float

    @property
    def times(self) -> float | None:
        """How many times chance; None where V has no direction there."""
        return self.along / self.chance if self.chance > 0 else None


@dataclass(frozen=True)
class ModuleEnergy:
    """A run's side file, and what V is removed from."""

    of: str
    """`update` or `gradient`."""
    modules: Modules

    @property
    def thirds(self) -> tuple[range, range]:
        """The steps of the first and of the last third, at least one each."""
        steps = len(self.modules.steps)
        size = max(1, steps // 3)
        return range(size), range(steps - size, steps)

    def part(self, names: Sequence[str], steps: range) -> Part:
        """Returns some modules together, mean over steps. A step in which nothing moved counts as 0."""
        share, energy = ("grad_share", "energy_in") if self.of == "gradient" else ("update_share", "energy_update_in")
        wanted = set(names)
        places = [i for i, name in enumerate(self.modules.names) if name in wanted]
        along = chance = removed = 0.0
        for step in (self.modules.steps[t] for t in steps):
            for i in places:
                size = step[share][i] or 0.0
                along += size * (step[energy][i] or 0.0)
                chance += size * step["k"][i] / self.modules.sizes[i]
                removed += step["removed"][i] or 0.0
        return Part(along / len(steps), chance / len(steps), removed / len(steps))

    def ranked(self, steps: range) -> list[str]:
        """Returns modules by the energy along V over those steps, the largest first."""
        return sorted(self.modules.names, key=lambda name: -self.part([name], steps).along)


def energy_of(run: Path) -> ModuleEnergy:
    """Returns what a run's side file says. BadInput as in `read_modules`."""
    modules = read_modules(run)
    return ModuleEnergy("gradient" if read_step(step_path(run, 0))[0]["target"] == "grad" else "update", modules)


def kind_of(name: str) -> str:
    """Returns q_proj, k_proj, ...: the last part of a module's name."""
    return name.rpartition(".")[2]


def layer_of(name: str) -> int:
    """Returns the first number in a module's name; -1 without one."""
    found = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
    return int(found[1]) if found else -1


def concentration(found: ModuleEnergy) -> str:
    """Returns, in words, how much of all along V a tenth of the modules holds in the last third; they are chosen on the
    first, so that the choice does not flatter the number."""
    (early, late), names = found.thirds, found.modules.names
    chosen = found.ranked(early)[: math.ceil(TENTH * len(names))]
    whole = found.part(names, late).along
    share = f"{100 * found.part(chosen, late).along / whole:.0f} %" if whole > 0 else "-"
    return (
        f"the tenth of modules that held most along V in the first third ({len(chosen)} of {len(names)}) holds {share} of "
        f"it in the last third; spread evenly it would be {100 * len(chosen) / len(names):.0f} %"
    )


def text(found: ModuleEnergy) -> str:
    """Returns the tables by kind, by layer, and of the top modules, early against late."""
    early, late = found.thirds
    names = found.modules.names
    when = f"steps {early[0]}-{early[-1]} → steps {late[0]}-{late[-1]}"
    shown = found.ranked(late)[: max(MOST_SHOWN, math.ceil(TENTH * len(names)))]
    parts = [
        f"% of all: of the energy of the whole {found.of}, all modules together; means over a run's first and last third\n"
        "by chance: what as many random directions would hold (k / n); along V: what lies in V; removed: what was removed",
        f"by kind of module, {when}\n{_table(found, 'kind', _grouped(names, kind_of))}",
        f"by layer, {when}\n{_table(found, 'layer', _grouped(names, layer_of))}",
        f"the {len(shown)} of {len(names)} modules that hold most along V late, {when}",
        _table(found, "module", {name: [name] for name in shown}),
        concentration(found),
    ]
    return "\n\n".join(parts)


def _grouped(names: Sequence[str], key: Callable[[str], str | int]) -> dict[str, list[str]]:
    groups = {str(k): [name for name in names if key(name) == k] for k in dict.fromkeys(map(key, names))}
    return {**groups, "all": list(names)}


def _table(found: ModuleEnergy, title: str, rows: Mapping[str, Sequence[str]]) -> str:
    body = []
    for name, members in rows.items():
        parts = [found.part(members, steps) for steps in found.thirds]
        shares = zip(*((p.chance, p.along, p.removed) for p in parts), strict=True)
        times = " → ".join("-" if p.times is None else f"{p.times:.2f}" for p in parts)
        body.append([name, *(f"{100 * a:.2f} → {100 * b:.2f}" for a, b in shares), times])
    align = ["left", *["right"] * len(HEADER)]
    return tabulate(body, [title, *HEADER], "simple", colalign=align, disable_numparse=True)
