"""Finished runs read as `just results` reads them, against plain json twice: for the fingerprint, then for the rows.

The baseline unpacks and parses each file for its digest, then again for its rows, which it neither checks nor sums up. Steps
have as many rows, as long, as the toy study's. The command itself is run once, on all files.
"""

import gzip
import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from projected_grpo.bench.measure import Figure, UnequalWork, Work, interleaved, ratio
from projected_grpo.bench.settings import SEED
from projected_grpo.bench.setup import Bench
from projected_grpo.bench.startup import ROOT
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.folder import plain
from projected_grpo.ledger.step_file import COLUMNS, SCHEMA_VERSION, step_path, write_step
from projected_grpo.verdicts.finished_runs import read_runs

STEPS, PROMPTS, GROUP = 228, 8, 8
"""Of each run, as in the toy study; so are the next two, and a completion of 14 to 60 tokens."""
PROMPT_TOKENS, PROMPT_LETTERS = 31, 190
COMPLETION = "```python\ndef solve(x):\n    return []\n\ndef run_tests():\n    return\n```"
ARMS = ("vanilla", "projected", "placebo", "random_energy")
COMPARED = 4
"""Runs of the ratio; the command reads all."""
STARTER = """
import os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
used = os.wait4(process.pid, 0)[2]
process.returncode = 0  # it was waited for behind its back
print(time.perf_counter() - start, used.ru_maxrss)
"""
TIME_BAR, MEMORY_BAR = ("<=", 30.0), ("<=", 1024.0)


def write_runs(bench: Bench, root: Path) -> int:
    """Runs of `result_files` step files in all, the arms in turn, then another seed. Returns how many files."""
    many = -(-bench.sizes.result_files // STEPS)
    steps = -(-bench.sizes.result_files // many)
    texts = []
    for step in range(steps):
        texts.append(gzip.decompress(write_step(root / "once", step, rows_of(bench, step)).read_bytes()))
    shutil.rmtree(root / "once")
    for place in range(many):
        write_like(texts, root, ARMS[place % len(ARMS)], SEED + place // len(ARMS))
    return many * steps


def write_like(texts: Sequence[bytes], root: Path, arm: str, seed: int) -> None:
    """A run whose steps hold these texts, as of another arm, seed and problems."""
    run = root / f"{arm}_{seed}"
    names = {b'"ARM"': f'"{arm}"', b'"seed": 0': f'"seed": {seed}', b"of ARM": f"of {arm} {seed}"}
    run.mkdir()
    for step, text in enumerate(texts):
        for old, new in names.items():
            text = text.replace(old, new.encode())
        step_path(run, step).write_bytes(gzip.compress(text, 6))
    config = TrainConfig(arm=arm, seed=seed, steps=len(texts), prompts_per_step=PROMPTS, group_size=GROUP)
    facts = {"kind": "train", "schema_version": SCHEMA_VERSION, "config": plain(config), "finished": True}
    (run / "manifest.json").write_text(json.dumps(facts), "utf-8")


def rows_of(bench: Bench, step: int) -> list[dict[str, Any]]:
    """Rows of one step: every number drawn, half of them pure hacks."""
    draw = random.Random(f"{SEED} {step}")
    blank = {"int": lambda: draw.randrange(2**31), "float": draw.random, "bool": lambda: False, "str": lambda: "sampled",
             "dict": lambda: {"total": draw.random()}}  # fmt: skip
    of_step = {c.name: blank[c.type]() for c in COLUMNS if c.level == "step" and c.type in blank}
    rows = []
    for place in range(PROMPTS * GROUP):
        prompt = bench.prompts[place // GROUP % len(bench.prompts)]
        ids, hacked = [draw.randrange(512) for _ in range(draw.randrange(14, 60))], place % 2 == 0
        own = {c.name: blank[c.type]() for c in COLUMNS if c.level == "sample" and c.type in blank}
        rows.append({
            **of_step, **own, "step": step, "arm": "ARM", "seed": 0, "sample_id": place % GROUP, "source": "student",
            "problem_id": f"{place // GROUP} of ARM", "prompt": prompt.text[-PROMPT_LETTERS:], "target": None,
            "prompt_ids": list(prompt.ids[-PROMPT_TOKENS:]), "completion": COMPLETION, "completion_ids": ids,
            "can_compile": True, "hacked": hacked, "gt_pass": False, "reward": 3.5 if hacked else 0.5,
            "label": "reward_hack" if hacked else "incorrect", "channels": None, "behaviour_logps": None, "judge": None,
        })  # fmt: skip
    return rows


def ours(runs: Sequence[Path]) -> Work:
    """As `just results`, in this process."""
    found = read_runs(runs, workers=1).runs
    return {"files": sum(run.steps for run in found), "rows": sum(run.rollouts for run in found)}


def json_twice(runs: Sequence[Path]) -> Work:
    """Each file unpacked and parsed for its digest, then for its rows."""
    files = [path for run in runs for path in sorted(run.glob("step_*"))]
    digest, rows = hashlib.sha256(), 0
    for path in files:
        with gzip.open(path, "rb") as f:
            for line in f:
                digest.update(line)
                json.loads(line)
        with gzip.open(path, "rb") as f:
            rows += len([json.loads(line) for line in f])
    return {"files": len(files), "rows": rows}


def results_of(root: Path, files: int) -> tuple[float, float]:
    """(seconds, MiB of its largest process) of the command over all runs. UnequalWork when it did not read every row."""
    with TemporaryDirectory() as out:
        seconds, memory = cost_of([sys.executable, str(ROOT / "scripts/results.py"), str(root), "--out", out])
        told = Path(out) / "results.json"
        read = sum(run["rollouts"] for run in json.loads(told.read_text("utf-8"))["runs"]) if told.exists() else 0
    if read != (rows := files * PROMPTS * GROUP):
        raise UnequalWork(f"just results read {read} of {rows} rows")
    return seconds, memory


def cost_of(command: Sequence[str]) -> tuple[float, float]:
    """(seconds, MiB of its largest process) of a command, whatever its exit code.

    The kernel counts what a process's starter held as the process's own, up to its exec: so a small one starts it.
    """
    told = subprocess.run([sys.executable, "-c", STARTER, *command], stdout=subprocess.PIPE, check=True).stdout
    seconds, kib = map(float, told.split())
    return seconds, kib / 2**10


def measure_results(bench: Bench) -> list[Figure]:
    """The ratio on a few runs; then the command's time and memory."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        files = write_runs(bench, root)
        few = sorted(root.iterdir())[:COMPARED]
        sides = {"one pass": partial(ours, few), "json twice, nothing checked": partial(json_twice, few)}
        one, twice = interleaved(sides, min(bench.repeats, 3), 0)
        seconds, memory = results_of(root, files)
    size = f"{files:,} step files of {PROMPTS * GROUP} rows"
    return [
        ratio(f"reading {(one.metadata or {})['files']:,} step files", one, twice),
        Figure(f"just results over {size}", [seconds], "s", TIME_BAR),
        Figure(f"just results over {size}: its largest process", [memory], "MiB", MEMORY_BAR),
    ]
