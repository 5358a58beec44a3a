"""Estimators of NASI's goal, compared on measured traces: what each would have chosen, many seeds.

python -m studies.nasi_estimators --space nb201 --data ../shared/data

T and its part T_c are measured once on --measured random architectures (five a second; they are kept below --out). A
simulated search draws --steps of them, fits, and takes the best predicted of the space. It measures nothing itself, so
many seeds cost a minute; but they share measurements, and the larger --steps, the more alike they are. Accuracies of
darts are predictions of a NAS-Bench-301 surrogate.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from scipy.stats import rankdata

from initio.autodiff.work import executor_for
from initio.searches import Problem
from initio.searches.base import decode_step, encode_step
from initio.searches.methods.nasi_fit import Measured, NasiFit, TraceFit
from initio.searches.models.additive import design, regress, sharing
from initio.searches.traces import log, penalised
from initio.spaces import get_space
from initio.system.executors import Executor
from initio.system.files import add_line, whole_lines
from studies.nasi_quality import MODES, PUBLISHED, Table, digest, problem_of, table_of

SEED = 777  # of the measured architectures, which no search of the tables has
CANDIDATES = 5000  # of a space that is too large to be listed
RIDGE = NasiFit.ridge
NU: dict[str, Callable[[np.ndarray], float]] = {
    "none": lambda T: float("inf"),
    "median": lambda T: float(np.median(T)),
    "geometric mean": lambda T: float(np.exp(np.log(T).mean())),
    "mean": lambda T: float(T.mean()),
}
FITTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "itself": lambda R: R,
    "its log": lambda R: np.log(np.maximum(R, np.min(R[R > 0]))),
    "its rank": lambda R: rankdata(R) / len(R),
}


@dataclass(frozen=True)
class Rule:
    """One estimator: R = T or T_c − μ max(0, T − ν), and what of it is fitted by a sum over options."""

    rewarded: str
    mu: float
    nu: str
    fitted: str
    shared: bool = False  # slopes

    def __str__(self) -> str:
        penalty = "" if self.nu == "none" else f" − {self.mu:g} max(0, T − {self.nu})"
        return f"{self.rewarded}{penalty} | {self.fitted}{', shared slopes' if self.shared else ''}"

    def predict(
        self, T: np.ndarray, T_c: np.ndarray, X: np.ndarray, candidates: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """R of the candidates, or something that orders them alike; and the predicted share of what is fitted."""
        nu = NU[self.nu](T)
        if self.fitted in FITTED:
            R = penalised(T if self.rewarded == "T" else T_c, T, self.mu, nu)
            sums = regress(X, FITTED[self.fitted](R)[None], RIDGE)
            return sums.of(candidates)[0], sums.predicted
        sums = regress(X, np.array([log(T_c), log(T - T_c)]), RIDGE)
        return TraceFit(sums, self.mu, nu).of(candidates), sums.predicted


PARTS = "log T_c and log T_o"
RULES = (
    *(Rule("T", 1, "none", fitted) for fitted in FITTED),
    *(Rule("T", 1, "mean", fitted) for fitted in FITTED),
    Rule("T_c", 1, "none", "its rank"),
    *(Rule("T_c", 1, nu, "its rank") for nu in ("median", "geometric mean", "mean")),
    *(Rule("T_c", mu, nu, PARTS) for nu in ("median", "geometric mean", "mean") for mu in (1, 2)),
    Rule("T_c", 1, "geometric mean", PARTS, shared=True),
)


@dataclass(frozen=True)
class World:
    """Measured architectures, the candidates, and what candidates reach."""

    T: np.ndarray
    T_c: np.ndarray
    X: np.ndarray
    candidates: np.ndarray
    sharing: np.ndarray
    reached: np.ndarray

    def choose(self, rule: Rule, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """What the choice of one simulated search reaches, and the shares that it predicts."""
        drawn = np.random.default_rng(seed).choice(len(self.T), steps, replace=False)
        X, candidates = self.X[drawn], self.candidates
        if rule.shared:
            X, candidates = X @ self.sharing, candidates @ self.sharing
        R, predicted = rule.predict(self.T[drawn], self.T_c[drawn], X, candidates)
        return self.reached[int(np.argmax(R))], predicted


def measure(problem: Problem, path: Path, count: int, executor: Executor) -> list[Measured]:
    """The first `count` steps; what the file has is not measured again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    steps: list[Any] = [decode_step([Measured], json.loads(line)) for line in whole_lines(path)]
    for step in executor.ordered(partial(step_of, problem), range(len(steps), count)):
        steps.append(step)
        add_line(path, json.dumps(encode_step(step)))
        if len(steps) % 100 == 0:
            print(f"{len(steps)} of {count} measured", file=sys.stderr, flush=True)
    return steps[:count]


def step_of(problem: Problem, number: int) -> Measured:
    """One measurement of the default search."""
    import torch

    torch.set_num_threads(1)
    return NasiFit().step(problem, SEED, number)


def world(problem: Problem, table: Table, steps: list[Measured]) -> World:
    """Steps with a gradient, beside all candidates."""
    steps = [step for step in steps if step.trace]
    if problem.space.name == "nb201":
        candidates = [arch for arch in problem.space.architectures() if problem.sound(arch)]
    else:
        candidates = sorted({problem.draw_admitted(Random(f"candidate {number}")) for number in range(CANDIDATES)})
    return World(
        T=np.array([step.trace for step in steps], float),
        T_c=np.array([step.chosen_trace for step in steps], float),
        X=design(problem, [step.architecture for step in steps]),
        candidates=design(problem, candidates),
        sharing=sharing(problem.space.relaxation),
        reached=np.array([table.report(arch) for arch in candidates]),
    )


def row(rule: Rule, found: list[tuple[np.ndarray, np.ndarray]]) -> str:
    """One line of the table."""
    reached, predicted = (np.array(values) for values in zip(*found, strict=True))
    cells = " | ".join(f"{m:.2f}±{s:.2f}" for m, s in zip(reached.mean(0), reached.std(0), strict=True))
    return f"| {rule} | {cells} | {', '.join(f'{share:.2f}' for share in predicted.mean(0))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="nb201", choices=[*PUBLISHED, "darts"])
    parser.add_argument("--mode", default="data", choices=list(MODES))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--measured", type=int, default=1200)
    parser.add_argument("--steps", type=int, nargs="+", default=[120, 300])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cluster", help="in place of workers, a Dask scheduler at tcp://host:port, or local:8")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the measurements")
    options = parser.parse_args()
    space = get_space(options.space)
    table = table_of(space, options.data)
    problem = problem_of(space.name, options.mode, options.data)
    key = digest((problem.network, str(options.data.resolve())))
    name = f"nasi-estimators-{space.name}-{options.mode.replace(' ', '-')}-{key}.jsonl"
    executor = executor_for(options.workers, options.cluster)
    known = world(problem, table, measure(problem, options.out / name, options.measured, executor))
    print(f"{space.name}, {options.mode}, {len(known.T)} measured; {options.seeds} seeds, mean±std")
    for steps in options.steps:
        heads = " | ".join(table.columns)
        print(
            f"\n{steps} steps\n\n| R | fitted | {heads} | predicted share |\n|---|---|{'---|' * len(table.columns)}---|"
        )
        for rule in RULES:
            print(row(rule, [known.choose(rule, steps, seed) for seed in range(options.seeds)]), flush=True)


if __name__ == "__main__":
    from studies import nasi_estimators  # so that workers can import what they run

    nasi_estimators.main()
