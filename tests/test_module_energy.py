"""Where the energy along V lies: numbers by hand, and the tables."""

import pytest
from test_modules import trained  # noqa: F401 - a fixture

from projected_grpo.ledger.module_file import Modules
from projected_grpo.ledger.step_file import MODULE_COLUMNS
from projected_grpo.report.module_energy import ModuleEnergy, concentration, kind_of, text

NAMES = tuple(f"model.layers.{layer}.{kind}" for layer in (0, 1) for kind in ("self_attn.q_proj", "mlp.down_proj"))
"""q0, down0, q1, down1."""


def run(energies, shares=(0.4, 0.3, 0.2, 0.1), removed=1.0, of="update"):
    """One step per tuple of energies; k / n is 1/4; what is removed is that part of what lies along V."""
    steps = []
    for own in energies:
        step = {c.name: [0.5] * 4 for c in MODULE_COLUMNS}
        taken = [removed * e * s for e, s in zip(own, shares, strict=True)]
        step |= {"k": [2] * 4, "energy_update_in": list(own), "update_share": list(shares), "removed": taken}
        steps.append(step | {"energy_in": [0.0] * 4, "grad_share": [0.25] * 4})
    return ModuleEnergy(of, Modules(NAMES, (8,) * 4, tuple(steps)))


MOVES = run([(0.5, 0.1, 0.1, 0.1)] * 3 + [(0.0, 0.0, 0.0, 0.0)] * 3 + [(0.1, 0.1, 0.1, 1.0)] * 3, removed=0.5)
"""It lives in q0 first and in down1 in the end."""


def test_shares_by_hand_early_and_late():
    early, late = MOVES.thirds
    assert (list(early), list(late)) == ([0, 1, 2], [6, 7, 8])
    q = MOVES.part([n for n in NAMES if kind_of(n) == "q_proj"], early)
    assert (q.along, q.chance, q.removed) == pytest.approx((0.4 * 0.5 + 0.2 * 0.1, 0.6 / 4, 0.11))
    assert q.times == pytest.approx(0.22 / 0.15)
    assert MOVES.part(NAMES, late).along == pytest.approx(0.09 + 0.1)
    assert (MOVES.ranked(early)[0], MOVES.ranked(late)[0]) == (NAMES[0], NAMES[3])


def test_a_tenth_is_chosen_on_the_first_third_and_measured_on_the_last():
    """Else the choice flatters the number: q0 holds 77 % of what is early along V, and 21 % late."""
    assert "(1 of 4) holds 21 % of it in the last third; spread evenly it would be 25 %" in concentration(MOVES)


def test_an_arm_that_takes_v_out_of_the_gradient_is_told_of_the_gradient():
    assert run([(1.0,) * 4], of="gradient").part(NAMES, range(1)).along == 0.0
    assert run([(1.0,) * 4]).part(NAMES, range(1)).along == pytest.approx(1.0)


def test_modules_without_directions_are_no_chance_of_anything():
    found = run([(0.5,) * 4])
    found.modules.steps[0]["k"][0] = 0
    found.modules.steps[0]["energy_update_in"][0] = None
    assert found.part([NAMES[0]], range(1)).times is None
    assert "-" in text(found)


@pytest.mark.slow
def test_show_prints_where_the_energy_lies(script, trained):  # noqa: F811
    code, out, err = script("show", trained, "--modules")
    assert code == 0, err
    for told in ("projected, seed 41, 3 steps", "q_proj", "% of all: of the energy of the", "the tenth of modules"):
        assert told in out
