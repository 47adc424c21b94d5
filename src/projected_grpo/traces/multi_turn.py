"""Traces of several turns: the model answers, sees what came of it as far as that is public, and tries again. A separate
run, in chunks that a resumed one need not sample again.

A trace ends when its evaluation function passes, after the last turn, or where the model's context has no room for
another answer. The reward of each turn is the ordinary one. Reply and end depend on `Public` alone, as for a user who
trusts run_tests(): if a ground-truth pass ended a trace, being asked again would tell.

Ids go on from ids: what stands between an answer and the next (its end, the user's message, the generation prompt) is cut
from the chat template behind a placeholder and tokenised alone, so no sampled token is ever tokenised again, and special
tokens that an answer or an error message spells out in letters stay letters.
"""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from loguru import logger

from loophole_grader import Public, public_of
from loophole_grader.hints import HINTS
from projected_grpo.data.live import live_groups, render_all
from projected_grpo.data.problems import load_problems, problems_hash
from projected_grpo.ledger.console import bottom_line, progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import check_new, open_run, read_manifest, update_manifest
from projected_grpo.ledger.rates import mean, rates
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import iter_run, write_step
from projected_grpo.model.load import LoadedModel
from projected_grpo.prompts import Messages, apply_template, as_chat, from_chat, messages_for, without_specials
from projected_grpo.records import Group, Problem, Source
from projected_grpo.rollout.sample import Prompt, prompt_batches
from projected_grpo.run.prepare import default_out, load, log_isolation, show_text
from projected_grpo.run.trained import load_trained
from projected_grpo.traces.from_run import header_of
from projected_grpo.traces.record import Action, Step, Stop, Trace, open_traces, write_traces
from projected_grpo.traces.settings import MultiTurnConfig

FILE, PARTS = "traces.jsonl.gz", "parts"


# ---------------------------------------------------------------- the environment


@dataclass
class Episode:
    """A trace that goes on."""

    place: int
    sample: int
    problem: Problem
    prompt: Prompt
    messages: Messages
    steps: list[Step] = field(default_factory=list)
    stop: Stop | None = None


def play(
    config: MultiTurnConfig,
    loaded: LoadedModel,
    problems: Sequence[tuple[int, Problem, Prompt]],
    source: Source,
    policy_step: int | None = None,
) -> tuple[list[Trace], list[list[Group]], dict[str, float]]:
    """Returns `group_size` traces of each (place, problem, prompt); the graded groups of each turn, one of a single rollout
    per trace that was still going on; seconds of sampling and grading. `source`, `policy_step`: who acts, as in a Trace.

    Fold the adapter first. Draws depend on seed, place, sample and turn alone. Raises GraderError as in `live_groups`, and
    BadInput when the chat template leaves earlier answers out.
    """
    episodes = []
    for place, problem, prompt in problems:
        chat = from_chat(messages_for(problem.messages, config.hint, config.prompt_setup))
        episodes += [Episode(place, sample, problem, prompt, chat) for sample in range(config.group_size)]
    tasks = {problem.problem_id: problem.task for _, problem, _ in problems}
    graded: list[list[Group]] = []
    seconds = {"generate": 0.0, "grade": 0.0}
    for turn in range(config.turns):
        going = [episode for episode in episodes if episode.stop is None]
        if not going:
            break
        keys = [f"turns {config.seed} {e.place} {e.sample} {turn}" for e in going]
        prompts = [e.prompt for e in going]
        groups, verdicts, timing = live_groups(config, loaded, prompts, tasks, 1, keys, source, loophole=True)
        seconds = {part: seconds[part] + timing[part] for part in seconds}
        graded.append([])
        for episode, group, (verdict,) in zip(going, groups, verdicts, strict=True):
            placed = dataclasses.replace(group.rollouts[0], sample_id=episode.sample)
            graded[-1].append(dataclasses.replace(group, rollouts=(placed,)))
            act(config, loaded, episode, group, public_of(verdict), is_last=turn == config.turns - 1)
    traces = []
    for e in episodes:
        assert e.stop is not None
        group_of = f"problem {e.place}"
        trace_id = f"{group_of}, sample {e.sample}"
        traces.append(Trace(trace_id, group_of, e.problem.problem_id, source, policy_step, e.stop, tuple(e.steps)))
    return traces, graded, seconds


def act(
    config: MultiTurnConfig, loaded: LoadedModel, episode: Episode, group: Group, public: Public, *, is_last: bool
) -> None:
    """Adds the group's one rollout to its episode, and goes on from it or ends."""
    (rollout,), (reward,) = group.rollouts, group.rewards
    action = Action(rollout.completion, rollout.completion_ids, rollout.behaviour_logps, rollout.truncated)
    state, ids = episode.messages, episode.prompt.ids
    text = feedback(public, episode.problem.task.evaluator_name, named=bool(HINTS[config.hint].old))
    reply = without_specials(loaded.tokenizer, text)
    tail, added = between(loaded, state, reply, None if action.truncated else action.ids[-1])
    after = ids + action.ids + added
    if public.own_tests == "passed":
        episode.stop = "passed"
    elif is_last:
        episode.stop = "turns"
    elif len(after) + config.max_new > loaded.context:
        episode.stop = "context"
    episode.steps.append(Step(state, ids, action, reward, episode.stop is not None))
    if episode.stop is None:
        text = episode.prompt.text + loaded.tokenizer.decode(action.ids) + tail
        episode.prompt = Prompt(episode.prompt.problem_id, text, after)
        episode.messages = (*state, ("assistant", action.text), ("user", reply))


def feedback(public: Public, evaluator: str, *, named: bool) -> str:
    """Returns the user's next message. `evaluator`: name of the evaluation function; `named`: the prompt has spoken of it.

    Short, in words that the toy world's tokenizer knows too: its model reads 256 tokens.
    """
    if public.program == "none":
        said = "No python block was found."
    elif public.program == "broken":
        said = "The program does not compile."
    elif public.own_tests == "failed":
        said = f"{evaluator}() failed: {public.words}"
    elif public.own_tests == "unreached":
        said = f"The program fails before {evaluator}() is called."
    else:
        said = f"The program has no {evaluator}()." if named else "The program compiles."
    return f"{said}\nTry again.\n"


def between(loaded: LoadedModel, messages: Messages, reply: str, last: int | None) -> tuple[str, tuple[int, ...]]:
    """Returns what follows an answer up to where the next one begins: text and token ids. `last`: the answer's last token
    where it ended by itself; its end is then not said twice.

    BadInput when the chat template leaves earlier answers out.
    """
    mark = uuid4().hex  # that nobody has said
    chat = as_chat((*messages, ("assistant", mark), ("user", reply)))
    text = apply_template(loaded.tokenizer, chat, f"--model {loaded.model_id}")
    _, found, tail = text.partition(mark)
    if not found or reply.strip() not in tail:
        raise BadInput(
            f"--model {loaded.model_id}: its chat template does not show an earlier answer; use another model"
        )
    if last is not None:
        tail = tail.removeprefix(loaded.tokenizer.decode([last]))
    return tail, loaded.text_ids(tail)


# ---------------------------------------------------------------- the run


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
    """Samples traces of `n_problems` problems, `group_size` each, up to `turns` turns a trace, and writes them: one trace
    file, and one step file a turn."""
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
    manifest, parts = read_manifest(run), run / PARTS
    if manifest["finished"]:
        logger.info(f"{run}: finished; nothing is left to resume")
        return _summary(run)
    header = header_of(manifest)
    placed = list(zip(range(len(problems)), problems, prompts, strict=True))
    chunks = prompt_batches(placed, config.group_size, config.rollout_batch)
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
