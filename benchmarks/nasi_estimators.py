"""Estimators of NASI's goal on nb201, simulated on measured traces: what each would have chosen, many seeds.

python -m benchmarks.nasi_estimators --data ../shared/data

The scores that come with Initio have T of every architecture of nb201 for two initialisations and batches. A simulated
search draws architectures without `none`, sees T of one of the two draws, fits, and takes the best predicted one or one
of the finalists by the mean log T of both draws. Nothing is trained or measured, so hundreds of seeds cost a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from benchmarks.nasi_quality import nb201_table
from initio.bench import Setup
from initio.errors import InputError
from initio.search.queries import Budget

OPERATIONS = range(1, 5)  # all but none
Reward = Callable[[np.ndarray], np.ndarray]
REWARDS: dict[str, Reward] = {
    "T": lambda T: T,
    "log T": np.log,
    "log T, clipped at its mean": lambda T: np.log(np.minimum(T, T.mean())),
    "rank of T": lambda T: rankdata(T) / len(T),
    "rank of T, clipped at its median": lambda T: np.minimum(rankdata(T) / len(T), 0.5),
}


@dataclass(frozen=True)
class Rule:
    """One estimator.

    Args:
        steps: architectures that are measured.
        reward: what is regressed.
        second: with products of two options.
        finalists: of the best predicted, 1 to trust the prediction.
        quantile: which finalist is taken, by its trace.
    """

    steps: int
    reward: str = "rank of T"
    second: bool = False
    finalists: int = 1
    quantile: float = 1.0

    def __str__(self) -> str:
        terms = "options and their pairs" if self.second else "options"
        last = f"quantile {self.quantile:g} of {self.finalists}" if self.finalists > 1 else "best predicted"
        return f"{self.steps}, {self.reward}, {terms}, {last}"


RULES = (
    *(Rule(steps, reward) for reward in REWARDS for steps in (120, 200, 300)),
    *(Rule(300, second=True),),
    *(Rule(300, finalists=m, quantile=q) for m in (10, 20, 30, 40) for q in (1.0, 0.7, 0.5, 0.3, 0.0)),
    Rule(200, finalists=20),
)


@dataclass(frozen=True)
class World:
    """All architectures without `none`: their options, log T on each draw, and test accuracies."""

    X: np.ndarray  # (n, options), one-hot
    logs: np.ndarray  # (draws, n), of T
    accuracy: np.ndarray  # (n, data sets)

    def choose(self, rule: Rule, seed: int) -> int:
        """The number of the architecture that the estimator takes."""
        rng, n = np.random.default_rng(seed), len(self.X)
        drawn = rng.choice(n, rule.steps, replace=False)
        T = np.exp(self.logs[rng.integers(len(self.logs), size=rule.steps), drawn])
        X = _pairs(self.X) if rule.second else self.X
        predicted = X @ _slopes(X[drawn], REWARDS[rule.reward](T), ridge=10.0 if rule.second else 1.0)
        first = np.argsort(-predicted, kind="stable")[: rule.finalists]
        by_trace = first[np.argsort(self.logs.mean(axis=0)[first], kind="stable")]
        return int(by_trace[int(rule.quantile * (len(by_trace) - 1))])


def _slopes(X: np.ndarray, r: np.ndarray, ridge: float) -> np.ndarray:
    centred = X - X.mean(axis=0)
    slopes: np.ndarray = np.linalg.solve(centred.T @ centred + ridge * np.eye(X.shape[1]), centred.T @ (r - r.mean()))
    return slopes


def _pairs(X: np.ndarray) -> np.ndarray:
    i, j = np.triu_indices(X.shape[1], 1)
    return np.concatenate([X, X[:, i] * X[:, j]], axis=1)


def world(data: Path) -> World:
    """From the shipped scores and the table."""
    setup = Setup("nb201", Budget(queries=1), str(data))
    scores = [setup.scores(draw) for draw in range(setup.draws)]
    if not scores or scores[0] is None:
        raise InputError("there are no scores of nb201")
    archs = scores[0].architectures
    choices = np.array([arch.choices for arch in archs])
    kept = np.flatnonzero((choices != 0).all(axis=1))
    table = nb201_table(data)
    return World(
        X=np.concatenate([(choices[kept] == k).astype(float) for k in OPERATIONS], axis=1),
        logs=np.log(np.array([s["nasi"][kept] for s in scores if s is not None])),
        accuracy=np.array([table.report(archs[k]) for k in kept]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=200)
    options = parser.parse_args()
    known = world(options.data)
    print(f"{options.seeds} seeds, mean±std of C10 / C100 / IN16-120; a mean of 10 seeds has an error of std / 3.2\n")
    print("| measured, reward, terms, taken | C10 | C100 | IN16-120 |\n|---|---|---|---|")
    for rule in RULES:
        seeds = options.seeds // 10 if rule.second else options.seeds  # pairs are slow
        found = known.accuracy[[known.choose(rule, seed) for seed in range(seeds)]]
        cells = " | ".join(f"{m:.2f}±{s:.2f}" for m, s in zip(found.mean(0), found.std(0), strict=True))
        print(f"| {rule} | {cells} |", flush=True)
    best = known.accuracy[int(np.argmax(known.logs.mean(axis=0)))]
    print("| the largest mean log T of the space | " + " | ".join(f"{value:.2f}" for value in best) + " |")


if __name__ == "__main__":
    main()
