"""What a metric is, and the measurement of one network on one batch that all metrics share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from initio.autodiff.layers import CHUNK_BYTES
from initio.autodiff.parts import Parts
from initio.autodiff.passes import double_backward
from initio.autodiff.tape import BatchNorm, NoTangentError, Tape, record
from initio.errors import InputError
from initio.kernels import empirical
from initio.kernels.empirical import Kernel, Parameterisation, Parameters, Reduction, chosen, share

Loss = Literal["cross_entropy", "mse"]
DTYPES = {"float32": torch.float32, "float64": torch.float64}


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
        dtype: `float32` or `float64`.
        memory: bytes that the process should stay below; None for no limit.
        seed: of the metrics that draw random numbers.
    """

    reduction: Reduction = "label"
    batch_norm: BatchNorm = "frozen"
    parameterisation: Parameterisation = "standard"
    parameters: Parameters = "weights"
    loss: Loss = "cross_entropy"
    dtype: Literal["float32", "float64"] = "float32"
    memory: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = {
            "reduction": ("label", "sum", "all"),
            "batch_norm": ("frozen", "coupled", "hooked"),
            "parameterisation": ("standard", "ntk"),
            "parameters": ("all", "weights"),
            "loss": ("cross_entropy", "mse"),
            "dtype": ("float32", "float64"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise InputError(f"{name} must be one of {', '.join(values)}, not {getattr(self, name)!r}")
        if self.memory is not None and self.memory < 1:
            raise InputError(f"memory must be a positive number of bytes, not {self.memory}")


@dataclass(frozen=True)
class Metric:
    """One metric: what it is, where it comes from, and the function that reads it off a measurement.

    `needs` names what has to be computed: `labels`, `gradients`, `second order`, `kernel`, `codes`, `input gradients`,
    `per-sample gradients`, `forward passes`, `timing`. Metrics that need `timing` differ from run to run and are
    left out of `all`.
    """

    name: str
    formula: str
    source: str
    higher_is_better: bool
    needs: frozenset[str]
    compute: Callable[[Measurement], float | Value] = field(repr=False)
    about: str = ""
    version: int = 1  # of the code: a stored value of another version is not this metric

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
        out = out if isinstance(out, Value) else Value(out)
        if out.value is not None and math.isnan(out.value):
            return Value(None, out.flag or f"{self.name} is not a number on this network and batch")
        return out


@dataclass(frozen=True)
class LossPass:
    """What one backward pass of the batch loss leaves: g, perhaps Hθ, and Fisher's sums by layer."""

    g: dict[str, Tensor]
    H_theta: dict[str, Tensor] | None
    fisher: dict[str, Tensor]


class Measurement:
    """One network on one batch; every pass is made once, when the first metric asks for it."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, options: Options, needs: frozenset[str]) -> None:
        self.model, self.x, self.y, self.options, self.needs = model, x, y, options, needs
        self.m = len(x)
        self.no_tangent = ""  # the operation that tangents could not pass

    # --- the passes ----------------------------------------------------------------------------------------------

    @cached_property
    def tape(self) -> Tape:
        """The one forward pass."""
        try:
            return self._record("second order" in self.needs)
        except NoTangentError as error:
            self.no_tangent = str(error)
            return self._record(False)

    def _record(self, tangents: bool) -> Tape:
        return record(
            self.model, self.x, dtype=self.dtype, tangents=tangents, theta=self.theta, codes="codes" in self.needs,
            fisher="fisher" in self.needs, memory=self.options.memory,
        )  # fmt: skip

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
        v, _ = self.loss_derivatives(None)
        fisher: dict[str, Tensor] = {}
        wanted = fisher if "fisher" in self.needs else None
        names = [n for n in self.tape.parameters if n in self.theta]
        if "second order" not in self.needs:
            return LossPass(self.tape.gradient(v / self.m, fisher=wanted, names=names), None, fisher)
        if self.tape.ft is None:  # nothing moves along θ, or it cannot be followed
            g = self.tape.gradient(v / self.m, fisher=wanted, names=names)
            return LossPass(g, self._double_backward() if self.no_tangent else g_zero(g), fisher)
        _, u = self.loss_derivatives(self.tape.ft.detach())
        return LossPass(*self.tape.dual_gradient(v / self.m, u / self.m, fisher=wanted, names=names), fisher)

    def _double_backward(self) -> dict[str, Tensor]:
        def cotangent(f: Tensor) -> Tensor:
            return self._derivatives(f, None)[0] / self.m

        try:
            return double_backward(self.model, self.x, cotangent, self.theta, self.dtype)
        except (RuntimeError, NotImplementedError):
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
        if not bool(torch.from_numpy(kernel.gram).isfinite().all()):
            raise UndefinedValue("the kernel is not finite")
        return kernel

    # --- the loss ------------------------------------------------------------------------------------------------

    def _check_labels(self) -> None:
        n = self.f.shape[1]
        if n > 1 and int(self.y.max()) >= n:
            raise InputError(f"the network has {n} outputs, the batch has the label {int(self.y.max())}")

    def loss_derivatives(self, f_dot: Tensor | None) -> tuple[Tensor, Tensor]:
        """∂ℓ_i/∂f_i, and its derivative along f_dot: two (m, n) matrices, not divided by m."""
        self._check_labels()
        return self._derivatives(self.f, f_dot)

    def _derivatives(self, f: Tensor, f_dot: Tensor | None) -> tuple[Tensor, Tensor]:
        n = f.shape[1]
        if self.options.loss == "mse":
            target = self.y[:, None].to(f.dtype) if n == 1 else torch.nn.functional.one_hot(self.y, n).to(f.dtype)
            return f - target, f if f_dot is None else f_dot
        if n == 1:
            raise UndefinedValue("the cross-entropy of a single output is constant; take loss='mse'")
        p = f.softmax(1)
        v = p.scatter_add(1, self.y[:, None], torch.full_like(f[:, :1], -1.0))
        if f_dot is None:
            return v, v
        return v, p * f_dot - p * (p * f_dot).sum(1, keepdim=True)

    # --- small facts -----------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """Of the arithmetic."""
        return DTYPES[self.options.dtype]

    @property
    def chunk(self) -> int:
        """Bytes for one layer's per-sample gradients."""
        return CHUNK_BYTES if self.options.memory is None else max(1 << 20, min(CHUNK_BYTES, self.options.memory // 16))

    @cached_property
    def theta(self) -> frozenset[str]:
        """Names of the parameters that count."""
        return chosen(Parts(self.model).parameters, self.options.parameters)

    def scale(self, name: str) -> float:
        """1, or 1/fan_in in the ntk parameterisation: what multiplies products of two gradients."""
        return share(tuple(self.tape.parameters[name].shape), self.options.parameterisation)

    @cached_property
    def doubt(self) -> str:
        """A reason to doubt every value, or nothing."""
        if self.m > 1 and bool((self.f == self.f[:1]).all()) and not bool((self.x == self.x[:1]).all()):
            return "the network's output does not depend on its input"
        return ""

    def with_doubt(self, value: float, *flags: str) -> Value:
        """The value, flagged with every reason to doubt it."""
        return Value(value, "; ".join(flag for flag in (self.doubt, *flags) if flag))

    def dot(self, a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
        """⟨a, b⟩ over θ in float64, in the chosen parameterisation."""
        return sum(self.scale(n) * float(torch.sum(a[n] * b[n], dtype=torch.float64)) for n in a)


def g_zero(g: dict[str, Tensor]) -> dict[str, Tensor]:
    """Zeros in the shape of a gradient."""
    return {n: torch.zeros_like(t) for n, t in g.items()}


def needs(*names: str) -> frozenset[str]:
    """A set of needs, spelled out where a metric is defined."""
    return frozenset(names)
