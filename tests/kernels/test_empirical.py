import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from initio.autodiff.record import record
from initio.kernels.empirical import ntk
from initio.metrics import Options, evaluate
from initio.records import Batch
from initio.spaces import NetworkSettings, get_space
from tests import reference

SPACES = ["nb201", "nb101", "darts"]


def network(name, norm, seed=0, channels=4, side=8):
    space = get_space(name)
    settings = NetworkSettings(
        channels=channels, cells=3 if name == "darts" else 1, shape=(3, side, side), norm=norm, init="torch"
    )
    return space.build(space.sample(random.Random(seed)), settings, seed=seed)


def data(m=5, side=8, classes=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(m, 3, side, side, generator=generator), torch.randint(0, classes, (m,), generator=generator)


def close(a, b, tolerance=1e-8):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


class Oddities(nn.Module):
    """Layers the spaces do not have: grouped, transposed, shared twice, layer and group norm, a bare parameter."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, groups=1)
        self.grouped = nn.Conv2d(8, 8, 3, padding="same", groups=4, dilation=2)
        self.group_norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.scale = nn.Parameter(torch.randn(4, 1, 1))
        self.tokens = nn.Linear(4, 4)
        self.layer_norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        x = torch.relu(self.grouped(torch.relu(self.conv(x))))
        x = self.group_norm(self.grouped(x))
        x = self.up(x) * self.scale
        x = x.flatten(2).transpose(1, 2)
        x = self.layer_norm(self.tokens(x)) + nn.functional.gelu(self.tokens(x))
        return self.head(x.mean(1))


def oddities():
    torch.manual_seed(0)
    return Oddities()


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("norm", ["affine", "none"])
@pytest.mark.parametrize("batch_norm", ["frozen", "coupled", "hooked"])
def test_every_convention_equals_its_oracle(name, norm, batch_norm):
    model, (x, y) = network(name, norm), data()
    fast = ntk(model, x, y, batch_norm=batch_norm, dtype=torch.float64)
    close(fast.gram, reference.kernel(model, x, y, "label", batch_norm))
    assert fast.note == ""


@pytest.mark.parametrize("reduction", ["label", "sum", "all"])
@pytest.mark.parametrize("parameterisation", ["standard", "ntk"])
@pytest.mark.parametrize("which", ["all", "weights"])
def test_every_reduction_and_parameterisation_equals_its_oracle(reduction, parameterisation, which):
    model, (x, y) = network("nb201", "affine"), data()
    fast = ntk(
        model, x, y, reduction=reduction, parameterisation=parameterisation, parameters=which, dtype=torch.float64
    )
    close(fast.gram, reference.kernel(model, x, y, reduction, "frozen", parameterisation, which))


def test_layers_the_fast_path_does_not_know_are_right_and_named():
    model, (x, y) = oddities(), data()
    fast = ntk(model, x, y, dtype=torch.float64)
    close(fast.gram, reference.kernel(model, x, y))
    assert "conv_transpose2d" in fast.note
    assert "one backward pass for each sample" in fast.note


def test_without_batch_norm_frozen_and_coupled_agree():
    model, (x, y) = network("nb201", "none"), data()
    frozen, coupled = (ntk(model, x, y, batch_norm=b, dtype=torch.float64).gram for b in ("frozen", "coupled"))
    close(frozen, coupled)
    weights = ntk(model, x, y, batch_norm="frozen", parameters="weights", dtype=torch.float64).gram
    close(ntk(model, x, y, batch_norm="hooked", dtype=torch.float64).gram, weights)


def test_with_batch_norm_the_conventions_differ():
    model, (x, y) = network("nb201", "affine"), data()
    kernels = [ntk(model, x, y, batch_norm=b, dtype=torch.float64).gram for b in ("frozen", "coupled", "hooked")]
    assert not np.allclose(kernels[0], kernels[1])
    assert not np.allclose(kernels[1], kernels[2])


@pytest.mark.parametrize("batch_norm", ["frozen", "coupled"])
def test_the_full_kernel_holds_all_reductions(batch_norm):
    model, (x, y) = network("nb201", "affine"), data(m=3)
    full = ntk(model, x, full=True, batch_norm=batch_norm, dtype=torch.float64).gram
    if batch_norm == "frozen":
        close(full, reference.full_kernel(model, x))
    blocks = full.reshape(3, 10, 3, 10)
    options = {"batch_norm": batch_norm, "dtype": torch.float64}
    close(np.einsum("ikjk->ij", blocks), ntk(model, x, y, reduction="all", **options).gram)
    close(blocks.sum((1, 3)), ntk(model, x, y, reduction="sum", **options).gram)
    close(blocks[np.arange(3)[:, None], y[:, None], np.arange(3), y], ntk(model, x, y, **options).gram)


def test_scaling_the_output_by_a_scales_the_kernel_by_a_squared():
    model, (x, y) = network("nb101", "affine"), data()

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return 3 * self.inner(x)

    close(ntk(Scaled(), x, y, dtype=torch.float64).gram, 9 * ntk(model, x, y, dtype=torch.float64).gram)


def test_permuting_the_batch_permutes_the_kernel():
    model, (x, y) = network("darts", "affine"), data()
    order = torch.tensor([3, 0, 4, 1, 2])
    permuted = ntk(model, x[order], y[order], dtype=torch.float64).gram
    close(permuted, ntk(model, x, y, dtype=torch.float64).gram[order][:, order])


def test_the_smallest_chunks_give_the_same_kernel():
    for model in (network("nb201", "affine"), oddities()):
        x, y = data()
        whole = ntk(model, x, y, dtype=torch.float64).gram
        close(ntk(model, x, y, dtype=torch.float64, chunk=1).gram, whole)


def test_float32_is_near_float64():
    x, y = data(m=16, side=16)
    model = network("nb201", "affine", channels=8, side=16)
    single, double = (ntk(model, x, y, dtype=d) for d in (torch.float32, torch.float64))
    assert single.trace == pytest.approx(double.trace, rel=1e-4)
    assert single.spectrum.kappa == pytest.approx(double.spectrum.kappa, rel=1e-3)


def test_recording_leaves_no_trace_in_the_model():
    model, (x, _) = network("nb201", "affine"), data()
    model.train()
    next(model.modules()).register_forward_hook(lambda *_: None)
    model[0].eval() if isinstance(model, nn.Sequential) else next(iter(model.children())).eval()
    before = copy.deepcopy(model.state_dict())
    flags = [m.training for m in model.modules()]
    hooks = [len(m._forward_hooks) for m in model.modules()]
    generator = torch.get_rng_state()
    tape = record(model, x, direction=dict(model.named_parameters()), codes=True, fisher=True)
    tape.gradient(torch.ones_like(tape.f))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert flags == [m.training for m in model.modules()]
    assert hooks == [len(m._forward_hooks) for m in model.modules()]
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(generator, torch.get_rng_state())


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(8, 10)

    def forward(self, x):
        x = self.a(x)
        y = torch.relu(x)
        z = torch.relu(x)
        y = self.b(y)
        y += z  # the output of a layer, which Fisher's sums need as it was
        y *= 2
        return self.head(self.relu(y).mean((2, 3)))


def test_operations_in_place_change_nothing():
    torch.manual_seed(0)
    model, (x, y) = InPlace(), data()
    close(ntk(model, x, y, dtype=torch.float64).gram, reference.kernel(model, x, y))
    batch = Batch(x.numpy(), y.numpy(), classes=10, source="normal")
    values = evaluate(model, batch, "fisher,grasp", Options(dtype="float64", parameters="all"))
    g, Ht = reference.loss_gradients(model, x, y)
    assert values["fisher"].value == pytest.approx(reference.fisher(model, x, y))
    assert values["grasp"].value == pytest.approx(-sum(float((a * b).sum()) for a, b in zip(g, Ht, strict=True)))


def test_tapes_are_freed_without_the_cycle_collector():
    import gc
    import weakref

    model, (x, _) = network("nb201", "affine"), data()
    gc.collect()
    gc.disable()
    try:
        tape = record(model, x, direction=dict(model.named_parameters()), codes=True, fisher=True)
        tape.dual_gradient(torch.ones_like(tape.f), torch.ones_like(tape.f), fisher={})
        alive = [weakref.ref(tape.x), weakref.ref(tape.f)]
        del tape
        assert [ref() for ref in alive] == [None, None]
    finally:
        gc.enable()
