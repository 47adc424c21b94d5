"""The decomposition of a weight, and its cache."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from projected_grpo.adapters import antipasto
from projected_grpo.adapters.antipasto import AntiPaSTOLinear, cached_svd, canonical_svd, gram_svd, weight_key


@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (60, 60)])
def test_the_svd_of_a_cpu_and_that_of_a_gpu_reconstruct_the_weight_with_signs_that_are_fixed(shape, monkeypatch):
    """By LAPACK; and by way of the Gram matrix, where vectors, values and signs are LAPACK's in float64."""
    w = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    cpu, expected = canonical_svd(w), canonical_svd(w.double())
    monkeypatch.setattr(antipasto, "by_gram", lambda _: True)
    monkeypatch.setattr(torch.linalg, "svd", None)
    gpu = canonical_svd(w)
    for u, s, vh in (cpu, gpu):
        torch.testing.assert_close((u * s) @ vh, w, rtol=1e-4, atol=1e-4)
        assert (u.gather(0, u.abs().argmax(0, keepdim=True)) > 0).all()
    for ours, theirs in zip(gpu, expected, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fault", ["nearly the same row twice", "a row of zeros"])
def test_a_weight_that_is_too_ill_conditioned_for_the_gram_matrix_is_decomposed_itself(fault, monkeypatch):
    """The sneaky fail: right singular vectors that are no longer orthogonal."""
    w = torch.randn(30, 50, generator=torch.Generator().manual_seed(0))
    w[-1] = 0 if fault == "a row of zeros" else w[0] + 1e-6 * w[1]
    assert gram_svd(w) is None
    monkeypatch.setattr(antipasto, "by_gram", lambda _: True)
    u, s, vh = canonical_svd(w)
    torch.testing.assert_close(vh @ vh.T, torch.eye(30), rtol=0, atol=1e-5)
    torch.testing.assert_close((u * s) @ vh, w, rtol=0, atol=1e-5)


def test_svd_cache_is_keyed_by_content(tmp_path):
    w = torch.randn(4, 6)
    first = cached_svd(w, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    warm = cached_svd(w, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(first, warm, strict=True))
    # A product of another layout, or of numbers that begin elsewhere in a cache line, rounds otherwise.
    assert [t.stride() for t in first] == [t.stride() for t in warm]
    assert {t.data_ptr() % 64 for t in (*first, *warm)} == {0}
    w[0, 0] += 1e-3
    cached_svd(w, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert weight_key(w) != weight_key(w.bfloat16())
    assert weight_key(torch.zeros(2, 3)) != weight_key(torch.zeros(3, 2))


def test_a_cached_svd_has_the_type_of_its_weight(tmp_path):
    """Half the file for bfloat16, and the layer holds the same bits from a cold cache, a warm one and none."""
    linear = nn.Linear(6, 4, bias=False, dtype=torch.bfloat16)
    svds = [cached_svd(linear.weight, tmp_path) for _ in range(2)]  # cold, then warm
    cold, warm, none = (AntiPaSTOLinear("w", linear, svd) for svd in (*svds, canonical_svd(linear.weight)))
    for layer in (cold, warm):
        assert torch.equal(layer.U, none.U)
        assert torch.equal(layer.Vh, none.Vh)
    (path,) = tmp_path.iterdir()
    assert load_file(path)["U"].dtype == torch.bfloat16
