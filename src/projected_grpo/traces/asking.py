"""Ask every teacher about every state: some calls at a time, within the budget, and nothing twice that has its
answer."""

import asyncio
import json
import os
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import openai
from loguru import logger

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput, Unfinished
from projected_grpo.ledger.files import content_hash, write_new
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.prompts import Messages, as_chat
from projected_grpo.traces.record import State
from projected_grpo.traces.settings import AskConfig
from projected_grpo.traces.teachers import KIND, NAME, STATES, Answer, Folder, Teacher, read_answers

DOWN_AFTER = 3
"""Calls to one teacher, in a row, that have no answer after all their attempts: its endpoint is down."""
NO_ENTRY = (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError)


def ask_all(
    states: Sequence[State], teachers: Sequence[Teacher], config: AskConfig, environment: Mapping[str, str]
) -> Folder:
    """Returns every teacher's answer to every state, written into the folder config.out: states, answers, manifest,
    log.

    environment: where the keys are. BadInput on input that cannot be used; Unfinished when the run stopped before it
    was whole (the budget, an endpoint that stays down): with --resume it goes on, and asks nothing that has its
    answer."""
    out, keys = config.out, {t.name: environment.get(t.key_env, "").strip() if t.key_env else "none" for t in teachers}
    for t in teachers:
        if not keys[t.name]:
            raise BadInput(
                f"teacher {t.name!r}: environment variable {t.key_env} is not set; set it or leave key_env out"
            )
    rows = "".join(json.dumps({**asdict(s), "messages": as_chat(s.messages)}) + "\n" for s in states)
    open_run(out, KIND, config, resume=config.resume, states_hash=content_hash(rows), teachers=teachers)
    if not (out / STATES).exists():
        write_new(out / STATES, rows.encode())
    before = read_answers(out)
    if before.missing:
        if before.usd > config.budget:
            raise BadInput(f"--budget {config.budget}: ${before.usd:.4f} are spent in {out} already; give more")
        update_manifest(out, budget=config.budget)
        logger.info(
            f"{len(before.missing)} of {len(states) * len(teachers)} answers to ask for; spent ${before.usd:.4f} of "
            f"${config.budget}, the rest costs ${sum(t.most_usd(s) for s, t in before.missing):.4f} at most"
        )
        asyncio.run(_ask(before, config, keys))
    update_manifest(out, finished=True)
    return read_answers(out)


async def _ask(before: Folder, config: AskConfig, keys: Mapping[str, str]) -> None:
    """Makes every call that has no answer, or stops for a reason; calls under way are then waited for.

    Unfinished (budget, an endpoint that is down, calls without an answer), BadInput (key or model refused).
    """
    path, spent, todo = config.out / NAME, before.usd, deque(before.missing)
    if path.exists():  # a kill may have torn the last line
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    under_way: dict[asyncio.Task[tuple[Answer, bool]], float] = {}  # the most that each call may cost
    failed: list[Answer] = []
    in_a_row: Counter[str] = Counter()  # failures of each teacher since its last answer
    why: Exception | None = None  # nothing more is sent: the first reason
    async with openai.AsyncOpenAI(api_key="none", timeout=config.timeout, max_retries=config.attempts - 1) as client:
        with path.open("a", encoding="utf-8") as out, progress(None, "answers", total=len(todo)) as bar:
            while under_way or (todo and not why):
                if todo and not why:
                    state, teacher = todo[0]
                    most = teacher.most_usd(state)
                    fits = spent + sum(under_way.values()) + most <= config.budget
                    if fits and len(under_way) < config.concurrency:
                        call = ask_one(client, teacher, state, keys[teacher.name])
                        under_way[asyncio.create_task(call)] = most
                        todo.popleft()
                        continue
                if not under_way:
                    why = Unfinished(
                        f"budget: ${spent:.4f} of ${config.budget} are spent and the next call may cost ${most:.4f}; raise "
                        "--budget and --resume"
                    )
                    break
                ended, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for call in ended:
                    most, (answer, refused) = under_way.pop(call), call.result()
                    spent += answer.usd
                    out.write(json.dumps(asdict(answer)) + "\n")
                    out.flush()
                    bar.update()
                    in_a_row[answer.teacher] = in_a_row[answer.teacher] + 1 if answer.error else 0
                    if answer.error:
                        failed.append(answer)
                        logger.warning(f"{answer.where}: no answer ({answer.error})")
                    if refused:
                        why = why or BadInput(f"{answer.where}: {answer.error}; mend its url, its key or its model")
                    elif in_a_row[answer.teacher] >= DOWN_AFTER:
                        why = why or Unfinished(
                            f"{answer.where}: {DOWN_AFTER} calls in a row had no answer, the last: {answer.error}; "
                            "--resume goes on"
                        )
                    elif answer.usd > most:
                        why = why or Unfinished(
                            f"{answer.where}: cost ${answer.usd}, above ${most}, the most by the price table; raise its "
                            "overhead_tokens or change its max_tokens_field, and use another --out"
                        )
    if why or failed:
        raise why or Unfinished(
            f"{len(failed)} calls had no answer, the first {failed[0].where}: {failed[0].error}; --resume asks them again"
        )


async def ask_one(client: openai.AsyncOpenAI, teacher: Teacher, state: State, key: str) -> tuple[Answer, bool]:
    """Returns what the endpoint says, or why there is nothing, and whether it refuses the key or the model. What may
    have been paid for costs its most."""
    start, refused = time.monotonic(), False
    answer = Answer(state.state_id, teacher.name, teacher.most_usd(state))
    asked: dict[str, Any] = {"messages": as_chat(state.messages), teacher.max_tokens_field: teacher.max_tokens}
    try:
        said = await client.with_options(api_key=key, base_url=teacher.url).chat.completions.create(
            model=teacher.model, temperature=teacher.temperature, **asked
        )
        choice, used = said.choices[0], said.usage
        text, answer.finish, answer.model = choice.message.content or "", str(choice.finish_reason), str(said.model)
        answer.error = fault_of(text, state.messages)
        answer.text = "" if answer.error else text
        if used and min(used.prompt_tokens, used.completion_tokens) > 0:
            answer.prompt_tokens, answer.completion_tokens = used.prompt_tokens, used.completion_tokens
            answer.usd = teacher.usd(used.prompt_tokens, used.completion_tokens)
    except (openai.OpenAIError, LookupError, AttributeError, TypeError, ValueError) as e:
        error = " ".join(f"{type(e).__name__}: {e}".split())
        if teacher.key_env:  # an endpoint may repeat it
            error = error.replace(key, "<key>")
        answer.error, refused = error[:300], isinstance(e, NO_ENTRY)
        refused_at_once = isinstance(e, openai.APIStatusError) and e.status_code < 500
        if refused_at_once or type(e.__cause__).__name__ == "ConnectError":
            answer.usd = 0.0
    answer.seconds = round(time.monotonic() - start, 3)
    return answer, refused


def fault_of(text: str, messages: Messages) -> str:
    """Why a text is no answer, or an empty string. A server that does not find where the answer begins gives the
    whole chat back, and a model hardly ever."""
    text.encode()  # half a surrogate pair is no text
    first, last = messages[0][1].strip(), messages[-1][1].strip()
    if text.lstrip().startswith(first) and last in text:
        return "it begins with the prompt (of `transformers serve`: give the tokenizer a response_template)"
    return "" if text.strip() else "an empty text"
