"""What `just show RUN` prints of a run: where the energy along V lies, and rates by kind of problem."""

import pytest
from written_runs import write_run

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import MODULE_COLUMNS, Modules, read_step, step_path, write_step
from projected_grpo.report.one_run import by_kind, energy_tables, shares

NAMES = tuple(f"model.layers.{layer}.{kind}" for layer in (0, 1) for kind in ("self_attn.q_proj", "mlp.down_proj"))
"""q0, down0, q1, down1."""


def modules(energies, removed=1.0):
    """A step per tuple of energies along V of the update; k / n is 1/4, of the first module 0; that part of what lies
    along V is removed. Nothing of the gradient lies along V."""
    of_update, steps = (0.4, 0.3, 0.2, 0.1), []
    for own in energies:
        step = {c.name: [0.5] * 4 for c in MODULE_COLUMNS}
        taken = [removed * e * s for e, s in zip(own, of_update, strict=True)]
        step |= {"k": [0, 2, 2, 2], "energy_update_in": list(own), "update_share": list(of_update), "removed": taken}
        steps.append(step | {"energy_in": [0.0] * 4, "grad_share": [0.25] * 4})
    return Modules(NAMES, (8,) * 4, tuple(steps))


MOVES = modules([(0.5, 0.1, 0.1, 0.1)] * 3 + [(0.0, 0.0, 0.0, 0.0)] * 3 + [(0.1, 0.1, 0.1, 1.0)] * 3, removed=0.5)
"""It lives in q0 first and in down1 in the end."""


def test_shares_by_hand_early_and_late():
    chance, along, removed = shares("update", MOVES)
    # q0 and q1: chance .2 / 4, along .4 * .5 + .2 * .1, half of it removed
    assert [x[0, [0, 2]].sum() for x in (chance, along, removed)] == pytest.approx([0.05, 0.22, 0.11])
    assert along[8].sum() == pytest.approx(0.09 + 0.1)
    assert shares("gradient", MOVES)[1].sum() == 0
    lines = energy_tables("update", MOVES).splitlines()
    assert "steps 0-2 → steps 6-8" in lines
    top = next(i for i, line in enumerate(lines) if line.startswith("the 4 of 4 modules that hold most"))
    assert lines[top + 5].startswith(NAMES[3])  # behind a header of two lines
    assert lines[top + 5].split()[-3:] == ["0.40", "→", "4.00"]
    assert next(line for line in lines if line.startswith(NAMES[0])).endswith("- → -")


@pytest.mark.slow
def test_show_prints_where_the_energy_lies(script, projected):
    code, out, err = script("show", projected(), "--modules")
    assert code == 0, err
    for told in ("projected, seed 41", "q_proj", "% of all: of the energy of the", "hold most along V late"):
        assert told in out


# ---------------------------------------------------------------- by kind of problem


def test_each_way_to_divide_the_problems_is_a_table_whose_numbers_add_up(tmp_path):
    """In one table the kinds of task and of example look like six parts of a whole; they are two wholes. Four
    rollouts a step: two hacks and two that are right of one problem, then four hacks of another."""
    run = write_run(tmp_path / "a", "vanilla", 41, [["hack", "hack", "good", "good"], ["hack"] * 4])
    write_step(run, 1, [{**row, "problem_id": "other"} for row in read_step(step_path(run, 1))])
    kinds = {read_step(step_path(run, 0))[0]["problem_id"]: "easy, lazy example", "other": "hard, lazy example"}
    tasks, examples = by_kind(run, kinds, "hack", 1)
    assert tasks[0] == examples[0] == ["kind of problem", "problems", "rollouts", "0-0", "1-1"]
    assert tasks[1:] == [
        ["all", "2", "8", "50.0", "100.0"], ["easy", "1", "4", "50.0", "-"], ["hard", "1", "4", "-", "100.0"]
    ]  # fmt: skip
    assert examples[1:] == [[kind, "2", "8", "50.0", "100.0"] for kind in ("all", "lazy example")]
    (plain,) = by_kind(run, dict.fromkeys(kinds, ""), "gt", 2)
    assert plain[1:] == [["all", "2", "8", "25.0"]]
    (known,) = by_kind(run, {name: "" for name in kinds if name != "other"}, "gt", 2)
    assert known[1:] == [["all", "1", "4", "50.0"]]  # the other problem is a pool's
    with pytest.raises(BadInput, match="no rollout is of its --problems"):
        by_kind(run, {}, "gt")
