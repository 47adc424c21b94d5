"""The command: python -m loophole_grader."""

import gzip
import json

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
    assert main([write("rows.jsonl", rows)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.partition(" ")[2][:6] for line in captured.err.splitlines()] == ["2 prob", "2: it ", "3: its"]


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


def test_a_problem_that_stands_twice_is_named(write, capsys):
    rows = write("rows.jsonl", [])
    assert main([rows, "--problems", write("problems.jsonl", [PROBLEM, PROBLEM])]) == 2
    assert "problems.jsonl:2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.jsonl.gz"])
def test_a_file_that_is_not_there_is_named(tmp_path, capsys, name):
    assert main([str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


def test_a_file_that_is_not_gzip_is_named(tmp_path, capsys):
    (tmp_path / "rows.jsonl.gz").write_text("{}")
    assert main([str(tmp_path / "rows.jsonl.gz")]) == 2
    assert "rows.jsonl.gz" in capsys.readouterr().err


def test_a_folder_for_the_verdicts_that_is_not_there_is_named(write, tmp_path, capsys):
    rows = write("rows.jsonl", [{"problem": PROBLEM, "completion": RIGHT}])
    assert main([rows, "--out", str(tmp_path / "no" / "out.jsonl")]) == 2
    assert "no" in capsys.readouterr().err


def test_a_bad_number_of_workers_is_a_usage_error(write, capsys):
    with pytest.raises(SystemExit) as raised:
        main([write("rows.jsonl", []), "--workers", "0"])
    assert raised.value.code == 2
    assert "'0'" in capsys.readouterr().err


def test_a_row_without_a_verdict_is_named_and_the_others_are_written(write, capsys):
    broken = {"problem": {**PROBLEM, "id": 2, "setup_code": "1 / 0"}, "completion": RIGHT}
    path = write("rows.jsonl", [{"problem": PROBLEM, "completion": RIGHT}, broken])
    assert main([path, "--workers", "1"]) == 1
    captured = capsys.readouterr()
    first, second = [json.loads(line) for line in captured.out.splitlines()]
    assert first["gt_pass"]
    assert (second["task_id"], "ZeroDivisionError" in second["error"]) == ("2", True)
    assert captured.err.startswith("error: row 2 has no verdict: task 2: its setup_code fails")


def test_tests_that_cannot_be_judged_are_listed_before_anything_is_judged(write, capsys):
    bad = [{**PROBLEM, "id": n, "gt_answer": ["for x in [1]:\n    assert Solution().f(x)"]} for n in (2, 3)]
    rows = [{"problem": problem, "completion": RIGHT} for problem in (PROBLEM, *bad)]
    assert main([write("rows.jsonl", rows)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [f"task {n}: test 0" in captured.err for n in (1, 2, 3)] == [False, True, True]


def test_a_broken_problem_has_an_exit_code_of_its_own(write, capsys):
    rows = write("rows.jsonl", [{"problem": {**PROBLEM, "setup_code": "1 / 0"}, "completion": RIGHT}])
    assert main([rows]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
