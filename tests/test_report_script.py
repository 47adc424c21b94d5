"""`just report` through its real entry point: what it writes, what it judges, its refusals."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT
from loguru import logger
from test_page_browser import rewrite, write_experiment
from test_results import rows, ten, write_all, write_run
from test_scripts import refused

from projected_grpo.groups.pairs import builtin_pairs
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.ledger.step_file import step_path, write_step
from projected_grpo.report.page import document

LIMIT = 5_000_000
"""Bytes that most mail takes."""


@pytest.fixture
def no_plots(monkeypatch):
    """Drawing takes seconds."""
    monkeypatch.setattr(document, "all_plots", lambda _: {})


def write_probe(root, name, arm, ids, control="none"):
    """A finished pool (arm teacher) or replay whose step t holds rollouts with the tokens ids[t]."""
    kind = "teacher_pool" if arm == "teacher" else "probe_distill"
    config = {"arm": "vanilla" if arm == "teacher" else arm, "seed": 41}
    open_run(root / name, kind, config, pool_hash="same", vhack={"control": control})
    for step, own in enumerate(ids):
        made = rows(step, {"arm": arm, "seed": 41}, ["hack"] * len(own), source="teacher")
        write_step(root / name, step, [{**row, "completion_ids": [i]} for row, i in zip(made, own, strict=True)])
    update_manifest(root / name, finished=True)
    logger.remove()


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_the_whole_of_an_experiment(script, tmp_path):
    """H1 clause by clause, the probe's verdicts on the right pool, the tables of `results`, the file in its place."""
    root = write_all(tmp_path / "runs")
    write_probe(root, "pool_of_another", "teacher", [[7, 8]])
    write_probe(root, "teacher_pool", "teacher", [[1, 2], [3, 4]])
    write_probe(root, "replay_vanilla", "vanilla", [[1, 2]])
    write_probe(root, "replay_projected", "projected", [[1, 2]])
    write_probe(root, "measured_random", "vanilla", [[1, 2]], control="random")
    code, out, err = script("report", root)
    assert code == 0, err
    text = (root / "report.html").read_text("utf-8")
    assert re.search(r"<h3>H1 as preregistered <span[^>]*>✔ PASS</span></h3>", text)
    assert re.search(r"<h3>H1 held <span[^>]*>○ NOT_EVALUABLE</span></h3>", text)
    assert re.search(r"<h3>H1 prevention <span[^>]*>○ NOT_EVALUABLE</span></h3>", text)
    assert (
        len(re.findall(r"<tr><td>beats (?:random|placebo)</td><td><span[^>]*>✔ PASS", text)) == 5
    )  # lower ends 31 and 50 pp; a placebo's for H2 too
    both = "pool teacher_pool, vanilla replay replay_vanilla, projected replay replay_projected"
    assert f"T1 to T4: {both}</h3>" in text
    random = "vanilla replay measured_random (a control: V is random), projected replay (none)"
    assert f"T1 to T4: pool teacher_pool, {random}</h3>" in text
    assert "T1 to T4: pool pool_of_another, vanilla replay (none), projected replay (none)</h3>" in text
    assert re.search(r"<td>T2</td><td><span[^>]*>✘ FAIL</span></td><td>gradients are real", text)
    assert "<h3>Every arm, mean ± SEM over seeds: the last 10 steps, then all steps</h3>" in text
    assert '<td>projected</td><td class="n">3</td><td class="n">abcdef01</td><td class="n">10.0 ± 5.8</td>' in text
    assert "all 1,212 rollouts shown (runs: 17)" in out
    assert (
        "H1 as preregistered PASS; H1 held NOT_EVALUABLE; H1 prevention NOT_EVALUABLE; a page of 0."
        in out.splitlines()[-3]
    )
    assert f"out: {root / 'report.html'}" in out.splitlines()[-2]
    assert str(tmp_path) not in re.sub(r"just show \S+", "", text)


@pytest.mark.usefixtures("no_plots")
def test_the_same_runs_give_the_same_bytes(script, tmp_path):
    root = write_experiment(tmp_path / "mine")
    for place in ("one.html", "two.html"):
        assert script("report", root, "--out", place, "--max-rollouts", 20)[0] == 0
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert "20 of 45 rollouts shown" in (tmp_path / "one.html").read_text("utf-8")


@pytest.mark.usefixtures("no_plots")
def test_an_unfinished_run_is_shown_with_a_remark_and_counted_nowhere(script, tmp_path):
    root = write_all(tmp_path / "runs")
    write_run(root / "projected_44", "projected", 44, ten(8), finished=False)
    (root / "vanilla_45").mkdir()
    (root / "vanilla_45/manifest.json").write_text((root / "projected_44/manifest.json").read_text())
    code, out, _ = script("report", root)
    assert code == 0
    assert (
        "projected_44: not finished; continue it with --resume; its rollouts can be browsed, its numbers are in no"
        in out
    )
    assert "vanilla_45: not finished; continue it with --resume\n" in out
    text = (root / "report.html").read_text("utf-8")
    assert "<li>projected_44: not finished" in text
    assert "n = 12 runs, 1,200 training rollouts" in text
    assert "all 1,300 rollouts shown (runs: 13)" in text


@pytest.mark.usefixtures("no_plots")
def test_without_a_finished_training_run_the_rest_stands(script, tmp_path):
    write_run(tmp_path / "a" / "run", "vanilla", 41, ten(8), finished=False)
    write_probe(tmp_path / "b", "teacher_pool", "teacher", [[1, 2]])
    code, out, _ = script("report", "a", "b", "--out", "page.html")
    assert code == 0
    assert "no finished training run" in out
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "H1 was not judged" in text
    assert "T1 to T4: pool b/teacher_pool" in text
    assert "all 102 rollouts shown (runs: 2)" in text


@pytest.mark.usefixtures("no_plots")
def test_several_directories_make_one_page_and_none_counts_twice(script, tmp_path):
    write_experiment(tmp_path / "x/one")
    write_run(tmp_path / "y/other", "random", 41, [["hack"] * 5] * 3)
    assert script("report", "x", "x/one", "y/other")[0] == 0
    text = (tmp_path / "x/report.html").read_text("utf-8")
    assert "all 60 rollouts shown (runs: 4)" in text
    assert "<td>y/other</td>" in text
    assert script("report", "y/other")[0] == 0
    assert "<h1>y</h1>" in (tmp_path / "y/other/report.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_many_long_rollouts_make_a_page_that_can_be_mailed(script, tmp_path):
    """Of 9,000 completions of the benchmark's kind, no two alike, 8,000 are shown."""
    texts = [text for pair in builtin_pairs() for text in (pair.hack, pair.clean)]
    for seed in (41, 42, 43):
        run = write_run(tmp_path / "runs" / str(seed), "vanilla", seed, [["hack"] * 500 + ["good"] * 500] * 3)
        for step in range(3):
            unlike = [f"{texts[i % len(texts)]}\n# {seed * step * 7919 + i * 104729}" for i in range(1000)]
            rewrite(run, step, completion=unlike)
    code, out, _ = script("report", "runs")
    assert code == 0
    assert "8,000 of 9,000 rollouts shown" in out
    assert (tmp_path / "runs/report.html").stat().st_size < LIMIT - 1_500_000  # the plots of 15 runs need as much


@pytest.mark.usefixtures("no_plots")
def test_refusals(script, tmp_path):
    refused(script("report"), "no directory given")
    refused(script("report", "nowhere"), "nowhere: no such directory")
    (tmp_path / "empty").mkdir()
    refused(script("report", "empty"), "empty: no run with step files", "just train")
    run = write_run(tmp_path / "torn" / "a", "vanilla", 41, ten(8))
    refused(script("report", "torn", "--max-rollouts", 0), "--max-rollouts 0: must be 1 or more")
    refused(script("report", "torn", "--out", "empty"), "--out empty: is a directory", "empty/report.html")
    refused(script("report", "torn", "--outt", "x"), "--outt")
    step_path(run, 4).write_bytes(b"no gzip")
    refused(script("report", "torn"), "step_004.jsonl.gz", "damaged")
    update_manifest(run, finished=False)
    refused(script("report", "torn"), "step_004.jsonl.gz", "damaged")
    (run / "manifest.json").write_text("{")
    refused(script("report", "torn"), "manifest.json", "damaged")
    assert not (tmp_path / "torn/report.html").exists()


def test_the_script_loads_no_torch():
    check = "import sys; sys.path.insert(0, 'scripts'); import report, projected_grpo.report.page.document; "
    check += "assert not {'torch', 'transformers', 'playwright'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
