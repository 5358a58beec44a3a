"""Which optimiser should choose HNAS's (μ, ν)? Several, on that very objective, with 20 to 25 evaluations.

python -m studies.hnas_optimisers --data ../shared/data --seeds 20

Every seed draws its own half of the pool, so that no optimiser is chosen for one landscape; the regret is the best
validation accuracy of that half minus the best one found. All optimisers get the same five first points. Those of
other packages (optuna, bayesian-optimization, botorch) are left out, and named, where these are not installed.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np

from initio.records import Query
from initio.runs.bench import BenchSetup
from initio.searches import Budget, Problem, Proposals, Trained, drive
from initio.searches.methods.hnas import Hnas
from initio.searches.models.bayes import GaussianProcess, Optimiser, Point

METRICS = ("trace", "grad", "snip", "grasp")
Make = Callable[[int, Sequence[Point]], Optimiser]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--store", help="scores of nb201; by default those that come with Initio")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--queries", type=int, default=25)
    parser.add_argument("--metrics", nargs="+", default=METRICS)
    parser.add_argument("--only", nargs="+", choices=list(OPTIMISERS), default=list(OPTIMISERS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # the other packages' own
    setup = BenchSetup("nb201", Budget(queries=options.queries), options.data, store=options.store)
    steps = sorted({10, 20, options.queries})
    print("| optimiser | " + " | ".join(f"regret after {n}" for n in steps) + " | best found | ms a suggestion |")
    print("|---" * (len(steps) + 3) + "|")
    for name in options.only:
        try:
            OPTIMISERS[name](0, ())
        except ImportError as missing:
            print(f"| {name} | not installed: {missing.name} |", flush=True)
            continue
        runs = [one_run(setup, name, metric, seed) for metric in options.metrics for seed in range(options.seeds)]
        regrets = np.array([run.regrets for run in runs])
        columns = [mean_and_error(regrets[:, n - 1]) for n in steps]
        found = f"{(regrets[:, -1] == 0).mean():.0%}"
        ms = 1000 * np.mean([run.seconds for run in runs]) / options.queries
        print(f"| {name} | {' | '.join(columns)} | {found} | {ms:.0f} |", flush=True)
    print(f"\nmean ± standard error over {len(options.metrics)} metrics x {options.seeds} seeds, one core")


@dataclass
class RandomPoints:
    """Uniform points, whatever the values: the baseline.

    Args:
        dimensions: of the cube.
        seed: of the points.
        start: points that are suggested first, in this order.
    """

    dimensions: int
    seed: int = 0
    start: Sequence[Point] = ()

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._given = iter(self.start)

    def suggest(self) -> Point:
        """A new point."""
        return next(self._given, None) or tuple(map(float, self._rng.random(self.dimensions)))

    def observe(self, point: Point, value: float) -> None:
        """Nothing is learnt."""


def mean_and_error(values: np.ndarray) -> str:
    return (
        f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"
        if len(values) > 1
        else f"{values[0]:.3f}"
    )


@dataclass
class Run:
    """One search: the regret after each query, and how long the optimiser took."""

    regrets: list[float] = field(default_factory=list)
    seconds: float = 0.0


def one_run(setup: BenchSetup, name: str, metric: str, seed: int) -> Run:
    """HNAS with the named optimiser on half of the pool."""
    validation, scores = setup.open().validation, setup.scores(seed)
    assert scores is not None
    half = np.random.default_rng(seed).permutation(len(scores))[: len(scores) // 2]
    pool = scores.subset(half)
    best = max(validation(Query(arch)).value or 0.0 for arch in pool.architectures)
    search, run = With(metric, optimiser=name), Run()
    problem = replace(setup.problem(seed), pool=pool.architectures, scores=pool, epochs=())
    result = drive(search, problem, seed=seed)
    values = [step.value or 0.0 for step in result.steps if isinstance(step, Trained)]
    run.regrets = [best - value for value in accumulate(values, max)]
    run.seconds = result.cost.seconds
    return run


@dataclass(frozen=True)
class With(Hnas):
    """HNAS with an optimiser by name."""

    optimiser: str = "random"
    grid: int | None = 5

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Algorithm 1."""
        return self.steps(problem, seed, OPTIMISERS[self.optimiser](seed, self.start(problem)))


# --- the optimisers ---------------------------------------------------------------------------------------------------


class Asked:
    """What the following ones share: given points first, and a record."""

    def __init__(self, seed: int, start: Sequence[Point]) -> None:
        self.seed, self.start = seed, start
        self.X: list[Point] = []
        self.y: list[float] = []
        self.prepare()

    def prepare(self) -> None:
        """Imports what is needed."""

    def suggest(self) -> Point:
        """The next point."""
        return self.start[len(self.X)] if len(self.X) < len(self.start) else self.next()

    def next(self) -> Point:
        """A point after the given ones."""
        raise NotImplementedError

    def observe(self, point: Point, value: float) -> None:
        """Tells a value."""
        self.X.append(point)
        self.y.append(value)


class ScikitLearn(Asked):
    """Matérn-5/2 and white noise fitted by gradients from three starts, expected improvement over random points."""

    def next(self) -> Point:
        """A point after the given ones."""
        from scipy.stats import norm
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        rng = np.random.default_rng((self.seed, len(self.X)))
        kernel = ConstantKernel() * Matern([0.3, 0.3], (0.05, 5), nu=2.5) + WhiteKernel(0.1, (1e-4, 1))
        model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=self.seed)
        model.fit(np.array(self.X), np.array(self.y))
        candidates = rng.random((1024, 2))
        mean, sd = model.predict(candidates, return_std=True)
        z = (mean - model.predict(np.array(self.X)).max()) / np.maximum(sd, 1e-9)
        return tuple(map(float, candidates[np.argmax(sd * (z * norm.cdf(z) + norm.pdf(z)))]))


class Optuna(Asked):
    """A sampler of optuna, asked and told."""

    sampler = "GPSampler"

    def prepare(self) -> None:
        """Imports and sets up the package."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = getattr(optuna.samplers, self.sampler)(seed=self.seed, n_startup_trials=len(self.start))
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        for nu, width in self.start:
            self.study.enqueue_trial({"nu": nu, "width": width})
        self.trial: Any = None

    def suggest(self) -> Point:
        """The next point."""
        self.trial = self.study.ask()
        return self.trial.suggest_float("nu", 0, 1), self.trial.suggest_float("width", 0, 1)

    def observe(self, point: Point, value: float) -> None:
        """Tells a value."""
        self.study.tell(self.trial, value)


class OptunaTpe(Optuna):
    """Trees of Parzen estimators."""

    sampler = "TPESampler"


class BayesOpt(Asked):
    """The package of the authors' code: expected improvement, Matérn-5/2, no noise."""

    def prepare(self) -> None:
        """Imports and sets up the package."""
        from bayes_opt import BayesianOptimization
        from bayes_opt.acquisition import ExpectedImprovement

        self.inner = BayesianOptimization(
            f=None,
            pbounds={"nu": (0, 1), "width": (0, 1)},
            acquisition_function=ExpectedImprovement(xi=0.0),
            random_state=self.seed,
            verbose=0,
            allow_duplicate_points=True,
        )

    def next(self) -> Point:
        """A point after the given ones."""
        point = self.inner.suggest()
        return float(point["nu"]), float(point["width"])

    def observe(self, point: Point, value: float) -> None:
        """Tells a value."""
        super().observe(point, value)
        self.inner.register(params=dict(zip(("nu", "width"), point, strict=True)), target=value)


class BoTorch(Asked):
    """SingleTaskGP with its own priors, log expected improvement."""

    def prepare(self) -> None:
        """Imports and sets up the package."""
        import botorch  # noqa: F401

    def next(self) -> Point:
        """A point after the given ones."""
        import torch
        from botorch import fit_gpytorch_mll
        from botorch.acquisition import LogExpectedImprovement
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Standardize
        from botorch.optim import optimize_acqf
        from gpytorch.mlls import ExactMarginalLogLikelihood

        with torch.random.fork_rng():
            torch.manual_seed(1000 * self.seed + len(self.X))
            X = torch.tensor(self.X, dtype=torch.float64)
            y = torch.tensor(self.y, dtype=torch.float64)[:, None]
            model = SingleTaskGP(X, y, outcome_transform=Standardize(1))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            best = model.posterior(X).mean.max().detach()
            bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
            found, _ = optimize_acqf(LogExpectedImprovement(model, best), bounds, q=1, num_restarts=4, raw_samples=128)
        return tuple(map(float, found[0]))


OPTIMISERS: dict[str, Make] = {
    "random": lambda seed, start: RandomPoints(2, seed, start),
    "initio": lambda seed, start: GaussianProcess(2, seed, start),
    "scikit-learn": ScikitLearn,
    "bayes_opt": BayesOpt,
    "optuna-tpe": OptunaTpe,
    "optuna-gp": Optuna,
    "botorch": BoTorch,
}

if __name__ == "__main__":
    main()
