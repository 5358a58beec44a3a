"""The tape: a model's tensors come back, and a pass that is for some parameters gives what a pass for all gives."""

import pytest
import torch
from torch import nn

from initio import InputError
from initio.autodiff.parts import Parts
from initio.autodiff.record import record


class Tied(nn.Module):
    """One weight under two names, a batch norm and a convolution of stride 2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.second.weight = self.first.weight
        self.norm, self.down = nn.BatchNorm2d(4), nn.Conv2d(4, 8, 3, stride=2)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = nn.functional.avg_pool2d(x, 3, 1, 1) + self.second(x)
        return self.head(self.down(x).mean((2, 3)))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Tied()


@pytest.fixture
def x():
    return torch.randn(5, 4, 6, 6, generator=torch.Generator().manual_seed(1))


def test_parts_are_what_torch_finds(model):
    parts = Parts(nn.Sequential(model, model.norm, nn.ModuleDict({"a": nn.BatchNorm1d(2, affine=False)})))
    whole = parts.modules[0]
    assert parts.modules == list(whole.modules())
    assert [(n, id(p)) for n, p in parts.parameters.items()] == [(n, id(p)) for n, p in whole.named_parameters()]
    assert [id(b) for b in parts.buffers] == [id(b) for b in whole.buffers()]


def test_tied_tensors_are_replaced_together_and_come_back(model, x):
    before = {name: id(t) for name, t in model.state_dict(keep_vars=True).items()}
    zero = torch.zeros_like(model.first.weight)
    with Parts(model).standing_in({id(model.first.weight): zero}):
        assert model.first.weight is zero
        assert model.second.weight is zero
        expected = torch.func.functional_call(model, {}, (x,))
    out = torch.func.functional_call(model.eval(), {"first.weight": zero}, (x,))
    torch.testing.assert_close(out, expected)
    assert {name: id(t) for name, t in model.state_dict(keep_vars=True).items()} == before


def test_tensors_and_flags_come_back_after_an_error(model):
    weight = model.first.weight
    model.norm.eval()
    with (
        pytest.raises(ZeroDivisionError),
        Parts(model).standing_in({id(weight): torch.zeros_like(weight)}),
    ):
        raise ZeroDivisionError
    assert model.second.weight is weight
    assert {name for name, module in model.named_modules() if not module.training} == {"norm"}


def test_a_compiled_model_is_refused(x):
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        compiled = torch.jit.trace(nn.Conv2d(4, 4, 3), x)
    for model in (compiled, nn.Sequential(compiled, nn.Flatten())):
        with pytest.raises(InputError, match="compiled model"):
            record(model, x)


@pytest.mark.parametrize("batch_norm", ["frozen", "coupled"])
def test_a_pass_for_some_parameters_is_part_of_the_pass_for_all(model, x, batch_norm):
    tape = record(model, x, direction=dict(model.named_parameters()))
    c, dot = torch.randn(2, *tape.f.shape, generator=torch.Generator().manual_seed(2))
    some = ["down.weight", "norm.weight", "first.bias"]
    whole = tape.gradient(c, batch_norm=batch_norm)
    part = tape.gradient(c, batch_norm=batch_norm, names=some)
    assert list(part) == some
    assert all(torch.equal(part[n], whole[n]) for n in some)
    for all_of_it, some_of_it in zip(
        tape.dual_gradient(c, dot, batch_norm=batch_norm),
        tape.dual_gradient(c, dot, batch_norm=batch_norm, names=some),
        strict=True,
    ):
        assert list(some_of_it) == some
        assert all(torch.equal(some_of_it[n], all_of_it[n]) for n in some)


def test_the_input_s_gradient_is_autograd_s(model, x):
    tape = record(model, x)
    c = torch.randn(tape.f.shape, generator=torch.Generator().manual_seed(2))
    x = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(x), x, c)
    torch.testing.assert_close(tape.input_gradient(c), expected, rtol=1e-4, atol=1e-6)


def test_a_visit_for_some_parameters_shows_their_layers(model, x):
    tape = record(model, x)
    seen = {}

    def visit(layer, x, delta, xt, dt):
        seen[layer.weight] = delta

    tape.visit(torch.ones_like(tape.f), visit, "frozen", {"first.weight"})
    some = dict(seen)
    seen.clear()
    tape.visit(torch.ones_like(tape.f), visit, "frozen")
    assert "first.weight" in some
    assert "norm.weight" not in some  # its sums are left out
    assert "norm.weight" in seen
    assert torch.equal(some["first.weight"], seen["first.weight"])
