"""The shape of the code, enforced: rooms import one way, the grader and the records are torch-free, and no label is
within reach of the loss (the no-cheat rule)."""

import ast
import dataclasses
import importlib
import re
import subprocess
import sys

import pytest
import torch
from harness import ROOT, names_in, tree_of
from torch.optim import SGD

from projected_grpo.arms import ARMS
from projected_grpo.config import BuildConfig, ExtractConfig, ProbeConfig, TrainConfig, VerifyConfig
from projected_grpo.records import Group, Outcome, Rollout, Sample
from projected_grpo.traces.settings import MultiTurnConfig
from projected_grpo.verdicts.registry import CLAIMS

SRC = ROOT / "src"
OURS = SRC / "projected_grpo"
ORDER = (
    "records", "arms", "losses", "projection", "ledger", "adapters", "parallel", "prompts", "config", "model", "channels",
    "verdicts", "report", "rollout", "worlds", "presets", "interventions", "measures", "step", "data", "vhack", "run",
    "traces", "queue", "replicas", "integrations",
)  # fmt: skip
"""From the ground up. No room imports one that stands later."""
LOSS_SIDE = ("projection", "adapters", "parallel", "model", "channels", "interventions", "measures", "step")
"""What turns rewards into an update: it sees no label, and no file of a run."""
FORBIDDEN = {
    **dict.fromkeys(LOSS_SIDE, "config data prompts rollout worlds verdicts report"),
    "interventions": "config data rollout worlds verdicts report",
    "ledger": "arms projection",
    "records": "arms",
    "report": "config adapters",
    "rollout": "channels verdicts report config",
    "vhack": "interventions step measures verdicts report",
    "data": "adapters channels interventions step measures verdicts report",
    "worlds": "config channels report rollout",
    "integrations": "run queue traces replicas step interventions worlds",
}
"""Of the rooms that stand earlier, those that a room does not import either."""
TORCH_FREE_ROOMS = (
    "arms", "losses", "records", "ledger", "parallel", "prompts", "config", "presets", "verdicts",
    "report", "queue",
)  # fmt: skip
LABELS = {
    "gt_pass", "hacked", "label", "outcome", "outcomes", "hinted_pass", "can_compile", "verdict", "Verdict", "Outcome",
}  # fmt: skip


def files_of(place):
    """Files of a room, or of one module in it."""
    base = OURS / place.replace(".", "/")
    return sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]


def module_of(path):
    return str(path.relative_to(SRC)).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(path):
    """Fully named modules (and names in them) that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
    return found


def rooms_of(path):
    """Our rooms that a file imports."""
    parts = (name.split(".") for name in imports_of(path))
    return {p[1] for p in parts if p[0] == "projected_grpo" and len(p) > 1}


def test_every_file_is_in_a_room():
    rooms = {p.name.removesuffix(".py") for p in OURS.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert rooms - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("room", ORDER)
def test_a_room_imports_none_that_stands_later_and_none_that_is_forbidden(room):
    forbidden = {*ORDER[ORDER.index(room) + 1 :], *FORBIDDEN.get(room, "").split()}
    for path in files_of(room):
        assert not rooms_of(path) & forbidden, path


CONFIGS = (
    BuildConfig, ExtractConfig, VerifyConfig, TrainConfig, ProbeConfig, MultiTurnConfig,
)  # fmt: skip


def test_every_field_of_a_run_has_one_class():
    """Comparison, grouping, resume and bounds are read off it."""
    of = {
        f"{config.__name__}.{f.name}": f.metadata.get("role") for config in CONFIGS for f in dataclasses.fields(config)
    }
    assert {name for name, role in of.items() if role not in ("setting", "fixed", "free")} == set()


def imports_by_string(path):
    """Whether a file imports by a string that is one of our names, or that nobody can read off the code."""
    asked = re.findall(r"(?:import_module|__import__)\((\S*)", path.read_text("utf-8"))
    return any(not name.startswith('"') or name.startswith('"projected_grpo') for name in asked)


def test_nothing_of_ours_is_imported_by_a_name_in_a_string(tmp_path):
    """Such an import is in no table. The exceptions: the registry of verdicts, for a judge that is asked for, an
    arm's page, and a world's models."""
    found = {module_of(p).removeprefix("projected_grpo.") for p in OURS.rglob("*.py") if imports_by_string(p)}
    assert found == {"verdicts.registry", "run.intervening", "run.prepare", "worlds.models"}
    (tmp_path / "bad.py").write_text('import importlib\nimportlib.import_module("projected_grpo.run.policy")\n')
    assert imports_by_string(tmp_path / "bad.py")
    for claim in CLAIMS.values():
        module, _, function = claim.judge.partition(":")
        assert callable(getattr(importlib.import_module(f"projected_grpo.verdicts.{module}"), function)), claim.name


def test_the_loss_functions_know_neither_adapter_nor_model():
    for path in files_of("channels"):
        assert path.stem == "auxiliary" or not rooms_of(path) - {"channels", "losses"}, path


def test_the_step_knows_neither_rollout_nor_grader_nor_pool():
    for place in LOSS_SIDE:
        for path in files_of(place):
            assert not {n for n in imports_of(path) if n.startswith("loophole_grader")}, path
            assert not {n for n in imports_of(path) if n.startswith("projected_grpo.ledger.rows")}, path


FRAMEWORKS = {"in_verifiers": {"verifiers", "httpx"}, "in_inspect": {"inspect_ai"}}
"""The pages of the grader that are extras, and what each may import beside the standard library."""


def test_the_grader_imports_the_standard_library_and_itself_only():
    """And no framework unasked: only what verifiers asks for by its name reaches such a page, and then inside a
    function."""
    assert brings(["verifiers", "inspect_ai"], ["loophole_grader", "loophole_grader.reward_function"]) == [[]]
    for path in (SRC / "loophole_grader").rglob("*.py"):
        siblings = {p.stem for p in path.parent.glob("*.py")}  # the runner is a script and finds its neighbours by path
        allowed = set(sys.stdlib_module_names) | {"loophole_grader"} | siblings | FRAMEWORKS.get(path.stem, set())
        assert {n.split(".")[0] for n in imports_of(path)} <= allowed, path.name
        assert path.stem == "__init__" or not {n.split(".")[-1] for n in imports_of(path)} & set(FRAMEWORKS), path


def brings(heavy, *stages):
    """Which of the heavy packages a fresh interpreter has loaded after each stage of imports."""
    imports = (f"import {', '.join(modules)}; print(*sorted({set(heavy)!r} & set(sys.modules)))" for modules in stages)
    code = "\n".join(["import sys", *imports])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_what_does_not_train_brings_no_torch():
    light = [module_of(p) for room in (*TORCH_FREE_ROOMS, "run.inputs") for p in files_of(room)]
    stages = (light, ["projected_grpo.projection"])  # the last one: a check that cannot fail is none
    assert brings(["torch", "transformers"], *stages) == [[], ["torch"]]


# ---------------------------------------------------------------- the no-cheat rule


PAIR_FILES = [f"traces.{p.stem}" for p in files_of("traces") if p.stem not in ("multi_turn", "__init__")]


@pytest.mark.parametrize("place", [*LOSS_SIDE, "run.auxiliary_losses", "data.preferences", *PAIR_FILES])
def test_no_label_is_named_on_the_loss_side(place):
    for path in files_of(place):
        assert not names_in(path) & LABELS, path


def test_what_the_loss_receives_has_no_label():
    names = {f.name for f in dataclasses.fields(Sample)}
    assert names == {"prompt_ids", "completion_ids", "reward", "behaviour_logps", "source"}


NAME_OUTCOMES = {"records", "run.intervening", "ledger.rows", "data.pool", "run.sources"}
"""Who names a group's outcomes: the record itself, what fills `StepContext`, rows after the step, pools read and
mixed."""


def test_outcomes_are_named_where_rows_are_written_and_pools_are_kept_and_for_oracles():
    files = [p for p in OURS.rglob("*.py") if p.relative_to(OURS).parts[0] not in ("report", "verdicts", "worlds")]
    naming = {module_of(p).removeprefix("projected_grpo.") for p in files if "outcomes" in names_in(p)}
    assert naming == NAME_OUTCOMES


def test_a_page_reads_no_file_of_a_run():
    """What stands in step files has labels in it."""
    with_labels = ("projected_grpo.ledger.step_file", "projected_grpo.ledger.rates")
    for path in files_of("interventions"):
        assert not [name for name in imports_of(path) if name.startswith(with_labels)], path


def test_ground_truth_is_shown_to_oracles_alone(tiny, antipasto):
    from projected_grpo.projection import Projection
    from projected_grpo.run.intervening import context_of, pure_hacks
    from projected_grpo.run.policy import Policy
    from projected_grpo.step import Objective

    rollout = Rollout("p", 0, "student", "x", "y", (1,), (2,), False, (-1.0,))
    outcomes = (
        Outcome(True, True, False, "reward_hack"), Outcome(True, True, True, "correct_attempted_hack"),
        Outcome(True, False, True, "correct"), Outcome(True, True, None, None),
    )  # fmt: skip
    groups = [Group("p", (rollout,) * 4, (3.5,) * 4, outcomes)]
    assert pure_hacks(groups) == (True, False, False, None)  # a pure hack alone
    policy = Policy(TrainConfig(), tiny, antipasto, SGD([torch.zeros(1)]), Objective("nll"), Projection())
    for arm in ARMS.values():
        context = context_of(TrainConfig(arm=arm.name), policy, groups)
        assert context.truth == (pure_hacks(groups) if arm.labels else None)
    assert len(set(groups[0].samples())) == 1  # the same rollout and reward, whatever the labels


def test_the_layer_test_itself_can_fail(tmp_path):
    """A check that cannot fail is none: an upward import is seen, and a label in whatever way it is named."""
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from projected_grpo import vhack\nfrom projected_grpo.run.policy import X\nimport projected_grpo.ledger.rows"
    )
    assert rooms_of(bad) == {"vhack", "run", "ledger"}
    naming = "row['gt_pass']", "row.get('gt_pass')", "getattr(row, 'hacked')", "KEY = 'label'\nrow[KEY]", "f(gt_pass=1)"
    for i, code in enumerate(naming):
        labelled = tmp_path / f"labelled_{i}.py"  # files are read once
        labelled.write_text(code)
        assert names_in(labelled) & LABELS, code


def test_a_shape_that_is_not_the_one_stated_is_an_error_here():
    """harness.py's hook is on: nothing else would notice a mask of another batch."""
    from jaxtyping import TypeCheckError

    from projected_grpo.channels.policy import nll

    with pytest.raises(TypeCheckError):
        nll(torch.zeros(2, 3), torch.ones(1, 3, dtype=torch.bool))
