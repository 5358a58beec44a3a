"""The simulation of NASI's estimators, on a made-up world."""

from itertools import product

import numpy as np
import pytest

from benchmarks.nasi_estimators import REWARDS, RULES, Rule, World

CHOICES = np.array(list(product(range(4), repeat=4)))
X = np.concatenate([(k == CHOICES).astype(float) for k in range(4)], axis=1)
LOGS = np.stack([3.0 * (CHOICES == 2).sum(axis=1) + np.random.default_rng(k).normal(size=256) for k in (0, 1)])
WORLD = World(X, LOGS, np.zeros((256, 3)))
BEST = 0b10101010  # the option 2 everywhere


@pytest.mark.parametrize("reward", [name for name in REWARDS if name != "T"])
def test_the_regression_finds_the_option_that_raises_the_trace(reward: str) -> None:
    assert WORLD.choose(Rule(100, reward), seed=0) == BEST


def test_finalists_are_ordered_by_their_traces() -> None:
    chosen = [WORLD.choose(Rule(100, finalists=20, quantile=q), seed=0) for q in (0.0, 0.5, 1.0)]
    means = LOGS.mean(axis=0)[chosen]
    assert means[0] < means[1] < means[2]
    assert WORLD.choose(Rule(100, finalists=20), seed=0) == WORLD.choose(Rule(100, finalists=20), seed=0)


def test_every_rule_has_its_own_line() -> None:
    assert len({str(rule) for rule in RULES}) == len(RULES)
