"""Groups of several sources: who writes which rows, with whose log-probabilities, and that the file says so."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import parallel_scenarios
import pytest
from harness import refused
from parallel_scenarios import rewarding_tokens

from projected_grpo import records, step
from projected_grpo.config import TrainConfig
from projected_grpo.data.pairs import pool_pairs
from projected_grpo.data.pool import pool_of
from projected_grpo.data.problems import load_problems
from projected_grpo.interventions.base import Intervention
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import update_manifest
from projected_grpo.ledger.step_file import read_run, read_step, write_step
from projected_grpo.presets import presets
from projected_grpo.run import cli, sources
from projected_grpo.run.inputs import check_inputs
from projected_grpo.verdicts import trajectory
from projected_grpo.verdicts.finished_runs import load_runs
from projected_grpo.worlds.models import load_model

ROUNDING = 1e-4
"""Nats a token: sampling with a cache against the training pass, and five written digits, in float32."""


@pytest.fixture
def pool(teacher_pool, tmp_path):
    """A copy of the tiny teacher's pool, five problems of four rollouts."""
    return Path(shutil.copytree(teacher_pool, tmp_path / "pool"))


@pytest.fixture
def run(script, pool):
    """Train on a mix. Rewards hang on the tokens: random weights write no code, and equal rewards move nothing."""
    assert pool.is_dir()

    def started(out, *args):
        mixed = ("--mix", "teacher=.25,base=.5", "--teacher-pool", "pool", "--lr", 0.5)
        with rewarding_tokens():
            return script("train", "tiny", "--steps", 3, "--max-new", 8, *mixed, "--out", out, *args)

    return started


# ---------------------------------------------------------------- what is asked for


@pytest.mark.parametrize(
    ("mix", "size", "rows"),
    [
        ("teacher=.5,base=.5", 8, (0, 4, 4)),
        ("teacher=.25,base=.25", 8, (4, 2, 2)),
        ("teacher=.5,base=.5", 5, (0, 3, 2)),
        ("base=.5", 4, (2, 2, 0)),
    ],
)
def test_a_group_is_filled_by_shares_and_no_row_is_left_over(mix, size, rows):
    config = TrainConfig(mix=mix, group_size=size, teacher_pool="pool" if "teacher" in mix else "")
    assert tuple(config.mixed_rows.values()) == rows
    assert list(config.mixed_rows) == ["student", "base", "teacher"]


# ---------------------------------------------------------------- what is written


@pytest.mark.slow
def test_every_row_names_its_source_and_its_log_probabilities(run, pool, tmp_path):
    """The student's are its own to rounding; base rows are the untrained model's, still so once the student has
    moved; the teacher's are those that its pool recorded, neither the student's nor the untrained model's."""
    code, out, err = run("run")
    assert code == 0, err
    assert "each group 1 student + 2 base + 1 teacher" in out
    assert "at a clip bound" in out
    steps = read_run(tmp_path / "run")
    assert [r["source"] for r in steps[0]] == ["student", "base", "base", "teacher"] * 2
    recorded = {tuple(r["completion_ids"]): r["behaviour_logp"] for rows in read_run(pool) for r in rows}
    for rows in steps:
        by = {s: [r for r in rows if r["source"] == s] for s in ("student", "base", "teacher")}
        assert max(r["behaviour_gap"] for r in by["student"]) < ROUNDING
        assert max(r["reference_gap"] for r in by["base"]) < ROUNDING
        for row in by["teacher"]:
            assert row["behaviour_logp"] == pytest.approx(recorded[tuple(row["completion_ids"])], abs=1e-5)
            assert min(row["behaviour_gap"], row["reference_gap"]) > 10 * ROUNDING
    assert min(r["behaviour_gap"] for r in steps[2] if r["source"] == "base") > 10 * ROUNDING


# ---------------------------------------------------------------- pools


@pytest.mark.slow
def test_a_pool_without_log_probabilities_gets_the_merged_teachers(run, pool, tmp_path):
    """Computed again they are those that were recorded, to rounding; without a teacher the pool is refused."""
    recorded = {tuple(r["completion_ids"]): r["behaviour_logp"] for rows in read_run(pool) for r in rows}
    for path in pool.glob("step_*.jsonl.gz"):
        rows = read_step(path)
        write_step(pool, rows[0]["step"], [{**r, "behaviour_logp": None, "behaviour_logps": None} for r in rows])
    refused(run("run", "--teacher", ""), "20 of its rows have no recorded log-probabilities")
    assert not (tmp_path / "run").exists()
    code, out, err = run("run", "--steps", 1)
    assert code == 0, err
    assert "20 rows of pool have no recorded log-probabilities" in out
    rows = [r for rows in read_run(tmp_path / "run") for r in rows if r["source"] == "teacher"]
    for row in rows:
        assert row["behaviour_logp"] == pytest.approx(recorded[tuple(row["completion_ids"])], abs=1e-4)


@pytest.mark.slow
def test_hand_written_rows_are_marked_as_nobodys(made):
    """No policy wrote them: they count as on-policy, and the column says that their ratio of 1 says nothing."""
    run = made("train", "--steps", 3, "--keep-adapter-every", 2, "--teacher-pool", "pairs", "--max-new", 8)
    rows = [r for r in read_run(run)[0] if r["source"] == "teacher"]
    assert {(r["behaviour_logp"], r["ratio"], r["at_clip"], r["behaviour_gap"]) for r in rows} == {(None,) * 4}
    config = json.loads((run / "manifest.json").read_text())["config"]
    assert (config["mix"], config["problems"]) == ("", "builtin-pairs")
    assert {r["problem_id"] for r in rows} <= {p.problem_id for p in load_problems(config["problems"])}


def test_a_pool_of_pairs_is_of_the_pairs_that_are_named(tmp_path):
    pooled = ["tiny", "--teacher-pool", "pairs", "--pairs"]
    config = cli.parse(presets(TrainConfig), "", [*pooled, "toy"])
    assert config.problems == "toy-pairs"
    assert {p.name for p in pool_pairs("toy")} == {p.problem_id for p in load_problems("toy-pairs")}
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps([{"prompt": "p", "hack": "h", "clean": "c"}]))
    with pytest.raises(BadInput, match=r"--pairs .*mine.json: its pairs have no tests"):
        check_inputs(cli.parse(presets(TrainConfig), "", [*pooled, str(mine)]))


# ---------------------------------------------------------------- T5's sneaky fails, in the loop


def blank(group):
    """A cached group that recorded no log-probabilities."""
    return replace(group, rollouts=tuple(replace(r, behaviour_logps=None) for r in group.rollouts))


def pinned(patch):
    honest = step.behaviour_of
    patch.setattr(step, "behaviour_of", lambda *args: honest(*args) * 0 + args[1].detach() - math.log(1.2))


def of_the_untrained_model(patch):
    """What the student says at its start is what a student's log-probabilities are at load time."""
    load = sources.load
    patch.setattr(sources, "load", lambda config, _: load(config))
    patch.setattr(sources, "pool_of", lambda *args: [blank(g) for g in pool_of(*args)])


def of_the_step(patch):
    """A ratio of exactly 1, whatever was recorded."""
    patch.setattr(step, "behaviour_of", lambda _rows, logps, _batch: logps.detach().clone())


def of_nobody(patch):
    patch.setattr(sources, "with_teacher_logps", lambda pool, *_: {name: blank(g) for name, g in pool.items()})


def base_rows_of_the_student(patch):
    class Folding(Intervention):
        def sampling(self, weights):
            return super().sampling(weights.__self__.merged)

    patch.setattr(sources, "Intervention", Folding)


def equal_rewards(patch):
    patch.setattr(parallel_scenarios, "graded_by_tokens", records.Group.graded.__func__)


RATIO, SATURATED = "each row's own ratio", "ratios not saturated"
FAILS = {
    "an honest mix": (lambda _: None, {}),
    "ratios pinned at the bound": (
        pinned, {SATURATED: "vanilla 41: 100% of student tokens at or beyond a clip bound"}),
    "teacher rows with the untrained model's log-probabilities": (
        of_the_untrained_model, {RATIO: "100% of teacher rows carry the student's or the untrained model's"}),
    "teacher rows with the student's of the step": (of_the_step, {RATIO: "of teacher rows carry the student's"}),
    "teacher rows with none": (of_nobody, {RATIO: "100% of teacher rows have no log-probabilities"}),
    "base rows of the student": (base_rows_of_the_student, {RATIO: "of base rows are not the untrained model's"}),
    "groups without variance": (equal_rewards, {"rewards vary": "100% of groups have no variance"}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("inject", "expected"), FAILS.values(), ids=FAILS)
def test_each_fail_in_the_loop_is_red(run, tmp_path, monkeypatch, inject, expected):
    """Two steps on a mix, read as T5 reads sixteen: over and over."""
    inject(monkeypatch)
    code, _, err = run("run", "--steps", 2, "--lr", 0.01, "--max-new", 6, "--per-sample-every", 0)
    assert code == 0, err
    (found,) = load_runs(tmp_path / "run").runs
    series = {name: (list(values) * 8)[:16] for name, values in found.series.items()}
    runs = [replace(found, series=series, sources=(found.sources * 8)[:16])]
    red = {one.name: one.why for one in (clause(runs) for clause in trajectory.GROUND) if one.status != "PASS"}
    assert bool(red) == bool(expected), red
    for clause, why in expected.items():
        assert why in red[clause]


@pytest.mark.slow
def test_a_run_is_no_teachers_pool(run, made):
    """Its rows would count as the student's, and their labels as what it has learned."""
    other = made("train", "--base-seed", 1, "--steps", 1, "--max-new", 8)
    refused(run("run", "--teacher-pool", other), "is a run of kind 'train', where 'teacher_pool' is needed")


@pytest.mark.slow
def test_a_pool_of_the_student_itself_is_refused(run, pool, cache):
    """The sneaky fail: the adapter was not merged, so the teacher's log-probabilities are the student's."""
    update_manifest(pool, model_hash=load_model("tiny", "float32", "cpu", 0, cache).weights_hash)
    refused(run("run"), "no teacher was merged into it")


@pytest.mark.slow
def test_a_pool_of_another_time_is_refused_before_a_model_is_loaded(run, pool):
    """Loading Qwen3-4B takes minutes."""
    update_manifest(pool, schema_version=4)
    refused(run("run", "--model", "no/such-model"), "schema 4, this version reads")
