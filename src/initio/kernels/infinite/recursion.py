"""The limiting kernel of the networks of [Eigen 1], layer by layer.

The network of depth L whose limit is taken, in the scaling that [Eigen, Lemma 1] implies (weights i.i.d. N(0, 1)):

    f₁ = σ₁(W₁ x),   f_l = σ_l(√(2/m) W_l f_{l−1}) + α_{l−1} f_{l−1},   f = √(2/m) ⟨W_L, f_{L−1}⟩

Names are the lemma's: A^(l) is the covariance of what the l-th weights read (times 2), G^(l) that of the activations
alone, Ġ^(l) that of their derivatives. With S^(1) = 0 the sum of the lemma is the recursion

    S^(l+1) = (Ġ^(l+1) + α_{l−1}) ∘ S^(l) + F^(l) ∘ Ġ^(l+1),      K^(L) = F^(L) + S^(L).

`exact`: F = A, and A^(l+1) = G^(l+1) + α (A^(l) + 2 (s mᵀ + m sᵀ)) with s = E[σ_l], m = E[f_{l−1}] for each input: a
unit's new activation and its skipped value are independent but need not have mean zero. `printed`: the lemma to the
letter, F = G and no cross term. They agree without skips; a wide network decides for `exact` with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from initio.errors import InputError
from initio.kernels.infinite.duals import EQUAL, ETA, Dual, PairMoments, dual
from initio.kernels.spectrum import Spectrum

if TYPE_CHECKING:
    import numpy as np

Form = Literal["exact", "printed"]
GAIN = 2.0  # the lemma's factor: the variance of a weight times the width
TILE = 32768  # entries of a block: its few temporaries stay in a core's cache
SNAP = 1 + 8 * torch.finfo(torch.float64).eps  # correlations this close to ±1 are ±1: rounding, not information
SMALLEST = 1e-290  # variances below have lost digits


@dataclass(frozen=True)
class WideKernel:
    """The covariance of the outputs at initialisation and the neural tangent kernel, float64, N x N (or N x M).

    `flags` says what is special about the inputs: repeated or zero ones make the kernel singular.
    """

    nngp: Tensor
    ntk: Tensor
    flags: tuple[str, ...] = ()

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigenvalues of the neural tangent kernel, N x N."""
        return Spectrum(self.ntk.numpy())


@dataclass(frozen=True)
class Diagonal:
    """What one input decides, as vectors over inputs: variances A, F and S of the recursion, and m = E[f]."""

    A: Tensor
    F: Tensor
    S: Tensor
    m: Tensor

    @cached_property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest A."""
        low, high = torch.aminmax(self.A)
        return float(low), float(high)

    @property
    def equal(self) -> bool:
        """Whether all inputs have the same A, up to rounding."""
        return self.span[1] - self.span[0] <= EQUAL * self.span[1]


@dataclass(frozen=True)
class WideLayer:
    """One layer, prepared for blocks: the diagonals before it, 1/√A, its means, its dual for pairs of inputs."""

    rows: Diagonal
    columns: Diagonal
    inverse_rows: Tensor
    inverse_columns: Tensor
    s_rows: Tensor
    s_columns: Tensor
    pairs: PairMoments
    skip: bool
    form: Form
    scale: float | None = None  # 1/A where it is the same for all pairs


@dataclass(frozen=True)
class Block:
    """The matrices A, F and S for some rows and columns."""

    A: Tensor
    F: Tensor
    S: Tensor


def ntk(
    x: Tensor | np.ndarray,
    activations: Sequence[str],
    skips: Sequence[int] | None = None,
    *,
    other: Tensor | np.ndarray | None = None,
    form: Form = "exact",
    eta: float = ETA,
) -> WideKernel:
    """The kernels of an infinitely wide network between the inputs x, or between x and `other`.

    Args:
        x: N inputs, any norms; what follows the first dimension is flattened.
        activations: σ₁ .. σ_{L−1}, names of `dual`.
        skips: α₁ .. α_{L−2}, zeros and ones; none when not given.
        other: M further inputs; the kernels are then N x M.
        form: the chain rule's recursion (`exact`) or the lemma's (`printed`).
        eta: the slope of `leaky_relu`.

    >>> x = torch.eye(2, dtype=torch.float64)
    >>> ntk(x, ["relu", "relu"]).ntk
    tensor([[3.0000, 0.6857],
            [0.6857, 3.0000]], dtype=torch.float64)
    """
    names, alphas = check_architecture(activations, skips, form)
    duals = [dual(name, eta) for name in names]
    rows = as_inputs(x)
    columns = rows if other is None else as_inputs(other, "other")
    if rows.shape[1] != columns.shape[1]:
        raise InputError(f"x has {rows.shape[1]} features and other has {columns.shape[1]}: they must agree")
    shape = (len(rows), len(columns))
    kernel = WideKernel(torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64))
    with torch.inference_mode():  # half the cost of a small operation is autograd's
        layers, last = prepare(rows, columns, duals, alphas, form)
        repeated = _fill(kernel, rows, columns, layers, last)
        if columns is rows:
            kernel.nngp.diagonal().copy_(last.F)
            kernel.ntk.diagonal().copy_(last.F + last.S)
    return replace(kernel, flags=_flags(rows, repeated))


def _fill(
    kernel: WideKernel, rows: Tensor, columns: Tensor, layers: list[WideLayer], last: Diagonal
) -> list[tuple[int, int]]:
    """Runs all layers block by block and writes the kernels; returns the pairs of identical inputs of x."""
    symmetric, repeated = columns is rows, []
    for r, c in _tiles((len(rows), len(columns)), symmetric):
        first = rows[r] @ columns[c].T
        block = Block(first, first, torch.zeros_like(first))
        for layer in layers:
            block = step(block, layer, r, c)
        kernel.nngp[r, c] = block.F
        torch.add(block.F, block.S, out=kernel.ntk[r, c])
        equal = _identical(first, layers[0].rows.A[r], layers[0].columns.A[c], symmetric and r.start == c.start)
        if len(equal):
            i, j = equal[:, 0] + r.start, equal[:, 1] + c.start
            kernel.nngp[i, j], kernel.ntk[i, j] = last.F[i], last.F[i] + last.S[i]
            if symmetric:
                repeated += [(a, b) for a, b in zip(i.tolist(), j.tolist(), strict=True) if a < b]
        if symmetric:
            _mirror(kernel.nngp, r, c)
            _mirror(kernel.ntk, r, c)
    return repeated


def check_architecture(
    activations: Sequence[str], skips: Sequence[int] | None, form: str = "exact"
) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """Activations and skips as tuples, the skips one fewer, checked."""
    names = tuple(activations)
    if not names:
        raise InputError("a network needs at least one activation")
    alphas = (0,) * (len(names) - 1) if skips is None else tuple(map(int, skips))
    if len(alphas) != len(names) - 1 or not set(alphas) <= {0, 1}:
        raise InputError(f"{len(names)} activations go with {len(names) - 1} skips of 0 or 1, not with {list(alphas)}")
    if form not in ("exact", "printed"):
        raise InputError(f"form must be 'exact' or 'printed', not {form!r}")
    return names, tuple(map(bool, alphas))


def prepare(
    rows: Tensor, columns: Tensor, duals: Sequence[Dual], skips: Sequence[bool], form: Form
) -> tuple[list[WideLayer], Diagonal]:
    """All layers, ready for any block, and the rows' diagonals behind the last one."""
    before = first_diagonal(rows)
    other = before if columns is rows else first_diagonal(columns)
    layers = []
    for number, (sigma, skip) in enumerate(zip(duals, (False, *skips), strict=True), start=1):
        layer = make_layer(before, other, sigma, skip, form)
        layers.append(layer)
        before = advance(before, sigma, layer.s_rows, skip, form, number)
        other = before if columns is rows else advance(other, sigma, layer.s_columns, skip, form, number)
    return layers, before


def first_diagonal(x: Tensor) -> Diagonal:
    """Before the first layer: A = F = ‖x‖², S = m = 0."""
    q = (x * x).sum(1)
    return Diagonal(q, q, torch.zeros_like(q), torch.zeros_like(q))


def make_layer(rows: Diagonal, columns: Diagonal, sigma: Dual, skip: bool, form: Form) -> WideLayer:
    """A layer behind these diagonals."""
    root, s = SNAP / torch.sqrt(rows.A.clamp_min(SMALLEST)), sigma.mean(rows.A)
    if columns is rows:
        scale = SNAP / max(rows.span[1], SMALLEST) if rows.equal else None
        return WideLayer(rows, rows, root, root / SNAP, s, s, sigma.pairs(rows.A, rows.A, GAIN), skip, form, scale)
    inverse = 1 / torch.sqrt(columns.A.clamp_min(SMALLEST))
    pairs = sigma.pairs(rows.A, columns.A, GAIN)
    return WideLayer(rows, columns, root, inverse, s, sigma.mean(columns.A), pairs, skip, form)


def advance(before: Diagonal, sigma: Dual, s: Tensor, skip: bool, form: Form, number: int) -> Diagonal:
    """The diagonals behind a layer; the same recursion as `step`, without correlations."""
    g, g_dot = _once(sigma, before)
    G, dot, m = GAIN * g, GAIN * g_dot, s
    S = dot * (before.S + before.F)
    A = F = G
    if skip:
        S = S + before.S
        A = G + before.A
        m = s + before.m
        if form == "exact":
            A = F = A + 2 * GAIN * s * before.m
    after = Diagonal(A, F, S, m)
    if not math.isfinite(after.span[1]) or not math.isfinite(float(S.max())):
        raise InputError(f"the kernel is too large for float64 behind layer {number}: use fewer layers or skips")
    if after.span[0] < SMALLEST and bool(((A < SMALLEST) & (before.A > 0)).any()):
        raise InputError(f"the kernel is too small for float64 behind layer {number}: use fewer layers")
    return after


def _once(sigma: Dual, before: Diagonal) -> tuple[Tensor, Tensor]:
    """`sigma.diagonal`, computed once when all variances are equal."""
    q = before.A
    if len(q) > 1 and before.equal:
        value, slope = sigma.diagonal(q[:1])
        return value * (q / max(before.span[1], SMALLEST)), slope.expand_as(q)
    return sigma.diagonal(q)


def step(block: Block, layer: WideLayer, r: slice, c: slice) -> Block:
    """One layer of the recursion for rows r and columns c."""
    if layer.scale is None:
        rho = (block.A * layer.inverse_rows[r, None]).mul_(layer.inverse_columns[c]).clamp_(-1.0, 1.0)
    else:
        rho = (block.A * layer.scale).clamp_(-1.0, 1.0)
    G, dot = layer.pairs(r, c, rho)
    S = torch.add(block.S, block.F).mul_(dot)
    if not layer.skip:
        return Block(G, G, S)
    S.add_(block.S)
    A = torch.add(G, block.A)
    if layer.form == "printed":
        return Block(A, G, S)
    A.addr_(layer.s_rows[r], layer.columns.m[c], alpha=GAIN)
    A.addr_(layer.rows.m[r], layer.s_columns[c], alpha=GAIN)
    return Block(A, A, S)


def _tiles(shape: tuple[int, int], symmetric: bool) -> Iterator[tuple[slice, slice]]:
    """Blocks of about `TILE` entries; of a symmetric matrix, those on and right of the diagonal."""
    height = 64  # of a symmetric matrix, about 32 N entries left of the diagonal are computed in vain
    width = TILE // height
    for top in range(0, shape[0], height):
        for left in range(top if symmetric else 0, shape[1], width):
            yield slice(top, min(top + height, shape[0])), slice(left, min(left + width, shape[1]))


def _mirror(matrix: Tensor, r: slice, c: slice) -> None:
    """Copies a block of the upper triangle to the lower one, so that symmetry is exact."""
    if c.start == r.start:
        square = matrix[r, r]
        square.copy_(torch.triu(square) + torch.triu(square, 1).T)
        c = slice(r.stop, c.stop)
    matrix[c, r] = matrix[r, c].T


def _identical(c: Tensor, rows: Tensor, columns: Tensor, diagonal: bool) -> Tensor:
    """Index pairs of inputs that cannot be told apart in float64; `diagonal` leaves out each input with itself."""
    near = 2 * SNAP * c >= rows[:, None] + columns  # ‖x − y‖² ≤ rounding
    if diagonal:
        near.fill_diagonal_(False)
    if not bool(near.any()):
        return near.new_zeros((0, 2), dtype=torch.int64)
    return (near & (rows[:, None] > 0) & (columns > 0)).nonzero()


def as_inputs(x: Tensor | np.ndarray, name: str = "x", dtype: torch.dtype = torch.float64) -> Tensor:
    """Inputs as the rows of a matrix of the wanted type, checked; a copy where numpy's memory is read-only."""
    if not isinstance(x, Tensor):
        x = torch.tensor(x, dtype=dtype)
    tensor = x.detach().to(dtype)
    if tensor.ndim < 2 or 0 in tensor.shape:
        raise InputError(f"{name} must hold at least one input and one feature, not shape {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()):
        where = int((~torch.isfinite(tensor.reshape(len(tensor), -1)).all(1)).nonzero()[0])
        raise InputError(f"input {where} of {name} is not finite")
    return tensor.reshape(len(tensor), -1)


def _flags(x: Tensor, repeated: list[tuple[int, int]]) -> tuple[str, ...]:
    """Sentences on what makes the kernel singular."""
    flags = []
    if zero := (x == 0).all(1).nonzero().reshape(-1).tolist():
        flags.append(f"input {zero[0]} is zero" + _more(len(zero)))
    if repeated:
        flags.append(f"inputs {repeated[0][0]} and {repeated[0][1]} are identical" + _more(len(repeated)))
    return tuple(flags)


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
