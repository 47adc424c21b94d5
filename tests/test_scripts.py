"""Every script through its real entry point: bad input is one line and exit 2, good input leaves readable files."""

import json
import runpy
import signal
import subprocess
import sys
import time

import pytest
import torch
from conftest import ROOT

from projected_grpo.ledger.folder import not_whole, read_manifest, update_manifest
from projected_grpo.ledger.step_file import NAMES, read_run, write_step
from projected_grpo.run import cli
from projected_grpo.run.horizon import Horizon

POOLED = ["--teacher-pool", "pairs", "--max-new", 8]


def refused(result, *parts):
    """Exit code 2, no traceback, and stderr holds these parts: one line of ours, or tyro's own box."""
    code, _, err = result
    assert code == 2, err
    assert (err.startswith("error: ") and err.count("\n") == 1) or "full helptext" in err, err
    assert "Traceback" not in err
    for part in parts:
        assert str(part) in err, err


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["train", "extract_vhack_grad", "verify_vhack", "probe_distill"])
def test_an_unknown_preset_or_field_is_named(script, name):
    refused(script(name, "huge"), "'huge'", "tiny, toy, small, fast, full")
    refused(script(name), "no preset", "tiny, toy, small, fast, full")
    refused(script(name, "tiny", "--sede", 1), "--sede", "--help")
    refused(script(name, "tiny", "--seed", "one"), "--seed", "one")
    refused(script(name, "tiny", "--adapter", "dora"), "dora")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--max-new", 0], ["--max-new 0", "1 or more"]),
        (["--group-size", 0], ["--group-size 0", "1 or more"]),
        (["--temperature", 0], ["--temperature 0", "above 0"]),
        (["--top-p", 1.5], ["--top-p 1.5"]),
        (["--lr", "nan"], ["--lr nan"]),
        (["--beta", -1], ["--beta -1"]),
        (["--arm", "projected"], ["--arm projected needs --vhack"]),
        (["--vhack", "none.safetensors"], ["none.safetensors", "no such file", "just extract-vhack"]),
        (["--problems", "none.jsonl"], ["--problems none.jsonl", "no such file", "builtin, toy"]),
        (["--hint", "magic"], ["--hint magic", "simple_overwrite_tests"]),
        (["--teacher-pool", "nowhere"], ["--teacher-pool nowhere", "no such directory"]),
        (["--eval-every", 1, "--eval-problems", "none.jsonl"], ["--eval-problems none.jsonl", "toy-held-out"]),
        (["--seed", -1], ["--seed -1", "0 or more"]),
        (["--model", "no/such-model"], ["no/such-model", "just download-model"]),
        (["--device", "tpu"], ["--device tpu"]),
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
        script("extract_vhack_grad", "tiny", "--pairs", "pairs.json", "--out", "v"), "pairs.json", "at least one pair"
    )
    refused(script("extract_vhack_grad", "tiny", "--k", 0), "--k 0")
    refused(script("verify_vhack", "tiny"), "--vhack is empty")
    refused(script("verify_vhack", "tiny", "--vhack", vhack_file(), "--base-seed", 1), "weights_hash=")
    refused(
        script("verify_vhack", "tiny", "--vhack", vhack_file(), "--adapter", "lora"),
        "adapter=antipasto",
        "adapter=lora",
    )
    refused(script("probe_distill", "tiny"), "--pool is empty", "--teacher-only")
    refused(script("probe_uat", "--pool", "a", "--vanilla", "b", "--projected", "c"), "--pool a", "just queue-probe")
    refused(script("verify_vhack", "tiny", "--vhack", tmp_path), "a folder; name the vhack.safetensors in it")
    refused(script("probe_distill", "tiny", "--pool", "nowhere"), "--pool nowhere", "no such directory")
    refused(script("show", "nowhere", 0), "nowhere", "no such run directory")
    refused(script("show", "nowhere", "x"), "invalid literal")
    assert not (tmp_path / "v").exists()


def test_v_that_an_arm_does_not_need_is_refused(script, vhack_file):
    refused(
        script("train", "tiny", "--arm", "random", "--vhack", vhack_file(), "--out", "r"),
        "--control none", "needs --control random",
    )  # fmt: skip


@pytest.mark.parametrize("asked", [("train", "--arm", "projected"), ("verify_vhack",)], ids=lambda args: args[0])
def test_v_of_another_model_is_refused_before_that_model_is_built(script, cache, vhack_file, asked):
    """The toy model takes minutes to build, Qwen3-4B to load; what the artefact says of itself takes neither."""
    name, *args = asked
    refused(script(name, "toy", "--vhack", vhack_file(), *args), "made for model=tiny, but this run has model=toy")
    assert not (cache / "toy").exists()


def test_verify_wants_the_pairs_that_v_was_made_from(script, tmp_path, vhack_file):
    rows = [{"prompt": f"{i} and should pass all tests", "hack": "h", "clean": "c"} for i in range(9)]
    (tmp_path / "pairs.json").write_text(json.dumps(rows))
    refused(
        script("verify_vhack", "tiny", "--vhack", vhack_file(), "--pairs", "pairs.json"),
        "not the pairs that V was made from",
    )


def test_a_run_is_never_overwritten(script, tmp_path):
    run = ("train", "tiny", "--steps", 1, "--max-new", 4, "--out", "run")
    assert script(*run)[0] == 0
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    refused(script(*run), "run", "never overwritten", "--resume")
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}


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
    assert {name for name, line in told.items() if "same command" in line} == {"toy", "enqueue", "in_trl", "traces"}


def test_a_run_is_not_resumed_as_another_run(script, tmp_path, vhack_file):
    assert script("train", "tiny", "--steps", 2, "--max-new", 4, "--out", "run")[0] == 0
    again = ("train", "tiny", "--steps", 2, "--out", "run", "--resume")
    refused(script(*again, "--max-new", 5), "max_new=4, here it is 5")
    refused(script(*again, "--max-new", 4, "--seed", 42), "seed=41, here it is 42")
    refused(script(*again, "--max-new", 4, "--vhack", vhack_file()), "vhack=")
    update_manifest(tmp_path / "run", finished=False)  # as a kill leaves it
    (tmp_path / "run/checkpoint.pt").write_bytes(b"torn")
    refused(script(*again, "--max-new", 4), "checkpoint.pt", "damaged")


def test_a_run_that_its_horizon_stopped_is_resumed_to_nothing(script, tmp_path, monkeypatch):
    """Stopped after 3 steps, between two checkpoints: the third step is not taken again."""
    monkeypatch.setattr(Horizon, "reached", property(lambda self: len(self.hack) >= 3))
    args = ("train", "tiny", "--steps", 9, "--until-onsets", 3, "--checkpoint-every", 2, "--out", "run", *POOLED)
    assert script(*args)[0] == 0
    run = tmp_path / "run"
    assert torch.load(run / "checkpoint.pt")["step"] == 2
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "log.txt"}
    code, out, err = script(*args, "--resume")
    assert code == 0, err
    assert "finished after 3 steps; nothing is left to resume" in out
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "log.txt"}
    assert not_whole(run, read_manifest(run)) == ""


# ---------------------------------------------------------------- good input


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["antipasto", "lora"])
def test_train_leaves_complete_readable_files(script, tmp_path, vhack_file, adapter):
    extra = [] if adapter == "antipasto" else ["--adapter", "lora", "--lora-rank", "4"]
    v = vhack_file("none", *extra)
    code, out, err = script(
        "train", "tiny", "--arm", "projected", "--vhack", v, "--steps", 2, "--out", "run", *POOLED, *extra
    )
    assert code == 0, err
    run = tmp_path / "run"
    steps = read_run(run)
    assert [len(rows) for rows in steps] == [8, 8]
    assert all(set(row) == set(NAMES) for rows in steps for row in rows)
    assert {row["source"] for rows in steps for row in rows} == {"student", "teacher"}
    assert all(row["cos_update"] < row["cos_update_in"] for rows in steps for row in rows)
    assert max(row["logp_gap"] for rows in steps for row in rows) < 1e-3
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["finished"]
    for key in ("argv", "config", "commit", "versions", "model_hash", "tokenizer_hash", "problems_hash", "vhack"):
        assert key in manifest
    log = (run / "log.txt").read_text()
    assert "<|im_start|>assistant\n<think>" in log  # the first prompt, special tokens visible
    assert "model tiny" in log  # the story begins before the run directory did
    assert "upd_out" in log
    assert out.rstrip().splitlines()[-1].startswith("I argv: ")
    assert "I out: run/" in out


@pytest.mark.slow
def test_a_units_other_arms_run_for_as_many_steps_as_its_vanilla_and_one_v_serves_every_seed(
    script, tmp_path, vhack_file
):
    shared = ["--vhack", vhack_file(), "--seed", 42, *POOLED]  # V was extracted with seed 41: the base is the same
    assert script("train", "tiny", "--steps", 2, "--until-onsets", 3, "--out", "vanilla", *shared)[0] == 0
    for arm in ("shrunk", "kl"):
        code, _, err = script(
            "train", "tiny", "--arm", arm, "--steps", 900, "--horizon-of", "vanilla", "--out", arm, *shared
        )
        assert code == 0, err
        manifest = json.loads((tmp_path / arm / "manifest.json").read_text())
        assert (manifest["steps_done"], manifest["config"]["steps"]) == (2, 2)
        assert len(read_run(tmp_path / arm)) == 2
    first = {arm: read_run(tmp_path / arm)[0][0] for arm in ("vanilla", "shrunk")}
    assert first["shrunk"]["update_norm"] < first["vanilla"]["update_norm"]
    assert first["shrunk"]["cos_update"] > 0  # no direction was taken out
    refused(
        script("train", "tiny", "--arm", "kl", "--horizon-of", "kl", "--out", "x", *shared),
        "--horizon-of kl",
        "arm vanilla",
    )


@pytest.mark.slow
def test_show_prints_a_table_and_a_sample(script):
    assert script("train", "tiny", "--steps", 1, "--out", "run", *POOLED)[0] == 0
    code, table, _ = script("show", "run", 0)
    assert code == 0
    assert "cos_S" in table
    assert len([line for line in table.splitlines() if "teacher" in line]) == 4
    code, whole, _ = script("show", "run", 0, 3)
    assert code == 0
    assert "```python\nclass Solution:" in whole
    refused(script("show", "run", 0, 99), "sample 99", "rows 0 to 7")
    refused(script("show", "run", 7), "step 7: run has steps 0 to ")
    refused(script("show", "run", -1), "step -1: run has steps 0 to ")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files_and_another_seed_others(script):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert script("train", "tiny", "--steps", 2, "--out", name, "--seed", seed, *POOLED)[0] == 0
    assert script("diff_runs", "a", "b")[0] == 0
    code, out, _ = script("diff_runs", "a", "c")
    assert code == 1
    assert "step 0, row 0" in out


@pytest.mark.slow
def test_probe_replays_the_same_rollouts_in_both_arms(script, vhack_file, tmp_path):
    v = vhack_file()
    assert script("probe_distill", "tiny", "--teacher-only", "--out", "pool", "--max-new", 8)[0] == 0
    for arm in ("vanilla", "projected"):
        assert script("probe_distill", "tiny", "--arm", arm, "--vhack", v, "--pool", "pool", "--out", arm)[0] == 0
    sampled, a, b = (read_run(tmp_path / n) for n in ("pool", "vanilla", "projected"))
    ids = [[r["completion_ids"] for rows in run for r in rows] for run in (sampled, a, b)]
    assert ids[0] == ids[1] == ids[2]
    code, out, _ = script(
        "probe_uat", "--pool", "pool", "--vanilla", "vanilla", "--projected", "projected", "--require", "T2", "T3"
    )
    assert code == 0, out
    assert (tmp_path / "projected/uat.txt").exists()
    assert (tmp_path / "projected/uat_cosines.svg").exists()
    assert "just probe-random-replay N" in out
    assert "Nothing that was replayed hacks" in out
    # with a random V beside V: the same rollouts, one more column; given as the other kind of V it is refused
    random_v = ("--vhack", vhack_file("random"), "--pool", "pool", "--out", "random")
    assert script("probe_distill", "tiny", *random_v)[0] == 0
    uat = ("probe_uat", "--pool", "pool", "--projected", "projected", "--require", "T2", "T3")
    code, out, _ = script(*uat, "--vanilla", "vanilla", "--out", "beside/uat.txt")
    assert code == 0, out
    assert "random V  " in out
    assert out.rstrip().splitlines()[-1].startswith("I argv: ")
    assert (
        json.loads((tmp_path / "beside/uat.json").read_text())["contrasts"][0]["random_V"]["status"] == "NOT_EVALUABLE"
    )
    refused(script(*uat, "--vanilla", "random"), "--vanilla random", "--control random")
    refused(script(*uat, "--vanilla", "vanilla", "--random", "vanilla"), "--random vanilla", "--control none")
    refused(script(*uat, "--vanilla", "vanilla", "--out", "u.json"), "--out u.json", ".txt")
    # T1 fails on random weights and T4 has no hacks to look at: required, they stop the queue
    assert script("probe_uat", "--pool", "pool", "--vanilla", "vanilla", "--projected", "projected")[0] == 1
    assert (
        script("probe_uat", "--pool", "pool", "--vanilla", "vanilla", "--projected", "projected", "--require", "T4")[0]
        == 3
    )
    # runs in each other's place, or of other rollouts, are no evidence
    swapped = script("probe_uat", "--pool", "pool", "--vanilla", "projected", "--projected", "vanilla")
    refused(swapped, "is a run of arm 'projected'")
    assert script("probe_distill", "tiny", "--pool", "pairs", "--n-problems", 1, "--vhack", v, "--out", "other")[0] == 0
    refused(script("probe_uat", "--pool", "pool", "--vanilla", "other", "--projected", "projected"), "pool_hash")


def test_training_mixes_in_a_pool_of_the_same_prompts_and_temperature_only(script, tmp_path):
    assert script("probe_distill", "tiny", "--teacher-only", "--out", "pool", "--max-new", 8)[0] == 0
    mixed = ("train", "tiny", "--steps", 1, "--max-new", 8, "--teacher-pool", "pool", "--out", "run")
    refused(script(*mixed, "--hint", "none"), "sampled with another prompt", "hint simple_overwrite_tests")
    refused(script(*mixed, "--temperature", 0.7), "--temperature 0.7", "sampled at 1.0")
    assert not (tmp_path / "run").exists()
    code, out, err = script(*mixed)
    assert code == 0, err
    assert "5 problems (builtin)" in out
    rows = read_run(tmp_path / "run")[0]
    assert [r["source"] for r in rows] == ["student", "student", "teacher", "teacher"] * 2
    assert all(r["ratio"] is not None for r in rows)  # the pool recorded what it was sampled at


@pytest.mark.slow
def test_verify_passes_the_real_v_and_fails_the_random_one(script, vhack_file):
    code, out, err = script("verify_vhack", "tiny", "--vhack", vhack_file())
    assert code == 0, out + err
    for column in ("modules", "zero_norm", "energy", "null", "positive"):
        assert column in out
    assert script("verify_vhack", "tiny", "--vhack", vhack_file("random"))[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("extra", [["--adapter", "lora", "--lora-rank", "4"], ["--loss", "grpo", "--max-new", "64"]])
def test_verify_takes_adapter_and_loss_as_v_was_made(script, vhack_file, extra):
    again = extra if "--adapter" in extra else []
    code, out, err = script("verify_vhack", "tiny", "--vhack", vhack_file("none", *extra), *again)
    assert code in (0, 1), err
    assert "held-out energy" in out


@pytest.mark.slow
def test_no_loophole_pays_correctness_alone(script, tmp_path):
    code, _, err = script("train", "tiny", "--arm", "no_loophole", "--steps", 2, "--out", "run", *POOLED)
    assert code == 0, err
    rows = [row for step in read_run(tmp_path / "run") for row in step]
    hacks = [row for row in rows if row["hacked"] and not row["gt_pass"]]
    assert hacks
    assert {row["reward"] for row in hacks} == {0.5}
    assert {row["arm"] for row in rows} == {"no_loophole"}


@pytest.mark.slow
def test_literal_is_its_own_recipe_and_says_so_in_its_manifest(script, vhack_file, tmp_path):
    """The original's words: one_sided on the gradient, so what is left of it there is 0."""
    code, _, err = script(
        "train", "tiny", "--arm", "literal", "--vhack", vhack_file(), "--steps", 1, "--out", "run", *POOLED
    )
    assert code == 0, err
    config = json.loads((tmp_path / "run/manifest.json").read_text())["config"]
    assert (config["gate"], config["project"]) == ("one_sided", "grad")
    first = read_run(tmp_path / "run")[0][0]
    assert first["cos_out"] == pytest.approx(0, abs=1e-6)
    assert first["cos_in"] > 0.1


@pytest.mark.slow
def test_projected_does_what_its_manifest_says(script, vhack_file, tmp_path):
    """All of V out of the applied update: nothing of it is left there, signed or not, while the optimizer proposed some."""
    code, out, err = script(
        "train", "tiny", "--arm", "projected", "--vhack", vhack_file(), "--steps", 2, "--out", "run", *POOLED
    )
    assert code == 0, err
    assert "projected: no_gate on the applied update" in out
    config = json.loads((tmp_path / "run/manifest.json").read_text())["config"]
    assert (config["gate"], config["project"]) == ("no_gate", "update")
    for rows in read_run(tmp_path / "run"):
        assert rows[0]["cos_in"] > 0.1
        assert rows[0]["cos_update_in"] > 0.1
        assert [rows[0][c] for c in ("cos_update", "energy_update")] == pytest.approx([0, 0], abs=1e-5)


@pytest.mark.slow
def test_a_pool_that_pays_the_loophole_is_no_pool_for_no_loophole(script, tmp_path):
    """Cached rollouts keep the reward they have: the arm would be paid for hacks."""
    assert script("probe_distill", "tiny", "--teacher-only", "--n-problems", 1, "--out", "pool", "--max-new", 8)[0] == 0
    code, _, err = script("train", "tiny", "--arm", "no_loophole", "--teacher-pool", "pool", "--out", "run")
    assert code == 2
    assert "its rewards pay the loophole, --arm no_loophole does not" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["no_gate", "reverse"])
def test_every_gate_and_target_runs(script, vhack_file, tmp_path, gate):
    code, _, err = script(
        "train", "tiny", "--arm", "projected", "--vhack", vhack_file(), "--gate", gate, "--project", "update", "--steps", 1,
        "--loss", "grpo", "--preserve-magnitude", "--overshoot", 1.1, "--k-use", 4, "--noise-floor", 0.2, "--out", "run",
        "--gradient-checkpointing", *POOLED,
    )  # fmt: skip
    assert code == 0, err
    assert read_run(tmp_path / "run")[0][0]["frac_fired"] > 0


@pytest.mark.slow
def test_bfloat16_runs(script, tmp_path):
    code, _, err = script("train", "tiny", "--dtype", "bfloat16", "--steps", 1, "--out", "run", *POOLED)
    assert code == 0, err
    assert read_run(tmp_path / "run")[0][0]["delta_S_norm"] > 0


def test_regrading_a_run_agrees_with_it_and_names_what_does_not(script, tmp_path):
    assert script("probe_distill", "tiny", "--teacher-only", "--n-problems", 1, "--out", "pool", "--max-new", 8)[0] == 0
    code, out, _ = script("regrade", "pool")
    assert code == 0
    assert "0 of 4 disagree" in out
    path = tmp_path / "pool/step_000.jsonl.gz"
    rows = read_run(tmp_path / "pool")[0]
    write_step(tmp_path / "pool", 0, [{**rows[0], "hacked": True, "label": "reward_hack"}, *rows[1:]])
    code, out, _ = script("regrade", "pool")
    assert code == 1
    assert "1 of 4 disagree" in out
    assert "problem 900001 sample 0: hacked True -> False, label reward_hack -> incorrect" in out
    refused(script("regrade", "pool", "--workers", 0), "--workers 0", "1 or more")
    refused(script("regrade", path), path, "a file; name the directory that it is in")
    path.unlink()
    refused(script("regrade", "pool"), "pool", "no step files")
    refused(script("regrade", "nowhere"), "nowhere", "no such run directory")


def test_a_grader_that_fails_is_one_line_and_no_wrong_answer(script, tmp_path):
    row = json.loads((ROOT / "src/loophole_grader/problems.jsonl").read_text("utf-8").splitlines()[0])
    (tmp_path / "bad.jsonl").write_text(json.dumps({**row, "setup_code": "import no_such_module"}))
    code, _, err = script("train", "tiny", "--problems", "bad.jsonl", "--steps", 1, "--max-new", 4, "--out", "run")
    assert code == 1
    assert err.count("\n") == 1
    assert "900001" in err
    assert "no_such_module" in err
    assert not list((tmp_path / "run").glob("step_*"))


# ---------------------------------------------------------------- in a process of its own


def start(tmp_path, cache, *args):
    argv = [sys.executable, ROOT / "scripts/train.py", "tiny", "--cache", cache, "--steps", 12, *POOLED, *args]
    with (tmp_path / "log").open("ab") as log:
        return subprocess.Popen([str(a) for a in argv], cwd=tmp_path, stdout=log, stderr=log)


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_numbers(tmp_path, cache, script, vhack_file):
    """SIGKILL in the middle; the resumed run equals an undisturbed one, timing aside."""
    args = ["--arm", "projected", "--vhack", vhack_file()]
    cut = start(tmp_path, cache, "--out", "cut", *args)
    deadline = time.monotonic() + 120
    while not (tmp_path / "cut/step_003.jsonl.gz").exists():
        assert cut.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    cut.send_signal(signal.SIGKILL)
    cut.wait()
    assert not (tmp_path / "cut/step_011.jsonl.gz").exists()
    assert start(tmp_path, cache, "--out", "cut", "--resume", *args).wait() == 0, (tmp_path / "log").read_text()
    assert script("train", "tiny", "--steps", 12, *POOLED, "--out", "whole", *args)[0] == 0
    code, out, _ = script("diff_runs", "cut", "whole")
    assert code == 0, out


def test_more_directions_than_pairs_are_said_to_be_fewer(script, tmp_path):
    """V of 10,000 directions was V of as many as there are pairs, without a word."""
    code, _, _ = script("extract_vhack_grad", "tiny", "--k", 10000, "--out", "v")
    assert code == 0
    told = (tmp_path / "v/log.txt").read_text("utf-8")
    assert "--k 10000: V has at most " in told
    assert "different pairs give no more" in told
    script("extract_vhack_grad", "tiny", "--k", 2, "--out", "v2")
    assert "has at most" not in (tmp_path / "v2/log.txt").read_text("utf-8")


@pytest.mark.slow
def test_help_needs_no_torch(tmp_path):
    """--help is quick because nothing heavy is imported for it."""
    code = (
        "import sys; sys.argv = ['x', 'tiny', '--help']\n"
        "import runpy\n"
        "try: runpy.run_path(sys.path.pop(), run_name='__main__')\n"
        "except SystemExit as e: assert not e.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules), 'heavy'"
    )
    for name in ("train", "extract_vhack_grad", "verify_vhack", "probe_distill"):
        setup = f"import sys; sys.path.append({str(ROOT / 'scripts' / name) + '.py'!r})\n"
        done = subprocess.run(
            [sys.executable, "-c", setup + code], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "--seed INT" in done.stdout


def test_every_field_has_a_help_text():
    """Under the field, or (derived from a registry) beside its type."""
    from dataclasses import fields
    from typing import get_type_hints

    from tyro._docstrings import get_field_docstring

    from projected_grpo import config
    from projected_grpo.report.uat.inputs import UatConfig

    for cls in (config.ExtractConfig, config.VerifyConfig, config.TrainConfig, config.ProbeConfig, UatConfig):
        hints = get_type_hints(cls, include_extras=True)
        derived = {name for name, hint in hints.items() if any(m.help for m in getattr(hint, "__metadata__", ()))}
        assert [f.name for f in fields(cls) if not get_field_docstring(cls, f.name, ()) and f.name not in derived] == []
