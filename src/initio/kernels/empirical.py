"""The empirical neural tangent kernel at initialisation: Θ(x, x') = J(x) J(x')ᵀ [NASI 1, HNAS 1].

Reductions of the n outputs:

    label   Θ_ij = ∇f_{y_i}(x_i) · ∇f_{y_j}(x_j)          the logit of the true class
    sum     Θ_ij = ∇Σ_k f_k(x_i) · ∇Σ_k f_k(x_j)          the sum of logits
    all     Θ_ij = Σ_k ∇f_k(x_i) · ∇f_k(x_j)              Σ_k of the per-class kernels; its trace is ‖Θ0‖_tr [NASI 9]

Conventions for batch norm, which couples the samples:

    frozen   the batch's mean and variance are constants: samples decouple, layer-wise kernels are exact
    coupled  f_i is differentiated through the batch statistics: one backward pass for each sample
    hooked   per-sample gradients are put together from one backward pass of Σ_i f_i through the batch statistics,
             for the weights of convolutions and linear layers only (as the HNAS authors' code does)

Without batch norm the first two agree, and the third too where no other parameters exist. The parameterisation `ntk`
divides a weight's share by its fan-in (Jacot: unit weights and 1/√fan_in in the forward; the function is the same).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from initio.autodiff.channels import bias_gradient
from initio.autodiff.layers import CHUNK_BYTES, fan_in
from initio.autodiff.record import Layer, Tape, plain_arithmetic, record
from initio.autodiff.switch import Statistics
from initio.kernels.spectrum import Spectrum

BatchNorm = Literal["frozen", "coupled", "hooked"]
Reduction = Literal["label", "sum", "all"]
Parameterisation = Literal["standard", "ntk"]
Parameters = Literal["all", "weights"]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel matrix with its spectrum, and a note when parts of it were computed the slow way."""

    gram: np.ndarray  # (m, m) or (mn, mn), float64
    precision: float
    note: str = ""

    @property
    def trace(self) -> float:
        """Σ_i Θ_ii."""
        return float(np.trace(self.gram))

    @property
    def spectrum(self) -> Spectrum:
        """Eigenvalues and condition."""
        return Spectrum(self.gram, self.precision)


def is_weight(parameter: Tensor) -> bool:
    """Whether a parameter is the weight of a convolution or linear layer, which is all that published codes count."""
    return parameter.ndim >= 2


def chosen(parameters: dict[str, Tensor], which: Parameters) -> frozenset[str]:
    """The names that make up θ."""
    return frozenset(n for n, p in parameters.items() if which == "all" or is_weight(p))


def share(shape: tuple[int, ...], parameterisation: Parameterisation) -> float:
    """What a parameter's contribution to the kernel is multiplied by."""
    if parameterisation == "ntk" and len(shape) >= 2:
        return 1 / fan_in(shape)
    return 1.0


def cotangents(f: Tensor, y: Tensor, reduction: Reduction) -> list[Tensor]:
    """What is back-propagated: one (m, n) matrix for `label` and `sum`, n of them for `all`."""
    m, n = f.shape
    if reduction == "sum" or n == 1:
        return [torch.ones_like(f)]
    if reduction == "label":
        return [torch.zeros_like(f).scatter_(1, y[:, None], 1.0)]
    eye = torch.eye(n, dtype=f.dtype, device=f.device)
    return [eye[k].expand(m, n) for k in range(n)]


class _Accumulator:
    """Adds up K = Σ_layers G Gᵀ while a backward pass visits the layers."""

    def __init__(self, tape: Tape, theta: frozenset[str], parameterisation: Parameterisation, chunk: int) -> None:
        self.K = torch.zeros(len(tape.x), len(tape.x), dtype=torch.float64, device=tape.x.device)
        self.tape, self.theta, self.parameterisation, self.chunk = tape, theta, parameterisation, chunk
        self.waiting: dict[str, Tensor] = {}  # gradients of parameters that are used more than once

    def __call__(self, layer: Layer, x: Tensor, delta: Tensor, _xt: Tensor | None, _dt: Tensor | None) -> None:
        if layer.geometry is None:
            self.add(layer.weight, x)
            self.add(layer.bias, delta)
            return
        if layer.weight in self.theta and layer.weight not in self.tape.notes.unknown:
            if self.tape.notes.uses[layer.weight] > 1:
                self.wait(layer.weight, layer.geometry.per_sample(x, delta, layer.shape).flatten(1))
            else:
                scale = share(layer.shape, self.parameterisation)
                self.K += scale * layer.geometry.gram(x, delta, layer.shape, self.chunk)
        if layer.bias:
            self.add(layer.bias, bias_gradient(delta, bool(layer.geometry.stride)))

    def add(self, name: str, G: Tensor) -> None:
        """A parameter whose per-sample gradients (m, p) are at hand."""
        if name not in self.theta or name in self.tape.notes.unknown:
            return
        if self.tape.notes.uses[name] > 1:
            self.wait(name, G)
        else:
            self.K += G.double() @ G.double().T

    def wait(self, name: str, G: Tensor) -> None:
        """One of several uses of a parameter, whose gradients are added before they are multiplied."""
        if name in self.waiting:
            G = self.waiting[name] + G
        self.waiting[name] = G

    def finish(self) -> Tensor:
        """K, with the parameters that had to wait for all their uses."""
        for name, G in self.waiting.items():
            self.K += share(tuple(self.tape.parameters[name].shape), self.parameterisation) * (G @ G.T).double()
        self.waiting.clear()
        return self.K


def layerwise(
    tape: Tape, cotangent: Tensor, batch_norm: BatchNorm, theta: frozenset[str], parameterisation: Parameterisation,
    chunk: int,
) -> Tensor:  # fmt: skip
    """K from one backward pass: exact when samples are decoupled, the HNAS authors' reading when they are not.

    Parameters that the fast path does not know are added by one backward pass for each sample.
    """
    mode: Statistics = "frozen"
    if batch_norm == "hooked":
        mode, theta = "coupled", frozenset(n for n in theta if is_weight(tape.parameters[n]))
    accumulator, slow = _Accumulator(tape, theta, parameterisation, chunk), theta
    if tape.samples == "apart":
        tape.visit(cotangent, accumulator, mode, theta)
        slow = theta & tape.notes.unknown
    K = accumulator.finish()
    if slow:
        K = K + one_by_one(tape, cotangent, mode, sorted(slow), parameterisation, chunk)
    return K


def one_by_one(
    tape: Tape, cotangent: Tensor, batch_norm: Statistics, names: list[str], parameterisation: Parameterisation,
    chunk: int,
) -> Tensor:  # fmt: skip
    """K from one backward pass of ⟨c_i, f_i⟩ for each sample; rows beyond the budget are computed again."""
    m = len(tape.x)
    size = sum(tape.parameters[n].numel() for n in names) * tape.f.element_size()
    rows = max(1, min(m, 8 * chunk // max(1, size)))

    def jacobian(samples: range) -> Tensor:
        out = []
        for i in samples:
            only = torch.zeros_like(cotangent)
            only[i] = cotangent[i]
            out.append(_row(tape, only, batch_norm, names, parameterisation))
        return torch.stack(out)

    blocks = [range(start, min(m, start + rows)) for start in range(0, m, rows)]
    K = torch.zeros(m, m, dtype=torch.float64, device=tape.x.device)
    for a, block in enumerate(blocks):
        J = jacobian(block)
        for b in range(a, len(blocks)):
            other = jacobian(blocks[b]) if b > a else J
            part = (J @ other.T).double()
            K[block.start : block.stop, blocks[b].start : blocks[b].stop] = part
            K[blocks[b].start : blocks[b].stop, block.start : block.stop] = part.T
    return K


def _row(
    tape: Tape, cotangent: Tensor, batch_norm: Statistics, names: list[str], parameterisation: Parameterisation
) -> Tensor:
    """The gradient of ⟨c, f⟩ as one vector, each parameter with the root of its share."""
    g = tape.gradient(cotangent, names=names, batch_norm=batch_norm)
    return torch.cat([(g[n] * share(tuple(g[n].shape), parameterisation) ** 0.5).flatten() for n in names])


def gram(
    tape: Tape, y: Tensor, *, reduction: Reduction = "label", batch_norm: BatchNorm,
    parameterisation: Parameterisation, theta: frozenset[str], chunk: int,
) -> Kernel:  # fmt: skip
    """The m x m kernel of a recorded network."""
    coupled = batch_norm == "coupled" and tape.notes.batch_norms > 0
    m, note = len(tape.x), ""
    if not coupled:
        note = slow_note(tape, theta)
        if batch_norm == "coupled":  # without batch norm both are the same, and this is faster
            batch_norm = "frozen"
    K = torch.zeros(m, m, dtype=torch.float64, device=tape.x.device)
    with plain_arithmetic():
        for c in cotangents(tape.f, y, reduction):
            if coupled:
                K = K + one_by_one(tape, c, "coupled", sorted(theta), parameterisation, chunk)
            else:
                K = K + layerwise(tape, c, batch_norm, theta, parameterisation, chunk)
    return Kernel(K.cpu().numpy(), float(torch.finfo(tape.f.dtype).eps), note)


def slow_note(tape: Tape, theta: frozenset[str]) -> str:
    """Which parameters the fast path did not know, or nothing."""
    names = sorted(theta & tape.notes.unknown)
    if not names:
        return ""
    what = ", ".join(sorted(tape.notes.operations))
    some = ", ".join([*names[:3], *["..."] * (len(names) > 3)])
    return f"{len(names)} parameters ({some}) are used by {what}: their share took one backward pass for each sample"


def ntk(
    model: nn.Module, x: Tensor, y: Tensor | None = None, *, reduction: Reduction = "label",
    batch_norm: BatchNorm = "frozen", parameterisation: Parameterisation = "standard", parameters: Parameters = "all",
    full: bool = False, dtype: torch.dtype = torch.float32, chunk: int = CHUNK_BYTES,
) -> Kernel:  # fmt: skip
    """The kernel of a model on inputs x (with labels y for `label`); `full` gives all mn x mn entries.

    Row i·n + k of the full kernel is class k of sample i. Two classes at a time, it is the label kernel of the batch
    repeated: the repetition does not change the batch statistics, and frozen samples do not see each other.

    >>> model = nn.Linear(2, 3, bias=False)
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> ntk(model, x, reduction="all").gram
    array([[3., 3.],
           [3., 6.]])
    >>> ntk(model, x, full=True).gram.shape
    (6, 6)
    """
    if full:
        return _full(model, x, batch_norm, parameterisation, parameters, dtype, chunk)
    tape = record(model, x, dtype=dtype)
    theta = chosen(tape.parameters, parameters)
    if y is None:
        y = torch.zeros(len(x), dtype=torch.long, device=x.device)
    return gram(
        tape, y, reduction=reduction, batch_norm=batch_norm, parameterisation=parameterisation, theta=theta,
        chunk=chunk,
    )  # fmt: skip


def _full(
    model: nn.Module, x: Tensor, batch_norm: BatchNorm, parameterisation: Parameterisation, parameters: Parameters,
    dtype: torch.dtype, chunk: int,
) -> Kernel:  # fmt: skip
    tape = record(model, x, dtype=dtype)
    if batch_norm == "coupled" and tape.notes.batch_norms:
        return _full_coupled(tape, chosen(tape.parameters, parameters), parameterisation)
    (m, n), note = tape.f.shape, ""
    K = np.zeros((m, n, m, n))
    for classes in itertools.combinations(range(n), min(2, n)):  # two at a time: the memory of two batches
        tape = record(model, x.repeat(len(classes), *(1,) * (x.ndim - 1)), dtype=dtype)
        labels = torch.tensor(classes).to(x.device).repeat_interleave(m)
        kernel = gram(
            tape, labels, batch_norm=batch_norm, parameterisation=parameterisation,
            theta=chosen(tape.parameters, parameters), chunk=chunk,
        )  # fmt: skip
        note = kernel.note
        part = kernel.gram.reshape(len(classes), m, len(classes), m)
        for a, ka in enumerate(classes):
            for b, kb in enumerate(classes):
                K[:, ka, :, kb] = part[a, :, b, :]
    return Kernel(K.reshape(m * n, m * n), float(torch.finfo(dtype).eps), note)


def _full_coupled(tape: Tape, theta: frozenset[str], parameterisation: Parameterisation) -> Kernel:
    rows = []
    for entry in range(tape.f.numel()):
        only = torch.zeros_like(tape.f)
        only.view(-1)[entry] = 1
        rows.append(_row(tape, only, "coupled", sorted(theta), parameterisation))
    J = torch.stack(rows)
    return Kernel((J @ J.T).double().cpu().numpy(), float(torch.finfo(J.dtype).eps))
