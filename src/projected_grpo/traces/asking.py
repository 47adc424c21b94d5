"""Ask every teacher about every state: side by side, patiently, within the budget, and what has its answer not again."""

import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

import openai
from loguru import logger

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput, Unfinished
from projected_grpo.ledger.files import content_hash, write_new
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.prompts import Messages, as_chat
from projected_grpo.traces.record import State
from projected_grpo.traces.settings import AskConfig
from projected_grpo.traces.teachers import KIND, NAME, STATES, Answer, Folder, Teacher, read_answers, read_keys

DOWN_AFTER = 3
"""Calls to one teacher, in a row, that have no answer after all their attempts: its endpoint is down."""
SHORTEST_CHAT = 40
"""Characters of a chat that no answer repeats by chance."""
NO_ENTRY = (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError)
Clients = Mapping[str, openai.AsyncOpenAI]


def ask_all(
    states: Sequence[State], teachers: Sequence[Teacher], config: AskConfig, environment: Mapping[str, str]
) -> Folder:
    """Returns every teacher's answer to every state, written into the folder config.out: states, answers, manifest, log.

    environment: where the keys are. BadInput on input that cannot be used; Unfinished when the run stopped before it was
    whole (the budget, an endpoint that stays down): with --resume it goes on, and asks nothing that has its answer.
    """
    keys, out = read_keys(teachers, environment), config.out
    rows = "".join(json.dumps({**asdict(s), "messages": as_chat(s.messages)}) + "\n" for s in states)
    open_run(out, KIND, config, resume=config.resume, states_hash=content_hash(rows), teachers=teachers)
    if not (out / STATES).exists():
        write_new(out / STATES, rows.encode())
    before = read_answers(out)
    if before.missing:
        if before.usd > config.budget:
            raise BadInput(
                f"--budget {config.budget}: ${before.usd:.4f} are spent in this folder already; give more than that"
            )
        update_manifest(out, budget=config.budget)
        logger.info(
            f"{len(before.missing)} of {len(states) * len(teachers)} answers to ask for; spent ${before.usd:.4f} of "
            f"${config.budget}, the rest costs ${sum(t.most_usd(s) for s, t in before.missing):.4f} at most"
        )
        asyncio.run(_ask(before, config, keys))
    update_manifest(out, finished=True)
    return read_answers(out)


async def _ask(before: Folder, config: AskConfig, keys: Mapping[str, str]) -> None:
    """Makes every call that has no answer, or stops for a reason.

    Unfinished (budget, an endpoint that is down, calls without an answer), BadInput (key or model refused).
    """
    path, todo = config.out / NAME, before.missing
    if path.exists():  # a kill may have torn the last line
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for t in before.teachers:
            client = openai.AsyncOpenAI(
                api_key=keys[t.name], base_url=t.url, timeout=config.timeout, max_retries=config.attempts - 1
            )
            clients[t.name] = await stack.enter_async_context(client)
        with path.open("a", encoding="utf-8") as out, progress(None, "answers", total=len(todo)) as bar:
            session, calls = _Session(before.usd, config.budget, clients, keys, out, bar), iter(todo)
            async with asyncio.TaskGroup() as group:
                for _ in range(config.concurrency):
                    group.create_task(session.work(calls))
    if session.why:
        raise session.why
    if session.failed:
        first = session.failed[0]
        raise Unfinished(
            f"{len(session.failed)} calls had no answer, the first {first.teacher!r} at state {first.state!r}: "
            f"{first.error}; --resume asks them again"
        )


class _Session:
    """What calls that are made side by side share."""

    def __init__(
        self, spent: float, budget: float, clients: Clients, keys: Mapping[str, str], out: TextIO, bar: Any
    ) -> None:
        self.spent, self.budget, self.clients, self.keys, self.out, self.bar = spent, budget, clients, keys, out, bar
        self.under_way: list[float] = []
        """The most that each call under way may cost."""
        self.room = asyncio.Condition()
        self.failed: list[Answer] = []
        self.in_a_row: Counter[str] = Counter()
        """Failures of each teacher since its last answer."""
        self.why: Exception | None = None
        """Why nothing more is sent: the first reason. Calls under way are waited for."""

    async def work(self, calls: Iterator[tuple[State, Teacher]]) -> None:
        """Makes one call after the other, each held against the budget before it is sent, and writes its line."""
        for state, teacher in calls:
            most = teacher.most_usd(state)
            if not await self.has_room(most):
                return
            answer = await self.answer(state, teacher)
            self.spent += answer.usd
            self.out.write(json.dumps(asdict(answer)) + "\n")
            self.out.flush()
            self.bar.update()
            self.check(answer, most)
            async with self.room:
                self.under_way.remove(most)
                self.room.notify_all()

    async def has_room(self, most: float) -> bool:
        """Waits while calls under way may turn out cheaper than their most; returns False when nothing more is sent."""

        def fits() -> bool:
            return self.spent + sum(self.under_way) + most <= self.budget

        async with self.room:
            await self.room.wait_for(lambda: self.why or not self.under_way or fits())
            if not fits():
                self.stop(
                    f"budget: ${self.spent:.4f} of ${self.budget} are spent and the next call may cost ${most:.4f}; raise "
                    "--budget and --resume"
                )
            if self.why:
                return False
            self.under_way.append(most)
            return True

    def stop(self, why: str, kind: type[Exception] = Unfinished) -> None:
        """Sends nothing more."""
        self.why = self.why or kind(why)

    def check(self, answer: Answer, most: float) -> None:
        """Counts failures, and stops where going on is of no use."""
        who = f"teacher {answer.teacher!r}"
        if not answer.error:
            self.in_a_row[answer.teacher] = 0
            if answer.usd > most:
                self.stop(
                    f"{who} at state {answer.state!r}: cost ${answer.usd}, above ${most}, the most by the price table; "
                    "raise its overhead_tokens or change its max_tokens_field, and use another --out"
                )
            return
        self.failed.append(answer)
        self.in_a_row[answer.teacher] += 1
        logger.warning(f"{who} at state {answer.state!r}: no answer ({answer.error})")
        if self.in_a_row[answer.teacher] >= DOWN_AFTER:
            self.stop(f"{who}: {DOWN_AFTER} calls in a row had no answer, the last: {answer.error}; --resume goes on")

    async def answer(self, state: State, teacher: Teacher) -> Answer:
        """Returns what the endpoint says, or why there is nothing. What may have been paid for costs its most."""
        start, text, finish, model, error = time.monotonic(), "", "", "", ""
        tokens, usd = (None, None), teacher.most_usd(state)
        asked: dict[str, Any] = {"messages": as_chat(state.messages), teacher.max_tokens_field: teacher.max_tokens}
        try:
            said = await self.clients[teacher.name].chat.completions.create(
                model=teacher.model, temperature=teacher.temperature, **asked
            )
            choice = said.choices[0]
            text, finish, model = choice.message.content or "", str(choice.finish_reason), str(said.model)
            error = _fault_of(text, state.messages)
            if said.usage and min(said.usage.prompt_tokens, said.usage.completion_tokens) > 0:
                tokens = (said.usage.prompt_tokens, said.usage.completion_tokens)
                usd = teacher.usd(*tokens)
        except (openai.OpenAIError, LookupError, AttributeError, TypeError, ValueError) as e:
            error = " ".join(f"{type(e).__name__}: {e}".split())
            for key in self.keys.values():  # which an endpoint may have repeated
                error = error.replace(key, "<key>") if len(key) > len("none") else error
            error = error[:300]
            refused = isinstance(e, openai.APIStatusError) and e.status_code < 500
            if refused or type(e.__cause__).__name__ == "ConnectError":
                usd = 0.0
            if isinstance(e, NO_ENTRY):
                self.stop(f"teacher {teacher.name!r} at {teacher.url}: {error}; mend its key or its model", BadInput)
        return Answer(
            state.state_id, teacher.name, "" if error else text, finish, model, *tokens, usd,
            round(time.monotonic() - start, 3), error,
        )  # fmt: skip


def _fault_of(text: str, messages: Messages) -> str:
    """Why a text is no answer, or an empty string. A server that does not find where the answer begins gives the whole chat
    back, and a model hardly ever."""
    text.encode()  # half a surrogate pair is no text
    first, last = messages[0][1].strip(), messages[-1][1].strip()
    if len(first) + len(last) >= SHORTEST_CHAT and text.lstrip().startswith(first) and last in text:
        return "it begins with the prompt (of `transformers serve`: give the tokenizer a response_template)"
    return "" if text.strip() else "an empty text"
