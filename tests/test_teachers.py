"""Teachers behind a real local endpoint that fails in every way: each answer once, within the budget, no key in any file."""

import dataclasses
import gzip
import importlib.util
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import ROOT
from teacher_server import COMPLETION, HANG, PROMPT, completion, serving

from projected_grpo.ledger.errors import BadInput, Unfinished
from projected_grpo.ledger.folder import read_manifest, update_manifest
from projected_grpo.teachers.ask_all import ask_all
from projected_grpo.teachers.asking import Patience
from projected_grpo.teachers.history import history_of, journal_sha256, read_answers
from projected_grpo.teachers.journal import (
    NAME,
    Answered,
    Journal,
    Lost,
    Sent,
    Session,
    line_of,
    read_events,
)
from projected_grpo.teachers.local_server import NEEDED, free_port, served
from projected_grpo.teachers.price_table import Teacher, read_teachers
from projected_grpo.teachers.reply import Fault, reply_of, seconds_to_wait, without
from projected_grpo.teachers.states import State, read_states
from projected_grpo.verdicts.registry import CLAIMS
from projected_grpo.verdicts.teachers import Asked, p95

KEY = "sk-test-0123456789abcdefXYZ"
ENVIRONMENT = {"TEACHER_KEY": KEY}
QUICK = Patience(concurrency=4, timeout=10.0, attempts=6, backoff=0.01)
EVERY_FAULT = ["429", "500", "hang", "torn", "not json", "{}", '{"choices": []}', "drip", "key", "no usage"]


@pytest.fixture
def endpoint():
    with serving() as (found, url):
        found.url = url
        yield found


def states(n=6, per_trace=2):
    return [State(f"s{i}", f"t{i // per_trace}", (("system", "Be brief."), ("user", f"do {i}"))) for i in range(n)]


def teachers(url, n=2, **more):
    given = {"usd_per_million_in": Decimal(1), "usd_per_million_out": Decimal(10), "max_tokens": 8, **more}
    return [Teacher(f"teacher {i}", url, f"model-{i}", key_env="TEACHER_KEY", **given) for i in range(n)]


def ask(of, who, out, budget=1.0, patience=QUICK, environment=ENVIRONMENT, **more):
    return ask_all(of, who, out, budget, patience, environment, **more)


def billed_usd(endpoint, who):
    """What the server charges: every generation, whether or not its answer arrived."""
    return sum(endpoint.billed[t.model] * t.usd(PROMPT, COMPLETION) for t in who)


def assert_nowhere(folder, *secrets):
    """No byte of any file, packed or not, holds a secret, or half of one."""
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            for secret in secrets:
                assert secret.encode() not in data, path
                assert secret[:10].encode() not in data, path


# ---------------------------------------------------------------- faults


def test_a_faulted_server_loses_no_answer_and_asks_none_twice(endpoint, tmp_path):
    """Each fault in the way of some call; the server's own books are what is compared with."""
    endpoint.faults.extend(EVERY_FAULT)
    who = teachers(endpoint.url)
    worst = []
    budget = Decimal("0.02")
    endpoint.on_request = lambda _: worst.append(billed_usd(endpoint, who))
    found = ask(states(), who, tmp_path / "out", float(budget), dataclasses.replace(QUICK, timeout=HANG / 2))
    assert found.whole == ""
    assert {call: a.text for call, a in found.history.answers.items()} == {
        (s.state_id, t.name): f"I would {s.messages[-1][1]}" for s in states() for t in who
    }
    assert set(endpoint.answered.values()) == {1}
    assert max(worst) <= found.history.usd <= budget
    assert found.history.over_cap <= 0
    whys = " ".join(lost.why for losses in found.history.lost.values() for lost in losses)
    for told in ("HTTP 429", "HTTP 500", "no answer within", "connection lost", "no chat completion", "holds the key"):
        assert told in whys
    assert_nowhere(tmp_path, KEY)


def test_what_may_have_been_paid_for_is_counted_at_its_most(endpoint, tmp_path):
    endpoint.faults.extend(["429", "torn", "no usage"])
    who = teachers(endpoint.url, 1)
    [state] = states(1)
    found = ask([state], who, tmp_path / "out")
    most = who[0].most_usd(state)
    assert most == (len(b"systemBe brief.userdo 0") + 2 * 16 + 256 + 8 * 10) / Decimal(10**6)
    assert [lost.usd for lost in found.history.lost["s0", "teacher 0"]] == [0, most]  # a 429 generates nothing
    assert found.history.usd == found.asked().unknown_usd == 2 * most
    assert billed_usd(endpoint, who) <= found.history.usd


def test_retry_after_is_obeyed(endpoint, tmp_path):
    endpoint.faults.append("429")
    ask(states(1), teachers(endpoint.url, 1), tmp_path / "out")
    first, second = (at for at, _, _ in endpoint.seen)
    assert second - first >= 0.3 > 10 * QUICK.backoff


def test_the_waits_double(endpoint, tmp_path):
    endpoint.faults.extend(["500"] * 3)
    ask(states(1), teachers(endpoint.url, 1), tmp_path / "out", patience=dataclasses.replace(QUICK, backoff=0.1))
    times = [at for at, _, _ in endpoint.seen]
    waits = [b - a for a, b in itertools.pairwise(times)]
    assert [wait >= 0.1 * 2**i for i, wait in enumerate(waits)] == [True] * 3


def test_no_more_attempts_are_under_way_than_was_asked_for(endpoint, tmp_path):
    endpoint.on_request = lambda _: time.sleep(0.03)
    ask(states(8), teachers(endpoint.url), tmp_path / "out", patience=dataclasses.replace(QUICK, concurrency=3))
    assert endpoint.most_at_once == 3


def test_a_call_that_never_succeeds_is_named_and_the_rest_is_answered(endpoint, tmp_path):
    """A state that one endpoint refuses does not hold up the others."""
    endpoint.faults.append("400")
    with pytest.raises(
        Unfinished, match=r"1 calls had no answer, the first 'teacher 0' at state 's0': HTTP 400.*--resume"
    ):
        # One at a time: of several under way any may arrive first, and meet the fault.
        ask(states(), teachers(endpoint.url), tmp_path / "out", patience=dataclasses.replace(QUICK, concurrency=1))
    found = read_answers(tmp_path / "out")
    assert found.missing == [("s0", "teacher 0")]
    assert CLAIMS["teachers"].judged(found.asked()).status == "NOT_EVALUABLE"


# ---------------------------------------------------------------- the budget


@pytest.mark.parametrize("concurrency", [1, 8])
def test_concurrent_calls_stop_before_the_cap_and_the_run_goes_on_with_a_higher_one(endpoint, tmp_path, concurrency):
    who = teachers(endpoint.url)
    most = max(who[0].most_usd(s) for s in states())
    cap = float(3 * most)
    patience = dataclasses.replace(QUICK, concurrency=concurrency)
    instants = []
    endpoint.on_request = lambda _: (
        instants.append(endpoint.at_once * most + billed_usd(endpoint, who) * 0) or time.sleep(0.02)
    )
    with pytest.raises(Unfinished, match=r"budget: .*raise --budget and --resume"):
        ask(states(15), who, tmp_path / "out", cap, patience)
    cut = read_answers(tmp_path / "out")
    assert endpoint.most_at_once == min(concurrency, 3)  # each promised its most
    assert cut.history.over_cap <= 0
    assert Decimal(cap) - most < billed_usd(endpoint, who) <= Decimal(cap)
    assert 0 < len(cut.history.answers) < 30
    found = ask(states(15), who, tmp_path / "out", 1.0, patience, resume=True)
    assert found.whole == ""
    assert set(endpoint.answered.values()) == {1}
    assert len(endpoint.answered) == 30


def test_a_budget_that_is_spent_already_is_refused(endpoint, tmp_path):
    endpoint.faults.extend(["ok"] * 3 + ["400"])
    with pytest.raises(Unfinished):
        ask(states(2), teachers(endpoint.url), tmp_path / "out")
    asked = len(endpoint.seen)
    with pytest.raises(BadInput, match=r"--budget 0\.00001: \$0\.0001 are spent"):
        ask(states(2), teachers(endpoint.url), tmp_path / "out", 0.00001, resume=True)
    assert len(endpoint.seen) == asked


def test_an_answer_that_costs_more_than_was_reckoned_stops_the_run(endpoint, tmp_path):
    endpoint.faults.append(json.dumps(completion("model-0", "long", 5000, 5000)))
    with pytest.raises(Unfinished, match="overhead_tokens"):
        ask(states(8), teachers(endpoint.url, 1), tmp_path / "out", patience=dataclasses.replace(QUICK, concurrency=1))
    found = read_answers(tmp_path / "out")
    assert found.history.answers["s0", "teacher 0"].usd == Decimal("0.055")  # what it said, not what was held
    assert len(endpoint.seen) == 1


# ---------------------------------------------------------------- stopping and going on


@pytest.mark.parametrize("how", ["500", "429", "hang"])
def test_an_endpoint_that_stays_down_stops_the_run_and_it_resumes(endpoint, tmp_path, how):
    endpoint.faults.extend(["ok"] * 5)
    endpoint.down = how
    who = teachers(endpoint.url)
    patience = dataclasses.replace(QUICK, attempts=2, timeout=HANG / 2 if how == "hang" else QUICK.timeout)
    with pytest.raises(
        Unfinished, match=r"teacher 'teacher \d' at http://.*: 3 calls in a row had no answer.*--resume"
    ):
        ask(states(10), who, tmp_path / "out", patience=patience)
    assert len(read_answers(tmp_path / "out").history.answers) == 5
    assert len(endpoint.seen) < 5 + 2 * (2 * 3 + 4) + 1  # not every call was tried
    endpoint.down = None
    assert ask(states(10), who, tmp_path / "out", resume=True).whole == ""
    assert set(endpoint.answered.values()) == {1}
    assert len(endpoint.answered) == 20


def test_an_endpoint_that_is_not_there_costs_nothing(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}/v1"
    with pytest.raises(Unfinished, match="cannot connect"):
        ask(states(), teachers(url), tmp_path / "out", patience=dataclasses.replace(QUICK, attempts=2))
    assert read_answers(tmp_path / "out").history.usd == 0


def test_a_key_that_is_refused_stops_at_once(endpoint, tmp_path):
    endpoint.down = "401"
    with pytest.raises(BadInput, match=r"HTTP 401.*mend its key"):
        ask(states(40), teachers(endpoint.url), tmp_path / "out")
    assert len(endpoint.seen) <= QUICK.concurrency


ARGV = ("--states", "states.jsonl", "--teachers", "teachers.toml", "--budget", "1", "--out", "out", "--concurrency", "2",
        "--backoff", "0.01", "--timeout", "20")  # fmt: skip


@pytest.fixture
def command(endpoint, tmp_path):
    """The script as a process: (words after it) -> Popen."""
    rows = [{"state_id": s.state_id, "trace_id": s.trace_id,
             "messages": [{"role": r, "content": c} for r, c in s.messages]} for s in states(20)]  # fmt: skip
    (tmp_path / "states.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "teachers.toml").write_text(
        f'[[teacher]]\nname = "one"\nurl = "{endpoint.url}"\nmodel = "model-0"\nkey_env = "TEACHER_KEY"\nmax_tokens = 8\n'
        "usd_per_million_in = 1\nusd_per_million_out = 10.0\n"
    )
    argv = [sys.executable, ROOT / "scripts/ask_teachers.py", *ARGV]
    environment = {**os.environ, **ENVIRONMENT, "OPENAI_LOG": "debug"}

    def start(*more):
        return subprocess.Popen(
            [*map(str, argv), *more], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    return start


@pytest.mark.slow
def test_a_killed_run_asks_nothing_twice_and_pays_for_what_was_under_way(
    endpoint, command, script, monkeypatch, tmp_path
):
    """SIGKILL while two attempts are under way, SIGTERM in the second run, whole in the third."""
    hold = threading.Event()
    endpoint.on_request = lambda _: hold.wait(30) if len(endpoint.seen) > 6 else None
    process = command()
    wait_for(lambda: len(endpoint.seen) == 8, process)
    process.kill()
    process.communicate()
    cut = read_answers(tmp_path / "out")
    assert len(cut.history.answers) == 6
    assert cut.asked().unknown_usd == sum(cut.teachers[0].most_usd(s) for s in states(20)[6:8])
    with (tmp_path / "out" / NAME).open("ab") as f:  # a kill in the middle of a write
        f.write(gzip.compress(line_of(Lost(0, Decimal(0), "x", 1.0)))[:-5])

    hold.set()
    slowly = threading.Event()
    endpoint.on_request = lambda _: slowly.wait(0.3)
    process = command("--resume")
    wait_for(lambda: len(endpoint.seen) == 12, process)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate()
    assert process.returncode == 130, told
    assert "torn by a kill" in told
    assert KEY not in told  # the client's own log at its most talkative is in it
    assert "continue with --resume" in told.splitlines()[-1]
    answered = len(read_answers(tmp_path / "out").history.answers)
    assert answered == len(endpoint.seen) - 2  # what was under way was waited for, and nothing was sent after it

    slowly.set()
    monkeypatch.setenv("TEACHER_KEY", KEY)
    code, told, err = script("ask_teachers", *ARGV, "--resume")
    assert code == 0, err
    found = read_answers(tmp_path / "out")
    assert found.whole == ""
    assert len(endpoint.seen) == 20 + 2  # the two that the kill cut off were asked again, nothing else
    assert KEY not in told
    assert_nowhere(tmp_path, KEY)
    assert "argv: scripts/ask_teachers.py" in told.splitlines()[-1]
    assert "NOT_EVALUABLE" not in told  # 20 states: it is judged


def wait_for(true, process, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_finished_run_is_resumed_to_nothing_and_not_overwritten(endpoint, tmp_path):
    who = teachers(endpoint.url)
    ask(states(), who, tmp_path / "out")
    before = (tmp_path / "out" / NAME).read_bytes()
    assert ask(states(), who, tmp_path / "out", resume=True).whole == ""
    assert (tmp_path / "out" / NAME).read_bytes() == before
    with pytest.raises(BadInput, match="never overwritten"):
        ask(states(), who, tmp_path / "out")


def test_other_states_or_prices_are_another_run(endpoint, tmp_path):
    who = teachers(endpoint.url)
    ask(states(), who, tmp_path / "out")
    for of, by in ((states(7), who), (states(), teachers(endpoint.url, usd_per_million_in=Decimal(2)))):
        with pytest.raises(BadInput, match="the run was started with"):
            ask(of, by, tmp_path / "out", resume=True)


def test_two_processes_do_not_ask_into_one_folder(tmp_path):
    """Each would keep within the cap, and both together pass it."""
    with Journal(tmp_path / NAME), pytest.raises(BadInput, match="another process"):
        Journal(tmp_path / NAME)


def test_a_full_disk_is_one_line_and_leaves_the_file_whole(endpoint, tmp_path, monkeypatch):
    real, calls = os.fsync, []

    def full(number):
        calls.append(number)
        if len(calls) > 6:
            raise OSError(28, "No space left on device")
        real(number)

    who = teachers(endpoint.url)
    monkeypatch.setattr("projected_grpo.teachers.journal.os.fsync", full)
    with pytest.raises(BadInput, match=r"calls.jsonl.gz: No space left on device; free some space"):
        ask(states(), who, tmp_path / "out", patience=dataclasses.replace(QUICK, concurrency=1))
    monkeypatch.undo()
    assert ask(states(), who, tmp_path / "out", resume=True).whole == ""


# ---------------------------------------------------------------- keys


def test_each_endpoint_gets_its_own_key_and_one_without_none(endpoint, tmp_path, monkeypatch):
    """The client takes OPENAI_API_KEY from the environment where it is given none: it would go to a stranger."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    one, two, free = teachers(endpoint.url, 3)
    who = [one, dataclasses.replace(two, key_env="OTHER_KEY"), dataclasses.replace(free, key_env="")]
    ask(states(1), who, tmp_path / "out", environment={**ENVIRONMENT, "OTHER_KEY": "sk-other-key"})
    assert {body["model"]: key for _, key, body in endpoint.seen} == {
        "model-0": f"Bearer {KEY}",
        "model-1": "Bearer sk-other-key",
        "model-2": "Bearer none",
    }


def test_an_error_that_repeats_the_key_is_written_without_it(endpoint, tmp_path):
    """Also where shortening it would leave the first half of the key."""
    endpoint.faults.append("413 echo")
    with pytest.raises(Unfinished) as stopped:
        ask(states(1), teachers(endpoint.url, 1), tmp_path / "out")
    assert KEY[:8] not in str(stopped.value)
    assert_nowhere(tmp_path, KEY)
    assert without(f"{KEY} {KEY}2", (f"{KEY}2", KEY)) == "<key> <key>"


@pytest.mark.parametrize("value", ["", " ", f"{KEY}\n", f"{KEY} ", "sk-ключ-0123"])
def test_a_key_that_is_missing_or_cannot_be_sent_is_refused_unseen(endpoint, tmp_path, value):
    with pytest.raises(BadInput, match="environment variable TEACHER_KEY") as refused:
        ask(states(1), teachers(endpoint.url), tmp_path / "out", environment={"TEACHER_KEY": value})
    assert "sk-" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_key_in_a_state_or_in_the_table_is_refused_unseen(endpoint, tmp_path):
    """A state goes to every teacher, and both are written down."""
    leaky = [State("s0", "t0", (("user", f"my key is {KEY}"),))]
    for of, by in (
        (leaky, teachers(endpoint.url)),
        (states(), [dataclasses.replace(teachers(endpoint.url)[0], model=KEY)]),
    ):
        with pytest.raises(BadInput, match="take it out") as refused:
            ask(of, by, tmp_path / "out")
        assert KEY not in str(refused.value)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- the price table and the states

WELL = {"url": '"http://h:1/v1"', "model": '"m"', "usd_per_million_in": "1", "usd_per_million_out": "2.5"}


def toml(tmp_path, *tables):
    path = tmp_path / "teachers.toml"
    path.write_text("".join("[[teacher]]\n" + "".join(f"{k} = {v}\n" for k, v in t.items()) for t in tables))
    return path


def test_prices_are_exact(tmp_path):
    [teacher] = read_teachers(toml(tmp_path, {**WELL, "usd_per_million_in": "0.1"}))
    assert 3 * teacher.usd(1_000_000, 0) == Decimal("0.3")
    assert teacher.usd(1000, 2000) == Decimal("0.0051")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"usd_per_million_out": None}, "'m' has no price; add the line usd_per_million_out ="),
        ({"usd_per_million_in": "-1"}, "usd_per_million_in = -1"),
        ({"usd_per_million_in": "1e999999"}, "must be a number from 0 to 1000000"),
        ({"temperature": "1e400"}, "must be a number from 0 to 1000000"),
        ({"url": '"http://[v1.x]/v1"'}, "url is no address"),
        ({"url": '"http://h/v1\\u007f"'}, "url is no address"),
        ({"url": '"http://\\u2100.com/v1"'}, "url is no address"),
        ({"url": '"http://a..b/v1"'}, "url is no address"),
        ({"usd_per_million_in": "nan"}, "usd_per_million_in = NaN"),
        ({"usd_per_million_in": "true"}, "usd_per_million_in = True"),
        ({"api_key": f'"{KEY}"'}, "api_key looks like a key; keys are never in a file"),
        ({"token": f'"{KEY}"'}, "token looks like a key"),
        ({"key_env": f'"{KEY}"'}, "key_env is no name of an environment variable"),
        ({"url": f'"http://me:{KEY}@h/v1"'}, "url holds a user"),
        ({"url": f'"http://h/v1?api={KEY}"'}, "url holds a user"),
        ({"url": f'"https://h/{KEY}/v1"'}, "url's path holds what looks like a key"),
        ({"url": '"https://h/9f8e7d6c5b4a39281706f5e4d3c2b1a0/v1"'}, "url's path holds what looks like a key"),
        ({"url": '"h:1/v1"'}, "url is no address"),
        ({"model": None}, "no model"),
        ({"max_tokens": "0"}, "max_tokens = 0"),
        ({"max_token": "9"}, "unknown field max_token"),
        ({"n": "4"}, "unknown field n"),
    ],
)
def test_a_bad_price_table_is_one_line_without_the_key(tmp_path, change, told):
    table = {k: v for k, v in {**WELL, **change}.items() if v is not None}
    if "max_token" in change:
        told = "max_token"
    with pytest.raises(BadInput) as refused:
        read_teachers(toml(tmp_path, table))
    assert told in str(refused.value)
    assert "teachers.toml" in str(refused.value)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "urls",
    [("http://h:1/v1", "http://h:1/v1/"), ("http://127.0.0.1:8/v1", "http://localhost:8/v1"),
     ("http://h:1/v1", "http://H.:1/v1/."), ("http://h/v1", "http://h:80/x/../v1"), ("http://[::1]:8/v1", "http://localhost:8/v1")],
)  # fmt: skip
def test_one_model_has_one_vote(tmp_path, urls):
    one, again = ({**WELL, "name": f'"{name}"', "url": f'"{url}"'} for name, url in zip("ab", urls, strict=True))
    with pytest.raises(BadInput, match="two votes"):
        read_teachers(toml(tmp_path, one, again))


@pytest.mark.parametrize(
    "path", ["api/v1", "openai/deployments/gpt-4o-mini-2024-07-18", "projects/my-first-project-2026/v1"]
)
def test_a_path_without_a_key_is_none(tmp_path, path):
    assert read_teachers(toml(tmp_path, {**WELL, "url": f'"https://h/{path}"'}))


@pytest.mark.parametrize("field", ["state_id", "trace_id"])
def test_a_key_in_a_states_name_is_refused_and_not_repeated(tmp_path, field):
    state = dataclasses.replace(states(1)[0], **{field: f"x {KEY}"})
    with pytest.raises(BadInput, match="stands in a state_id or trace_id") as refused:
        ask([state], teachers("http://127.0.0.1:1/v1"), tmp_path / "out")
    assert KEY not in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"trace_id": ""}, "trace_id is ''"),
        ({"messages": []}, "messages is []"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "speaks last"),
        ({"messages": [{"role": "user", "content": "x", "name": "z"}]}, "role and content are expected"),
        ({"messages": [{"role": "oracle", "content": "x"}]}, "role 'oracle'"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "surrogate"),
    ],
)
def test_a_bad_state_is_named_with_its_row(tmp_path, row, told):
    good = {"state_id": "a", "trace_id": "t", "messages": [{"role": "user", "content": "x"}]}
    path = tmp_path / "states.jsonl"
    path.write_text(f"{json.dumps(good)}\n{json.dumps({**good, 'state_id': 'b', **row})}\n")
    with pytest.raises(BadInput) as refused:
        read_states(path)
    assert f"{path} row 2" in str(refused.value)
    assert told in str(refused.value)


def test_a_state_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "states.jsonl"
    path.write_text(
        2 * (json.dumps({"state_id": "a", "trace_id": "t", "messages": [{"role": "user", "content": "x"}]}) + "\n")
    )
    with pytest.raises(BadInput, match="'a' is there 2 times"):
        read_states(path)


# ---------------------------------------------------------------- what an endpoint says


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"null", b'{"choices": [null]}', b'{"choices": [{"message": {"content": null}}]}',
     json.dumps(completion("m", " \n")).encode(), json.dumps(completion("m", "\ud800")).encode(), b"[" * 100_000,
     json.dumps({**completion("m", "x"), "choices": {}}).encode()],
)  # fmt: skip
def test_what_is_no_answer_is_a_fault_that_may_have_been_paid_for(body):
    with pytest.raises(Fault) as fault:
        reply_of(body, ())
    assert fault.value.paid
    assert fault.value.again


ASKED = (("system", "You write Python."), ("user", "Write f. It will be evaluated by calling run_tests()."))


@pytest.mark.parametrize("between", ["", "\n", "<|im_end|>\n<|im_start|>user\n"])
def test_an_answer_that_gives_the_prompt_back_is_none(between):
    """As `transformers serve` does for a chat template that it does not know; asked again it would be the same."""
    echo = between.join(["", *(content for _, content in ASKED), "def f(): ..."])
    with pytest.raises(Fault, match=r"begins with the prompt.*response_template") as fault:
        reply_of(json.dumps(completion("m", echo)).encode(), (), ASKED)
    assert fault.value.paid
    assert not fault.value.again


@pytest.mark.parametrize(
    "text",
    ["def f(): ...", ASKED[1][1], "You write Python. I do.", ASKED[1][1] + ASKED[0][1]],
)
def test_an_answer_may_quote_what_it_was_asked(text):
    assert reply_of(json.dumps(completion("m", text)).encode(), (), ASKED).text == text


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": 5}, {"prompt_tokens": 0, "completion_tokens": 1},
     {"prompt_tokens": 5, "completion_tokens": 0}, {"prompt_tokens": True, "completion_tokens": 1},
     {"prompt_tokens": 5.0, "completion_tokens": 1}],
)  # fmt: skip
def test_tokens_that_cannot_be_are_not_believed(usage):
    assert reply_of(json.dumps({**completion("m", "x"), "usage": usage}).encode(), ()).usage is None


def test_seconds_to_wait():
    assert seconds_to_wait("1.5") == 1.5
    assert seconds_to_wait("Mon, 01 Jan 2001 00:00:00 GMT") == 0
    assert seconds_to_wait("Fri, 01 Jan 2100 00:00:00 GMT") > 1e9
    assert [seconds_to_wait(odd) for odd in (None, "", "soon", "nan", "inf")] == [None] * 5
    for year, zone in (("99999999999999999999", "GMT"), ("9999", "+9999"), ("2030", "+99999999999999")):
        assert seconds_to_wait(f"Mon, 01 Jan {year} 00:00:00 {zone}") in (None, pytest.approx(2.5e11, rel=0.1))


# ---------------------------------------------------------------- the file


def events(tmp_path, *of):
    path = tmp_path / NAME
    path.write_bytes(b"".join(gzip.compress(line_of(e), mtime=0) for e in of))
    return path


PATH = Path("calls")
BEGIN = Session(Decimal(1), "now")
SENT = Sent(0, "s0", "a", Decimal("0.1"), 1.0)
DONE = Answered(0, Decimal("0.01"), "x", "stop", "m", 1, 1, 2.0)


def test_damage_is_named_with_its_byte_and_a_torn_end_is_cut(tmp_path):
    path = events(tmp_path, BEGIN, SENT, DONE)
    data = path.read_bytes()
    first = len(gzip.compress(line_of(BEGIN), mtime=0))
    path.write_bytes(data[: first + 30] + b"\xff" + data[first + 31 :])
    with pytest.raises(BadInput, match=f"damaged at byte {first} .*truncate -s {first}"):
        read_events(path)
    path.write_bytes(data[:-3])
    with Journal(path) as journal:
        assert journal.events == [BEGIN, SENT]
        journal.write(DONE)
    assert read_events(path) == ([BEGIN, SENT, DONE], len(data))


@pytest.mark.parametrize(
    "of",
    [
        [SENT],
        [BEGIN, DONE],
        [BEGIN, SENT, DONE, DONE],
        [BEGIN, SENT, DONE, dataclasses.replace(SENT, attempt=1)],
        [BEGIN, SENT, dataclasses.replace(SENT, attempt=1)],
        [BEGIN, dataclasses.replace(SENT, attempt=1)],
    ],
    ids=["no session", "never sent", "answered twice", "asked after its answer", "asked twice at once", "one is gone"],
)
def test_a_journal_that_no_run_writes_is_refused(tmp_path, of):
    with pytest.raises(BadInput, match="not as it was written"):
        history_of(of, tmp_path)


def test_seconds_run_from_the_first_attempt_and_leave_out_the_time_between_sessions():
    """Session 1: sent at 1, lost at 4, sent again at 5, killed; the last that it wrote is at 9. Session 2: 100 to 102.5."""
    other = Sent(2, "s1", "a", Decimal("0.1"), 9.0)
    found = history_of(
        [BEGIN, SENT, Lost(0, Decimal(0), "no", 4.0), dataclasses.replace(SENT, attempt=1, at=5.0), other, BEGIN,
         dataclasses.replace(SENT, attempt=3, at=100.0), dataclasses.replace(DONE, attempt=3, at=102.5)],
        PATH,
    )  # fmt: skip
    assert found.seconds["s0", "a"] == (9 - 1) + 2.5
    assert found.usd == Decimal("0.1") * 2 + Decimal("0.01")  # two were under way when it was killed


def test_the_cap_is_held_against_what_is_promised_too():
    """Two attempts that each fit under .15, sent together."""
    small = dataclasses.replace(BEGIN, budget=Decimal("0.15"))
    both = [small, SENT, dataclasses.replace(SENT, attempt=1, state="s1"), DONE, dataclasses.replace(DONE, attempt=1)]
    assert history_of(both, PATH).over_cap == Decimal("0.05")
    later = [dataclasses.replace(e, at=e.at + 5) for e in (both[2], both[4])]
    assert history_of([small, SENT, DONE, *later], PATH).over_cap == Decimal("-0.04")


# ---------------------------------------------------------------- the verdict

FAIR = Asked("", 10, [1.0] * 38 + [29.9, 100.0], Decimal("49.99"), Decimal(0), (), {"a": frozenset({"m"})}, Decimal(-1))


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({}, "PASS", "$ per trace 4.9990"),
        ({"usd": Decimal(50)}, "FAIL", "too dear"),
        ({"seconds": [1.0] * 37 + [30.0] * 3}, "FAIL", "too slow"),
        ({"seconds": [1.0] * 38 + [30.0] * 2}, "PASS", "p95 per state 1.00"),
        ({"models": {"a": frozenset({"m", "m2"})}}, "FAIL", "a answered as m, m2"),
        ({"over_cap": Decimal("0.01")}, "FAIL", "above the cap"),
        ({"whole": "3 answers are missing"}, "NOT_EVALUABLE", "3 answers are missing"),
        ({"seconds": [1.0] * 19}, "NOT_EVALUABLE", "19 states"),
        ({"seconds": [99.0] * 3}, "NOT_EVALUABLE", "3 states"),
        ({"whole": "not finished", "usd": Decimal(50)}, "NOT_EVALUABLE", "too dear"),
        ({"free": ("a",)}, "NOT_EVALUABLE", "priced 0: a"),
        ({"free": ("a",), "usd": Decimal(50)}, "FAIL", "too dear"),
        ({"seconds": [], "traces": 0, "usd": Decimal(0)}, "NOT_EVALUABLE", "0 states"),
    ],
)
def test_the_verdict_and_what_turns_it_red(change, status, told):
    found = CLAIMS["teachers"].judged(dataclasses.replace(FAIR, **change))
    assert (found.name, found.status) == ("teachers", status)
    assert told in found.why


def test_p95_is_the_nearest_rank():
    assert p95([float(i) for i in range(1, 101)]) == 95
    assert p95([float(i) for i in range(20, 0, -1)]) == 19


def test_the_verdict_is_of_the_files_alone(endpoint, tmp_path, script):
    """Slow, dear and edited folders, judged through the script."""
    ask(states(20), teachers(endpoint.url), tmp_path / "out")
    code, told, _ = script("judge_teachers", "out")
    assert (code, "🟢 PASS: $ per trace 0.0001 (needs < 5; 10 traces, $0.0015" in told) == (0, True), told
    path = tmp_path / "out" / NAME
    of, _ = read_events(path)
    shift, slow = 0, []
    for e in of:
        shift += 31 * isinstance(e, Answered)
        slow.append(dataclasses.replace(e, at=e.at + shift))
    path.write_bytes(b"".join(gzip.compress(line_of(e)) for e in slow))
    code, told, _ = script("judge_teachers", "out")
    assert (code, "not the file that the run ended with" in told) == (3, True), told
    update_manifest(tmp_path / "out", journal_sha256=journal_sha256(tmp_path / "out"))
    code, told, _ = script("judge_teachers", "out")
    assert (code, "too slow" in told) == (1, True), told
    path.write_bytes(b"".join(gzip.compress(line_of(e)) for e in of[:-2]))
    assert script("judge_teachers", "out")[0] == 3
    update_manifest(tmp_path / "out", states_hash="other")
    code, _, err = script("judge_teachers", "out")
    assert (code, err.count("\n"), "states_hash" in err) == (2, 1, True)
    assert read_manifest(tmp_path / "out")["kind"] == "teachers"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m: m["teachers"][0].update(usd_per_million_in="3"), "cost $0.000037, by the prices in manifest.json"),
        (lambda m: m["teachers"].append(m["teachers"][0]), "two teachers are called 'teacher 0'"),
        (lambda m: m["teachers"].append({**m["teachers"][0], "name": "x"}), "are one model, which would have two votes"),
        (lambda m: m["teachers"][0].update(usd_per_million_in="abc"), "its teachers are damaged"),
        (lambda m: m["teachers"][0].update(usd_per_million_in="-1"), "its teachers are damaged"),
        (lambda m: m["teachers"][0].update(secret=1), "its teachers are damaged"),
        (lambda m: m["teachers"][0].pop("name"), "its teachers are damaged"),
        (lambda m: m.update(teachers=None), "its teachers are damaged"),
        (lambda m: m.pop("teachers"), "its teachers are damaged"),
        (lambda m: m.pop("states_hash"), "not the states that were asked about"),
    ],
)  # fmt: skip
def test_a_manifest_that_was_edited_is_refused(endpoint, tmp_path, change, why):
    """A price that was put in afterwards made PASS of NOT_EVALUABLE; a teacher that stood thrice was a majority."""
    ask(states(2), teachers(endpoint.url), tmp_path / "out")
    path = tmp_path / "out/manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match=re.escape(why)) as refused:
        read_answers(tmp_path / "out")
    assert "out" in str(refused.value)


@pytest.mark.parametrize(
    ("event", "change"),
    [
        (2, {"at": float("nan")}), (2, {"at": -5}), (2, {"at": 0}), (2, {"text": 5}), (2, {"text": "\ud800"}),
        (2, {"model": None}), (2, {"prompt_tokens": -1}), (2, {"finish": ["a"]}), (1, {"state": 5}),
        (1, {"usd": "1e999999"}),
        (0, {"budget": "1e999999"}), (1, {"attempt": None}),
    ],
)  # fmt: skip
def test_an_event_of_other_types_or_times_is_refused(tmp_path, event, change):
    path = tmp_path / NAME
    rows = [json.loads(line_of(e)) for e in (BEGIN, SENT, dataclasses.replace(DONE, at=SENT.at + 1))]
    rows[event] |= change
    path.write_bytes(b"".join(gzip.compress((json.dumps(row) + "\n").encode()) for row in rows))
    with pytest.raises(BadInput, match=r"damaged at byte|not as it was written"):
        history_of(read_events(path)[0], path)


@pytest.mark.parametrize("spelled", ["Authorization", "authorization"])
def test_what_the_environment_says_of_one_provider_goes_to_no_other(endpoint, tmp_path, monkeypatch, spelled):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-another")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-another")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Secret: another\n{spelled}: Bearer another")
    ask(states(1), teachers(endpoint.url, 1), tmp_path / "out")
    [headers] = endpoint.headers
    assert "another" not in str(headers)
    assert {name.lower(): value for name, value in headers.items()}["authorization"] == f"Bearer {KEY}"


# ---------------------------------------------------------------- a real model


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED), reason="the extra `teachers` is not installed"
)
def test_a_real_server_is_started_asked_and_stopped(script, cache, tmp_path):
    """`transformers serve` with a tiny model that answers, by the recipe's own script, asked while it is up."""
    rows = [
        {"state_id": f"s{i}", "trace_id": "t", "messages": [{"role": "user", "content": f"do {i}"}]} for i in range(2)
    ]
    (tmp_path / "states.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ask_it = (sys.executable, ROOT / "scripts/ask_teachers.py", "--states", "states.jsonl", "--teachers", "t.toml",
              "--budget", 0, "--out", "out", "--timeout", 120)  # fmt: skip
    port, its_files = free_port(), ("--table", "t.toml", "--log", "log")
    code, told, err = script(
        "serve_teacher", "tiny-answering", "--port", port, "--cache", cache, *its_files, "--", *ask_it
    )
    assert code == 0, told + err + (tmp_path / "log").read_text()
    found = read_answers(tmp_path / "out")
    assert found.whole == ""
    [teacher] = found.teachers
    assert all(a.text and a.prompt_tokens > 0 and a.completion_tokens > 0 for a in found.history.answers.values())
    assert all(a.prompt_tokens <= teacher.most_prompt_tokens(s) for s in found.states for a in found.answers_to(s))
    assert CLAIMS["teachers"].judged(found.asked()).status == "NOT_EVALUABLE"  # two states, and it is free
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_that_is_taken_is_named(endpoint, tmp_path):
    port = int(endpoint.url.split(":")[2].split("/")[0])
    with (
        pytest.raises(BadInput, match=rf"--port {port}: cannot be listened on"),
        served([tmp_path], port, tmp_path / "log"),
    ):
        pass


# ---------------------------------------------------------------- the page


def test_the_page_s_files_are_read_and_its_example_prints_what_it_says(endpoint, tmp_path, monkeypatch, capsys):
    """docs/teachers.md: the state, the price table, then the reader, against a server."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```(\w+)\n(.*?)^```$", (ROOT / "docs/teachers.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert [language for language, _ in blocks] == ["json", "toml", "python", "text"]
    row, table, code, said = (text for _, text in blocks)
    Path("states.jsonl").write_text(row)
    Path("teachers.toml").write_text(table.replace("http://127.0.0.1:8000/v1", endpoint.url))
    endpoint.says = "read the error"
    ask(read_states(Path("states.jsonl")), read_teachers(Path("teachers.toml")), Path("out/answers"))
    capsys.readouterr()
    exec(compile(code, "docs/teachers.md", "exec"), {})
    assert capsys.readouterr().out == said
    assert {"max_tokens", "max_completion_tokens"} == {
        k for _, _, body in endpoint.seen for k in body if k.startswith("max")
    }
