"""Chains of runs, defined once: which script with which arguments, into which folder, after what. Torch-free.

probe     the cheap look before a sweep: V -> verify -> teacher pool -> replays -> UAT
full      the sweep: of every unit V -> verify -> vanilla and projected; results; then the controls that are asked for
grpo      the policy gradient itself: V -> verify -> teacher pools -> vanilla and projected on mixed groups -> T5
rivals    the sweep with every other answer to hacking, evaluated without the loophole too; then their table
toy       probe and full, on the toy world
A study (studies.py) is another selection of runs on the same units.

A *unit* is one independent repetition. Its seed draws the pairs that its V is made from, its control bases and its
rollouts, and it has a base model of its own where there are several. Its vanilla run goes first, its other arms for as many
steps.

A back end (local, pueue, slurm) decides where and when a link runs; what the links are does not depend on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from projected_grpo.arms import ARMS, arms_of
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import LAST
from projected_grpo.presets import Preset, presets
from projected_grpo.queue.links import Link
from projected_grpo.worlds.toy_shapes import SHAPES

LEADING = ("vanilla", "projected")
"""Run first: the first answer needs them alone."""
IN_H1 = (*arms_of("baseline"), *arms_of("method"), *arms_of("control"))
RANK = 0.375
"""k as a share of a toy model's width."""


@dataclass(frozen=True)
class Unit:
    """One repetition."""

    seed: int
    base: int = 0
    """Which build of a built-in base model."""
    pairs_draw: int = 0
    """Bootstrap sample of the pairs of its V; 0 = all of them."""
    tag: str = ""
    """Ends the names of its links."""


@dataclass(frozen=True)
class Plan:
    """What is run, on which preset, and where."""

    preset: Preset
    out: Path
    model: str
    """A toy model's name; elsewhere empty, the preset's own."""
    units: tuple[Unit, ...]
    arms: tuple[str, ...]
    steps: int
    """Of every run; with `onsets` the most that vanilla may take to begin and go on."""
    onsets: float
    """How many times its vanilla's onset a unit's runs last; 0 = `steps`."""
    pool_problems: int
    replays: int
    problems: str = ""
    """Problems to train and to probe on; empty = the preset's own."""
    adapter: str = "antipasto"
    quick: bool = False
    """A first look at a study: fewer doses."""
    doses: tuple[int, ...] = ()
    """Directions of the dose study; empty = its own."""
    own_loras: bool = False
    """Each unit's LoRA starts from an A of its own; otherwise all share one."""
    pool: Path | None = None
    """The teacher's pool; None = in `out`."""
    voters: int = 3
    """Larger models that vote, in the chains of preference pairs."""
    port: int = 8000
    """Where they are served."""
    own_look: bool = False
    """Its probe is of the first unit as it is, with that one's draw of the pairs and a pool of its own."""

    @property
    def threads(self) -> int:
        """Threads of a link; 0 = all."""
        return self.preset.threads

    @property
    def pool_at(self) -> Path:
        """Folder of the teacher's pool."""
        return self.pool or self.out / f"teacher_pool{self.look.tag}"

    @property
    def look(self) -> Unit:
        """The unit of the probe: all pairs, the first base."""
        return self.units[0] if self.own_look else replace(self.units[0], pairs_draw=0, tag="")


def probe_chain(plan: Plan) -> list[Link]:
    """The cheap look."""
    made = [_extract(plan, plan.look, control, "--control", control) for control in ("none", "random")]
    made.append(_extract(plan, plan.look, "grpo", "--loss", "grpo"))
    made += [verify(plan, plan.look, "none"), compare_v(plan)]
    return [*bases(plan, (plan.look,), teacher=True), *made, *_probe(plan)]


def full_chain(plan: Plan) -> list[Link]:
    """The sweep: vanilla and projected of every unit and their results; behind them the controls, and results again."""
    first = replace(plan, arms=tuple(arm for arm in plan.arms if arm in LEADING))
    links = [*_own_bases(plan), *_mixed_in(plan)]
    if first.arms and first.arms != plan.arms:
        links += with_results(plan, _arms(first))
        return with_results(plan, together(links, _arms(plan)), name="results_controls")
    return [*links, *with_results(plan, _arms(plan))]


def rivals_chain(plan: Plan) -> list[Link]:
    """The sweep with every other answer to hacking, each evaluated without the loophole too, in one table and one plot. A
    teacher is built whichever arms are asked for first: an arm that is shown it can then be added to the same folder."""
    every = presets(TrainConfig)[plan.preset.name].eval_every or plan.steps
    links = [
        *bases(plan, plan.units, teacher=True),
        *_mixed_in(plan),
        *_arms(plan, "--eval-every", str(every), "--eval-plain"),
    ]
    trained = tuple(t.name for t in links if t.name.startswith("train_"))
    argv = ("scripts/rivals.py", str(plan.out))
    table = Link("rivals", argv, plan.out / "rivals", trained, "check", plan.threads, accept=(0, 3), gpu=False,
                 why="every answer side by side", resolve="which of them beats projected")  # fmt: skip
    return [*with_results(plan, links), table]


MIX = "teacher=.25,base=.25"
"""Rewards vary from the first step, and half of the rows are the student's, whose hack rate is judged."""
GRPO_STEPS = 20
GRPO_ARMS = ("vanilla", "projected")


def grpo_chain(plan: Plan) -> list[Link]:
    """Twenty steps of vanilla and projected on mixed groups, of every unit, and T5."""
    plan = replace(plan, steps=GRPO_STEPS, onsets=0.0)
    each_base = dict.fromkeys(unit.base for unit in plan.units)
    links = bases(plan, plan.units, teacher=True)
    links += [teacher_pool(plan, replace(plan.look, base=base)) for base in each_base]
    for unit in plan.units:
        links += extracts(plan, unit, GRPO_ARMS)
        pool = pool_of(plan, unit)
        mixed = ("--teacher-pool", str(pool), "--mix", MIX, "--eval-every", "0")
        for arm in GRPO_ARMS:
            needs = (*verified(unit, ARMS[arm].measured), pool.name)
            links.append(train(plan, unit, arm, needs, (*arm_flags(plan, unit, arm), *mixed), mixed=True))
    return with_results(plan, links, "--require", "T5")


def toy_chain(plan: Plan) -> list[Link]:
    """Both."""
    return together(probe_chain(plan), full_chain(plan))


def together(links: Sequence[Link], more: Sequence[Link]) -> list[Link]:
    """One chain after another, without the links of the second that the first has."""
    there = {link.name for link in links}
    return [*links, *(link for link in more if link.name not in there)]


def rank_of(model: str) -> int:
    """k for a toy model: the same share of its width on each."""
    return round(RANK * SHAPES[model]["hidden_size"])


def v_of(plan: Plan, unit: Unit, made: str) -> str:
    """Where a V of this unit is."""
    return str(plan.out / f"vhack_{made}{unit.tag}" / "vhack.safetensors")


def script(plan: Plan, name: str, unit: Unit) -> tuple[str, ...]:
    """A script with the preset, the model where a toy one is chosen, and which build of it."""
    model = ("--model", plan.model) if plan.model else ()
    base = ("--base-seed", str(unit.base)) if unit.base else ()
    own = ("--lora-seed", str(unit.seed)) if plan.own_loras and plan.adapter == "lora" else ()
    adapter = ("--adapter", plan.adapter, *own) if plan.adapter != "antipasto" else ()
    return (f"scripts/{name}.py", plan.preset.name, *model, *base, *adapter)


def pass_minutes(plan: Plan, problems: int) -> float:
    """Roughly how long it takes to sample, or to replay, one group of each of so many problems: half of a training step."""
    per_step = int(plan.preset.values["prompts_per_step"])
    return 0.5 * plan.preset.step_s * problems / per_step / 60


def verified(unit: Unit, made: str) -> tuple[str, ...]:
    """What a run with this kind of V waits for: a V that passed on held-out pairs, and its own."""
    judged = f"verify_none{unit.tag}"
    return (judged,) if made == "none" else (judged, f"extract_{made}{unit.tag}")


def _problems(plan: Plan) -> tuple[str, ...]:
    return ("--problems", plan.problems) if plan.problems else ()


def _workers(plan: Plan) -> tuple[str, ...]:
    """One grader process a link where links share the cores."""
    return ("--grader-workers", "1") if plan.preset.on_cpu else ()


def bases(plan: Plan, units: Sequence[Unit], *, teacher: bool = False) -> list[Link]:
    """The base models of these units, where the preset builds them, each with its `teacher` where that is asked for. One
    thread each: their number would change the model."""
    links, only = [], () if teacher else ("--base-only",)
    for base in dict.fromkeys(unit.base for unit in units) if plan.preset.builds_base else ():
        out = plan.out / f"base_{base}"
        model = ("--model", plan.model) if plan.model else ()
        argv = (
            "scripts/build_base.py",
            plan.preset.name,
            *model,
            "--base-seed",
            str(base),
            *only,
            *_workers(plan),
            "--out",
            str(out),
        )
        why = "a base that hardly hacks" + (", a teacher that does" if teacher else "")
        links.append(
            Link(out.name, argv, out, threads=plan.threads, minutes=12.0, why=why,
                 resolve="on a model that misses its bars no run means anything")
        )  # fmt: skip
    return links


def _own_bases(plan: Plan) -> list[Link]:
    """The units' bases, with a teacher where an arm or the groups need one."""
    shown = plan.preset.teacher_share == "pool" or any("teacher" in ARMS[arm].sees for arm in plan.arms)
    return bases(plan, plan.units, teacher=shown)


def _after_base(plan: Plan, unit: Unit) -> tuple[str, ...]:
    return (f"base_{unit.base}",) if plan.preset.builds_base else ()


def _extract(plan: Plan, unit: Unit, made: str, *flags: str) -> Link:
    out = plan.out / f"vhack_{made}{unit.tag}"
    rank = ("--k", str(rank_of(plan.model))) if plan.model and "--k" not in flags else ()
    drawn = ("--seed", str(unit.seed), "--pairs-draw", str(unit.pairs_draw)) if unit.tag else ()
    argv = (*script(plan, "extract_vhack_grad", unit), *rank, *drawn, *flags, "--out", str(out))
    return Link(f"extract_{made}{unit.tag}", argv, out, _after_base(plan, unit), threads=plan.threads,
                minutes=0.2 * plan.preset.step_s, why=f"V: {made}",
                resolve="verify judges it on pairs that it has not seen")  # fmt: skip


def extracts(plan: Plan, unit: Unit, arms: Sequence[str]) -> list[Link]:
    """Every kind of V that these arms need, the true one always and judged."""
    made = dict.fromkeys(["none", *(ARMS[arm].measured for arm in arms)])
    return [*(_extract(plan, unit, control, "--control", control) for control in made), verify(plan, unit, "none")]


def extracted(plan: Plan, unit: Unit, name: str, *flags: str) -> Link:
    """A V made in another way, under a name of its own."""
    return _extract(plan, unit, name, *flags)


def verify(plan: Plan, unit: Unit, made: str, *flags: str) -> Link:
    """A V judged on held-out pairs."""
    argv = (*script(plan, "verify_vhack", unit), "--vhack", v_of(plan, unit, made), *flags)
    out = plan.out / f"vhack_{made}{unit.tag}" / "verify.txt"
    return Link(f"verify_{made}{unit.tag}", argv, out, (f"extract_{made}{unit.tag}",), "check", plan.threads,
                minutes=0.1 * plan.preset.step_s, why="is V hack-ward on pairs that it has never seen",
                resolve="FAIL ends the chain: mend the pairs")  # fmt: skip


SELDOM_MORE = 300
"""Steps of a run that ends with its vanilla's onsets: its cap is seldom reached."""


def train(
    plan: Plan, unit: Unit, name: str, needs: Sequence[str], flags: Sequence[str], *, mixed: bool = False
) -> Link:
    """A training run; `name` tells it from the unit's others. `mixed`: the flags say what its groups are mixed of, not the
    preset."""
    out = plan.out / f"train_{name}_{unit.seed}"
    vanilla = plan.out / f"train_vanilla_{unit.seed}"
    length: tuple[str, ...] = ("--steps", str(plan.steps))
    if "--of" in flags:  # derived from vanilla: the untrained model's step, and those that rates are taken over
        length, needs = ("--steps", str(1 + LAST)), (*needs, vanilla.name)
    elif plan.onsets:
        until = ("--until-onsets", f"{plan.onsets:g}")
        length = (*length, *(until if out == vanilla else ("--horizon-of", str(vanilla))))
        needs = (*needs, *(() if out == vanilla else (vanilla.name,)))
    pool = str(plan.pool_at)
    share = "" if mixed else plan.preset.teacher_share
    cached = {"": (), "pairs": ("--teacher-pool", "pairs"), "pool": ("--teacher-pool", pool)}
    argv = (*script(plan, "train", unit), *length, "--seed", str(unit.seed), *_problems(plan),
            *cached[share], *flags, *_workers(plan), "--out", str(out))  # fmt: skip
    taken = min(plan.steps, SELDOM_MORE) if plan.onsets else plan.steps
    resolve = "one point of T5" if mixed else "one point of H1" if name in IN_H1 else "stands beside H1"
    wait = ("teacher_pool",) if share == "pool" else ()
    return Link(out.name, argv, out, (*needs, *wait), "run", plan.threads,
                minutes=taken * plan.preset.step_s / 60,
                why=f"{name}, seed {unit.seed}", resolve=resolve)  # fmt: skip


def arm_flags(plan: Plan, unit: Unit, arm: str) -> tuple[str, ...]:
    """Arguments of `train` for an arm, which measures or takes out a V of its own kind. The recipe is the preset's."""
    of = ("--of", str(plan.out / f"train_vanilla_{unit.seed}")) if ARMS[arm].derived else ()
    teacher = ("--teacher", plan.model) if plan.model and "teacher" in ARMS[arm].sees else ()
    model = plan.model or plan.preset.values["model"]
    judge = ("--judge", f"model:{model}") if "score" in ARMS[arm].sees else ()
    return ("--arm", arm, "--vhack", v_of(plan, unit, ARMS[arm].measured), *of, *teacher, *judge)


def arm_run(plan: Plan, unit: Unit, arm: str, *flags: str) -> Link:
    """An arm of a unit, once its V has been verified."""
    return train(plan, unit, arm, verified(unit, ARMS[arm].measured), (*arm_flags(plan, unit, arm), *flags))


def _arms(plan: Plan, *flags: str) -> list[Link]:
    """Every arm of every unit. BadInput where the steps hang on a vanilla run, or an arm does, and there is none."""
    if (derived := [a for a in plan.arms if ARMS[a].derived]) and "vanilla" not in plan.arms:
        raise BadInput(f"--arms {' '.join(plan.arms)}: {derived[0]} is made from the unit's vanilla; add vanilla")
    if plan.onsets and "vanilla" not in plan.arms:
        raise BadInput(
            f"--arms {' '.join(plan.arms)}: on preset {plan.preset.name} a unit runs for {plan.onsets:g} times its "
            "vanilla's onset; add vanilla, or give --steps"
        )
    leading = tuple(arm for arm in plan.arms if arm in LEADING)
    links: list[Link] = []
    for unit in plan.units:
        links += [*extracts(plan, unit, leading), *(arm_run(plan, unit, arm, *flags) for arm in leading)]
    for arm in plan.arms:
        for unit in plan.units:
            links = together(links, [*extracts(plan, unit, (arm,)), arm_run(plan, unit, arm, *flags)])
    return links


def with_results(plan: Plan, links: Sequence[Link], *flags: str, name: str = "results") -> list[Link]:
    """Links with the results of their runs behind them."""
    trained = tuple(t.name for t in links if t.name.startswith(("train_", "anew_", "replay_")))
    out = () if name == "results" else ("--out", str(plan.out / name))
    argv = ("scripts/results.py", str(plan.out), *flags, *out)
    results = Link(name, argv, plan.out / name, trained, "check", plan.threads, accept=(0, 1, 3), gpu=False,
                   why="tables, plots, verdicts", resolve="PASS, FAIL or NOT_EVALUABLE, clause by clause")  # fmt: skip
    return [*links, results]


def _mixed_in(plan: Plan) -> list[Link]:
    """The teacher's pool, where training groups are filled from it."""
    return [teacher_pool(plan)] if plan.preset.teacher_share == "pool" else []


def pool_of(plan: Plan, unit: Unit) -> Path:
    """The pool of the teacher of this unit's base; that of the probe's base has no number."""
    return plan.pool_at if unit.base == plan.look.base else plan.out / f"teacher_pool_{unit.base}"


def teacher_pool(plan: Plan, unit: Unit | None = None) -> Link:
    """Rollouts of the hacky teacher of a unit's base; None: of the probe's."""
    unit = unit or plan.look
    out = pool_of(plan, unit)
    teacher = ("--teacher", plan.model) if plan.model else ()
    drawn = ("--seed", str(unit.seed)) if plan.own_look else ()
    argv = (*script(plan, "probe_distill", unit), *teacher, "--teacher-only", *drawn, "--n-problems",
            str(plan.pool_problems), *_problems(plan), *_workers(plan), "--out", str(out))  # fmt: skip
    return Link(out.name, argv, out, _after_base(plan, unit), "run", plan.threads,
                minutes=pass_minutes(plan, plan.pool_problems), why="rollouts of the hacky teacher",
                resolve="T1: it must hack on 30 % of them")  # fmt: skip


def base_pool(plan: Plan, name: str, temperature: str, *flags: str) -> Link:
    """Rollouts of an untrained model as it is; `flags` may choose another model than the plan's. On the probe's base."""
    own = script(plan, "probe_distill", plan.look)
    argv = (*own[:2], *(flags or own[2:]), "--teacher", "", "--teacher-only", "--temperature", temperature, "--n-problems",
            str(plan.pool_problems), *_problems(plan), *_workers(plan), "--out", str(plan.out / name))  # fmt: skip
    return Link(name, argv, plan.out / name, _after_base(plan, plan.look), "run", plan.threads,
                why=f"rollouts of an untrained model: {name}", resolve="what trace DPO's pairs are made of")  # fmt: skip


def compare_v(plan: Plan) -> Link:
    """V of either loss, set side by side: the same tensors would make T7 say nothing."""
    tag = plan.look.tag
    out = plan.out / f"vhack_grpo{tag}" / "compare_v.txt"
    both = (v_of(plan, plan.look, "none"), v_of(plan, plan.look, "grpo"))
    needs = (f"extract_none{tag}", f"extract_grpo{tag}")
    return Link(f"compare_v{tag}", ("scripts/compare_v.py", *both, "--out", str(out)), out, needs, "check", plan.threads,
                gpu=False, why="principal angles between V of both losses",
                resolve="identical: --loss grpo was not really taken")  # fmt: skip


def replay(plan: Plan, name: str, arm: str, made: str, resolve: str, *flags: str) -> Link:
    """The teacher's pool through the student, V measured or taken out."""
    out = plan.out / f"replay_{name}{plan.look.tag}"
    argv = (*script(plan, "probe_distill", plan.look), "--arm", arm, "--pool", str(plan.pool_at), "--vhack",
            v_of(plan, plan.look, made), "--n-problems", str(plan.replays), *_problems(plan), *flags, "--out",
            str(out))  # fmt: skip
    needs = (plan.pool_at.name, *verified(plan.look, made))
    return Link(out.name, argv, out, needs, "run", plan.threads, minutes=pass_minutes(plan, plan.replays),
                why=f"the pool, {name}", resolve=resolve)  # fmt: skip


def _probe(plan: Plan) -> list[Link]:
    """Teacher pool, four replays of it, UAT."""
    replays = [
        replay(plan, "vanilla", "vanilla", "none", "T2 and T4"),
        replay(plan, "projected", "projected", "none", "T3"),
        replay(plan, "random", "vanilla", "random", "what T4 shows for a V that knows nothing"),
        replay(plan, "grpo", "vanilla", "grpo", "T7: V from the training loss beside V from the NLL"),
    ]
    d, require, expect = plan.out, plan.preset.required, plan.preset.expect
    argv = ("scripts/probe_uat.py", "--pool", str(plan.pool_at), "--vanilla", str(d / "replay_vanilla"),
            "--projected", str(d / "replay_projected"), "--random", str(d / "replay_random"), "--grpo",
            str(d / "replay_grpo"), "--require", *require,
            *(("--expect", expect) if expect else ()))  # fmt: skip
    uat = Link("uat", argv, d / "replay_projected" / "uat.txt", tuple(t.name for t in replays), "check", plan.threads,
               gpu=False, why="verdicts T1 to T4, T7", resolve=f"{' '.join(require)} PASS: worth a sweep")  # fmt: skip
    return [teacher_pool(plan), *replays, uat]
