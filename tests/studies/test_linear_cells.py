"""Theorems 4.2 to 4.4 of the thesis: where they hold, and counterexamples where they do not."""

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian

from studies.linear_cells import chain, descent, gradient_variance, gradients, lipschitz


def weights(n: int, size: int, seed: int, scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal((size, size)) / np.sqrt(size) for _ in range(n)]


@pytest.mark.parametrize("i", [0, 1, 2])
def test_gradients_of_the_narrowest_cell_are_autograd_s(i: int) -> None:
    Ws, rng = weights(3, 4, 0), np.random.default_rng(1)
    x, slopes = rng.standard_normal(4), rng.standard_normal((3, 4))
    leaves = [torch.tensor(W, requires_grad=True) for W in Ws]
    y, f = torch.tensor(x), torch.zeros((), dtype=torch.float64)
    for W, slope in zip(leaves, slopes, strict=True):
        y = W @ y
        f = f + torch.tensor(slope) @ y  # linear in z
    f.backward()  # type: ignore[no-untyped-call]
    assert leaves[i].grad is not None
    assert gradients(Ws, x, slopes, i, narrow=True) == pytest.approx(leaves[i].grad.numpy())


@pytest.mark.parametrize("i", [0, 1, 2])
def test_the_lipschitz_constant_is_the_largest_eigenvalue_of_the_block_s_hessian(i: int) -> None:
    Ws, x = weights(3, 3, 2), np.random.default_rng(3).standard_normal(3)

    def f(block: torch.Tensor) -> torch.Tensor:
        y, total = torch.tensor(x), torch.zeros((), dtype=torch.float64)
        for k, W in enumerate(Ws):
            y = (block.view(3, 3) if k == i else torch.tensor(W)) @ y
            total = total + y @ y / 2
        return total

    H = hessian(f, torch.tensor(Ws[i]).flatten()).numpy()  # type: ignore[no-untyped-call]
    assert lipschitz(Ws, x)[i].constant == pytest.approx(np.linalg.eigvalsh(H).max())


def test_theorem_4_3_is_too_small_for_an_objective_that_is_not_linear() -> None:
    """The first block of any cell of several nodes: L(1) is printed, and every node behind it adds to that."""
    for seed in range(20):
        first, *_ = lipschitz(weights(3, 4, seed), np.random.default_rng(seed).standard_normal(4))
        assert first.constant > first.printed
        assert first.constant <= first.holds * (1 + 1e-12)


def test_what_is_put_in_its_place_holds_and_can_be_reached() -> None:
    for seed in range(20):
        for found in lipschitz(weights(4, 5, seed, scale=1.5), np.random.default_rng(seed).standard_normal(5)):
            assert found.constant <= found.holds * (1 + 1e-12)
    for found in lipschitz([2 * np.eye(3)] * 3, np.ones(3)):
        assert found.constant == pytest.approx(found.holds)


def samples(n: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((30, size)), rng.standard_normal((30, n, size))


def test_theorem_4_4_holds_for_linear_objectives_also_with_fewer_terms() -> None:
    for seed in range(10):
        for found in gradient_variance(weights(4, 5, seed, scale=1.3), *samples(4, 5, seed)):
            assert found.constant <= found.holds <= found.printed


def test_theorem_4_4_fails_for_a_quadratic_objective() -> None:
    """f = Σ ‖y(k)‖²/2, whose slope is y(k) in the widest cell and ŷ(k) in the narrowest."""
    Ws, (xs, _) = [2 * np.eye(3)] * 3, samples(3, 3, 0)
    wide = np.stack([[W @ x for W in Ws] for x in xs])
    narrow = np.stack([[chain(Ws[: k + 1], 3) @ x for k in range(3)] for x in xs])
    first, *_ = gradient_variance(Ws, xs, wide, narrow)
    assert first.constant > first.printed


def test_the_largest_eigenvalue_will_not_do() -> None:
    """A nilpotent matrix has no eigenvalue but zero, and a gradient all the same."""
    W = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert abs(np.linalg.eigvals(W)).max() == 0
    _, second = gradient_variance([W, np.eye(2)], *samples(2, 2, 1))
    assert second.constant > 0
    assert second.constant <= second.holds


def test_theorem_4_2_bounds_the_gradients_of_sgd() -> None:
    curvatures = np.array([4.0, 1.0, 0.5])
    for rate, noise in ((0.05, 0.5), (0.2, 1.0), (0.2, 0.0)):
        found = descent(curvatures, noise, rate, steps=200)
        assert 0 < found.gradient <= found.bound
    smooth, rough = (descent(scale * np.ones(3), 1.0, 0.1, 100) for scale in (1.0, 4.0))
    assert smooth.bound < rough.bound
