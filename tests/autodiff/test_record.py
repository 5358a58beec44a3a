"""The tape: a model's tensors come back, and a pass that is for some parameters gives what a pass for all gives."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from initio import InputError
from initio.autodiff.parts import Parts
from initio.autodiff.record import Recall, record, watch


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


# --- a direction of one's own ----------------------------------------------------------------------------------------


class Curved(nn.Module):
    """Not piecewise linear: δ's own second derivatives count."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.sigmoid(self.norm(self.first(x)))
        return self.head((watch(x) * x).mean((2, 3)))


class Bent(nn.Module):
    """Piecewise linear, with maxima and 1x1 kernels, for which a second pass has ways of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = watch(nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 3, 2, 1))
        return self.head(self.second(torch.relu(x) + x).mean((2, 3)))


def cross_entropy(f, y):
    p = f.detach().softmax(1)
    return (p - nn.functional.one_hot(y, p.shape[1])) / len(y)


def cross_entropy_dot(f, f_dot):
    p, f_dot = f.detach().softmax(1), f_dot.detach()
    return p * (f_dot - (p * f_dot).sum(1, keepdim=True)) / len(f)


def stock(model, x, y, direction):
    """(g, Hv) by autograd's double backward."""
    names, leaves = zip(*model.named_parameters(), strict=True)
    g = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), leaves, create_graph=True)
    S = sum((t * direction[n]).sum() for n, t in zip(names, g, strict=True) if n in direction)
    return dict(zip(names, g, strict=True)), dict(zip(names, torch.autograd.grad(S, leaves), strict=True))


@pytest.fixture(params=[Tied, Curved, Bent])
def case(request, x):
    torch.manual_seed(0)
    return request.param().double(), x.double(), torch.tensor([0, 1, 2, 0, 1])


@pytest.mark.parametrize("some", [False, True])
def test_a_dual_pass_gives_g_and_hv_in_any_direction(case, some):
    model, x, y = case
    direction = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    if some:
        direction.pop("norm.weight")
        direction.pop("head.bias")
    expected_g, expected_Hv = stock(model, x, y, direction)
    tape = record(model, x, direction=direction, dtype=torch.float64)
    g, Hv = tape.dual_gradient(cross_entropy(tape.f, y), cross_entropy_dot(tape.f, tape.ft))
    assert g.keys() == Hv.keys() == direction.keys()
    for name in direction:
        torch.testing.assert_close(g[name], expected_g[name].detach(), msg=name)
        torch.testing.assert_close(Hv[name], expected_Hv[name], msg=name)


def test_the_direction_theta_is_one_of_many(case):
    """The parameters themselves take the shorter way, copies of them the longer one."""
    model, x, y = case
    own = dict(model.named_parameters())
    copies = {name: p.detach().clone() for name, p in own.items()}
    answers = []
    for direction in (own, copies):
        tape = record(model, x, direction=direction, dtype=torch.float64)
        answers.append(tape.dual_gradient(cross_entropy(tape.f, y), cross_entropy_dot(tape.f, tape.ft))[1])
    for name in own:
        torch.testing.assert_close(*(Hv[name] for Hv in answers), msg=name)


def test_a_second_pass_along_g_needs_the_first_one_s_values_only(case):
    """With a recall or without, and whether or not the network is piecewise linear: the same (g, Hg), the same δ̇."""
    model, x, y = case
    recall = Recall()
    first = record(model, x, dtype=torch.float64, recall=recall)
    delta = cross_entropy(first.f, y)
    direction = first.gradient(delta)
    found = []
    for memory in (recall, None):
        tape = record(model, x, dtype=torch.float64, direction=direction, recall=memory)
        delta_dot = cross_entropy_dot(tape.f, tape.ft)
        watched = tape.watched_gradients(delta, delta_dot, [w.value for w in tape.watched.values()])
        found.append((tape.dual_gradient(delta, delta_dot), watched))
    (short, short_watched), (long, long_watched) = found
    for name in direction:
        torch.testing.assert_close(short[0][name], direction[name])
        torch.testing.assert_close(short[1][name], long[1][name], msg=name)
    for pair, other in zip(short_watched, long_watched, strict=True):
        torch.testing.assert_close(pair, other)


class Operations(TorchDispatchMode):
    """Names of what torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_a_second_pass_looks_for_no_maximum_again(x):
    model, recall, found = Bent(), Recall(), []
    for direction in (None, dict(model.named_parameters())):
        with Operations() as operations:
            record(model, x, direction=direction, recall=recall)
        found.append(operations.names.count("max_pool2d_with_indices"))
    assert found == [1, 0]


def test_watching_changes_nothing_where_nothing_records(x):
    assert watch(x) is x


# --- a model of several threads, and arithmetic of fewer digits ------------------------------------------------------


def test_threads_that_record_the_same_module_leave_it_as_it_was(model, x):
    before = {name: id(t) for name, t in model.state_dict(keep_vars=True).items()}
    expected = record(model, x).gradient(torch.ones(5, 3))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: record(model, x).gradient(torch.ones(5, 3)), range(24)))
    assert {name: id(t) for name, t in model.state_dict(keep_vars=True).items()} == before
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
    assert all(module.training for module in model.modules())
    for answer in answers:
        for name, g in expected.items():
            torch.testing.assert_close(answer[name], g, msg=name)


def test_autocast_is_switched_off_inside(model, x):
    expected = record(model, x).gradient(torch.ones(5, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tape = record(model, x)
        got = tape.gradient(torch.ones(5, 3))
    assert tape.f.dtype == torch.float32
    assert all(torch.equal(got[name], expected[name]) for name in expected)
