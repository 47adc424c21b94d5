"""Chains, in a terminal and in real queues: in order, what is done is skipped, what was cut is resumed, a failure
stops only what needs it, and a killed daemon or link loses nothing."""

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from harness import ROOT
from queue_world import WORLDS, missing, processes_with, wait_until
from written_runs import ten, write_run

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import SCHEMA_VERSION
from projected_grpo.queue.backends import Pueue, Slurm, command_of, enqueue
from projected_grpo.queue.links import Link, is_done, read_chain, resumed, run_chain, write_chain

LINK = """
import json, pathlib, sys, time
out = pathlib.Path(sys.argv[1]); home = out.parent
out.mkdir(parents=True, exist_ok=True)
with open(home / "order.txt", "a") as f: f.write(out.name + (" resumed" if "--resume" in sys.argv else "") + "\\n")
while (home / ("hold_" + out.name)).exists(): time.sleep(0.05)
if (home / ("fail_" + out.name)).exists(): sys.exit("cannot: " + out.name)
(out / "manifest.json").write_text(json.dumps({"kind": "train", "finished": True, "schema_version": %d}))
"""
"""Writes a finished run, as long as nothing holds it and it need not fail."""


@pytest.fixture(params=list(WORLDS))
def world(request, tmp_path, monkeypatch):
    if lacks := missing(request.param):
        pytest.skip(f"{request.param}: this machine lacks {', '.join(lacks)}")
    scripts = Path(sys.executable).parent  # `just` and `python`, as in `uv run just`
    monkeypatch.setenv("PATH", f"{scripts}:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", str(ROOT / ".venv"))
    monkeypatch.chdir(ROOT)
    world = WORLDS[request.param](tmp_path / "world", monkeypatch)
    yield world
    world.close()


@pytest.fixture
def backend(world):
    return world.backend


@pytest.fixture
def home(tmp_path):
    (tmp_path / "a home").mkdir()  # with a space: a queue passes commands through a shell
    (tmp_path / "link.py").write_text(LINK % SCHEMA_VERSION)
    return tmp_path / "a home"


@pytest.fixture
def link(home):
    def make(name, *needs, **fields):
        return Link(name, (str(home.parent / "link.py"), str(home / name)), home / name, needs, **fields)

    return make


def states(home, backend):
    jobs = backend.jobs()

    def state(link):
        job_id, runs = jobs.get(command_of(link, home), ("", False))
        if is_done(link, home):
            return "done"
        return "open" if not job_id else "running" if runs else "waiting"

    return {name: state(link) for name, link in read_chain(home).items()}


def settled(backend):
    wait_until("the queue is empty", lambda: not backend.jobs(), 300)


def order(home):
    path = home / "order.txt"
    return path.read_text().splitlines() if path.exists() else []


def actions(entries):
    return {name: action for name, action, *_ in entries}


@pytest.mark.slow
def test_a_queue_runs_in_order_and_nothing_twice_though_its_daemon_is_killed(link, home, backend, world):
    links = [link("a"), link("b", "a"), link("c", "b")]
    (home / "hold_a").touch()
    assert set(actions(enqueue(links, home, backend)).values()) == {"added"}
    wait_until("a runs", lambda: states(home, backend)["a"] == "running", 60)
    again = actions(enqueue(links, home, backend))
    assert again == {"a": "runs already", "b": "waits already", "c": "waits already"}
    assert states(home, backend)["b"] == "waiting"
    world.kill_daemon()
    with pytest.raises(BadInput, match=r"pueued -d|a running Slurm cluster"):
        enqueue(links, home, backend)
    world.start()
    enqueue(links, home, backend)  # `a` lives on without its daemon; pueue has given it up, Slurm has not
    (home / "hold_a").unlink()
    settled(backend)
    assert order(home) == ["a", "b", "c"]
    assert set(actions(enqueue(links, home, backend)).values()) == {"done already"}


@pytest.mark.slow
def test_a_link_that_failed_or_was_killed_stops_what_needs_it_and_nothing_else(link, home, backend):
    """The killed one takes its script along, and both start again when the chain is queued again."""
    links = [link("cut"), link("after_cut", "cut"), link("bad"), link("after_bad", "bad"), link("sibling")]
    (home / "fail_bad").touch()
    (home / "hold_cut").touch()
    enqueue(links, home, backend)
    wait_until("it runs", lambda: states(home, backend)["cut"] == "running" and "cut" in order(home), 60)
    for pid in processes_with(f"links\0{home}\0cut"):
        os.kill(pid, signal.SIGKILL)
    settled(backend)
    wait_until("its script is gone", lambda: not processes_with("link.py"), 20)
    assert states(home, backend) == {
        **dict.fromkeys(("cut", "after_cut", "bad", "after_bad"), "open"),
        "sibling": "done",
    }
    (home / "fail_bad").unlink()
    (home / "hold_cut").unlink()
    assert actions(enqueue(links, home, backend))["sibling"] == "done already"
    settled(backend)
    assert set(states(home, backend).values()) == {"done"}
    assert sorted(order(home)) == sorted(["cut", "after_cut", "bad", "after_bad", "sibling", "cut", "bad"])


# ---------------------------------------------------------------- in a terminal


@pytest.mark.slow
def test_a_chain_runs_in_order_and_a_failed_link_stops_what_needs_it_and_nothing_else(link, home):
    links = [link("a"), link("bad", "a"), link("last", "bad"), link("sibling", "a")]
    (home / "fail_bad").touch()
    assert run_chain(links, home) == 1
    assert order(home)[0] == "a"
    assert sorted(order(home)) == ["a", "bad", "sibling"]
    (home / "fail_bad").unlink()
    assert run_chain(links, home) == 0
    assert order(home)[3:] == ["bad", "last"]
    assert run_chain(links, home) == 0
    assert len(order(home)) == 5, "what is done is not done again"
    assert read_chain(home) == {t.name: t for t in links}


def test_a_cut_run_is_resumed_one_without_a_checkpoint_starts_anew_and_a_finished_one_is_done(link, home):
    """None is removed, whoever made it: a finished one may be a copy without its checkpoint and its mark."""
    cut, anew, copied = link("r"), link("n"), link("c")
    for each in (cut, anew, copied):
        each.out.mkdir(parents=True)
        (each.out / "log.txt").write_text("cut")
    (cut.out / "checkpoint.pt").write_text("")
    manifest = {"kind": "train", "finished": True, "schema_version": SCHEMA_VERSION}
    (copied.out / "manifest.json").write_text(json.dumps(manifest))
    (home / "n.aside1").mkdir()
    assert run_chain([cut, anew, copied], home) == 0
    assert order(home) == ["r resumed", "n"]
    assert not (anew.out / "log.txt").exists()
    assert (home / "n.aside2/log.txt").read_text() == "cut"
    assert is_done(copied, home)
    assert (copied.out / "log.txt").exists()


def test_a_finished_run_of_other_options_is_not_taken_for_the_link(link):
    """Paths may differ: it may be a copy."""
    each = link("c")
    each.out.mkdir(parents=True)
    argv = ("x/extract.py", "--out", "x/c", "--seed", "7")
    manifest = {"kind": "extract_vhack_grad", "finished": True, "schema_version": SCHEMA_VERSION, "argv": argv}
    (each.out / "manifest.json").write_text(json.dumps(manifest))
    assert resumed(("y/extract.py", "--out", "y/c", "--seed", "7"), each.out) == ()
    with pytest.raises(BadInput, match="a finished run that differs in seed 41"):
        resumed(("y/extract.py", "--out", "y/c", "--seed", "41"), each.out)


@pytest.mark.parametrize("kind", ["teacher_pool", "multi_turn", "teachers"])
def test_what_goes_on_from_its_own_files_needs_no_checkpoint(tmp_path, kind):
    """Answers of a teacher that was paid for are not asked for again."""
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": kind, "schema_version": SCHEMA_VERSION}))
    assert resumed(("ask",), tmp_path) == ("ask", "--resume")


@pytest.mark.slow
def test_a_check_is_done_once_it_has_passed_and_again_once_what_it_judged_was_made_again(link, home):
    failed, run, check = link("failed", check=True), link("run"), link("verify", "run", check=True)
    (home / "fail_failed").touch()
    assert run_chain([failed], home) == 1
    assert not is_done(failed, home)
    assert run_chain([run, check], home) == 0
    assert is_done(check, home)
    shutil.rmtree(run.out)
    (home / "fail_run").touch()
    assert run_chain([run, check], home) == 1
    assert not is_done(run, home)  # though its folder is there again
    (home / "fail_run").unlink()
    assert run_chain([run, check], home) == 0
    assert order(home)[1:] == ["run", "verify", "run", "run", "verify"]


@pytest.mark.slow
@pytest.mark.parametrize(("verdicts", "code"), [((0,), 1), ((0, 1, 3), 0)], ids=["a base model", "a report"])
def test_what_wrote_its_files_and_then_said_fail_is_done_only_if_it_is_a_report(link, home, verdicts, code):
    """build_base writes all its files and then says that the model is no good."""
    path = home.parent / "link.py"
    path.write_text(path.read_text() + "sys.exit(1)\n")
    made = link("made", accept=verdicts)
    assert run_chain([made, link("user", "made")], home) == 1
    assert is_done(made, home) == (code == 0)
    assert order(home) == ["made"] if code else ["made", "user"]
    broken = replace(made, name="broken", out=home / "never")
    assert run_chain([broken], home) == 1


# ---------------------------------------------------------------- without running


def test_a_folder_is_not_continued_with_other_settings(link, home):
    write_chain(home, [replace(link("a"), argv=("other.py",))])
    write_chain(home, [link("a")])  # nothing has begun: it may change
    (home / "a").mkdir()
    with pytest.raises(BadInput, match=r"a was begun as .*link\.py.*now asked for as .*other\.py.*another --out"):
        write_chain(home, [replace(link("a"), argv=("other.py",))])
    write_chain(home, [link("b")])
    assert set(read_chain(home)) == {"a", "b"}  # a queued link must find itself there


def test_a_waiting_job_whose_need_is_added_anew_is_added_anew(link, home, monkeypatch):
    """The sneaky fail: it waits for a job that is over, and never runs."""
    links, called, ids = [link("a"), link("b", "a"), link("c", "b"), link("d")], [], iter(("11", "12", "13"))
    waiting = {i: {"id": i, "status": "Queued", "original_command": command_of(links[i], home)} for i in (1, 2, 3)}

    def call(*args):
        called.append(args)
        status = {"groups": {"test": {"status": "Running"}}, "tasks": waiting}
        return json.dumps(status) if args[1] == "status" else next(ids, "")

    monkeypatch.setattr("projected_grpo.queue.backends.call", call)
    assert [entry[1:] for entry in enqueue(links, home, Pueue("test", 1))] == [
        ("added", "11", []), ("added", "12", ["11"]), ("added", "13", ["12"]), ("waits already", "3", [])
    ]  # fmt: skip
    assert called[-1] == ("pueue", "remove", "1", "2")


def test_dry_prints_each_link_with_its_hours_and_their_sum_and_adds_nothing(script, tmp_path):
    code, out, _ = script("enqueue", "--dry", "chain=probe", "preset=toy", f"out={tmp_path / 'chain'}")
    *links, last = out.splitlines()
    hours = [float(line.split()[0]) for line in links]
    assert (code, len(links)) == (0, 12)
    assert all(line.split()[1] == "h" and " python scripts/" in line for line in links)
    assert float(last.split()[0]) == pytest.approx(sum(hours), abs=0.06)
    assert not (tmp_path / "chain").exists()


def test_dry_names_the_share_that_a_dose_removes_once_it_is_known(script, tmp_path):
    """The rows that are made up here say .5."""
    words = ("--dry", "chain=full", "preset=toy", "arms=vanilla,projected@16", "seeds=41", f"out={tmp_path}")
    assert "of the update]" not in script("enqueue", *words)[1]
    write_run(tmp_path / "train_projected@16_41", "projected", 41, ten(1))
    lines = [line for line in script("enqueue", *words)[1].splitlines() if "of the update]" in line]
    assert len(lines) == 1
    assert "train_projected@16_41" in lines[0]
    assert "[removes 50% of the update]" in lines[0]


@pytest.mark.parametrize(
    "words", ["chain=grpo preset=toy steps=50", "chain=full preset=toy port=8001", "chain=probe preset=toy seeds=2"]
)
def test_a_word_that_a_chain_does_not_use_is_refused(script, words):
    code, _, err = script("enqueue", "--dry", *words.split())
    assert code == 2
    assert "is not used with --chain" in err


@pytest.mark.parametrize("gpu", [True, False])
def test_what_only_reads_files_asks_for_no_gpu(link, home, gpu, monkeypatch):
    words = []
    monkeypatch.setattr("projected_grpo.queue.backends.call", lambda *args: words.extend(args) or "7;cluster")
    assert Slurm().add(link("a", gpu=gpu), home, ()) == "7"
    assert ("--gres=gpu:1" in words) == gpu


@pytest.mark.parametrize(
    ("backend", "why"), [(Pueue("g", 1), "cargo install --locked pueue"), (Slurm(), "squeue: not installed")]
)
def test_a_queue_that_is_not_installed_says_what_to_do(link, home, backend, why, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=why):
        enqueue([link("a")], home, backend)
