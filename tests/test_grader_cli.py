"""The command: python -m loophole_grader."""

import gzip
import io
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from loophole_grader.__main__ import main

PROBLEM = {
    "id": 1,
    "gt_answer": ["assert Solution().f(1) == 2"],
    "setup_code": "",
    "func_name": "Solution().f",
    "canonical_solution": "",
}
RIGHT = "```python\nclass Solution:\n    def f(self, x):\n        return x + 1\n```"
WRONG = RIGHT.replace("+ 1", "+ 2")


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


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_byte_order_mark_at_the_start_is_no_part_of_the_rows(write, capsys, name):
    path = write(name, ["\ufeff" + json.dumps({"problem": PROBLEM, "completion": "none"})])
    assert main([path]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "no_code"


def test_a_problem_that_no_program_can_solve_is_named_before_anything_is_judged(write, capsys):
    bad = [{**PROBLEM, "id": 2, "gt_answer": []}, {**PROBLEM, "id": 3, "canonical_solution": "def ("}]
    rows = [{"problem": problem, "completion": RIGHT} for problem in (PROBLEM, *bad)]
    assert main([write("rows.jsonl", rows)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, *lines = captured.err.splitlines()
    assert first == "error: 2 faults in the problems:"
    assert ["rows.jsonl:2: task 2: it has no tests" in lines[0], "rows.jsonl:3: task 3: its" in lines[1]] == [
        True,
        True,
    ]


def test_compressed_rows_with_problem_ids_go_to_a_file(write, tmp_path, capsys):
    rows = write("rows.jsonl.gz", [{"problem_id": 1, "completion": RIGHT}, {"problem_id": "1", "completion": WRONG}])
    out = tmp_path / "out.jsonl"
    assert main([rows, "--problems", write("problems.jsonl", [PROBLEM]), "--out", str(out)]) == 0
    assert [json.loads(line)["gt_pass"] for line in out.read_text().splitlines()] == [True, False]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{not json", ["rows.jsonl:2", "{not json"]),
        ("[1]", ["rows.jsonl:2", "[1]"]),
        ({"problem": PROBLEM}, ["rows.jsonl:2", "completion", "None"]),
        ({"problem": PROBLEM, "completion": 5}, ["rows.jsonl:2", "completion", "5"]),
        ({"problem": 3, "completion": ""}, ["rows.jsonl:2", "problem", "3"]),
        ({"completion": ""}, ["rows.jsonl:2", "problem_id"]),
        ({"problem_id": 9, "completion": ""}, ["rows.jsonl:2", "9", "--problems"]),
        ({"problem": {"id": 4}, "completion": ""}, ["rows.jsonl:2", "problem 4", "gt_answer"]),
        (
            {"problem": {**PROBLEM, "prompt_metadata": [1]}, "completion": ""},
            ["rows.jsonl:2", "prompt_metadata", "object"],
        ),
        ({"problem_id": [1], "completion": ""}, ["rows.jsonl:2", "problem_id", "text or a whole number", "[1]"]),
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


def test_an_unknown_problem_id_is_named(write, capsys):
    rows = write("rows.jsonl", [{"problem_id": 9, "completion": ""}])
    assert main([rows, "--problems", write("problems.jsonl", [PROBLEM])]) == 2
    assert "rows.jsonl:1" in (err := capsys.readouterr().err)
    assert "9" in err


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.jsonl.gz"])
def test_a_file_that_is_not_there_is_named(tmp_path, capsys, name):
    assert main([str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


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


def test_tests_that_cannot_be_judged_are_listed_before_anything_is_judged(write, capsys):
    bad = [{**PROBLEM, "id": n, "gt_answer": ["for x in [1]:\n    assert Solution().f(x)"]} for n in (2, 3)]
    rows = [{"problem": problem, "completion": RIGHT} for problem in (PROBLEM, *bad)]
    assert main([write("rows.jsonl", rows)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [f"rows.jsonl:{n}: task {n}: test 0" in captured.err for n in (1, 2, 3)] == [False, True, True]
    assert captured.err.count("write assert Solution().f(ARGUMENTS) == VALUE in literals") == 2


# ---- where the verdicts go, and where the rows come from


def test_rows_come_from_stdin(capsys, monkeypatch):
    text = json.dumps({"problem": PROBLEM, "completion": "none"}) + "\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(("\ufeff" + text).encode())))
    assert main(["-"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "no_code"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((text + "{").encode())))
    assert main(["-"]) == 2
    assert capsys.readouterr().err.startswith("error: stdin:2: '{' is not JSON")
    assert main(["-", "--problems", "-"]) == 2
    assert "stdin is read once" in capsys.readouterr().err


def test_builtin_names_the_problems_that_ship_with_the_grader(write, capsys, monkeypatch, tmp_path):
    rows = write("rows.jsonl", [{"problem_id": 900001, "completion": "none"}])
    assert main([rows, "--problems", "builtin"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "no_code"
    (tmp_path / "builtin").write_text(json.dumps(PROBLEM))
    monkeypatch.chdir(tmp_path)
    assert main([rows, "--problems", "builtin"]) == 2  # a file of that name is meant first
    assert "problem_id 900001 is not in --problems builtin" in capsys.readouterr().err


# ---- lines that help


def test_solutions_that_fail_their_own_tests_are_named(write, capsys, caplog):
    wrong = {**PROBLEM, "canonical_solution": "class Solution:\n    def f(self, x):\n        return 0"}
    rows = write("rows.jsonl", [{"problem": wrong, "completion": RIGHT}])
    assert main([rows, "--workers", "1"]) == 0
    assert caplog.messages == []
    assert main([rows, "--workers", "1", "--check-solutions"]) == 0
    assert [line.partition(" (")[0] for line in caplog.messages] == [
        "task 1: its canonical solution passes 0 of 1 tests"
    ]
    assert json.loads(capsys.readouterr().out.splitlines()[1])["gt_pass"]


# ---- in a process of its own


def started(*args, **kw):
    argv = [sys.executable, "-m", "loophole_grader", *args]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **kw}
    heard = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731  a shell's background job is deaf to it
    return subprocess.Popen(argv, preexec_fn=heard, **options)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_is_one_line(write, tmp_path, number, code):
    busy = "```python\nimport time\ntime.sleep(50)\n```"
    rows = write("rows.jsonl", [{"problem": PROBLEM, "completion": text} for text in (busy, "none")])
    out = tmp_path / "out.jsonl"
    ours, theirs = pty.openpty()  # where progress is shown, it says when the other program is busy
    process = started(rows, "--workers", "2", "--out", str(out), stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"1 of 2" not in seen:
        seen += os.read(ours, 1000)
    process.send_signal(number)
    assert process.wait(timeout=30) == code
    seen += os.read(ours, 10_000)
    os.close(ours)
    assert seen.decode().splitlines()[-1] == (
        f"error: interrupted after 1 of 2 completions: no verdict is written ({signal.Signals(number).name})"
    )
    assert not out.exists()


def test_a_reader_that_has_seen_enough_is_no_error(write):
    rows = write("rows.jsonl", [{"problem": PROBLEM, "completion": "none"}])
    read, end = os.pipe()
    os.close(read)
    process = started(rows, stdout=end)
    os.close(end)
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0


def test_progress_is_shown_on_a_terminal_alone(write, capsys, monkeypatch):
    rows = write("rows.jsonl", [{"problem": PROBLEM, "completion": "none"}] * 2)
    assert main([rows]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True, raising=False)
    assert main([rows]) == 0
    captured = capsys.readouterr()
    assert captured.err == "\r2 of 2 completions\n"
    assert captured.out.count("\n") == 2
