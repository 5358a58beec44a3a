"""The recursion for many architectures at once, on a few pairs of inputs of norm 1.

A pair (i, j) has K_ii = K_jj, so λ_min(K) ≤ K_ii − K_ij, for any kernel that contains it. Kept for each architecture
are the diagonals A, S and the mean m, which all inputs share, and for each pair the differences ΔA = A_ii − A_ij and
ΔS. The cross term of a skip is the same for all pairs and cancels from ΔA. With K = A + S and a layer's G, Ġ:

    ΔA' = ΔG + α ΔA,      ΔS' = α ΔS + Ġ ΔK + ΔĠ K_ij,      A' = G + α (A + 4sm),      S' = α S + Ġ K.

ReLU and LeakyReLU are closed forms. For smooth activations the ratios ΔG / (Ġ ΔA) and ΔĠ / (Ġ x), x = ΔA/A, are
smooth functions of log A and log x; they are tabulated once and interpolated, with an error that `TOLERANCE` more than
covers over ten layers (tests).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from initio.kernels.infinite.duals import ETA, LeakyReLU, dual

TOLERANCE = 2e-3  # relative, of K_ii − K_ij
RANGE_Q, RANGE_X = (1e-11, 1e7), (1e-7, 2.0)  # of the tables; below the smallest x the ratios are constant
COARSE, FINE = (140, 60), (1280, 512)  # points of the tables: exact, and spline-interpolated between them


@dataclass(frozen=True)
class LayerMoments:
    """Of one layer: G, ΔG, Ġ, ΔĠ (with the lemma's factor 2) and the mean s."""

    G: Tensor
    d_g: Tensor
    dot: Tensor
    d_dot: Tensor
    s: Tensor


@dataclass(frozen=True)
class Pairs:
    """n architectures (rows) on p pairs (columns of d_a and d_s); A, S and m have one column."""

    A: Tensor
    S: Tensor
    m: Tensor
    d_a: Tensor
    d_s: Tensor

    def __len__(self) -> int:
        return len(self.A)

    @property
    def diagonal(self) -> Tensor:
        """The kernel's diagonal."""
        return self.A + self.S

    @property
    def gap(self) -> Tensor:
        """K_ii − K_ij."""
        return self.d_a + self.d_s

    def __getitem__(self, rows: Tensor | slice) -> Pairs:
        return Pairs(self.A[rows], self.S[rows], self.m[rows], self.d_a[rows], self.d_s[rows])


def start(correlations: Tensor) -> Pairs:
    """One architecture without layers, on pairs of unit vectors with these correlations."""
    one = torch.ones(1, 1, dtype=torch.float64)
    x = (1 - correlations.to(torch.float64)).reshape(1, -1)
    return Pairs(one, 0 * one, 0 * one, x, 0 * x)


def stack(parts: Iterable[Pairs]) -> Pairs:
    """All rows below each other."""
    columns = zip(*((p.A, p.S, p.m, p.d_a, p.d_s) for p in parts), strict=True)
    return Pairs(*(torch.cat(column) for column in columns))


def advance(pairs: Pairs, layer: LayerMoments, skip: bool) -> Pairs:
    """One more layer."""
    K, dK = pairs.diagonal, pairs.gap
    S = layer.dot * K
    dS = layer.dot * dK + layer.d_dot * (K - dK)
    if not skip:
        return Pairs(layer.G, S, layer.s, layer.d_g, dS)
    A = layer.G + pairs.A + 4 * layer.s * pairs.m
    return Pairs(A, S + pairs.S, layer.s + pairs.m, layer.d_g + pairs.d_a, dS + pairs.d_s)


def moments(name: str, pairs: Pairs, eta: float = ETA) -> LayerMoments:
    """The activation's moments for every row and pair."""
    x = (pairs.d_a / pairs.A).clamp(1e-15, 2.0)
    below_zero = {"relu": 0.0, "leaky_relu": eta}
    if name in below_zero:
        return _piecewise_linear(below_zero[name], pairs.A, x)
    return table(name).moments(pairs.A, x)


def _piecewise_linear(eta: float, q: Tensor, x: Tensor) -> LayerMoments:
    """LeakyReLU; θ = arccos(1 − x) without cancellation."""
    theta = 2 * torch.asin(torch.sqrt(x / 2))
    weight, square, rho = (1 - eta) ** 2 / math.pi, 1 + eta * eta, 1 - x
    G_ij = 2 * eta * rho + weight * (torch.sin(theta) + (math.pi - theta) * rho)
    return LayerMoments(
        square * q, q * (square - G_ij), torch.full_like(q, square), weight * theta, LeakyReLU(eta).mean(q)
    )


@dataclass(frozen=True)
class RatioTable:
    """A smooth activation's ratios on the fine grid, and what bounds them for all x."""

    name: str

    @cached_property
    def _grid(self) -> tuple[Tensor, Tensor, Tensor]:
        """ΔG/(Ġ ΔA), ΔĠ/(Ġ x), and the rows G/A, Ġ, s/A over log A."""
        from scipy.interpolate import RectBivariateSpline

        sigma = dual(self.name)
        q, x = _log_grid(RANGE_Q, COARSE[0]), _log_grid(RANGE_X, COARSE[1])
        q_fine, x_fine = _log_grid(RANGE_Q, FINE[0]), _log_grid(RANGE_X, FINE[1])
        g, g_dot = sigma.diagonal(q)
        value, slope = sigma.moments(q[:, None], q[:, None], (1 - x)[None].expand(COARSE))
        ratios = (
            (g[:, None] - value) / (g_dot[:, None] * q[:, None] * x),
            (g_dot[:, None] - slope) / (g_dot[:, None] * x),
        )
        logs = [torch.log(t).numpy() for t in (q, x, q_fine, x_fine)]
        fine = [torch.from_numpy(RectBivariateSpline(*logs[:2], r.numpy())(*logs[2:])) for r in ratios]
        g, g_dot = sigma.diagonal(q_fine)
        lines = torch.stack([2 * g / q_fine, 2 * g_dot, sigma.mean(q_fine) / q_fine])
        return fine[0].reshape(-1).contiguous(), fine[1].reshape(-1).contiguous(), lines.contiguous()

    def moments(self, q: Tensor, x: Tensor) -> LayerMoments:
        """Linear in log A, bilinear in (log A, log x)."""
        first, second, lines = self._grid
        i, u = _place(q, RANGE_Q, FINE[0])
        j, v = _place(x, RANGE_X, FINE[1])
        corner = i * FINE[1] + j
        ratio, d_ratio = (_bilinear(table, corner, u, v) for table in (first, second))
        G, dot, s = (torch.lerp(line[i], line[i + 1], u) for line in lines)
        return LayerMoments(G * q, ratio * dot * q * x, dot, d_ratio * dot * x, s * q)

    @cached_property
    def bound_lines(self) -> Tensor:
        """Over log A: Ġ, and the largest ΔĠ/x for any x."""
        _, second, lines = self._grid
        return torch.stack([lines[1], second.reshape(FINE).max(1).values * lines[1]])


_TABLES: dict[str, RatioTable] = {}


def table(name: str) -> RatioTable:
    """The table of an activation, made once."""
    return _TABLES.setdefault(name, RatioTable(name))


def gap_bound(pairs: Pairs, names: Sequence[str], eta: float = ETA) -> Tensor:
    """At least K_ii − K_ij behind one more layer with a skip and any of these activations, and cheap.

    By Price's theorem ΔG ≤ Ġ ΔA; ΔĠ is at most √(x/2) for the piecewise linear activations and min(Ġ, B x) for smooth
    ones, with B a function of A alone.
    """
    x = pairs.d_a / pairs.A
    dot, d_dot = torch.full_like(pairs.A, 1 + eta * eta), torch.sqrt(x / 2)
    smooth = [table(name).bound_lines for name in names if name not in ("relu", "leaky_relu")]
    if smooth:
        i, u = _place(pairs.A, RANGE_Q, FINE[0])
        steep, curved = (torch.lerp(line[i], line[i + 1], u) for line in torch.stack(smooth).amax(0))
        dot, d_dot = torch.maximum(dot, steep), torch.maximum(d_dot, torch.minimum(steep, curved * x))
    gap = pairs.gap
    return gap * (1 + dot) + dot * pairs.d_a + d_dot * (pairs.diagonal - gap)


def _log_grid(span: tuple[float, float], count: int) -> Tensor:
    return torch.from_numpy(np.geomspace(*span, count))


def _place(value: Tensor, span: tuple[float, float], count: int) -> tuple[Tensor, Tensor]:
    """The cell of a value on a logarithmic grid, and where in it."""
    low, high = math.log(span[0]), math.log(span[1])
    position = ((torch.log(value) - low) * ((count - 1) / (high - low))).clamp_(0, count - 1)
    cell = position.to(torch.int64).clamp_(max=count - 2)
    return cell, position - cell


def _bilinear(table: Tensor, corner: Tensor, u: Tensor, v: Tensor) -> Tensor:
    low = torch.lerp(table[corner], table[corner + 1], v)
    high = torch.lerp(table[corner + FINE[1]], table[corner + FINE[1] + 1], v)
    return torch.lerp(low, high, u)
