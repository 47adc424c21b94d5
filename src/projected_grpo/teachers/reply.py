"""What an endpoint sends, read strictly: an answer, or the fault that an attempt ended with."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from projected_grpo.prompts import Messages

LONGEST_WAIT = 120.0
"""Seconds that a Retry-After is obeyed for; an endpoint that asks for more is taken as down."""
HOLD_ON = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may succeed."""
BETWEEN, SHORTEST_CHAT = 40, 40
"""Characters: most that a chat template puts between two messages, and of a chat that no answer repeats by chance."""
NO_ENTRY = frozenset({401, 403, 404})
"""Key or model are wrong: no other call will fare better."""
UNSENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
"""What httpx calls the failures before a byte of the request was sent."""


@dataclass(frozen=True)
class Reply:
    """An answer."""

    text: str
    finish: str
    """Why it ended: `stop`, or `length` where max_tokens cut it."""
    model: str
    """Under which name it came."""
    usage: tuple[int, int] | None
    """Tokens of prompt and completion; None where the endpoint does not say, or says what cannot be."""


class Fault(Exception):  # noqa: N818 - a fault of the endpoint's
    """An attempt that brought no answer."""

    def __init__(
        self, why: str, *, paid: bool, again: bool = True, fatal: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(why)
        self.why = why
        self.paid = paid
        """Whether it may have been paid for."""
        self.again = again
        """Whether the same request may succeed later."""
        self.fatal = fatal
        """Whether every other call to this teacher would fail too."""
        self.wait = wait
        """Seconds that the endpoint asks to wait."""


def without(text: str, secrets: Sequence[str]) -> str:
    """The text with every secret gone out of it."""
    for secret in secrets:
        text = text.replace(secret, "<key>")
    return text


def _usage(found: Any) -> tuple[int, int] | None:
    counts = [found.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(found, dict) else []
    return (counts[0], counts[1]) if counts and all(type(n) is int and n > 0 for n in counts) else None


def gives_back(text: str, messages: Messages) -> bool:
    """Whether a text has the whole chat before its answer: every message, in order, from (nearly) its first character on. A
    server does that which does not find where the answer begins, and a model hardly ever."""
    place = 0
    for said in (content.strip() for _, content in messages):
        found = text.find(said, place)
        if not 0 <= found <= place + BETWEEN:
            return False
        place = found + len(said)
    return place >= SHORTEST_CHAT


def reply_of(body: bytes, secrets: Sequence[str], messages: Messages = ()) -> Reply:
    """The answer to these messages in the body of a chat completion. Fault, paid for, where there is none: no JSON, no
    choice, no text, half a surrogate pair, a text that holds a key, or one that gives the messages back."""
    try:
        told = json.loads(body)
        choice = told["choices"][0]
        text = choice["message"]["content"]
        reply = Reply(text, str(choice.get("finish_reason")), str(told.get("model")), _usage(told.get("usage")))
        whole = "".join((text, reply.finish, reply.model))
        whole.encode()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as e:
        raise Fault(f"no chat completion in the body ({type(e).__name__})", paid=True) from None
    if not text.strip():
        raise Fault(f"an empty text (finish_reason {reply.finish})", paid=True)
    if any(secret in whole for secret in secrets):
        raise Fault("the answer holds the key of an endpoint, and is not kept", paid=True)
    if gives_back(text, messages):
        raise Fault(
            "it begins with the prompt: the server does not find where the answer begins (of `transformers serve`: give the "
            "tokenizer a response_template)", paid=True, again=False,
        )  # fmt: skip
    return reply


def seconds_to_wait(retry_after: str | None) -> float | None:
    """A Retry-After header, seconds or a date (RFC 9110, 10.2.3), in seconds from now; None where there is none."""
    if not retry_after:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            when = parsedate_to_datetime(retry_after)
            seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):  # no date, or one that no calendar has
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def fault_of(error: Exception, timeout: float, secrets: Sequence[str]) -> Fault:
    """The fault that an error of the client's means. What the endpoint says in it is shortened, its keys out first."""
    unsent = type(error.__cause__).__name__ in UNSENT
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, secrets)
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return Fault(f"no answer within {timeout:g} s", paid=not unsent)
    if isinstance(error, openai.APIConnectionError):
        what = type(error.__cause__).__name__
        return Fault(f"cannot connect ({what})" if unsent else f"connection lost ({what})", paid=not unsent)
    said = without(" ".join(str(error).split()), secrets)[:200]
    return Fault(f"{type(error).__name__}: {said}", paid=True, again=False)


def _of_status(error: openai.APIStatusError, secrets: Sequence[str]) -> Fault:
    status = error.status_code
    said = without(" ".join(error.message.split()), secrets)[:200]
    wait = seconds_to_wait(error.response.headers.get("retry-after"))
    why = f"HTTP {status}: {said}"
    if wait is not None and wait > LONGEST_WAIT:
        return Fault(f"{why} (asks to wait {wait:.0f} s)", paid=status >= 500, again=False)
    paid, again = status >= 500 or status == 408, status >= 500 or status in HOLD_ON
    return Fault(why, paid=paid, again=again, fatal=status in NO_ENTRY, wait=wait)
