"""Ask every teacher about every state: side by side, patiently, within the budget, and what has its answer not again."""

import asyncio
import contextlib
import gzip
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import openai
from loguru import logger

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput, Unfinished
from projected_grpo.ledger.files import content_hash, write_atomic
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.prompts import Messages, as_chat
from projected_grpo.traces.answers import KIND, NAME, STATES, Answer, Folder, read_answers
from projected_grpo.traces.price_table import Teacher, read_keys
from projected_grpo.traces.settings import AskConfig
from projected_grpo.traces.states import State, as_rows

DOWN_AFTER = 3
"""Calls to one teacher, in a row, that have no answer after all their attempts: its endpoint is down."""
SHORTEST_CHAT = 40
"""Characters of a chat that no answer repeats by chance."""
NO_ENTRY = (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError)


def ask_all(
    states: Sequence[State], teachers: Sequence[Teacher], config: AskConfig, environment: Mapping[str, str]
) -> Folder:
    """Returns every teacher's answer to every state, written into the folder config.out: states, answers, manifest, log.

    environment: where the keys are. BadInput on input that cannot be used; Unfinished when the run stopped before it was
    whole (the budget, an endpoint that stays down): with --resume it goes on, and asks nothing that has its answer.
    """
    keys, out, budget = read_keys(teachers, environment), config.out, config.budget
    open_run(
        out, KIND, config, resume=config.resume, states_hash=content_hash(as_rows(states).decode()),
        teachers=[asdict(t) for t in teachers],
    )  # fmt: skip
    if not (out / STATES).exists():
        write_atomic(out / STATES, gzip.compress(as_rows(states), mtime=0))
    before = read_answers(out)
    if not before.missing:
        logger.info("finished; nothing is left to resume")
        update_manifest(out, finished=True)
        return before
    if before.usd > budget:
        raise BadInput(f"--budget {budget}: ${before.usd:.4f} are spent in this folder already; give more than that")
    update_manifest(out, budget=budget)
    most = sum(t.most_usd(s) for s, t in before.missing)
    logger.info(
        f"{len(before.missing)} of {len(states) * len(teachers)} answers to ask for, {len(teachers)} teachers; spent "
        f"${before.usd:.4f} of ${budget}, the rest costs ${most:.4f} at most"
    )
    asyncio.run(_Session(config, before, keys).run())
    update_manifest(out, finished=True)
    return read_answers(out)


class _Session:
    """One process that asks."""

    def __init__(self, config: AskConfig, before: Folder, keys: Mapping[str, str]) -> None:
        self.config, self.path, self.keys = config, config.out / NAME, keys
        self.todo, self.spent = before.missing, before.usd
        self.under_way: list[float] = []
        """The most that each call under way may cost."""
        self.failed: list[Answer] = []
        self.in_a_row: Counter[str] = Counter()
        """Failures of each teacher since its last answer."""
        self.why: Exception | None = None
        """Why nothing more is sent: the first reason."""

    async def run(self) -> None:
        """Makes every call, or stops for a reason; then what is under way is waited for.

        Unfinished (budget, an endpoint that is down, calls without an answer), BadInput (key or model refused, disk full).
        """
        self.room, self.turn = asyncio.Condition(), asyncio.Semaphore(self.config.concurrency)
        if self.path.exists():  # a kill may have torn the last line
            os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
        async with contextlib.AsyncExitStack() as stack:
            clients = {}
            for teacher in {t.name: t for _, t in self.todo}.values():
                client = openai.AsyncOpenAI(
                    api_key=self.keys[teacher.name], base_url=teacher.url, timeout=self.config.timeout,
                    max_retries=self.config.attempts - 1,
                )  # fmt: skip
                clients[teacher.name] = await stack.enter_async_context(client)
            with self.path.open("a", encoding="utf-8") as out, progress(None, "answers", total=len(self.todo)) as bar:
                async with asyncio.TaskGroup() as group:
                    for state, teacher in self.todo:
                        group.create_task(self._call(state, teacher, clients[teacher.name], out, bar))
        if self.why:
            raise self.why
        if self.failed:
            first = self.failed[0]
            raise Unfinished(
                f"{len(self.failed)} calls had no answer, the first {first.teacher!r} at state {first.state!r}: "
                f"{first.error}; --resume asks them again"
            )

    async def _call(self, state: State, teacher: Teacher, client: openai.AsyncOpenAI, out: Any, bar: Any) -> None:
        """Makes one call, held against the budget before it is sent, and writes its line."""
        most = teacher.most_usd(state)
        async with self.turn:
            if not await self._has_room(most):
                return
            try:
                answer = await self._answer(state, teacher, client)
                self.spent += answer.usd
                out.write(json.dumps(asdict(answer)) + "\n")
                out.flush()
                bar.update()
                self._check(answer, most)
            except OSError as e:
                self.stop(BadInput(f"cannot write {self.path}: {e.strerror or e}; free some space and --resume"))
            finally:
                async with self.room:
                    self.under_way.remove(most)
                    self.room.notify_all()

    async def _has_room(self, most: float) -> bool:
        """Waits while calls under way may turn out cheaper than their most; returns False when nothing more is sent."""

        def fits() -> bool:
            return self.spent + sum(self.under_way) + most <= self.config.budget

        async with self.room:
            await self.room.wait_for(lambda: self.why or not self.under_way or fits())
            if not fits():
                self.stop(
                    Unfinished(
                        f"budget: ${self.spent:.4f} of ${self.config.budget} are spent and the next call may cost "
                        f"${most:.4f}; raise --budget and --resume"
                    )
                )
            if not self.why:
                self.under_way.append(most)
            return not self.why

    def stop(self, why: Exception) -> None:
        """Sends nothing more."""
        self.why = self.why or why

    def _check(self, answer: Answer, most: float) -> None:
        """Counts failures, and stops where going on is of no use."""
        who = f"teacher {answer.teacher!r}"
        if not answer.error:
            self.in_a_row[answer.teacher] = 0
            if answer.usd > most:
                self.stop(
                    Unfinished(
                        f"{who} at state {answer.state!r}: cost ${answer.usd}, above ${most}, the most by the price table; "
                        "raise its overhead_tokens or change its max_tokens_field, and use another --out"
                    )
                )
            return
        self.failed.append(answer)
        self.in_a_row[answer.teacher] += 1
        logger.warning(f"{who} at state {answer.state!r}: no answer ({answer.error})")
        if self.in_a_row[answer.teacher] >= DOWN_AFTER:
            self.stop(
                Unfinished(
                    f"{who}: {DOWN_AFTER} calls in a row had no answer, the last: {answer.error}; --resume goes on"
                )
            )

    async def _answer(self, state: State, teacher: Teacher, client: openai.AsyncOpenAI) -> Answer:
        """Returns what the endpoint says, or why there is nothing. What may have been paid for costs its most."""
        most, start, text, finish, model = teacher.most_usd(state), time.monotonic(), "", "", ""
        tokens, usd, error = (None, None), most, ""
        asked: dict[str, Any] = {"messages": as_chat(state.messages), teacher.max_tokens_field: teacher.max_tokens}
        try:
            said = await client.chat.completions.create(model=teacher.model, temperature=teacher.temperature, **asked)
            choice = said.choices[0]
            text, finish, model = choice.message.content or "", str(choice.finish_reason), str(said.model)
            error = _fault_of(text, state.messages)
            if said.usage and min(said.usage.prompt_tokens, said.usage.completion_tokens) > 0:
                tokens = (said.usage.prompt_tokens, said.usage.completion_tokens)
                usd = teacher.usd(*tokens)
        except NO_ENTRY as e:
            usd, error = 0.0, self._line(e)
            self.stop(BadInput(f"teacher {teacher.name!r} at {teacher.url}: {error}; mend its key or its model"))
        except (openai.OpenAIError, LookupError, AttributeError, TypeError, ValueError) as e:
            unpaid = isinstance(e, openai.APIStatusError) and e.status_code < 500
            usd = 0.0 if unpaid or type(e.__cause__).__name__ == "ConnectError" else most
            error = self._line(e)
        return Answer(
            state.state_id, teacher.name, "" if error else text, finish, model, *tokens, usd,
            round(time.monotonic() - start, 3), error,
        )  # fmt: skip

    def _line(self, error: Exception) -> str:
        """An error in one short line, in which an endpoint may have repeated a key."""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        for key in self.keys.values():
            text = text.replace(key, "<key>") if len(key) > len("none") else text
        return text[:300]


def _fault_of(text: str, messages: Messages) -> str:
    """Why a text is no answer, or an empty string. A server that does not find where the answer begins gives the whole chat
    back, and a model hardly ever."""
    text.encode()  # half a surrogate pair is no text
    first, last = messages[0][1].strip(), messages[-1][1].strip()
    if len(first) + len(last) >= SHORTEST_CHAT and text.lstrip().startswith(first) and last in text:
        return (
            "it begins with the prompt: the server does not find where the answer begins (of `transformers serve`: give the "
            "tokenizer a response_template)"
        )
    return "" if text.strip() else "an empty text"
