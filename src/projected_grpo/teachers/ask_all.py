"""From states and a price table to a folder of answers; a folder that was cut is gone on with."""

import asyncio
import gzip
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from loguru import logger

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import check_new, open_run, read_manifest, update_manifest
from projected_grpo.teachers.asking import Asking, Interrupted, Patience
from projected_grpo.teachers.history import (
    KIND,
    STATES,
    Folder,
    history_of,
    journal_sha256,
    read_answers,
)
from projected_grpo.teachers.journal import NAME, Journal
from projected_grpo.teachers.price_table import Teacher, read_keys, secrets_of
from projected_grpo.teachers.states import State, as_rows, states_hash


def check_patience(patience: Patience, budget: float) -> None:
    """BadInput on values that no run could use."""
    if not (math.isfinite(budget) and budget >= 0):
        raise BadInput(f"--budget {budget}: must be a number of dollars, 0 or more")
    for name, least in (("concurrency", 1), ("attempts", 1), ("backoff", 0)):
        if not getattr(patience, name) >= least or not math.isfinite(getattr(patience, name)):
            raise BadInput(f"--{name} {getattr(patience, name)}: must be {least} or more")
    if not 0 < patience.timeout < math.inf:
        raise BadInput(f"--timeout {patience.timeout}: must be above 0")


def _check_no_key(states: Sequence[State], teachers: Sequence[Teacher], secrets: Sequence[str]) -> None:
    """BadInput where a key stands in what is written down, and sent to other endpoints."""
    for teacher in teachers:
        if any(secret in str(teacher.told()) for secret in secrets):
            raise BadInput(
                f"teacher {teacher.name!r}: a key of an endpoint stands in the file of teachers; take it out"
            )
    for state in states:
        if any(secret in text for secret in secrets for text in (state.state_id, state.trace_id)):
            raise BadInput(
                "--states: a key of an endpoint stands in a state_id or trace_id (not repeated here); take it out"
            )
        if any(secret in text for secret in secrets for pair in state.messages for text in pair):
            raise BadInput(f"state {state.state_id!r}: a key of an endpoint stands in its messages; take it out")


def ask_all(
    states: Sequence[State],
    teachers: Sequence[Teacher],
    out: Path,
    budget: float,
    patience: Patience,
    environment: Mapping[str, str],
    config: Any = None,
    *,
    resume: bool = False,
) -> Folder:
    """Every teacher's answer to every state, in the folder `out`: states, answers, manifest, log.

    budget: $, of all sessions together. environment: where the keys are. config: what the manifest says was asked for.
    BadInput on input that cannot be used; Unfinished when the run stopped before it was whole (the budget, an endpoint that
    stays down): the same with `resume` goes on, and asks nothing that has its answer; KeyboardInterrupt after Ctrl-C.
    """
    check_patience(patience, budget)
    keys = read_keys(teachers, environment)
    _check_no_key(states, teachers, secrets_of(keys))
    facts = {"states_hash": states_hash(states), "teachers": [t.told() for t in teachers]}
    check_new(out, resume=resume)
    open_run(out, KIND, config or {}, resume=resume, **facts)
    if not (out / STATES).exists():
        write_atomic(out / STATES, gzip.compress(as_rows(states), mtime=0))
    if read_manifest(out)["finished"]:
        return _still_whole(out)
    with Journal(out / NAME) as journal:
        _go_on(states, teachers, journal, Decimal(str(budget)), patience, keys)
    update_manifest(out, finished=True, journal_sha256=journal_sha256(out))
    return read_answers(out)


def _still_whole(out: Path) -> Folder:
    found = read_answers(out)
    if found.whole:
        raise BadInput(f"--resume {out}: finished, but {found.whole}; ask anew into another folder")
    logger.info("finished; nothing is left to resume")
    return found


def _go_on(
    states: Sequence[State],
    teachers: Sequence[Teacher],
    journal: Journal,
    budget: Decimal,
    patience: Patience,
    keys: Mapping[str, str],
) -> None:
    """Ask what has no answer yet. As `ask_all`."""
    before = history_of(journal.events, journal.path)
    if journal.torn:
        logger.warning(f"{journal.path}: its last event was torn by a kill ({journal.torn} bytes) and is left out")
    if before.usd > budget:
        raise BadInput(f"--budget {budget}: ${before.usd:.4f} are spent in this folder already; give more than that")
    todo = [(s, t) for s in states for t in teachers if (s.state_id, t.name) not in before.answers]
    most = sum((t.most_usd(s) for s, t in todo), Decimal(0))
    logger.info(
        f"{len(todo)} of {len(states) * len(teachers)} answers to ask for, {len(teachers)} teachers; spent "
        f"${before.usd:.4f} of ${budget}, the rest costs ${most:.4f} at most"
    )
    if not todo:
        return
    try:
        asyncio.run(_session(todo, journal, before, budget, patience, keys))
    except Interrupted:
        raise KeyboardInterrupt from None


async def _session(*of: Any) -> None:
    await Asking(*of).run()
