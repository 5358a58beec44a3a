import copy
import math
import random
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from initio import noise
from initio.analysis.correlation import spearman
from initio.cli import main
from initio.errors import InputError
from initio.metrics import METRICS, NAMES, Options, choose_metrics, evaluate, is_higher_better, tenas
from initio.records import Batch
from initio.scores.read import read_table
from initio.scores.store import Store, find_store
from initio.spaces import NetworkSettings, get_space
from initio.tables import open_table
from initio.tables.nb301 import Surrogate
from tests import reference
from tests.tables.files import SHARED, needs_data

EXACT = Options(dtype="float64")
SET = (  # what the speed of the engine is measured on
    "grad,grad_norm,snip,grasp,fisher,synflow,naswot,jacob_cov,nasi,trace,kappa,lambda_min,eigen,knas"
)

DRAWN = ("regions", "nngp", "trainability", "zico")  # from the batch in its order, or divided in it


def build(name="nb201", norm="affine", seed=0, init="lecun", choices=None):
    space = get_space(name)
    settings = NetworkSettings(
        channels=24 if name == "mlp" else 4, cells=3 if name == "darts" else 1, shape=(3, 8, 8), norm=norm, init=init
    )
    arch = space.sample(random.Random(seed)) if choices is None else space.architecture(*choices)
    return space.build(arch, settings, seed=seed)


def batch(m=6, classes=10, shape=(3, 8, 8), seed=0):
    return noise(shape, classes=classes, batch_size=m, seed=seed)


def tensors(b):
    return torch.from_numpy(b.x.copy()), torch.from_numpy(b.y.copy())


def test_the_names_without_torch_are_those_of_the_list():
    assert tuple(METRICS) == NAMES
    assert [is_higher_better(name) for name in NAMES] == [metric.higher_is_better for metric in METRICS.values()]


def test_the_direction_of_a_metric_from_outside_is_its_own():
    assert (
        is_higher_better("examples.own_metric:Mine") == choose_metrics("examples.own_metric:Mine")[0].higher_is_better
    )
    with pytest.raises(InputError, match="there is no metric 'kapa'"):
        is_higher_better("kapa")


@pytest.mark.parametrize("name", ["nb201", "nb101", "darts", "mlp"])
@pytest.mark.parametrize("norm", ["affine", "plain", "none"])
@pytest.mark.parametrize("which", ["weights", "all"])
def test_every_metric_equals_its_oracle(name, norm, which):
    model, b = build(name, norm, init="torch"), batch()
    values = evaluate(model, b, "all", Options(dtype="float64", parameters=which))
    for metric, truth in reference.metric_values(model, *tensors(b), which).items():
        if math.isfinite(truth) and values[metric].value is not None:
            assert values[metric].value == pytest.approx(truth, rel=1e-6), metric
        else:
            assert values[metric].flag, metric


@pytest.mark.parametrize("which", ["all", "weights"])
def test_grasp_of_the_chosen_parameters(which):
    model, b = build(), batch()
    g, Ht = reference.loss_gradients(model, *tensors(b), which)
    value = evaluate(model, b, "grasp", Options(dtype="float64", parameters=which))["grasp"].value
    assert value == pytest.approx(-sum(float((a * c).sum()) for a, c in zip(g, Ht, strict=True)), rel=1e-8)


def test_grasp_through_layers_without_a_fast_path():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GELU(), nn.MaxPool2d(2), nn.ConvTranspose2d(4, 4, 2), nn.BatchNorm2d(4), nn.Flatten(),
        nn.LayerNorm(64), nn.Linear(64, 10, bias=False), nn.Softplus(), nn.Linear(10, 10),
    )  # fmt: skip
    b = batch()
    values = evaluate(model, b, "all", EXACT)
    for metric, truth in reference.metric_values(model, *tensors(b)).items():
        assert values[metric].value == pytest.approx(truth, rel=1e-6), metric


def test_grasp_where_tangents_cannot_pass_takes_a_double_backward_and_says_so():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norm, self.head = nn.InstanceNorm1d(24, affine=True), nn.Linear(8, 10)

        def forward(self, x):
            x = self.norm(x.flatten(1, 2))
            return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))

    model, b = Attention(), batch()
    values = evaluate(model, b, "grasp,trace,grad,grasp_printed", EXACT)
    x, y = tensors(b)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        g, Ht = reference.loss_gradients(model, x, y, "weights")
        truth = -sum(float((a * c).sum()) for a, c in zip(g, Ht, strict=True))
        assert values["grasp"].value == pytest.approx(truth, rel=1e-8)
        assert "took a double backward" in values["grasp"].flag
        K = reference.kernel(model, x, y, which="weights")
    assert values["trace"].value == pytest.approx(math.sqrt(np.trace(K) / 6), rel=1e-8)
    assert "multi_head_attention_forward" in values["trace"].flag
    truth = reference.grasp_printed(model, x.double(), y, "weights")
    assert values["grasp_printed"].value == pytest.approx(truth, rel=1e-6)


class ConvNormOnly(nn.Module):
    """Every weight but the last is followed by a batch norm without ε to speak of."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4, eps=1e-12, affine=False)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))).mean((2, 3))


def test_behind_batch_norm_printed_snip_is_zero_and_grasp_is_the_squared_gradient():
    values = evaluate(ConvNormOnly(), batch(classes=4), "snip_printed,snip,grasp,nasi", EXACT)
    assert values["snip_printed"].value == pytest.approx(0, abs=1e-10)
    assert values["snip"].value > 1e-3
    assert values["grasp"].value == pytest.approx(values["nasi"].value, rel=1e-8)


def test_relations_between_metrics():
    values = {n: v.value for n, v in evaluate(build(), batch(), "all", EXACT).items()}
    assert values["nasi"] == pytest.approx(values["grad"] ** 2)
    assert values["eigen"] == pytest.approx(values["trace"] ** 2)
    assert values["lambda_min"] <= values["eigen"]
    assert values["lambda_relative"] == pytest.approx(values["lambda_min"] / values["eigen"], rel=1e-12)
    assert math.sqrt(values["knas"]) <= values["trace"]
    assert values["grad"] <= values["grad_norm"] * 2


def test_permuting_the_batch_changes_nothing():
    model, b = build(), batch()
    order = np.array([4, 2, 0, 5, 1, 3])
    permuted = Batch(b.x[order], b.y[order], b.classes, b.source)
    invariant = [m.name for m in choose_metrics("all") if m.name not in DRAWN]
    one, two = (evaluate(model, each, invariant, EXACT) for each in (b, permuted))
    for name in invariant:
        assert one[name].value == pytest.approx(two[name].value, rel=1e-8), name


def test_asking_for_one_metric_gives_what_asking_for_all_gives():
    model, b = build(), batch()
    together = evaluate(model, b, "all", EXACT)
    for name, value in together.items():
        assert evaluate(model, b, name, EXACT)[name].value == pytest.approx(value.value, rel=1e-9), name


def test_float32_is_near_float64():
    model, b = build(), batch(m=16)
    single, double = (evaluate(model, b, SET, Options(dtype=d)) for d in ("float32", "float64"))
    for name, value in double.items():
        assert single[name].value == pytest.approx(value.value, rel=1e-2 if name == "jacob_cov" else 1e-3), name


def test_the_ntk_parameterisation_scales_gradients_but_not_products_with_weights():
    class Unit(nn.Module):
        """Jacot's form of the same function: weights N(0, 1), 1/√fan_in in the forward pass."""

        def __init__(self, weights):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(w * w.shape[1] ** 0.5) for w in weights])

        def forward(self, x):
            x = x.flatten(1)
            for i, w in enumerate(self.weights):
                x = torch.relu(x) if i else x
                x = x @ (w / w.shape[1] ** 0.5).T
            return x

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 20, bias=False), nn.ReLU(), nn.Linear(20, 10, bias=False))
    unit, b = Unit([plain[1].weight.data, plain[3].weight.data]), batch()
    names = "grad,grad_norm,snip,grasp,nasi,nasi_sum,grasp_printed,trace,kappa"
    ours = evaluate(plain, b, names, Options(dtype="float64", parameterisation="ntk"))
    theirs = evaluate(unit, b, names, EXACT)
    for name, value in theirs.items():
        assert ours[name].value == pytest.approx(value.value, rel=1e-6), name  # weights are float32


def test_scoring_changes_nothing():
    model, b = build(), batch()
    model.train()
    before, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    kept = np.random.get_state()[1].copy()  # noqa: NPY002
    evaluate(model, b, "all,latency")
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(m.training for m in model.modules())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.equal(generator, torch.get_rng_state())
    assert (kept == np.random.get_state()[1]).all()  # noqa: NPY002
    assert not any(m._forward_hooks for m in model.modules())


def test_the_same_seed_gives_the_same_values():
    model, b = build(), batch()
    assert evaluate(model, b, "all") == evaluate(model, b, "all")


# --- networks and batches on which something does not exist ----------------------------------------------------------


def checked(model, b, metrics="all", options=EXACT):
    values = evaluate(model, b, metrics, options)
    for name, value in values.items():
        assert value.value is None or not math.isnan(value.value), name
        assert value.value is not None or value.flag, name
    return values


def test_a_disconnected_cell_has_defined_values_or_flags():
    values = checked(build(choices=(0,) * 6), batch())
    for name in ("kappa", "lambda_relative"):
        assert values[name].value is None
        assert "the kernel is zero" in values[name].flag
    assert "does not depend on its input" in values["grad"].flag
    with_bias = checked(build(choices=(0,) * 6), batch(), options=Options(dtype="float64", parameters="all"))
    assert with_bias["kappa"].value == math.inf
    assert "does not depend on its input" in with_bias["kappa"].flag
    assert values["jacob_cov"].value is None
    assert values["synflow"].value is None
    assert "no path of weights" in values["synflow"].flag


def test_a_network_without_parameters():
    values = checked(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), batch(classes=3))
    assert values["grad"].value == 0
    assert "does not depend on any parameter" in values["grad"].flag
    assert values["kappa"].value is None
    assert values["params"].value == 0


def test_a_loss_that_is_not_finite_is_flagged():
    model = build()
    with torch.no_grad():
        next(p for n, p in model.named_parameters() if n.endswith("bias")).fill_(math.nan)
        for p in model.parameters():
            p.fill_(math.nan)
    values = checked(model, batch())
    assert values["grad"].value is None
    assert values["grad"].flag == "the network's output is not finite"
    assert values["kappa"].flag == "the network's output is not finite"


def test_a_batch_of_one():
    values = checked(build(norm="none"), batch(m=1))
    for name in ("kappa", "lambda_relative"):
        assert values[name].value == pytest.approx(1)
        assert "batch of one" in values[name].flag
    assert values["jacob_cov"].flag == "a correlation needs at least two inputs"
    checked(build(norm="affine"), batch(m=1))


def test_two_identical_images():
    b = batch()
    x, y = b.x.copy(), b.y.copy()
    x[3], y[3] = x[1], y[1]
    for options in (EXACT, Options()):
        values = checked(build(), Batch(x, y, b.classes, "twins"), "all", options)
        assert values["kappa"].value == math.inf
        assert "is zero beside the largest" in values["kappa"].flag
        assert values["naswot"].value is None
        assert "same activation pattern" in values["naswot"].flag
        assert values["trace"].value > 0


def test_a_single_output_has_no_cross_entropy():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 1))
    values = checked(model, batch(classes=2))
    assert "take loss='mse'" in values["grad"].flag
    assert values["trace"].value > 0
    assert checked(model, batch(classes=2), "grad", Options(loss="mse"))["grad"].value > 0


def test_more_labels_than_outputs_are_an_input_error():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    with pytest.raises(InputError, match="the network has 3 outputs, the batch has the label"):
        evaluate(model, batch(m=64, classes=10), "grad")


def test_a_model_that_returns_no_tensor_is_an_input_error():
    class Words(nn.Module):
        def forward(self, x):
            return "logits"

    with pytest.raises(InputError, match="must return a tensor of logits, not str"):
        evaluate(Words(), batch(), "grad")


def test_unused_relus_have_no_codes():
    class Dead(nn.Module):
        def __init__(self, dead):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.dead = nn.Linear(192, 64), dead

        def forward(self, x):
            x = self.a(x.flatten(1))
            if self.dead:
                torch.relu(x * 5 - 1)
            return torch.relu(x)[:, :10]

    b = batch()
    assert evaluate(Dead(True), b, "naswot") == evaluate(Dead(False), b, "naswot")


def test_mse_gradients():
    model, b = build(norm="none"), batch()
    x, y = tensors(b)
    net = reference.double(model)
    loss = 0.5 * ((net(x.double()) - torch.eye(10, dtype=torch.float64)[y]) ** 2).sum() / len(x)
    loss.backward()
    truth = math.sqrt(sum(float((p.grad**2).sum()) for p in net.parameters() if p.grad is not None))
    assert evaluate(model, b, "grad", Options(dtype="float64", loss="mse", parameters="all"))[
        "grad"
    ].value == pytest.approx(truth)


def test_options_are_checked():
    with pytest.raises(InputError, match="batch_norm must be one of frozen, coupled, hooked, not 'warm'"):
        Options(batch_norm="warm")


def test_every_metric_explains_itself():
    for metric in METRICS.values():
        assert metric.formula
        assert metric.source
        assert metric.about.endswith(".")
        assert metric.needs


def test_tenas_adds_ranks():
    assert tenas([1.0, 2.0, 3.0], [10, 20, 30]) == [2.0, 2.0, 2.0]


def test_regions_counts_patterns_of_crops():
    thin = get_space("nb201").build(
        get_space("nb201").architecture(*(1,) * 6), NetworkSettings(channels=1, cells=1, shape=(3, 8, 8)), seed=0
    )
    value = evaluate(thin, batch(m=16), "regions")["regions"]
    assert 1 < value.value < 1000
    assert evaluate(thin, batch(m=16), "regions", Options(seed=1))["regions"].value != value.value


def test_nngp_prefers_a_network_that_tells_classes_apart():
    rng = np.random.default_rng(0)
    y = np.arange(32) % 2
    x = (rng.normal(size=(32, 1, 4, 4)) * 0.1 + (2 * y - 1)[:, None, None, None]).astype(np.float32)
    b = Batch(x, y, 2, "two clusters")
    torch.manual_seed(0)
    good = nn.Sequential(nn.Flatten(), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    blind = nn.Sequential(nn.Flatten(), nn.Linear(16, 64), nn.Tanh(), nn.LayerNorm(64), nn.Linear(64, 2))

    class Blind(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = blind

        def forward(self, x):
            return self.inner(x * x)  # the sign, which is the class, is gone

    assert evaluate(good, b, "nngp")["nngp"].value > evaluate(Blind(), b, "nngp")["nngp"].value


def test_a_memory_limit_changes_no_value():
    model, b = build(), batch()
    free = evaluate(model, b, SET, EXACT)
    tight = evaluate(model, b, SET, Options(dtype="float64", memory=1))
    for name, value in free.items():
        assert tight[name].value == pytest.approx(value.value, rel=1e-10), name


def test_every_metric_is_documented():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert [name for name in METRICS if f"`{name}`" not in page] == []


def test_nothing_of_a_scored_network_stays_in_memory():
    import gc

    def tensors_alive():
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())  # isinstance would wake lazy modules

    model, b = build(), batch()
    evaluate(model, b, "all")
    gc.collect()
    gc.disable()  # thousands of networks must not wait for the cycle collector
    try:
        before = tensors_alive()
        for _ in range(2):
            evaluate(model, b, "all")
        assert tensors_alive() == before
    finally:
        gc.enable()


# --- what the caller's torch is set to -------------------------------------------------------------------------------


def test_threads_that_score_one_module_agree_and_leave_it_as_it_was():
    model, b = build().train(), batch()
    before = {name: id(t) for name, t in model.state_dict(keep_vars=True).items()}
    expected = evaluate(model, b, SET, EXACT)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: evaluate(model, b, SET, EXACT), range(8)))
    for answer in answers:
        assert {n: v.value for n, v in answer.items()} == pytest.approx({n: v.value for n, v in expected.items()})
    assert {name: id(t) for name, t in model.state_dict(keep_vars=True).items()} == before
    assert all(module.training for module in model.modules())


def test_autocast_and_the_default_dtype_change_no_value():
    model, b = build(choices=(3, 2, 3, 1, 4, 3)), batch(m=8)
    expected = evaluate(model, b, SET)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert evaluate(model, b, SET) == expected
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert evaluate(model, b, SET) == expected
    finally:
        torch.set_default_dtype(default)


@needs_data
@pytest.mark.parametrize("space", ["nb101", "darts"])
def test_the_direction_is_the_measured_one_but_where_a_metric_says_so(space: str) -> None:
    """On the shipped scores; between −0.1 and 0.1 there is no direction to speak of."""
    with Store(find_store(space), read_only=True) as store:
        scores = read_table(store, get_space(space))
    if space == "darts":
        target = Surrogate(SHARED / "nb301_surrogate_yahpo_v1.npz").predict(list(scores.architectures), 98)[0]
    else:
        table = open_table("nb101", str(SHARED))
        target = np.array([next(iter(table.report(arch).values())) for arch in scores.architectures])
    for name in scores.metrics:
        known = ~np.isnan(scores[name])
        rho = spearman(scores[name][known], target[known]) or 0.0
        metric = METRICS[name]
        if abs(rho) > 0.1:
            assert (rho > 0) == (metric.higher_is_better != (space in metric.reversed_on)), f"{name}: {rho:.2f}"


def test_the_list_says_where_a_direction_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^trace +↑\* ", printed, re.M)
    assert re.search(r"^naswot +↑  ", printed, re.M)
    assert main(["metrics", "trace"]) == 0
    assert "larger, says its paper; the other way round on nb101, darts" in capsys.readouterr().out
