"""Completions that arrive one by one, judged batch after batch: for frameworks that score each rollout as it ends.

In a batch all ground truth comes before any completion's own tests (grade.py); two calls of `grade` at once would have no
such order, and one after the other would leave sandboxes idle. So whoever comes first judges all that wait, and no two
batches run at the same time.
"""

import threading
from concurrent.futures import Future

from loophole_grader.grade import grade_batch
from loophole_grader.verdict import GraderError, RowError, Task, Verdict

_waiting: list[tuple[Task, str, "Future[Verdict]"]] = []
_entry, _grading = threading.Lock(), threading.Lock()


def grade_with_others(task: Task, completion: str) -> Verdict:
    """As `grade`, from any number of threads; returns when the batch is judged that the completion was in."""
    own: Future[Verdict] = Future()
    with _entry:
        _waiting.append((task, completion, own))
    with _grading:
        with _entry:
            batch = _waiting[:]
            _waiting.clear()
        if batch:
            _judge(batch)
    return own.result()


def _judge(batch: list[tuple[Task, str, "Future[Verdict]"]]) -> None:
    tasks, completions, owners = zip(*batch, strict=True)
    try:
        found = grade_batch(tasks, completions)
    except BaseException as error:
        for owner in owners:
            owner.set_exception(error if isinstance(error, Exception) else GraderError(f"the batch ended: {error!r}"))
        if isinstance(error, Exception):
            return  # each owner raises it
        raise
    for owner, one in zip(owners, found, strict=True):
        if isinstance(one, RowError):
            owner.set_exception(GraderError(one.message))
        else:
            owner.set_result(one)
