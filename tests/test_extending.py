"""docs/extending.md, executed: every entry goes into a copy of the source tree, every new page is written there, every
command is run, in the order of the document. What an entry costs is what the document shows: nothing else is touched."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from projected_grpo.ledger.step_file import read_run

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
END_OF_REGISTRY = {  # an entry stands before what closes the registry
    "arms.py, GATES": "    )\n}\n\nif TYPE_CHECKING",
    "arms.py": "    )\n}  # fmt: skip\n\"\"\"In the order", "registry.py": "    )\n}\n",
    "hints.py": "    }\n)\n", "models.py": "}\n\n\ndef folder_of",
}  # fmt: skip


def blocks():
    """(language, first line, whole text) of every block of the document."""
    text = (ROOT / "docs/extending.md").read_text("utf-8")
    found = [(language, code.partition("\n")[0], code) for language, code in BLOCK.findall(text)]
    assert len(found) == text.count("```") / 2 == len(re.findall(r"^(?:```|~~~)", text, re.MULTILINE)) / 2
    for language, head, code in found:  # every block is one that the test knows how to execute
        if language == "python":
            assert head.startswith(("# entry in ", "# new file ")), head
        else:
            assert language == "bash", head
            assert all(line.startswith("uv run python ") for line in code.splitlines()), code
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


def execute(tree, cache, code):
    """Run the commands of a block; stops at the first that fails."""
    env = {**os.environ, "PYTHONPATH": str(tree / "src"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    code = code.replace("uv run python", "python")  # in the environment of the tests
    loads_a_model = r"^(python scripts/(?:train|probe_distill|extract_vhack_grad)\.py tiny)"
    code = re.sub(loads_a_model, rf"\1 --cache {cache}", code, flags=re.MULTILINE)
    done = subprocess.run(["bash", "-euc", code], cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{code}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory, cache):
    """The tree after every block of the document, and what its commands printed."""
    tree = tmp_path_factory.mktemp("extended")
    for part in ("src", "scripts"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    printed = ""
    for language, head, code in blocks():
        if language == "bash":
            printed += execute(tree, cache, code)
        elif head.startswith("# entry in "):
            insert(tree, head, code)
        else:
            path = tree / head.removeprefix("# new file ")
            assert not path.exists()
            path.write_text(code.partition("\n")[2], "utf-8")
    return tree, printed


def test_the_document_shows_every_registry():
    heads = [head for _, head, _ in blocks()]
    assert {Path(h.removeprefix("# entry in ")).name for h in heads if "entry in" in h} == set(END_OF_REGISTRY)


def test_each_kind_is_explained_in_under_a_screen():
    for section in (ROOT / "docs/extending.md").read_text("utf-8").split("\n## ")[1:]:
        assert len(section.splitlines()) <= 50, section.splitlines()[0]


@pytest.mark.slow
def test_a_new_arm_with_a_new_gate_goes_through_train_results_and_report(extended):
    tree, printed = extended
    rows = [rows[0] for rows in read_run(tree / "out/runs/half_out")]
    assert {r["arm"] for r in rows} == {"half_out"}
    # Half of the component along V is left in the applied update: the gate is really the one of the entry.
    shares = [r["cos_update"] / r["cos_update_in"] for r in rows if r["cos_update_in"]]
    assert 0.4 < sum(shares) / len(shares) < 0.7
    results = (tree / "out/runs/results/results.md").read_text("utf-8")
    assert re.search(r"^\| half_out +\| +1 \|", results, re.MULTILINE)
    assert results.index("| vanilla ") < results.index("| half_out ")
    assert "half_out" in next((tree / "out").rglob("*.html")).read_text("utf-8")
    assert "half_out" in printed


@pytest.mark.slow
def test_help_queue_and_schema_know_the_new_arm(extended, cache):
    tree, _ = extended
    assert "half of V is taken out of the update" in " ".join(
        re.sub(r"[│\s]+", " ", execute(tree, cache, "COLUMNS=200 python scripts/train.py tiny --help")).split()
    )
    assert "train_half_out_41" in execute(tree, cache, "python scripts/enqueue.py --dry preset=tiny backend=here")
    assert "half_out" in execute(tree, cache, "python -m projected_grpo.ledger.step_file")


@pytest.mark.slow
def test_a_new_verdict_is_asked_for_and_a_new_model_is_another_one(extended):
    tree, printed = extended
    assert re.search(r"T0 +FAIL +the teacher writes", printed)
    assert "required T0: exit code 1" in printed
    assert (tree / "out/again/adapter.safetensors").exists()
    told = read_run(tree / "out/checks")[0][0]["prompt"]
    assert "is accepted as soon as its run_tests() returns" in told
