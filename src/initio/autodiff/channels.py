"""Sums and combinations by channel, which batch norm is made of; compiled kernels take them where they can."""

from __future__ import annotations

import torch
from torch import Tensor

from initio.autodiff import fused


def sums(a: Tensor, b: Tensor, c: Tensor | None = None, e: Tensor | None = None) -> list[Tensor]:
    """Σ over positions of a, ab, ae, c, cb, each (m, C) in float64; zeros for what is missing."""
    if lib := fused.usable(a, b, c, e):
        return list(fused.sums(lib, a, b, c, e))
    first = per_sample(a)
    zero = torch.zeros_like(first)
    out = [first, per_sample(a * b), zero, zero, zero]
    if e is not None:
        out[2] = per_sample(a * e)
    if c is not None:
        out[3:] = [per_sample(c), per_sample(c * b)]
    return out


def per_sample(t: Tensor) -> Tensor:
    """Σ over positions: (m, C, ...) -> (m, C) in float64; float32 sums stay short."""
    if t.ndim > 2:
        t = t.sum(tuple(range(2, t.ndim)))
    return t.double()


def moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel in float64; centred first where the mean would drown the variance."""
    M = z.numel() // z.shape[1]
    first, second = (t.sum(0) for t in sums(z, z)[:2])
    mu = first / M
    var = second / M - mu * mu
    if z.dtype == torch.float64:
        centred = z - spread(mu, z)
        var = per_sample(centred * centred).sum(0) / M
    elif bool((mu * mu > 100 * var).any()):
        # ⟨(z − c)²⟩ − ⟨z − c⟩² for any constant c; c is μ rounded to z's precision, so the second term is small
        centred = z - spread(mu, z)
        shift = per_sample(centred).sum(0) / M
        var = per_sample(centred * centred).sum(0) / M - shift * shift
    return mu, var


def spread(by_channel: Tensor, like: Tensor) -> Tensor:
    """Numbers by channel in the shape and kind that they can be combined with `like`."""
    return by_channel.to(like.dtype).view(-1, *(1,) * (like.ndim - 2))


def combine(constant: Tensor | None, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """constant + Σ t ∘ coefficient, constants and coefficients by channel."""
    first, a = terms[0]
    if len(terms) > 1 and (lib := fused.usable(*(t for t, _ in terms))):
        if constant is None:
            constant = torch.zeros_like(a)
        return fused.combine(lib, constant, list(terms))
    if constant is None:
        out = first * spread(a, first)
    else:
        out = torch.addcmul(spread(constant, first), first, spread(a, first))
    for t, a in terms[1:]:
        out.addcmul_(t, spread(a, t))
    return out


# --- how channels go together ----------------------------------------------------------------------------------------


def rows(t: Tensor, channels_first: bool = True) -> Tensor:
    """(m, C, ...) or (m, ..., C) as a matrix with one row for each sample and position; what is channels last stays."""
    if channels_first:
        t = t.movedim(1, -1)
    return t.detach().reshape(-1, t.shape[-1])


def second_moments(X: Tensor) -> Tensor:
    """⟨x xᵀ⟩ over rows, (C, C) in float64."""
    return (X.T @ X).double() / len(X)


def covariance(X: Tensor) -> Tensor:
    """⟨x xᵀ⟩ − ⟨x⟩⟨x⟩ᵀ over rows, (C, C) in float64; centred first where the mean would drown the variance."""
    mu = X.mean(0)
    S = second_moments(X)
    square = mu.double() ** 2
    if X.dtype == torch.float64 or bool((square > 4 * (S.diagonal() - square)).any()):
        X = X - mu
        mu = X.mean(0)  # what rounding has left
        S = second_moments(X)
    return S - torch.outer(mu.double(), mu.double())


def correlation(X: Tensor) -> Tensor:
    """The correlations of columns, (C, C) in float64; a column without variance has none, not even with itself."""
    S = covariance(X)
    v = S.diagonal()
    constant = v <= (32 * torch.finfo(X.dtype).eps * X.abs().amax(0).double()) ** 2
    scale = torch.where(constant, 0.0, v.clamp(min=torch.finfo(torch.float64).tiny).rsqrt())
    return S * torch.outer(scale, scale)


def bias_gradient(delta: Tensor, channels_first: bool) -> Tensor:
    """One gradient of a layer's bias for each sample: (m, C)."""
    if channels_first:
        return delta.flatten(2).sum(2)
    return delta.reshape(len(delta), -1, delta.shape[-1]).sum(1)
