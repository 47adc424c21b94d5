"""What the problems' own solutions make of their tests, on this machine: a limit that they hardly keep is no limit."""

import logging
from collections.abc import Callable, Sequence

from loophole_grader.grade import DEFAULT_LIMITS, grade_batch
from loophole_grader.sandbox.pool import Limits
from loophole_grader.verdict import GraderError, RowError, Task, Verdict

SHARE = 0.5
_log = logging.getLogger("loophole_grader")


def check_solutions(
    tasks: Sequence[Task],
    *,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Judge every canonical solution as a completion. One line, also logged as a warning, for each that does not pass its
    own tests, or passes them with more than half of the CPU limit: a right program that is a little slower would fail.

    Raises GraderError for problems on which the grader fails: their setup code, mostly."""
    known = [task for task in tasks if task.canonical_solution]
    texts = [f"```python\n{task.canonical_solution}\n```" for task in known]
    judged = grade_batch(known, texts, limits=limits, workers=workers, on_progress=on_progress)
    if failed := [one for one in judged if isinstance(one, RowError)]:
        more = f" (and {len(failed) - 1} more problems)" if len(failed) > 1 else ""
        raise GraderError(f"{failed[0].message}{more}")
    found = []
    for task, one in zip(known, judged, strict=True):
        assert isinstance(one, Verdict)
        if not one.gt_pass:
            found.append(
                f"task {task.task_id}: its canonical solution passes {one.tests_passed} of {one.tests_total} tests "
                f"({one.status}, {one.cpu_s:.1f} of {one.cpu_limit_s:.1f} CPU s)"
            )
        elif one.cpu_s > SHARE * one.cpu_limit_s:
            found.append(
                f"task {task.task_id}: its canonical solution takes {one.cpu_s:.1f} CPU s of {one.cpu_limit_s:.1f}; a right "
                "program that takes twice as long is judged a timeout"
            )
    for line in found:
        _log.warning(line)
    return found
