"""The A/B of auxiliary losses as chains: where preference pairs come from, then every replicate with and without one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from projected_grpo.config import PEER
from projected_grpo.ledger.errors import BadInput
from projected_grpo.queue.plans import VERDICT, Plan
from projected_grpo.queue.settings import LEADING

VOTERS = (201, 202, 203)
"""Builds of the better model that vote: an odd number."""
ANSWERING = "tiny-answering"
"""On preset tiny, student and teachers: random weights agree on nothing, and never end."""
BETTER = {"tiny": ANSWERING, "toy": "toy-deep", "small": "small-more"}
"""By preset, the model of the teachers: in the toy world a larger one, in the small one the same after three times the
warm-up."""
TEACHER_TEMPERATURE = ".2"
"""Low, so that teachers that agree say so: two programs count as the same where their texts are."""
TRACE_WEIGHT, HINT_WEIGHT = ".1", "1"
"""Chosen before any run, and not tuned: DPO's beta, and the weight of OPSD's loss."""
TURNS = "4"


def channels(plan: Plan) -> None:
    """Pairs from the untrained model's rollouts and better frozen models' votes; then, of every replicate, vanilla and
    projected alone, with trace DPO, and with hint distillation (an attempt of the group that was paid)."""
    better, replicate = _better(plan), plan.config.probed
    student = plan.base_pool("student_pool", replicate, "1")
    voters = [
        plan.base_pool(f"voter_{seed}", replace(replicate, base=seed), TEACHER_TEMPERATURE, better) for seed in VOTERS
    ]
    pairs = _pairs(plan, (student, *voters), "--student", str(plan.out / student), "--teachers",
                   *(str(plan.out / v) for v in voters))  # fmt: skip
    _with_and_without(plan, pairs, {"trace": _trace(plan), "hint": ("--alpha", HINT_WEIGHT, "--distill-hint", PEER)})


def trace(plan: Plan) -> None:
    """Traces of the untrained model, of two to four turns; at each of their states the answers of better frozen models,
    served for as long as they are asked; pairs; then, of every replicate, vanilla and projected alone and with trace DPO."""
    better, d, replicate = _better(plan), plan.out, plan.config.probed
    traces, states, table, answers = (
        d / "traces/traces.jsonl.gz",
        d / "states.jsonl.gz",
        d / "teachers.toml",
        d / "answers",
    )
    n = plan.config.n_problems or plan.preset.pool_problems
    acted = (*plan.script("multi_turn", replicate), "--turns", TURNS, "--n-problems", str(n), *plan.problem_flags,
             *plan.workers, "--out", str(d / "traces"))  # fmt: skip
    plan.add("traces", acted, plan.base(replicate), "traces of several turns", "traces of one action give no pairs enough",
             out=d / "traces")  # fmt: skip
    plan.check("states", ("scripts/traces.py", str(traces), "--to", "states", "--out", str(states)), ("traces",),
               "the states of the traces", "what teachers are asked about", out=states)  # fmt: skip
    served = ("scripts/serve_teacher.py", better, "--seeds", *map(str, VOTERS), "--port", str(plan.config.port),
              "--table", str(table), "--max-tokens", str(plan.preset.values["max_new"]), "--log",
              str(d / "serve_teacher.log"))  # fmt: skip
    asked = ("scripts/ask_teachers.py", "--states", str(states), "--teachers", str(table), "--budget", "0", "--timeout",
             "300", "--out", str(answers))  # fmt: skip
    plan.add("answers", (*served, "--", *asked), ("states",), "what better models say at each state",
             "where they agree there are pairs", out=answers)  # fmt: skip
    model = plan.model or str(plan.preset.values["model"])
    built = ("--base-seed", str(replicate.base)) if replicate.base else ()
    pairs = _pairs(plan, ("answers",), "--student", str(traces), "--answers", str(answers), "--model", model, *built)
    _with_and_without(plan, pairs, {"trace": _trace(plan)})


def _better(plan: Plan) -> str:
    """Returns the teachers' model. BadInput on a preset of which no better model is built here."""
    if plan.preset.name not in BETTER:
        raise BadInput(
            f"--chain {plan.config.chain}: preset {plan.preset.name} has no better teacher here; use "
            f"{' or '.join(BETTER)}"
        )
    if plan.preset.name == "tiny":  # its evaluation is of the built-in problems, which no pair may be of
        plan.model, plan.problem_flags = ANSWERING, plan.problem_flags or ("--problems", "toy")
    return BETTER[plan.preset.name]


def _trace(plan: Plan) -> tuple[str, ...]:
    return ("--trace-weight", TRACE_WEIGHT, "--trace-pairs", str(plan.out / "pairs.jsonl.gz"))


def _pairs(plan: Plan, needs: tuple[str, ...], *flags: str) -> str:
    out = plan.out / "pairs.jsonl.gz"
    return plan.check("trace_pairs", ("scripts/trace_pairs.py", *flags, "--out", str(out)), needs,
                      "preference pairs by majority", "without a majority there is nothing to learn", out=out)  # fmt: skip


def _with_and_without(plan: Plan, pairs: str, kinds: Mapping[str, Sequence[str]]) -> None:
    """Every replicate's arms alone and with each auxiliary loss, judged."""
    for replicate in plan.config.replicates:
        for arm in LEADING:
            plan.train(replicate, arm, *plan.evaluated_plain)
        for arm in LEADING:
            for kind, flags in kinds.items():
                needs = (pairs,) if kind == "trace" else ()
                plan.train(replicate, arm, *plan.evaluated_plain, *flags, name=f"{arm}_{kind}", needs=needs)
    plan.results()
    out = plan.out / "channels"
    argv = ("scripts/results.py", str(plan.out), "--only", "channels", "--out", str(out))
    plan.check("channels", argv, plan.names("train_"), "does a channel raise pass@1, and what of hacking",
               "VALIDATED or not", out=out, accept=VERDICT)  # fmt: skip
