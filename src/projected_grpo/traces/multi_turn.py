"""Sample traces of several turns and write them: a separate run, in chunks that a resumed one need not sample again."""

import shutil
from collections.abc import Iterator
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
from projected_grpo.ledger.step_file import iter_run, read_step, step_path, write_step
from projected_grpo.model.load import LoadedModel
from projected_grpo.rollout.sample import prompt_batches
from projected_grpo.run.prepare import default_out, load, log_isolation, show_text
from projected_grpo.run.trained import load_trained
from projected_grpo.traces.file import open_traces, write_traces
from projected_grpo.traces.from_run import header_of
from projected_grpo.traces.record import Stop, Trace
from projected_grpo.traces.settings import MultiTurnConfig
from projected_grpo.traces.turns import Policy, play

FILE, PARTS = "traces.jsonl.gz", "parts"
ENDS: dict[Stop, str] = {
    "passed": "ended by passing their evaluation function",
    "turns": "by the last turn",
    "context": "for want of room",
}


def policy_of(config: MultiTurnConfig) -> tuple[LoadedModel, Policy, AbstractContextManager[None]]:
    """The model, who it is, and a context in which its weights are those of the policy.

    BadInput as in load_model and load_trained, or when --trained is of another model.
    """
    if config.who != "trained":
        loaded = load(config, config.teacher if config.who == "teacher" else None)
        return loaded, Policy("teacher" if config.who == "teacher" else "base"), nullcontext()
    found = load_trained(config.trained, cache=config.cache, device=config.device)
    asked, trained = ((c.model, c.base_seed) for c in (config, found.config))
    if asked != trained:
        text = "--trained {}: trained on --model {} --base-seed {}, not {} {}"
        raise BadInput(text.format(config.trained, *trained, *asked))
    return found.loaded, Policy("student", found.steps), found.adapter.folded()


def sample_traces(config: MultiTurnConfig) -> int:
    """`n_problems` problems, `group_size` traces each, up to `turns` turns a trace."""
    run = default_out(config, "multi_turn", f"{config.who}_seed{config.seed}")
    check_new(run, resume=config.resume)
    log_isolation()
    problems = load_problems(config.problems)[: config.n_problems or None]
    loaded, policy, weights = policy_of(config)
    prompts = render_all(config, loaded, problems)
    open_run(
        run, "multi_turn", config, model_hash=loaded.weights_hash, tokenizer_hash=loaded.tokenizer_hash,
        problems_hash=problems_hash(problems), resume=config.resume,
    )  # fmt: skip
    if config.resume and read_manifest(run)["finished"]:
        logger.info(f"{run}: finished; nothing is left to resume")
        return _summary(run)
    header = header_of(read_manifest(run))
    chosen = list(zip(range(len(problems)), problems, prompts, strict=True))
    chunks = prompt_batches(chosen, config.group_size, config.rollout_batch)
    with weights:
        for chunk, places in progress(list(enumerate(chunks)), "traces"):
            if (part := run / PARTS / f"{chunk:03d}_{FILE}").exists():
                continue
            traces, graded, seconds = play(config, loaded, policy, places)
            if chunk == 0:
                _show(traces)
            for turn, groups in enumerate(graded):
                values = {"timing": {**seconds, "total": sum(seconds.values())}}
                rows = rows_of(groups, [], values, step=turn, keep_token_logps=True)
                write_step(run / PARTS / f"turn_{turn}", chunk, rows)
            write_traces(part, header, traces)  # last: a chunk is done when its traces are there
            logger.info(f"problems {places[0][0]} to {places[-1][0]} of {len(problems)}: {_stops(traces)}")
    _join(run, config.turns, len(chunks))
    return _summary(run)


def _join(run: Path, turns: int, chunks: int) -> None:
    """One trace file and one step file per turn from those of the chunks, which are then removed."""
    for turn in range(turns):
        paths = [step_path(run / PARTS / f"turn_{turn}", chunk) for chunk in range(chunks)]
        if rows := [row for path in paths if path.exists() for row in read_step(path)]:
            write_step(run, turn, rows)

    def all_traces() -> Iterator[Trace]:
        for chunk in range(chunks):
            yield from open_traces(run / PARTS / f"{chunk:03d}_{FILE}")[1]

    if not (run / FILE).exists():
        write_traces(run / FILE, header_of(read_manifest(run)), all_traces())
    update_manifest(run, finished=True)
    shutil.rmtree(run / PARTS)


def _show(traces: list[Trace]) -> None:
    """The first trace, turn by turn, so that a wrong reply is seen at once."""
    for turn, step in enumerate(traces[0].steps):
        show_text(f"turn {turn}, {len(step.ids)} tokens before it: {step.messages[-1][0]}", step.messages[-1][1])
        show_text(f"turn {turn}, reward {step.reward}: assistant, {len(step.action.ids)} tokens", step.action.text)


def _stops(traces: list[Trace]) -> str:
    return ", ".join(f"{sum(t.stop == stop for t in traces)} {text}" for stop, text in ENDS.items())


def _summary(run: Path) -> int:
    """The answer in the last lines: rates by turn, and what became of the traces."""
    traces = list(open_traces(run / FILE)[1])
    table: list[list[object]] = [["turn", "n", "reward", "hack", "gt_pass", "compiles"]]
    for turn, rows in enumerate(iter_run(run)):
        found = rates(rows)
        table.append([turn, len(rows), mean([r["reward"] for r in rows]), found["hack"], found["gt"], found["form"]])
    short = sum(trace.stop == "context" for trace in traces)
    bottom_line(
        run / FILE,
        "🟢" if not short else "🟡",
        f"{len(traces)} traces, {sum(len(t.steps) > 1 for t in traces)} of two turns or more: {_stops(traces)}"
        + ("; lower --max-new for more room" if short else ""),
        table,
    )
    return 0
