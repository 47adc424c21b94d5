"""Start-up: --help of every script, decompositions with a cold and a warm cache, fast-dev-run."""

import dataclasses
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from projected_grpo.adapters import attach_antipasto
from projected_grpo.adapters.svd import gram_svd
from projected_grpo.bench.measure import Bar, Figure, NotHere, UnequalWork, Work, absolute, interleaved, ratio
from projected_grpo.bench.world import World, random_qwen3

ROOT = Path(__file__).resolve().parents[3]
HELP_BAR, DEV_RUN_BAR = Bar(1.5, "at most"), Bar(60.0, "at most")
LIGHT = (
    "import runpy, sys\n"
    "sys.argv = [sys.argv[1], '--help']\n"
    "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "except SystemExit as e: assert not e.code, e.code\n"
    "assert not {'torch', 'transformers'} & set(sys.modules), 'imports torch for --help'"
)


def scripts_with_help() -> list[Path]:
    """Every script: each tells what it is instead of doing its work."""
    found = sorted((ROOT / "scripts").glob("*.py"))
    if not found:
        raise NotHere(f"no scripts/ beside the package: run from the project's checkout ({ROOT.name})")
    return found


def help_seconds(script: Path) -> float:
    """Wall time of `script --help` in a new process."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, check=False, cwd=ROOT)
    if done.returncode:
        raise UnequalWork(f"{script.name} --help: exit code {done.returncode}")
    return time.perf_counter() - start


def check_light(script: Path) -> None:
    """UnequalWork when its --help imports torch or fails."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, str(script)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode:
        raise UnequalWork(f"{script.name}: {done.stderr.strip().splitlines()[-1]}")


def measure_help(scripts: Sequence[Path], repeats: int) -> Figure:
    """The slowest script's --help: a fresh process, imports and printing."""
    seconds = {}
    for script in scripts:
        check_light(script)
        seconds[script.name] = [help_seconds(script) for _ in range(repeats)]
    slowest = max(seconds, key=lambda name: sorted(seconds[name])[repeats // 2])
    return absolute(
        "start-up", f"--help of the slowest of {len(scripts)} scripts, torch not imported", seconds[slowest], "s",
        HELP_BAR, slowest,
    )  # fmt: skip


def measure_svd(world: World, repeats: int, layers: int = 4) -> Figure:
    """Attaching the adapter to a model of at most `layers` layers: from the cache, against decomposing."""
    sizes = dataclasses.replace(world.sizes, layers=min(layers, world.sizes.layers))

    def attach(folder: Path) -> dict[str, int]:
        return {"modules": len(attach_antipasto(random_qwen3(sizes, world.device, world.seed), folder).sizes)}

    with TemporaryDirectory() as warm:
        attach(Path(warm))

        def cold() -> dict[str, int]:
            with TemporaryDirectory() as empty:
                return attach(Path(empty))

        timed = interleaved({"warm": lambda: attach(Path(warm)), "cold": cold}, repeats, 0, world.synchronize)
    what = f"SVD of {timed['warm'].work['modules']} weights, {sizes.layers} layers"
    return ratio("start-up", what, ("warm cache", timed["warm"]), ("cold", timed["cold"]), None)


def measure_one_svd(world: World, repeats: int) -> Figure:
    """One of the largest weights, decomposed as the product does on a GPU and by the library's own SVD. UnequalWork when
    singular values differ."""
    shape = (world.sizes.intermediate, world.sizes.hidden)
    w = torch.randn(shape, generator=torch.Generator().manual_seed(world.seed)).to(world.device)
    found: dict[str, torch.Tensor] = {}

    def ours() -> Work:
        svd = gram_svd(w)
        assert svd is not None  # normal numbers: well conditioned
        found["ours"] = svd[1]
        return {"numbers": w.numel()}

    def library() -> Work:
        found["library"] = torch.linalg.svd(w, full_matrices=False)[1]
        return {"numbers": w.numel()}

    timed = interleaved({"ours": ours, "library": library}, repeats, 1, world.synchronize)
    if not torch.allclose(found["ours"], found["library"], rtol=1e-3):
        raise UnequalWork("the two decompositions of one weight have other singular values")
    what = f"SVD of one weight, {shape[0]} x {shape[1]}"
    return ratio("start-up", what, ("gram_svd", timed["ours"]), ("torch.linalg.svd", timed["library"]), None)


def measure_dev_run() -> list[Figure]:
    """Wall time of `just fast-dev-run`, its start included."""
    just = shutil.which("just")
    if just is None:
        raise NotHere("fast-dev-run: no `just` on the path; start the bench as `uv run just bench`")
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(
            [just, "fast-dev-run", f"{folder}/run"], capture_output=True, text=True, check=False, cwd=ROOT
        )
        seconds = time.perf_counter() - start
    if done.returncode:
        raise UnequalWork(f"just fast-dev-run: exit code {done.returncode}")
    return [absolute("start-up", "just fast-dev-run", [seconds], "s", DEV_RUN_BAR)]


def measure_startup(world: World, repeats: int, *, only_first: bool = False) -> list[Figure]:
    """--help and the decompositions; `only_first` looks at one script (a smoke)."""
    scripts = scripts_with_help()[: 1 if only_first else None]
    figures = [measure_help(scripts, repeats), measure_svd(world, repeats)]
    if world.device.type == "cuda":  # a CPU takes the library's
        figures.append(measure_one_svd(world, repeats))
    return figures
