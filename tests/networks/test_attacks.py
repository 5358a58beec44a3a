"""Attacks against answers by hand: where a linear network turns, how far, and that PGD is never weaker than FGSM."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from initio.networks.attacks import ATTACKS, EPSILON, RATE, STEP, STEPS, Bounds, answers, cw, fgsm, gradient, pgd


def linear(seed: int = 0) -> nn.Linear:
    model = nn.Linear(6, 3).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in model.parameters():
            part.copy_(torch.randn(part.shape, generator=generator))
    return model.requires_grad_(False)


def bent(seed: int) -> nn.Module:
    """Not linear, so one step is not the best one."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)).double().requires_grad_(False)


def samples(model: nn.Module, count: int = 200) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, answers(model, x)


@pytest.mark.parametrize("name", ["fgsm", "pgd", "cw"])
def test_changes_stay_within_bounds(name: str) -> None:
    model = linear()
    x, y = samples(model)
    changed = ATTACKS[name](model, x, y, Bounds())
    assert changed.shape == x.shape
    assert changed.min() >= 0
    assert changed.max() <= 1
    if name != "cw":
        assert (changed - x).abs().max() <= EPSILON + 1e-12


def test_what_is_little_depends_on_the_bounds() -> None:
    model = linear()
    x, y = samples(model)
    scaled = nn.Sequential(Scaled(), model)
    for attack in (fgsm, pgd):
        torch.testing.assert_close(attack(scaled, 16 * x, y, Bounds(0, 16)), 16 * attack(model, x, y))


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 16


def test_fgsm_by_hand() -> None:
    model = linear()
    x, y = samples(model, 4)
    p = model(x).softmax(1)
    by_hand = (p - torch.eye(3, dtype=torch.float64)[y]) @ model.weight
    torch.testing.assert_close(gradient(model, x, y), by_hand)
    torch.testing.assert_close(fgsm(model, x, y), (x + 0.01 * by_hand.sign()).clamp(0, 1))


@pytest.mark.parametrize("seed", range(4))
def test_pgd_turns_whatever_fgsm_turns(seed: int) -> None:
    model = bent(seed)
    with torch.no_grad():
        model[0].weight *= 20  # type: ignore[index]  # many turn within so little
    x, y = samples(model)
    by_fgsm, by_pgd = (answers(model, attack(model, x, y)) != y for attack in (fgsm, pgd))
    assert by_fgsm.any()
    assert not (by_fgsm & ~by_pgd).any()


def test_pgd_is_a_loop_written_out() -> None:
    model = bent(0)
    x, y = samples(model, 5)
    expected = []
    for one, label in zip(x, y, strict=True):
        at = fgsm(model, one[None], label[None])
        for _ in range(40):
            if int(model(at).argmax()) != int(label):
                break
            at = at + 0.008 * gradient(model, at, label[None]).sign()
            at = torch.minimum(torch.maximum(at, one - 0.01), one + 0.01).clamp(0, 1)
        expected.append(at[0])
    torch.testing.assert_close(pgd(model, x, y), torch.stack(expected))


def test_cw_finds_nearly_the_nearest_boundary() -> None:
    """Of two classes of a linear network: at the distance |w x + b| / ‖w‖."""
    model = nn.Linear(6, 2).double().requires_grad_(False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -1, 1, -1, 1, -1], [-1, 1, -1, 1, -1, 1]]))
        model.bias.copy_(torch.tensor([0.3, -0.3]))
    x = 0.4 + 0.2 * torch.rand(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = answers(model, x)
    changed = cw(model, x, y)
    turned = answers(model, changed) != y
    assert turned.all()
    logits = model(x)
    nearest = (logits[:, 0] - logits[:, 1]).abs() / (model.weight[0] - model.weight[1]).norm()
    distance = (changed - x).norm(dim=1)
    assert (distance >= nearest - 1e-9).all()
    assert (distance <= 1.25 * nearest + 0.02).all()


@pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")  # foolbox's own
def test_a_library_finds_the_same() -> None:
    """foolbox: the same FGSM to the bit of a float, the same samples by PGD, and no nearer ones by CW."""
    foolbox: Any = import_module("foolbox")
    model = bent(0).float().eval()
    with torch.no_grad():
        model[0].weight *= 20  # type: ignore[index]
    x = samples(model.double(), 100)[0].float()
    y = answers(model.float(), x)
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")

    def theirs(attack: Any, epsilon: float | None) -> Tensor:
        changed: Tensor = attack(wrapped, x, y, epsilons=epsilon)[1]
        return changed

    torch.testing.assert_close(fgsm(model, x, y), theirs(foolbox.attacks.LinfFastGradientAttack(), EPSILON))
    by_pgd = theirs(foolbox.attacks.LinfPGD(abs_stepsize=STEP, steps=STEPS, random_start=False), EPSILON)
    assert (answers(model, by_pgd) != y).any()
    assert not ((answers(model, by_pgd) != y) & (answers(model, pgd(model, x, y)) == y)).any()
    by_cw = theirs(foolbox.attacks.L2CarliniWagnerAttack(3, 50, stepsize=RATE, initial_const=0.1), None)
    turned = (answers(model, by_cw) != y) & (by_cw != 0).any(1)  # zeros are what it has not found
    ours = cw(model, x, y)
    assert turned.sum() > 50
    assert (answers(model, ours) != y)[turned].all()
    assert (ours - x)[turned].norm(dim=1).mean() <= 1.05 * (by_cw - x)[turned].norm(dim=1).mean()


def test_cw_tries_the_largest_c_on_what_was_never_turned() -> None:
    """A slope w so flat that c must be 2 · distance / ‖w‖ = 5 to pay for the way, more than two bisections reach."""
    model = nn.Linear(6, 2).double().requires_grad_(False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0] * 6, [0.0] * 6]) / 50)
        model.bias.copy_(torch.tensor([-0.054, 0.0]))
    x = torch.full((1, 6), 0.5, dtype=torch.float64)
    y = answers(model, x)
    assert answers(model, cw(model, x, y)) != y


@pytest.mark.parametrize("name", ["fgsm", "pgd", "cw"])
def test_nothing_can_be_done_without_a_gradient(name: str) -> None:
    class Steps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([(x.sum(1) * 4).round(), torch.zeros(len(x), dtype=x.dtype)], dim=1)

    model = Steps()
    x, y = samples(model, 6)
    assert not gradient(model, x, y).any()
    assert (answers(model, ATTACKS[name](model, x, y, Bounds())) == y).all()
