"""The checklist of a GPU day: its commands, how a run is cut, and that nothing is told without a GPU."""

import sys

import pytest
import torch

from projected_grpo.bench import gpu_day
from projected_grpo.bench.gpu_day import Check, checklist, report, run
from projected_grpo.bench.settings import GpuDayConfig
from projected_grpo.config import ExtractConfig, TrainConfig
from projected_grpo.fits.settings import fits_presets
from projected_grpo.model import load
from projected_grpo.presets import presets
from projected_grpo.run import cli

SLOW = "import time, pathlib, sys; print('2 steps done', flush=True); pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(gpu_day, "PATIENCE", 0.01)


def test_without_a_gpu_it_says_so_in_one_line(script, tmp_path):
    assert not torch.cuda.is_available()
    code, out, err = script("gpu_day")
    assert (code, out) == (2, "")
    assert "no CUDA device here" in err
    assert not (tmp_path / "out/gpu-day").exists()


def test_dry_prints_every_command(script):
    code, out, _ = script("gpu_day", "--dry", "--steps", "6")
    assert code == 0
    commands = [line for line in out.splitlines() if line.startswith("python ")]
    scripts = [line.split()[1] for line in commands]
    assert scripts == [f"scripts/{n}.py" for n in ("bench", "fits", "extract_vhack_grad", "train", "train")]
    assert sum("--steps 6" in line for line in commands) == 2
    assert sum("--resume" in line for line in commands) == 1
    assert "--quick" not in out.partition("argv")[0]
    assert "bench.py --device cuda --out out/gpu-day/bench.md --quick" in script("gpu_day", "--dry", "--quick")[1]


def test_every_script_reads_its_arguments():
    """Cut behind the parsing of each: an option that is renamed turns this red."""
    of = {"fits": fits_presets(), "extract_vhack_grad": presets(ExtractConfig), "train": presets(TrainConfig)}
    for check in checklist(GpuDayConfig(problems="builtin"))[1:]:
        name = check.argv[0].removeprefix("scripts/").removesuffix(".py")
        cli.parse(of[name], "", list(check.argv[1:]))


def test_a_run_is_cut_when_its_file_is_there_and_one_that_ends_before_is_not_called_cut(tmp_path):
    there = tmp_path / "step"
    cut = run(Check("train", ["-c", SLOW, str(there)], (-2, 130), there), tmp_path / "1.log")
    assert cut.passed
    assert cut.said == ["2 steps done"]
    early = run(Check("train", ["-c", "pass"], (130,), tmp_path / "never"), tmp_path / "2.log")
    assert not early.passed
    text = report("X", [cut, early], [Check("resume", ["-c", ""])])
    assert "| train | as it should |" in text
    assert "| train | **exit 0** |" in text
    assert "| resume | not run" in text
    assert "    2 steps done" in text
    assert sys.executable not in text


def test_deterministic_kernels_are_asked_for_on_a_gpu_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *a, **k: asked.append((a, k)))
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    load.fixed_order(torch.device("cpu"))
    assert asked == []
    load.fixed_order(torch.device("cuda"))
    assert asked == [((True,), {"warn_only": True})]
    assert load.os.environ.pop("CUBLAS_WORKSPACE_CONFIG") == ":4096:8"
