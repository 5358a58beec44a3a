"""What a metric is, and the measurement of one network on one batch that all metrics share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from initio.autodiff.devices import check_name
from initio.autodiff.layers import CHUNK_BYTES, PARTS
from initio.autodiff.parts import Parts
from initio.autodiff.passes import outputs
from initio.autodiff.record import NoTangentError, PartGradients, Tape, record
from initio.errors import InputError
from initio.kernels import empirical
from initio.kernels.empirical import BatchNorm, Kernel, Parameterisation, Parameters, Reduction, chosen, share
from initio.networks.build import cells_of

Loss = Literal["cross_entropy", "mse"]
SAME = {"float32": 1e-4, "float64": 1e-10, "bfloat16": 0.1}  # outputs that differ by roundings
STEP, AGREE = 1e-5, 1e-2  # of a finite difference along θ, and how well a double backward must agree with it
FLAT = 1e-3  # a variance below this part of ε
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


class UndefinedValue(Exception):  # noqa: N818, it is no error
    """Raised inside a metric that has no value here; the message says why."""


@dataclass(frozen=True)
class Value:
    """A number, or None with the reason; a number to be doubted has a flag too."""

    value: float | None
    flag: str = ""

    def __post_init__(self) -> None:
        if self.value is None and not self.flag:
            raise ValueError("a value that does not exist needs a reason")


@dataclass(frozen=True)
class Options:
    """How metrics are measured.

    Args:
        reduction: of the n outputs for the kernel: `label`, `sum` or `all`.
        batch_norm: what "the gradient of one sample" means for the kernel: `frozen`, `coupled` or `hooked`.
        parameterisation: `standard`, or `ntk`, which divides a weight's squared gradient by its fan-in.
        parameters: what θ is: `all` parameters, or the `weights` of convolutions and linear layers only.
        loss: `cross_entropy`, or `mse` (half the squared distance to the one-hot label).
        dtype: `float32` or `float64`; `bfloat16` for metrics that are not read off small eigenvalues.
        device: of architectures that are built to be measured: cpu, cuda, cuda:1 or auto; a model stays where it is.
        memory: bytes that the process should stay below; None for no limit.
        seed: of the metrics that draw random numbers.
    """

    reduction: Reduction = "label"
    batch_norm: BatchNorm = "frozen"
    parameterisation: Parameterisation = "standard"
    parameters: Parameters = "weights"
    loss: Loss = "cross_entropy"
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    memory: int | None = None
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = {
            "reduction": ("label", "sum", "all"),
            "batch_norm": ("frozen", "coupled", "hooked"),
            "parameterisation": ("standard", "ntk"),
            "parameters": ("all", "weights"),
            "loss": ("cross_entropy", "mse"),
            "dtype": tuple(DTYPES),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise InputError(f"{name} must be one of {', '.join(values)}, not {getattr(self, name)!r}")
        check_name(self.device)  # whether it is there is for whoever measures to say
        if self.memory is not None and self.memory < 1:
            raise InputError(f"memory must be a positive number of bytes, not {self.memory}")


DEEP_SPACES = ("nb101", "darts")  # there the largest gradients belong to deep cells, which train badly


@dataclass(frozen=True)
class Metric:
    """One metric: what it is, where it comes from, and the function that reads it off a measurement.

    `needs` names what has to be computed: `labels`, `gradients`, `second order`, `kernel`, `codes`, `input gradients`,
    `per-sample gradients`, `second order of samples`, `float64` (whatever the dtype is), `parts` (of the batch, and
    their gradients), `features` (correlations of channels), `cells`, `forward passes`, `counting`, `timing`. Metrics
    that need `timing` differ from run to run and are left out of `all`.
    `precision` says that half precision would round away what is read: it is refused.

    `higher_is_better` is the direction of the metric's paper, and no space changes it. `reversed_on` warns of spaces
    where accuracies fall as the metric gets better; docs/metrics.md has the numbers.
    """

    name: str
    formula: str
    source: str
    higher_is_better: bool
    needs: frozenset[str]
    compute: Callable[[Measurement], float | Value] = field(repr=False)
    about: str = ""
    version: int = 1  # of the code: a stored value of another version is not this metric
    reversed_on: tuple[str, ...] = ()  # spaces where the measured direction is the other one

    @property
    def reproducible(self) -> bool:
        """Whether the same network, batch and seed give the same value."""
        return "timing" not in self.needs

    def value(self, measurement: Measurement) -> Value:
        """The value or the reason why there is none; NaN never leaves a metric."""
        try:
            out = self.compute(measurement)
        except UndefinedValue as reason:
            return Value(None, str(reason))
        if not isinstance(out, Value):
            out = Value(out)
        if out.value is not None and math.isnan(out.value):
            return Value(None, out.flag or f"{self.name} is not a number on this network and batch")
        if out.value is not None and math.isinf(out.value) and not out.flag:
            return Value(None, f"{self.name} is beyond the range of {measurement.options.dtype} numbers")
        return out


@dataclass(frozen=True)
class LossPass:
    """What one backward pass of the batch loss leaves: g, Hθ if tangents were carried, and what metrics asked for."""

    g: dict[str, Tensor]
    H_theta: dict[str, Tensor] | None
    fisher: dict[str, Tensor]  # sums by layer
    by_part: dict[str, Tensor]  # g from parts of the batch, (parts, *shape)


class Measurement:
    """One network on one batch; every pass is made once, when the first metric asks for it."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, options: Options, needs: frozenset[str]) -> None:
        self.model, self.x, self.y, self.options, self.needs = model, x, y, options, needs
        self.m = len(x)
        self.no_tangent = ""  # the operation that tangents could not pass
        self.random = False  # whether the forward pass draws random numbers

    # --- the passes ----------------------------------------------------------------------------------------------

    @cached_property
    def tape(self) -> Tape:
        """The one forward pass."""
        if "second order" in self.needs:
            try:
                return self._record(self.direction)
            except NoTangentError as error:
                self.no_tangent = str(error)
        return self._record(None)

    def _record(self, direction: Mapping[str, Tensor] | None) -> Tape:
        """The pass with recorded layers, or, where they disturb the model, one that leaves all to autograd."""
        cells = list[nn.Module]()
        if "cells" in self.needs:
            cells = cells_of(self.model)
        noted: dict[str, Any] = {"cells": cells, "memory": self.options.memory}
        noted |= {need: need in self.needs for need in ("codes", "features")}
        generator = torch.get_rng_state()
        try:
            tape = record(
                self.model, self.x, direction=direction, dtype=self.dtype, fisher="fisher" in self.needs, **noted
            )  # fmt: skip
            _ = tape.samples
        except InputError as error:
            try:
                tape = record(self.model, self.x, dtype=self.dtype, plain=True, **noted)
                _ = tape.samples
            except InputError:
                raise error from None
            self.no_tangent = "a model that writes into its input or differentiates inside"
        self.random = not torch.equal(generator, torch.get_rng_state())
        if not tape.notes.by_row and tape.samples != "together" and self._depends_on_others(tape):
            tape.samples = "together"
        return tape

    def _depends_on_others(self, tape: Tape) -> bool:
        """Whether outputs change without the first sample and in another order: also by ways that have no gradient."""
        if self.m == 1 or tape.notes.batch_norms or self.random:
            return False
        try:
            f = outputs(self.model, self.x[1:].flip(0), self.dtype).flip(0)
        except InputError:
            return False  # a model for batches of one size
        size = float(tape.f.detach().abs().max()) * SAME[self.options.dtype]
        return not bool(((f - tape.f[1:]).abs() <= size).all())

    @cached_property
    def f(self) -> Tensor:
        """Logits (m, n), finite, as many as the labels need."""
        f = self.tape.f.detach()
        if not bool(f.isfinite().all()):
            raise UndefinedValue("the network's output is not finite")
        return f

    @cached_property
    def loss_pass(self) -> LossPass:
        """g of the batch loss and, if a metric needs it, Hθ from the same pass."""
        delta = self.loss_gradient() / self.m
        sums: dict[str, Tensor] = {}
        fisher = None
        if "fisher" in self.needs:
            fisher = sums
        by_part = None
        parts = PartGradients(min(PARTS, self.m))
        if "parts" in self.needs:
            by_part = parts
        asked: dict[str, Any] = {"fisher": fisher, "by_part": by_part}
        asked["names"] = [n for n in self.tape.parameters if n in self.theta]
        if self.tape.ft is not None:
            delta_dot = self.loss_tangent(self.tape.ft.detach()) / self.m
            return LossPass(*self.tape.dual_gradient(delta, delta_dot, **asked), sums, parts.found)
        return LossPass(self.tape.gradient(delta, **asked), None, sums, parts.found)

    @cached_property
    def H_theta(self) -> dict[str, Tensor]:  # noqa: N802
        """Hθ of the batch loss, from the pass that gave g or from a double backward."""
        if self.loss_pass.H_theta is not None:
            return self.loss_pass.H_theta
        if self.no_tangent:
            return self.double_backward
        return {n: torch.zeros_like(t) for n, t in self.g.items()}  # nothing moves along θ

    @cached_property
    def double_backward(self) -> dict[str, Tensor]:
        """Hθ by stock autograd, if it is what a finite difference of g says.

        Some functions' second derivatives are wrong in silence: those that may be differentiated once, and torch's own
        weight norm in the other order.
        """
        with self.second_derivatives():
            H = self.plain_tape.curvature(self._batch_loss_gradient, self.direction)
            g, dg = self.g, self._gradient_along(STEP)
        expected, found = self.dot({n: g[n].double() for n in H}, dg), self.dot(g, H)
        size = math.sqrt(self.dot(g, g) * max(self.dot(H, H), self.dot(dg, dg)))
        if abs(expected - found) > AGREE * size:
            raise UndefinedValue(f"the second derivative of {self.no_tangent} is not what a finite difference says")
        return H

    def _batch_loss_gradient(self, f: Tensor) -> Tensor:
        return self.loss_gradient_of(f) / self.m

    def _gradient_along(self, step: float) -> dict[str, Tensor]:
        """(g(θ + hθ) − g(θ − hθ)) / 2h in float64."""
        ends = []
        for t in (1 + step, 1 - step):
            values = {n: p.detach().double() for n, p in Parts(self.model).parameters.items()}
            values |= {n: values[n] * t for n in self.direction}
            tape = record(self.model, self.x, dtype=torch.float64, plain=True, values=values)
            ends.append(tape.gradient(self._batch_loss_gradient(tape.f.detach()), names=self.direction))
        return {n: (ends[0][n] - ends[1][n]) / (2 * step) for n in self.direction}

    @cached_property
    def plain_tape(self) -> Tape:
        """A pass that autograd can differentiate twice."""
        return record(self.model, self.x, dtype=self.dtype, memory=self.options.memory, plain=True)

    @contextmanager
    def second_derivatives(self) -> Iterator[None]:
        """Where torch has none, the values that need them do not exist."""
        try:
            yield
        except (RuntimeError, NotImplementedError, InputError):
            raise UndefinedValue(f"{self.no_tangent} has no second derivative in torch") from None

    @cached_property
    def g(self) -> dict[str, Tensor]:
        """The gradient of the batch loss, through the batch statistics, by parameter."""
        if any(not bool(t.isfinite().all()) for t in self.loss_pass.g.values()):
            raise UndefinedValue("the gradient is not finite")
        return self.loss_pass.g

    @cached_property
    def kernel(self) -> Kernel:
        """Θ0 on the batch."""
        _ = self.f
        if self.options.reduction == "label":
            self._check_labels()
        kernel = empirical.gram(
            self.tape, self.y, reduction=self.options.reduction, batch_norm=self.options.batch_norm,
            parameterisation=self.options.parameterisation, theta=self.theta, chunk=self.chunk,
        )  # fmt: skip
        if not np.isfinite(kernel.gram).all():
            raise UndefinedValue("the kernel is not finite")
        return kernel

    # --- the loss ------------------------------------------------------------------------------------------------

    def _check_labels(self) -> None:
        n = self.f.shape[1]
        if n > 1 and int(self.y.max()) >= n:
            raise InputError(f"the network has {n} outputs, the batch has the label {int(self.y.max())}")

    def loss_gradient(self) -> Tensor:
        """∂ℓ_i/∂f_i: (m, n), not divided by m."""
        self._check_labels()
        return self.loss_gradient_of(self.f)

    def loss_gradient_of(self, f: Tensor) -> Tensor:
        """The same as a function of f, to be differentiated."""
        n = f.shape[1]
        if self.options.loss == "cross_entropy":
            if n == 1:
                raise UndefinedValue("the cross-entropy of a single output is constant; take loss='mse'")
            return f.softmax(1).scatter_add(1, self.y[:, None], torch.full_like(f[:, :1], -1.0))
        target = self.y[:, None]
        if n > 1:
            target = torch.nn.functional.one_hot(self.y, n)
        return f - target.to(f.dtype)

    def loss_tangent(self, f_dot: Tensor) -> Tensor:
        """The derivative of ∂ℓ_i/∂f_i along f_dot: (m, n), not divided by m."""
        if self.options.loss == "mse":
            return f_dot
        p = self.f.softmax(1)
        return p * f_dot - p * (p * f_dot).sum(1, keepdim=True)  # (diag(p) − p pᵀ) ḟ

    # --- small facts -----------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """Of the arithmetic."""
        return DTYPES[self.options.dtype]

    @property
    def eps(self) -> float:
        """What 1 is rounded to in that arithmetic."""
        return torch.finfo(self.dtype).eps

    @property
    def chunk(self) -> int:
        """Bytes for one layer's per-sample gradients."""
        if self.options.memory is None:
            return CHUNK_BYTES
        return max(1 << 20, min(CHUNK_BYTES, self.options.memory // 16))

    @cached_property
    def direction(self) -> dict[str, Tensor]:
        """θ, the parameters that count: GraSP moves along them."""
        parameters = Parts(self.model).parameters
        return {name: parameters[name] for name in sorted(chosen(parameters, self.options.parameters))}

    @cached_property
    def theta(self) -> frozenset[str]:
        """Their names."""
        return frozenset(self.direction)

    def scale(self, name: str) -> float:
        """1, or 1/fan_in in the ntk parameterisation: what multiplies products of two gradients."""
        return share(tuple(self.tape.parameters[name].shape), self.options.parameterisation)

    @cached_property
    def doubt(self) -> str:
        """Reasons to doubt every value, or nothing."""
        reasons = []
        if self.m > 1 and bool((self.f == self.f[:1]).all()):
            if bool((self.x == self.x[:1]).all()):
                reasons.append("all inputs are the same")
            else:
                reasons.append("the network's output does not depend on its input")
        if self.random:
            reasons.append("the network draws random numbers, so that no two passes agree")
        notes = self.tape.notes
        if "NativeBatchNorm" in notes.hidden:
            reasons.append("a batch norm that cannot be seen was left as it is")
        if not reasons and any(float(inv.min()) ** 2 * eps > 1 - FLAT for inv, eps in notes.scales):
            reasons.append("a batch norm met values without variance, so that only its ε and rounding are left")
        return "; ".join(reasons)

    @property
    def together(self) -> str:
        """A reason to doubt what is made of single samples, or nothing."""
        if self.tape.samples == "together":
            return (
                "the samples of a batch see each other, beyond batch norm: single samples have no gradient of their own"
            )
        return ""

    @property
    def elsewhere(self) -> str:
        """A reason to doubt what is read off layers, or nothing."""
        if self.tape.samples == "elsewhere":
            return "the rows of some layer are not those of the batch"
        return self.together

    def with_doubt(self, value: float, *flags: str) -> Value:
        """The value, flagged with every reason to doubt it."""
        return Value(value, "; ".join(flag for flag in (self.doubt, *flags) if flag))

    def dot(self, a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
        """⟨a, b⟩ over θ in float64, in the chosen parameterisation."""
        return sum(self.scale(n) * _dot(a[n], b[n]) for n in a)


def _dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩, its products in float64 too where they leave the range of float32."""
    total = float(torch.sum(a * b, dtype=torch.float64))
    if not 1e-30 < abs(total) < math.inf:
        total = float(torch.sum(a.double() * b.double()))
    return total


def needs(*names: str) -> frozenset[str]:
    """A set of needs, spelled out where a metric is defined."""
    return frozenset(names)
