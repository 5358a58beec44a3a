"""Train-free search of the `mlp` space by the smallest eigenvalue of the infinite-width NTK [Eigen, Algorithm 1].

Exact, for up to a billion architectures: λ_min(K) is at most the smallest eigenvalue of any principal submatrix of K.

1. The incumbent: ReLU and a skip everywhere, improved by changing one decision at a time.
2. For the two most similar inputs, the bound K_ii − K_ij of *every* architecture is computed, by expanding the tree of
   prefixes in large arrays. Only the last layer is treated by argument: its skip adds A + S and a constant, all
   positive semi-definite for inputs of one norm, so it is always taken. What stays below the incumbent is discarded.
3. Survivors are bounded again by the submatrix of the inputs on which the incumbent's smallest eigenvector lives.
4. Survivors of that are computed in full, best bound first, until the next bound is below the best value.

Bounds are raised by `TOLERANCE` to cover interpolation; the values that are compared in the end are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from initio.errors import InputError, at_least
from initio.kernels.infinite.differences import TOLERANCE, Pairs, advance, gap_bound, moments, stack, start
from initio.kernels.infinite.duals import dual
from initio.kernels.infinite.recursion import Block, Diagonal, first_diagonal, make_layer, step
from initio.kernels.infinite.recursion import advance as advance_diagonal
from initio.records import Architecture, Cost
from initio.searches.base import Search, SearchRun, SearchStep
from initio.searches.problem import Problem
from initio.spaces.mlp import ACTIVATIONS, MlpSpace, as_mlp

OPTIONS = 2 * len(ACTIVATIONS)  # of a layer: activation and skip; a code has one digit of base 10 for each layer
CHUNK = 100_000  # prefixes expanded at a time: few Python calls, arrays that stay in a shared cache


@dataclass(frozen=True)
class BoundStage(SearchStep):
    """Where the search is after one of its stages."""

    stage: str
    architecture: Architecture  # the incumbent
    lambda_min: float
    architectures: int  # in the space
    left: int  # of them, that may be better
    computed: int  # in full, in all stages so far
    proven: bool

    def told(self) -> str:
        """The stage."""
        return f"{self.stage}, {self.left:,} left"


@dataclass(frozen=True)
class LambdaMin(Search[BoundStage]):
    """The architecture with the largest λ_min of the exact infinite-width NTK on inputs scaled to norm 1.

    Args:
        subset: inputs in the submatrix of the second bound.
        most: up to this many architectures, every one is bounded and the answer proven; above, only changes of one
            decision are tried.
    """

    subset: int = 24
    most: int = 10**9

    name: ClassVar[str] = "lambda-min"
    resumes: ClassVar[bool] = False
    step_types: ClassVar[tuple[type[SearchStep], ...]] = (BoundStage,)

    def __post_init__(self) -> None:
        at_least(self, subset=2, most=1)

    def check(self, problem: Problem) -> None:
        """Refuses other spaces, and other devices than the CPU."""
        mlps_of(problem, self.name)
        if problem.device != "cpu":
            raise InputError(f"{self.name} computes kernels of infinite width, on the CPU: leave out device")

    def why(self, problem: Problem, steps: Sequence[BoundStage], chosen: Architecture) -> str:
        """What is proven."""
        return verdict(steps[-1])

    def cost(self, steps: Sequence[BoundStage]) -> Cost:
        """What was computed in full."""
        return Cost(scorings=steps[-1].computed)

    def run(self, problem: Problem, seed: int, done: Sequence[BoundStage]) -> SearchRun[BoundStage]:
        """Searches on one batch of `problem`; the last step says what is proven."""
        space = mlps_of(problem, self.name)
        for stage in stages(space, unit_inputs(problem.batch(seed).x), self.subset, self.most):
            yield stage
        return stage.architecture


def mlps_of(problem: Problem, method: str) -> MlpSpace:
    """The space of the problem, which must be one of mlps."""
    return as_mlp(problem.space, f"{method} does not search {problem.space.name}: choose mlp, or another --method")


def unit_inputs(x: np.ndarray) -> Tensor:
    """Inputs as vectors of norm 1 [Eigen, Assumption 1]; λ_min is 0 for every architecture when two agree."""
    flat = torch.from_numpy(np.array(x, dtype=np.float64).reshape(len(x), -1))
    norms = flat.norm(dim=1, keepdim=True)
    if len(flat) < 2 or bool((norms == 0).any()):
        raise InputError("the search needs at least two inputs, none of them zero")
    unit: Tensor = flat / norms
    closest = (unit @ unit.T - 2 * torch.eye(len(unit), dtype=torch.float64)).max()
    if float(closest) > 1 - 1e-12:
        raise InputError("two inputs point in the same direction: λ_min is 0 for every architecture, give others")
    return unit


def stages(space: MlpSpace, x: Tensor, subset: int, most: int) -> Iterator[BoundStage]:
    """One step a stage."""
    exact = Exact(space, x)
    best = exact.climb(space.architecture(*(0,) * (space.depth - 1), *(1,) * (space.depth - 2)))
    total = space.count()
    yield _stage("climb", space, best, exact, total, total == 1)
    if total > most:
        return
    codes, bounds = survivors(space.depth, float(exact.closest), exact.value(best))
    yield _stage("two inputs", space, best, exact, len(codes), len(codes) == 0)
    codes, bounds = refine(codes, exact.submatrix(best, subset), exact.value(best), space.depth)
    yield _stage(f"{min(subset, len(x))} inputs", space, best, exact, len(codes), len(codes) == 0)
    for code, bound in zip(codes.tolist(), bounds.tolist(), strict=True):
        if bound <= exact.value(best):
            break
        arch = decode(space, code)
        best = max(best, arch, key=lambda a: (exact.value(a), a))
    yield _stage("all inputs", space, best, exact, 1, True)


def verdict(last: BoundStage) -> str:
    """The last step in one sentence."""
    what = f"proven optimal over {last.architectures:,} architectures"
    if not last.proven:
        what = f"not proven optimal: of {last.architectures:,} architectures only single changes were tried"
    return f"λ_min {last.lambda_min:.6g}, {what} ({last.computed} computed in full)"


def _stage(stage: str, space: MlpSpace, best: Architecture, exact: Exact, left: int, proven: bool) -> BoundStage:
    return BoundStage(stage, best, exact.value(best), space.count(), left, exact.computed, proven)


def decode(space: MlpSpace, code: int) -> Architecture:
    """The architecture of a code: its digits are 2·activation + skip, the first layer's first."""
    digits = [int(digit) for digit in str(code).zfill(space.depth - 1)]
    return space.architecture(*(digit // 2 for digit in digits), *(digit % 2 for digit in digits[1:]))


# --- bounds ----------------------------------------------------------------------------------------------------------


def children(pairs: Pairs, codes: Tensor, skips: Sequence[bool]) -> tuple[Pairs, Tensor]:
    """All prefixes that are one layer longer."""
    parts, numbers = [], []
    for number, name in enumerate(ACTIVATIONS):
        layer = moments(name, pairs)
        for skip in skips:
            parts.append(advance(pairs, layer, skip))
            numbers.append(codes * OPTIONS + 2 * number + skip)
    return stack(parts), torch.cat(numbers)


def survivors(depth: int, correlation: float, incumbent: float) -> tuple[Tensor, Tensor]:
    """Codes and bounds of all architectures whose K_ii − K_ij exceeds the incumbent, largest bound first."""
    threshold = incumbent * (1 - TOLERANCE)
    pairs, codes = start(torch.tensor([correlation])), torch.zeros(1, dtype=torch.int64)
    if depth > 2:
        pairs, codes = children(pairs, codes, (False,))
    found = [_leaves(*part, threshold, depth == 2) for part in _prefixes(pairs, codes, max(0, depth - 3))]
    code, bound = (torch.cat(column) for column in zip(*found, strict=True))
    order = torch.argsort(bound, descending=True, stable=True)
    return code[order], bound[order]


def _prefixes(pairs: Pairs, codes: Tensor, layers: int) -> Iterator[tuple[Pairs, Tensor]]:
    """All prefixes that are `layers` longer, in parts that fit the cache."""
    while layers and len(pairs) * OPTIONS <= CHUNK:
        pairs, codes = children(pairs, codes, (False, True))
        layers -= 1
    if not layers:
        yield pairs, codes
        return
    size = max(1, CHUNK // OPTIONS ** min(layers, 3))
    for first in range(0, len(pairs), size):
        part = slice(first, first + size)
        yield from _prefixes(*children(pairs[part], codes[part], (False, True)), layers - 1)


def _leaves(pairs: Pairs, codes: Tensor, threshold: float, only_layer: bool) -> tuple[Tensor, Tensor]:
    """The last layer, with its skip: those whose bound exceeds the threshold, after a cheaper bound let them pass."""
    if not only_layer:
        rows = torch.nonzero(gap_bound(pairs, ACTIVATIONS)[:, 0] > threshold)[:, 0]
        pairs, codes = pairs[rows], codes[rows]
    kept_codes, kept = [codes[:0]], [pairs.A[:0, 0]]
    for number, name in enumerate(ACTIVATIONS):
        bound = advance(pairs, moments(name, pairs), not only_layer).gap[:, 0]
        good = bound > threshold
        kept_codes.append(codes[good] * OPTIONS + 2 * number + (0 if only_layer else 1))
        kept.append(bound[good])
    return torch.cat(kept_codes), torch.cat(kept)


def refine(codes: Tensor, correlations: Tensor, incumbent: float, depth: int) -> tuple[Tensor, Tensor]:
    """The codes whose submatrix with these correlations between inputs still exceeds the incumbent, best first."""
    k = len(correlations)
    i, j = torch.triu_indices(k, k, 1)
    bounds = torch.empty(len(codes), dtype=torch.float64)
    first = start(correlations[i, j])
    for part in torch.split(torch.arange(len(codes)), 2000):
        digits = codes[part, None] // OPTIONS ** torch.arange(depth - 2, -1, -1) % OPTIONS
        pairs = follow(first, digits)
        K = pairs.diagonal[:, :, None].repeat(1, k, k)
        K[:, i, j] -= pairs.gap
        K[:, j, i] = K[:, i, j]
        bounds[part] = torch.linalg.eigvalsh(K)[:, 0]
    order = torch.argsort(bounds, descending=True, stable=True)
    order = order[bounds[order] > incumbent * (1 - TOLERANCE)]
    return codes[order], bounds[order] * (1 + TOLERANCE)


def follow(first: Pairs, digits: Tensor) -> Pairs:
    """The pairs behind all layers of architectures given by their digits, one row each."""
    pairs = stack([first] * len(digits))
    for layer in digits.T:
        parts, places = [], []
        for option in torch.unique(layer).tolist():
            rows = torch.nonzero(layer == option)[:, 0]
            some = pairs[rows]
            parts.append(advance(some, moments(ACTIVATIONS[option // 2], some), bool(option % 2)))
            places.append(rows)
        pairs = stack(parts)[torch.argsort(torch.cat(places))]
    return pairs


# --- values ----------------------------------------------------------------------------------------------------------


class Exact:
    """λ_min of architectures on all inputs; prefixes and values are remembered."""

    def __init__(self, space: MlpSpace, x: Tensor) -> None:
        self.space = space
        self.correlations = x @ x.T
        self.closest = (self.correlations - 2 * torch.eye(len(x), dtype=torch.float64)).max()
        diagonal = first_diagonal(x)
        block = Block(self.correlations, self.correlations, torch.zeros_like(self.correlations))
        self._prefixes: dict[tuple[tuple[str, int], ...], tuple[Block, Diagonal]] = {(): (block, diagonal)}
        self._values: dict[Architecture, float] = {}

    @property
    def computed(self) -> int:
        """How many architectures were computed in full."""
        return len(self._values)

    def kernel(self, arch: Architecture) -> Tensor:
        """The NTK."""
        layers = tuple(zip(self.space.activations(arch), (0, *self.space.skips(arch)), strict=True))
        known = next(n for n in range(len(layers), -1, -1) if layers[:n] in self._prefixes)
        block, diagonal = self._prefixes[layers[:known]]
        everything = slice(0, len(diagonal.A))
        for number in range(known, len(layers)):
            name, skip = layers[number]
            layer = make_layer(diagonal, diagonal, dual(name), bool(skip), "exact")
            block = step(block, layer, everything, everything)
            diagonal = advance_diagonal(diagonal, dual(name), layer.s_rows, bool(skip), "exact", number + 1)
            for matrix, values in ((block.A, diagonal.A), (block.S, diagonal.S)):
                matrix.diagonal().copy_(values)
            if number < len(layers) - 1:
                self._remember(layers[: number + 1], block, diagonal)
        return block.F + block.S

    def _remember(self, layers: tuple[tuple[str, int], ...], block: Block, diagonal: Diagonal) -> None:
        if len(self._prefixes) > 1000:  # 1000 prefixes of 256 inputs are 1 GB
            self._prefixes = {(): self._prefixes[()]}
        self._prefixes[layers] = (block, diagonal)

    def value(self, arch: Architecture) -> float:
        """λ_min; a value lost in rounding counts as zero."""
        if arch not in self._values:
            self._values[arch] = max(0.0, float(torch.linalg.eigvalsh(self.kernel(arch))[0]))
        return self._values[arch]

    def climb(self, arch: Architecture) -> Architecture:
        """Changes one decision at a time while that helps."""
        while True:
            best = max(self.space.neighbours(arch), key=self.value, default=arch)
            if self.value(best) <= self.value(arch):
                return arch
            arch = best

    def submatrix(self, arch: Architecture, size: int) -> Tensor:
        """The correlations of the inputs with the largest share in the architecture's smallest eigenvector."""
        vector = torch.linalg.eigh(self.kernel(arch))[1][:, 0]
        some = torch.topk(vector.abs(), min(size, len(vector))).indices
        return self.correlations[some][:, some]
