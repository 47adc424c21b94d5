"""A problem whose own solution hardly keeps the limit, or does not pass, is named when problems are loaded."""

import dataclasses
import sys

import pytest
from attacks.problems import TASKS

from loophole_grader import GraderError, Limits, Task, check_solutions, grade

GRADING = sys.modules["loophole_grader.grade"]  # the package gives its name to the function

SLOW = "import time\nend = time.process_time() + .7\nwhile time.process_time() < end: pass\n"
YES = Task(
    "yes",
    ("assert Solution().f(1) == 2",),
    "",
    "Solution().f",
    "class Solution:\n    def f(self, x):\n        return 2\n",
)


def test_solutions_that_pass_in_good_time_are_not_named():
    assert check_solutions([TASKS["merge"], YES], workers=1) == []


@pytest.mark.slow
def test_a_wrong_and_a_slow_solution_are_named(monkeypatch, caplog):
    monkeypatch.setattr(GRADING, "slowness", lambda: 1.0)
    wrong = dataclasses.replace(YES, task_id="wrong", canonical_solution=YES.canonical_solution.replace("2", "3"))
    slow = dataclasses.replace(YES, task_id="slow", canonical_solution=SLOW + YES.canonical_solution)
    with caplog.at_level("WARNING", "loophole_grader"):
        found = check_solutions([YES, wrong, slow], limits=Limits(cpu_s=1.2), workers=1)
    assert len(found) == len([m for m in caplog.messages if m.startswith("task ")]) == 2
    assert found[0].startswith("task wrong: its canonical solution passes 0 of 1 tests")
    assert found[1].startswith("task slow: its canonical solution takes ")


def test_a_problem_whose_setup_code_fails_is_an_error():
    with pytest.raises(GraderError, match=r"^2 of 2 rows .*no_such_module"):
        check_solutions([dataclasses.replace(YES, task_id=name, setup_code="import no_such_module") for name in "ab"])


@pytest.mark.slow
def test_the_limit_grows_with_the_slowness_of_the_machine(monkeypatch):
    """Half the speed, twice the limit: the same verdict. Both are in it."""
    text = f"```python\n{SLOW}{YES.canonical_solution}```"
    monkeypatch.setattr(GRADING, "slowness", lambda: 1.0)
    assert grade(YES, text, limits=Limits(cpu_s=0.5)).status == "timeout"
    monkeypatch.setattr(GRADING, "slowness", lambda: 4.0)
    verdict = grade(YES, text, limits=Limits(cpu_s=0.5))
    assert (verdict.status, verdict.gt_pass, verdict.cpu_limit_s, verdict.slowness) == ("ok", True, 2.0, 4.0)
