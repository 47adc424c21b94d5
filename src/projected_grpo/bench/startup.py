"""Start-up: --help of every script, decompositions with a cold and a warm cache, fast-dev-run."""

import functools
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.utils.benchmark import timer

from projected_grpo.adapters import attach_antipasto
from projected_grpo.adapters.svd import gram_svd
from projected_grpo.bench.measure import Figure, NotHere, UnequalWork, Work, doing, interleaved, ratio
from projected_grpo.bench.settings import SEED
from projected_grpo.bench.setup import Bench, random_qwen3

ROOT = Path(__file__).resolve().parents[3]
HELP_BAR, DEV_RUN_BAR = ("<=", 1.5), ("<=", 60.0)
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


def seconds_of(what: str, *command: str) -> float:
    """Wall time of a command. UnequalWork, with its last line, when it fails."""
    start = timer()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    taken = timer() - start
    if done.returncode:
        raise UnequalWork(f"{what}: exit code {done.returncode}: {''.join(done.stderr.strip().splitlines()[-1:])}")
    return taken


def measure_help(scripts: list[Path], repeats: int) -> Figure:
    """The slowest script's --help: a fresh process, imports and printing. UnequalWork when one imports torch or fails."""
    seconds = {}
    for script in scripts:
        seconds_of(script.name, sys.executable, "-c", LIGHT, str(script))
        command = (f"{script.name} --help", sys.executable, str(script), "--help")
        seconds[script.name] = [seconds_of(*command) for _ in range(repeats)]
    slowest = max(seconds, key=lambda name: sorted(seconds[name])[repeats // 2])
    what = f"--help of the slowest of {len(scripts)} scripts, torch not imported"
    return Figure(what, seconds[slowest], "s", HELP_BAR, slowest)


def measure_svd(bench: Bench, repeats: int) -> Figure:
    """Attaching the adapter to a model of at most 4 layers: from the cache, against decomposing."""
    sizes = replace(bench.sizes, layers=min(4, bench.sizes.layers))

    def attach(folder: str) -> Work:
        return {"modules": len(attach_antipasto(random_qwen3(sizes, bench.device), Path(folder)).sizes)}

    def cold() -> Work:
        with TemporaryDirectory() as empty:
            return attach(empty)

    with TemporaryDirectory() as filled:
        modules = attach(filled)["modules"]
        timed = interleaved({"warm cache": lambda: attach(filled), "cold": cold}, repeats, 0)
    return ratio(f"SVD of {modules} weights, {sizes.layers} layers", *timed)


def measure_one_svd(bench: Bench, repeats: int) -> Figure:
    """One of the largest weights, decomposed as the product does on a GPU and by the library's own SVD. UnequalWork when
    singular values differ."""
    d_out, d_in = bench.sizes.intermediate, bench.sizes.hidden
    w = torch.randn(d_out, d_in, generator=torch.Generator().manual_seed(SEED)).to(bench.device)
    library = functools.partial(torch.linalg.svd, w, full_matrices=False)
    ways = {"gram_svd": functools.partial(gram_svd, w), "torch.linalg.svd": library}
    ours, theirs = gram_svd(w), library()
    if ours is None or not torch.allclose(ours[1], theirs[1], rtol=1e-3):
        raise UnequalWork("the two decompositions of one weight have other singular values")
    timed = interleaved(doing({"numbers": w.numel()}, ways), repeats)
    return ratio(f"SVD of one weight, {d_out} x {d_in}", *timed)


def measure_startup(bench: Bench) -> list[Figure]:
    """--help (a smoke: of one script) and the decompositions."""
    scripts, few = scripts_with_help()[: 1 if bench.config.quick else None], min(bench.repeats, 3)
    figures = [measure_help(scripts, few), measure_svd(bench, few)]
    if bench.device.type == "cuda":  # a CPU takes the library's
        figures.append(measure_one_svd(bench, few))
    return figures


def measure_dev_run(bench: Bench) -> list[Figure]:  # noqa: ARG001 - one signature for all parts
    """Wall time of `just fast-dev-run`, its start included."""
    just = shutil.which("just")
    if just is None:
        raise NotHere("fast-dev-run: no `just` on the path; start the bench as `uv run just bench`")
    with TemporaryDirectory() as folder:
        seconds = seconds_of("just fast-dev-run", just, "fast-dev-run", f"{folder}/run")
    return [Figure("just fast-dev-run", [seconds], "s", DEV_RUN_BAR)]
