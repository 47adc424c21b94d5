"""Rates by kind of problem."""

from test_results import write_run

from projected_grpo.ledger.step_file import read_step, step_path, write_step
from projected_grpo.report.by_kind import by_kind


def test_each_kind_has_its_own_rate_by_hand(tmp_path):
    """Four rollouts a step: of p0 two hacks, of p1 two that are right; then all four are hacks."""
    run = write_run(tmp_path / "a", "vanilla", 41, [["hack", "hack", "good", "good"], ["hack"] * 4])
    ids = sorted({row["problem_id"] for row in rows_of(run)})
    tables = by_kind(run, dict.fromkeys(ids, "medium, varied"), "hack", 1)
    n = str(len(ids))
    assert tables == [
        [
            ["kind of problem", "problems", "rollouts", "0-0", "1-1"],
            *([k, n, "8", "50.0", "100.0"] for k in ("all", own)),
        ]
        for own in ("medium", "varied")
    ]
    (plain,) = by_kind(run, dict.fromkeys(ids, ""), "gt", 2)
    assert plain[1:] == [["all", n, "8", "25.0"]]


def test_each_way_to_divide_the_problems_is_a_table_whose_numbers_add_up(tmp_path):
    """In one table the kinds of task and of example look like six parts of a whole; they are two wholes."""
    run = write_run(tmp_path / "a", "vanilla", 41, [["hack", "good"]])
    write_step(run, 1, [{**row, "problem_id": "other", "step": 1} for row in rows_of(run)])
    first = rows_of(run)[0]["problem_id"]
    told = {first: "easy, lazy example", "other": "hard, varied example"}
    tasks, examples = by_kind(run, told, "hack", 2)
    assert tasks[0] == ["kind of problem", "problems", "rollouts", "0-1"]
    assert examples[0] == ["kind of problem", "problems", "rollouts", "0-1"]
    assert [row[:3] for row in tasks[1:]] == [["all", "2", "4"], ["easy", "1", "2"], ["hard", "1", "2"]]
    assert [row[0] for row in examples[1:]] == ["all", "lazy example", "varied example"]


def rows_of(run):
    return read_step(step_path(run, 0))
