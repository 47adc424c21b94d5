"""Traces of real runs: what `train` leaves is exported whole, and what several turns of the tiny model leave."""

from pathlib import Path

import pytest

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import read_run
from projected_grpo.traces import from_run
from projected_grpo.traces.file import open_traces
from projected_grpo.worlds.models import load_model

TRAIN = ("--steps", 2, "--mix", "base=.5", "--keep-token-logps", "--max-new", 8, "--out", "run")


@pytest.fixture(scope="module")
def model(cache):
    """The tiny model that scripts build."""
    return load_model("tiny", "float32", "cpu", 0, cache)


def test_a_finished_run_gives_all_of_its_rollouts_and_no_label(script, model):
    code, _, err = script("train", "tiny", *TRAIN)
    assert code == 0, err
    code, out, err = script("traces", "run", "--out", "a/traces.jsonl.gz")
    assert code == 0, err
    rows = [row for step in read_run(Path("run")) for row in step]
    found = open_traces(Path("a/traces.jsonl.gz"), model_hash=model.weights_hash, tokenizer_hash=model.tokenizer_hash)
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


def test_prompts_of_other_problems_are_refused(tmp_path):
    """A problem whose text was changed after the run: its chat no longer stands in the prompt."""
    row = {
        "step": 0, "sample_id": 0, "problem_id": "p", "hint": "none", "prompt": "<user>Add.<assistant>", "completion": "x",
        "prompt_ids": [1], "completion_ids": [2], "behaviour_logps": None, "truncated": False, "source": "base",
        "reward": 0.5,
    }  # fmt: skip
    (found,) = from_run._traces_of_step([row], {"p": (("user", "Add."),)}, tmp_path)
    assert found.steps[0].messages == (("user", "Add."),)
    for chats in ({"p": (("user", "Subtract."),)}, {}):
        with pytest.raises(BadInput, match="step 0, row 0: its prompt is not made of what problem p says now"):
            list(from_run._traces_of_step([row], chats, tmp_path))


@pytest.mark.parametrize(
    ("kind", "said"), [("multi_turn", "name r/traces.jsonl.gz"), ("probe_distill", "samples nothing")]
)
def test_a_run_that_has_its_traces_or_none_says_so(kind, said, monkeypatch):
    monkeypatch.setattr(from_run, "read_manifest", lambda _: {"kind": kind})
    with pytest.raises(BadInput, match=said):
        from_run.traces_of_run(Path("r"))


def test_a_folder_that_is_no_run_is_one_line(script):
    Path("empty").mkdir()
    code, _, err = script("traces", "empty")
    assert (code, err.count("\n"), "is not a run directory" in err) == (2, 1, True)
