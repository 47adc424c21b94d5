"""Traces: what a file holds comes back exactly, a line that is no trace is named, and a run of `train` is exported
whole."""

import dataclasses
import gzip
import json
import re
from pathlib import Path

import pytest
from harness import ROOT

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import read_run
from projected_grpo.prompts import apply_template, as_chat
from projected_grpo.traces.formats import export, to_episode, to_record
from projected_grpo.traces.record import Action, Header, Step, Trace, open_traces, write_traces
from projected_grpo.worlds.models import load_model

HEADER = Header("multi_turn", "m", "m1", "t1", "p1", "c1", "simple_overwrite_tests", True, 0.7)
CHAT = (("system", "Be brief."), ("user", "Write f."))
FIRST = Step(CHAT, (1, 2, 3, 4, 5), Action("```python\nx\n```", (10, 11, 9), (-0.5, -0.25, -0.125), False), 0.5, False)
SAID = (*CHAT, ("assistant", "```python\nx\n```"), ("user", "run_tests() raised AssertionError"))
SECOND = Step(SAID, (1, 2, 3, 4, 5, 10, 11, 9, 6, 7), Action("again", (12, 13), (-1.5, -0.0625), True), 3.5, True)
TWO = Trace("t0", "g0", "p1", "student", 3, "turns", (FIRST, SECOND))
UNKNOWN = dataclasses.replace(FIRST, done=True, action=Action("again <|im_end|>", (12, 13), None, False))
ONE = Trace("t1", "g0", "p1", "base", None, "passed", (UNKNOWN,))


@pytest.mark.parametrize(
    ("key", "instead", "said"),
    [
        ('"version": 2', '"version": 1', ":1: version must be 2"),
        ('"trace_id"', '"gt_pass": true, "trace_id"', ":2: gt_pass is no known field"),
        ('"logps"', '"hacked": true, "logps"', ":2: steps[0].action.hacked is no known field"),
    ],
)
def test_what_is_written_is_read_and_a_line_that_is_no_trace_is_named(tmp_path, key, instead, said):
    written = tmp_path / "traces.jsonl.gz"
    write_traces(written, HEADER, iter([TWO, ONE]))
    header, found = open_traces(written)
    assert (header, list(found)) == (HEADER, [TWO, ONE])
    text = gzip.decompress(written.read_bytes()).decode()
    written.write_bytes(gzip.compress(text.replace(key, instead, 1).encode()))
    with pytest.raises(BadInput, match=re.escape(f"{written}{said}")):
        list(open_traces(written)[1])


@pytest.mark.parametrize(
    ("hashes", "said"), [(("m2", "t1"), "model_hash is m1"), (("m1", "t2"), "tokenizer_hash is t1")]
)
def test_a_file_of_another_model_or_tokenizer_is_refused_and_both_sides_are_named(hashes, said):
    with pytest.raises(BadInput, match=f"its {said}, --model's is .2"):
        HEADER.check_model(Path("x"), *hashes)


# ---------------------------------------------------------------- other projects' formats

UPSTREAM = json.loads((ROOT / "tests/references/trace_formats.json").read_text("utf-8"))


def test_our_record_is_verifiers_own_but_for_times_and_what_it_fills_in():
    ours, theirs = to_episode(TWO, HEADER), UPSTREAM["verifiers"]["episode"]
    (own,), (upstream,) = ours["traces"], theirs["traces"]
    assert [(n.get("token_ids", []), n.get("mask", []), n.get("logprobs", []), n["parent"] if i else None, n["message"])
            for i, n in enumerate(own["nodes"])] == [
        (n["token_ids"], n["mask"], n["logprobs"], n.get("parent"), n["message"]) for n in upstream["nodes"]
    ]  # fmt: skip
    assert own["calls"] == [{k: v for k, v in call.items() if k != "time"} for call in upstream["calls"]]
    for key in ("version", "rewards", "is_completed", "ok", "stop_condition"):
        assert own[key] == upstream[key], key
    assert (ours["run"]["work"], ours["group"]) == (theirs["run"]["work"], theirs["group"])
    assert UPSTREAM["verifiers"]["reward"] == TWO.steps[-1].reward


def test_our_record_is_openenvs_own():
    ours, theirs = to_record(TWO), UPSTREAM["openenv"]["episode"]
    assert ours.keys() == theirs.keys()
    for key in ("messages", "reward", "done", "tool_trace", "metrics", "verify_metrics", "task"):
        assert ours[key] == theirs[key], key
    token_trace, upstream = ours["artifacts"]["training_trace"], theirs["artifacts"]["training_trace"]
    assert [{**t, "metadata": {}} for t in token_trace["turns"]] == [{**t, "metadata": {}} for t in upstream["turns"]]
    assert ours["artifacts"]["reset"] == UPSTREAM["openenv"]["reset"]
    assert ours["artifacts"]["steps"][0]["response"] == UPSTREAM["openenv"]["step"]
    assert ours["artifacts"]["steps"][0]["request"]["action"].keys() == UPSTREAM["openenv"]["request"]["action"].keys()


def test_traces_that_a_format_cannot_hold_are_one_line_and_nothing_is_written(tmp_path):
    with pytest.raises(BadInput, match="trace t1: has no log-probabilities"):
        export("openenv", tmp_path / "new", HEADER, [TWO, ONE])
    assert not (tmp_path / "new").exists()
    export("verifiers", tmp_path / "new", HEADER, [TWO, ONE])
    assert len((tmp_path / "new/traces.jsonl").read_text().splitlines()) == 2
    with pytest.raises(BadInput, match="never overwritten"):
        export("verifiers", tmp_path / "new", HEADER, [TWO])


# ---------------------------------------------------------------- of a run


@pytest.mark.slow
def test_a_finished_run_gives_all_of_its_rollouts_and_no_label(script, made, cache):
    run = made("train", "--steps", 2, "--mix", "base=.5", "--keep-token-logps", "--max-new", 8)
    model = load_model("tiny", "float32", "cpu", 0, cache)
    code, out, err = script("traces", run, "--out", "a/traces.jsonl.gz")
    assert code == 0, err
    rows = [row for step in read_run(run) for row in step]
    header, found = open_traces(Path("a/traces.jsonl.gz"))
    header.check_model(run, model.weights_hash, model.tokenizer_hash)
    traces = list(found)
    assert f"{len(rows)} traces" in out
    assert len({trace.trace_id for trace in traces}) == len(rows)
    for trace, row in zip(traces, rows, strict=True):
        (step,) = trace.steps
        assert (list(step.ids), step.action.text) == (row["prompt_ids"], row["completion"])
        assert list(step.action.ids) == row["completion_ids"]
        assert (step.reward, trace.source, step.action.truncated) == (row["reward"], row["source"], row["truncated"])
        assert trace.policy_step == (row["step"] if row["source"] == "student" else None)
        assert apply_template(model.tokenizer, as_chat(step.messages), "here") == row["prompt"]
        assert sum(step.action.logps) / len(step.action.logps) == pytest.approx(row["behaviour_logp"], abs=1e-4)
    groups = {(trace.group, trace.problem_id) for trace in traces}
    assert len(groups) == len({group for group, _ in groups}) == 4  # 2 steps x 2 prompts
    for other in ("verifiers", "openenv"):
        code, _, err = script("traces", "a/traces.jsonl.gz", "--to", other, "--out", other)
        assert code == 0, err
        (records,) = Path(other).glob("*.jsonl")
        assert len(records.read_text().splitlines()) == len(rows)
    code, out, _ = script("traces", "a/traces.jsonl.gz")
    assert (code, f"{len(rows)} traces of {len(rows)} turns" in out) == (0, True)
