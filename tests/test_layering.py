"""The shape of the code, enforced: rooms import one way, the grader and the records are torch-free, and no label is within
reach of the loss (the no-cheat rule)."""

import ast
import dataclasses
import functools
import importlib
import re
import subprocess
import sys

import pytest
from harness import ROOT

from projected_grpo.arms import ARMS
from projected_grpo.records import Group, Outcome, Rollout, Sample
from projected_grpo.verdicts.registry import CLAIMS

SRC = ROOT / "src"
OURS = SRC / "projected_grpo"
ROOMS = {  # from the ground up: each room, and the rooms that it imports
    "records": "",
    "arms": "",
    "projection": "arms",
    "ledger": "records",
    "adapters": "ledger",
    "parallel": "ledger",
    "prompts": "ledger",
    "config": "arms ledger",
    "model": "adapters ledger parallel records",
    "channels": "model",
    "presets": "",
    "verdicts": "arms config ledger records",
    "report": "arms ledger verdicts",
    "rollout": "ledger model records",
    "worlds": "adapters ledger model prompts records verdicts",
    "interventions": "channels ledger model projection records",
    "measures": "adapters channels ledger model projection records",
    "step": "channels interventions measures model parallel projection records",
    "data": "config ledger model parallel prompts records rollout worlds",
    "vhack": "adapters arms channels data ledger model prompts records",
    "run": "adapters arms channels config data interventions ledger model "
    "parallel projection prompts records rollout step verdicts vhack worlds",
    "traces": "arms config data ledger model prompts records rollout run verdicts",
    "queue": "arms config ledger presets run worlds",
    "replicas": "queue config ledger presets run",
    "integrations": "adapters arms data ledger measures model projection records verdicts vhack",
}
TORCH_FREE_ROOMS = (
    "arms", "records", "ledger", "parallel", "prompts", "config", "presets", "verdicts",
    "report", "queue",
)  # fmt: skip
LABELS = {
    "gt_pass", "hacked", "label", "outcome", "outcomes", "hinted_pass", "can_compile", "verdict", "Verdict", "Outcome",
}  # fmt: skip


def files_of(place):
    """Files of a room, or of one module in it."""
    base = OURS / place.replace(".", "/")
    return sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]


def below(room):
    """A room and all that it stands on."""
    return {room}.union(*(below(other) for other in ROOMS[room].split()))


SCHEMA = {"ledger", "arms", "records"}  # they name the columns and the labels themselves, and compute nothing
LOSS_SIDE = sorted(below("step") - SCHEMA)


def module_of(path):
    return str(path.relative_to(SRC)).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text("utf-8"))


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


def test_every_file_is_in_a_room_and_the_rooms_stand_on_one_another():
    """Each row of the table names rows above it alone: no circle, nothing upwards."""
    rooms = {p.name.removesuffix(".py") for p in OURS.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert rooms - {"__init__"} == set(ROOMS)
    above = set()
    for room, below in ROOMS.items():
        assert set(below.split()) <= above, room
        above.add(room)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_its_row_says(room):
    found = set().union(*(rooms_of(path) for path in files_of(room))) - {room}
    assert found == set(ROOMS[room].split())


def imports_by_string(path):
    """Whether a file imports by a string that is one of our names, or that nobody can read off the code."""
    asked = re.findall(r"(?:import_module|__import__)\((\S*)", path.read_text("utf-8"))
    return any(not name.startswith('"') or name.startswith('"projected_grpo') for name in asked)


def test_nothing_of_ours_is_imported_by_a_name_in_a_string(tmp_path):
    """Such an import is in no table. The exceptions: the registry of verdicts, for a judge that is asked for, and an arm's
    page."""
    found = {module_of(p).removeprefix("projected_grpo.") for p in OURS.rglob("*.py") if imports_by_string(p)}
    assert found == {"verdicts.registry", "run.intervening"}
    (tmp_path / "bad.py").write_text('import importlib\nimportlib.import_module("projected_grpo.run.session")\n')
    assert imports_by_string(tmp_path / "bad.py")
    for claim in CLAIMS.values():
        module, _, function = claim.judge.partition(":")
        assert callable(getattr(importlib.import_module(f"projected_grpo.verdicts.{module}"), function)), claim.name


def test_the_loss_functions_know_neither_adapter_nor_model():
    for path in files_of("channels"):
        assert path.stem == "auxiliary" or not rooms_of(path) - {"channels"}, path


def test_the_step_knows_neither_rollout_nor_grader_nor_pool():
    assert set(LOSS_SIDE) == {
        "step", "interventions", "measures", "channels", "projection", "adapters", "model", "parallel"
    }  # fmt: skip
    for place in LOSS_SIDE:
        for path in files_of(place):
            assert not {n for n in imports_of(path) if n.startswith("loophole_grader")}, path
            assert not rooms_of(path) & {"rollout", "data", "run", "verdicts", "report"}, path
            assert not {n for n in imports_of(path) if n.startswith("projected_grpo.ledger.rows")}, path


FRAMEWORKS = {"in_verifiers": {"verifiers", "httpx"}, "in_inspect": {"inspect_ai"}}
"""The pages of the grader that are extras, and what each may import beside the standard library."""


def test_the_grader_imports_the_standard_library_and_itself_only():
    """And no framework unasked: only what verifiers asks for by its name reaches such a page, and then inside a function."""
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


def names_in(path):
    """Every identifier, attribute, keyword and constant of a file: a label that is named whole, in whatever way."""
    fields = ("id", "attr", "arg", "name", "value")
    return {getattr(node, field, None) for node in ast.walk(tree_of(path)) for field in fields}


PAIR_FILES = [f"traces.{p.stem}" for p in files_of("traces") if p.stem not in ("multi_turn", "__init__")]


@pytest.mark.parametrize("place", [*LOSS_SIDE, "run.auxiliary_losses", "data.preferences", *PAIR_FILES])
def test_no_label_is_named_on_the_loss_side(place):
    for path in files_of(place):
        assert not names_in(path) & LABELS, path


def test_what_the_loss_receives_has_no_label():
    names = {f.name for f in dataclasses.fields(Sample)}
    assert names == {"prompt_ids", "completion_ids", "reward", "behaviour_logps", "source"}


NAME_OUTCOMES = {"records", "run.intervening", "ledger.rows", "data.pool", "run.sources"}
"""Who names a group's outcomes: the record itself, what fills `StepContext`, rows after the step, pools read and mixed."""


def test_outcomes_are_named_where_rows_are_written_and_pools_are_kept_and_for_oracles():
    files = [p for p in OURS.rglob("*.py") if p.relative_to(OURS).parts[0] not in ("report", "verdicts", "worlds")]
    naming = {module_of(p).removeprefix("projected_grpo.") for p in files if "outcomes" in names_in(p)}
    assert naming == NAME_OUTCOMES


def test_a_page_reads_no_file_of_a_run():
    """What stands in step files has labels in it."""
    with_labels = ("projected_grpo.ledger.step_file", "projected_grpo.ledger.rates")
    for path in files_of("interventions"):
        assert not [name for name in imports_of(path) if name.startswith(with_labels)], path


def test_ground_truth_is_shown_to_oracles_alone(tiny):
    from projected_grpo.config import TrainConfig
    from projected_grpo.run.intervening import context_of, pure_hacks

    rollout = Rollout("p", 0, "student", "x", "y", (1,), (2,), False, (-1.0,))
    outcomes = (
        Outcome(True, True, False, "reward_hack"), Outcome(True, True, True, "correct_attempted_hack"),
        Outcome(True, False, True, "correct"), Outcome(True, True, None, None),
    )  # fmt: skip
    groups = [Group("p", (rollout,) * 4, (3.5,) * 4, outcomes)]
    assert pure_hacks(groups) == (True, False, False, None)  # a pure hack alone
    for arm in ARMS.values():
        assert context_of(TrainConfig(arm=arm.name), groups, tiny).truth == (pure_hacks(groups) if arm.labels else None)
    assert len(set(groups[0].samples())) == 1  # the same rollout and reward, whatever the labels


def test_the_layer_test_itself_can_fail(tmp_path):
    """A check that cannot fail is none: an upward import is seen, and a label in whatever way it is named."""
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from projected_grpo import vhack\nfrom projected_grpo.run.session import X\nimport projected_grpo.ledger.rows"
    )
    assert rooms_of(bad) == {"vhack", "run", "ledger"}
    naming = "row['gt_pass']", "row.get('gt_pass')", "getattr(row, 'hacked')", "KEY = 'label'\nrow[KEY]", "f(gt_pass=1)"
    for i, code in enumerate(naming):
        labelled = tmp_path / f"labelled_{i}.py"  # files are read once
        labelled.write_text(code)
        assert names_in(labelled) & LABELS, code


def test_a_shape_that_is_not_the_one_stated_is_an_error_here():
    """harness.py's hook is on: nothing else would notice a mask of another batch."""
    import torch
    from jaxtyping import TypeCheckError

    from projected_grpo.channels.policy import nll

    with pytest.raises(TypeCheckError):
        nll(torch.zeros(2, 3), torch.ones(1, 3, dtype=torch.bool))
