"""docs/extending.md, executed: every entry goes into a copy of the source tree, every new page is written there, then
every command is run, in the order of the document. What an entry costs is what the document shows: nothing else is
touched."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT

from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.step_file import read_run

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
END_OF_REGISTRY = {  # an entry stands before what closes the registry
    "arms.py, GATES": "}\n\"\"\"c [k] -> the coefficients",
    "arms.py": "    )\n}\nTWINNED", "registry.py": "    )\n}\n",
    "hints.py": "\n}\n\n\ndef apply_hint", "registry.py, WORLDS": "    )\n}\nPRESETS",
}  # fmt: skip

FIRST_IMPORT = "from projected_grpo.worlds.benchmark import BENCHMARK\n"


def blocks():
    """(language, first line, whole text) of every block of the document."""
    text = (ROOT / "docs/extending.md").read_text("utf-8")
    found = [(language, code.partition("\n")[0], code) for language, code in BLOCK.findall(text)]
    assert len(found) == text.count("```") / 2
    return found


def insert(tree, head, code):
    """Put an entry into its registry."""
    place = head.removeprefix("# entry in ")
    path = tree / place.partition(",")[0]
    text = path.read_text("utf-8")
    end = END_OF_REGISTRY[Path(place).name]
    assert text.count(end) == 1, f"{path}: where does its registry end?"
    entry = code.partition("\n")[2].rstrip().removesuffix(",")
    path.write_text(text.replace(end, f"{entry},\n{end}"), "utf-8")


DRIVER = """
import json, runpy, shlex, sys
for line in json.loads(sys.argv[1]):
    command, _, allowed = line.partition(" || test $? -eq ")
    print("$", command, flush=True)
    words = shlex.split(command.removeprefix("uv run python "))
    if words[1] in ("tiny", "sums") and "--help" not in words:
        words += ["--cache", sys.argv[2]]
    code, kept, sys.argv = 0, sys.argv, words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as e:
        code = e.code or 0
    sys.argv = kept
    assert code == int(allowed or 0), (line, code)
"""
ASKED = (
    "uv run python scripts/train.py tiny --help",
    "uv run python scripts/enqueue.py --dry preset=tiny backend=local arms=vanilla,half_out",
)


def test_the_document_shows_every_registry():
    entries = [head for _, head, _ in blocks() if head.startswith("# entry in ")]
    assert {Path(head.removeprefix("# entry in ")).name for head in entries} == set(END_OF_REGISTRY)


@pytest.mark.slow
def test_every_registry_is_extended_as_the_document_says(tmp_path, cache):
    """An arm with its own gate, a verdict, a loophole, a world: in scripts, tables, the page, help and queue."""
    for part in ("src", "scripts"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    commands = []
    for language, head, code in blocks():
        if language == "bash":
            commands += code.splitlines()
        elif head.startswith("# entry in "):
            insert(tmp_path, head, code)
        elif head.startswith("# import in "):
            path = tmp_path / head.removeprefix("# import in ")
            path.write_text(
                path.read_text("utf-8").replace(FIRST_IMPORT, FIRST_IMPORT + code.partition("\n")[2]), "utf-8"
            )
        else:
            page = tmp_path / head.removeprefix("# new file ")
            assert not page.exists()
            page.write_text(code.partition("\n")[2], "utf-8")
    # in one interpreter: starting twelve of them is what takes the time
    paths = os.pathsep.join(str(tmp_path / part) for part in ("src", "scripts"))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps([*commands, *ASKED]), str(cache)], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    printed, out = done.stdout, tmp_path / "out"
    rows = [rows[0] for rows in read_run(out / "runs/half_out")]
    # Half of the component along V is left in the applied update: the gate is really the one of the entry.
    shares = [r["cos_update"] / r["cos_update_in"] for r in rows if r["cos_update_in"]]
    assert 0.4 < sum(shares) / len(shares) < 0.7
    results = (out / "runs/results/results.md").read_text("utf-8")
    assert re.search(r"^\| half_out +\| +1 \|", results, re.MULTILINE)
    assert "half_out" in next(out.rglob("*.html")).read_text("utf-8")
    *_, helped, queued = printed.split("$ uv run ")
    assert "half_out" in helped
    assert "half_out: half of V is removed from the update" in printed
    assert "train_half_out_41" in queued
    assert re.search(r"T0 +FAIL +the teacher writes", printed)
    assert "required T0: exit code 1" in printed
    assert (out / "capped/adapter.safetensors").exists()
    frowned = [row for rows in read_run(out / "frowned") for row in rows]
    lower = {row["reward"] - row["reward_used"] for row in frowned}
    assert lower == {0.0, 0.5}
    assert "Do not write tests" in read_run(out / "asked")[0][0]["prompt"]
    assert {row["problem_id"] for row in read_run(out / "sums")[0]} <= {"add-1", "add-2", "add-3"}
    assert read_manifest(out / "sums")["vhack"]["pairs"] == "sums"
    assert "is accepted as soon as its run_tests() returns" in read_run(out / "checks")[0][0]["prompt"]
