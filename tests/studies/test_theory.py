"""Both sides of each theorem, against formulas written out by hand."""

import numpy as np
import pytest
import torch

from initio.data import noise
from initio.errors import InputError
from initio.spaces import NB201, NetworkSettings
from studies.theory import (
    LinearSum,
    linear_kernel,
    metric_constants,
    orthonormal,
    trace_of_data,
    wide_and_deep,
)


def test_the_wide_network_has_a_multiple_of_the_identity_and_the_deep_one_only_in_the_mean() -> None:
    found = wide_and_deep(n=6, layers=2, m=5, draws=500)
    assert found.wide_error < 1e-10
    assert found.wide_kappa == pytest.approx(1, abs=1e-10)
    assert min(found.deep_kappas) > 1
    assert found.deep_error < 5 * found.deep_spread  # converges to the identity
    assert found.deep_spread < 0.1


def test_the_deep_kernel_is_that_of_the_chain_rule() -> None:
    """Θ'(x, x') = Σ_i ‖1ᵀ W(L)···W(i+1)‖² ⟨W(i−1)···W(1) x, W(i−1)···W(1) x'⟩, from (48) of HNAS."""
    n, layers, m = 5, 3, 4
    weights = [layer.weight.detach().numpy() for layer in LinearSum(n, layers, deep=True, seed=7).layers]
    X = orthonormal(n, m).numpy().T
    expected = np.zeros((m, m))
    for i in range(layers):
        after, before = np.ones(n), X
        for W in weights[:i]:
            before = W @ before
        for W in reversed(weights[i + 1 :]):
            after = after @ W
        expected += after @ after * (before.T @ before)
    assert linear_kernel(n, layers, m, deep=True, seed=7).gram == pytest.approx(expected, rel=1e-12)


def test_inputs_are_orthonormal_or_refused() -> None:
    X = orthonormal(6, 4)
    assert torch.allclose(X @ X.T, torch.eye(4, dtype=torch.float64))
    with pytest.raises(InputError, match="cannot be orthonormal"):
        orthonormal(3, 4)


def test_every_metric_is_bounded_by_the_trace() -> None:
    """[HNAS Theorem 1]; the constants are reached to a part, so that a wrong one would be noticed."""
    batch, size = noise((3, 8, 8), classes=4, batch_size=8), NetworkSettings(4, 1, 4, (3, 8, 8), norm="none")
    found = []
    for number, choices in enumerate([(3, 1, 2, 3, 4, 1), (2, 3, 3, 1, 0, 3), (1, 1, 3, 2, 3, 4)]):
        one = metric_constants(NB201.build(NB201.architecture(*choices), size, seed=number), batch)
        assert 0 < one.grad <= one.bound
        assert 0 < one.snip <= one.bound
        assert 0 < one.grasp <= one.bound
        found.append(one)
    assert max(one.grad for one in found) > 0.1


def test_the_trace_of_other_data_differs_by_no_more_than_proposition_2_allows() -> None:
    for share in (0.25, 0.5, 1.0):
        found = trace_of_data(share)
        assert found.difference <= found.bound
    assert trace_of_data(1.0).difference > 0.05 * trace_of_data(1.0).bound
    assert trace_of_data(1.0, n0=64).bound == trace_of_data(1.0, n0=32).bound / 2
