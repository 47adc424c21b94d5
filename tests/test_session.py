"""What a session says beside its rows."""

from types import SimpleNamespace

import pytest
from loguru import logger

from projected_grpo.run.session import Session


@pytest.fixture
def said():
    lines = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


def row(source, low):
    return {"source": source, "ratio_low": low}


def test_rows_of_another_policy_that_teach_nothing_are_named_once_with_the_number(said):
    """A pool with recorded log-probabilities multiplies the decisive token's gradient by .001, at a clip fraction of 0."""
    session = SimpleNamespace(warned=False)
    rows = [row("teacher", 0.001), row("teacher", 0.7), row("teacher", None), row("student", 0.001)]
    Session._warn_off_policy(session, 3, rows)
    Session._warn_off_policy(session, 4, rows)
    (line,) = said
    assert "step 3: 1 of 2 cached rows" in line
    assert "1.0e-03" in line


def test_rows_near_this_policy_are_not_warned_about(said):
    Session._warn_off_policy(SimpleNamespace(warned=False), 0, [row("teacher", 0.5), row("student", 1e-9)])
    assert not said
