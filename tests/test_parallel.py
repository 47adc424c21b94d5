"""Several processes take the steps of one: the same tokens, labels and numbers, and no quiet way to go apart.

Through the real torchrun, gloo on the CPU. Starting processes is what takes the time, so one launch serves most
tests."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import parallel_scenarios
import pytest
import torch
from harness import ROOT, cut_after, run_script
from queue_world import wait_until
from safetensors.torch import load_file

from projected_grpo.data.preferences import MAJORITY, Preferences, StoredPair, write_preferences
from projected_grpo.ledger.step_file import COLUMNS, read_run, read_step
from projected_grpo.parallel import Ranks, here

REL, ABS = 5e-4, 1e-6
"""Float32, and sums in another order: a rank pads its own rows only and adds up its own gradients first
(docs/queue.md)."""
COMMON = ("--arm", "projected", "--grader-workers", "1")
MIXED = ("--teacher-pool", "pairs", "--mix", "teacher=.5,base=.25", "--max-new", "8", "--project", "update", "--gate",
         "no_gate", "--prompts-per-step", "3")  # fmt: skip
CHANNELS = ("--alpha", "2", "--distill-hint", "none", "--trace-weight", ".5", "--trace-batch", "3", "--taid-weight", ".25",
            "--teacher", "tiny")  # fmt: skip
POOLED = (*MIXED, *CHANNELS)  # every source of rows and every channel
LIVE = ("--project", "grad", "--prompts-per-step", "1", "--max-new", "12", "--top-p", "0.95", "--refresh-every", "1",
        "--eval-every", "2", "--eval-samples", "2")  # fmt: skip
LONG = ("--until-onsets", "9")  # reads the steps on disk; there is no onset
QUICK = ("--prompts-per-step", "2", "--max-new", "4")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def world_of_runs(cache, vhack_file, tmp_path_factory):
    """A folder with the runs of one process, and those of two that must equal them."""
    home = tmp_path_factory.mktemp("parallel")
    common = ("tiny", *COMMON, "--vhack", vhack_file(), "--cache", cache, "--steps", 2)

    def args(out, *more):
        return [str(a) for a in (*common, "--out", home / out, *more)]

    chat = (("user", "Count."),)
    pairs = [StoredPair(f"t{i}", 0, 3, 2, MAJORITY, chat, "1" * (i + 1), "2") for i in range(5)]
    write_preferences(home / "pairs.jsonl", Preferences(tuple(pairs), 5, 5))
    pooled, threads = (*POOLED, "--trace-pairs", home / "pairs.jsonl"), torch.get_num_threads()
    torch.set_num_threads(1)  # as the others have: another number rounds otherwise, and a sampled token may flip
    assert run_script("train", *args("pooled_1", *pooled)) == 0
    with parallel_scenarios.rewarding_tokens():
        assert run_script("train", *args("live_1", *LIVE)) == 0
    with cut_after(1):
        assert run_script("train", *args("resumed_2", *pooled, *LONG)) == 130
    torch.set_num_threads(threads)
    assert [p.name for p in sorted((home / "resumed_2").glob("step_*"))] == ["step_000.jsonl.gz"]
    scenarios = [
        {"name": "pooled_2", "args": args("pooled_2", *pooled)},
        {"name": "resumed_2", "machines": True,
         "args": args("resumed_2", *pooled, *LONG, "--out", "resumed_2", "--resume")},
        {"name": "live_2", "args": args("live_2", *LIVE), "pay_tokens": True},
        {"name": "apart", "args": args("apart", *QUICK), "pay_tokens": True, "step_alone": True},
    ]  # fmt: skip
    (home / "scenarios.json").write_text(json.dumps(scenarios))
    command = [*TORCHRUN, parallel_scenarios.__file__, "scenarios.json"]
    done = subprocess.run(command, cwd=home, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return home


def left(home, name):
    """Exit codes and stderrs of every rank of a scenario."""
    found = [json.loads((home / f"{name}.{rank}.json").read_text()) for rank in range(2)]
    return [f["code"] for f in found], [f["stderr"] for f in found]


def close(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=REL, abs_tol=ABS)


def same_rows(one, other):
    """Tokens, labels and every other exact column identical, floats within the tolerance; timing aside."""
    for i, (a, b) in enumerate(zip(one, other, strict=True)):
        for name, kind in ((c.name, c.type) for c in COLUMNS):
            if kind in ("float", "floats") or name == "channels":
                assert close(a[name], b[name]), (i, name, a[name], b[name])
            elif name != "timing":
                assert a[name] == b[name], (i, name)


def same_runs(one, other):
    left_steps, right_steps = read_run(one), read_run(other)
    assert len(left_steps) == len(right_steps) == 2
    for a, b in zip(left_steps, right_steps, strict=True):
        same_rows(a, b)
    ours, theirs = load_file(one / "adapter.safetensors"), load_file(other / "adapter.safetensors")
    for name, theta in ours.items():
        assert float((theta - theirs[name]).norm() / theta.norm()) < REL, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "two", "begun_with"), [("pooled_1", "pooled_2", 2), ("pooled_1", "resumed_2", 1), ("live_1", "live_2", 2)]
)
def test_two_processes_take_the_steps_of_one_whose_run_they_also_go_on_with(world_of_runs, one, two, begun_with):
    """Pooled: every source and channel, three prompts on two ranks, in shares of two and one. Live: one prompt, so
    one rank has none; projection of the gradient, a refreshed V. Resumed: on two machines, of which one sees the
    run's folder."""
    assert left(world_of_runs, two) == ([0, 0], ["", ""])
    same_runs(world_of_runs / one, world_of_runs / two)
    assert list((world_of_runs / "machine_1").iterdir()) == []
    assert json.loads((world_of_runs / two / "manifest.json").read_text())["processes"] == begun_with


@pytest.mark.slow
def test_every_source_and_channel_was_in_it(world_of_runs):
    """Each rank distils its own rows and takes its share of the pairs."""
    rows = read_run(world_of_runs / "pooled_2")[-1]
    assert rows[0]["delta_S_norm"] > 0.1  # it did learn
    assert all(math.isfinite(r["cos_S_contrib"]) for r in rows if r["grad_norm"])
    assert [r["source"] for r in rows] == ["student", "base", "teacher", "teacher"] * 3
    assert len({r["problem_id"] for r in rows}) == 3
    told = rows[0]["channels"]
    assert [told[name]["rows"] for name in ("hint_distill", "trace_dpo", "taid")] == [3, 3, 3]
    assert all(of["share"] for of in told.values())
    assert any(r["advantage"] for r in read_run(world_of_runs / "live_2")[-1])


@pytest.mark.slow
def test_held_out_problems_are_shared_out_and_come_back_in_order(world_of_runs):
    """Before training the parameters are the same bits, so every row is. Afterwards they are the same to rounding: a
    draw may fall between the two, so a row may read on from another token, one of twelve at most."""
    for done in (0, 2):
        one, other = (read_step(world_of_runs / f"{run}/eval/step_{done:03d}.jsonl.gz") for run in ("live_1", "live_2"))
        asked = ("problem_id", "sample_id", "prompt")
        assert [[r[name] for name in asked] for r in one] == [[r[name] for name in asked] for r in other]
        same = [(a, b) for a, b in zip(one, other, strict=True) if a["completion_ids"] == b["completion_ids"]]
        assert len(one) - len(same) <= (1 if done else 0)
        same_rows(*map(list, zip(*same, strict=True)))


@pytest.mark.slow
def test_ranks_that_step_alone_are_caught_at_the_first_step(world_of_runs):
    """The sneaky fail: gradients are not added up, and every rank trains a model of its own."""
    codes, stderrs = left(world_of_runs, "apart")
    assert codes == [1, 1]
    assert stderrs[0].startswith("error: step 0: the ranks' parameters differ after the update")
    assert stderrs[1] == ""
    assert not list((world_of_runs / "apart").glob("step_*"))


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_and_what_is_on_disk_is_good(world_of_runs, vhack_file, tmp_path):
    """SIGKILL for one rank of the real script: torchrun ends the others and says which one it was. From a cold cache:
    one rank makes the SVDs that the other reads."""
    args = ("tiny", *COMMON, *POOLED, "--trace-pairs", world_of_runs / "pairs.jsonl", "--vhack", vhack_file(),
            "--cache", tmp_path / "cache", "--steps", 500, "--out", tmp_path / "run")  # fmt: skip
    command = [*TORCHRUN, ROOT / "scripts/train.py", *map(str, args)]
    with (tmp_path / "log").open("wb") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT, cwd=tmp_path)
    try:
        wait_until("two steps are done", (tmp_path / "run/step_001.jsonl.gz").exists, 400)
        os.kill(rank_of(started.pid, 1), signal.SIGKILL)
        assert started.wait(timeout=120) == 1
    finally:
        started.terminate()  # not kill: torchrun has ranks to end
        started.wait(timeout=60)
    said = (tmp_path / "log").read_text()
    assert re.search(r"Root Cause.*rank      : 1 .*SIGKILL", said, re.DOTALL)
    assert said.count("train in ") == 1  # only rank 0 speaks
    whole = read_run(world_of_runs / "pooled_1")
    for one, other in zip(whole, read_run(tmp_path / "run"), strict=False):
        same_rows(one, other)


def rank_of(launcher, rank):
    """Process id of a rank, by its environment."""
    for pid in map(int, subprocess.check_output(["pgrep", "-P", str(launcher)], text=True).split()):
        if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pid
    raise AssertionError(f"no rank {rank} below {launcher}")


# ---------------------------------------------------------------- in this process


@pytest.mark.parametrize(("items", "size"), [(7, 3), (6, 3), (2, 3), (0, 2), (5, 1)])
def test_shares_are_neighbours_in_order_and_differ_by_one_at_most(items, size):
    shares = [Ranks(rank, size).share(range(items)) for rank in range(size)]
    assert [i for share in shares for i in share] == list(range(items))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_rank_of_torchrun_knows_its_place(monkeypatch):
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert here() == Ranks(5, 8, 1, 4)
