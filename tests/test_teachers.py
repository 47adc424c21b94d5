"""Teachers behind a real local endpoint: each answer once, within the budget, no key in any file; the verdicts on
them."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from harness import ROOT
from teacher_server import COMPLETION, HANG, PROMPT, completion, serving

from projected_grpo.ledger.errors import BadInput, Unfinished
from projected_grpo.traces.asking import ask_all, fault_of
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
    return [Teacher(url, f"model-{i}", name=f"teacher {i}", key_env="TEACHER_KEY", **given) for i in range(n)]


def ask(of, who, out, budget=1.0, environment=ENVIRONMENT, **more):
    return ask_all(of, who, AskConfig(Path("s"), Path("t"), budget, out, **{**QUICK, **more}), environment)


def goes_on(endpoint, of, who, out):
    """Resumed, the run gets every answer, and the server has given none twice."""
    assert ask(of, who, out, resume=True).missing == []
    assert set(endpoint.answered.values()) == {1}
    assert len(endpoint.answered) == len(of) * len(who)


# ---------------------------------------------------------------- answers, faults, the budget


@pytest.mark.slow
def test_a_faulted_server_loses_no_answer_and_asks_none_twice(endpoint, tmp_path):
    """The server's own books are what is compared with."""
    endpoint.faults.extend(["429", "500", "hang", "no usage"])
    who = teachers(endpoint.url)
    found = ask(states(), who, tmp_path, timeout=HANG / 2, attempts=6)
    assert not found.missing
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
        assert KEY not in (tmp_path / name).read_text("utf-8")


@pytest.mark.parametrize(
    ("fault", "error", "paid"),
    [("400", "Error code: 400", False), ("{}", "TypeError", True), ("413 echo", "<key>", False)],
)
def test_a_call_without_an_answer_is_named_and_asked_again(endpoint, tmp_path, fault, error, paid):
    endpoint.faults.append(fault)
    with pytest.raises(Unfinished, match=r"1 calls had no answer, the first teacher 'teacher 0' at state 's0'"):
        ask(states(), teachers(endpoint.url), tmp_path, concurrency=1)
    found = read_answers(tmp_path)
    assert [(s.state_id, t.name) for s, t in found.missing] == [("s0", "teacher 0")]
    assert found.finding().status == "NOT_EVALUABLE"
    (lost,) = [a for a in found.lines if a.error]
    assert error in lost.error
    assert KEY[:8] not in lost.error
    assert lost.usd == (found.teachers[0].most_usd(states()[0]) if paid else 0)
    goes_on(endpoint, states(), teachers(endpoint.url), tmp_path)


@pytest.mark.slow
def test_concurrent_calls_stop_before_the_cap_and_the_run_goes_on_with_a_higher_one(endpoint, tmp_path):
    who = teachers(endpoint.url)
    most = max(who[0].most_usd(s) for s in states())
    cap = 3 * most
    with pytest.raises(Unfinished, match=r"budget: .*raise --budget and --resume"):
        ask(states(15), who, tmp_path, cap, concurrency=8)
    cut = read_answers(tmp_path)
    assert endpoint.most_at_once <= 3  # each holds its most
    assert cap - 1.1 * most < cut.usd <= cap
    assert 0 < len(cut.answers) < 30
    with pytest.raises(BadInput, match=r"--budget 1e-05: \$0\.00\d\d are spent"):
        ask(states(15), who, tmp_path, 0.00001, resume=True)
    goes_on(endpoint, states(15), who, tmp_path)


def test_an_answer_that_costs_more_than_was_reckoned_stops_the_run(endpoint, tmp_path):
    endpoint.faults.append(json.dumps(completion("model-0", "long", 5000, 5000)))
    with pytest.raises(Unfinished, match="overhead_tokens"):
        ask(states(8), teachers(endpoint.url, 1), tmp_path, concurrency=1)
    assert read_answers(tmp_path).answers["s0", "teacher 0"].usd == 0.055  # what it said, not what was held
    assert len(endpoint.seen) == 1


@pytest.mark.slow
def test_an_endpoint_that_stays_down_stops_the_run_and_it_resumes(endpoint, tmp_path):
    endpoint.faults.extend(["ok"] * 5)
    endpoint.down, who = "500", teachers(endpoint.url)
    with pytest.raises(Unfinished, match=r"teacher 'teacher \d' .*: 3 calls in a row had no answer.*--resume"):
        ask(states(10), who, tmp_path, attempts=1)
    assert len(read_answers(tmp_path).answers) == 5
    assert len(endpoint.seen) < 20  # not every call was tried
    endpoint.down = "ok"
    with (tmp_path / NAME).open("a") as f:  # a kill in the middle of a write
        f.write('{"state": "s9", "teac')
    goes_on(endpoint, states(10), who, tmp_path)


def test_a_key_that_is_refused_stops_at_once(endpoint, tmp_path):
    endpoint.down = "401"
    with pytest.raises(BadInput, match=r"Error code: 401.*mend its"):
        ask(states(40), teachers(endpoint.url), tmp_path)
    assert len(endpoint.seen) <= QUICK["concurrency"]


def test_a_finished_run_is_resumed_to_nothing_and_other_states_or_prices_are_another_run(endpoint, tmp_path):
    who = teachers(endpoint.url)
    ask(states(), who, tmp_path)
    goes_on(endpoint, states(), who, tmp_path)
    assert len(endpoint.seen) == 12
    for of, by in ((states(7), who), (states(), teachers(endpoint.url, usd_per_million_in=2.0))):
        with pytest.raises(BadInput, match="the run was started with"):
            ask(of, by, tmp_path, resume=True)


def test_each_endpoint_gets_its_own_key_and_one_without_none(endpoint, tmp_path, monkeypatch):
    """The client takes OPENAI_API_KEY from the environment where it is given none: it would go to a stranger."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    one, two, free = teachers(endpoint.url, 3)
    who = [one, dataclasses.replace(two, key_env="OTHER_KEY"), dataclasses.replace(free, key_env="")]
    ask(states(1), who, tmp_path, environment={**ENVIRONMENT, "OTHER_KEY": "sk-other-key"})
    keys = {body["model"]: key.removeprefix("Bearer ") for key, body in endpoint.seen}
    assert keys == {"model-0": KEY, "model-1": "sk-other-key", "model-2": "none"}
    with pytest.raises(BadInput, match="environment variable TEACHER_KEY is not set"):
        ask(states(1), teachers(endpoint.url), tmp_path / "none", environment={})


def test_an_answer_that_gives_the_prompt_back_is_none_and_one_may_quote_it():
    """As `transformers serve` does for a chat template that it does not know."""
    asked = (("system", "You write Python."), ("user", "Write f."))
    assert "response_template" in fault_of("You write Python.\nWrite f.\ndef f(): ...", asked)
    for text in ("def f(): ...", "Write f.", "You write Python. I do.", "Write f. You write Python."):
        assert fault_of(text, asked) == ""
    assert fault_of(" \n", asked) == "an empty text"


# ---------------------------------------------------------------- the price table

WELL = {"url": '"http://h:1/v1"', "model": '"m"', "usd_per_million_in": "1", "usd_per_million_out": "2.5"}


def toml(tmp_path, *tables):
    path = tmp_path / "teachers.toml"
    path.write_text("".join("[[teacher]]\n" + "".join(f"{k} = {v}\n" for k, v in t.items()) for t in tables))
    return path


@pytest.mark.parametrize(
    ("field", "value"),
    [("usd_per_million_out", None), ("usd_per_million_in", "-1"), ("api_key", f'"{KEY}"'), ("key_env", f'"{KEY}"'),
     ("url", f'"http://me:{KEY}@h/v1"')],
)  # fmt: skip
def test_a_bad_price_table_is_one_line_without_the_key(tmp_path, field, value):
    table = {k: v for k, v in {**WELL, field: value}.items() if v is not None}
    with pytest.raises(BadInput, match=rf"^.*teachers.toml: teacher\[0\].{field} (is|must) .*$") as refused:
        read_teachers(toml(tmp_path, table))
    assert KEY not in str(refused.value)


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
    """A fair, a slow, a dear and a cut folder. Sneaky fails: time and money of attempts that failed are left out."""

    def judged(*lines):
        (tmp_path / NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
        found = read_answers(tmp_path).finding()
        return found.status, found.why

    ask(states(20), teachers(endpoint.url), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()]
    lost = [{**line, "text": "", "error": "none", "usd": 0.0, "prompt_tokens": None} for line in lines]
    for said, status, words in (
        (judged(*lines), "PASS", ["$ per trace 0.0001 (needs < 5; 10 traces, $0.0015"]),
        (judged(*({**line, "seconds": 31.0} for line in lost), *lines), "FAIL", ["too slow"]),
        (judged({**lost[0], "usd": 60.0}, *lines), "FAIL", ["too dear", "above the cap"]),
        (judged(*lines[:-1]), "NOT_EVALUABLE", ["1 answers are missing"]),
    ):
        assert (said[0], [word for word in words if word not in said[1]]) == (status, [])
