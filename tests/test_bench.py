"""The bench runs at tiny sizes, both sides of a ratio do the same work, and a baseline that does not is refused.

No timing is tested here: what is fast is for `just bench` to say, on a quiet machine.
"""

import dataclasses
import importlib.util
import json
import os
import re
import sys
from dataclasses import fields
from pathlib import Path
from unittest import mock

import pytest
import torch
from tyro._docstrings import get_field_docstring

from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.bench import backward, document, parts, reading, startup, steps
from projected_grpo.bench.backward import (
    check_same_gradient,
    full_logits_grads,
    our_grads,
    plain_forward,
    random_groups,
)
from projected_grpo.bench.generation import Sampler, measure_generation
from projected_grpo.bench.measure import Figure, NotHere, UnequalWork, interleaved, ratio, side, weighted
from projected_grpo.bench.settings import CPU, DOCUMENT, PARTS, QUICK, BenchConfig, sizes_for
from projected_grpo.bench.setup import build_bench, linear_weights, model_flops, random_qwen3
from projected_grpo.bench.steps import measure_step, quiet_sessions, stepper
from projected_grpo.ledger.errors import BadInput

ONCE = BenchConfig(repeats=1, device="cpu")


@pytest.fixture(scope="module")
def bench():
    return build_bench(ONCE, QUICK)


@pytest.fixture(scope="module")
def like_gpu():
    """What the sizes for a GPU switch on, at tiny size: bfloat16 and gradient checkpointing."""
    built = build_bench(ONCE, dataclasses.replace(QUICK, dtype="bfloat16", checkpointing=True))
    return dataclasses.replace(built, peak=1e9)


# ---------------------------------------------------------------- the command


def test_every_part_runs_and_is_written(script, tmp_path):
    """But TRL's and fast-dev-run's, which stand below."""
    asked = [p for p in PARTS if p not in ("trl", "dev_run")]
    code, out, err = script("bench", "--quick", "--only", *asked, "--out", tmp_path / "bench.md")
    assert code == 0, err
    told = json.loads((tmp_path / "bench.json").read_text("utf-8"))
    measured = {f["part"] for f in told["figures"]}
    assert measured == {
        "floor", "generation", "forward + backward", "peak memory", "step", "grading", "extraction", "results", "start-up",
    }  # fmt: skip
    assert all(f["value"] > 0 and f["low"] <= f["value"] <= f["high"] for f in told["figures"])
    assert "bars reached" in out
    assert told["machine"]["threads"] == torch.get_num_threads()
    text = (tmp_path / "bench.md").read_text("utf-8")
    assert str(tmp_path) not in text
    assert all(f["what"] in text for f in told["figures"])


def test_without_trl_the_bench_says_how_to_get_it(script, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    code, out, _ = script("bench", "--quick", "--only", "trl", "--out", tmp_path / "bench.md")
    assert code == 0
    assert "TRL not installed: uv sync" in out
    assert "TRL not installed: uv sync" in (tmp_path / "bench.md").read_text("utf-8")


@pytest.mark.filterwarnings("ignore")
def test_trl_takes_the_same_steps(bench):
    twice = dataclasses.replace(bench.config, repeats=2)
    (figure,) = steps.measure_trl(dataclasses.replace(bench, config=twice))
    assert figure.value > 0
    assert "TRL" in figure.baseline


@pytest.mark.filterwarnings("ignore")
def test_a_trl_that_samples_fewer_tokens_is_refused(bench):
    less = dataclasses.replace(bench, sizes=dataclasses.replace(QUICK, max_new=QUICK.max_new - 1))

    def shorter(_, *args):
        return trainer_for(less, *args)

    trainer_for = steps.trainer_for
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "trainer_for", shorter)
        with pytest.raises(UnequalWork, match=r"ours did .*TRL did"):
            steps.measure_trl(bench)


def test_the_whole_bench_times_fast_dev_run_and_a_smoke_does_not():
    """The sneaky fail: a document without one of the bars."""
    assert BenchConfig().parts == PARTS == tuple(parts.REGISTRY)
    assert set(PARTS) - set(BenchConfig(quick=True).parts) == {"dev_run"}
    assert BenchConfig(quick=True, only=("dev_run",)).parts == ("dev_run",)


@pytest.mark.parametrize(("body", "code"), [("exit 0", 0), ("exit 1", 1)])
def test_a_fast_dev_run_that_fails_is_not_timed(script, tmp_path, monkeypatch, body, code):
    just = tmp_path / "bin/just"
    just.parent.mkdir()
    just.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\n{body}\n')
    just.chmod(0o755)
    monkeypatch.setenv("PATH", str(just.parent), prepend=os.pathsep)
    got, out, err = script("bench", "--only", "dev_run", "--out", tmp_path / "bench.md")
    assert (tmp_path / "asked").read_text().startswith("fast-dev-run ")
    assert got == code
    assert ("just fast-dev-run: exit code 1" in err) == (code == 1)
    assert ("1 of 1 bars reached" in out) == (code == 0)


def test_without_just_the_bench_says_how_to_start_it(bench, monkeypatch):
    monkeypatch.setattr(startup.shutil, "which", lambda _: None)
    with pytest.raises(NotHere, match="uv run just bench"):
        startup.measure_dev_run(bench)


def test_a_part_or_a_smoke_never_replaces_the_document():
    assert BenchConfig().document == DOCUMENT
    assert BenchConfig(quick=True).document != DOCUMENT
    assert BenchConfig(only=("floor",)).document != DOCUMENT
    assert BenchConfig(only=("step", "floor")).parts == ("floor", "step")  # the floor comes first, others need it


def test_every_field_has_a_help_text():
    assert [f.name for f in fields(BenchConfig) if not get_field_docstring(BenchConfig, f.name, ())] == []


def test_every_script_reads_its_arguments():
    """The sneaky fail: one that reads none does its work when it is asked for --help."""
    found = startup.scripts_with_help()
    assert {"train.py", "bench.py", "lock.py"} <= {p.name for p in found}
    assert [
        p.name for p in found if not re.search(r"cli\.parse|argparse|parsed\(sys\.argv", p.read_text("utf-8"))
    ] == []


# ---------------------------------------------------------------- the same work


def test_all_ways_to_sample_give_the_same_number_of_tokens(bench):
    for sample in Sampler(bench).sides().values():
        assert sample() == {"completions": QUICK.rows, "tokens": QUICK.rows * QUICK.max_new}


def test_forced_lengths_are_the_lengths_on_every_side(bench):
    sampler = Sampler(bench, varying=True)
    lengths = sampler.lengths.tolist()
    assert len(set(lengths)) > 1
    with bench.loaded.model.get_output_embeddings().register_forward_hook(sampler.end_rows):
        for sample in sampler.sides().values():
            assert sample() == {"completions": QUICK.rows, "tokens": sum(lengths)}
    assert len(measure_generation(bench)) == 6
    assert not bench.loaded.model.get_output_embeddings()._forward_hooks


def test_a_baseline_that_samples_fewer_tokens_is_refused(bench, monkeypatch):
    def lazy(self, _):
        return Sampler(dataclasses.replace(self.bench, sizes=dataclasses.replace(QUICK, prompts=1))).ours()

    monkeypatch.setattr(Sampler, "generated", lazy)
    with pytest.raises(UnequalWork, match=r"sample_tokens did .*per prompt did"):
        measure_generation(bench)


def test_the_command_refuses_it_too(script, tmp_path, monkeypatch):
    less = {1: QUICK.rows * QUICK.max_new, QUICK.prompts: 1}  # the padded baseline alone
    monkeypatch.setattr(Sampler, "generated", lambda _, at_once: {"completions": QUICK.rows, "tokens": less[at_once]})
    code, _, err = script("bench", "--quick", "--only", "generation", "--out", tmp_path / "bench.md")
    assert code == 1
    assert err.startswith("error: sample_tokens did")
    assert not (tmp_path / "bench.md").exists()


def test_the_gradients_of_all_ways_agree(bench):
    gaps = backward.check_gradients(bench)
    assert gaps.keys() == {"whole", "shared", backward.NAIVE}
    assert max(gaps.values()) < 1e-5


def test_the_plain_adapter_is_the_same_model_and_is_taken_out_again(bench):
    ids = torch.tensor([bench.prompts[0].ids])
    with torch.no_grad():
        ours = bench.loaded.model(input_ids=ids).logits
        with mock.patch.object(AntiPaSTOLinear, "forward", plain_forward):
            assert torch.allclose(bench.loaded.model(input_ids=ids).logits, ours, atol=1e-5)
        assert torch.equal(bench.loaded.model(input_ids=ids).logits, ours)


def test_a_commands_memory_is_its_own():
    """Not that of who starts it, which here holds torch and 100 MiB more."""
    held = bytearray(b"x" * (100 << 20))
    seconds, mib = reading.cost_of([sys.executable, "-c", "x = bytearray(b'x' * (40 << 20)); raise SystemExit(3)"])
    assert len(held) > mib * 2**20 > 40 << 20
    assert seconds > 0


@pytest.mark.parametrize("wrong", [1.01, 0.0, float("nan")])
def test_a_baseline_with_another_gradient_is_refused(bench, monkeypatch, wrong):
    right = full_logits_grads(bench, random_groups(bench))
    monkeypatch.setattr(backward, "full_logits_grads", lambda *_, **__: {n: wrong * g for n, g in right.items()})
    with pytest.raises(UnequalWork, match="gradient"):
        backward.measure_backward(bench)


def test_a_baseline_that_leaves_out_a_sample_is_refused(bench):
    groups = random_groups(bench)
    with pytest.raises(UnequalWork, match="differ by"):
        check_same_gradient(
            "x", our_grads(bench, groups, per_sample=True), full_logits_grads(bench, groups[:1]), "float32"
        )


def test_both_ways_to_extract_give_the_same_differences(bench):
    _, both = backward.extraction_ways(bench)
    ours, plain = (way() for way in both.values())
    assert check_same_gradient("x", ours, plain, "float32") < 1e-4


def test_the_svd_of_a_gpu_is_compared_with_the_librarys(bench, monkeypatch):
    figure = startup.measure_one_svd(bench, 1)
    assert f"{QUICK.intermediate} x {QUICK.hidden}" in figure.what
    monkeypatch.setattr(startup, "gram_svd", lambda w: tuple(2 * t for t in torch.linalg.svd(w, full_matrices=False)))
    with pytest.raises(UnequalWork, match="singular values"):
        startup.measure_one_svd(bench, 1)


def test_results_that_leave_out_a_run_are_refused(bench, tmp_path):
    """The sneaky fail: a run that is no evidence is passed over, and the rest is read in no time."""
    sizes = dataclasses.replace(QUICK, result_files=reading.STEPS + 1)  # two runs
    files = reading.write_runs(dataclasses.replace(bench, sizes=sizes), tmp_path)
    runs = sorted(tmp_path.iterdir())
    assert reading.ours(runs) == reading.json_twice(runs) == {"files": files, "rows": files * 64}
    next(runs[0].glob("step_*")).unlink()
    with pytest.raises(UnequalWork, match=r"just results read \d+ of"):
        reading.results_of(tmp_path, files)


def test_a_step_samples_every_token_and_moves_the_adapter(bench):
    before = {n: p.detach().clone() for n, p in bench.adapter.vectors.items()}
    with quiet_sessions() as folder:
        taken = stepper(bench, folder / "run")
        assert taken(False) == {"completions": QUICK.rows, "tokens": QUICK.rows * QUICK.max_new}
        assert (folder / "run/step_000.jsonl.gz").exists()
        assert (folder / "run/checkpoint.pt").exists()
    with torch.no_grad():
        for name, p in bench.adapter.vectors.items():
            p.copy_(before[name])


@pytest.mark.slow
def test_the_sizes_of_a_gpu_run_the_same_code(like_gpu):
    """bfloat16 and gradient checkpointing: no shared prompt there, and gradients that agree to bfloat16's rounding."""
    assert backward.check_gradients(like_gpu).keys() == {"whole", backward.NAIVE}
    assert len(measure_generation(like_gpu)) == 6
    assert len(measure_step(like_gpu)) == 4
    assert all(p.dtype == torch.bfloat16 for p in like_gpu.loaded.model.parameters() if p.dim() > 1)


# ---------------------------------------------------------------- the numbers


def test_the_reference_point_has_its_size():
    parameters = sum(p.numel() for p in random_qwen3(CPU, torch.device("cpu")).parameters())
    assert round(parameters / 1e6, 1) == 4.2
    assert (CPU.rows, CPU.max_new) == (32, 64)
    lengths = [len(p.ids) for p in build_bench(ONCE, dataclasses.replace(CPU, layers=1)).prompts]
    assert abs(sum(lengths) / len(lengths) - 320) < 20
    gpu = sizes_for("cuda", quick=False)
    assert gpu.rows == 96
    assert linear_weights(gpu) == 252 // 7 * (2560 * 128 * 80 + 3 * 2560 * 9728)


def test_model_flops_by_hand():
    s = dataclasses.replace(
        QUICK, hidden=2, layers=1, heads=1, kv_heads=1, head_dim=2, intermediate=3, vocab=5, max_new=2
    )
    assert linear_weights(s) == 4 * 4 + 3 * 6
    # One prompt of 2 tokens, one completion of 2 tokens of which the last is never read: 3 tokens, looking at 1 + 2 + 3.
    weights, attention, vocabulary = 2 * 34 * 3, 4 * 2 * 6, 2 * 2 * 5 * 2
    one = dataclasses.replace(s, group=1)
    assert model_flops(one, [2], backward=False) == weights + attention + vocabulary
    assert model_flops(one, [2], backward=True) == 2 * weights + 3 * attention + 2 * vocabulary


def test_sides_are_measured_in_turn_and_warm_ups_do_not_count():
    order = []

    def noted(name):
        return lambda: order.append(name) or {"n": 1}

    timed = interleaved({"a": noted("a"), "b": noted("b")}, 2, 1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [len(t.times) for t in timed] == [2, 2]


def test_a_side_that_did_nothing_is_refused():
    with pytest.raises(UnequalWork, match="did nothing"):
        interleaved({"a": lambda: {"tokens": 0}}, 1, 0)


def test_ratios_point_the_right_way_and_bars_judge_them():
    ours, base = side("ours", [1.0, 2.0, 1.0], {"n": 1}), side("base", [4.0, 4.0, 5.0], {"n": 1})
    faster = ratio("w", ours, base, bar=(">=", 4.0), floor=0.5)
    assert (faster.value, faster.floor, faster.verdict) == (4.0, 2.0, "pass")
    assert (min(faster.values), max(faster.values)) == (2.0, 5.0)
    dearer = ratio("w", base, ours, bar=("<=", 1.15), longer=True)
    assert (dearer.value, dearer.verdict) == (4.0, "MISS")
    assert weighted("both", (0.5, ours), (0.5, base)).times == [2.5, 3.0, 3.0]


def test_the_document_shows_bars_misses_and_a_busy_machine():
    figure = Figure("whole", [2.5, 1.5, 2.0], "x", (">=", 3.0), "ours: 1 s", "TRL: 2 s", 7.0, "step")
    facts = {**document.machine({"torch": "2"}, 2, None), "load_at_start": 2.0}
    text = document.markdown([figure], ["a note"], facts, {"seed": 41})
    for part in ("2x (1.5 to 2.5)", ">= 3x", "MISS", "TRL: 2 s", "7.0", "a note", "machine was busy", "seed 41"):
        assert part in text
    assert "busy" not in document.markdown([figure], [], {**facts, "load_at_start": 0.1}, {})


def test_memory_says_where_it_cannot_be_read(monkeypatch):
    assert backward.resident("VmHWM") >= backward.resident("VmRSS") > 0
    monkeypatch.setattr(backward.Path, "exists", lambda _: False)
    with pytest.raises(NotHere):
        backward.resident("VmRSS")


def test_a_models_shapes_have_a_document_of_their_own_and_no_bars():
    config = BenchConfig(shapes="small")
    config.validate()
    assert config.document == Path("docs/bench-small.md")
    assert set(config.parts) == {"floor", "generation", "backward", "step", "extraction"}
    assert BenchConfig(shapes="small", only=("floor",)).document == Path("out/bench.md")
    shape = sizes_for("cpu", quick=False, shapes="small")
    assert (shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.intermediate, shape.vocab) == (
        576, 30, 9, 3, 1536, 49152,
    )  # fmt: skip
    with pytest.raises(BadInput, match="--shapes small --quick"):
        BenchConfig(shapes="small", quick=True).validate()
