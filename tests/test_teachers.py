"""Teachers behind a real local endpoint: each answer once, within the budget, no key in any file; the verdicts on them."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from harness import ROOT
from teacher_server import COMPLETION, HANG, PROMPT, completion, serving

from projected_grpo.ledger.errors import BadInput, Unfinished
from projected_grpo.traces.asking import _fault_of, ask_all
from projected_grpo.traces.record import State
from projected_grpo.traces.settings import AskConfig
from projected_grpo.traces.teachers import NAME, Teacher, read_answers, read_teachers
from projected_grpo.verdicts.teachers import judge, pairs

KEY = "sk-test-0123456789abcdefXYZ"
ENVIRONMENT = {"TEACHER_KEY": KEY}
QUICK = {"concurrency": 4, "timeout": 10.0, "attempts": 2}


@pytest.fixture
def endpoint():
    with serving() as (found, url):
        found.url = url
        yield found


def states(n=6, per_trace=2):
    return [State(f"s{i}", f"t{i // per_trace}", (("system", "Be brief."), ("user", f"do {i}"))) for i in range(n)]


def teachers(url, n=2, **more):
    given = {"usd_per_million_in": 1.0, "usd_per_million_out": 10.0, "max_tokens": 8, **more}
    return [Teacher(f"teacher {i}", url, f"model-{i}", key_env="TEACHER_KEY", **given) for i in range(n)]


def ask(of, who, out, budget=1.0, environment=ENVIRONMENT, **more):
    return ask_all(of, who, AskConfig(Path("s"), Path("t"), budget, out, **{**QUICK, **more}), environment)


# ---------------------------------------------------------------- answers, faults, the budget


@pytest.mark.slow
def test_a_faulted_server_loses_no_answer_and_asks_none_twice(endpoint, tmp_path):
    """The server's own books are what is compared with."""
    endpoint.faults.extend(["429", "500", "hang", "no usage"])
    who = teachers(endpoint.url)
    found = ask(states(), who, tmp_path / "out", timeout=HANG / 2, attempts=6)
    assert found.whole == ""
    assert {call: a.text for call, a in found.answers.items()} == {
        (s.state_id, t.name): f"I would {s.messages[-1][1]}" for s in states() for t in who
    }
    assert set(endpoint.answered.values()) == {1}
    assert endpoint.most_at_once <= 4 + 1  # one that hangs is still there when its client has left
    (bare,) = [a for a in found.lines if a.prompt_tokens is None]
    assert bare.usd == who[0].most_usd(states()[0])
    assert who[0].most_usd(states()[0]) == (len(b"systemBe brief.userdo 0") + 2 * 16 + 256 + 8 * 10) / 10**6
    assert found.usd == pytest.approx(bare.usd + 11 * who[0].usd(PROMPT, COMPLETION))
    for name in (NAME, "log.txt"):
        assert KEY not in (tmp_path / "out" / name).read_text("utf-8")


@pytest.mark.parametrize(
    ("fault", "error", "paid"),
    [("400", "Error code: 400", False), ("{}", "TypeError", True), ("413 echo", "<key>", False)],
)
def test_a_call_without_an_answer_is_named_and_asked_again(endpoint, tmp_path, fault, error, paid):
    endpoint.faults.append(fault)
    with pytest.raises(Unfinished, match=r"1 calls had no answer, the first 'teacher 0' at state 's0': .*--resume"):
        ask(states(), teachers(endpoint.url), tmp_path / "out", concurrency=1)
    found = read_answers(tmp_path / "out")
    assert [(s.state_id, t.name) for s, t in found.missing] == [("s0", "teacher 0")]
    assert found.finding().status == "NOT_EVALUABLE"
    (lost,) = [a for a in found.lines if a.error]
    assert error in lost.error
    assert KEY[:8] not in lost.error
    assert lost.usd == (found.teachers[0].most_usd(states()[0]) if paid else 0)
    assert ask(states(), teachers(endpoint.url), tmp_path / "out", resume=True).whole == ""
    assert set(endpoint.answered.values()) == {1}
    assert len(endpoint.answered) == 12


@pytest.mark.slow
def test_concurrent_calls_stop_before_the_cap_and_the_run_goes_on_with_a_higher_one(endpoint, tmp_path):
    who = teachers(endpoint.url)
    most = max(who[0].most_usd(s) for s in states())
    cap = 3 * most
    with pytest.raises(Unfinished, match=r"budget: .*raise --budget and --resume"):
        ask(states(15), who, tmp_path / "out", cap, concurrency=8)
    cut = read_answers(tmp_path / "out")
    assert endpoint.most_at_once <= 3  # each holds its most
    assert cap - 1.1 * most < cut.usd <= cap
    assert 0 < len(cut.answers) < 30
    with pytest.raises(BadInput, match=r"--budget 1e-05: \$0\.00\d\d are spent"):
        ask(states(15), who, tmp_path / "out", 0.00001, resume=True)
    assert ask(states(15), who, tmp_path / "out", resume=True).whole == ""
    assert set(endpoint.answered.values()) == {1}
    assert len(endpoint.answered) == 30


def test_an_answer_that_costs_more_than_was_reckoned_stops_the_run(endpoint, tmp_path):
    endpoint.faults.append(json.dumps(completion("model-0", "long", 5000, 5000)))
    with pytest.raises(Unfinished, match="overhead_tokens"):
        ask(states(8), teachers(endpoint.url, 1), tmp_path / "out", concurrency=1)
    assert read_answers(tmp_path / "out").answers["s0", "teacher 0"].usd == 0.055  # what it said, not what was held
    assert len(endpoint.seen) == 1


@pytest.mark.slow
def test_an_endpoint_that_stays_down_stops_the_run_and_it_resumes(endpoint, tmp_path):
    endpoint.faults.extend(["ok"] * 5)
    endpoint.down = "500"
    who = teachers(endpoint.url)
    with pytest.raises(Unfinished, match=r"teacher 'teacher \d': 3 calls in a row had no answer.*--resume"):
        ask(states(10), who, tmp_path / "out", attempts=1)
    assert len(read_answers(tmp_path / "out").answers) == 5
    assert len(endpoint.seen) < 20  # not every call was tried
    endpoint.down = None
    with (tmp_path / "out" / NAME).open("a") as f:  # a kill in the middle of a write
        f.write('{"state": "s9", "teac')
    assert ask(states(10), who, tmp_path / "out", resume=True).whole == ""
    assert set(endpoint.answered.values()) == {1}
    assert len(endpoint.answered) == 20


def test_no_calls_at_once_or_no_attempts_are_refused(script):
    """Nothing would be asked, and the run would be finished."""
    for flag in ("--concurrency", "--attempts"):
        code, _, err = script("ask_teachers", "--traces", "s", "--teachers", "t", "--budget", 0, "--out", "o", flag, 0)
        assert (code, err) == (2, f"error: {flag} 0: must be 1 or more\n")


def test_a_key_that_is_refused_stops_at_once(endpoint, tmp_path):
    endpoint.down = "401"
    with pytest.raises(BadInput, match=r"Error code: 401.*mend its key"):
        ask(states(40), teachers(endpoint.url), tmp_path / "out")
    assert len(endpoint.seen) <= QUICK["concurrency"]


def test_a_finished_run_is_resumed_to_nothing_and_other_states_or_prices_are_another_run(endpoint, tmp_path):
    who = teachers(endpoint.url)
    ask(states(), who, tmp_path / "out")
    asked = len(endpoint.seen)
    assert ask(states(), who, tmp_path / "out", resume=True).whole == ""
    assert len(endpoint.seen) == asked
    with pytest.raises(BadInput, match="never overwritten"):
        ask(states(), who, tmp_path / "out")
    for of, by in ((states(7), who), (states(), teachers(endpoint.url, usd_per_million_in=2.0))):
        with pytest.raises(BadInput, match="the run was started with"):
            ask(of, by, tmp_path / "out", resume=True)


def test_each_endpoint_gets_its_own_key_and_one_without_none(endpoint, tmp_path, monkeypatch):
    """The client takes OPENAI_API_KEY from the environment where it is given none: it would go to a stranger."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    one, two, free = teachers(endpoint.url, 3)
    who = [one, dataclasses.replace(two, key_env="OTHER_KEY"), dataclasses.replace(free, key_env="")]
    ask(states(1), who, tmp_path / "out", environment={**ENVIRONMENT, "OTHER_KEY": "sk-other-key"})
    keys = {body["model"]: key.removeprefix("Bearer ") for key, body in endpoint.seen}
    assert keys == {"model-0": KEY, "model-1": "sk-other-key", "model-2": "none"}
    with pytest.raises(BadInput, match="environment variable TEACHER_KEY is not set"):
        ask(states(1), teachers(endpoint.url), tmp_path / "none", environment={})


ASKED = (("system", "You write Python."), ("user", "Write f. It will be evaluated by calling run_tests()."))


def test_an_answer_that_gives_the_prompt_back_is_none_and_one_may_quote_it():
    """As `transformers serve` does for a chat template that it does not know."""
    assert "response_template" in _fault_of("\n".join([*(content for _, content in ASKED), "def f(): ..."]), ASKED)
    for text in ("def f(): ...", ASKED[1][1], "You write Python. I do.", ASKED[1][1] + ASKED[0][1]):
        assert _fault_of(text, ASKED) == ""
    assert _fault_of(" \n", ASKED) == "an empty text"


# ---------------------------------------------------------------- the price table

WELL = {"url": '"http://h:1/v1"', "model": '"m"', "usd_per_million_in": "1", "usd_per_million_out": "2.5"}


def toml(tmp_path, *tables):
    path = tmp_path / "teachers.toml"
    path.write_text("".join("[[teacher]]\n" + "".join(f"{k} = {v}\n" for k, v in t.items()) for t in tables))
    return path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"usd_per_million_out": None}, "usd_per_million_out: Field required"),
        ({"usd_per_million_in": "-1"}, "usd_per_million_in: "),
        ({"api_key": f'"{KEY}"'}, "api_key: "),
        ({"key_env": f'"{KEY}"'}, "key_env: "),
        ({"url": f'"http://me:{KEY}@h/v1"'}, "url: "),
    ],
)
def test_a_bad_price_table_is_one_line_without_the_key(tmp_path, change, told):
    table = {k: v for k, v in {**WELL, **change}.items() if v is not None}
    with pytest.raises(BadInput) as refused:
        read_teachers(toml(tmp_path, table))
    assert told in str(refused.value)
    assert "teachers.toml: [[teacher]] 1" in str(refused.value)
    assert KEY not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_model_has_one_vote_and_costs_what_the_table_says(tmp_path):
    [teacher] = read_teachers(toml(tmp_path, WELL))
    assert (teacher.name, teacher.usd(1000, 2000)) == ("m", 0.006)
    page = (ROOT / "docs/integrations.md").read_text("utf-8")
    (table,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.toml").write_text(table)
    assert [t.name for t in read_teachers(tmp_path / "page.toml")] == ["large"]
    with pytest.raises(BadInput, match="the model of 'b' is there twice"):
        read_teachers(toml(tmp_path, {**WELL, "name": '"a"'}, {**WELL, "name": '"b"', "url": '"http://h:1/v1/"'}))


# ---------------------------------------------------------------- the verdicts

FAIR = {
    judge: {
        "whole": "",
        "traces": 10,
        "seconds": [1.0] * 38 + [29.9, 100.0],
        "usd": 49.99,
        "budget": 51.0,
        "free": (),
        "models": {"a": {"m"}},
    },
    pairs: {"traces": 20, "problems": 20, "pairs": 100, "kl": 0.4, "null": 0.1, "p": 0.01, "elsewhere": 0.2},
}


@pytest.mark.parametrize(
    ("claim", "change", "status", "told"),
    [
        (judge, {}, "PASS", "$ per trace 4.9990"),
        (judge, {"usd": 50.0}, "FAIL", "too dear"),
        (judge, {"seconds": [1.0] * 37 + [30.0] * 3}, "FAIL", "too slow"),
        (judge, {"seconds": [1.0] * 38 + [30.0] * 2}, "PASS", "p95 per state 1.00"),
        (judge, {"models": {"a": {"m", "m2"}}}, "FAIL", "a answered as m, m2"),
        (judge, {"budget": 49.98}, "FAIL", "above the cap"),
        (judge, {"whole": "3 answers are missing"}, "NOT_EVALUABLE", "3 answers are missing"),
        (judge, {"seconds": [1.0] * 19}, "NOT_EVALUABLE", "19 states"),
        (judge, {"free": ("a",)}, "NOT_EVALUABLE", "priced 0: a"),
        (pairs, {}, "PASS", "5.00 pairs a trace"),
        (pairs, {"pairs": 99}, "FAIL", "too few pairs; 4.95 pairs a trace"),
        (pairs, {"p": 0.051}, "FAIL", "no farther from random pairs than chance"),
        (pairs, {"p": 0.05}, "PASS", "p 0.050"),
        (pairs, {"elsewhere": 0.51}, "FAIL", "the majority says at most states what it says on other problems"),
        (pairs, {"elsewhere": 0.5}, "PASS", "said on another problem too at 50 %"),
        (pairs, {"problems": 19}, "NOT_EVALUABLE", "19 problems (needs 20)"),
        (pairs, {"kl": None, "null": None, "p": None}, "NOT_EVALUABLE", "too few for a histogram"),
        (pairs, {"traces": 0, "pairs": 0}, "FAIL", "0.00 pairs a trace"),
    ],
)
def test_the_verdict_and_what_turns_it_red(claim, change, status, told):
    found = claim(**{**FAIR[claim], **change})
    assert (found.status, told in found.why) == (status, True), found.why


def test_the_verdict_is_of_the_files_alone(endpoint, tmp_path):
    """A fair, a slow, a dear and a cut folder."""
    out = tmp_path / "out"

    def judged(*lines):
        (out / NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return read_answers(out).finding()

    ask(states(20), teachers(endpoint.url), out)
    lines = [json.loads(line) for line in (out / NAME).read_text().splitlines()]
    fair = judged(*lines)
    assert (fair.status, "$ per trace 0.0001 (needs < 5; 10 traces, $0.0015" in fair.why) == ("PASS", True)
    slow = judged(*({**line, "seconds": line["seconds"] + 31} for line in lines))
    assert (slow.status, "too slow" in slow.why) == ("FAIL", True)
    dear = judged({**lines[0], "text": "", "error": "no answer", "usd": 60.0, "prompt_tokens": None}, *lines)
    assert (dear.status, "too dear" in dear.why, "above the cap" in dear.why) == ("FAIL", True, True)
    assert judged(*lines[:-1]).status == "NOT_EVALUABLE"
