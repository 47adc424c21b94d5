"""The A/B of channels as chains: where preference pairs come from, then every unit's arms with and without a channel.
Torch-free.

channels  pairs of one state each: the untrained model's rollouts, and those of better models; hint distillation beside
trace     pairs of several turns: the untrained model's traces, and what better models behind a local endpoint say there
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from projected_grpo.config import PEER, TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import presets
from projected_grpo.queue.links import Link
from projected_grpo.queue.plans import (
    Plan,
    arm_flags,
    arm_run,
    base_pool,
    bases,
    extracted,
    script,
    train,
    verified,
    verify,
    with_results,
)

CHANNEL_ARMS = ("vanilla", "projected")
FIRST_TEACHER = 201
"""The first of the builds of the better model that vote."""
ANSWERING = "tiny-answering"
"""On preset tiny, student and teachers: random weights agree on nothing, and never end."""
BETTER = {"tiny": ANSWERING, "toy": "toy-deep", "small": "small-more"}
"""By preset, the model of the teachers: in the toy world a larger one, in the small one the same after three times the
warm-up."""
TEACHER_TEMPERATURE = ".2"
"""Low, so that teachers that agree say so: two programs count as the same where their texts are."""
TRACE_WEIGHT, HINT_WEIGHT = ".1", "1"
"""Chosen before any run, and not tuned: DPO's own beta, and the weight of OPSD's loss."""
TURNS = "4"


def _who(plan: Plan, chain: str) -> tuple[Plan, str, tuple[str, ...]]:
    """The plan, the teachers' model, and the flags of the student's where it is not the preset's. BadInput on a preset of
    which no better model is built here."""
    if plan.preset.name not in BETTER:
        raise BadInput(
            f"--chain {chain}: preset {plan.preset.name} has no better teacher here; use {' or '.join(BETTER)}"
        )
    if plan.preset.name == "tiny":  # its evaluation is of the built-in problems, which no pair may be of
        return replace(plan, problems=plan.problems or "toy"), ANSWERING, ("--model", ANSWERING)
    return plan, BETTER[plan.preset.name], ()


def _builds(plan: Plan) -> range:
    return range(FIRST_TEACHER, FIRST_TEACHER + plan.voters)


def _learned(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {"trace": ("--trace-weight", TRACE_WEIGHT, "--trace-pairs", str(plan.out / "pairs.jsonl.gz"))}


def channels_chain(plan: Plan) -> list[Link]:
    """Pairs from the untrained model's rollouts and better frozen models' votes; then, of every unit, vanilla and projected
    alone, with trace DPO, and with hint distillation (an attempt of the group that was paid). BadInput as in `_who`."""
    plan, better, own = _who(plan, "channels")
    student = base_pool(plan, "student_pool", "1", *own)
    voters = [
        base_pool(plan, f"voter_{seed}", TEACHER_TEMPERATURE, "--model", better, "--base-seed", str(seed))
        for seed in _builds(plan)
    ]
    made = _pairs(plan, (student, *voters), "--student", str(student.out), "--teachers", *(str(v.out) for v in voters))
    kinds = {**_learned(plan), "hint": ("--alpha", HINT_WEIGHT, "--distill-hint", PEER)}
    return _with_and_without(plan, (student, *voters, made), kinds, *own)


def trace_chain(plan: Plan) -> list[Link]:
    """Traces of the untrained model, of two to four turns; at each of their states the answers of better frozen models,
    served for as long as they are asked; pairs and their verdict; then, of every unit, vanilla and projected alone and with
    trace DPO. BadInput as in `_who`."""
    plan, better, own = _who(plan, "trace")
    d = plan.out
    file, states, teachers, answers = (
        d / "traces/traces.jsonl.gz",
        d / "states.jsonl.gz",
        d / "teachers.toml",
        d / "answers",
    )
    problems = ("--problems", plan.problems) if plan.problems else ()
    acted = (*script(plan, "multi_turn", plan.look), *own, "--turns", TURNS, "--n-problems", str(plan.pool_problems),
             *problems, *(("--grader-workers", "1") if plan.preset.on_cpu else ()), "--out", str(d / "traces"))  # fmt: skip
    said = ("scripts/serve_teacher.py", better, "--seeds", *map(str, _builds(plan)), "--port",
            str(plan.port), "--table", str(teachers), "--max-tokens", str(plan.preset.values["max_new"]), "--log",
            str(d / "serve_teacher.log"), "--", "scripts/ask_teachers.py", "--states", str(states), "--teachers",
            str(teachers), "--budget", "0", "--timeout", "300", "--out", str(answers))  # fmt: skip
    before = bases(plan, (plan.look,))
    links = [
        Link("traces", acted, d / "traces", tuple(t.name for t in before), "run", plan.threads,
             why="traces of several turns", resolve="traces of one action give no pairs enough"),
        Link("states", ("scripts/traces.py", str(file), "--to", "states", "--out", str(states)), states, ("traces",),
             "check", plan.threads, gpu=False, why="the states of the traces", resolve="what teachers are asked about"),
        Link("answers", said, answers, ("states",), "run", plan.threads,
             why="what better models say at each state", resolve="where they agree there are pairs"),
        Link("judge_teachers", ("scripts/judge_teachers.py", str(answers)), answers, ("answers",), "check", plan.threads,
             accept=(0, 1, 3), gpu=False, why="cost and latency of the teachers", resolve="PASS, FAIL or NOT_EVALUABLE"),
    ]  # fmt: skip
    student = own or (("--model", plan.model) if plan.model else ("--model", str(plan.preset.values["model"])))
    built = ("--base-seed", str(plan.look.base)) if plan.look.base else ()
    made = _pairs(plan, links[2:3], "--student", str(file), "--answers", str(answers), *student, *built)
    return _with_and_without(plan, (*links, made), _learned(plan), *own)


def _pairs(plan: Plan, of: Sequence[Link], *flags: str) -> Link:
    out = plan.out / "pairs.jsonl.gz"
    return Link("trace_pairs", ("scripts/trace_pairs.py", *flags, "--out", str(out)), out, tuple(t.name for t in of),
                "check", plan.threads, gpu=False, why="preference pairs by majority",
                resolve="without a majority there is nothing to learn")  # fmt: skip


def _with_and_without(
    plan: Plan, before: Sequence[Link], kinds: Mapping[str, tuple[str, ...]], *own: str
) -> list[Link]:
    """Every unit's arms alone and with each kind of channel, judged; the last link before them makes the pairs. own: the
    model, where it is not the preset's."""
    every = presets(TrainConfig)[plan.preset.name].eval_every or plan.steps
    plain = (*own, "--eval-every", str(every), "--eval-plain")
    links = [*bases(plan, plan.units), *before]
    for unit in plan.units:
        links += [extracted(plan, unit, "none", "--control", "none", *own), verify(plan, unit, "none", *own)]
        links += [arm_run(plan, unit, arm, *plain) for arm in CHANNEL_ARMS]
        for arm in CHANNEL_ARMS:
            needs = verified(unit, "none")
            for kind, flags in kinds.items():
                mine = (*needs, before[-1].name) if kind == "trace" else needs
                links.append(train(plan, unit, f"{arm}_{kind}", mine, (*arm_flags(plan, unit, arm), *plain, *flags)))
    trained = tuple(t.name for t in links if t.name.startswith("train_"))
    table = Link("channels", ("scripts/channels.py", str(plan.out)), plan.out / "channels", trained, "check", plan.threads,
                 accept=(0, 1, 3), gpu=False, why="does a channel raise pass@1, and what of hacking",
                 resolve="VALIDATED or not")  # fmt: skip
    return [*with_results(plan, links), table]
