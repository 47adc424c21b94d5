"""Traces of real runs: what `train` leaves is exported whole, and what several turns of the tiny model leave."""

from pathlib import Path

import pytest

from projected_grpo.ledger.step_file import read_run
from projected_grpo.traces.file import open_traces
from projected_grpo.worlds.models import load_model

TRAIN = ("--steps", 2, "--mix", "base=.5", "--keep-token-logps", "--max-new", 8)


@pytest.fixture(scope="module")
def model(cache):
    """The tiny model that scripts build."""
    return load_model("tiny", "float32", "cpu", 0, cache)


@pytest.mark.slow
def test_a_finished_run_gives_all_of_its_rollouts_and_no_label(script, made, model):
    run = made("train", *TRAIN)
    code, out, err = script("traces", run, "--out", "a/traces.jsonl.gz")
    assert code == 0, err
    rows = [row for step in read_run(run) for row in step]
    header, found = open_traces(Path("a/traces.jsonl.gz"))
    header.check_model(run, model.weights_hash, model.tokenizer_hash)
    traces = list(found)
    assert f"{len(rows)} traces" in out
    assert len(traces) == len(rows)
    for trace, row in zip(traces, rows, strict=True):
        (step,) = trace.steps
        assert (list(step.ids), step.action.text) == (row["prompt_ids"], row["completion"])
        assert list(step.action.ids) == row["completion_ids"]
        assert (trace.rewards, trace.source, step.action.truncated) == (
            (row["reward"],),
            row["source"],
            row["truncated"],
        )
        assert trace.policy_step == (row["step"] if row["source"] == "student" else None)
        rendered = model.tokenizer.apply_chat_template(
            [{"role": r, "content": c} for r, c in step.messages], tokenize=False, add_generation_prompt=True,
            enable_thinking=False,
        )  # fmt: skip
        assert rendered == row["prompt"]
        assert sum(step.action.logps) / len(step.action.logps) == pytest.approx(row["behaviour_logp"], abs=1e-4)
    groups = {trace.group: trace.problem_id for trace in traces}
    assert len(groups) == 4  # 2 steps x 2 prompts
    assert all(groups[trace.group] == trace.problem_id for trace in traces)

    for other in ("verifiers", "openenv"):
        code, _, err = script("traces", "a/traces.jsonl.gz", "--to", other, "--out", other)
        assert code == 0, err
        (records,) = Path(other).glob("*.jsonl")
        assert len(records.read_text().splitlines()) == len(rows)
    code, out, _ = script("traces", "a/traces.jsonl.gz")
    assert (code, f"{len(rows)} traces of {len(rows)} turns whole" in out) == (0, True)
