"""Sample traces of several turns and write them: a separate run, in chunks that a resumed one need not sample again."""

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from loguru import logger

from projected_grpo.data.live import render_all
from projected_grpo.data.problems import load_problems, problems_hash
from projected_grpo.ledger.console import bottom_line, progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import check_new, open_run, read_manifest, update_manifest
from projected_grpo.ledger.rates import mean, rates
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import iter_run, write_step
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Source
from projected_grpo.rollout.sample import prompt_batches
from projected_grpo.run.prepare import default_out, load, log_isolation, show_text
from projected_grpo.run.trained import load_trained
from projected_grpo.traces.from_run import header_of
from projected_grpo.traces.record import Trace, open_traces, write_traces
from projected_grpo.traces.settings import MultiTurnConfig
from projected_grpo.traces.turns import play

FILE, PARTS = "traces.jsonl.gz", "parts"


def policy_of(config: MultiTurnConfig) -> tuple[LoadedModel, Source, int | None, AbstractContextManager[None]]:
    """Returns the model, who it is, the optimizer steps that it has taken where it was trained, and a context in which its
    weights are those of the policy.

    BadInput as in load_model and load_trained, or when --trained is of another model.
    """
    if config.who == "base":
        return load(config), "base", None, nullcontext()
    if config.who == "teacher":
        return load(config, config.teacher), "teacher", None, nullcontext()
    found = load_trained(config.trained, cache=config.cache, device=config.device)
    asked, trained = ((c.model, c.base_seed) for c in (config, found.config))
    if asked != trained:
        text = "--trained {}: trained on --model {} --base-seed {}, not {} {}"
        raise BadInput(text.format(config.trained, *trained, *asked))
    return found.loaded, "student", found.steps, found.adapter.folded()


def sample_traces(config: MultiTurnConfig) -> int:
    """`n_problems` problems, `group_size` traces each, up to `turns` turns a trace."""
    run = default_out(config, "multi_turn", f"{config.who}_seed{config.seed}")
    check_new(run, resume=config.resume)
    log_isolation()
    problems = load_problems(config.problems)[: config.n_problems or None]
    loaded, source, policy_step, weights = policy_of(config)
    prompts = render_all(config, loaded, problems)
    open_run(
        run, "multi_turn", config, model_hash=loaded.weights_hash, tokenizer_hash=loaded.tokenizer_hash,
        problems_hash=problems_hash(problems), resume=config.resume,
    )  # fmt: skip
    if read_manifest(run)["finished"]:
        logger.info(f"{run}: finished; nothing is left to resume")
        return _summary(run)
    parts, header = run / PARTS, header_of(read_manifest(run))
    chunks = prompt_batches(list(zip(range(len(problems)), problems, prompts, strict=True)), config.group_size,
                            config.rollout_batch)  # fmt: skip
    files = [parts / f"{chunk:03d}_{FILE}" for chunk in range(len(chunks))]
    with weights:
        for chunk, file in progress(list(enumerate(files)), "traces"):
            if file.exists():
                continue
            traces, graded, seconds = play(config, loaded, chunks[chunk], source, policy_step)
            values = {"timing": {**seconds, "total": sum(seconds.values())}}
            rows = [rows_of(groups, [], values, step=turn, keep_token_logps=True) for turn, groups in enumerate(graded)]
            write_step(parts, chunk, [row for of_turn in rows for row in of_turn])
            write_traces(file, header, traces)  # last: a chunk is done when its traces are there
            if chunk == 0:  # so that a wrong reply is seen at once
                for turn, step in enumerate(traces[0].steps):
                    show_text(f"turn {turn}, {len(step.ids)} tokens before it", step.messages[-1][1])
                    show_text(f"turn {turn}, reward {step.reward}: {len(step.action.ids)} tokens", step.action.text)
            logger.info(f"chunk {chunk + 1} of {len(chunks)}: {_stops(traces)}")
    for turn in range(config.turns):
        if rows := [row for part in iter_run(parts) for row in part if row["step"] == turn]:
            write_step(run, turn, rows)
    write_traces(run / FILE, header, (trace for file in files for trace in open_traces(file)[1]))
    update_manifest(run, finished=True)
    shutil.rmtree(parts)
    return _summary(run)


def _stops(traces: Sequence[Trace]) -> str:
    """Returns how many traces ended for each reason (`Stop`)."""
    return "ended by " + ", ".join(f"{stop} {n}" for stop, n in sorted(Counter(t.stop for t in traces).items()))


def _summary(run: Path) -> int:
    """The answer in the last lines: rates by turn, and what became of the traces."""
    traces = list(open_traces(run / FILE)[1])
    table: list[list[object]] = [["turn", "n", "reward", "hack", "gt_pass", "compiles"]]
    for turn, rows in enumerate(iter_run(run)):
        found = rates(rows)
        table.append([turn, len(rows), mean([r["reward"] for r in rows]), found["hack"], found["gt"], found["form"]])
    short = any(trace.stop == "context" for trace in traces)
    bottom_line(
        run / FILE,
        "🟡" if short else "🟢",
        f"{len(traces)} traces, {sum(len(t.steps) > 1 for t in traces)} of two turns or more, {_stops(traces)}"
        + ("; lower --max-new for more room" if short else ""),
        table,
    )
    return 0
