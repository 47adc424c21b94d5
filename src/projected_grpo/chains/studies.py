"""Every chain by name, and the studies beside the sweep: other selections of runs on the same units.

unknown   does V stop hacks that it has never seen? V from two of the four mechanisms at a time, all six splits
variants  other ways to use the same V, beside the recipe
dose      how much of V does it take? Its first 1, 2, 4, ... 96 directions; as many placebo ones; random ones of equal energy
mark      the second world (model toy-mark), whose hacks share no phrase: V of its own pairs, and of the first world's
small     the real model: what emerges there no pair has shown; beside it, as informed, a V that was told afterwards
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from projected_grpo.chains.links import Link
from projected_grpo.chains.plans import (
    Plan,
    arm_flags,
    arm_run,
    bases,
    extracted,
    extracts,
    full_chain,
    probe_chain,
    toy_chain,
    train,
    v_of,
    verified,
    verify,
    with_results,
)
from projected_grpo.toy.programs import MECHANISMS

VARIANTS = {
    "recipe": ("--arm", "projected"),
    "update_one_sided": ("--arm", "projected", "--gate", "one_sided"),
    "grad_no_gate": ("--arm", "projected", "--project", "grad"),
    "literal": ("--arm", "literal"),
    "refreshed": ("--arm", "projected", "--refresh-every", "40"),
}
"""Gate and target apart, both together as in the seed of the idea, and the recipe with V extracted anew every 40 steps."""
DOSES = (1, 2, 4, 8, 16, 32, 48, 64, 96)
MARK_ARMS = ("vanilla", "projected", "random_energy", "no_loophole")
QUICK_DOSES = (4, 16, 48)
SMALL_ARMS = ("vanilla", "projected", "literal", "random_energy", "placebo", "no_loophole")


def unknown_chain(plan: Plan) -> list[Link]:
    """V from two mechanisms, all six splits, and V from the words alone; each projected, beside vanilla."""
    splits = {"_".join(two): two for two in itertools.combinations(MECHANISMS, 2)}
    links = bases(plan, plan.units)
    for unit in plan.units:
        links += [*extracts(plan, unit, ("vanilla",)), arm_run(plan, unit, "vanilla")]
        for name, two in splits.items():
            links += [extracted(plan, unit, name, "--modes", *two), verify(plan, unit, name)]
            flags = ("--arm", "projected", "--vhack", v_of(plan, unit, name))
            links.append(train(plan, unit, name, (f"verify_{name}{unit.tag}",), flags))
    return with_results(plan, links)


def variants_chain(plan: Plan) -> list[Link]:
    """Every way to use the same V, beside vanilla."""
    links = bases(plan, plan.units)
    for unit in plan.units:
        links += [*extracts(plan, unit, ("vanilla",)), arm_run(plan, unit, "vanilla")]
        for name, how in VARIANTS.items():
            flags = (*how, "--vhack", v_of(plan, unit, "none"))
            links.append(train(plan, unit, name, verified(unit, "none"), flags))
    return with_results(plan, links)


def dose_chain(plan: Plan) -> list[Link]:
    """Directions of three kinds, by number. V and placebo keep the first k of one extraction; random ones are drawn for each
    k, as many as hold the energy of that V. From all pairs: a bootstrap sample of them has no 96 directions."""
    doses = QUICK_DOSES if plan.quick else DOSES
    links = bases(plan, plan.units)
    for unit in (replace(unit, pairs_draw=0) for unit in plan.units):
        rank = ("--k", str(max(doses)))
        links += [extracted(plan, unit, "none", *rank), verify(plan, unit, "none")]
        links += [extracted(plan, unit, "placebo", "--control", "placebo", *rank)]
        links.append(train(plan, unit, "vanilla", verified(unit, "none"), arm_flags(plan, unit, "vanilla")))
        for k in doses:
            for arm, made in (("projected", "none"), ("placebo", "placebo")):
                flags = (*arm_flags(plan, unit, arm), "--k-use", str(k))
                links.append(train(plan, unit, f"{arm}_k{k}", verified(unit, made), flags))
            name = f"random_energy_k{k}"
            links.append(extracted(plan, unit, name, "--control", "random_energy", "--k", str(k)))
            flags = ("--arm", "random_energy", "--vhack", v_of(plan, unit, name))
            links.append(train(plan, unit, name, verified(unit, name), flags))
    return with_results(plan, links)


def mark_chain(plan: Plan) -> list[Link]:
    """In the second world no hack needs a phrase: does V of its own pairs hold there, and V of the first world's?"""
    first = ("--pairs", "toy", "--hint", "simple_overwrite_tests")
    words = ("--pairs", "toy-phrase", "--hint", "simple_overwrite_tests")
    links = bases(plan, plan.units)
    for unit in plan.units:
        links += [*extracts(plan, unit, MARK_ARMS), *(arm_run(plan, unit, arm) for arm in MARK_ARMS)]
        for name, pairs in (("first_world", first), ("first_words", words)):
            links += [extracted(plan, unit, name, *pairs), verify(plan, unit, name, *pairs)]
            flags = ("--arm", "projected", "--vhack", v_of(plan, unit, name))
            links.append(train(plan, unit, name, (f"verify_{name}{unit.tag}",), flags))
    return with_results(plan, links)


def small_chain(plan: Plan) -> list[Link]:
    """The probe; vanilla and projected of every unit; of the first one alone the controls, and V from pairs that were
    written after the hack had been seen."""
    links = [*probe_chain(plan), *bases(plan, plan.units)]
    for unit in plan.units:
        arms = SMALL_ARMS if unit is plan.units[0] else ("vanilla", "projected")
        links += [*extracts(plan, unit, arms), *(arm_run(plan, unit, arm) for arm in arms)]
    unit, pairs = plan.units[0], ("--pairs", "small-informed")
    links += [extracted(plan, unit, "informed", *pairs), verify(plan, unit, "informed", *pairs)]
    flags = ("--arm", "projected", "--vhack", v_of(plan, unit, "informed"))
    links.append(train(plan, unit, "informed", (f"verify_informed{unit.tag}",), flags))
    return with_results(plan, list({link.name: link for link in links}.values()))


CHAINS: Mapping[str, Callable[[Plan], list[Link]]] = {
    "probe": probe_chain,
    "full": full_chain,
    "toy": toy_chain,
    "unknown": unknown_chain,
    "variants": variants_chain,
    "dose": dose_chain,
    "mark": mark_chain,
    "small": small_chain,
}
WORLD_OF: Mapping[str, str] = {"unknown": "toy", "variants": "toy", "dose": "toy", "mark": "toy", "small": "small"}
"""The preset that a study is about, where it is about one."""
if TYPE_CHECKING:
    Chain = str
else:
    Chain = Literal[tuple(CHAINS)]


def chain_of(plan: Plan, chain: Chain) -> list[Link]:
    """Every link of a chain, needs before what needs them."""
    return CHAINS[chain](plan)
