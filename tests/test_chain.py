"""Chains: every need is met, what is done is skipped, what was cut is resumed, a failure stops only what needs it."""

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from projected_grpo.arms import ARMS
from projected_grpo.queue.local import run_chain
from projected_grpo.queue.links import Link, by_name, read_chain, write_chain
from projected_grpo.queue.run_link import environment, is_done, prepared, visible_gpus
from projected_grpo.queue.settings import QueueConfig, ToyConfig, unfit
from projected_grpo.queue.studies import chain_of, lora_lr
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import SCHEMA_VERSION
from projected_grpo.presets import PRESETS, presets
from projected_grpo.run import cli
from projected_grpo.worlds.toy_programs import MECHANISMS

WRITES_A_RUN = """
import json, pathlib, sys
out = pathlib.Path(sys.argv[1]); out.mkdir(parents=True, exist_ok=True)
with open(out.parent / "order.txt", "a") as f: f.write(out.name + (" resumed" if "--resume" in sys.argv else "") + "\\n")
if "fail" in sys.argv: sys.exit(1)
(out / "manifest.json").write_text(json.dumps({"finished": True, "schema_version": %d}))
"""


@pytest.fixture
def link(tmp_path):
    """Make a link that runs a small script writing a finished run."""
    path = tmp_path / "link.py"
    path.write_text(textwrap.dedent(WRITES_A_RUN % SCHEMA_VERSION))

    def make(name, *needs, kind="once", fail=False):
        out = tmp_path / "home" / name
        return Link(name, (str(path), str(out), *(["fail"] if fail else [])), out, needs, kind)

    return make


def toy_plan(model="toy", **changed):
    return ToyConfig(**changed).planned("toy", Path("out/x"), model)


def order(tmp_path):
    return (tmp_path / "home/order.txt").read_text().split("\n")[:-1]


@pytest.mark.slow
def test_a_chain_runs_in_order_and_a_failed_link_stops_what_needs_it_and_nothing_else(link, tmp_path):
    links = [link("last", "bad"), link("bad", "a", fail=True), link("a"), link("sibling", "a")]
    assert run_chain(links, tmp_path / "home", 1) == 1
    assert order(tmp_path)[0] == "a"
    assert sorted(order(tmp_path)) == ["a", "bad", "sibling"]
    (tmp_path / "link.py").write_text((tmp_path / "link.py").read_text().replace('"fail" in sys.argv', "False"))
    assert run_chain(links, tmp_path / "home", 1) == 0
    assert order(tmp_path)[3:] == ["bad", "last"]
    assert run_chain(links, tmp_path / "home", 2) == 0
    assert len(order(tmp_path)) == 5, "what is done is not done again"
    assert read_chain(tmp_path / "home") == by_name(links)


def test_a_cut_run_is_resumed_and_one_cut_before_its_checkpoint_starts_anew(link, tmp_path):
    resumable, anew, once = link("r", kind="run"), link("n", kind="run"), link("o")
    for link in (resumable, anew, once):
        link.out.mkdir(parents=True)
        (link.out / "log.txt").write_text("cut")
    for link in (resumable, once):
        (link.out / "checkpoint.pt").write_text("")
    assert prepared(resumable)[-1] == "--resume"
    assert "--resume" not in prepared(anew)
    assert not anew.out.exists()
    assert "--resume" not in prepared(once)
    assert run_chain([resumable], tmp_path / "home", 1) == 0
    assert order(tmp_path) == ["r resumed"]


@pytest.mark.parametrize(("kind", "resumed"), [("teacher_pool", True), ("train", False)])
def test_a_cut_teacher_pool_is_resumed_from_its_step_files(link, kind, resumed):
    link = link("pool", kind="run")
    link.out.mkdir(parents=True)
    (link.out / "manifest.json").write_text(
        json.dumps({"kind": kind, "finished": False, "schema_version": SCHEMA_VERSION})
    )
    assert (prepared(link)[-1] == "--resume") == resumed
    assert link.out.exists() == resumed


@pytest.mark.slow
def test_a_check_is_done_once_it_has_passed_and_again_once_what_it_judged_was_made_again(link, tmp_path):
    failed = link("failed", kind="check", fail=True)
    assert run_chain([failed], tmp_path / "home", 1) == 1
    assert not is_done(failed, tmp_path / "home", {})
    run, check = link("run"), link("verify", "run", kind="check")
    assert run_chain([run, check], tmp_path / "home", 1) == 0
    assert is_done(check, tmp_path / "home", by_name([run, check]))
    shutil.rmtree(run.out)
    assert run_chain([run, check], tmp_path / "home", 1) == 0
    assert order(tmp_path)[1:] == ["run", "verify", "run", "verify"]


@pytest.mark.slow
def test_a_run_that_finished_but_missed_its_bars_is_not_done(link, tmp_path):
    """build_toy writes all its files and then says that the model is no good."""
    (tmp_path / "link.py").write_text((tmp_path / "link.py").read_text() + "sys.exit(1)\n")
    base, user = link("base"), link("user", "base")
    assert run_chain([base, user], tmp_path / "home", 1) == 1
    assert not is_done(base, tmp_path / "home", by_name([base, user]))
    assert run_chain([base, user], tmp_path / "home", 1) == 1
    assert order(tmp_path) == ["base", "base"]


def test_a_folder_is_not_continued_with_other_settings(link, tmp_path):
    home = tmp_path / "home"
    write_chain(home, [link("a")])
    write_chain(home, [link("a", fail=True)])  # nothing has begun: it may change
    (home / "a").mkdir()
    with pytest.raises(BadInput, match=r"a was begun as .*fail.*now asked for as.*another --out"):
        write_chain(home, [link("a")])
    write_chain(home, [link("b")])
    assert set(read_chain(home)) == {"a", "b"}  # a queued link must find itself there


def test_a_link_that_has_begun_keeps_its_threads_when_the_chain_grows(link, tmp_path):
    """Its resumed half would have other last bits."""
    home, alone = tmp_path / "home", dataclasses.replace(link("a"), threads=2)
    assert [t.threads for t in write_chain(home, [alone])] == [2]
    narrower = dataclasses.replace(alone, threads=1)
    assert [t.threads for t in write_chain(home, [narrower])] == [1], "not begun"
    write_chain(home, [alone])
    (home / "a").mkdir()
    assert next(iter(write_chain(home, [narrower, link("b")]))).threads == 2
    assert read_chain(home)["a"].threads == 2


@pytest.mark.slow
def test_a_report_is_done_whatever_its_verdict_but_not_when_it_broke(link, tmp_path):
    report = replace(link("results", kind="check", fail=True), accept=(0, 1, 3))
    assert run_chain([report], tmp_path / "home", 1) == 0  # it wrote its folder and says FAIL
    broken = replace(report, name="broken", out=tmp_path / "home/never")
    assert run_chain([broken], tmp_path / "home", 1) == 1


ONE_SLEEPER = """
import sys
from pathlib import Path
from projected_grpo.queue.local import run_chain
from projected_grpo.queue.links import Link
run_chain([Link("s", (sys.argv[1], "pid"), Path("out"))], Path("home"), 1)
"""


def gone(pid):
    """The process ends: at once, or a moment after whoever started it."""
    deadline = time.monotonic() + 30
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_chain_leaves_no_task_behind(tmp_path, how):
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text(
        "import os, pathlib, sys, time\npathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\ntime.sleep(60)"
    )
    chain = subprocess.Popen([sys.executable, "-c", ONE_SLEEPER, str(sleeper)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    chain.send_signal(how)
    assert chain.wait(30) != 0
    gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "arms",
    [
        tuple(a for a in ARMS if not ARMS[a].derived and not unfit(ARMS[a], PRESETS["toy"])),
        ("vanilla", "projected", "placebo"),
    ],
)
def test_the_toy_chain_is_whole(arms):
    links = chain_of(toy_plan(arms=arms, seeds=(1, 2)), "toy")
    names = [t.name for t in links]
    assert len(set(names)) == len(names)
    for i, link in enumerate(links):
        assert set(link.needs) <= set(names[:i]), link.name  # acyclic: needs stand before
    trained = [t for t in links if t.name.startswith("train_")]
    assert len(trained) == 2 * len(arms)
    assert set(links[-1].needs) == {t.name for t in trained}
    for link in trained:
        seed = link.name.rpartition("_")[2]
        assert flag(link, "--steps") == "900"  # the cap
        assert f"verify_none_{seed}" in link.needs  # a V that points nowhere stops every arm
        if link.name == f"train_vanilla_{seed}":
            assert flag(link, "--until-onsets") == "3"
        else:  # matched compute: as many steps as the unit's own vanilla
            assert flag(link, "--horizon-of") == f"out/x/train_vanilla_{seed}"
            assert f"train_vanilla_{seed}" in link.needs


def flag(link, name):
    return link.argv[link.argv.index(name) + 1]


def test_a_unit_has_its_own_pairs_v_controls_and_base():
    links = {t.name: t for t in chain_of(toy_plan(seeds=(1, 2, 3), bases=(0, 7)), "full")}
    for seed, base in ((1, 0), (2, 7), (3, 0)):
        own = [t for t in links.values() if t.name.endswith(f"_{seed}")]
        for link in own:
            assert ("--base-seed" in link.argv and flag(link, "--base-seed") == "7") == (base == 7), link.name
            if link.name.startswith("extract_"):
                assert flag(link, "--pairs-draw") == flag(link, "--seed") == str(seed)
                assert f"base_{base}" in link.needs
            if link.name.startswith("train_"):
                assert f"_{seed}/vhack.safetensors" in flag(link, "--vhack")
                assert flag(link, "--seed") == str(seed)


@pytest.mark.parametrize("chain", ["toy", "full"])
def test_without_vanilla_nothing_says_how_long_a_unit_runs(chain):
    with pytest.raises(BadInput, match=r"--arms projected: .* vanilla's onset; add vanilla, or give --steps"):
        chain_of(toy_plan(arms=("projected",)), chain)
    fixed = chain_of(toy_plan(arms=("projected",), steps=9), chain)
    assert {flag(t, "--steps") for t in fixed if t.name.startswith("train_")} == {"9"}


@pytest.mark.parametrize("preset", ["tiny", "toy", "full"])
def test_the_grpo_probe_is_twenty_steps_of_two_arms_on_mixed_groups_in_every_preset(preset):
    links = {t.name: t for t in chain_of(QueueConfig(preset=preset, chain="grpo").plan(), "grpo")}
    names = list(links)
    for i, link in enumerate(links.values()):
        assert set(link.needs) <= set(names[:i]), link.name
    trained = [t for name, t in links.items() if name.startswith("train_")]
    assert {t.name for t in trained} == {f"train_{arm}_{s}" for arm in ("vanilla", "projected") for s in (41, 42, 43)}
    for link in trained:
        assert link.argv.count("--teacher-pool") == link.argv.count("--steps") == 1
        assert (flag(link, "--mix"), flag(link, "--steps")) == ("teacher=.25,base=.25", "20")
        assert {"teacher_pool", f"verify_none_{flag(link, '--seed')}"} <= set(link.needs)
        cli.parse(presets(TrainConfig), "", list(link.argv[1:])).shares  # noqa: B018 - it can be parsed, shares and all
    assert links["results"].argv[-2:] == ("--require", "T5")


def test_a_quick_look_is_one_unit_of_few_steps():
    for study in ("toy", "unknown", "variants", "dose"):
        links = chain_of(toy_plan(seeds=(1, 2), quick=True), study)
        trained = [t for t in links if t.name.startswith("train_")]
        assert {flag(t, "--steps") for t in trained} == {"120"}
        assert {flag(t, "--seed") for t in trained} == {"1"}
        assert not any("--horizon-of" in t.argv for t in trained)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (
            {"study": "variants", "arms": ("projected",)},
            "--arms projected: the study variants has runs of its own; leave --arms out",
        ),
        ({"study": "dose", "arms": ("projected", "kl")}, "--arms kl: the study dose is of projected, placebo, random"),
        ({"seeds": (41, -1)}, "--seeds -1: each must be 0 or more"),
        ({"bases": (-5,)}, "--bases -5: each must be 0 or more"),
    ],
)
def test_what_a_study_would_pass_over_or_break_on_is_refused(how, why):
    with pytest.raises(BadInput, match=why):
        ToyConfig(**how).validate()


def test_the_unknown_study_leaves_two_mechanisms_out_each_time():
    links = {t.name: t for t in chain_of(toy_plan(seeds=(1,)), "unknown")}
    splits = [t for name, t in links.items() if name.startswith("extract_") and "--modes" in t.argv]
    assert {frozenset(t.argv[t.argv.index("--modes") + 1 : t.argv.index("--out")]) for t in splits} == {
        frozenset(two) for two in itertools.combinations(MECHANISMS, 2)
    }
    assert len(splits) == 6


def test_the_small_study_has_controls_on_its_first_unit_and_tells_one_v_what_emerged():
    config = QueueConfig(chain="small", preset="small", seeds=(1, 2), out=Path("out/s"))
    config.validate()
    links = {t.name: t for t in chain_of(config.plan(), "small")}
    trained = [name.removeprefix("train_") for name in links if name.startswith("train_")]
    told = ["projected_1", "informed_1", "placebo_1", "projected_2"]  # of hours of work these first
    assert trained == ["vanilla_1", "vanilla_2", *told, "random_energy_1", "no_loophole_1", "literal_1"]
    assert [name for name, t in links.items() if "small-informed" in t.argv] == [
        "extract_informed_1",
        "verify_informed_1",
    ]
    assert flag(links["train_informed_1"], "--vhack") == "out/s/vhack_informed_1/vhack.safetensors"
    assert {"teacher_pool", "uat"} <= set(links)  # the probe comes first
    names = list(links)
    assert all(set(link.needs) <= set(names[:i]) for i, link in enumerate(links.values()))
    assert links["train_vanilla_1"].cost > 2 * links["base_0"].cost  # else a chain says "2 min left" for half an hour
    assert links["extract_none_1"].cost == pytest.approx(5.0)  # core-minutes; measured: 4.5 and 1.8
    assert links["verify_none_1"].cost == pytest.approx(2.5)


def test_a_link_gets_its_threads_and_one_gpu_of_its_own(tmp_path):
    link = Link("t", (), tmp_path, threads=1)
    assert environment(link, {})["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in environment(replace(link, threads=0), {})
    base = {"CUDA_VISIBLE_DEVICES": "2,5"}
    assert environment(link, {**base, "PUEUE_WORKER_ID": "1"})["CUDA_VISIBLE_DEVICES"] == "5"
    assert environment(link, base)["CUDA_VISIBLE_DEVICES"] == "2,5"  # no pueue: whoever starts it has chosen
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert visible_gpus({}, tmp_path) == ["0", "1", "10"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []


@pytest.mark.slow
def test_every_command_of_every_chain_parses(monkeypatch):
    """An option that a script does not have would only be found in the middle of the night."""
    import importlib

    from projected_grpo.run import cli

    class Parsed(Exception):  # noqa: N818 - a signal, not an error
        pass

    def parsed(config):
        raise Parsed(config)

    links = [
        t
        for m in ("toy", "toy-deep")
        for c in ("toy", "unknown", "variants")
        for t in chain_of(toy_plan(m, seeds=(1,)), c)
    ]
    for preset in PRESETS:
        links += [t for c in ("probe", "full") for t in chain_of(QueueConfig(preset=preset, problems="x").plan(), c)]
    for link in links:
        name = Path(link.argv[0]).stem
        module = importlib.import_module(name)
        for parser in ("parse", "parse_plain"):
            real = getattr(cli, parser)
            monkeypatch.setattr(cli, parser, lambda *a, real=real, **k: parsed(real(*a, **k)))
        monkeypatch.setattr(sys, "argv", [link.argv[0], *link.argv[1:]])
        with pytest.raises(Parsed):
            module.main()
        monkeypatch.undo()


def test_the_adapters_study_trains_both_on_the_same_units():
    for plan in (toy_plan(seeds=(1, 2)), QueueConfig(preset="fast", chain="adapters", seeds=(1, 2)).plan()):
        links = {t.name: t for t in chain_of(plan, "adapters")}
        assert {need for t in links.values() for need in t.needs} <= set(links)
        for unit in (1, 2):
            for arm in ("vanilla", "projected"):
                svd, lora = (links[f"train_{arm}_{unit}_{adapter}"] for adapter in ("antipasto", "lora"))
                assert flag(lora, "--adapter") == "lora"
                assert flag(lora, "--lora-seed") == flag(lora, "--seed") == flag(svd, "--seed") == str(unit)
                assert "--adapter" not in svd.argv
                assert float(flag(lora, "--lr")) > 0
                assert "/lora/" in str(lora.out)
                assert flag(lora, "--vhack") != flag(svd, "--vhack")
            made = [links[f"extract_none_{unit}_{adapter}"] for adapter in ("antipasto", "lora")]
            assert {flag(t, "--pairs-draw") for t in made} == {str(unit)}
            assert links[f"anew_projected_{unit}_lora"].needs == (f"train_projected_{unit}_lora",)
        assert {"anew_projected_1_antipasto", "train_vanilla_2_lora", "replay_vanilla_lora"} <= set(
            links["compare"].needs
        )
        assert flag(links["replay_vanilla_lora"], "--pool") == flag(links["replay_vanilla_antipasto"], "--pool")
        assert {t.name for t in links.values() if t.name.startswith("anew_")} <= set(links["results"].needs)


def test_each_unit_of_the_losses_has_a_pool_and_two_v_of_its_own():
    links = {t.name: t for t in chain_of(toy_plan(seeds=(41, 42)), "losses")}
    for seed in (41, 42):
        assert flag(links[f"extract_grpo_{seed}"], "--loss") == "grpo"
        assert {flag(links[f"extract_{v}_{seed}"], "--pairs-draw") for v in ("none", "grpo")} == {str(seed)}
        assert flag(links[f"teacher_pool_{seed}"], "--seed") == str(seed)
        replays = [links[f"replay_{v}_{seed}"] for v in ("nll", "grpo")]
        assert [flag(t, "--vhack").split("/")[-2] for t in replays] == [f"vhack_none_{seed}", f"vhack_grpo_{seed}"]
        assert {flag(t, "--pool").split("/")[-1] for t in replays} == {f"teacher_pool_{seed}"}
        assert all(f"teacher_pool_{seed}" in t.needs for t in replays)
        assert set(links[f"compare_v_{seed}"].needs) == {f"extract_none_{seed}", f"extract_grpo_{seed}"}
    assert len(links["losses"].needs) == 4


def test_queue_probe_makes_the_second_v_and_replays_it():
    links = {t.name: t for t in chain_of(toy_plan(), "probe")}
    assert flag(links["extract_grpo"], "--loss") == "grpo"
    assert flag(links["replay_grpo"], "--vhack").endswith("vhack_grpo/vhack.safetensors")
    assert flag(links["uat"], "--grpo").endswith("replay_grpo")
    assert set(links["compare_v"].needs) == {"extract_none", "extract_grpo"}
    assert "replay_grpo" in links["uat"].needs


@pytest.mark.parametrize(
    ("arm", "preset", "why"),
    [
        ("inoculation_prompt", "toy", "reads no instructions"),
        ("inoculation_prompt", "fast", "was written under another prompt"),
        ("no_loophole", "fast", "pays the loophole"),
        ("penalty_judge", "toy", "a judge's question does not fit the context"),
        ("screen_judge", "tiny", ""),
        ("inoculation_prompt", "full", ""),
        ("inoculation_adapter", "toy", ""),
    ],
)
def test_an_arm_that_means_nothing_under_a_preset_is_left_out_and_one_that_is_asked_for_refused(arm, preset, why):
    """It had stopped the whole chain before its table: the prompt is longer than the toy model's context."""
    assert why in unfit(ARMS[arm], PRESETS[preset])
    assert bool(why) == bool(unfit(ARMS[arm], PRESETS[preset]))
    chain = QueueConfig(chain="rivals", preset=preset)
    assert any(link.name.startswith(f"train_{arm}_") for link in chain_of(chain.plan(), "rivals")) != bool(why)
    if why:
        with pytest.raises(BadInput, match=f"--arms {arm}: .*{why}"):
            QueueConfig(chain="rivals", preset=preset, arms=("vanilla", arm)).plan()


def test_problems_of_a_chain_are_read_before_anything_is_queued(script, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parents[1])
    for backend in ("here", "pueue"):
        own = ("--chain", "full", "--preset", "tiny", "--backend", backend, "--out", str(tmp_path / "chain"))
        code, _, err = script("enqueue", *own, "--problems", "nosuch")
        assert (code, err.count("\n")) == (2, 1)
        assert "--problems nosuch: no such file" in err
    assert not (tmp_path / "chain").exists()


def test_the_adapter_is_that_of_every_script_of_a_chain():
    for chain in ("probe", "full"):
        links = chain_of(QueueConfig(preset="tiny", adapter="lora").plan(), chain)
        scripts = [
            t for t in links if Path(t.argv[0]).stem in ("extract_vhack_grad", "verify_vhack", "train", "probe_distill")
        ]
        assert scripts
        assert all(flag(t, "--adapter") == "lora" for t in scripts)


def test_a_lora_learns_at_three_hundredths_of_the_singular_basiss_rate():
    """By hand. At sqrt(3 / 32) of it, as until 2026-11-26, the toy world's model was wrecked on each unit."""
    assert (lora_lr(0.05), lora_lr(5e-3), lora_lr(0.0123)) == (0.0015, 0.00015, 0.00037)


def test_status_finds_chains_of_recipes_and_of_the_queue(script, link, tmp_path):
    for home in ("small", "queue/probe-tiny"):
        run_chain([link("a")], tmp_path / "out" / home, 1)
    code, out, _ = script("queue_status")
    assert code == 0
    assert "out/small: 1 of 1 links done" in out
    assert "out/queue/probe-tiny: 1 of 1 links done" in out
