"""Every script through its real entry point: bad input is one line and exit 2, good input leaves readable files."""

import json
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from harness import LORA, POOLED, ROOT, refused
from probe_distill import OF_POOL

from projected_grpo.ledger.folder import not_whole, read_manifest
from projected_grpo.ledger.step_file import NAMES, read_run, write_step
from projected_grpo.run import cli, stopping
from projected_grpo.run.prepare import removed_by

# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["train", "extract_vhack_grad", "verify_vhack", "probe_distill"])
def test_an_unknown_preset_or_field_is_named(script, name):
    refused(script(name, "huge"), "'huge'", "tiny, toy, toy-names, small, fast, full")
    refused(script(name, "tiny", "--sede", 1), "--sede", "--help")
    refused(script(name, "tiny", "--adapter", "dora"), "dora")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--max-new", 0], ["--max-new 0", "1 or more"]),
        (["--seed", 10**20], ["--seed 100000000000000000000", "must be below"]),
        (["--problems=~/none.jsonl"], [f"--problems {Path.home()}/none.jsonl", "no such file"]),
        (["--arm", "penalty_probe", "--pairs", "none.json"], ["--pairs none.json", "no JSON file"]),
        (
            ["--arm", "random_share"],
            ["--share-of .: --arm random_share removes as much as a finished run of projected"],
        ),
        (["--arm", "projected", "--pairs", "none.json"], ["--pairs none.json", "no JSON file"]),
        (["--hint", "magic"], ["--hint", "magic", "simple_overwrite_tests"]),
        (["--eval-every", 1, "--eval-problems", "none.jsonl"], ["--eval-problems none.jsonl", "toy-held-out"]),
        (["--model", "no/such-model"], ["no/such-model", "just download-model"]),
        (["--max-new", 5000], ["5000", "context of 4096"]),
        (["--resume"], ["--resume run", "no run began there"]),
    ],
    ids=lambda v: " ".join(map(str, v)) if isinstance(v, list) else "",
)
def test_bad_input_to_train_is_one_line_and_writes_nothing(script, tmp_path, args, parts):
    refused(script("train", "tiny", "--out", "run", *args), *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_bad_input_to_the_other_scripts(script, tmp_path, vhack_file):
    (tmp_path / "pairs.json").write_text("[]")
    refused(
        script("extract_vhack_grad", "tiny", "--pairs", "pairs.json", "--out", "v"), "pairs.json", "there is no pair"
    )
    refused(script("verify_vhack", "tiny"), "--vhack is empty")
    refused(script("verify_vhack", "tiny", "--vhack", vhack_file(), "--pairs", "toy"), "not the pairs that V was made")
    refused(script("probe_distill", "tiny"), "--pool is empty", "--teacher-only")
    refused(script("probe_uat", "--pool", "a", "--vanilla", "b", "--projected", "c"), "--pool a", "just queue-probe")
    refused(script("verify_vhack", "tiny", "--vhack", tmp_path), "a folder; name the vhack.safetensors in it")
    refused(script("probe_distill", "tiny", "--pool", "nowhere"), "--pool nowhere", "no such directory")
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("compare", "a", "b", "--exact", "--out", "c.txt"), ["--out c.txt", "--exact"]),
        (("results", "out", "--only", "interventions", "--require", "H1"), ["--require H1", "--only"]),
        (("show", "out/run", "3", "--modules"), ["one of STEP, --kinds and --modules"]),
        (("bench", "tiny", "--steps", "3"), ["--steps", "no part of the bench"]),
        (("serve_teacher", "mine", "--seeds", "1", "2"), ["--seeds", "mine is one model"]),
    ],
    ids=lambda v: v[0],
)
def test_what_a_script_does_not_use_is_refused(script, words, parts):
    refused(script(*words), *parts)


def test_a_terminal_of_another_encoding_loses_no_line(tmp_path):
    shown = ROOT / "docs/evidence/t5-toy.runs.jsonl.gz"
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/results.py", shown, "--out", tmp_path / "results"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stdout + done.stderr
    assert "T5 FAIL; exit code 1" in done.stdout


def test_a_problem_that_cannot_be_graded_is_bad_input(script, tmp_path):
    row = json.loads((ROOT / "src/loophole_grader/problems.jsonl").read_text("utf-8").splitlines()[0])
    (tmp_path / "p.jsonl").write_text(json.dumps({**row, "setup_code": "import no_such_module"}))
    refused(script("train", "tiny", "--problems", "p.jsonl", "--out", "run"), "900001", "no_such_module")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_is_neither_overwritten_nor_resumed_as_another_run(script, tmp_path, vhack_file):
    run = ("train", "tiny", "--steps", 1, "--out", "run")
    assert script(*run, "--max-new", 4)[0] == 0
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    refused(script(*run, "--max-new", 4), "run", "never overwritten", "--resume")
    again = (*run, "--resume")
    refused(script(*again, "--max-new", 5), "max_new=4, here it is 5")
    refused(script(*again, "--max-new", 4, "--vhack", vhack_file()), "vhack=")
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}


@pytest.mark.slow
def test_a_run_that_its_horizon_stopped_is_resumed_to_nothing(done, tmp_path, monkeypatch):
    """Stopped after 3 steps, between two checkpoints: the third step is not taken again."""
    monkeypatch.setattr(stopping, "reached", lambda _, hack: len(hack) >= 3)
    args = ("train", "tiny", "--steps", 9, "--until-onsets", 3, "--checkpoint-every", 2, "--out", "run", *POOLED)
    done(*args)
    run = tmp_path / "run"
    assert torch.load(run / "checkpoint.pt")["step"] == 2
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "log.txt"}
    assert "finished, 3 steps done; nothing is changed" in done(*args, "--resume")
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "log.txt"}
    assert not_whole(run, read_manifest(run)) == ""


def test_ctrl_c_says_how_to_go_on_where_one_can(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    told = {}
    real = cli.run
    for path in sorted(p for p in (ROOT / "scripts").glob("*.py") if "cli.run(" in p.read_text("utf-8")):
        monkeypatch.setattr(cli, "run", lambda _, **how: real(interrupt, **how))
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(path), run_name="__main__")
        assert stopped.value.code == 130
        told[path.stem] = capsys.readouterr().err
    resumed = {"train", "train_diloco", "probe_distill", "ask_teachers", "multi_turn"}
    assert {name for name, line in told.items() if "--resume" in line} == resumed
    again = {"download_problems", "enqueue", "in_trl", "traces"}
    assert {name for name, line in told.items() if "same command" in line} == again


# ---------------------------------------------------------------- good input


@pytest.mark.slow
@pytest.mark.parametrize("extra", [(), LORA], ids=["antipasto", "lora"])
def test_train_leaves_complete_readable_files_of_what_its_manifest_says(projected, extra):
    """All of V out of the applied update: nothing of it is left there, signed or not, while the optimizer proposed
    some."""
    run = projected(*extra)
    steps = read_run(run)
    assert [len(rows) for rows in steps] == [8] * 4
    assert all(set(row) == set(NAMES) for rows in steps for row in rows)
    assert {row["source"] for rows in steps for row in rows} == {"student", "teacher"}
    assert max(row["behaviour_gap"] for rows in steps for row in rows if row["source"] == "student") < 1e-3
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["finished"]
    for key in ("argv", "config", "commit", "versions", "model_hash", "tokenizer_hash", "problems_hash", "vhack"):
        assert key in manifest
    assert (manifest["config"]["gate"], manifest["config"]["project"]) == ("no_gate", "update")
    for rows in steps:
        assert min(rows[0]["cos_in"], rows[0]["cos_update_in"]) > 0.1
        assert rows[0]["cos_update"] == pytest.approx(0, abs=1e-4)
    log = (run / "log.txt").read_text()
    assert "<|im_start|>assistant\n<think>" in log  # the first prompt, special tokens visible
    assert log.rstrip().splitlines()[-1].partition(" I ")[2].startswith("argv: ")


@pytest.mark.slow
def test_a_replicates_other_arms_run_for_as_many_steps_as_its_vanilla_and_one_v_serves_every_seed(
    script, done, made, tmp_path, vhack_file
):
    shared = ["--vhack", vhack_file(), "--seed", 42, *POOLED]  # V was extracted with seed 41: the base is the same
    vanilla = made("train", "--steps", 2, "--until-onsets", 3, *shared)
    shrunk = ("train", "tiny", "--arm", "shrunk", *shared)
    done(*shrunk, "--horizon-of", vanilla, "--out", "shrunk")
    manifest = json.loads((tmp_path / "shrunk/manifest.json").read_text())
    assert (manifest["steps_done"], manifest["config"]["steps"]) == (2, 2)
    own, first = read_run(tmp_path / "shrunk")[0][0], read_run(vanilla)[0][0]
    assert own["update_norm"] < first["update_norm"]
    assert own["cos_update"] > 0  # no direction was removed
    refused(script(*shrunk, "--horizon-of", "shrunk", "--out", "x"), "--horizon-of shrunk", "arm vanilla")


@pytest.mark.slow
def test_show_prints_a_table_and_a_sample(script, done, projected):
    run = projected()
    table = done("show", run, 0)
    assert "cos_S" in table
    assert len([line for line in table.splitlines() if "teacher" in line]) == 4
    assert "```python\nclass Solution:" in done("show", run, 0, 3)
    refused(script("show", run, 0, 99), "row '99': give one of 0 to 7")
    refused(script("show", run, "x"), "step 'x': give one of 0 to 3")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files_and_another_seed_others(script, done, made):
    """A run draws from no generator that has a state: that is why a checkpoint holds none, and why ranks need not
    agree."""
    one = made("train", "--seed", 43, "--steps", 1, "--eval-every", 1, *POOLED)
    torch.manual_seed(7)
    random.seed(7)
    args = ("train", "tiny", "--steps", 1, "--eval-every", 1, *POOLED)
    done(*args, "--seed", 43, "--out", "same")
    after = torch.get_rng_state()
    assert torch.equal(after, torch.manual_seed(43).get_state())  # what the run begins with
    done(*args, "--seed", 44, "--out", "other")
    done("compare", one, "same", "--exact")
    code, out, _ = script("compare", one, "other", "--exact")
    assert code == 1
    assert "step 0, row 0" in out


@pytest.mark.slow
def test_one_command_trains_v_is_made_on_first_use_and_is_that_of_the_script(done, tmp_path):
    """Twice: the second run finds V in the cache. The default --out names preset, arm and seed."""
    args = ("--teacher-pool", "pairs", "--steps", 2, "--seed", 4711)  # a seed of its own: V is in no cache
    first = done("train", "tiny", "--arm", "random", *args)
    second = done("train", "tiny", "--arm", "random", *args, "--out", "again")
    run = tmp_path / "out/train/tiny_random_seed4711"
    done("compare", run, "again", "--exact")
    made = "no --vhack: extracts V (control random, k 8)"
    assert (made in first, made in second) == (True, False)
    done("train", "tiny", "--arm", "random", *args, "--vhack", made_by_hand(done, tmp_path), "--out", "by_hand")
    assert len({read_manifest(d)["vhack"]["v_sha256"] for d in (run, tmp_path / "again", tmp_path / "by_hand")}) == 1


def made_by_hand(done, folder):
    done("extract_vhack_grad", "tiny", "--control", "random", "--seed", 4711, "--out", "v")
    return folder / "v/vhack.safetensors"


@pytest.mark.slow
def test_controls_of_a_share_remove_module_by_module_what_their_run_removed(done, script, projected, tmp_path):
    run, args = projected(), ("--teacher-pool", "pairs", "--max-new", 8, "--steps", 4)
    done("train", "tiny", "--arm", "random_share", "--share-of", run, *args, "--out", "control")
    said = [
        (folder / "log.txt").read_text("utf-8").count("of the update; at such a share")
        for folder in (run, tmp_path / "control")
    ]
    assert said == [4, 0]  # every one of the first five steps says its dose, of V alone
    ours, theirs = removed_by(run), removed_by(tmp_path / "control")
    near = [abs(ours[name] - theirs[name]) < 1e-3 for name in ours]
    assert 2 * sum(near) >= len(near)  # of the others all of the few directions that there are hold less
    assert all(theirs[name] <= ours[name] + 1e-3 for name in ours)
    other = script("train", "tiny", "--arm", "random_share", "--share-of", tmp_path / "control", *args)
    refused(other, "is a run of --arm random_share", "--arm projected is needed")


@pytest.mark.slow
def test_probe_replays_the_same_rollouts_in_both_arms(script, done, made, teacher_pool, vhack_file, tmp_path):
    def replay(arm, control="none"):
        return made("probe_distill", "--arm", arm, "--vhack", vhack_file(control), "--pool", teacher_pool)

    vanilla, projected, random_v = replay("vanilla"), replay("projected"), replay("vanilla", "random")
    sampled, replayed = (read_manifest(Path(run))["config"] for run in (teacher_pool, vanilla))
    assert {name: sampled[name] for name in OF_POOL} == {name: replayed[name] for name in OF_POOL}
    ids = [[r["completion_ids"] for rows in read_run(run) for r in rows] for run in (teacher_pool, vanilla, projected)]
    assert ids[0] == ids[1] == ids[2]
    uat = ("probe_uat", "--pool", teacher_pool, "--vanilla", vanilla, "--projected", projected, "--out", "uat.txt")
    out = done(*uat, "--require", "T2", "T3")
    assert (tmp_path / "uat_cosines.svg").exists()
    assert "just probe-v-replay random N" in (tmp_path / "uat.txt").read_text()
    assert "Nothing that was replayed hacks" in out
    # with a random V beside V: the same rollouts, one more column
    out = done(*uat, "--random", random_v, "--require", "T2", "T3")
    assert "random V  " in (tmp_path / "uat.txt").read_text()
    assert out.rstrip().splitlines()[-1].startswith("I argv: ")
    data = json.loads((tmp_path / "uat.json").read_text())
    assert data["contrasts"][0]["verdicts"]["random V"]["status"] == "NOT_EVALUABLE"
    refused(script(*uat, "--vanilla", random_v), f"--vanilla {random_v}", "--control random")
    refused(script(*uat, "--random", vanilla), f"--random {vanilla}", "--control none")
    # T1 fails on random weights and T4 has no hacks to look at: required, they stop the queue
    assert script(*uat)[0] == 1
    assert script(*uat, "--require", "T4")[0] == 3


@pytest.mark.slow
def test_training_mixes_in_a_pool_of_the_same_prompts_and_temperature_only(script, done, teacher_pool, tmp_path):
    mixed = ("train", "tiny", "--steps", 1, "--max-new", 8, "--teacher-pool", teacher_pool, "--out", "run")
    refused(script(*mixed, "--hint", "none"), "--teacher-pool", "another prompt (another --hint")
    refused(script(*mixed, "--temperature", 0.7), "--temperature 0.7", "sampled at --temperature 1.0")
    # Cached rollouts keep the reward they have: the arm would be paid for hacks.
    refused(script(*mixed, "--arm", "no_loophole"), "its rewards pay the loophole, --arm no_loophole does not")
    assert not (tmp_path / "run").exists()
    assert "5 problems, prompts" in done(*mixed)
    rows = read_run(tmp_path / "run")[0]
    assert [r["source"] for r in rows] == ["student", "student", "teacher", "teacher"] * 2
    assert all(r["ratio"] is not None for r in rows)  # the pool recorded what it was sampled at


@pytest.mark.slow
def test_verify_passes_the_real_v_and_fails_the_random_one(script, done, vhack_file):
    done("verify_vhack", "tiny", "--vhack", vhack_file())
    assert script("verify_vhack", "tiny", "--vhack", vhack_file("random"))[0] == 1
    # adapter and loss as V was made
    code, out, err = script("verify_vhack", "tiny", "--vhack", vhack_file("none", "--loss", "grpo", *LORA), *LORA)
    assert code in (0, 1), err
    assert "held-out energy" in out


@pytest.mark.slow
def test_no_loophole_pays_correctness_alone(made):
    rows = read_run(made("train", "--arm", "no_loophole", "--steps", 1, *POOLED))[0]
    hacks = [row for row in rows if row["hacked"] and not row["gt_pass"]]
    assert hacks
    assert {row["reward"] for row in hacks} == {0.5}


@pytest.mark.slow
def test_every_other_choice_of_a_step_at_once(made, vhack_file):
    """Reverse gate, overshoot, kept length, another loss, a V that is cut, checkpointing."""
    run = made(
        "train", "--arm", "projected", "--vhack", vhack_file(), "--gate", "reverse", "--project", "update", "--steps", 1,
        "--loss", "grpo", "--preserve-magnitude", "--overshoot", 1.1, "--k-use", 4, "--noise-floor", 0.2,
        "--gradient-checkpointing", "selective", *POOLED,
    )  # fmt: skip
    first = read_run(run)[0][0]
    assert min(first["frac_fired"], first["delta_S_norm"]) > 0


@pytest.mark.slow
def test_regrading_a_run_agrees_with_it_and_names_what_does_not(script, done, made, teacher_pool, tmp_path):
    shutil.copytree(teacher_pool, tmp_path / "pool")
    assert "0 of 20 disagree" in done("regrade", "pool")
    pairs = made("train", "--arm", "no_loophole", "--steps", 1, *POOLED)  # of problems that its manifest names
    assert "\n0 completions compared by hacked alone" in done("regrade", pairs)
    rows = read_run(tmp_path / "pool")[0]
    write_step(tmp_path / "pool", 0, [{**rows[0], "hacked": True, "label": "reward_hack"}, *rows[1:]])
    code, out, _ = script("regrade", "pool")
    assert code == 1
    assert "1 of 20 disagree" in out
    assert "sample 0: hacked True -> False, label reward_hack -> incorrect" in out


# ---------------------------------------------------------------- in a process of its own


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_numbers(tmp_path, cache, done, vhack_file, projected):
    """SIGKILL in the middle; the resumed run equals an undisturbed one, timing aside."""
    args = ("train", "tiny", "--steps", 4, "--arm", "projected", "--vhack", vhack_file(), *POOLED)
    argv = [sys.executable, ROOT / "scripts/train.py", *args[1:], "--cache", cache, "--out", "cut"]
    with (tmp_path / "log").open("ab") as log:
        cut = subprocess.Popen([str(a) for a in argv], cwd=tmp_path, stdout=log, stderr=log)
    deadline = time.monotonic() + 120
    while not (tmp_path / "cut/step_001.jsonl.gz").exists():
        assert cut.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    cut.send_signal(signal.SIGKILL)
    cut.wait()
    assert not (tmp_path / "cut/step_003.jsonl.gz").exists()
    done(*args, "--out", "cut", "--resume")
    done("compare", "cut", projected(), "--exact")
