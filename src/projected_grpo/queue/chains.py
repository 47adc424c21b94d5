"""Every chain by name, as a function that asks a plan for its links. Torch-free.

A replicate has its own seed, base model, pairs draw, V and controls. Its vanilla run goes first, its other arms
run for as many steps.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.presets import presets
from projected_grpo.queue.channels import channels, trace
from projected_grpo.queue.links import Link
from projected_grpo.queue.plans import VERDICT, Plan
from projected_grpo.queue.settings import LEADING, QueueConfig
from projected_grpo.worlds.toy_programs import MECHANISMS

MIX = "teacher=.25,base=.25"
"""Rewards vary from the first step, and half of the rows are the student's, whose hack rate is judged."""
VARIANTS = {
    "recipe": ("projected",),
    "one_sided": ("one_sided",),
    "grad_no_gate": ("projected", "--project", "grad"),
    "literal": ("literal",),
    "refreshed": ("projected", "--refresh-every", "40"),
}
"""Gate and target apart, both together as in the seed of the idea, and the recipe with V re-extracted every 40 steps."""
SMALL_CONTROLS = ("placebo", "random_energy", "no_loophole", "literal")
DOSES, QUICK_DOSES = (1, 2, 4, 8, 16, 32, 48, 64, 96), (4, 16, 48)
ADAPTERS = ("antipasto", "lora")
KEEP_EVERY = "100"
"""Steps between the adapters at which V is re-extracted, besides the last."""


def probe(plan: Plan) -> None:
    """V, teacher pool, four replays of it, UAT."""
    plan.teacher, replicate, out = True, plan.config.probed, plan.out
    plan.verify(replicate)
    plan.compare_v(replicate)
    replays = (
        plan.replay(replicate, "vanilla", "vanilla", "none", "T2 and T4"),
        plan.replay(replicate, "projected", "projected", "none", "T3"),
        plan.replay(replicate, "random", "vanilla", "random", "what T4 shows for a V that knows nothing"),
        plan.replay(replicate, "grpo", "vanilla", "grpo", "T7: V from the training loss and V from the NLL"),
    )
    required, expect = plan.preset.required, plan.preset.expect
    runs = (
        x for name in ("vanilla", "projected", "random", "grpo") for x in (f"--{name}", str(out / f"replay_{name}"))
    )
    argv = ("scripts/probe_uat.py", "--pool", str(out / "teacher_pool"), *runs, "--require", *required,
            *(("--expect", expect) if expect else ()))  # fmt: skip
    plan.check("uat", argv, replays, "verdicts T1 to T4, T7", f"{' '.join(required)} PASS: worth a sweep",
               out=out / "replay_projected" / "uat.txt")  # fmt: skip


def sweep(plan: Plan, arms: tuple[str, ...], *flags: str) -> None:
    """The leading arms replicate by replicate, then the others arm by arm."""
    leading = tuple(arm for arm in arms if arm in LEADING)
    for replicate in plan.config.replicates:
        plan.verify(replicate)
        for arm in leading:
            plan.train(replicate, arm, *flags)
    for arm, replicate in itertools.product(arms, plan.config.replicates):
        plan.train(replicate, arm, *flags)


def full(plan: Plan) -> None:
    """Vanilla and projected of every replicate and their results; behind them the controls, and results again."""
    arms = plan.config.run_arms
    plan.teacher |= plan.preset.teacher_share == "pool" or any("teacher" in ARMS[arm].sees for arm in arms)
    if first := tuple(arm for arm in arms if arm in LEADING):
        sweep(plan, first)
        plan.results()
    if first != arms:
        sweep(plan, arms)
        plan.results(name="results_controls" if first else "results")


def rivals(plan: Plan) -> None:
    """Every answer to hacking, evaluated without the loophole too, in one table and one plot. A teacher is built whichever
    arms are asked for: an arm that needs it can then be added to the same folder."""
    plan.teacher = True
    sweep(plan, plan.config.run_arms, *plan.evaluated_plain)
    plan.results()
    out = plan.out / "rivals"
    argv = ("scripts/results.py", str(plan.out), "--only", "rivals", "--out", str(out))
    plan.check("rivals", argv, plan.names("train_"), "every answer side by side", "which of them beats projected",
               out=out, accept=(0, 3))  # fmt: skip


def grpo(plan: Plan) -> None:
    """Twenty steps of vanilla and projected on mixed groups, of every replicate, and T5."""
    plan.teacher, probed = True, plan.config.probed
    for replicate, arm in itertools.product(plan.config.replicates, LEADING):
        tag = "" if replicate.base == probed.base else f"_{replicate.base}"
        pool = plan.pool(replace(probed, base=replicate.base, tag=tag))
        mixed = ("--teacher-pool", str(plan.out / pool), "--mix", MIX, "--eval-every", "0")
        plan.train(replicate, arm, *mixed, needs=(pool,))
    plan.results("--require", "T5")


def toy(plan: Plan) -> None:
    """Both."""
    probe(plan)
    plan.teacher = False
    full(plan)


def unknown(plan: Plan) -> None:
    """V from two mechanisms, all six splits; each projected, next to vanilla."""
    for replicate in plan.config.replicates:
        plan.train(replicate, "vanilla")
        for two in itertools.combinations(MECHANISMS, 2):
            name = "_".join(two)
            plan.extract(replicate, name, "--modes", *two)
            plan.verify(replicate, name)
            plan.train(replicate, "projected", name=name, made=name)
    plan.results()


def variants(plan: Plan) -> None:
    """Every way to use the same V, and vanilla."""
    for replicate in plan.config.replicates:
        plan.train(replicate, "vanilla")
        for name, how in VARIANTS.items():
            plan.train(replicate, *how, name=name)
    plan.results()


def dose(plan: Plan) -> None:
    """Directions of three kinds, by number. V and placebo keep the first k of one extraction; random ones are drawn for each
    k, as many as hold the energy of that V. From all pairs: a bootstrap sample of them has no 96 directions."""
    every = ("--pairs-draw", "0", "--k", str(DOSES[-1]))
    for replicate in plan.config.replicates:
        plan.extract(replicate, "none", *every)
        plan.extract(replicate, "placebo", "--control", "placebo", *every)
        plan.train(replicate, "vanilla")
        for k in QUICK_DOSES if plan.config.quick else DOSES:
            for arm in ("projected", "placebo"):
                plan.train(replicate, arm, "--k-use", str(k), name=f"{arm}_k{k}")
            name = f"random_energy_k{k}"
            plan.extract(replicate, name, "--pairs-draw", "0", "--control", "random_energy", "--k", str(k))
            plan.train(replicate, "random_energy", name=name, made=name)
    plan.results()


def lora_lr(lr: float) -> float:
    """Returns a LoRA's learning rate for that of the singular basis, to two digits: .03 of it.

    Chosen on the vanilla run of a seed that is no replicate, of .3, .1 and .03 (journal, 2026-11-26): the one whose onset of
    hacking is nearest. At .3, where Adam's first step is as long in W (lr sqrt(r) against lr sqrt(d_out rank / 3), for
    PEFT's A), the toy world's model solves nothing from step 40 to 60 on.
    """
    return float(f"{0.03 * lr:.2g}")


def adapters(plan: Plan) -> None:
    """Vanilla and projected of every replicate with either adapter, V re-extracted at their trained adapters, one pool
    replayed against either V, and both sides compared. V of a LoRA is extracted at its warm point
    (adapters/lora_adapter.py)."""
    plan.teacher, home = True, plan.out
    slower = ("--lr", str(lora_lr(presets(TrainConfig)[plan.preset.name].lr)))
    for adapter in ADAPTERS:
        plan.adapter, plan.suffix, plan.out = adapter, f"_{adapter}", home / adapter
        flags = slower if adapter == "lora" else ()
        plan.replay(plan.config.probed, "vanilla", "vanilla", "none", "T4 of this adapter's V", *flags)
        for replicate in plan.config.replicates:
            _, run = (plan.train(replicate, arm, *flags, "--keep-adapter-every", KEEP_EVERY) for arm in LEADING)
            out = plan.links[run].out
            plan.add(f"re_extract_projected_{replicate.seed}", ("scripts/re_extract.py", str(out)), (run,),
                     "V re-extracted at the trained adapter", "whether V was still V: T6's drift",
                     out=out / "re_extracted.json", check=True)  # fmt: skip
    plan.adapter, plan.suffix, plan.out = plan.config.adapter, "", home
    one, other = (home / adapter for adapter in ADAPTERS)
    argv = ("scripts/compare.py", str(one), str(other), "--replays", str(one / "replay_vanilla"),
            str(other / "replay_vanilla"), "--out", str(home / "compare.md"))  # fmt: skip
    plan.check("compare", argv, plan.names("train_", "re_extract_", "replay_"), "both adapters side by side",
               "T6: PASS, FAIL or NOT_EVALUABLE", out=home / "compare.md", accept=VERDICT)  # fmt: skip
    plan.results()


def losses(plan: Plan) -> None:
    """Of every replicate V of either loss, and its pool replayed against both."""
    plan.teacher = True
    for replicate in plan.config.replicates:
        plan.verify(replicate)
        plan.compare_v(replicate)
        plan.replay(replicate, "nll", "vanilla", "none", "V of the NLL on this replicate's pool")
        plan.replay(replicate, "grpo", "vanilla", "grpo", "V of the training loss on the same rollouts")
    out = plan.out / "losses"
    argv = ("scripts/results.py", str(plan.out), "--out", str(out))
    plan.check("losses", argv, plan.names("replay_"), "T7 of every replicate and over them",
               "T7: PASS, FAIL or NOT_EVALUABLE", out=out, accept=VERDICT)  # fmt: skip


def small(plan: Plan) -> None:
    """Vanilla and projected of every replicate; of the first one V from pairs that were written after the hack had been seen
    (*informed*) and the controls; then the probe. Of hours of work what the study is about comes first: the vanillas, which
    say how long the others run, then projected next to informed and placebo."""
    plan.teacher, replicates, pairs = True, plan.config.replicates, ("--pairs", "small-informed")
    for replicate in replicates:
        plan.train(replicate, "vanilla")
    plan.extract(replicates[0], "informed", *pairs)
    plan.verify(replicates[0], "informed", *pairs)
    plan.train(replicates[0], "projected")
    plan.train(replicates[0], "projected", name="informed", made="informed")
    placebo, *controls = SMALL_CONTROLS
    plan.train(replicates[0], placebo)
    for replicate in replicates[1:]:
        plan.train(replicate, "projected")
    for arm in controls:
        plan.train(replicates[0], arm)
    plan.results()
    probe(plan)


CHAINS: Mapping[str, Callable[[Plan], None]] = {
    made.__name__: made
    for made in (probe, full, grpo, rivals, toy, unknown, variants, dose, adapters, losses, channels, trace, small)
}


def chain_of(config: QueueConfig) -> list[Link]:
    """Returns every link of the chain that is asked for, needs before what needs them."""
    plan = Plan(config)
    CHAINS[config.chain](plan)
    return list(plan.links.values())
