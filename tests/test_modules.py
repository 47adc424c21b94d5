"""The side file of modules: what it says agrees with the step files, and it survives a kill."""

import pytest
import torch

from projected_grpo.ledger.step_file import (
    MODULE_COLUMNS,
    MODULE_FILE,
    append_modules,
    cut_modules,
    read_modules,
    read_run,
)
from projected_grpo.measures import projection_columns
from projected_grpo.projection import Projection

NAMES = ("layers.0.q_proj", "layers.0.o_proj", "layers.1.q_proj")
V = {"layers.0.q_proj": torch.eye(4)[:2], "layers.0.o_proj": torch.eye(2)[:1], "layers.1.q_proj": torch.zeros(0, 2)}
GRADIENT = {
    "layers.0.q_proj": torch.tensor([3.0, -4.0, 0.0, 12.0]),  # norm 13; V g = (3, -4)
    "layers.0.o_proj": torch.tensor([-2.0, 0.0]),  # V g = -2
    "layers.1.q_proj": torch.tensor([1.0, 1.0]),  # no V
}
WITHOUT = {
    "layers.0.q_proj": torch.tensor([0.0, 0.0, 0.0, 12.0]),
    "layers.0.o_proj": torch.tensor([0.0, 0.0]),
    "layers.1.q_proj": torch.tensor([1.0, 1.0]),
}
STAGES = ("gradient", "used", "proposed", "applied")


def columns(target):
    """What is removed from the update, or from the gradient; the other stays as it was."""
    used = (GRADIENT, WITHOUT, GRADIENT, GRADIENT) if target == "grad" else (GRADIENT, GRADIENT, GRADIENT, WITHOUT)
    return projection_columns(dict(zip(STAGES, used, strict=True)), Projection(V, target), 1.0)[1]


@pytest.mark.parametrize("target", ["update", "grad"])
def test_the_columns_of_three_modules_by_hand(target):
    """||g||^2 = 169 + 4 + 2 = 175, of which 25 and 4 go."""
    found = columns(target)
    assert found["k"] == [2, 1, 0]
    assert found["cos_in"] == pytest.approx([3 / 13, 0.0, None])
    assert found["energy_in"] == pytest.approx([25 / 169, 1.0, None])
    assert found["grad_share"] == pytest.approx([169 / 175, 4 / 175, 2 / 175])
    assert found["removed"] == pytest.approx([25 / 175, 4 / 175, 0.0])


def test_without_v_there_are_no_columns():
    assert projection_columns(dict.fromkeys(STAGES, GRADIENT), Projection(), 0.0)[1] == {}


# ---------------------------------------------------------------- beside the step files


@pytest.mark.slow
def test_every_steps_columns_are_the_means_and_sums_over_the_side_files_modules(projected):
    side, steps = read_modules(projected()), read_run(projected())
    assert len(side.steps) == len(steps) == 4
    for modules, rows in zip(side.steps, steps, strict=True):
        known = [v for v in modules["cos_in"] if v is not None]
        assert sum(known) / len(known) == pytest.approx(rows[0]["cos_in"], rel=1e-5, abs=1e-7)
        assert sum(modules["removed"]) == pytest.approx(rows[0]["update_removed"], rel=1e-5)
        assert sum(modules["removed"]) > 0.01
        assert len({round(v, 6) for v in modules["cos_in"]}) > 1  # not one mean, written for all


# ---------------------------------------------------------------- the file


def values(step):
    return {c.name: [(c.type == "int" and 2) or step + 0.1234567891] * 3 for c in MODULE_COLUMNS}


def written(run, steps=3):
    run.mkdir(exist_ok=True)
    for step in range(steps):
        append_modules(run, step, dict(zip(NAMES, (4, 2, 2), strict=True)), values(step))
    return run


def test_what_is_written_is_read_to_seven_digits(tmp_path):
    found = read_modules(written(tmp_path / "a"))
    assert (found.names, found.sizes, len(found.steps)) == ([*NAMES], [4, 2, 2], 3)
    assert found.steps[1]["cos_in"] == [1.123457] * 3
    assert found.steps[2]["k"] == [2, 2, 2]


def test_steps_after_the_checkpoint_are_removed_on_resume(tmp_path):
    whole, run = written(tmp_path / "whole"), written(tmp_path / "a")
    cut_modules(run, 1)
    assert len(read_modules(run).steps) == 2
    append_modules(run, 2, dict(zip(NAMES, (4, 2, 2), strict=True)), values(2))
    assert (run / MODULE_FILE).read_bytes() == (whole / MODULE_FILE).read_bytes()  # bit for bit
