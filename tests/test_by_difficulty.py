"""Rates by kind of problem."""

import pytest
from test_results import write_run
from test_scripts import refused

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import update_manifest
from projected_grpo.ledger.step_file import read_step, step_path, write_step
from projected_grpo.report.by_difficulty import by_difficulty, kinds_of


def test_a_difficulty_may_name_two_kinds():
    assert kinds_of("hard, lazy example") == ["hard", "lazy example"]
    assert kinds_of("") == []


def test_each_kind_has_its_own_rate_by_hand(tmp_path):
    """Four rollouts a step: of p0 two hacks, of p1 two that are right; then all four are hacks."""
    run = write_run(tmp_path / "a", "vanilla", 41, [["hack", "hack", "good", "good"], ["hack"] * 4])
    ids = sorted({row["problem_id"] for row in rows_of(run)})
    tables = by_difficulty(run, dict.fromkeys(ids, "medium, varied"), 1, "hack")
    n = str(len(ids))
    assert tables == [
        [
            ["kind of problem", "problems", "rollouts", "0-0", "1-1"],
            *([k, n, "8", "50.0", "100.0"] for k in ("all", own)),
        ]
        for own in ("medium", "varied")
    ]
    (plain,) = by_difficulty(run, dict.fromkeys(ids, ""), 2, "gt")
    assert plain[1:] == [["all", n, "8", "25.0"]]


def test_each_way_to_divide_the_problems_is_a_table_whose_numbers_add_up(tmp_path):
    """In one table the kinds of task and of example look like six parts of a whole; they are two wholes."""
    run = write_run(tmp_path / "a", "vanilla", 41, [["hack", "good"]])
    write_step(run, 1, [{**row, "problem_id": "other", "step": 1} for row in rows_of(run)])
    first = rows_of(run)[0]["problem_id"]
    told = {first: "easy, lazy example", "other": "hard, varied example"}
    tasks, examples = by_difficulty(run, told, 2, "hack")
    assert tasks[0] == ["kind of problem", "problems", "rollouts", "0-1"]
    assert examples[0] == ["kind of example", "problems", "rollouts", "0-1"]
    assert [row[:3] for row in tasks[1:]] == [["all", "2", "4"], ["easy", "1", "2"], ["hard", "1", "2"]]
    assert [row[0] for row in examples[1:]] == ["all", "lazy example", "varied example"]


def test_a_problem_that_is_not_there_is_named(tmp_path):
    run = write_run(tmp_path / "a", "vanilla", 41, [["hack", "good"]])
    with pytest.raises(BadInput, match="is not among these; name its --problems"):
        by_difficulty(run, {}, 10, "hack")


def rows_of(run):
    return read_step(step_path(run, 0))


def test_a_run_on_other_problems_of_the_same_names_is_refused(script, tmp_path):
    """Their kinds would be dealt out to rollouts of others."""
    assert script("train", "tiny", "--steps", 1, "--max-new", 4, "--out", "run")[0] == 0
    code, out, err = script("by_difficulty", "run", "--every", 1)
    assert code == 0, err
    assert out.splitlines()[2].split()[0] == "all"
    update_manifest(tmp_path / "run", problems_hash="0123456789abcdef", finished=False)
    code, _, err = script("by_difficulty", "run")
    assert (code, "ran on problems 0123456789abcdef" in err) == (2, True), err
    for text in ("[]", '{"kind": "train", "schema_version": 4, "config": {}}'):
        (tmp_path / "run/manifest.json").write_text(text)
        refused(script("by_difficulty", "run"), "manifest.json")


@pytest.fixture
def nothing_is_drawn(monkeypatch):
    """A world of thousands of problems takes ten seconds to draw: what is refused is refused before."""
    for name in ("load_problems", "problems_hash"):
        monkeypatch.setattr(f"projected_grpo.data.problems.{name}", None)


@pytest.mark.usefixtures("nothing_is_drawn")
def test_what_can_be_refused_is_refused_before_problems_are_drawn(script, tmp_path):
    run = write_run(tmp_path / "run", "vanilla", 41, [["hack"]], problems="small")
    refused(script("by_difficulty", "run", "--every", 0), "--every 0: must be 1 or more")
    refused(script("by_difficulty", "run", "--problems", "smol"), "--problems smol", "small-held-out")
    step_path(run, 0).unlink()
    refused(script("by_difficulty", "run"), "no step files")
    refused(script("by_difficulty", "nowhere"), "nowhere is not a run directory")


@pytest.mark.usefixtures("nothing_is_drawn")
def test_of_a_folder_that_is_no_training_run_it_is_said_what_it_is(script, tmp_path):
    write_run(tmp_path / "v", "vanilla", 41, [["hack"]], pairs="small-informed")
    update_manifest(tmp_path / "v", kind="extract_vhack_grad")
    refused(script("by_difficulty", "v"), "v: holds a V, made of the pairs small-informed, and no training run")
    update_manifest(tmp_path / "v", kind="teacher_pool")
    refused(script("by_difficulty", "v"), "v: holds what teacher_pool writes, and no training run")
