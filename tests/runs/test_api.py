"""`initio.optimise`: any decisions, any scores, any function."""

from random import Random

import numpy as np
import pytest

import initio
from initio import Architecture, InputError
from initio.searches.methods.evolution import RegularisedEvolution
from initio.searches.methods.random_search import RandomSearch

OPTIONS = {f"block {k}": ["none", "conv_1x1", "conv_3x3", "pool"] for k in range(7)}
SPACE = initio.space("blocks", lambda **_: None, **OPTIONS)  # type: ignore[arg-type, return-value]
VALUE = np.random.default_rng(5).normal(size=(7, 4))
POOL = tuple(Random(0).sample(list(SPACE.architectures()), 800))


def quality(arch: Architecture) -> float:
    """Decisions matter one by one, and two of them together."""
    own = sum(VALUE[place, option] for place, option in enumerate(arch.choices))
    return float(own + (arch.choices[0] == arch.choices[3]))


def metric(noise: float, seed: int) -> dict[Architecture, float]:
    rng = np.random.default_rng(seed)
    return {arch: quality(arch) + noise * rng.normal() for arch in POOL}


def regret(**options: object) -> float:
    best = max(map(quality, POOL))
    runs = [initio.optimise(SPACE, quality, pool=POOL, seed=s, **options).chosen[0] for s in range(4)]  # type: ignore[arg-type]
    return float(np.mean([best - quality(arch) for arch in runs]))


def test_scores_help_and_bad_ones_do_not_hurt() -> None:
    good = {"a": metric(1.0, 0), "b": metric(2.0, 1)}
    wrong = {arch: -value for arch, value in metric(1.0, 2).items()}
    part = {arch: value for arch, value in metric(1.0, 3).items() if hash(arch.choices) % 3}
    chance = regret(queries=15, method=RandomSearch())
    with_good, with_bad = regret(queries=15, scores=good), regret(queries=15, scores=good | {"w": wrong, "p": part})
    assert with_good < chance / 2
    assert with_bad < chance / 2
    assert regret(queries=15) < chance


def test_nothing_is_evaluated_twice_and_a_seed_repeats() -> None:
    asked: list[Architecture] = []

    def count(arch: Architecture) -> float:
        asked.append(arch)
        return quality(arch)

    few = {name: OPTIONS[name] for name in list(OPTIONS)[:5]}
    first = initio.optimise(few, count, queries=18, seed=2)
    assert len(asked) == len(set(asked)) == first.cost.queries == 18
    assert initio.optimise(few, quality, queries=18, seed=2).chosen == first.chosen


def test_a_space_by_its_name_and_another_search() -> None:
    found = initio.optimise("nb201", lambda arch: arch.choices.count(3), queries=30, method=RegularisedEvolution())
    assert (found.method, found.space, found.cost.queries) == ("rea", "nb201", 30)


def test_settings_are_those_of_the_method() -> None:
    own = {"population": 4, "sample": 2}
    named = initio.optimise(SPACE, quality, queries=12, method="rea", **own)  # type: ignore[arg-type]
    assert named == initio.optimise(SPACE, quality, queries=12, method=RegularisedEvolution(**own))
    assert named.settings["population"] == 4


def test_a_pool_grows_from_a_single_score() -> None:
    found = initio.optimise(SPACE, quality, scores={"m": {POOL[0]: 1.0}}, queries=6)
    assert found.cost.queries == 6


def test_what_cannot_be_optimised() -> None:
    with pytest.raises(InputError, match="finite number"):
        initio.optimise(OPTIONS, lambda _: float("nan"))
    with pytest.raises(InputError, match="is of space"):
        initio.optimise("nb201", quality, pool=POOL[:3])
    with pytest.raises(InputError, match="is of space"):
        initio.optimise(OPTIONS, quality, scores={"m": metric(1.0, 0)})  # of another space, before anything is asked
    with pytest.raises(InputError, match="must be a mapping"):
        initio.optimise(SPACE, quality, scores={"m": [1.0, 2.0]})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"such as Nasi\(\)"):
        initio.optimise(SPACE, quality, method=RandomSearch)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="populaton is not a setting of rea: did you mean 'population'?"):
        initio.optimise(SPACE, quality, method="rea", populaton=4)
    with pytest.raises(InputError, match="population"):
        initio.optimise(SPACE, quality, method="rea", population="many")
    with pytest.raises(InputError, match="nasi does not learn from evaluations"):
        initio.optimise("nb201", quality, method="nasi")
    with pytest.raises(InputError, match="need architectures"):
        initio.optimise("nb201", quality, pool=["|none~0|"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="the number of queries"):
        initio.optimise(OPTIONS, quality, queries=0)
