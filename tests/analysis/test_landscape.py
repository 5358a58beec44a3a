"""Loss, gradient variance and curvature against explicit derivatives; numbers of surfaces whose shape is known."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from initio.analysis.landscape import (
    Hessian,
    barrier,
    curvature,
    filter_direction,
    hutchinson,
    lanczos,
    measure_point,
    moved,
    surface_numbers,
    weights_of,
)
from initio.data import noise
from initio.spaces import NB201, NetworkSettings

CELL = "|nor_conv_1x1~0|+|skip_connect~0|avg_pool_3x3~1|+|nor_conv_3x3~0|none~1|skip_connect~2|"


def network() -> tuple[nn.Module, Tensor, Tensor]:
    batch = noise((1, 6, 6), classes=3, batch_size=7, seed=2)
    size = NetworkSettings(channels=2, cells=1, classes=3, shape=(1, 6, 6))
    model = NB201.build(NB201.parse(CELL), size, seed=1).double()
    return model, torch.tensor(batch.x).double(), torch.tensor(batch.y)


def explicit(model: nn.Module, x: Tensor, y: Tensor) -> np.ndarray:
    """The Hessian, column by column, by torch's double backward; batch norm with the batch's own statistics."""
    model.train()
    names = [name for name, _ in model.named_parameters()]
    sizes = [p.numel() for p in model.parameters()]
    shapes = [p.shape for p in model.parameters()]

    def loss(flat: Tensor) -> Tensor:
        parts = dict(zip(names, (part.view(s) for part, s in zip(flat.split(sizes), shapes, strict=True)), strict=True))
        return nn.functional.cross_entropy(functional_call(model, parts, (x,)), y)

    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    return torch.autograd.functional.hessian(loss, flat).numpy()  # type: ignore[no-untyped-call]


def product(model: nn.Module, x: Tensor, y: Tensor, v: np.ndarray) -> np.ndarray:
    """Hv by torch's double backward."""
    weights = list(model.train().parameters())
    g = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), weights, create_graph=True)
    gv = torch.cat([part.flatten() for part in g]) @ torch.from_numpy(v)
    return torch.cat([part.flatten() for part in torch.autograd.grad(gv, weights)]).numpy()


def test_products_with_the_hessian_of_a_cell() -> None:
    model, x, y = network()
    hessian = Hessian(model, x, y, dtype=torch.float64)
    v = np.random.default_rng(0).standard_normal(hessian.size)
    exact = product(model, x, y, v)
    assert hessian @ v == pytest.approx(exact, rel=1e-8, abs=1e-10)
    single = Hessian(model.float(), x.float(), y) @ v
    assert single == pytest.approx(exact, rel=1e-2, abs=1e-3 * abs(exact).max())


def test_eigenvalues_and_trace_against_the_whole_hessian() -> None:
    """Of a network with batch norm that is small enough for all columns."""
    _, x, y = network()
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    model = nn.Sequential(*layers).double()
    H = explicit(model, x, y)
    hessian = Hessian(model, x, y, dtype=torch.float64)
    found = curvature(hessian, top=2, steps=40, probes=100)
    exact = np.linalg.eigvalsh(H)
    exact = exact[np.argsort(-abs(exact))]
    assert found.eigenvalues == pytest.approx(exact[:2], rel=1e-6)
    assert max(found.residuals) < 1e-4 * abs(exact[0])
    assert found.trace == pytest.approx(np.trace(H), abs=4 * found.trace_error)


def test_hutchinson_is_exact_for_a_diagonal_and_lanczos_for_few_eigenvalues() -> None:
    assert hutchinson(lambda v: 3 * v, 5, 4).tolist() == [15.0] * 4
    values, errors = lanczos(lambda v: 2 * v, 6, steps=6)
    assert values == pytest.approx([2.0])
    assert errors == pytest.approx([0.0], abs=1e-12)


def test_loss_and_gradient_variance_sample_by_sample() -> None:
    """Without batch norm every sample has its own gradient."""
    batch = noise((1, 6, 6), classes=3, batch_size=7, seed=2)
    x, y = torch.tensor(batch.x).double(), torch.tensor(batch.y)
    size = NetworkSettings(channels=2, cells=1, classes=3, shape=(1, 6, 6), norm="none")
    model = NB201.build(NB201.parse(CELL), size, seed=1).double()
    rows = []
    for i in range(len(x)):
        loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
    gradients = torch.stack(rows)
    variance = float((gradients - gradients.mean(0)).pow(2).sum(1).mean())
    found = measure_point(model, x, y, dtype=torch.float64)
    assert found.loss == pytest.approx(nn.functional.cross_entropy(model(x), y).item(), rel=1e-10)
    assert found.variance == pytest.approx(variance, rel=1e-8)


def test_directions_are_seeded_and_have_the_norms_of_filters() -> None:
    model, x, y = network()
    w = weights_of(model)
    d = filter_direction(w, seed=3)
    for name, weight in w.items():
        if weight.ndim >= 2:
            assert d[name].flatten(1).norm(dim=1) == pytest.approx(weight.flatten(1).norm(dim=1))
            assert torch.equal(d[name], filter_direction(w, seed=3)[name])
            assert not torch.equal(d[name], filter_direction(w, seed=4)[name])
        else:
            assert not d[name].any()
    there = moved(model, w, (0.5, d), (-0.5, d))
    assert all(torch.allclose(p, w[name]) for name, p in there.named_parameters())
    assert measure_point(moved(model, w, (0.7, d)), x, y) != measure_point(model, x, y)
    assert torch.equal(next(model.parameters()), next(iter(w.values())))  # the model itself has not moved


def test_a_loss_that_is_not_finite_has_no_value() -> None:
    model, x, y = network()
    w = weights_of(model)
    nowhere = {name: torch.full_like(p, torch.nan) for name, p in w.items()}
    assert measure_point(moved(model, w, (1.0, nowhere)), x, y).loss is None


def test_numbers_of_a_bowl() -> None:
    at = np.linspace(-1, 1, 21)
    a, b = np.meshgrid(at, at, indexing="ij")
    found = surface_numbers(at, 3 + a**2 + b**2, 1 + 0 * a)
    assert found.center == 3
    assert found.convex_radius is None
    assert found.sharpness == pytest.approx(0.25, abs=0.02)
    assert found.worst == pytest.approx(0.25, abs=0.06)
    assert (found.variance, found.variance_around, found.undefined) == (1, 1, 0)


def test_the_convex_region_ends_where_the_surface_bends_down() -> None:
    """cos bends down beyond a quarter of its period."""
    at = np.linspace(-1, 1, 41)
    a, _ = np.meshgrid(at, at, indexing="ij")
    found = surface_numbers(at, -np.cos(np.pi * a), np.full_like(a, np.nan))
    assert found.convex_radius == pytest.approx(0.5, abs=0.06)
    assert found.variance is None


def test_the_barrier_between_two_solutions() -> None:
    t = np.linspace(-0.5, 1.5, 9)
    assert barrier(t, 1 + 0 * t) == 0
    assert barrier(t, np.where((t > 0) & (t < 1), np.nan, 1.0)) is None
