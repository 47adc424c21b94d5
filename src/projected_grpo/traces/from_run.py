"""Traces of a finished run, from its step files: each rollout is a trace of one turn. Only the columns named here are
read; none of them is a label.

What a step file lacks is the chat that a prompt was rendered from; that comes from the run's problems, and must stand
in the recorded prompt. `train --keep-token-logps` has it keep the log-probability of each token; a pool always does.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import content_hash
from projected_grpo.ledger.folder import finished_manifest
from projected_grpo.ledger.step_file import in_groups, iter_run
from projected_grpo.prompts import PROMPT_SETUPS, SystemPrompt, chat_of, from_chat
from projected_grpo.records import Problem
from projected_grpo.traces.record import Action, Header, Step, Trace

KINDS = ("train", "teacher_pool")
"""Runs that sample. A replay's rows are its pool's."""


def traces_of_run(run: Path) -> tuple[Header, Iterator[Trace]]:
    """Returns a run's traces, a step in memory at a time.

    BadInput when it is no run that sampled, not finished, lacks steps, or when its problems are no longer those
    that its prompts were made of.
    """
    manifest = finished_manifest(run, KINDS)
    config, header = manifest["config"], header_of(manifest)
    problems = {p.problem_id: p for p in load_problems(config["problems"])}
    own = [SystemPrompt(manifest["system_prompt"])] if "system_prompt" in manifest else []
    return header, _traces(run, problems, header.hint, [*own, *PROMPT_SETUPS])


def header_of(manifest: Mapping[str, Any]) -> Header:
    """Returns what a run's traces were sampled from, by its manifest."""
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


def _traces(run: Path, problems: Mapping[str, Problem], hint: str, known: Sequence[str]) -> Iterator[Trace]:
    for step, rows in enumerate(iter_run(run)):
        for group, row in ((i, row) for i, of_group in enumerate(in_groups(rows)) for row in of_group):
            problem_id, group_of = row["problem_id"], f"step {step}, group {group}"
            trace_id = f"{group_of}, sample {row['sample_id']}"
            # the chat that the prompt was rendered from: the text of each message is in it
            asked = []
            if problem := problems.get(problem_id):
                asked = [from_chat(chat_of(problem, hint, setup)) for setup in known]
            fit = [chat for chat in asked if all(content.strip() in row["prompt"] for _, content in chat)]
            if not fit:
                raise BadInput(
                    f"{run}: {trace_id}: its prompt is not made of what problem {problem_id} says now; put back the "
                    "problems that the run was sampled on"
                )
            logps = None if row["behaviour_logps"] is None else tuple(row["behaviour_logps"])
            action = Action(row["completion"], tuple(row["completion_ids"]), logps, row["truncated"])
            policy_step = step if row["source"] == "student" else None
            answered = Step(fit[0], tuple(row["prompt_ids"]), action, float(row["reward"]), done=True)
            yield Trace(trace_id, group_of, problem_id, row["source"], policy_step, "turns", (answered,))
