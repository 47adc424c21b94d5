"""Ask every teacher about every state: side by side, patiently, within the budget, and each only once."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import openai
from loguru import logger
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput, Unfinished
from projected_grpo.prompts import as_chat
from projected_grpo.teachers.budget import Budget, OverBudget
from projected_grpo.teachers.history import Call, History
from projected_grpo.teachers.journal import Answered, Journal, Lost, Sent, Session
from projected_grpo.teachers.price_table import Teacher, secrets_of
from projected_grpo.teachers.reply import Fault, Reply, fault_of, reply_of
from projected_grpo.teachers.states import State

DOWN_AFTER = 3
"""Calls to one teacher, in a row, that have no answer after all their attempts: its endpoint is down."""
LONGEST_BACKOFF = 60.0


@dataclass(frozen=True)
class Patience:
    """How teachers are asked; it changes no answer."""

    concurrency: int = 8
    """Attempts under way at once, all teachers together."""
    timeout: float = 60.0
    """Seconds that one attempt may take, from its first byte to its last."""
    attempts: int = 6
    """Attempts at one call before it is set aside."""
    backoff: float = 0.5
    """Seconds before the second attempt; doubles, with jitter, up to 60. A Retry-After is obeyed where it is longer."""


def _none_of_the_environment(key: str) -> dict[str, Any]:
    """Headers that the client would fill from variables of one provider and send to every other one: left out, and a key
    among them is this teacher's own."""
    custom = [line.partition(":")[0].strip() for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()]
    names = ("OpenAI-Organization", "OpenAI-Project", *(name for name in custom if name))
    return {**dict.fromkeys(names, openai.Omit()), "Authorization": f"Bearer {key}"}


class Interrupted(Exception):  # noqa: N818 - the user's wish
    """A signal asked the run to stop, and it did."""


class _Stopped(Exception):  # noqa: N818 - no attempt is made after a stop
    """The run is stopping: what is under way is waited for, nothing else is sent."""


class Asking:
    """One session. `clients` holds one open client a teacher."""

    def __init__(
        self,
        todo: Sequence[tuple[State, Teacher]],
        journal: Journal,
        before: History,
        budget: Decimal,
        patience: Patience,
        keys: Mapping[str, str],
    ) -> None:
        self.todo = deque(todo)
        self.of = len(todo)
        self.journal = journal
        self.budget = Budget(budget, before.usd)
        self.patience = patience
        self.keys = keys
        self.secrets = secrets_of(keys)
        self.aside: dict[Call, Fault] = {}
        self.answered = 0
        self._attempt = len(before.calls)
        self._under_way = 0
        self._in_a_row: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        self._why: Exception | None = None
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._start = time.monotonic()

    async def run(self) -> None:
        """Until every call has its answer, or a reason to stop: then what is under way is waited for and written down.

        Unfinished (budget, an endpoint that is down, calls that were set aside), BadInput (key or model refused, disk full).
        """
        self.journal.write(Session(self.budget.cap, datetime.now(UTC).isoformat(timespec="seconds")))
        async with contextlib.AsyncExitStack() as stack:
            for _, teacher in self.todo:
                if teacher.name not in self._clients:
                    self._clients[teacher.name] = await stack.enter_async_context(self._client(teacher))
            with self._told_to_stop(), progress(None, "answers", total=self.of) as bar:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self.patience.concurrency, self.of)):
                        group.create_task(self._work(bar))
        if self._why:
            raise self._why
        if self.aside:
            (state, name), fault = next(iter(self.aside.items()))
            raise Unfinished(
                f"{len(self.aside)} calls had no answer, the first {name!r} at state {state!r}: {fault.why}; --resume asks "
                "them again"
            )

    def stop(self, why: Exception) -> None:
        """Send nothing more; the first reason is the one that is told."""
        self._why = self._why or why
        self._stopping.set()

    def _client(self, teacher: Teacher) -> openai.AsyncOpenAI:
        # Retries are ours: each attempt is held against the budget and written down by itself.
        return openai.AsyncOpenAI(
            api_key=self.keys[teacher.name], base_url=teacher.url, timeout=self.patience.timeout, max_retries=0,
            default_headers=_none_of_the_environment(self.keys[teacher.name]),
        )  # fmt: skip

    @contextlib.contextmanager
    def _told_to_stop(self) -> Any:
        """Ctrl-C or SIGTERM stops the run; a second one leaves the answers that are under way."""
        loop = asyncio.get_running_loop()

        def told(number: int) -> None:
            loop.remove_signal_handler(number)
            logger.warning(f"stopping: {self._under_way} attempts under way are waited for; once more to leave them")
            self.stop(Interrupted())

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _work(self, bar: Any) -> None:
        while self.todo and not self._stopping.is_set():
            state, teacher = self.todo.popleft()
            try:
                await self._until_answered(state, teacher)
            except _Stopped:
                return
            except Fault as fault:
                self._set_aside(state, teacher, fault)
            except OverBudget as e:
                self.stop(Unfinished(f"budget: {e}; raise --budget and --resume"))
            except (BadInput, Unfinished) as e:
                self.stop(e)
            else:
                self._in_a_row[teacher.name] = 0
                self.answered += 1
                bar.update()

    def _set_aside(self, state: State, teacher: Teacher, fault: Fault) -> None:
        self.aside[state.state_id, teacher.name] = fault
        self._in_a_row[teacher.name] += 1
        logger.warning(f"teacher {teacher.name!r} at state {state.state_id!r}: no answer ({fault.why})")
        if fault.fatal:
            self.stop(BadInput(f"teacher {teacher.name!r} at {teacher.url}: {fault.why}; mend its key or its model"))
        elif self._in_a_row[teacher.name] >= DOWN_AFTER:
            self.stop(
                Unfinished(
                    f"teacher {teacher.name!r} at {teacher.url}: {DOWN_AFTER} calls in a row had no answer, the last: "
                    f"{fault.why}; --resume goes on"
                )
            )

    async def _until_answered(self, state: State, teacher: Teacher) -> None:
        """Attempt after attempt. Fault of the last one when none brought an answer; OverBudget; _Stopped."""
        backoff = wait_exponential_jitter(self.patience.backoff, LONGEST_BACKOFF, jitter=self.patience.backoff)

        def wait(tried: RetryCallState) -> float:
            fault = tried.outcome.exception() if tried.outcome else None
            asked = fault.wait if isinstance(fault, Fault) else None
            return max(backoff(tried), asked or 0.0)

        async for attempt in AsyncRetrying(
            retry=retry_if_exception(lambda e: isinstance(e, Fault) and e.again),
            stop=stop_after_attempt(self.patience.attempts),
            wait=wait,
            sleep=self._pause,
            reraise=True,
        ):
            with attempt:
                await self._try(state, teacher)

    async def _pause(self, seconds: float) -> None:
        """Sleep, and wake up when the run stops."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _try(self, state: State, teacher: Teacher) -> None:
        """One attempt, held against the budget. Fault, OverBudget, _Stopped; Unfinished when it cost more than was held."""
        most = teacher.most_usd(state)
        await self.budget.hold(most)
        usd = Decimal(0)
        try:
            if self._stopping.is_set():
                raise _Stopped
            sent = Sent(self._attempt, state.state_id, teacher.name, most, self._at())
            self.journal.write(sent)
            self._attempt += 1
            usd = most  # until it is known
            usd = await self._send(sent, state, teacher)
        except Fault as fault:
            usd = most if fault.paid else Decimal(0)
            raise
        finally:
            await self.budget.settle(most, usd)
        if usd > most:
            raise Unfinished(
                f"teacher {teacher.name!r} at state {state.state_id!r}: cost ${usd} where ${most} is the most that the "
                "budget reckons with; raise overhead_tokens, or max_tokens_field may be the other one, and start anew"
            )

    async def _send(self, sent: Sent, state: State, teacher: Teacher) -> Decimal:
        """Send what was written down as sent, and write down what came of it. Returns its cost in $. Fault."""
        self._under_way += 1
        try:
            reply = await self._answer(state, teacher)
        except Fault as fault:
            self.journal.write(Lost(sent.attempt, sent.usd if fault.paid else Decimal(0), fault.why, self._at()))
            raise
        finally:
            self._under_way -= 1
        prompt, completion = reply.usage or (None, None)
        usd = teacher.usd(*reply.usage) if reply.usage else sent.usd
        self.journal.write(
            Answered(sent.attempt, usd, reply.text, reply.finish, reply.model, prompt, completion, self._at())
        )
        return usd

    async def _answer(self, state: State, teacher: Teacher) -> Reply:
        """What the endpoint says to one request. Fault."""
        messages: Any = as_chat(state.messages)
        asked: dict[str, Any] = {
            "model": teacher.model,
            "messages": messages,
            "temperature": float(teacher.temperature),
            teacher.max_tokens_field: teacher.max_tokens,
        }
        try:
            async with asyncio.timeout(self.patience.timeout):  # the client's own is of the pause between two bytes
                raw = await self._clients[teacher.name].chat.completions.with_raw_response.create(**asked)
        except (openai.OpenAIError, TimeoutError) as e:
            raise fault_of(e, self.patience.timeout, self.secrets) from None
        return reply_of(raw.http_response.content, self.secrets, state.messages)

    def _at(self) -> float:
        return round(time.monotonic() - self._start, 3)
