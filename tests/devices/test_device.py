"""Every metric and a step of training, on a GPU that is not there: the same numbers, and nothing left on the CPU."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import initio
from initio.autodiff import devices
from initio.autodiff.devices import check_device, find_device
from initio.autodiff.record import Tape, record
from initio.autodiff.work import device_of_workers
from initio.data import Dataset, load
from initio.kernels.empirical import ntk
from initio.metrics import METRICS, Options, Value, base, choose_metrics, evaluate, gradients
from initio.networks.export.weights import torch_file
from initio.scores.measure import is_cost
from initio.scores.model import materialised
from initio.spaces import SPACES, NetworkSettings, get_space
from initio.training import TrainingSettings
from initio.training.examples import examples_of
from initio.training.fit import fit
from initio.training.machine import PlainMachine
from tests.pretended import GPU, MixedDevicesError, Pretended, moved, pretended_gpu

NB201 = get_space("nb201")
CELL = NB201.parse("|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|")
BATCH = initio.noise((3, 8, 8), classes=3, batch_size=4, seed=0)
NETWORK = NetworkSettings(channels=2, cells=1, classes=3, shape=BATCH.shape)
HALF = Options(dtype="bfloat16")
MEASURED = [name for name, metric in METRICS.items() if not metric.needs & {"timing", "counting"}]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device may be measured on; the CPU computes as it does: by torch alone."""
    monkeypatch.setattr(devices, "MEASURED_ON", ("cpu", GPU.type))
    monkeypatch.setattr("initio.autodiff.fused.library", lambda: None)


def network() -> nn.Module:
    return NB201.build(CELL, NETWORK, seed=0)


def same(found: dict[str, Value], expected: dict[str, Value]) -> None:
    """To a few roundings of float64, in which values are added up."""
    assert {name: one.flag for name, one in found.items()} == {name: one.flag for name, one in expected.items()}
    for name, one in found.items():
        assert one.value == pytest.approx(expected[name].value, rel=1e-12), name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_norm": "coupled", "reduction": "all", "parameters": "all"},
        {"batch_norm": "hooked", "parameterisation": "ntk", "loss": "mse"},
    ],
    ids=str,
)
def test_every_metric_on_another_device(options: dict[str, str]) -> None:
    names = MEASURED if not options else ["trace", "kappa", "grad_norm"]
    expected = evaluate(network(), BATCH, names, Options(**options))  # type: ignore[arg-type]
    with pretended_gpu() as gpu:
        same(evaluate(moved(network()), BATCH, names, Options(**options)), expected)  # type: ignore[arg-type]
    assert gpu.products


class Mixing(nn.Module):
    """Whether it keeps samples apart is not to be seen in the graph: half of them are asked for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row.cumsum(0) for row in x])


def test_a_module_of_ones_own_on_another_device() -> None:
    """One whose layers are not known to the fast paths."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(192, 6), nn.ReLU(), Mixing(), nn.Softplus(), nn.LayerNorm(6), nn.Linear(6, 3)
    )
    names = ["trace", "grad_norm", "jacob_cov", "synflow", "naswot", "grasp"]
    assert not record(model, torch.from_numpy(BATCH.x.copy())).notes.by_row
    expected = evaluate(model, BATCH, names)
    with pretended_gpu():
        same(evaluate(moved(model), BATCH, names), expected)


def test_a_loader_of_another_devices_tensors() -> None:
    expected = initio.score(network(), BATCH, ["trace"])["trace"].value
    x, y = torch.from_numpy(BATCH.x.copy()), torch.from_numpy(BATCH.y.copy())
    with pretended_gpu():
        found = initio.score(moved(network()), (x.to(GPU), y.to(GPU)), ["trace"])["trace"].value
    assert found == pytest.approx(expected, rel=1e-12)


def test_lazy_layers_are_made_on_the_device_of_the_others() -> None:
    """Torch's own device of shapes: its tensors do not meet those of the CPU either."""
    model = nn.Sequential(nn.Conv2d(3, 2, 3, device="meta"), nn.Flatten(), nn.LazyLinear(3, device="meta"))
    made = materialised(model, BATCH)
    assert {(tuple(p.shape), p.device.type) for p in made[2].parameters()} == {((3, 72), "meta"), ((3,), "meta")}


# --- kernels ----------------------------------------------------------------------------------------------------------

CONVENTIONS = list(product(("frozen", "coupled", "hooked"), ("label", "sum", "all"), ("standard", "ntk")))


@pytest.mark.parametrize(("batch_norm", "reduction", "parameterisation"), CONVENTIONS)
def test_every_kernel_on_another_device(batch_norm: Any, reduction: Any, parameterisation: Any) -> None:
    """Without labels, which `label` then takes to be zeros."""

    def kernel(model: nn.Module, x: Tensor) -> np.ndarray:
        return ntk(model, x, batch_norm=batch_norm, reduction=reduction, parameterisation=parameterisation).gram

    x = torch.from_numpy(BATCH.x.copy())
    expected = kernel(network(), x)
    with pretended_gpu() as gpu:
        assert np.allclose(kernel(moved(network()), x.to(GPU)), expected, rtol=1e-12)
    assert gpu.products


@pytest.mark.parametrize("batch_norm", ["frozen", "coupled"])
def test_the_full_kernel_on_another_device(batch_norm: Any) -> None:
    x = torch.from_numpy(BATCH.x.copy())
    expected = ntk(network(), x, batch_norm=batch_norm, full=True).gram
    with pretended_gpu():
        found = ntk(moved(network()), x.to(GPU), batch_norm=batch_norm, full=True).gram
    assert np.allclose(found, expected, rtol=1e-12)


def test_layer_by_layer_and_slowly_on_another_device() -> None:
    """One block of rows at a time, and a parameter that is used twice."""
    torch.manual_seed(0)
    layer = nn.Linear(192, 192)
    model = nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer, nn.Linear(192, 3))
    x = torch.from_numpy(BATCH.x.copy())
    for batch_norm in ("frozen", "coupled"):
        expected = ntk(model, x, batch_norm=batch_norm, chunk=1).gram
        with pretended_gpu():
            found = ntk(moved(copy.deepcopy(model)), x.to(GPU), batch_norm=batch_norm, chunk=1).gram
        assert np.allclose(found, expected, rtol=1e-12)


def test_weights_of_another_device_are_written_as_those_of_the_cpu() -> None:
    expected = torch_file(network())
    with pretended_gpu():
        assert torch_file(moved(network())) == expected


# --- trainings --------------------------------------------------------------------------------------------------------


def test_a_training_on_another_device() -> None:
    digits = load("digits")
    assert isinstance(digits, Dataset)
    settings = TrainingSettings(epochs=1, samples=64, batch_size=32)
    examples = examples_of(digits, settings, 0)
    size = NetworkSettings(channels=2, cells=1, classes=digits.classes, shape=digits.shape)
    expected = fit(NB201.build(CELL, size, seed=0), examples, settings)
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # `.to` makes new parameters of another class
    try:
        with pretended_gpu():
            found = fit(NB201.build(CELL, size, seed=0), examples, settings, machine=PlainMachine(GPU))
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert found.value == expected.value


def test_a_tensor_made_without_its_device_cannot_meet_the_rest() -> None:
    with pretended_gpu():
        there = torch.ones(2, device=GPU)
        assert isinstance(there + torch.zeros(2, device=GPU), Pretended)
        assert isinstance(there * 2 + torch.tensor(1.0), Pretended)  # a number may
        for wrong in (lambda: there + torch.zeros(2), lambda: torch.cat([there, torch.ones(1)])):
            with pytest.raises(MixedDevicesError):
                wrong()
        with pytest.raises((RuntimeError, TypeError)):
            there.numpy()
        assert there.cpu().numpy().sum() == 2


@pytest.mark.parametrize("name", SPACES)
def test_a_step_of_training_on_the_meta_device(name: str) -> None:
    """Torch's own shapes and devices. The network is built and run without a default device, so on the CPU is all that
    is made without one; and what is there meets nothing of the CPU.
    """
    space, shape = get_space(name), (3, 32, 32)
    asked = NetworkSettings(
        channels=4, cells=3, classes=3, shape=shape, drop_path=0.5 * (name in ("nb201", "darts")),
        auxiliary=name == "darts",
    )  # fmt: skip
    model = space.build(space.sample(Random(0)), asked, seed=0).to("meta")
    found = model(torch.empty(2, *shape, device="meta"))
    outputs = found if isinstance(found, tuple) else (found,)
    sum(out.square().mean() for out in outputs).backward()
    assert {(out.device.type, tuple(out.shape)) for out in outputs} == {("meta", (2, 3))}
    assert {p.grad.device.type for p in model.parameters() if p.grad is not None} == {"meta"}


def test_what_is_made_on_the_cpu_does_not_run_on_the_meta_device() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.ones(len(x), 1, 1, 1)

    with pytest.raises(RuntimeError, match="device"):
        Wrong()(torch.empty(2, 3, 8, 8, device="meta"))


def test_a_model_on_two_devices_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3), nn.Linear(3, 3))
    with pretended_gpu():
        moved(model[2])
        with pytest.raises(initio.InputError, match="the model is on cpu and on meta: move all of it to one device"):
            evaluate(model, BATCH, "trace")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("gpu", "a device is auto, cpu, cuda, cuda:0, cuda:1, ... or mps, not 'gpu'"),
        ("cuda", "there is no device 'cuda' here: take cpu"),
        ("cuda:1", "there is no device 'cuda:1' here"),
    ],
)
def test_a_device_that_is_not_there(name: str, match: str) -> None:
    with pytest.raises(initio.InputError, match=match):
        check_device(name)
    with pytest.raises(initio.InputError, match=match):
        device_of_workers(name, measured=True)


def test_the_name_of_a_device_is_checked_at_once() -> None:
    """Whether there is one is for whoever measures to say, on another machine perhaps."""
    with pytest.raises(initio.InputError, match="a device is auto"):
        Options(device="gpu")
    assert Options(device="cuda:1").device == "cuda:1"


def test_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_device("auto").type in ("cpu", "cuda", "mps")
    monkeypatch.setattr(devices, "available", lambda: ["mps", "cpu"])
    assert (find_device("auto").type, find_device("auto", measured=True).type) == ("mps", "cpu")
    with pytest.raises(initio.InputError, match="mps has no float64, in which sums and kernels are kept"):
        find_device("mps", measured=True)


def test_half_precision_where_it_is_safe() -> None:
    names = ["trace", "grad_norm", "snip"]
    exact, half = (evaluate(network(), BATCH, names, Options(dtype=dtype)) for dtype in ("float32", "bfloat16"))
    for name in names:
        assert half[name].value == pytest.approx(exact[name].value, rel=0.25), name  # four inputs, two channels


@pytest.mark.parametrize("name", ["kappa", "lambda_min", "meco", "near", "progressivity", "grasp"])
def test_half_precision_where_it_is_not(name: str) -> None:
    with pytest.raises(initio.InputError, match=f"{name} cannot be measured in half precision, which rounds away"):
        evaluate(network(), BATCH, [name], HALF)


def test_every_second_derivative_is_refused_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever carries tangents along θ or differentiates twice, whatever it says that it needs."""
    twice: list[object] = []

    def noted(tape: Callable[..., Any], *given: Any, direction: object = None, **more: Any) -> Any:
        if direction is not None:
            twice.append(direction)
        return tape(*given, direction=direction, **more)

    def curved(curvature: Callable[..., Any], *given: Any) -> Any:
        twice.append(given)
        return curvature(*given)

    for module in (gradients, base):
        monkeypatch.setattr(module, "record", partial(noted, module.record))
    curvature = Tape.curvature
    monkeypatch.setattr(Tape, "curvature", lambda *given: curved(curvature, *given))
    found = set()
    for metric in choose_metrics("all"):
        twice.clear()
        evaluate(network(), BATCH, [metric])
        if twice:
            found.add(metric.name)
            with pytest.raises(initio.InputError, match=f"{metric.name} cannot be measured in half precision"):
                evaluate(network(), BATCH, [metric], HALF)
    assert found == {"grasp", "grasp_printed"}


def test_what_is_kept_as_half_precision_was_measured_in_it() -> None:
    """So that no value of float64 is stored under another dtype."""
    for metric in choose_metrics("all"):
        if is_cost(metric):
            continue
        try:
            [half] = evaluate(network(), BATCH, [metric], HALF).values()
        except initio.InputError as error:
            assert "half precision" in str(error) or (metric.name == "synflow" and "float64" in str(error))  # noqa: PT017
            continue
        [single] = evaluate(network(), BATCH, [metric]).values()
        assert half.value is not None
        assert half.value != single.value or metric.name == "regions", metric.name  # which is a count


def test_a_metric_of_ones_own_says_that_half_precision_breaks_it() -> None:
    own = replace(METRICS["trace"], name="mine")
    assert evaluate(network(), BATCH, [own], HALF)["mine"].value
    with pytest.raises(initio.InputError, match="mine cannot be measured in half precision, which rounds away"):
        evaluate(network(), BATCH, [replace(own, needs=own.needs | {"precision"})], HALF)
