"""The command: python -m loophole_grader."""

import functools
import gzip
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from loophole_grader.__main__ import main

PROBLEM = {"id": 1, "gt_answer": ["assert Solution().f(1) == 2"], "func_name": "Solution().f"}
RIGHT = "```python\nclass Solution:\n    def f(self, x):\n        return x + 1\n```"
WRONG = RIGHT.replace("+ 1", "+ 2")
LOOP = ["for x in [1]:\n    assert Solution().f(x)"]


@pytest.fixture
def write(tmp_path):
    def to(name, rows):
        lines = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        path = tmp_path / name
        path.write_bytes(gzip.compress(lines.encode()) if name.endswith(".gz") else lines.encode())
        return str(path)

    return to


def test_verdicts_come_in_order_on_stdout(write, capsys):
    path = write("rows.jsonl", [{"problem": PROBLEM, "completion": text} for text in (RIGHT, WRONG, "none")])
    assert main([path, "--workers", "1"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["label"], row["reward"], row["status"]) for row in rows] == [
        ("correct", 3.5, "ok"),
        ("incorrect", 0.5, "ok"),
        ("incorrect", 0.0, "no_code"),
    ]


def test_compressed_rows_with_problem_ids_go_to_a_file(write, tmp_path, capsys):
    rows = write("rows.jsonl.gz", [{"problem_id": 1, "completion": RIGHT}, {"problem_id": "1", "completion": WRONG}])
    out = tmp_path / "out.jsonl"
    assert main([rows, "--problems", write("problems.jsonl", [PROBLEM]), "--out", str(out)]) == 0
    assert [json.loads(line)["gt_pass"] for line in out.read_text().splitlines()] == [True, False]
    assert capsys.readouterr().out == ""
    assert main([rows, "--problems", "builtin"]) == 2
    assert "problem_id 1 is not in --problems" in capsys.readouterr().err


def test_rows_come_from_stdin_with_a_byte_order_mark():
    text = "\ufeff" + json.dumps({"problem": PROBLEM, "completion": "none"}) + "\n"
    argv = [sys.executable, "-m", "loophole_grader", "-"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["status"] == "no_code"


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{not json", ["rows.jsonl:2", "{not json"]),
        ("[1]", ["rows.jsonl:2", "[1]"]),
        ({"problem": PROBLEM}, ["rows.jsonl:2", "completion", "None"]),
        ({"completion": ""}, ["rows.jsonl:2", "problem_id"]),
        ({"problem_id": 9, "completion": ""}, ["rows.jsonl:2", "9", "--problems"]),
        ({"problem": {"id": 4}, "completion": ""}, ["rows.jsonl:2", "problem 4", "gt_answer"]),
        ({"problem": {**PROBLEM, "gt_answer": []}, "completion": ""}, ["rows.jsonl:2: task 1: it has no tests"]),
        ({"problem": {**PROBLEM, "id": 7, "gt_answer": LOOP}, "completion": ""}, ["rows.jsonl:2: task 7: test 0"]),
        ({"problem": {**PROBLEM, "id": 7, "setup_code": "1 / 0"}, "completion": ""}, ["rows.jsonl:2", "ZeroDivision"]),
    ],
)
def test_a_bad_row_is_one_line_that_names_it(write, tmp_path, capsys, row, named):
    path = write("rows.jsonl", [{"problem": PROBLEM, "completion": RIGHT}, row])
    out = tmp_path / "out.jsonl"
    assert main([path, "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert all(text in captured.err for text in named)
    assert captured.out == ""
    assert not out.exists()


def test_a_row_without_a_verdict_is_named_and_the_others_are_written(write, capsys, monkeypatch):
    monkeypatch.setattr("loophole_grader.__main__.check_tests", lambda *_, **__: None)  # it fails from now on only
    broken = {"problem": {**PROBLEM, "id": 2, "setup_code": "1 / 0"}, "completion": RIGHT}
    path = write("rows.jsonl", [{"problem": PROBLEM, "completion": RIGHT}, "", broken])  # the blank line counts
    assert main([path, "--workers", "1"]) == 1
    captured = capsys.readouterr()
    first, second = [json.loads(line) for line in captured.out.splitlines()]
    assert first["gt_pass"]
    assert (second["task_id"], "ZeroDivisionError" in second["error"]) == ("2", True)
    assert captured.err.startswith(f"error: {path}:3: no verdict: task 2: its setup_code fails")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_writes_no_verdict(write, tmp_path, number, code):
    busy = "```python\nimport time\ntime.sleep(50)\n```"
    rows = write("rows.jsonl", [{"problem": PROBLEM, "completion": text} for text in (busy, "none")])
    out = tmp_path / "out.jsonl"
    ours, theirs = pty.openpty()  # where progress is shown, it says when the other program is busy
    argv = [sys.executable, "-m", "loophole_grader", rows, "--workers", "2", "--out", str(out)]
    # A suite that runs in the background of a shell ignores SIGINT, and so would its children.
    heard = functools.partial(signal.signal, number, signal.SIG_DFL)
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=theirs, preexec_fn=heard)
    os.close(theirs)
    seen = b""
    while b"1 of 2" not in seen:
        seen += os.read(ours, 1000)
    process.send_signal(number)
    assert process.wait(timeout=30) == code
    os.close(ours)
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("surroundings", "code", "verdicts", "errors"),
    [
        ("trap '' CHLD; {}", 0, 1, 0),
        ("{} <&- 2>/dev/full", 0, 1, 0),
        ("{} >/dev/full", 2, 0, 1),
        ("{} - <&-", 2, 0, 1),
    ],
)
def test_streams_that_are_closed_or_full_and_an_ignored_sigchld(write, surroundings, code, verdicts, errors):
    path = write("rows.jsonl", [{"problem": PROBLEM, "completion": RIGHT}])
    rows = "" if " - " in surroundings else path
    command = surroundings.format(f"{sys.executable} -m loophole_grader --workers 1 {rows}")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.count("\n"), done.stderr.count("\n")) == (code, verdicts, errors), done
