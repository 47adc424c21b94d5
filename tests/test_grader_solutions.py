"""A problem whose own solution hardly keeps the limit, or does not pass, is named when problems are loaded."""

import dataclasses
import sys

import pytest
from two_sum import answer, one_test

from loophole_grader import Limits, check_solutions, grade
from projected_grpo.ledger.console import log_to, start_log

GRADING = sys.modules["loophole_grader.grade"]  # the package gives its name to the function

SLOW = "import time\nend = time.process_time() + .7\nwhile time.process_time() < end: pass\n"
YES = dataclasses.replace(one_test("assert Solution().f(1) == 2"), canonical_solution=answer(2))


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


def test_a_warning_of_the_grader_is_in_the_runs_log(tmp_path, capfd):
    """The sneaky fail: a bare line on stderr that no log keeps."""
    start_log()
    log_to(tmp_path / "log.txt")
    check_solutions([dataclasses.replace(YES, canonical_solution=answer(3))], workers=1)
    start_log()
    assert " W task one: its canonical solution passes 0 of 1 tests" in (tmp_path / "log.txt").read_text()
    assert "task one" not in capfd.readouterr().err


@pytest.mark.slow
def test_the_limit_grows_with_the_slowness_of_the_machine(monkeypatch):
    """Half the speed, twice the limit: the same verdict. Both are in it."""
    text = f"```python\n{SLOW}{YES.canonical_solution}```"
    monkeypatch.setattr(GRADING, "slowness", lambda: 1.0)
    assert grade(YES, text, limits=Limits(cpu_s=0.5)).status == "timeout"
    monkeypatch.setattr(GRADING, "slowness", lambda: 4.0)
    verdict = grade(YES, text, limits=Limits(cpu_s=0.5))
    assert (verdict.status, verdict.gt_pass, verdict.cpu_limit_s, verdict.slowness) == ("ok", True, 2.0, 4.0)
