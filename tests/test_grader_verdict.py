"""A task, and a task of a row."""

import pytest

from loophole_grader import Task

ROW = {"id": 7, "gt_answer": ["assert f() == 1"], "setup_code": "", "func_name": "f", "canonical_solution": "c"}


def test_task_of_a_row():
    assert Task.from_row(ROW) == Task("7", ("assert f() == 1",), "", "f", "c", "run_tests")


@pytest.mark.parametrize("tests", ["assert f(1) == 1", ["assert f(1) == 1"], (1,), None])
def test_tests_that_are_not_a_tuple_of_texts_are_one_complaint(tests):
    with pytest.raises(ValueError, match=r"^task x: tests must be a tuple of assert statements, each a text, got "):
        Task("x", tests, func_name="f")


@pytest.mark.parametrize(
    ("field", "values", "expected"),
    [
        ("id", [None, [7], True], "text or a whole number"),
        ("gt_answer", [None, "assert 1", ["assert 1", 3]], "a list of assert statements"),
        ("setup_code", [3], "text"),
        ("func_name", [None, "class", "Solution().def", "Solution().3d", "two sum", ""], "function or method"),
        ("canonical_solution", [1], "text"),
        ("prompt_metadata", [[1], "run_tests"], "an object"),
        ("test_func_name", ["class", "run tests", "3d", 5, ["run_tests"]], "a function's name"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named_with_what_is_expected(field, values, expected):
    for value in values:
        wrong = {"prompt_metadata": {field: value}} if field == "test_func_name" else {field: value}
        with pytest.raises(ValueError, match=rf"'{field}' must .*{expected}"):
            Task.from_row({**ROW, **wrong})
