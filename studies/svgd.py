"""SVGD-RD on a density that is known: does it come near it, and does δ steer how far particles are apart?

    python -m studies.svgd                                  # facts that are asserted, in seconds
    python -m studies.svgd --picture docs/images/svgd.png   # also draws Figure 5.2 of the thesis

The density is that of Figure 5.2, a mixture of two Gaussians, with its 15 particles and 1000 steps of 0.1. Asserts that
the divergence KL(q‖p) of many particles falls, that the distance of particles rises with δ, and that Proposition 5.1 as
its proof has it (B.10) is what autograd gives, to 1e-10.
"""

from __future__ import annotations

import argparse
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import torch
from scipy.spatial import KDTree
from scipy.special import digamma, gammaln

from initio.report.surfaces import Surface, save_dots
from initio.searches.models.particles import (
    STEPS,
    Blocks,
    GaussianMixture,
    bandwidth_of,
    direction,
    relaxed,
    spread_of,
    svgd,
)

FIGURE_5_2 = Blocks((GaussianMixture(np.ones(2), np.array([[-1.0, 0.0], [0.0, 1.0]]), np.array([0.25, 0.5])),))
DELTAS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0)
DRAWN = (-1.0, -0.5, 0.0, 0.5, 1.0)
PARTICLES, MANY = 15, 200
LOOKS = (0, 5, 20, 100, STEPS - 1)  # steps after which the divergence is estimated
FAR = 3.0  # of the first particles' mean from the density's
EXACT = 1e-10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, help="file for Figure 5.2")
    options = parser.parse_args()
    gradients()
    divergence()
    particles = distances()
    if options.picture:
        at = np.linspace(-3.5, 3.5, 101)
        grid = np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1)
        surface = Surface(at, np.exp(FIGURE_5_2.log_density(grid)))
        save_dots(surface, {f"δ = {delta:g}": particles[delta] for delta in DRAWN}, options.picture)


def gradients() -> None:
    """B.10 by autograd, on the figure's density and on a relaxed posterior."""
    rng = np.random.default_rng(0)
    targets = {"Figure 5.2": FIGURE_5_2, "a posterior": relaxed([rng.normal(size=k) for k in (5, 3, 2)])}
    for name, target in targets.items():
        x = target.draw(rng, (7,))
        h = bandwidth_of(target, len(x))
        worst = max(
            float(np.abs(direction(x, target, delta, h) - by_autograd(x, target, delta, h)).max()) for delta in DELTAS
        )
        print(f"{name}: largest difference from autograd {worst:.1e}")
        assert worst < EXACT


def by_autograd(x: np.ndarray, target: Blocks, delta: float, h: float) -> np.ndarray:
    """Proposition 5.1 with the indices of B.10, each gradient by autograd, pair by pair."""
    n = len(x)
    moves = []
    for i in range(n):
        total = torch.zeros(x.shape[1], dtype=torch.float64)
        for j in range(n):
            one, other = (torch.from_numpy(x[place].copy()).requires_grad_() for place in (i, j))
            k = (-(other - one).square().sum() / h).exp()
            by_one, by_other = torch.autograd.grad(k, [one, other])
            [score] = torch.autograd.grad(_log_density(target, other), [other])
            total += k.detach() * score + by_other - delta * by_one
        moves.append(total.numpy() / n)
    return np.stack(moves)


def _log_density(target: Blocks, x: torch.Tensor) -> torch.Tensor:
    """By torch's own mixtures."""
    from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

    total, first = torch.zeros((), dtype=torch.float64), 0
    for part in target.parts:
        means, deviations = torch.from_numpy(part.means), torch.from_numpy(np.sqrt(part.variances))
        about = Independent(Normal(means, deviations.expand_as(means)), 1)
        mixture = MixtureSameFamily(Categorical(torch.from_numpy(part.weights)), about)
        total = total + mixture.log_prob(x[first : first + part.size])
        first += part.size
    return total


def divergence() -> None:
    """KL(q‖p) of many particles by step, from a start far away."""
    start = FAR + 0.5 * np.random.default_rng(0).standard_normal((MANY, 2))
    found = {}
    for number, x in enumerate(islice(svgd(FIGURE_5_2, start), STEPS)):
        if number in LOOKS:
            found[number + 1] = kl(x)
    print(f"\nKL(q‖p) of {MANY} particles, δ = 0, after so many steps (an estimate from nearest neighbours):")
    print("  ".join(f"{step}: {value:.3f}" for step, value in found.items()))
    independent = kl(FIGURE_5_2.draw(np.random.default_rng(1), (MANY,)))
    print(f"as many independent samples: {independent:.3f}")
    assert all(after < before for before, after in pairwise(found.values()))


def kl(x: np.ndarray) -> float:
    """E_q[log q − log p], the entropy by Kozachenko and Leonenko (1987)."""
    n, d = x.shape
    nearest = KDTree(x).query(x, k=2)[0][:, 1]
    ball = d / 2 * np.log(np.pi) - gammaln(d / 2 + 1)
    entropy = digamma(n) - digamma(1) + ball + d * np.mean(np.log(nearest))
    return float(-entropy - FIGURE_5_2.log_density(x).mean())


def distances() -> dict[float, np.ndarray]:
    """How far particles are apart by δ, from the same start; the particles."""
    start = np.random.default_rng(0).standard_normal((PARTICLES, 2))
    sets = np.broadcast_to(start, (len(DELTAS), *start.shape)).copy()
    for sets in svgd(FIGURE_5_2, sets, np.array(DELTAS)):  # noqa: B007, B020
        pass
    apart = spread_of(sets)
    print("\n| δ | mean distance | mean log density |\n|---|---|---|")
    for delta, distance, own in zip(DELTAS, apart, sets, strict=True):
        print(f"| {delta:g} | {distance:.3f} | {FIGURE_5_2.log_density(own).mean():.3f} |")
    assert all(after > before - 1e-6 for before, after in pairwise(apart))
    return dict(zip(DELTAS, sets, strict=True))


if __name__ == "__main__":
    main()
