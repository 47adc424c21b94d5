"""Every chain by name, as a function that asks a plan for its links. Torch-free.

A replicate has its own seed, base model, pairs draw, V and controls. Its vanilla run goes first, its other arms
run for as many steps.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

from projected_grpo.arms import ARMS, dose_of
from projected_grpo.config import PEER
from projected_grpo.ledger.errors import BadInput
from projected_grpo.queue.links import Link
from projected_grpo.queue.plans import LEADING, VERDICT, Plan, Words
from projected_grpo.queue.settings import QueueConfig
from projected_grpo.worlds.registry import PRESETS
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
"""Gate and target apart, both together as in the seed of the idea, and the recipe with V re-extracted every 40
steps."""
LORA_LR = 0.03
"""A LoRA's learning rate over that of the singular basis: of .3, .1 and .03 the one whose vanilla has the nearest
onset of hacking, on a seed that is no replicate (journal, 2026-11-26); with A frozen too (2026-11-29)."""


def probe(plan: Plan) -> None:
    """V, teacher pool, four replays of it with V measured or removed, UAT."""
    plan.teacher, replicate, preset = True, plan.probed, plan.preset
    plan.verify(replicate)
    both = (plan.extract(replicate, "none"), plan.extract(replicate, "grpo", "--loss", "grpo"))
    argv = ("scripts/compare.py", *(plan.v_of(replicate, made) for made in ("none", "grpo")))
    plan.report("compare_v", argv, both, out="vhack_grpo/compare_v.txt")
    pool, n = plan.pool(replicate), min(plan.pool_problems, preset.replays)
    replays: Words = ()
    for name, arm, made in (
        ("vanilla", "vanilla", "none"), ("projected", "projected", "none"), ("random", "vanilla", "random"),
        ("grpo", "vanilla", "grpo"),
    ):  # fmt: skip
        replay = (*plan.script("probe_distill", replicate), "--arm", arm, "--pool", str(plan.out / pool), "--vhack",
                  plan.v_of(replicate, made), "--n-problems", str(n))  # fmt: skip
        needs = (pool, *plan.verified(replicate, made))
        replays += (plan.add(f"replay_{name}", replay, needs, steps=plan.half_steps(n)),)
    runs = (word for name in replays for word in (name.replace("replay_", "--"), str(plan.out / name)))
    argv = ("scripts/probe_uat.py", "--pool", str(plan.out / pool), *runs, "--require", *preset.required)
    plan.report("uat", argv, replays, file=plan.out / "replay_projected" / "uat.txt")


def sweep(plan: Plan, arms: tuple[str, ...], *flags: str) -> None:
    """The leading arms replicate by replicate, then the others arm by arm."""
    for replicate in plan.replicates:
        for arm in arms:
            if arm in LEADING:
                plan.train(replicate, arm, *flags)
    for arm, replicate in itertools.product(arms, plan.replicates):
        plan.train(replicate, arm, *flags)


def full(plan: Plan) -> None:
    """Vanilla and projected of every replicate and their results; behind them the controls, and results again."""
    arms = plan.arms
    plan.teacher |= plan.preset.teacher_share == "pool" or any("teacher" in ARMS[dose_of(arm)[0]].sees for arm in arms)
    if first := tuple(arm for arm in arms if arm in LEADING):
        sweep(plan, first)
        plan.results()
    if first != arms:
        sweep(plan, arms)
        plan.results(name="results_controls" if first else "results")


def interventions(plan: Plan) -> None:
    """Every answer to hacking, evaluated without the loophole too, in one table and one plot. A teacher is built
    whichever arms are asked for: an arm that needs it can then be added to the same folder."""
    plan.teacher = True
    sweep(plan, plan.arms, *plan.evaluated_plain)
    plan.results()
    plan.results("--only", "interventions", name="interventions")


def grpo(plan: Plan) -> None:
    """Twenty steps of vanilla and projected on mixed groups, of every replicate, and T5."""
    plan.teacher, probed = True, plan.probed
    for replicate, arm in itertools.product(plan.replicates, LEADING):
        tag = "" if replicate.base == probed.base else f"_{replicate.base}"
        pool = plan.pool(replace(probed, base=replicate.base, tag=tag))
        mixed = ("--teacher-pool", str(plan.out / pool), "--mix", MIX, "--eval-every", "0")
        plan.train(replicate, arm, *mixed, needs=(pool,))
    plan.results("--require", "T5")


def toy(plan: Plan) -> None:
    """The probe, then the chain full."""
    probe(plan)
    plan.teacher = False
    full(plan)


def unknown(plan: Plan) -> None:
    """V from two mechanisms, all six splits; each projected, next to vanilla."""
    for replicate in plan.replicates:
        plan.train(replicate, "vanilla")
        for two in itertools.combinations(MECHANISMS, 2):
            name = "_".join(two)
            plan.extract(replicate, name, "--modes", *two)
            plan.verify(replicate, name)
            plan.train(replicate, "projected", name=name, made=name)
    plan.results()


def variants(plan: Plan) -> None:
    """Every way to use the same V, and vanilla."""
    for replicate in plan.replicates:
        plan.train(replicate, "vanilla")
        for name, how in VARIANTS.items():
            plan.train(replicate, *how, name=name)
    plan.results()


def dose(plan: Plan) -> None:
    """V by its number of directions, next to random and placebo directions that remove the same share of the update,
    module by module; V of pairs whose two sides share one body; a LoRA with A frozen. Replicate by replicate."""
    home = plan.out
    for replicate in plan.replicates:
        for arm in plan.arms:
            plan.train(replicate, arm)
        if plan.config.arms:
            continue
        plan.extract(replicate, "same_body", "--pairs", "toy-same-body")
        plan.train(replicate, "projected@16", name="same_body@16", made="same_body")
        plan.adapter, plan.suffix, plan.out = "lora_fa", "_lora_fa", home / "lora_fa"
        for arm in LEADING:
            plan.train(replicate, arm, "--lr", f"{LORA_LR * plan.usual.lr:.2g}")
        plan.adapter, plan.suffix, plan.out = "antipasto", "", home
    plan.results()


def adapters(plan: Plan) -> None:
    """Vanilla and projected of every replicate with either adapter, V re-extracted at their trained adapters, and
    both sides compared. V of a LoRA is extracted at its warm point (adapters/lora_adapter.py)."""
    home, slower = plan.out, ("--lr", f"{LORA_LR * plan.usual.lr:.2g}")
    for adapter, flags in (("antipasto", ()), ("lora", slower)):
        plan.adapter, plan.suffix, plan.out = adapter, f"_{adapter}", home / adapter
        for replicate in plan.replicates:
            _, run = (plan.train(replicate, arm, *flags, "--keep-adapter-every", "100") for arm in LEADING)
            out = plan.links[run].out
            plan.add(f"re_extract_projected_{replicate.seed}", ("scripts/re_extract.py", str(out)), (run,),
                     file=out / "re_extracted.json", check=True)  # fmt: skip
    plan.suffix, plan.out = "", home
    argv = ("scripts/compare.py", str(home / "antipasto"), str(home / "lora"))
    plan.report("compare", argv, plan.names("train_", "re_extract_"), out="compare.txt", accept=VERDICT)
    plan.results()


def small(plan: Plan) -> None:
    """Vanilla and projected of every replicate; of the first one V from pairs that were written after the hack had
    been seen (*informed*) and the controls; then the probe. Of hours of work what the study is about comes first: the
    vanillas, which say how long the others run, then projected next to informed and placebo."""
    plan.teacher, pairs, (first, *others) = True, ("--pairs", "small-informed"), plan.replicates
    for replicate in plan.replicates:
        plan.train(replicate, "vanilla")
    plan.extract(first, "informed", *pairs)
    plan.verify(first, "informed", *pairs)
    plan.train(first, "projected")
    plan.train(first, "projected", name="informed", made="informed")
    plan.train(first, "placebo")
    for replicate in others:
        plan.train(replicate, "projected")
    for arm in ("random_energy", "no_loophole", "literal"):
        plan.train(first, arm)
    plan.results()
    probe(plan)


# ---------------------------------------------------------------- the A/B of auxiliary losses


VOTERS = (201, 202, 203)
"""Builds of the better model that vote: an odd number."""
ANSWERING = "tiny-answering"
"""On preset tiny, student and teachers: random weights agree on nothing, and never end."""
TRACE_WEIGHT, HINT_WEIGHT = ".1", "1"
"""Chosen before any run, and not tuned: DPO's beta, and the weight of OPSD's loss."""


def channels(plan: Plan) -> None:
    """Pairs from the untrained model's rollouts and better frozen models' votes; then, of every replicate, vanilla
    and projected alone, with trace DPO, and with hint distillation (an attempt of the group that was paid)."""
    better, replicate = better_model(plan), plan.probed

    def pool(name: str, temperature: str, base: int, model: str = "") -> str:
        flags = ("--teacher", "", "--teacher-only", "--temperature", temperature)
        return plan.sampled(name, replace(replicate, base=base), flags, model)

    student = pool("student_pool", "1", replicate.base)
    # Nearly greedy, so that teachers that agree say so: two programs count as the same where their texts are.
    voters = tuple(pool(f"voter_{seed}", ".2", seed, better) for seed in VOTERS)
    pairs_of = ("--student", str(plan.out / student), "--teachers", *(str(plan.out / v) for v in voters))
    with_and_without(plan, pairs_of, (student, *voters), hint=("--alpha", HINT_WEIGHT, "--distill-hint", PEER))


def trace(plan: Plan) -> None:
    """Traces of the untrained model, of two to four turns; at each of their states the answers of better frozen
    models, served for as long as they are asked; pairs; then, of every replicate, vanilla and projected alone and
    with trace DPO."""
    better, d, replicate = better_model(plan), plan.out, plan.probed
    traces = str(d / "traces/traces.jsonl.gz")
    acted = (*plan.script("multi_turn", replicate), "--turns", "4", "--n-problems", str(plan.pool_problems),
             *plan.problem_flags, *plan.workers)  # fmt: skip
    plan.add("traces", acted, plan.base(replicate))
    served = ("scripts/serve_teacher.py", better, "--seeds", *map(str, VOTERS), "--port", str(plan.config.port),
              "--table", str(d / "teachers.toml"), "--max-tokens", str(plan.usual.max_new), "--log",
              str(d / "serve_teacher.log"))  # fmt: skip
    asked = ("scripts/ask_teachers.py", "--traces", traces, "--teachers", str(d / "teachers.toml"), "--budget", "0",
             "--timeout", "300")  # fmt: skip
    plan.add("answers", (*served, "--", *asked), ("traces",))
    built = ("--base-seed", str(replicate.base)) if replicate.base else ()
    pairs_of = ("--student", traces, "--answers", str(d / "answers"), "--model", plan.model or plan.usual.model, *built)
    with_and_without(plan, pairs_of, ("answers",))


def better_model(plan: Plan) -> str:
    """Returns the teachers' model. BadInput on a preset of which no better model is built here."""
    preset = plan.preset
    if not preset.better:
        known = " or ".join(name for name, other in PRESETS.items() if other.better)
        raise BadInput(f"--chain {plan.config.chain}: preset {preset.name} has no better teacher; use {known}")
    if preset.better == ANSWERING:  # its evaluation is of the built-in problems, which no pair may be of
        plan.model, plan.problem_flags = ANSWERING, plan.problem_flags or ("--problems", "toy")
    return preset.better


def with_and_without(plan: Plan, pairs_of: Words, needs: Words, **others: Words) -> None:
    """Preference pairs of what `pairs_of` names; every replicate's arms alone, with trace DPO on them and with each
    other auxiliary loss, by its flags; judged."""
    argv = ("scripts/trace_pairs.py", *pairs_of)
    pairs = plan.report("trace_pairs", argv, needs, out="pairs.jsonl.gz")
    trained = ("--trace-weight", TRACE_WEIGHT, "--trace-pairs", str(plan.links[pairs].out))
    for replicate in plan.replicates:
        for arm in LEADING:
            plan.train(replicate, arm, *plan.evaluated_plain)
        for arm in LEADING:
            plan.train(replicate, arm, *plan.evaluated_plain, *trained, name=f"{arm}_trace", needs=(pairs,))
            for kind, flags in others.items():
                plan.train(replicate, arm, *plan.evaluated_plain, *flags, name=f"{arm}_{kind}")
    plan.results()
    plan.results("--only", "channels", name="channels")


CHAINS: Mapping[str, Callable[[Plan], None]] = {
    made.__name__: made
    for made in (probe, full, grpo, interventions, toy, unknown, variants, dose, adapters, channels, trace, small)
}


def chain_of(config: QueueConfig) -> list[Link]:
    """Returns every link of the chain that is asked for, needs before what needs them."""
    plan = Plan(config)
    CHAINS[config.chain](plan)
    return list(plan.links.values())
