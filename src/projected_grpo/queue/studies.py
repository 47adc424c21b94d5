"""Every chain by name, and the studies beside the sweep: other selections of runs on the same units.

unknown   does V stop hacks that it has never seen? V from two of the four mechanisms at a time, all six splits
variants  other ways to use the same V, beside the recipe
dose      how much of V does it take? Its first 1, 2, 4, ... 96 directions; as many placebo ones; random ones of equal energy
adapters  a LoRA and the singular basis on the same units, each with a V of its own: does projection do as much? (T6)
losses    V of the training loss and V of the NLL, of each unit's own pairs, on its own pool: does the one tell as well? (T7)
channels  GRPO against GRPO + trace DPO and + hint distillation, vanilla and projected: pass@1, hacks, gradients against V
trace     the same of trace DPO alone, its pairs from traces of several turns and teachers behind endpoints
small     the real model: what emerges there no pair has shown; beside it, as informed, a V that was told afterwards
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.presets import presets
from projected_grpo.queue.channels import channels_chain, trace_chain
from projected_grpo.queue.links import Link
from projected_grpo.queue.plans import (
    Plan,
    Unit,
    arm_flags,
    arm_run,
    bases,
    compare_v,
    extracted,
    extracts,
    full_chain,
    grpo_chain,
    probe_chain,
    replay,
    rivals_chain,
    teacher_pool,
    together,
    toy_chain,
    train,
    v_of,
    verified,
    verify,
    with_results,
)
from projected_grpo.worlds.toy_programs import MECHANISMS

VARIANTS = {
    "recipe": ("--arm", "projected"),
    "update_one_sided": ("--arm", "projected", "--gate", "one_sided"),
    "grad_no_gate": ("--arm", "projected", "--project", "grad"),
    "literal": ("--arm", "literal"),
    "refreshed": ("--arm", "projected", "--refresh-every", "40"),
}
"""Gate and target apart, both together as in the seed of the idea, and the recipe with V extracted anew every 40 steps."""
DOSES = (1, 2, 4, 8, 16, 32, 48, 64, 96)
QUICK_DOSES = (4, 16, 48)
DOSE_ARMS = ("projected", "placebo", "random_energy")
SMALL_CONTROLS = ("placebo", "random_energy", "no_loophole", "literal")
"""Of the first unit, in this order; the other units' projected runs stand behind the first."""


ADAPTERS = ("antipasto", "lora")
ADAPTER_ARMS = ("vanilla", "projected")
KEEP_EVERY = 100
"""Steps between the adapters at which V is extracted anew, beside the last."""


def lora_lr(lr: float) -> float:
    """A LoRA's learning rate beside the singular basis's, to two digits: .03 of it.

    Chosen on the vanilla run of a seed that is no unit, of .3, .1 and .03 (journal, 2026-11-26): the one whose onset of
    hacking is nearest. At .3, where Adam's first step is as long in W (lr sqrt(r) against lr sqrt(d_out rank / 3), for
    PEFT's A), the toy world's model solves nothing from step 40 to 60 on.
    """
    return float(f"{0.03 * lr:.2g}")


def adapters_chain(plan: Plan) -> list[Link]:
    """Vanilla and projected of every unit with either adapter, V anew at their trained adapters, one pool replayed against
    either V, and both sides compared. V of a LoRA is extracted at its warm point (adapters/lora_adapter.py)."""
    pool = teacher_pool(plan)
    links = [*bases(plan, tuple(dict.fromkeys((plan.look, *plan.units))), teacher=True), pool]
    for adapter in ADAPTERS:
        own = replace(plan, adapter=adapter, out=plan.out / adapter, own_loras=True, pool=plan.pool_at)
        made = _with_adapter(own)
        names = {link.name for link in made}
        links += [
            replace(t, name=f"{t.name}_{adapter}", needs=tuple(f"{n}_{adapter}" if n in names else n for n in t.needs))
            for t in made
        ]
    return with_results(plan, [*links, _compared(plan, links)])


def _with_adapter(plan: Plan) -> list[Link]:
    lr = lora_lr(presets(TrainConfig)[plan.preset.name].lr)
    flags = ("--lr", str(lr)) if plan.adapter == "lora" else ()
    links = [
        *extracts(plan, plan.look, ()),
        replay(plan, "vanilla", "vanilla", "none", "T4 of this adapter's V", *flags),
    ]
    for unit in plan.units:
        links += extracts(plan, unit, ADAPTER_ARMS)
        for arm in ADAPTER_ARMS:
            kept = (*arm_flags(plan, unit, arm), *flags, "--keep-adapter-every", str(KEEP_EVERY))
            links.append(train(plan, unit, arm, verified(unit, "none"), kept))
        links.append(_anew(plan, links[-1]))
    return links


def _anew(plan: Plan, run: Link) -> Link:
    return Link(f"anew_{run.name.removeprefix('train_')}", ("scripts/v_anew.py", str(run.out)), run.out / "v_anew.json",
                (run.name,), "check", plan.threads, why="V extracted anew at the trained adapter",
                resolve="whether V was still V: T6's drift")  # fmt: skip


def _compared(plan: Plan, links: Sequence[Link]) -> Link:
    one, other = (plan.out / adapter for adapter in ADAPTERS)
    needs = tuple(t.name for t in links if t.name.startswith(("train_", "anew_", "replay_")))
    argv = ("scripts/compare.py", str(one), str(other), "--replay-a", str(one / "replay_vanilla"), "--replay-b",
            str(other / "replay_vanilla"), "--out", str(plan.out / "compare.md"))  # fmt: skip
    return Link("compare", argv, plan.out / "compare.md", needs, "check", plan.threads, accept=(0, 1, 3), gpu=False,
                why="both adapters side by side", resolve="T6: PASS, FAIL or NOT_EVALUABLE")  # fmt: skip


def losses_chain(plan: Plan) -> list[Link]:
    """Of every unit V of either loss, and its own pool replayed against both."""
    links = bases(plan, plan.units, teacher=True)
    for unit in plan.units:
        own = replace(plan, units=(unit,), own_look=True)
        links += [*extracts(own, unit, ()), extracted(own, unit, "grpo", "--loss", "grpo"), compare_v(own)]
        links += [teacher_pool(own), replay(own, "nll", "vanilla", "none", "V of the NLL on this unit's pool")]
        links.append(replay(own, "grpo", "vanilla", "grpo", "V of the training loss on the same rollouts"))
    replays = tuple(t.name for t in links if t.name.startswith("replay_"))
    table = Link("losses", ("scripts/losses.py", str(plan.out)), plan.out / "losses", replays, "check", plan.threads,
                 accept=(0, 1, 3), gpu=False, why="T7 of every unit and over them",
                 resolve="T7: PASS, FAIL or NOT_EVALUABLE")  # fmt: skip
    return [*links, table]


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
    """Every way to use the same V, and vanilla."""
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
    doses = plan.doses or (QUICK_DOSES if plan.quick else DOSES)
    asked = [arm for arm in DOSE_ARMS if arm in plan.arms]
    links = bases(plan, plan.units)
    for unit in (replace(unit, pairs_draw=0) for unit in plan.units):
        rank = ("--k", str(max(*DOSES, *doses)))
        links += [extracted(plan, unit, "none", *rank), verify(plan, unit, "none")]
        if "placebo" in asked:
            links.append(extracted(plan, unit, "placebo", "--control", "placebo", *rank))
        links.append(train(plan, unit, "vanilla", verified(unit, "none"), arm_flags(plan, unit, "vanilla")))
        links += [link for k in doses for arm in asked for link in _dosed(plan, unit, arm, k)]
    return with_results(plan, links)


def _dosed(plan: Plan, unit: Unit, arm: str, k: int) -> list[Link]:
    """A run with k directions, or with as many random ones as hold the energy of V's first k."""
    name, made = f"{arm}_k{k}", ARMS[arm].measured
    if arm != "random_energy":
        return [train(plan, unit, name, verified(unit, made), (*arm_flags(plan, unit, arm), "--k-use", str(k)))]
    drawn = extracted(plan, unit, name, "--control", made, "--k", str(k))
    return [drawn, train(plan, unit, name, verified(unit, name), ("--arm", arm, "--vhack", v_of(plan, unit, name)))]


def small_chain(plan: Plan) -> list[Link]:
    """Vanilla and projected of every unit; of the first one alone V from pairs that were written after the hack had been
    seen (*informed*) and the controls; then the probe. Of hours of work what the study is about comes first: the vanillas,
    which say how long the others run, then projected beside what was told and what was told nothing."""
    first, pairs = plan.units[0], ("--pairs", "small-informed")
    links = bases(plan, plan.units)  # the probe makes its teacher itself
    for unit in plan.units:
        links += [*extracts(plan, unit, ("vanilla",)), arm_run(plan, unit, "vanilla")]
    flags = ("--arm", "projected", "--vhack", v_of(plan, first, "informed"))
    informed = train(plan, first, "informed", (f"verify_informed{first.tag}",), flags)
    links += [extracted(plan, first, "informed", *pairs), verify(plan, first, "informed", *pairs)]
    links += [arm_run(plan, first, "projected"), informed]
    links = together(links, extracts(plan, first, SMALL_CONTROLS))
    placebo, *controls = (arm_run(plan, first, arm) for arm in SMALL_CONTROLS)
    links += [placebo, *(arm_run(plan, unit, "projected") for unit in plan.units[1:]), *controls]
    return with_results(plan, together(links, probe_chain(plan)))


CHAINS: Mapping[str, Callable[[Plan], list[Link]]] = {
    "probe": probe_chain,
    "full": full_chain,
    "grpo": grpo_chain,
    "rivals": rivals_chain,
    "toy": toy_chain,
    "unknown": unknown_chain,
    "variants": variants_chain,
    "dose": dose_chain,
    "adapters": adapters_chain,
    "losses": losses_chain,
    "channels": channels_chain,
    "trace": trace_chain,
    "small": small_chain,
}
WORLD_OF: Mapping[str, str] = {
    "unknown": "toy",
    "variants": "toy",
    "dose": "toy",
    "small": "small",
}
"""The preset that a study is about, where it is about one."""
if TYPE_CHECKING:
    Chain = str
else:
    Chain = Literal[tuple(CHAINS)]


def chain_of(plan: Plan, chain: Chain) -> list[Link]:
    """Every link of a chain, needs before what needs them."""
    return CHAINS[chain](plan)
