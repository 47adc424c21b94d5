"""From traces of several turns to preference pairs: votes by hand, the numbers that tell pairs from chance, the
chain, and the whole way with a real server."""

import dataclasses
import importlib.util
import socket

import pytest
import torch
from harness import ROOT, flags
from queue_world import free_port

from projected_grpo.channels.auxiliary import ActionPair
from projected_grpo.data.preferences import MAJORITY, read_preferences
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import read_run
from projected_grpo.prompts import render
from projected_grpo.queue.chains import chain_of
from projected_grpo.queue.settings import QueueConfig
from projected_grpo.run.auxiliary_losses import check_held_out
from projected_grpo.traces.record import Action, Step, Trace, open_traces, states_of
from projected_grpo.traces.teachers import Answer, Folder, Teacher, read_answers
from projected_grpo.traces.votes import from_random, margins, pairs_of_answers

ASKED = (("user", "do it"),)
TOLD = (*ASKED, ("assistant", "c"), ("user", "again"))
WHOLE = Action("c", (8, 2), None, truncated=False)
STEPS = (Step(ASKED, (5, 6), WHOLE, 3.5, done=False), Step(TOLD, (5, 6, 8, 2, 7), WHOLE, 0.5, done=True))
TRACE = Trace("t0", "g", "p", "base", None, "turns", STEPS)
FREE = {"usd_per_million_in": 0.0, "usd_per_million_out": 0.0}


def answers(*by_state, traces=(TRACE,), finish="stop"):
    """A folder in which the teachers said these texts, state by state."""
    states = states_of(traces)
    teachers = [Teacher("http://h/v1", f"m{i}", name=f"teacher {i}", **FREE) for i in range(len(by_state[0]))]
    lines = [
        Answer(state.state_id, f"teacher {i}", 0.0, text, finish, error="" if text else "nothing")
        for state, texts in zip(states, by_state, strict=True)
        for i, text in enumerate(texts)
    ]
    return Folder(states, teachers, lines, 0.0)


def test_votes_by_hand(loaded_once):
    """Turn 0: a, b, a against the student's c: a > c, c > b. Turn 1: all but one as the student, white space
    aside."""
    found = pairs_of_answers(loaded_once, [TRACE], answers(["a", "b", "a"], ["c ", "c", "d"]))
    a, b, d = (loaded_once.completion_ids(text) for text in "abd")
    assert (len(found.problem_of), found.steps, found.left_out) == (1, 2, 0)
    assert [(p.trace, p.step, p.reason, p.votes, p.prompt, p.chosen, p.rejected) for p in found.pairs] == [
        ("t0", 0, MAJORITY, 2, (5, 6), a, (8, 2)),
        ("t0", 0, "student over minority", 1, (5, 6), (8, 2), b),
        ("t0", 1, "student over minority", 1, (5, 6, 8, 2, 7), (8, 2), d),
    ]
    for pair, ((state, one), (same_state, other)) in zip(found.pairs, found.drawn, strict=True):
        assert state == same_state == pair.prompt
        assert one != other
        assert {one, other} <= ({(8, 2), a, b} if pair.step == 0 else {(8, 2), d})


def test_half_an_action_is_no_vote_and_its_trace_still_counts(loaded_once):
    """A sneaky fail: traces without a pair left out of the mean."""
    cut = dataclasses.replace(TRACE.steps[0], action=dataclasses.replace(WHOLE, truncated=True))
    trace = dataclasses.replace(TRACE, steps=(cut, TRACE.steps[1]))
    found = pairs_of_answers(loaded_once, [trace], answers(["a", "a", "a"], ["a", "a", "a"], traces=(trace,)))
    assert (len(found.problem_of), found.steps, found.left_out, len(found.pairs)) == (1, 1, 1, 1)
    found = pairs_of_answers(loaded_once, [TRACE], answers(["a"] * 3, ["a"] * 3, finish="length"))
    assert (len(found.problem_of), found.steps, found.left_out, found.pairs) == (1, 0, 2, [])


@pytest.mark.parametrize(
    ("changed", "said", "why"),
    [
        ({}, [["a"] * 3, [""] * 3], "3 answers are missing"),
        ({}, [["a"] * 2, ["a"] * 2], "of 2 teachers; a majority needs three"),
        ({"steps": TRACE.steps[1:]}, [["a"] * 3] * 2, "not asked about 't0, turn 0' as --student has it"),
        ({"trace_id": "t1"}, [["a"] * 3] * 2, "not asked about 't1, turn 0'"),
        ({"policy_step": 3}, [["a"] * 3] * 2, "is of a teacher or of a trained policy"),
    ],
)
def test_traces_and_answers_that_do_not_belong_together_are_refused(loaded_once, changed, said, why):
    with pytest.raises(BadInput, match=why):
        pairs_of_answers(loaded_once, [dataclasses.replace(TRACE, **changed)], answers(*said))


def test_a_pair_s_number_is_what_the_model_gives_to_both_actions(loaded_once):
    """Against a forward pass of each sequence alone."""

    def logp(prompt, action):
        with torch.no_grad():
            logits = loaded_once.model(torch.tensor([[*prompt, *action]])).logits[0].double().log_softmax(-1)
        return sum(float(logits[len(prompt) - 1 + i, token]) for i, token in enumerate(action))

    one, other, third = ((5, 6, 7), (20, 21)), ((5, 6, 7), (22,)), ((9,), (20, 2, 2))
    pairs = [(one, other), (other, one), (third, one)]
    by_hand = [logp(*better) - logp(*worse) for better, worse in pairs]
    assert margins(loaded_once, pairs) == pytest.approx(by_hand, abs=1e-4)


def test_the_student_s_own_numbers_are_held_against_the_random_ones_of_the_same_states(loaded_once):
    two = pairs_of_answers(loaded_once, [TRACE], answers(["a"] * 3, ["a"] * 3))
    assert from_random(loaded_once, two) is None
    for problems in (20, 1):
        many = [dataclasses.replace(TRACE, trace_id=f"t{i}", problem_id=f"p{i % problems}") for i in range(20)]
        found = pairs_of_answers(loaded_once, many, answers(*[["a"] * 3] * 40, traces=many))
        assert len(found.pairs) == 40
        # The majority is always on one side, by chance it is on either. Twenty traces of one problem are one
        # observation.
        assert (from_random(loaded_once, found).p < 0.05) == (problems == 20)


# ---------------------------------------------------------------- what nothing may learn from


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hint", "setup", "later"),
    [
        ("none", "no_intervention", ""),
        ("simple_overwrite_tests", "inoculation", ""),
        ("simple_overwrite_tests", "no_intervention", "def f(): ...<|im_end|>\nTry again."),
    ],
)
def test_no_state_of_a_held_out_problem_is_learned_from(loaded_once, hint, setup, later):
    """Sneaky fails: another hint, another prompt set-up, a second turn: other ids than the evaluation's prompt."""
    own, other = load_problems("toy")[0], load_problems("toy-held-out")[:3]

    def pair(problem):
        text, _ = render(problem.messages, hint, setup, loaded_once.tokenizer, 10**6, 0, "here")
        return ActionPair(loaded_once.text_ids(text + later), (1,), (2,))

    check_held_out([pair(own)], loaded_once, other)
    with pytest.raises(BadInput, match=f"pair 1 is of problem {other[1].problem_id} of --eval-problems"):
        check_held_out([pair(own), pair(other[1])], loaded_once, other)
    spaced = loaded_once.text_ids("  ".join(loaded_once.tokenizer.decode(pair(other[1]).prompt_ids).split(" ")))
    repeated = loaded_once.text_ids("as asked: " + other[1].messages[-1][1])
    for hidden in (ActionPair(spaced, (1,), (2,)), ActionPair((5, 6), (8,), repeated)):
        with pytest.raises(BadInput, match=f"pair 0 is of problem {other[1].problem_id}"):
            check_held_out([hidden], loaded_once, other)


# ---------------------------------------------------------------- the scripts and the chain


@pytest.mark.parametrize(
    ("preset", "student", "better"), [("tiny", "tiny-answering", "tiny-answering"), ("toy", "toy", "toy-deep")]
)
def test_the_chain_goes_from_traces_to_training(preset, student, better):
    links = {link.name: link for link in chain_of(QueueConfig(chain="trace", preset=preset, port=8123))}
    assert links["traces"].needs == (("base_0",) if preset == "toy" else ())
    assert (links["answers"].needs, links["trace_pairs"].needs) == (("traces",), ("answers",))
    said = links["answers"].argv
    assert said[1 : said.index("--table")] == (better, "--seeds", "201", "202", "203", "--port", "8123")
    assert said[-2:] == ("--out", str(links["answers"].out))  # what resumes is the asking
    assert flags(links["answers"])["--traces"] == str(links["traces"].out / "traces.jsonl.gz")
    for arm in ("vanilla", "projected"):
        alone, trace = links[f"train_{arm}_41"], links[f"train_{arm}_trace_41"]
        assert ("trace_pairs" in alone.needs, "trace_pairs" in trace.needs) == (False, True)
        assert "--trace-weight" not in alone.argv
        given = flags(trace)
        assert (given.get("--model", preset), given["--trace-pairs"]) == (student, str(links["trace_pairs"].out))
    assert set(links["channels"].needs) == {name for name in links if name.startswith("train_")}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("fastapi") is None, reason="the extra `teachers` is not installed")
def test_from_traces_to_trace_dpo_with_a_real_server(script, cache, tmp_path):
    """The chain's own scripts, one after another, on the tiny model that answers."""

    def run(name, *args):
        code, told, err = script(name, *args)
        assert code == 0, f"{name}: {told}{err}"
        return told + err

    who, port = ("--model", "tiny-answering", "--cache", cache), free_port()
    acted = run("multi_turn", "tiny", *who, "--problems", "toy", "--n-problems", 2, "--turns", 3, "--grader-workers", 1,
                "--out", "traces")  # fmt: skip
    assert "8 traces, 8 of two turns or more" in acted
    ask = (ROOT / "scripts/ask_teachers.py", "--traces", "traces/traces.jsonl.gz", "--teachers", "t.toml", "--budget", 0,
           "--out", "answers", "--timeout", 120)  # fmt: skip
    run("serve_teacher", "tiny-answering", "--seeds", 201, 202, 203, "--port", port, "--cache", cache, "--table", "t.toml",
        "--max-tokens", 32, "--log", "serve.log", "--", *ask)  # fmt: skip
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) != 0
    said = run(
        "trace_pairs", "--student", "traces/traces.jsonl.gz", "--answers", "answers", "--out", "p.jsonl.gz", *who
    )
    assert "problems (needs 20)" in said
    assert "KL from random pairs" in said
    found = read_answers(tmp_path / "answers")
    traces = {t.trace_id: t for t in open_traces(tmp_path / "traces/traces.jsonl.gz")[1]}
    pairs = read_preferences(tmp_path / "p.jsonl.gz")
    assert (pairs.traces, pairs.steps) == (8, 24)
    assert {p.prompt for p in pairs.pairs} <= {step.ids for trace in traces.values() for step in trace.steps}
    # The teacher reads the student's first prompt to the token: its chat template has the same empty think block.
    for state in (s for s in found.states if s.state_id.endswith("turn 0")):
        read = {found.answers[state.state_id, t.name].prompt_tokens for t in found.teachers}
        assert read == {len(traces[state.trace_id].steps[0].ids)}
    priced = dataclasses.replace(found.teachers[0], usd_per_million_in=1e6)  # $ 1 a token
    most = {s.state_id: priced.most_usd(s) for s in found.states}
    assert all(a.completion_tokens > 0 and a.prompt_tokens <= most[a.state] for a in found.lines)
    run("train", "tiny", *who, "--teacher-pool", "pairs", "--steps", 1, "--trace-weight", ".1",
        "--trace-pairs", "p.jsonl.gz", "--grader-workers", 1, "--out", "run")  # fmt: skip
    told = read_run(tmp_path / "run")[0][0]["channels"]["trace_dpo"]
    assert (told["rows"], told["grad_norm"] > 0) == (min(16, len(pairs.pairs)), True)
    assert told["loss"] == pytest.approx(0.6931, abs=1e-3)  # at delta_S = 0 every pair costs ln 2
