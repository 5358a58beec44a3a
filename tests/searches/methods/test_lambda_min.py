from random import Random

import numpy as np
import pytest
import torch

from initio.errors import InputError
from initio.kernels.infinite import ntk
from initio.kernels.infinite.differences import TOLERANCE, advance, gap_bound, moments, start
from initio.searches.methods.lambda_min import (
    OPTIONS,
    Exact,
    decode,
    follow,
    refine,
    stages,
    survivors,
    unit_inputs,
    verdict,
)
from initio.spaces.mlp import ACTIVATIONS, mlp_space


def inputs(n: int, d: int = 6, seed: int = 0) -> torch.Tensor:
    return unit_inputs(np.random.default_rng(seed).standard_normal((n, d)) + 0.5)


def code(digits: list[int]) -> int:
    return int("".join(map(str, digits)))


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_proven_answer_is_that_of_enumeration(depth: int) -> None:
    space, x = mlp_space(depth), inputs(12)
    *_, last = stages(space, x, subset=5, most=10**9)
    exact = Exact(space, x)
    best = max(space.architectures(), key=lambda arch: (exact.value(arch), arch))
    assert last.proven
    assert last.architecture == best
    assert last.lambda_min == pytest.approx(exact.value(best), rel=1e-12)
    if depth == 4:
        assert last.computed < space.count() / 4


def test_bounds_are_above_every_value() -> None:
    """Every architecture of depth 4 whose λ_min reaches a threshold survives both bounds."""
    space, x = mlp_space(4), inputs(10)
    exact = Exact(space, x)
    values = {arch: exact.value(arch) for arch in space.architectures()}
    threshold = float(np.quantile(list(values.values()), 0.8))
    codes, _ = survivors(4, float(exact.closest), threshold)
    kept, bounds = refine(codes, exact.submatrix(max(values, key=values.__getitem__), 4), threshold, 4)
    found = {decode(space, number): bound for number, bound in zip(kept.tolist(), bounds.tolist(), strict=True)}
    for arch, value in values.items():
        if value > threshold and space.skips(arch)[-1]:
            assert found[arch] >= value
        elif value > threshold:  # the last skip is taken by argument
            with_skip = space.architecture(*arch.choices[:-1], 1)
            assert values[with_skip] >= value


@pytest.mark.parametrize("seed", range(12))
def test_differences_agree_with_the_kernel(seed: int) -> None:
    rng = Random(seed)
    digits = [2 * rng.randrange(5), *(rng.randrange(OPTIONS) for _ in range(8))]
    space = mlp_space(10)
    arch = decode(space, code(digits))
    x = inputs(4, seed=seed)
    K = ntk(x, space.activations(arch), space.skips(arch)).ntk
    pairs = follow(start((x @ x.T)[0, 1:]), torch.tensor([digits]))
    assert float(pairs.diagonal) == pytest.approx(float(K[0, 0]), rel=TOLERANCE / 4)
    torch.testing.assert_close(pairs.gap[0], K[0, 0] - K[0, 1:], rtol=TOLERANCE / 4, atol=0)


def test_the_cheap_bound_is_above_every_next_layer() -> None:
    rng = Random(0)
    digits = torch.tensor([[2 * rng.randrange(5), *(rng.randrange(OPTIONS) for _ in range(6))] for _ in range(300)])
    pairs = follow(start(torch.tensor([0.9])), digits)
    bound = gap_bound(pairs, ACTIVATIONS)
    for name in ACTIVATIONS:
        assert bool((advance(pairs, moments(name, pairs), True).gap <= bound * (1 + 1e-9)).all())


def test_values_are_those_of_the_kernel() -> None:
    space, x = mlp_space(5), inputs(9)
    exact = Exact(space, x)
    for seed in range(6):
        arch = space.sample(Random(seed))
        K = ntk(x, space.activations(arch), space.skips(arch)).ntk
        torch.testing.assert_close(exact.kernel(arch), K, rtol=1e-9, atol=1e-12)
        expected = float(torch.linalg.eigvalsh(K)[0])
        assert exact.value(arch) == pytest.approx(max(0.0, expected), rel=1e-6, abs=1e-12)


def test_too_large_a_space_is_not_called_proven() -> None:
    (stage,) = stages(mlp_space(5), inputs(6), subset=4, most=100)
    assert not stage.proven
    assert "not proven optimal: of 5,000 architectures" in verdict(stage)


def test_last_skip_never_hurts() -> None:
    space, x = mlp_space(4), inputs(10)
    exact = Exact(space, x)
    for seed in range(20):
        arch = space.sample(Random(seed))
        with_skip, without = (space.architecture(*arch.choices[:-1], alpha) for alpha in (1, 0))
        assert exact.value(with_skip) >= exact.value(without) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.array([[1.0, 0], [2.0, 0]]), "two inputs point in the same direction"),
        (np.zeros((2, 2)), "at least two inputs, none of them zero"),
        (np.ones((1, 2)), "at least two inputs"),
    ],
)
def test_hopeless_inputs_are_refused(x: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        unit_inputs(x)


def test_as_a_search_of_the_package() -> None:
    from initio.data import load
    from initio.searches import Problem, drive
    from initio.searches.methods.lambda_min import LambdaMin
    from initio.spaces import NB201, NetworkSettings

    heard: list[object] = []
    problem = Problem(mlp_space(3), load("digits"), NetworkSettings(), batch_size=16)
    result = drive(LambdaMin(), problem, seed=0, on_step=heard.append)
    assert tuple(heard) == result.steps
    assert "proven optimal over 50 architectures" in result.why
    assert mlp_space(3).activations(result.best)[0] in ("relu", "leaky_relu")
    with pytest.raises(InputError, match="subset must be at least 2, not 0"):
        LambdaMin(subset=0)
    with pytest.raises(InputError, match="lambda-min does not search nb201: choose mlp"):
        drive(LambdaMin(), Problem(NB201, load("digits")), seed=0)
