"""What `just show RUN` prints of a run: where the energy along V lies, and rates by kind of problem."""

import pytest
from test_results import write_run

from projected_grpo.ledger.module_file import Modules
from projected_grpo.ledger.step_file import MODULE_COLUMNS, read_step, step_path, write_step
from projected_grpo.report.by_kind import by_kind
from projected_grpo.report.module_energy import module_energy, text

NAMES = tuple(f"model.layers.{layer}.{kind}" for layer in (0, 1) for kind in ("self_attn.q_proj", "mlp.down_proj"))
"""q0, down0, q1, down1."""


def run(energies, removed=1.0, of="update"):
    """One step per tuple of energies; k / n is 1/4, of the first module 0; what is removed is that part of what lies along
    V."""
    shares, steps = (0.4, 0.3, 0.2, 0.1), []
    for own in energies:
        step = {c.name: [0.5] * 4 for c in MODULE_COLUMNS}
        taken = [removed * e * s for e, s in zip(own, shares, strict=True)]
        step |= {"k": [0, 2, 2, 2], "energy_update_in": list(own), "update_share": list(shares), "removed": taken}
        steps.append(step | {"energy_in": [0.0] * 4, "grad_share": [0.25] * 4})
    return module_energy(of, Modules(NAMES, (8,) * 4, tuple(steps)))


MOVES = run([(0.5, 0.1, 0.1, 0.1)] * 3 + [(0.0, 0.0, 0.0, 0.0)] * 3 + [(0.1, 0.1, 0.1, 1.0)] * 3, removed=0.5)
"""It lives in q0 first and in down1 in the end."""


def test_shares_by_hand_early_and_late():
    early, late = MOVES.thirds
    assert (range(9)[early], range(9)[late]) == (range(3), range(6, 9))
    # q0 and q1: chance .2 / 4, along .4 * .5 + .2 * .1, half of it removed
    assert MOVES.part([0, 2], early) == pytest.approx((0.05, 0.22, 0.11))
    assert MOVES.part(range(4), late)[1] == pytest.approx(0.09 + 0.1)
    lines = text(MOVES).splitlines()
    top = next(i for i, line in enumerate(lines) if line.startswith("the 4 of 4 modules that hold most"))
    assert lines[top + 5].startswith(NAMES[3])  # behind a header of two lines
    assert lines[top + 5].split()[-3:] == ["0.40", "→", "4.00"]
    assert next(line for line in lines if line.startswith(NAMES[0])).endswith("- → -")


def test_an_arm_that_takes_v_out_of_the_gradient_is_told_of_the_gradient():
    for of, along in (("gradient", 0.0), ("update", 1.0)):
        assert run([(1.0,) * 4], of=of).part(range(4), slice(0, 1))[1] == pytest.approx(along)


@pytest.mark.slow
def test_show_prints_where_the_energy_lies(script, projected):
    code, out, err = script("show", projected(), "--modules")
    assert code == 0, err
    for told in ("projected, seed 41, 4 steps", "q_proj", "% of all: of the energy of the", "hold most along V late"):
        assert told in out


# ---------------------------------------------------------------- by kind of problem


def rows_of(run):
    return read_step(step_path(run, 0))


def test_each_kind_has_its_own_rate_by_hand(tmp_path):
    """Four rollouts a step: of p0 two hacks, of p1 two that are right; then all four are hacks."""
    run = write_run(tmp_path / "a", "vanilla", 41, [["hack", "hack", "good", "good"], ["hack"] * 4])
    ids = sorted({row["problem_id"] for row in rows_of(run)})
    tables = by_kind(run, dict.fromkeys(ids, "medium, varied"), "hack", 1)
    n = str(len(ids))
    assert tables == [
        [
            ["kind of problem", "problems", "rollouts", "0-0", "1-1"],
            *([k, n, "8", "50.0", "100.0"] for k in ("all", own)),
        ]
        for own in ("medium", "varied")
    ]
    (plain,) = by_kind(run, dict.fromkeys(ids, ""), "gt", 2)
    assert plain[1:] == [["all", n, "8", "25.0"]]


def test_each_way_to_divide_the_problems_is_a_table_whose_numbers_add_up(tmp_path):
    """In one table the kinds of task and of example look like six parts of a whole; they are two wholes."""
    run = write_run(tmp_path / "a", "vanilla", 41, [["hack", "good"]])
    write_step(run, 1, [{**row, "problem_id": "other", "step": 1} for row in rows_of(run)])
    first = rows_of(run)[0]["problem_id"]
    told = {first: "easy, lazy example", "other": "hard, varied example"}
    tasks, examples = by_kind(run, told, "hack", 2)
    assert tasks[0] == ["kind of problem", "problems", "rollouts", "0-1"]
    assert examples[0] == ["kind of problem", "problems", "rollouts", "0-1"]
    assert [row[:3] for row in tasks[1:]] == [["all", "2", "4"], ["easy", "1", "2"], ["hard", "1", "2"]]
    assert [row[0] for row in examples[1:]] == ["all", "lazy example", "varied example"]
