"""The bench refuses two sides that did different work, and writes its table. No timing is tested here."""

import dataclasses
import json

import bench
import pytest
from bench import Bench, UnequalWork, row_of, timed
from test_problems_and_pairs import benchmark_row

from projected_grpo.config import TrainConfig
from projected_grpo.presets import presets


@pytest.fixture
def prepared(cache, tmp_path):
    tiny = presets(TrainConfig)["tiny"]
    small = {"group_size": 2, "max_new": 6, "beta": 0.0, "device": "cpu", "cache": cache, "out": tmp_path / "run"}
    return Bench(dataclasses.replace(tiny, **small))


@pytest.mark.parametrize(("ours", "theirs"), [(12, 11), (0, 0)])
def test_sides_that_do_different_work_or_none_are_refused(ours, theirs):
    with pytest.raises(UnequalWork, match=rf"sampling: ours did .*{ours}.*, \w+ did .*{theirs}"):
        row_of("sampling", *timed({"ours": lambda: {"tokens": ours}, "theirs": lambda: {"tokens": theirs}}, 1))


def test_a_ratio_says_how_many_times_faster_ours_is():
    works = [("ours", {"tokens": 8})]
    row = row_of("part", {"ours": [1.0, 2.0, 1.0], "base": [4.0, 4.0, 5.0]}, works)
    assert (row.ours, row.baseline) == ("ours: 1 s, 8.0 tokens/s", "base: 4 s, 2.0 tokens/s")
    assert row.ratio == "4.00x (2.00 to 5.00)"


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.01, float("nan")])
def test_a_baseline_with_another_gradient_is_refused(prepared, monkeypatch, scale):
    right = bench.full_logits_gradient(prepared)
    monkeypatch.setattr(bench, "full_logits_gradient", lambda _: {n: scale * g for n, g in right.items()})
    with pytest.raises(UnequalWork, match="gradient: norms"):
        bench.gradient_rows(prepared, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_part_runs_on_tiny_and_is_written(script, tmp_path):
    (tmp_path / "p.jsonl").write_text(json.dumps(benchmark_row()) + "\n")
    code, out, err = script("bench", "tiny", "--repeats", 1, "--problems", "p.jsonl", "--out", "bench.md")
    assert code == 0, err
    text = (tmp_path / "bench.md").read_text("utf-8")
    for part in ("step, projected", "TRL", "sampling", "gradient", "wrong", "correct", "hacking", "a third each"):
        assert part in text
    assert "grading: 1 problems of p.jsonl" in text
    assert len([line for line in out.splitlines() if line.startswith("|")]) == 10
    assert str(tmp_path) not in text
