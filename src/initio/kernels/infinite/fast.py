"""Two fast ways to evaluate the dual of a `Mixture` on blocks of a matrix; both agree with its double sum.

**Table**, when all variances are equal, as for inputs on a sphere: the dual is then a function of ρ alone. It is even
or odd in ρ and analytic in t = arsinh(arccos|ρ| / δ) in a strip of half-width π/2 around the real axis, with δ the
distance of the nearest singularity of the arctangents. Cells of width 1/4 with polynomials of degree 10 leave an error
near 1e-15.

**Hermite series**, when variances differ: the n-th term is f_n(a) f_n(b) ρ^pₙ, an outer product. By Cauchy-Schwarz,
what is cut off is at most the geometric mean of the two diagonal tails, which are known exactly; the series is used
only if that is below 1e-13 of the diagonal with at most 256 terms.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import torch
from numpy.polynomial.chebyshev import cheb2poly
from torch import Tensor

if TYPE_CHECKING:
    from initio.kernels.infinite.duals import Mixture, Moments, PairMoments

WIDTH, DEGREE = 0.25, 10  # of a cell of the table and of its polynomial
TAIL, TERMS = 1e-13, 256  # of the series: relative truncation error of the derivative kernel's diagonal, most terms
TINY = torch.finfo(torch.float64).tiny


# --- the Hermite series ----------------------------------------------------------------------------------------------


def hermite_pairs(dual: Mixture, q_rows: Tensor, q_columns: Tensor, gain: float = 1.0) -> PairMoments | None:
    """Blocks of `gain` times the moments by the series, or None when `TERMS` terms are too few for these variances."""
    terms = terms_needed(dual, torch.maximum(q_rows.max(), q_columns.max()))
    if terms is None:
        return None
    f = hermite_terms(dual, q_rows, terms)
    g = f if q_columns is q_rows else hermite_terms(dual, q_columns, terms)
    f, g, quarter = math.sqrt(gain) * f, math.sqrt(gain) * g, 0.25 * gain
    root_rows, root_columns = torch.sqrt(q_rows), torch.sqrt(q_columns)

    def pairs(rows: slice, columns: slice, rho: Tensor) -> Moments:
        value, slope = _horner(dual.gated, f[:, rows], g[:, columns], rho)
        root = root_rows[rows, None] * root_columns[None, columns]
        slope /= root.clamp_min(TINY)
        if dual.gated:
            value.addcmul_(root, rho, value=quarter)
            slope.add_(quarter)
        return value, slope

    return pairs


def _horner(gated: bool, f: Tensor, g: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
    """Σ f_n g_n ρ^p and Σ p f_n g_n ρ^(p−1), with p = 2n for gated activations and 2n + 1 for odd ones."""
    square = rho * rho
    value, slope = torch.zeros_like(rho), torch.zeros_like(rho)
    for n in reversed(range(len(f))):
        p = 2 * n + _parity(gated)
        value.mul_(square).addr_(f[n], g[n])
        if p > 0:
            slope.mul_(square).addr_(f[n], g[n], alpha=p)
    # Both sums are polynomials in ρ², one of them times ρ.
    if gated:
        slope.mul_(rho)
    else:
        value.mul_(rho)
    return value, slope


def _parity(gated: bool) -> int:
    """x times an odd activation is even."""
    return int(not gated)


def hermite_terms(dual: Mixture, q: Tensor, terms: int) -> Tensor:
    """f_n(q), one row a term: the normalised Hermite coefficients of σ(√q z), up to sign.

    With rᵢ = sᵢ²q / (1 + sᵢ²q) and α_n = Σ wᵢ rᵢ^(n+1/2), an odd activation has the coefficients
    √(C(2n, n) 4⁻ⁿ / (2π(2n+1))) α_n of degree 2n+1; x times it has √(q γ_n / 2π) (2n α_{n−1} − (2n−1) α_n) of degree
    2n, γ_n = ((2n−3)!!)² / (2n)!.
    """
    s = torch.tensor(dual.scales, dtype=q.dtype)[:, None]
    r = (s * s * q / (1 + s * s * q)).clamp_min(TINY)
    n = torch.arange(terms, dtype=q.dtype)[:, None]
    alpha = torch.zeros(terms, len(q), dtype=q.dtype)
    for weight, log_r in zip(dual.weights, torch.log(r), strict=True):
        alpha.add_(torch.exp((n + 0.5) * log_r), alpha=weight)
    if not dual.gated:
        ratio = (2 * n - 1) / (2 * n)  # of C(2n, n) 4⁻ⁿ to its predecessor
        ratio[0] = 1.0
        return torch.sqrt(torch.cumprod(ratio, 0) / (2 * math.pi * (2 * n + 1))) * alpha
    before = torch.cat([torch.zeros_like(alpha[:1]), alpha[:-1]])
    ratio = (2 * n - 3) ** 2 / (2 * n * (2 * n - 1))
    ratio[:2, 0] = torch.tensor([1.0, 0.5])[:terms]
    return torch.sqrt(q * torch.cumprod(ratio, 0) / (2 * math.pi)) * (2 * n * before - (2 * n - 1) * alpha)


def terms_needed(dual: Mixture, q: Tensor) -> int | None:
    """The smallest number of terms that leaves at most `TAIL` of E[σ'(u)²] at variance q; it grows with q."""
    q = q.reshape(1)
    f = hermite_terms(dual, q, TERMS)[:, 0]
    n = torch.arange(TERMS, dtype=q.dtype)
    whole = dual.diagonal(q)[1]
    kept = torch.cumsum((2 * n + _parity(dual.gated)) * f * f, 0) / q.clamp_min(TINY)
    if dual.gated:
        kept = 0.25 + kept  # of x/2, which the series leaves out
    enough = torch.nonzero(whole - kept <= TAIL * whole)
    return int(enough[0]) + 1 if len(enough) else None


# --- the table -------------------------------------------------------------------------------------------------------


def table_pairs(dual: Mixture, q: Tensor, gain: float = 1.0) -> PairMoments:
    """Blocks of `gain` times the moments for one common variance q, interpolated."""
    delta = math.acosh(1 + 1 / max(float(q) * max(dual.scales) ** 2, TINY))
    delta = min(max(delta, 1e-8), 1.0)  # below 1e-8 lies what a float64 correlation cannot resolve
    cells = math.ceil(math.asinh(math.pi / 2 / delta) / WIDTH + 1e-9)
    value_table, slope_table = (gain * table for table in _coefficients(dual, q, delta, cells))
    quarter = 0.25 * gain

    def pairs(rows: slice, columns: slice, rho: Tensor) -> Moments:
        theta = torch.acos(rho.abs())
        t = torch.log((theta + torch.sqrt(theta * theta + delta * delta)).mul_(1 / delta)).mul_(1 / WIDTH)
        cell = t.to(torch.int64).clamp_(0, cells - 1).reshape(-1)
        x = t.reshape(-1).sub_(cell).mul_(2).sub_(1)
        value, slope = (_polynomial(table, cell, x).reshape(rho.shape) for table in (value_table, slope_table))
        sign = torch.sign(rho)
        if dual.gated:
            return value.add_(rho, alpha=quarter * float(q)), slope.mul_(sign).add_(quarter)
        return value.mul_(sign), slope

    return pairs


def _polynomial(table: Tensor, cell: Tensor, x: Tensor) -> Tensor:
    total = table[DEGREE].index_select(0, cell)
    for k in range(DEGREE - 1, -1, -1):
        total.mul_(x).add_(table[k].index_select(0, cell))
    return total


def _coefficients(dual: Mixture, q: Tensor, delta: float, cells: int) -> tuple[Tensor, Tensor]:
    """For each cell the coefficients, lowest first, that interpolate the moments in its Chebyshev points.

    Of a gated activation only the part beside x/2 is tabulated, since that part has a parity.
    """
    nodes, chebyshev, powers = _nodes()
    t = (torch.arange(cells, dtype=torch.float64)[:, None] + (nodes + 1) / 2) * WIDTH
    rho = torch.cos(delta * torch.sinh(t)).reshape(1, -1)
    value, slope = _values(dual, q, rho)
    if dual.gated:
        value, slope = value - 0.25 * q * rho, slope - 0.25
    values = torch.stack([value.reshape(cells, -1), slope.reshape(cells, -1)])
    table = powers @ (chebyshev @ values.transpose(1, 2))
    return table[0].contiguous(), table[1].contiguous()


@cache
def _nodes() -> tuple[Tensor, Tensor, Tensor]:
    """Chebyshev points, the matrix from values there to Chebyshev coefficients, and from those to powers."""
    k = torch.arange(DEGREE + 1, dtype=torch.float64)
    angle = math.pi * (k + 0.5) / (DEGREE + 1)
    chebyshev = torch.cos(k[:, None] * angle) * (2 / (DEGREE + 1))
    chebyshev[0] /= 2
    powers = [[*cheb2poly([0] * n + [1]).tolist(), *[0.0] * (DEGREE - n)] for n in range(DEGREE + 1)]
    return torch.cos(angle), chebyshev, torch.tensor(powers, dtype=torch.float64).T


def _values(dual: Mixture, q: Tensor, rho: Tensor) -> Moments:
    """The moments by the series where it is short, by the double sum otherwise."""
    terms = terms_needed(dual, q)
    if terms is None:
        return dual.moments(q, q, rho)
    f = hermite_terms(dual, q.reshape(1), terms)
    value, slope = _horner(dual.gated, f, f.expand(-1, rho.numel()), rho.reshape(1, -1))
    value, slope = value.reshape(rho.shape), slope.reshape(rho.shape) / q.clamp_min(TINY)
    if dual.gated:
        value.add_(rho, alpha=0.25 * float(q))
        slope.add_(0.25)
    return value, slope
