"""train --track: a tracker is given every step, and nothing that it does reaches the run."""

import sys
from unittest.mock import Mock

import pytest
from harness import POOLED, cut_after, refused
from loguru import logger
from written_runs import rows, write_run

from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import rates
from projected_grpo.ledger.step_file import read_run, write_step
from projected_grpo.run.tracking import tracked

TRAIN = ("train", "tiny", "--steps", 4, *POOLED, "--max-new", 4, "--track", "trackio")


@pytest.fixture
def tracker(monkeypatch):
    """Puts a module in the tracker's place. Its function `breaks` raises after so many good calls."""

    def use(name="trackio", breaks="", good=0):
        module = Mock(__name__=name)
        if breaks:
            getattr(module, breaks).side_effect = [*[None] * good, ConnectionError("nobody there")]
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return use


def logged(module):
    """(step, numbers) of every call of its log."""
    return [(call.kwargs["step"], call.args[0]) for call in module.log.call_args_list]


def without_timing(run):
    return [[{**row, "timing": None} for row in rows] for rows in read_run(run)]


@pytest.fixture
def finished(tmp_path):
    """Three steps of one good and five hacked completions, and an evaluation before the third."""
    write_run(tmp_path / "run", "vanilla", 41, (["good", "hack"], ["hack", "hack"], ["bad", "hack"]))
    write_step(tmp_path / "run/eval", 2, rows(2, {"arm": "vanilla", "seed": 41}, ["good", "bad"]))
    return tmp_path / "run"


def follow(run, module, begin=0, end=3):
    with tracked(module, run) as log:
        for step, own in enumerate(read_run(run)[begin:end], begin):
            log(step, own)
        log(3, [])


@pytest.mark.slow
def test_a_cut_run_goes_on_in_the_same_tracked_run_and_is_not_changed_by_it(script, tmp_path, tracker):
    """Its rows are those of a run whose tracker never came up."""
    told = tracker()
    with cut_after(2):
        assert script(*TRAIN, "--out", "run")[0] == 130
    assert script(*TRAIN, "--out", "run", "--resume")[0] == 0
    norms = [rows[0]["delta_S_norm"] for rows in read_run(tmp_path / "run")]
    assert [(step, found["delta_S_norm"]) for step, found in logged(told)] == list(enumerate(norms))
    first, second = (call.kwargs for call in told.init.call_args_list)
    assert (first["name"], first["resume"]) == (second["name"], "allow")
    assert first["config"]["config"] == read_manifest(tmp_path / "run")["config"]
    assert told.finish.call_count == 2
    tracker(breaks="init")
    code, out, _ = script(*TRAIN, "--out", "alone")
    assert (code, out.count("W --track: ConnectionError: nobody there; the run goes on")) == (0, 1)
    assert without_timing(tmp_path / "run") == without_timing(tmp_path / "alone")


def test_without_the_package_it_is_refused_before_anything_is_written(script, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", None)
    refused(script(*TRAIN, "--out", "run"), "trackio is not installed", "uv sync --extra track")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_a_step_is_logged_with_its_rates_and_evaluations(finished, tracker, name):
    told = tracker(name)
    follow(finished, told)
    assert [step for step, _ in logged(told)] == [0, 1, 2]
    for own, (step, found) in zip(read_run(finished), logged(told), strict=True):
        assert found | rates(own) == found
        assert (found["seconds/total"], found["cos_in"], found.get("eval/gt")) == (2.0, 0.4, 0.5 if step == 2 else None)
    begun = told.init.call_args.kwargs
    assert begun.get("id") == (begun["name"] if name == "wandb" else None)


@pytest.mark.parametrize(("breaks", "good", "steps"), [("init", 0, []), ("log", 1, [0, 1]), ("finish", 0, [0, 1, 2])])
def test_a_tracker_that_raises_is_warned_of_once_and_left_alone(finished, tracker, breaks, good, steps):
    told, lines = tracker(breaks=breaks, good=good), []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    follow(finished, told)
    logger.remove(sink)
    assert [step for step, _ in logged(told)] == steps
    assert lines == ["--track: ConnectionError: nobody there; the run goes on without it"]


@pytest.mark.slow
def test_real_trackio_keeps_every_step_of_a_resumed_run(finished):
    trackio = pytest.importorskip("trackio")
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    follow(finished, trackio, end=2)
    follow(finished, trackio, begin=2)
    (run,) = trackio.Api().runs("projected_grpo")
    logs = storage.get_logs("projected_grpo", run.name, run_id=run.id)
    assert [log["step"] for log in logs] == [0, 1, 2]
    assert [log.get("hack") for log in logs] == [0.5, 1.0, 0.5]
