"""AutoAttack's parts against answers by hand, and together never weaker than any of them."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from scipy.optimize import linprog
from torch import Tensor, nn

from initio.networks.attacks import EPSILON, Bounds, answers, fgsm
from initio.networks.autoattack import apgd, autoattack, dlr, fab, square, to_plane

BOX = Bounds()


def network(seed: int = 0, classes: int = 4) -> nn.Module:
    """Steep and bent, so that some samples turn within ε and others do not."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 30), nn.Tanh(), nn.Linear(30, classes)).double().requires_grad_(False)


def steep(seed: int = 0, classes: int = 4) -> nn.Module:
    model = network(seed, classes)
    with torch.no_grad():
        model[0].weight *= 20  # type: ignore[index]
    return model


def samples(model: nn.Module, count: int = 80) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, answers(model, x)


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_dlr_by_hand() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.5, -1.0, 2.0]])
    value = dlr(logits, torch.tensor([0]), torch.tensor([4]))
    assert float(value) == pytest.approx(-(3.0 - 2.0) / (3.0 - (1.0 + 0.5) / 2))
    invariant = dlr(7 * logits + 5, torch.tensor([0]), torch.tensor([4]))
    torch.testing.assert_close(value, invariant)


def test_the_way_to_a_plane_is_the_shortest() -> None:
    """Against linear programming: least r with |d_i| ≤ r, x + d in the box and c + w·d = 0."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, w, c = rng.random(5), rng.normal(size=5), float(rng.normal() / 3)
        found = to_plane(torch.tensor(x)[None], torch.tensor(w)[None], torch.tensor([c], dtype=torch.float64), BOX)[
            0
        ].numpy()
        one = np.ones((5, 1))
        best = linprog(
            [0] * 5 + [1],
            A_ub=np.vstack([np.hstack([np.eye(5), -one]), np.hstack([-np.eye(5), -one])]),
            b_ub=np.zeros(10),
            A_eq=[[*w, 0]],
            b_eq=[-c],
            bounds=[(-a, 1 - a) for a in x] + [(0, None)],
        )
        assert (x + found >= -1e-9).all()
        assert (x + found <= 1 + 1e-9).all()
        if best.success:
            assert c + w @ found == pytest.approx(0, abs=1e-9)
            assert np.abs(found).max() == pytest.approx(best.x[-1], abs=1e-9)


def test_apgd_climbs_as_high_as_a_corner_of_a_linear_network() -> None:
    model = nn.Linear(6, 3).double().requires_grad_(False)
    x = 0.3 + 0.4 * torch.rand(20, 6, dtype=torch.float64)
    y = answers(model, x)
    target = (y + 1) % 3
    rng = torch.Generator().manual_seed(0)

    def lead(logits: Tensor) -> Tensor:
        return logits.gather(1, target[:, None])[:, 0] - logits.gather(1, y[:, None])[:, 0]

    reached: list[Tensor] = []

    def told(logits: Tensor) -> Tensor:
        reached.append(lead(logits).detach())
        return lead(logits)

    apgd(model, x, BOX, told, y, rng)
    corner = lead(model(x)) + EPSILON * (model.weight[target] - model.weight[y]).abs().sum(1)
    torch.testing.assert_close(torch.stack(reached).amax(0), corner, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_it_turns_whatever_its_parts_turn_and_stays_within_bounds(seed: int) -> None:
    model = steep(seed)
    x, y = samples(model)
    found = autoattack(model, x, y, BOX, steps=20, queries=3)
    assert (found - x).abs().max() <= EPSILON + 1e-12
    assert found.min() >= 0
    assert found.max() <= 1
    turned = answers(model, found) != y
    assert turned.any()
    assert not turned.all()
    others = [(y + step) % 4 for step in (1, 2, 3)]
    parts = {
        "apgd": [apgd(model, x, BOX, lambda z: F.cross_entropy(z, y, reduction="none"), y, rng(), 20)],
        "aimed apgd": [apgd(model, x, BOX, partial(dlr, y=y, target=other), y, rng(), 20) for other in others],
        "fab": [fab(model, x, y, other, BOX, 20) for other in others],
        "square": [square(model, x, y, BOX, rng(), 3)],
    }
    for name, changed in parts.items():
        by_part = torch.stack([answers(model, each) != y for each in changed]).any(0)
        assert by_part.any(), name
        assert not (by_part & ~turned).any(), name  # sample by sample
    again = autoattack(model, x, y, BOX, steps=20, queries=3)
    torch.testing.assert_close(found, again, rtol=0, atol=0)


def test_fab_finds_the_nearest_boundary_of_two_classes() -> None:
    model = nn.Linear(6, 2).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.weight.copy_(torch.randn(2, 6, generator=generator))
        model.bias.zero_()
    w = model.weight[0] - model.weight[1]
    x = 0.3 + 0.4 * torch.rand(40, 6, generator=generator, dtype=torch.float64)
    lead = x @ w
    x = x - (0.9 * lead / (w @ w))[:, None] * w  # a tenth of the way off the boundary
    y = answers(model, x)
    nearest = (x @ w).abs() / w.abs().sum()
    found = fab(model, x, y, 1 - y, BOX)
    turned = answers(model, found) != y
    assert (turned == (nearest < EPSILON / 1.05)).float().mean() > 0.95
    distance = (found - x).abs().amax(1)
    assert (distance[turned] <= 1.06 * nearest[turned]).all()


class Stairs(nn.Module):
    """Has no gradient, and turns within ε."""

    def forward(self, x: Tensor) -> Tensor:
        lead = ((x.flatten(1).mean(1) - 0.5) * 1000).round()
        return torch.stack([lead, torch.zeros_like(lead)], dim=1)


def test_square_turns_what_has_no_gradient() -> None:
    model = Stairs()
    x = torch.full((5, 1, 4, 4), 0.505)
    y = answers(model, x)
    assert (answers(model, fgsm(model, x, y)) == y).all()
    turned = answers(model, square(model, x, y, BOX, torch.Generator().manual_seed(0), 200)) != y
    assert turned.all()
    assert (answers(model, autoattack(model, x, y, BOX, steps=2, queries=200)) != y).all()


def test_features_and_two_classes_are_attacked_too() -> None:
    model = steep(classes=2)
    x, y = samples(model, 20)
    assert autoattack(model, x, y, BOX, steps=5, queries=10).shape == x.shape
