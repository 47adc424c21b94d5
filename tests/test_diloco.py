"""Three replicas as real processes on the tiny model, through `just train-diloco`'s own launcher and a real
lighthouse: one is killed, one is late, the others go on, and nothing is lost but what the killed one did since its
last round."""

import os
import signal
import threading

import pytest
import torch
from harness import ROOT, refused
from queue_world import processes_with, wait_until
from safetensors.torch import load_file

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import not_whole, read_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.replicas.group import parsed, read_rounds, run_group
from projected_grpo.replicas.rounds import check_facts
from projected_grpo.run.trained import load_trained

H, ROUNDS = 2, 5
LR, MOMENTUM = 0.7, 0.9
FOREVER = 900
"""Seconds after which a test that waits for a file gives up; it is no bound on anything that is measured."""


class Paced:
    """A group whose replicas wait for leave; each method waits until what it says is on disk."""

    def __init__(self, home, cache):
        self.home = home
        words = ("3", "tiny", f"H={H}", "--steps", str(H * ROUNDS), "--prompts-per-step", "1", "--group-size", "2",
                 "--max-new", "4", "--per-sample-every", "0", "--grader-workers", "1", "--cache", str(cache),
                 "--patience", "8", "--out", str(home / "group"))  # fmt: skip
        self.config, self.args = parsed(words, "")

    def run(self, number):
        return self.config.out / f"replica_{number}"

    def allow(self, *steps):
        """How many steps each replica may take; None: as many as before."""
        for k, n in enumerate(steps):
            if n is not None:
                write_atomic(self.home / f"steps_{k}", str(n).encode())

    def until(self, what):
        wait_until(f"the group goes on (its logs are in {self.home}/group/logs)", what, FOREVER)

    def held(self, number, *replicas):
        self.until(lambda: all((read_rounds(self.run(k)) or [{"round": 0}])[-1]["round"] >= number for k in replicas))


@pytest.fixture(scope="module")
def lived(cache, tmp_path_factory):
    """A group that has lived through a kill and a late replica."""
    pytest.importorskip("torchft")
    paced = Paced(tmp_path_factory.mktemp("diloco"), cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "src", ROOT / "scripts", ROOT / "tests"))))
        ends = []
        script = ROOT / "tests" / "replica_scenarios.py"
        thread = threading.Thread(target=lambda: ends.extend(run_group(paced.config, paced.args, script)), daemon=True)
        paced.allow(2, 2, 2)
        thread.start()
        paced.held(1, 0, 1, 2)
        # replica 1 is killed after one step of round 2; the others do not wait for it
        paced.allow(None, 3)
        paced.until((paced.run(1) / "step_002.jsonl.gz").exists)
        (paced.home / "stop_1").touch()
        os.kill(processes_with(f"--replica\x001\0--out\0{paced.run(1)}")[0], signal.SIGKILL)
        paced.allow(4, 2, 4)
        paced.held(2, 0, 2)
        # it is back, and stands with the others from round 3 on
        (paced.home / "stop_1").unlink()
        paced.until(lambda: "joins the others" in (paced.run(1) / "log.txt").read_text())
        paced.allow(6, 2, 6)
        paced.held(3, 0, 1, 2)
        # replica 2 is late for round 4, and brings what it has learned to round 5
        paced.allow(8, 4, 7)
        paced.held(4, 0, 1)
        paced.allow(8, 4, 8)
        paced.until((paced.run(2) / "step_007.jsonl.gz").exists)
        paced.allow(10, 6, 8)
        thread.join(FOREVER)
    assert [(r.process.returncode, r.starts) for r in ends] == [(0, 1), (0, 2), (0, 1)]
    return paced


def lines(lived):
    """round -> replica -> its line."""
    found = {}
    for k in range(3):
        for line in read_rounds(lived.run(k)):
            found.setdefault(line["round"], {})[k] = line
    return found


@pytest.mark.slow
def test_after_every_round_all_who_are_there_hold_the_same_bits(lived):
    found = lines(lived)
    assert [sorted(found[r]) for r in sorted(found)] == [[0, 1, 2], [0, 2], [0, 1, 2], [0, 1], [0, 1, 2]]
    assert all(len({line["sha256"] for line in of.values()}) == 1 for of in found.values())
    assert len({of[0]["sha256"] for of in found.values()}) == 5  # and they do move
    ends = [load_file(lived.run(k) / "adapter.safetensors") for k in range(3)]
    assert all(torch.equal(ends[0][name], end[name]) for end in ends[1:] for name in ends[0])


@pytest.mark.slow
def test_the_others_go_on_without_the_killed_and_the_late_and_say_so(lived):
    found = lines(lived)
    assert [found[r][0]["brought"] for r in range(1, 6)] == [[0, 1, 2], [0, 2], [0, 2], [0, 1], [0, 1, 2]]
    assert found[5][2]["behind"] == 1
    assert found[3][1]["behind"] == 1
    log = (lived.run(0) / "log.txt").read_text("utf-8")
    assert "W round 2: replicas 0, 2; without 1" in log
    assert "W round 4: replicas 0, 1; without 2" in log


@pytest.mark.slow
def test_the_average_is_the_average(lived):
    """DiLoCo's outer step, written out: what each brought was kept by its process before the round."""
    theta = torch.load(lived.home / "local_0_1.pt")["origin"].double()
    velocity = torch.zeros_like(theta)
    for r, of_round in lines(lived).items():
        kept = {k: torch.load(lived.home / f"local_{k}_{r}.pt") for k in of_round[0]["brought"]}
        # a late one's: from the round it knew
        learned = [(of["origin"] - of["local"]).double() for of in kept.values()]
        assert all(float(x.norm()) > 0 for x in learned)
        gradient = sum(learned) / len(learned)
        velocity = MOMENTUM * velocity + gradient
        theta = theta - LR * (gradient + MOMENTUM * velocity)
        for of in kept.values():
            torch.testing.assert_close(of["after"].double(), theta, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_nothing_is_lost_but_the_killed_ones_steps_since_its_last_round(lived, cache):
    """Every step that a replica has on disk is in a round; the killed one took its third anew. What is there
    loads."""
    assert [len(read_run(lived.run(k))) for k in range(3)] == [10, 6, 8]
    for k in range(3):
        manifest = read_manifest(lived.run(k))
        assert not_whole(lived.run(k), manifest) == ""
        brought = [line["step"] for line in read_rounds(lived.run(k)) if k in line["brought"]]
        assert brought == list(range(H, manifest["steps_done"] + 1, H))
    for k in (0, 2):  # not the killed one, whose file ends where it was
        assert load_trained(lived.run(k), cache=cache).steps == len(read_run(lived.run(k)))


@pytest.mark.slow
def test_each_replica_has_problems_and_draws_of_its_own(lived):
    rows = [[row for step in read_run(lived.run(k)) for row in step] for k in range(3)]
    problems = [{row["problem_id"] for row in of} for of in rows]
    assert len(set().union(*problems)) == sum(map(len, problems))
    assert len({tuple(of[0]["completion_ids"]) for of in rows}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["quarantine", "experts"])
def test_an_arm_whose_state_is_not_averaged_is_refused(script, vhack_file, arm):
    """A delta_S that stays behind when theta is averaged is deleted from nobody's policy."""
    meets = ("--meet", "torchft://localhost:1", "--replicas", 2, "--outer-every", 1, "--steps", 2)
    run = script("train", "tiny", "--arm", arm, "--vhack", vhack_file(), *meets, "--out", "run")
    refused(run, f"--arm {arm}: trains more parameters than the adapter's, which replicas do not average")


def test_a_replica_with_other_arguments_is_refused():
    check_facts({"seed": 41}, {"seed": 41})
    with pytest.raises(BadInput, match="has seed=42, the first of its group 41"):
        check_facts({"seed": 42}, {"seed": 41})
