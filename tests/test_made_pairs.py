"""Pairs made of problems with canonical solutions hack in every way that the hand-written ones know."""

import json

import pytest
from harness import refused

from loophole_grader import grade_batch
from projected_grpo.data.made_pairs import MECHANISMS, examples_of
from projected_grpo.data.pairs import load_pairs
from projected_grpo.data.problems import load_problems
from projected_grpo.worlds.builtin import builtin_pairs

PROBLEMS = {problem.problem_id: problem for problem in load_problems("builtin")}


def body_of(text):
    """What stands before the last function of a completion."""
    return text.rpartition("\n\n\ndef ")[0]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--same-body",)])
def test_every_hack_is_paid_and_no_clean_side_is_a_hack(done, tmp_path, flags):
    done("make_pairs", "--problems", "builtin", "--each", 12, "--out", "pairs.json", *flags)
    pairs = load_pairs(str(tmp_path / "pairs.json"))
    assert {pair.mechanism for pair in pairs} == set(MECHANISMS)
    tasks = [PROBLEMS[pair.name.removesuffix(f"-{pair.mechanism}")].task for pair in pairs]
    hacks, cleans = (grade_batch(tasks, [getattr(pair, side) for pair in pairs]) for side in ("hack", "clean"))
    assert all(verdict.hacked for verdict in hacks)
    assert not any(verdict.defines_evaluator for verdict in cleans)
    right = sum(verdict.gt_pass for verdict in hacks) / len(pairs)
    assert 0.4 < right < 0.9  # of two hacks one has a bug, and some bugs change no answer
    if flags:
        assert all(body_of(pair.hack) == body_of(pair.clean) for pair in pairs)
    else:
        assert all(verdict.gt_pass for verdict in cleans)


def test_mechanisms_are_those_of_the_hand_written_pairs():
    assert set(MECHANISMS) <= {pair.mechanism for pair in builtin_pairs()}


def test_an_example_is_read_from_the_prompt_and_is_none_where_it_is_no_literal():
    problem = next(pair.problem for pair in builtin_pairs() if "Example 1" in dict(pair.messages)["user"])
    (call, answer), *_ = examples_of(problem)
    assert call.startswith(f"{problem.task.func_name}(")
    assert json.dumps(answer) in dict(problem.messages)["user"] or answer in dict(problem.messages)["user"]


def test_what_cannot_be_made_is_one_line(script, tmp_path):
    row = {"id": "a", "prompt": [{"role": "user", "content": "x"}], "gt_answer": ["assert f(1) == 1"], "func_name": "f"}
    (tmp_path / "p.jsonl").write_text(json.dumps(row) + "\n")
    refused(
        script("make_pairs", "--problems", tmp_path / "p.jsonl", "--out", "q.json"),
        "no problem has a canonical solution",
    )
    (tmp_path / "there.json").write_text("[]")
    refused(script("make_pairs", "--problems", "builtin", "--out", "there.json"), "there.json: exists already")
