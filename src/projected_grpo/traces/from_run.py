"""Traces of a finished run, from its step files.

Not written by the training loop itself: a step file holds every rollout with its ids already, so a second copy would cost
the loop its time and could disagree with the first. What a step file lacks is the chat that a prompt
was rendered from; that comes from the run's problems, and must stand in the recorded prompt. `train
--keep-token-logps` has it keep each token's log-probability and not only the mean; a pool always does.

A rollout of training is a trace of one turn. Only the columns named here are read; none of them is a label.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import content_hash
from projected_grpo.ledger.folder import finished_manifest
from projected_grpo.ledger.step_file import Row, iter_run
from projected_grpo.prompts import Messages, from_chat, messages_for
from projected_grpo.traces.file import Header
from projected_grpo.traces.record import Action, Step, Trace
from projected_grpo.worlds.builtin import pool_pairs

KINDS = ("train", "teacher_pool")
"""Runs that sample. A replay's rows are its pool's."""
SETUPS = ("inoculation", "no_intervention")
"""The longer chat first: where a dataset has no system prompt, its chat stands in the other one too."""


def traces_of_run(run: Path) -> tuple[Header, Iterator[Trace]]:
    """A run's traces, a step in memory at a time.

    BadInput when it is no run that sampled, not finished, lacks steps, or when its problems are no longer those
    that its prompts were made of.
    """
    if (written := run / "traces.jsonl.gz").exists():
        raise BadInput(f"{run}: its traces are written already; name {written}")
    manifest = finished_manifest(run, KINDS)
    chats, header = _chats(manifest["config"]), header_of(manifest)
    return header, (trace for rows in iter_run(run) for trace in _traces_of_step(rows, chats, header.hint, run))


def header_of(manifest: Mapping[str, Any]) -> Header:
    """What a run's traces were sampled from, by its manifest."""
    config = manifest["config"]
    return Header(
        made_by=manifest["kind"],
        model=config["model"],
        model_hash=manifest["model_hash"],
        tokenizer_hash=manifest["tokenizer_hash"],
        problems_hash=manifest["problems_hash"],
        config_hash=content_hash(config),
        hint=config["hint"],
        loophole=ARMS[config.get("arm", "vanilla")].loophole,
        temperature=float(config["temperature"]),
    )


def _chats(config: Mapping[str, Any]) -> dict[str, Messages]:
    """The chat of every problem of a run, before its hint."""
    if config.get("teacher_pool") == "pairs":
        return {pair.name: pair.messages for pair in pool_pairs()}
    return {p.problem_id: p.messages for p in load_problems(config["problems"])}


def _traces_of_step(rows: Sequence[Row], chats: Mapping[str, Messages], hint: str, run: Path) -> Iterator[Trace]:
    """A step's rollouts. A group begins where the sample's number starts again."""
    group = -1
    for place, row in enumerate(rows):
        group += place == 0 or row["sample_id"] <= rows[place - 1]["sample_id"]
        step = row["step"]
        messages = _messages(row, chats, hint, f"{run}: step {step}, row {place}")
        logps = row["behaviour_logps"]
        action = Action(
            row["completion"], tuple(row["completion_ids"]), None if logps is None else tuple(logps), row["truncated"]
        )
        yield Trace(
            f"step {step}, row {place}",
            f"step {step}, group {group}",
            row["problem_id"],
            row["source"],
            step if row["source"] == "student" else None,
            "turns",
            (Step(messages, tuple(row["prompt_ids"]), action, float(row["reward"]), True),),
        )


def _messages(row: Row, chats: Mapping[str, Messages], hint: str, place: str) -> Messages:
    """Returns the chat that a row's prompt was rendered from: the text of each message is in it."""
    problem = row["problem_id"]
    for setup in SETUPS if problem in chats else ():
        chat = from_chat(messages_for(chats[problem], hint, setup))
        if all(content.strip() in row["prompt"] for _, content in chat):
            return chat
    raise BadInput(
        f"{place}: its prompt is not made of what problem {problem} says now; put back the problems that the run was "
        "sampled on"
    )
