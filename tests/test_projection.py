"""Projection against upstream's numbers and by its properties."""

import pytest
import torch
from harness import measure, tensor

from projected_grpo.projection import Projection, null_cosine, project_vector

GATES = ["one_sided", "no_gate", "reverse"]


def test_equals_upstream(golden):
    cases = golden["adapter"]["projection"]["cases"]
    assert len(cases) == 24
    for case in cases:
        g, v = tensor(case["inputs"]["g"]), tensor(case["inputs"]["V_hack"])
        p, e = case["params"], case["expected"]
        kept, removed = project_vector(g, v, p["gate"], p["overshoot"], p["preserve_magnitude"])
        near = {"rtol": 1e-9, "atol": 1e-12 * max(1.0, float(g.norm()))}
        torch.testing.assert_close(removed, tensor(e["removed"]), **near)
        torch.testing.assert_close(kept, tensor(e["g_proj"]), **near)
        for vector, which in ((g, "cos_in"), (kept, "cos_out")):
            found = measure({"m": vector}, {"m": v})
            assert (found.cos or 0.0) == pytest.approx(e[which], rel=1e-9, abs=1e-9)
            assert (found.cos_signed or 0.0) == pytest.approx(e[f"{which}_sum_signed"], rel=1e-9, abs=1e-9)


@pytest.fixture
def case():
    g = torch.Generator().manual_seed(3)
    v = torch.linalg.qr(torch.randn(12, 4, generator=g, dtype=torch.float64))[0].T.contiguous()
    return torch.randn(12, generator=g, dtype=torch.float64), v


@pytest.mark.parametrize("gate", GATES)
def test_no_directions_is_exactly_the_identity(case, gate):
    g, _ = case
    kept, removed = project_vector(g, torch.zeros(0, 12, dtype=torch.float64), gate)
    assert torch.equal(kept, g)
    assert not removed.any()


def test_fired_counts_modules_without_directions_as_not_fired(case):
    g, v = case
    grads = {"a": g, "b": g, "c": v[0] * -1.0}
    basis = {"a": v, "b": v[:0], "c": v[:1]}
    kept, fired = Projection(basis, "grad", "one_sided").apply(grads)
    assert fired == pytest.approx(1 / 3)  # b has no V; c points away
    assert torch.equal(kept["c"], grads["c"])


def test_measure_averages_over_modules_with_directions_and_a_gradient(case):
    g, v = case
    grads = {"a": v[0], "b": v[0], "zero": torch.zeros_like(g), "none": g}
    basis = {"a": v[:1], "b": v[1:2], "zero": v, "none": v[:0]}
    assert measure(grads, basis).cos == pytest.approx(0.5)  # 1 and 0


def test_null_cosine_is_what_random_directions_show():
    """Monte Carlo over Haar bases: E ||V g||^2 / ||g||^2 = k / n."""
    g = torch.randn(40, generator=torch.Generator().manual_seed(0))
    squares = []
    for seed in range(300):
        q = torch.linalg.qr(torch.randn(40, 10, generator=torch.Generator().manual_seed(seed)))[0]
        squares.append(float((q.T @ g).norm() / g.norm()) ** 2)
    assert sum(squares) / 300 == pytest.approx(null_cosine({"a": torch.zeros(10, 40)}) ** 2, rel=0.05)
