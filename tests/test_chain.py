"""Chains: every need is met, what is done is skipped, what was cut is resumed, a failure stops only what needs it."""

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from projected_grpo.chain import MECHANISMS, WIDTH, Task, ToyPlan, rank_of, toy_chain
from projected_grpo.chain_runner import ChainRun, is_done, prepared, run_chain
from projected_grpo.toy import programs
from projected_grpo.toy.pretrain import SHAPES

WRITES_A_RUN = """
import json, pathlib, sys
out = pathlib.Path(sys.argv[1]); out.mkdir(parents=True, exist_ok=True)
with open(out.parent / "order.txt", "a") as f: f.write(out.name + (" resumed" if "--resume" in sys.argv else "") + "\\n")
if "fail" in sys.argv: sys.exit(1)
(out / "manifest.json").write_text(json.dumps({"finished": True, "schema_version": %d}))
"""


@pytest.fixture
def link(tmp_path):
    """Make a task that runs a small script writing a finished run."""
    from projected_grpo.steps import SCHEMA_VERSION

    path = tmp_path / "link.py"
    path.write_text(textwrap.dedent(WRITES_A_RUN % SCHEMA_VERSION))

    def make(name, *needs, kind="once", fail=False):
        out = tmp_path / "home" / name
        return Task(name, (str(path), str(out), *(["fail"] if fail else [])), out, needs, kind)

    return make


def order(tmp_path):
    return (tmp_path / "home/order.txt").read_text().split("\n")[:-1]


def test_a_chain_runs_in_order_and_again_runs_nothing(link, tmp_path):
    tasks = [link("c", "b"), link("a"), link("b", "a")]
    assert run_chain(tasks, tmp_path / "home", 2) == 0
    assert order(tmp_path) == ["a", "b", "c"]
    assert run_chain(tasks, tmp_path / "home", 2) == 0
    assert order(tmp_path) == ["a", "b", "c"]
    written = json.loads((tmp_path / "home/chain.json").read_text())
    assert [t["needs"] for t in written] == [["b"], [], ["a"]]


def test_a_failed_task_stops_what_needs_it_and_nothing_else(link, tmp_path):
    tasks = [link("bad", fail=True), link("after_bad", "bad"), link("sibling"), link("after_sibling", "sibling")]
    assert run_chain(tasks, tmp_path / "home", 1) == 1
    assert set(order(tmp_path)) == {"bad", "sibling", "after_sibling"}
    mended = [link("bad"), *tasks[1:]]
    assert run_chain(mended, tmp_path / "home", 1) == 0
    assert order(tmp_path)[3:] == ["bad", "after_bad"]


def test_a_cut_run_is_resumed_and_one_cut_before_its_checkpoint_starts_anew(link, tmp_path):
    resumable, anew, once = link("r", kind="run"), link("n", kind="run"), link("o")
    for task in (resumable, anew, once):
        task.out.mkdir(parents=True)
        (task.out / "log.txt").write_text("cut")
    for task in (resumable, once):
        (task.out / "checkpoint.pt").write_text("")
    assert prepared(resumable)[-1] == "--resume"
    assert "--resume" not in prepared(anew)
    assert not anew.out.exists()
    assert "--resume" not in prepared(once)
    assert run_chain([resumable], tmp_path / "home", 1) == 0
    assert order(tmp_path) == ["r resumed"]


def test_a_check_is_done_only_once_it_has_passed(link, tmp_path):
    check = link("verify", kind="check", fail=True)
    assert run_chain([check], tmp_path / "home", 1) == 1
    assert not is_done(check, tmp_path / "home")
    assert run_chain([link("verify", kind="check")], tmp_path / "home", 1) == 0
    assert is_done(check, tmp_path / "home")


def test_a_report_is_done_whatever_its_verdict_but_not_when_it_broke(link, tmp_path):
    report = replace(link("results", kind="check", fail=True), accept=(0, 1, 3))
    assert run_chain([report], tmp_path / "home", 1) == 0  # it wrote its folder and says FAIL
    broken = replace(report, name="broken", out=tmp_path / "home/never")
    assert run_chain([broken], tmp_path / "home", 1) == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_chain_leaves_no_task_behind(tmp_path, how):
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text(
        "import os, pathlib, sys, time\npathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\ntime.sleep(60)"
    )
    code = (
        "from pathlib import Path; from projected_grpo.chain import Task; "
        "from projected_grpo.chain_runner import run_chain; "
        f"run_chain([Task('s', ({str(sleeper)!r}, {str(tmp_path / 'pid')!r}), Path('out'))], Path('home'), 1)"
    )
    chain = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    chain.send_signal(how)
    assert chain.wait(30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_line_estimates_what_remains(tmp_path):
    tasks = [Task("a", (), tmp_path / "a", cost=1.0), Task("b", (), tmp_path / "b", cost=3.0)]
    run = ChainRun(tasks, tmp_path, 1, done={"a"}, started={"a": 0.0}, began_at={"a": 0.0})
    assert "1 of 2 done" in run.line(60.0)
    assert "about 3 min left" in run.line(60.0)  # one unit took a minute, three remain


@pytest.mark.parametrize("arms", [ToyPlan.arms, ("vanilla", "projected", "placebo")])
def test_the_toy_chain_is_whole(arms):
    tasks = toy_chain(ToyPlan(Path("out/x"), arms=arms, seeds=(1, 2)))
    names = [t.name for t in tasks]
    assert len(set(names)) == len(names)
    for i, task in enumerate(tasks):
        assert set(task.needs) <= set(names[:i]), task.name  # acyclic: needs stand before
    trained = [t for t in tasks if t.name.startswith("train_")]
    assert len(trained) == 2 * len(arms)
    assert set(tasks[-1].needs) == {t.name for t in trained}
    steps = {t.argv[t.argv.index("--steps") + 1] for t in trained}
    assert steps == {"200"}  # matched compute


def test_the_unknown_study_leaves_two_mechanisms_out_each_time():
    tasks = {t.name: t for t in toy_chain(ToyPlan(Path("out/x"), seeds=(1,)), "unknown")}
    splits = [t for name, t in tasks.items() if name.startswith("extract_") and "--modes" in t.argv]
    assert len(splits) == 6
    assert {frozenset(t.argv[t.argv.index("--modes") + 1 : t.argv.index("--out")]) for t in splits} == {
        frozenset(two) for two in itertools.combinations(MECHANISMS, 2)
    }
    assert set(MECHANISMS) == set(programs.MECHANISMS)


def test_the_rank_is_the_same_share_of_every_width():
    assert (rank_of("toy"), rank_of("toy-deep")) == (48, 36)
    assert {name: shape["hidden_size"] for name, shape in SHAPES.items()} == WIDTH


def test_every_command_of_the_toy_chain_parses(monkeypatch):
    """An option that a script does not have would only be found in the middle of the night."""
    import importlib

    from projected_grpo import cli

    class Parsed(Exception):  # noqa: N818 - a signal, not an error
        pass

    def parsed(config):
        raise Parsed(config)

    plans = (ToyPlan(Path("out/x"), seeds=(1,)), ToyPlan(Path("out/x"), model="toy-deep", seeds=(1,)))
    for task in [t for plan in plans for study in ("arms", "unknown") for t in toy_chain(plan, study)]:
        name = Path(task.argv[0]).stem
        module = importlib.import_module(name)
        for parser in ("parse", "parse_plain"):
            real = getattr(cli, parser)
            monkeypatch.setattr(cli, parser, lambda *a, real=real, **k: parsed(real(*a, **k)))
        monkeypatch.setattr(sys, "argv", [task.argv[0], *task.argv[1:]])
        with pytest.raises(Parsed):
            module.main()
        monkeypatch.undo()
