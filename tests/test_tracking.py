"""train --track: a tracker is told every step, and nothing that it does reaches the run."""

import sys

import pytest
from harness import cut_after
from loguru import logger
from test_results import rows, write_run
from test_scripts import POOLED, refused

from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import rates
from projected_grpo.ledger.step_file import read_run, write_step
from projected_grpo.run.tracking import tracked

KINDS = (["good", "hack"], ["hack", "hack"], ["bad", "hack"])
TRAIN = ("train", "tiny", "--steps", 4, "--max-new", 4, *POOLED)


class Told:
    """A module with the part of wandb's API that both trackers have, and what it was told. It spoils what it is given."""

    def __init__(self, name, breaks):
        self.__name__, self.breaks = name, breaks
        self.begun, self.logged, self.ended = [], [], 0

    def fail_at(self, here):
        if self.breaks == here:
            raise ConnectionError("nobody there")

    def init(self, *, project, name, group, config, resume, **others):
        assert (project, group) == ("projected_grpo", "vanilla")
        assert set(others) == ({"id"} if self.__name__ == "wandb" else set())
        self.fail_at("init")
        self.begun.append((others.get("id", name), resume, config.copy()))
        config.clear()

    def log(self, data, step=None):
        self.fail_at(f"step {step}")
        self.logged.append((step, data.copy()))
        data.clear()

    def finish(self):
        self.fail_at("finish")
        self.ended += 1


@pytest.fixture
def tracker(monkeypatch):
    def use(name="trackio", breaks=""):
        told = Told(name, breaks)
        monkeypatch.setitem(sys.modules, name, told)
        return told

    return use


def without_timing(run):
    return [[{**row, "timing": None} for row in rows] for rows in read_run(run)]


@pytest.fixture
def finished(tmp_path):
    """Three steps of one good and five hacked completions, and an evaluation before the third."""
    write_run(tmp_path / "run", "vanilla", 41, KINDS)
    write_step(tmp_path / "run/eval", 2, rows(2, {"arm": "vanilla", "seed": 41}, ["good", "bad"]))
    return tmp_path / "run"


def follow(run, name="trackio", begin=0, end=3):
    with tracked(sys.modules[name], run) as log:
        for step, own in enumerate(read_run(run)[begin:end], begin):
            log(step, own)
        log(3, [])


@pytest.mark.slow
def test_a_cut_run_goes_on_in_the_same_tracked_run_and_is_not_changed_by_it(script, tmp_path, tracker):
    """Its rows are those of a run whose tracker never came up, though the tracker spoils all that it is given."""
    told = tracker()
    with cut_after(2):
        assert script(*TRAIN, "--out", "run", "--track", "trackio")[0] == 130
    assert script(*TRAIN, "--out", "run", "--track", "trackio", "--resume")[0] == 0
    steps = read_run(tmp_path / "run")
    assert [(step, data["delta_S_norm"]) for step, data in told.logged] == list(
        enumerate(rows[0]["delta_S_norm"] for rows in steps)
    )
    assert len({key for key, _, _ in told.begun}) == 1
    assert (len(told.begun), told.ended) == (2, 2)
    assert told.begun[0][2]["config"] == read_manifest(tmp_path / "run")["config"]
    tracker(breaks="init")
    code, out, _ = script(*TRAIN, "--out", "alone", "--track", "trackio")
    assert (code, out.count("W --track: ConnectionError: nobody there; the run goes on")) == (0, 1)
    assert without_timing(tmp_path / "run") == without_timing(tmp_path / "alone")


def test_without_the_package_it_is_refused_before_anything_is_written(script, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", None)
    refused(script(*TRAIN, "--out", "run", "--track", "trackio"), "trackio is not installed", "uv sync --extra track")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_a_step_is_logged_with_its_rates_and_evaluations(finished, tracker, name):
    told = tracker(name)
    follow(finished, name)
    assert [step for step, _ in told.logged] == [0, 1, 2]
    for own, (step, data) in zip(read_run(finished), told.logged, strict=True):
        assert data | rates(own) == data
        assert (data["seconds/total"], data["cos_in"], data.get("eval/gt")) == (2.0, 0.4, 0.5 if step == 2 else None)


@pytest.mark.parametrize(("breaks", "steps"), [("init", 0), ("step 1", 1), ("finish", 3)])
def test_a_tracker_that_raises_is_warned_of_once_and_left_alone(finished, tracker, breaks, steps):
    told, lines = tracker(breaks=breaks), []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    follow(finished)
    logger.remove(sink)
    assert len(told.logged) == steps
    (line,) = lines
    assert line.startswith("--track: ConnectionError: nobody there; the run goes on without it")


@pytest.mark.slow
def test_real_trackio_keeps_every_step_of_a_resumed_run(finished):
    trackio = pytest.importorskip("trackio")
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    follow(finished, end=2)
    follow(finished, begin=2)
    (run,) = trackio.Api().runs("projected_grpo")
    logs = storage.get_logs("projected_grpo", run.name, run_id=run.id)
    assert [log["step"] for log in logs] == [0, 1, 2]
    assert [log.get("hack") for log in logs] == [0.5, 1.0, 0.5]
