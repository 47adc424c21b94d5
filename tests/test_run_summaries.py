"""Run summaries: the tables and verdicts of the step files, from one small file."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import docs_results
import pytest
from harness import ROOT, refused
from written_runs import evaluate, ten, write_run

from projected_grpo.report.plots import save
from projected_grpo.report.results import report_on
from projected_grpo.verdicts.finished_runs import load_runs
from projected_grpo.verdicts.run_summaries import read_summaries, write_summaries

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Three arms on three replicates, evaluated before and after; each with its V and base. Nobody may change it."""
    root = tmp_path_factory.mktemp("study") / "runs"
    for arm, kind, hacks in (("vanilla", "none", 8), ("projected", "none", 1), ("random", "random", 7)):
        for seed in (41, 42, 43):
            v, place = {"control": kind, "pairs_draw": str(seed), "v_sha256": f"{kind}{seed}"}, root / f"{arm}_{seed}"
            path = write_run(place, arm, seed, ten(hacks), vhack=v, facts={"model_hash": f"base{seed}"})
            for step, good in ((0, 3), (10, 4)):
                evaluate(path, step, arm, seed, ["good"] * good + ["bad"] * (10 - good))
    return root


@pytest.fixture(scope="module")
def summary(study):
    path = study.with_name("study.runs.jsonl.gz")
    write_summaries(path, (study, load_runs(study)))
    return path


def test_every_number_and_verdict_is_that_of_the_step_files(study, summary):
    of_files, of_summary = report_on(study), report_on(summary)
    assert of_summary.remarks == ["read from study.runs.jsonl.gz, a summary of 9 runs whose step files are not here"]
    assert not of_files.remarks
    assert json.loads(of_files.json()) == {**json.loads(of_summary.json()), "remarks": []}
    for one, other in zip(of_files.found.runs, of_summary.found.runs, strict=True):
        for name in one.series:
            known = [[-1.0 if x is None else x for x in run.series[name]] for run in (one, other)]
            assert known[0] == pytest.approx(known[1], rel=1e-6)
        assert (one.arm, one.seed, one.onset, one.rollouts) == (other.arm, other.seed, other.onset, other.rollouts)
    told = of_summary.markdown(["outcomes"]).replace(str(summary), str(study))
    assert told.replace(f"- {of_summary.remarks[0]}\n\n", "") == of_files.markdown(["outcomes"])


def test_replicates_of_several_machines_become_one_file(script, study, tmp_path):
    """Of a directory and of a file, the very runs of the whole study; none is counted twice, under whatever name."""
    for seed, place in ((41, tmp_path / "here"), (42, tmp_path / "there"), (43, tmp_path / "there")):
        for run in study.glob(f"*_{seed}"):
            shutil.copytree(run, place / run.name)
    for name, place in (("there", tmp_path / "there"), ("whole", study)):
        assert script("results", place, "--out", f"{name}.runs.jsonl.gz")[0] == 0
    code, out, err = script("results", tmp_path / "here", "there.runs.jsonl.gz", "--out", "all.runs.jsonl.gz")
    assert code == 0, err
    assert "9 runs" in out

    def of(root):
        runs = read_summaries(root).runs
        return {run.path.relative_to(root).as_posix(): dataclasses.replace(run, path=Path()) for run in runs}

    assert of(tmp_path / "all.runs.jsonl.gz") == of(tmp_path / "whole.runs.jsonl.gz")
    code, out, err = script("results", "all.runs.jsonl.gz", tmp_path / "there", study, "--out", "x.runs.jsonl.gz")
    assert (code, "9 runs" in out) == (0, True), err
    alone = tmp_path / "here/vanilla_41"
    assert script("results", alone, "there.runs.jsonl.gz", "--out", "x.runs.jsonl.gz")[0] == 0
    assert "vanilla_41" in of(tmp_path / "x.runs.jsonl.gz")
    (tmp_path / "here/vanilla_41").rename(tmp_path / "here/vanilla_42")
    clash = script("results", tmp_path / "here", tmp_path / "there", "--out", "y.runs.jsonl.gz")
    refused(clash, "there/vanilla_42: another run has this name")
    assert not (tmp_path / "y.runs.jsonl.gz").exists()


@pytest.mark.usefixtures("no_plots")
def test_it_keeps_its_name_and_the_scripts_read_it(script, study, summary, tmp_path):
    refused(script("results", study, summary), "2 directories", "only --out NAME.runs.jsonl.gz")
    refused(script("results", tmp_path / "none.runs.jsonl.gz"), "none.runs.jsonl.gz", "no such file")
    assert script("results", summary, "--out", "made")[0] == 3  # controls are missing
    assert script("results", summary, "--only", "channels", "--out", "made")[0] == 3  # none was on
    code, out, _ = script("results", ROOT / "docs/evidence/t5-toy.runs.jsonl.gz", "--require", "T5", "--out", "made")
    assert (code, "T5 FAIL; exit code 1" in out) == (1, True)


def test_the_pages_and_plots_are_those_that_the_kept_runs_give(monkeypatch, tmp_path):
    """Byte for byte, README's table included. A stale one fails here: run `just docs-results`."""
    monkeypatch.chdir(ROOT)
    pages, plots = docs_results.made()
    for place, text in pages.items():
        assert place.read_text("utf-8") == text, place
    for stem, figure in plots.items():
        save(figure, tmp_path, stem)
        assert Path(f"docs/plots/{stem}.svg").read_bytes() == (tmp_path / f"{stem}.svg").read_bytes(), stem


def test_every_rate_in_readmes_findings_is_in_the_results():
    findings = (ROOT / "README.md").read_text("utf-8").split("## What we found")[1].split("<!-- results")[0]
    results = (ROOT / "docs/results.md").read_text("utf-8")
    assert len(rates := re.findall(r"\d+\.\d(?= %)", findings)) > 3
    assert [rate for rate in rates if f" {rate} [" not in results] == []


def test_a_kept_study_of_both_adapters_still_says_that_v_has_drifted():
    """Its records of V extracted again have the name of then."""
    (line,) = report_on(ROOT / "docs/evidence/t6-toy.runs.jsonl.gz").t6
    assert {c.name: c.status for c in line.clauses}["V is still V"] == "FAIL"
