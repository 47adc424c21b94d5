"""One model through verifiers, inspect-ai and here: rows go there and back, a difference is seen, what is missing is said.

The frameworks themselves run in `just test-frameworks` and `just in-frameworks`, each in its own environment.
"""

import json
import re

import pytest

from projected_grpo.elsewhere import frameworks
from projected_grpo.elsewhere.frameworks import Endpoint, Said, ask_here, ask_inspect, ask_verifiers, unlike
from projected_grpo.groups.problems import load_problems, problem_from_row, row_of
from projected_grpo.ledger.errors import BadInput
from projected_grpo.run.models import BUILT

AT = Endpoint("http://127.0.0.1:1/v1", "m", 8)


@pytest.mark.parametrize("source", ["builtin", "toy-held-out", "toy-mark-held-out", "small-held-out"])
def test_a_problem_is_the_same_after_it_was_a_row(source):
    for problem in load_problems(source):
        assert problem_from_row(json.loads(json.dumps(row_of(problem))), "here") == problem


def test_an_answer_that_is_judged_otherwise_or_missing_is_seen():
    here = {"a": Said("x", "correct"), "b": Said("y", "reward_hack"), "c": Said("z", "incorrect")}
    assert not unlike(here, dict(here))
    assert not unlike(here, here | {"a": Said(" x\n", "correct")})
    assert unlike(here, here | {"c": Said("the prompt, and z", "incorrect")}) == [
        "c"
    ]  # as a server did that gave it back
    assert unlike(here, here | {"b": Said("y", "incorrect")}) == ["b"]
    assert unlike(here, {"a": here["a"], "d": here["a"]}) == ["b", "c", "d"]


def test_nothing_of_others_is_removed(tmp_path):
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "verifiers").mkdir()
    frameworks.clear(tmp_path, ("rows.jsonl", "verifiers"))
    assert not list(tmp_path.iterdir())
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(BadInput, match=r"holds thesis\.txt, which is none of this script's"):
        frameworks.clear(tmp_path, ("rows.jsonl", "verifiers"))
    assert {p.name for p in tmp_path.iterdir()} == {"rows.jsonl", "thesis.txt"}


def fake(home, framework, name, script):
    path = home / framework / "bin" / name
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("ask", "framework", "name"), [(ask_verifiers, "verifiers", "vf-eval"), (ask_inspect, "inspect", "inspect")]
)
def test_a_framework_that_is_not_there_or_fails_is_one_line(ask, framework, name, tmp_path, monkeypatch):
    monkeypatch.setattr(frameworks, "ENVIRONMENTS", tmp_path)
    with pytest.raises(BadInput, match=f"{name}: not there; `just frameworks`"):
        ask(tmp_path / "rows", "none", AT, tmp_path / "out")
    fake(tmp_path, framework, name, "echo first; echo no such model >&2; exit 3")
    with pytest.raises(BadInput, match=f"{name}: exit code 3, it said 'no such model'") as error:
        ask(tmp_path / "rows", "none", AT, tmp_path / "out")
    assert "\n" not in str(error.value)


def test_a_rollout_that_failed_is_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(frameworks, "ENVIRONMENTS", tmp_path)
    trace = {"ok": False, "errors": ["a dead sandbox"], "task": {"data": {"name": "p1"}}}
    run = tmp_path / "out" / "run"
    run.mkdir(parents=True)
    (run / "traces.jsonl").write_text(json.dumps({"traces": [trace]}) + "\n")
    fake(tmp_path, "verifiers", "vf-eval", "exit 0")
    with pytest.raises(BadInput, match=r"problem p1: .*a dead sandbox"):
        ask_verifiers(tmp_path / "rows", "none", AT, tmp_path / "out")


@pytest.mark.slow
def test_this_projects_own_answers_are_greedy(cache):
    """Asked twice, with draws of other keys, it says the same."""
    folder = BUILT["tiny-answering"].base("tiny-answering", 0, cache)
    problems = load_problems("builtin")[:3]
    once = ask_here(folder, problems, "simple_overwrite_tests", 16)
    assert once == ask_here(folder, problems, "simple_overwrite_tests", 16)
    assert [*once] == [p.problem_id for p in load_problems("builtin")[:3]]
    assert all(said.text for said in once.values())


@pytest.mark.slow
def test_the_script_fails_where_a_label_differs(script, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(frameworks, "command_of", lambda *_: tmp_path)

    def otherwise(rows, *_):
        names = [json.loads(line)["id"] for line in rows.read_text().splitlines()]
        return {name: Said("", "correct") for name in names}

    monkeypatch.setattr(frameworks, "FRAMEWORKS", {"verifiers": otherwise})
    args = ("tiny-answering", "--problems", "builtin", "--n", "2", "--max-tokens", "16")
    code, said, _ = script("in_frameworks", *args, "--cache", str(cache), "--out", str(tmp_path / "o"))
    assert code == 1
    assert "2 differ" in said


@pytest.mark.parametrize(
    ("flags", "why"),
    [(("--n", "0"), "--n 0"), (("--hint", "nosuch"), "--hint nosuch"), (("nosuch",), "not there|neither a folder")],
)
def test_bad_input_is_one_line(script, flags, why, tmp_path):
    code, _, err = script("in_frameworks", *flags, "--out", str(tmp_path / "o"))
    assert code == 2
    assert not (tmp_path / "o").exists()
    assert re.search(why, err.splitlines()[-1])
