"""The bench refuses two sides that did different work, and writes its table. No timing is tested here."""

import dataclasses

import bench
import pytest
from harness import benchmark_row

from projected_grpo.config import TrainConfig
from projected_grpo.data.problems import load_problems
from projected_grpo.presets import presets


@pytest.fixture(autouse=True)
def once(monkeypatch):
    monkeypatch.setattr(bench, "REPEATS", 1)


def test_a_side_that_does_not_do_its_work_is_refused(monkeypatch):
    monkeypatch.setattr(bench, "program", lambda *_: "pass")
    for side in (bench.graded, bench.in_fresh_interpreters):
        with pytest.raises(RuntimeError, match="did 0, not 1"):
            side([(load_problems("builtin")[0].task, "correct")])


def test_a_ratio_says_how_many_times_faster_ours_is():
    seconds = {"ours": [9.0, 1.0, 2.0, 1.0], "base": [9.0, 4.0, 4.0, 5.0]}
    row = bench.row_of("part", seconds, 8)
    assert row == ["part", "ours: 1 s, 8.0 tokens/s", "base: 4 s, 2.0 tokens/s", "4.00x (2.00 to 5.00)"]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.01, float("nan")])
def test_a_baseline_with_another_gradient_is_refused(cache, tmp_path, monkeypatch, scale):
    small = {"group_size": 2, "max_new": 6, "beta": 0.0, "device": "cpu", "cache": cache, "out": tmp_path / "run"}
    prepared = bench.Bench(dataclasses.replace(presets(TrainConfig)["tiny"], **small))
    right = bench.full_logits_gradient(prepared)
    monkeypatch.setattr(bench, "full_logits_gradient", lambda _: scale * right)
    with pytest.raises(RuntimeError, match="gradient: norms"):
        bench.gradient_rows(prepared)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_part_runs_on_tiny_and_is_written(script, tmp_path):
    (tmp_path / "p.jsonl").write_text(benchmark_row())
    code, _, err = script("bench", "tiny", "--problems", "p.jsonl", "--out", "bench.md")
    assert code == 0, err
    text = (tmp_path / "bench.md").read_text("utf-8")
    assert [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")] == [
        "part", "step", "step, projected", "sampling", "gradient", "tokens read, drawn lengths",
        "grading, wrong programs", "grading, correct programs",
        "grading, hacking programs", "grading, a third each of these programs",
    ]  # fmt: skip
    assert "grading: 1 problems of p.jsonl" in text
    assert str(tmp_path) not in text
