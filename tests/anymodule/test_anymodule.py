"""`score` of any module is right, or says that it is not: every case against stock autograd, one sample at a time."""

from __future__ import annotations

import copy
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from initio import score
from initio.autodiff import fused
from initio.errors import InputError
from initio.metrics import Options, Value
from initio.networks.cost import counted
from initio.records import Batch
from tests import reference
from tests.anymodule.cases import CLASSES, EVERY, Case
from tests.anymodule.modules import MODULES
from tests.anymodule.operations import OPERATIONS

CASES = {f"{kind}-{case.name}": case for kind, cases in (("op", OPERATIONS), ("module", MODULES)) for case in cases}
# (arithmetic, threads, compiled kernels): the first for every case, and for every module and every second operation one
# of the others, in turn; all of them for every case where ANYMODULE=all is set
CONFIGURATIONS = (("float64", 1, True), ("float32", 1, True), ("float64", 2, True), ("float32", 1, False))


def configurations(name: str) -> tuple[tuple[str, int, bool], ...]:
    """Those that a case is scored with."""
    if os.environ.get("ANYMODULE") == "all":
        return CONFIGURATIONS
    number = list(CASES).index(name)
    if number % 2 and name.startswith("op-"):
        return CONFIGURATIONS[:1]
    return CONFIGURATIONS[0], CONFIGURATIONS[1 + number // 2 % 3]


def parameters(name: str) -> str:
    """What θ is: all parameters, or the weights, in turn."""
    return ("all", "weights")[list(CASES).index(name) % 2]


# What a flag says of a value that differs from the oracle's; a note on the way that was taken is no such reason.
DOUBTS = re.compile(
    "see each other|random numbers|does not depend|as it is|outside|one value|variance|range|a batch of one|zero"
)


def oracle(name: str, which: str) -> dict[str, float]:
    """What stock autograd says in float64; what it cannot say is left out."""
    case, out = CASES[name], dict[str, float]()
    x, y = case.batch()
    x = x.double()
    reads: tuple[Callable[[nn.Module], dict[str, float]], ...] = (
        lambda model: reference.first_order(model, x, y, which),
        lambda model: second_order(model, x, y, which),
        lambda model: {"grasp_printed": reference.grasp_printed(model, x, y, which)},
        lambda model: {"nasi_sum": reference.nasi_sum(model, x, y, which)},
        lambda model: {"fisher": reference.fisher(model, x, y)},
        lambda model: {"synflow": reference.synflow(model, tuple(x.shape[1:]))},
        lambda model: {"jacob_cov": reference.jacob_cov(model, x)},
        lambda model: {"naswot": reference.naswot(model, x) or math.nan},
        lambda model: reference.kernel_metrics(model, x, y, which),
        lambda model: reference.channel_metrics(model, x),
        lambda model: reference.cell_metrics(model, x),
        lambda model: {"zico": reference.zico(model, x, y)},
        lambda model: {"params": float(sum(p.numel() for p in model.parameters()))},
    )
    model = case.oracle(case.model())
    for read in reads:
        try:
            found = read(model)
        except Exception:
            continue
        out |= {metric: value for metric, value in found.items() if math.isfinite(value)}
    if abs(out.get("kappa", 1.0)) > 1e12:  # no number: the smallest eigenvalue is rounding
        del out["kappa"]
    return out


def second_order(model: nn.Module, x: torch.Tensor, y: torch.Tensor, which: str) -> dict[str, float]:
    """GraSP's score, and the size of what it is the small difference of."""
    g, Ht = reference.loss_gradients(model, x, y, which)
    pairs = list(zip(g, Ht, strict=True))
    return {
        "grasp": -sum(float((a * b).sum()) for a, b in pairs),
        "grasp size": math.sqrt(sum(float((a**2).sum()) for a in g) * sum(float((b**2).sum()) for b in Ht)),
    }


def close(metric: str, value: float, truth: dict[str, float], exact: bool) -> bool:
    """Within 1e-6, or for float32 within what float32 can hold; differences of large numbers beside those."""
    relative, small = (1e-6, 1e-12) if exact else (2e-3, 1e-5)
    sizes = {
        "grasp": truth.get("grasp size", 0.0),
        "grasp_printed": truth.get("grasp size", 0.0),
        "snip_printed": truth.get("snip", 0.0),
        "lambda_min": 10 * truth.get("eigen", 0.0),
        "meco": 20.0,  # smallest eigenvalues of correlations, of activations that are small beside their mean
        "progressivity": truth.get("expressivity", 0.0),
    }
    if metric == "kappa":
        relative += small * abs(truth[metric])
    if metric == "jacob_cov" and not exact:
        relative += small * abs(truth[metric])  # a sum of 1/(v + 1e-5)
    return abs(value - truth[metric]) <= relative * abs(truth[metric]) + small * (1e-3 + sizes.get(metric, 0.0))


def verdict(metric: str, found: Value, truth: dict[str, float], exact: bool) -> str:
    """right, flagged or wrong."""
    if found.value is None:
        return "flagged"
    if metric in truth and math.isfinite(found.value) and close(metric, found.value, truth, exact):
        return "right"
    return "flagged" if DOUBTS.search(found.flag) else "wrong"


@contextmanager
def configured(threads: int, compiled: bool) -> Iterator[None]:
    """With these threads, with or without compiled kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with nullcontext() if compiled else fused.switched_off(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(before)


def scored(case: Case, dtype: str, which: str) -> dict[str, Value]:
    """One value for each metric; nothing of the model, the inputs or torch's generator may change."""
    model, (x, y) = case.model(), case.batch()
    before, generator = copy.deepcopy(state(model)), torch.get_rng_state()
    batch = Batch(x.numpy(), y.numpy(), classes=CLASSES, source="the case")
    try:
        out = score(model, batch, EVERY, options=Options(dtype=dtype, parameters=which))  # type: ignore[arg-type]
    finally:
        assert torch.equal(torch.get_rng_state(), generator), "torch's generator was moved"
        same = [torch.equal(a, b) for a, b in zip(before, state(model), strict=True) if a.device.type != "meta"]
        assert all(same), "the model was changed"
    return {name: s.values[0] for name, s in out.items()}


def state(model: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers, but for layers that have not met a batch."""
    lazy = torch.nn.parameter.is_lazy
    return [t.detach() for t in [*model.parameters(), *model.buffers()] if not lazy(t)]


def judged(name: str, truth: dict[str, float], dtype: str) -> Iterator[tuple[str, str]]:
    """For each metric, or once for a model that is refused: the verdict, and what is wrong about it."""
    case, exact = CASES[name], dtype == "float64"
    allowed = set(case.flagged)
    if not exact:
        allowed |= {"kappa", "jacob_cov"}  # which lose float32's digits first
    try:
        values = scored(case, dtype, parameters(name))
    except InputError as error:
        sentence = str(error)
        expected = bool(case.refused) and case.refused in sentence and "\n" not in sentence
        yield "refused", "" if expected else sentence
        return
    if case.refused:
        yield "wrong", f"was not refused: {values}"
    for metric, found in values.items():
        said = verdict(metric, found, truth, exact)
        rounding = "does not depend on its input" in found.flag  # of a gradient that is zero on paper
        expected = metric not in truth or metric in allowed or rounding
        unexpected = said == "wrong" or (said == "flagged" and not expected)
        yield said, f"{metric}: {found} for {truth.get(metric)}" if unexpected else ""


@pytest.mark.parametrize("name", CASES)
def test_right_or_says_that_it_is_not(name, record_property):
    counts, problems = Counter[str](), []
    with configured(1, True):
        truth = oracle(name, parameters(name))
    for dtype, threads, compiled in configurations(name):
        with configured(threads, compiled):
            for said, problem in judged(name, truth, dtype):
                counts[said] += 1
                problems += [f"{dtype}, {threads} threads, compiled {compiled}: {problem}"] * bool(problem)
    for said, count in counts.items():
        record_property(said, count)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.zeros(4, 5, dtype=torch.complex64), "must be real numbers, not complex64"),
        (np.full((4, 5), None), "must be real numbers, not object"),
        (np.full((4, 5), "a"), "must be real numbers, not <U1"),
    ],
)
def test_inputs_that_are_no_numbers(x, sentence):
    with pytest.raises(InputError, match=sentence):
        score(CASES["module-one_sample"].model(), (x, torch.arange(4) % CLASSES), "grad")


def test_bfloat16_inputs():
    model, (x, y) = CASES["module-one_sample"].model(), CASES["module-tied"].batch()
    rounded = x.bfloat16()
    assert score(model, (rounded, y), "grad")["grad"].value == score(model, (rounded.float(), y), "grad")["grad"].value


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (nn.ConvTranspose2d(2, 3, 3, bias=False), (2, 4, 4), 2 * 4 * 4 * 3 * 9),
        (nn.LSTM(4, 6, batch_first=True), (5, 4), 5 * (4 * 6 * (4 + 6) + 2 * 4 * 6)),
        (nn.GRU(4, 6, bias=False, batch_first=True), (5, 4), 5 * 3 * 6 * (4 + 6)),
    ],
)
def test_multiply_adds_of_layers(layer, shape, expected):
    with counted(layer) as total:
        layer(torch.zeros(1, *shape))
    assert (total.flops, total.layers) == (expected, 1)


def test_multiply_adds_of_attention():
    T, E = 5, 4
    attention = nn.MultiheadAttention(E, 2, bias=False, batch_first=True)
    x = torch.zeros(1, T, E)
    with counted(attention) as total:
        attention(x, x, x)
    assert total.flops == 4 * T * E * E + 2 * T * T * E


def test_weights_that_are_not_counted_are_named():
    case = CASES["op-matmul"]
    flops = score(case.model(), case.batch(), "flops")["flops"]
    assert "1 weights (w, ...) are used outside of layers that are counted" in flops.flag


def test_there_are_enough_cases():
    assert len(OPERATIONS) >= 200
    assert len(MODULES) >= 60
