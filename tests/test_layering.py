"""The shape of the code, enforced: imports point one way, the grader and the records are torch-free, and no label is
within reach of the loss (the no-cheat rule)."""

import ast
import dataclasses
import subprocess
import sys

import pytest
from conftest import ROOT

from projected_grpo.records import Group, Outcome, Rollout, Sample

SRC = ROOT / "src"
# From the records down to the scripts: a module imports only what stands before its own line.
LAYERS = [
    ["errors"],
    ["steps", "parallel"],
    ["records", "config", "presets", "batching"],
    ["toy", "toy.shapes", "toy.tasks", "built", "peft_compat", "matched", "chains", "chains.task", "uat", "page"],
    ["uat.effects"],
    ["toy.programs", "toy.settings"],
    ["toy.corpus"],
    ["problems", "pool_files", "runs", "losses", "projection", "logprobs", "verdicts", "rows"],
    ["toy.tokenizer", "bars", "chains.plans"],
    ["cli", "pairs", "adapters.base", "results", "chains.settings"],
    ["chains.link"],
    ["chains.here", "chains.queueing"],
    ["chains.status", "chains.pueue", "chains.slurm"],
    ["h1", "plots", "uat.inputs"],
    ["uat.numbers"],
    ["uat.remarks", "uat.plots", "uat.text"],
    ["tables"],
    ["report"],
    ["page.spans"],
    ["page.rollouts"],
    ["page.experiment"],
    ["page.probes"],
    ["page.parts"],
    ["page.document"],
    ["adapters.svd", "adapters.lora"],
    ["adapters.antipasto"],
    ["adapters", "toy.pretrain"],
    ["shared_prompt", "kv_cache", "sampling", "attention"],
    ["forward"],
    ["model", "checkpoint", "step"],
    ["decoding"],
    ["vhack", "rollout", "pool"],
    ["session", "live"],
    ["sources", "evaluation", "refresh", "probe", "preflight"],
    ["mutants"],
    ["bench", "bench.settings", "bench.measure"],
    ["bench.flops", "bench.grading", "bench.document"],
    ["bench.world"],
    ["bench.generation", "bench.floor", "bench.startup", "bench.baselines"],
    ["bench.backward", "bench.steps", "bench.extraction"],
    ["bench.against_trl"],
    ["bench.parts"],
]
TORCH_FREE = [
    "errors",
    "steps",
    "parallel",
    "records",
    "config",
    "presets",
    "batching",
    "problems",
    "pairs",
    "pool_files",
    "runs",
    "verdicts",
    "rows",
    "cli",
    "toy.tasks",
    "toy.programs",
    "toy.corpus",
    "toy.settings",
    "matched",
    "built",
    "bars",
    "toy.shapes",
    "chains",
    "chains.task",
    "chains.plans",
    "chains.settings",
    "chains.link",
    "chains.here",
    "chains.queueing",
    "chains.status",
    "chains.pueue",
    "chains.slurm",
    "results",
    "h1",
    "plots",
    "tables",
    "report",
    "uat",
    "page",
    "uat.effects",
    "uat.inputs",
    "uat.numbers",
    "uat.remarks",
    "uat.plots",
    "uat.text",
    "page.spans",
    "page.rollouts",
    "page.experiment",
    "page.probes",
    "page.parts",
    "page.document",
    "bench",
    "bench.settings",
    "bench.measure",
    "bench.flops",
    "bench.grading",
    "bench.document",
]
# scipy and matplotlib bring it
NEED_NUMPY = {"verdicts", "matched", "bars", "h1", "tables", "plots", "report", "uat.effects", "uat.numbers"}
NEED_NUMPY |= {"uat.remarks", "uat.plots", "uat.text", "page.experiment", "page.probes", "page.parts", "page.document"}
LOSS_SIDE = [
    "step",
    "parallel",
    "losses",
    "projection",
    "logprobs",
    "adapters.base",
    "adapters.antipasto",
    "adapters.svd",
    "adapters.lora",
    "batching",
    "shared_prompt",
    "forward",
]
LABELS = {
    "gt_pass",
    "hacked",
    "label",
    "outcome",
    "outcomes",
    "hinted_pass",
    "can_compile",
    "verdict",
    "Verdict",
    "Outcome",
}


def path_of(module):
    base = SRC / "projected_grpo" / module.replace(".", "/")
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def modules():
    files = (SRC / "projected_grpo").rglob("*.py")
    names = [str(f.relative_to(SRC / "projected_grpo")).removesuffix(".py").replace("/", ".") for f in files]
    return sorted(n.removesuffix(".__init__") for n in names if n != "__init__")


def imports_of(path):
    """Fully named modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
    return found


def ours(path):
    known = set(modules())
    names = {n.removeprefix("projected_grpo.") for n in imports_of(path) if n.startswith("projected_grpo.")}
    return names & known


def test_every_module_has_a_layer():
    assert sorted(m for layer in LAYERS for m in layer) == modules()


@pytest.mark.parametrize("module", modules())
def test_imports_point_one_way(module):
    place = {m: i for i, layer in enumerate(LAYERS) for m in layer}
    upward = {m for m in ours(path_of(module)) if place[m] >= place[module]}
    assert upward == set()


def test_losses_projection_and_adapters_never_import_each_other():
    for module in ("losses", "projection", "adapters.base", "adapters.antipasto", "adapters.lora"):
        others = {"losses", "projection"} - {module}
        if not module.startswith("adapters"):
            others |= {"adapters", "adapters.base", "adapters.antipasto", "adapters.lora"}
        assert not ours(path_of(module)) & others


def test_the_grader_imports_the_standard_library_and_itself_only():
    for path in (SRC / "loophole_grader").glob("*.py"):
        siblings = {p.stem for p in path.parent.glob("*.py")}  # the runner is a script and finds its neighbours by path
        tops = {n.split(".")[0] for n in imports_of(path)}
        assert tops <= set(sys.stdlib_module_names) | {"loophole_grader"} | siblings, path.name


@pytest.mark.parametrize("code", ["import loophole_grader", *(f"import projected_grpo.{m}" for m in TORCH_FREE)])
def test_torch_free(code):
    allowed = {"numpy"} if code.removeprefix("import projected_grpo.") in NEED_NUMPY else set()
    check = f"import sys; {code}; bad = {{'torch', 'transformers', 'numpy'}} & set(sys.modules) - {allowed!r}"
    done = subprocess.run(
        [sys.executable, "-c", f"{check}; assert not bad, bad"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nothing_imports_a_script():
    scripts = {p.stem for p in (ROOT / "scripts").glob("*.py")}
    for path in SRC.rglob("*.py"):
        assert not {n.split(".")[0] for n in imports_of(path)} & scripts, path


# ---------------------------------------------------------------- the no-cheat rule


def names_in(path):
    """Every identifier, attribute, keyword and subscript string of a file; docstrings and messages are not code."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, (ast.arg, ast.keyword)):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield node.slice.value


@pytest.mark.parametrize("module", LOSS_SIDE)
def test_no_label_is_named_on_the_loss_side(module):
    assert not set(names_in(path_of(module))) & LABELS


@pytest.mark.parametrize("module", LOSS_SIDE)
def test_the_loss_side_knows_neither_rollout_nor_grader_nor_pool(module):
    imported = imports_of(path_of(module))
    assert not {n for n in imported if n.startswith("loophole_grader")}
    assert not ours(path_of(module)) & {"rollout", "pool", "sources", "session", "rows", "verdicts"}


def test_what_the_loss_receives_has_no_label():
    assert {f.name for f in dataclasses.fields(Sample)} == {
        "prompt_ids",
        "completion_ids",
        "reward",
        "behaviour_logps",
        "fresh",
    }


def test_labels_change_nothing_that_the_loss_sees():
    """The same rollouts and rewards with every label turned round: identical samples."""

    def group(hacked, label):
        rollout = Rollout("p", 0, "student", "x", "y", (1,), (2,), False, (-1.0,))
        return Group("p", "none", (rollout,), (3.5,), (Outcome(hacked, hacked, not hacked, label),))

    assert group(True, "reward_hack").samples() == group(False, "correct").samples()


def test_the_layer_test_itself_can_fail(tmp_path):
    """A check that cannot fail is none: an upward import and a label are seen."""
    bad = tmp_path / "bad.py"
    bad.write_text("from projected_grpo import session\nfrom projected_grpo.rows import rows_of\nx = row['gt_pass']\n")
    assert {"session", "rows"} <= ours(bad)
    assert "gt_pass" in set(names_in(bad)) & LABELS
