"""Ensembles are drawn by their posterior, judged by the mean of cached predictions, and the best comes first."""

from functools import partial
from itertools import combinations
from random import Random

import numpy as np
import pytest
from scipy.stats import spearmanr

from initio.errors import InputError
from initio.records import Architecture
from initio.searches.ensembles import (
    ArchitecturePosterior,
    Estimates,
    foresight,
    nes_re,
    nes_rs,
    nesbs,
    prior_of,
    uniform,
)
from initio.searches.models.particles import settled
from initio.spaces import NB201

LABELS = np.arange(40) % 4
FLAT = ArchitecturePosterior(NB201, (0.0,) * 30)


class Fake:
    """Someone who predicts, and counts how often."""

    def __init__(self) -> None:
        self.asked: list[Architecture] = []

    def __call__(self, arch: Architecture) -> np.ndarray:
        self.asked.append(arch)
        powers = np.exp(np.random.default_rng(arch.choices).normal(size=(len(LABELS), 4)))
        return powers / powers.sum(1, keepdims=True)


@pytest.fixture
def estimates(monkeypatch: pytest.MonkeyPatch) -> Estimates:
    """Particles move 100 steps towards what they would be after 1,000."""
    monkeypatch.setattr("initio.searches.ensembles.settled", partial(settled, steps=100))
    return Estimates(NB201, Fake(), LABELS)


def leaning(strength: float) -> ArchitecturePosterior:
    """For convolutions of 3x3 on all edges."""
    return ArchitecturePosterior(NB201, tuple(strength * (option == 3) for _ in range(6) for option in range(5)))


def test_a_posterior_can_be_looked_at() -> None:
    posterior = leaning(2.0)
    expected = np.exp(2) / (np.exp(2) + 4)
    assert [row[3] for row in posterior.marginals] == pytest.approx([expected] * 6)
    assert posterior.mode.choices == (3,) * 6
    assert FLAT.entropies == pytest.approx([1.0] * 6)
    assert leaning(50.0).entropies == pytest.approx([0.0] * 6, abs=1e-9)
    flatter = ArchitecturePosterior(NB201, posterior.alpha, temperature=10.0)
    assert flatter.marginals[0][3] < posterior.marginals[0][3]


def test_samples_have_the_posteriors_shares() -> None:
    posterior, rng = leaning(2.0), np.random.default_rng(0)
    drawn = np.array([posterior.sample(rng).choices for _ in range(1000)])
    assert (drawn == 3).mean() == pytest.approx(posterior.marginals[0][3], abs=0.03)  # few are not connected


def test_far_particles_are_other_networks_and_near_ones_are_not() -> None:
    posterior = leaning(4.0)
    near, far = (posterior.sets(4, [delta], np.random.default_rng(0))[0] for delta in (-2.0, 1.0))
    assert set(near) == {posterior.mode}
    assert len(set(far)) == 4


def test_a_network_predicts_once_and_the_mean_is_judged(estimates: Estimates) -> None:
    first, second = (Architecture("nb201", choices) for choices in ((3,) * 6, (2,) * 6))
    losses = [estimates.loss(members) for members in ([first], [second], [first, second])]
    predict = estimates.predict
    assert isinstance(predict, Fake)
    assert len(predict.asked) == 2
    mean = (predict(first) + predict(second)) / 2
    assert losses[2] == pytest.approx(-np.log([row[label] for row, label in zip(mean, LABELS, strict=True)]).mean())
    assert losses[2] < max(losses[:2])


def test_isomorphic_cells_answer_for_themselves_with_shared_weights(estimates: Estimates) -> None:
    other = next(arch for arch in NB201.architectures() if NB201.canonical(arch) != arch)
    one = NB201.canonical(other)
    first, second = estimates.of(one), estimates.of(other)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(estimates.of(other), Fake()(other))
    assert not estimates.different([one, other])


@pytest.mark.parametrize(("sampling", "delta_by"), [("mc", "grid"), ("svgd", "grid"), ("svgd", "bayes")])
def test_the_best_of_many_comes_first_and_again(sampling: str, delta_by: str, estimates: Estimates) -> None:
    def run() -> list:  # type: ignore[type-arg]
        return nesbs(leaning(1.0), estimates, 3, 9, np.random.default_rng(1), sampling, delta_by)  # type: ignore[arg-type]

    found = run()
    losses = [candidate.loss for candidate in found]
    assert losses == sorted(losses)
    assert losses[0] == pytest.approx(estimates.loss(found[0].members))
    assert all(estimates.different(candidate.members) for candidate in found)
    assert {candidate.delta is None for candidate in found} == {sampling == "mc"}
    assert run() == found


@pytest.mark.parametrize(("sampling", "delta_by"), [("mc", "grid"), ("svgd", "grid"), ("svgd", "bayes")])
def test_ensembles_that_are_none_are_drawn_again(sampling: str, delta_by: str, estimates: Estimates) -> None:
    """Of a posterior whose draws often repeat a network."""
    posterior, rng = leaning(3.0), np.random.default_rng(0)
    once = [tuple(posterior.sample(rng) for _ in range(3)) for _ in range(12)]
    assert sum(map(estimates.different, once)) < 12
    found = nesbs(posterior, estimates, 3, 12, np.random.default_rng(0), sampling, delta_by)  # type: ignore[arg-type]
    assert len(found) == 12
    assert len({frozenset(candidate.members) for candidate in found}) == 12


def test_a_posterior_that_is_sure_is_a_sentence(estimates: Estimates) -> None:
    with pytest.raises(InputError, match="higher temperature"):
        nesbs(leaning(200.0), estimates, 3, 5, np.random.default_rng(0), "mc")


def test_one_candidate_is_of_different_networks(estimates: Estimates) -> None:
    [found] = nesbs(leaning(1.0), estimates, 3, 1, np.random.default_rng(0))
    assert found.delta == 1.0
    assert len(nesbs(leaning(1.0), estimates, 3, 20, np.random.default_rng(0))) > 7


def test_greedy_selection_adds_what_helps_most(estimates: Estimates) -> None:
    [chosen] = nes_rs(NB201, estimates, 2, 8, seed=0)
    pool = list(estimates.known)
    assert len(pool) == 8
    best = min(pool, key=lambda arch: estimates.loss([arch]))
    assert chosen.members[0] == best
    pairs = [estimates.loss(pair) for pair in combinations(pool, 2) if best in pair]
    assert chosen.loss == pytest.approx(min(pairs))


def test_random_ensembles_are_of_different_networks(estimates: Estimates) -> None:
    found = uniform(NB201, estimates, 3, 4, seed=0)
    assert len(found) == 4
    assert all(estimates.different(candidate.members) for candidate in found)
    assert found[0].loss == min(candidate.loss for candidate in found)


def test_evolution_asks_for_as_many_networks_and_selects_among_all(estimates: Estimates) -> None:
    [chosen] = nes_re(NB201, estimates, 2, 15, seed=0)
    lived = list(estimates.known)
    assert len(lived) == 15
    first = min(lived, key=lambda arch: estimates.loss([arch]))
    assert chosen.members[0] == first
    assert chosen.loss == pytest.approx(min(estimates.loss([first, arch]) for arch in lived if arch != first))
    assert nes_re(NB201, estimates, 2, 15, seed=0) == [chosen]


def test_children_differ_from_a_parent_in_one_decision(estimates: Estimates) -> None:
    nes_re(NB201, estimates, 2, 12, seed=0)
    predict = estimates.predict
    assert isinstance(predict, Fake)
    for number, child in enumerate(predict.asked[2:], start=2):
        distances = [sum(a != b for a, b in zip(child.choices, x.choices, strict=True)) for x in predict.asked[:number]]
        assert min(distances) == 1


def test_a_posterior_that_foresees_losses(estimates: Estimates) -> None:
    """Spearman of log p with the losses of those that were asked: 1 where p orders them, nothing of a few."""
    for arch in list(NB201.architectures())[:12]:
        estimates.of(arch)
    losses = [estimates.loss([arch]) for arch in estimates.known]
    assert foresight(FLAT, estimates) is None
    assert foresight(leaning(1.0), Estimates(NB201, Fake(), LABELS)) is None
    order = np.array([leaning(1.0).log_p(arch) for arch in estimates.known])
    found = foresight(leaning(1.0), estimates)
    assert found == pytest.approx(-float(spearmanr(order, losses).statistic))


def test_a_prior_recovers_values_that_add_up() -> None:
    """Of all architectures with normal values that are sums over options, the fit is that sum."""
    rng = np.random.default_rng(0)
    worth = rng.normal(size=30)
    worth -= worth.reshape(6, 5).mean(1).repeat(5)
    archs = [NB201.sample(Random(number)) for number in range(3000)]
    values = np.array([sum(worth[5 * place + option] for place, option in enumerate(arch.choices)) for arch in archs])
    prior = np.array(prior_of(NB201, archs, values))
    assert np.corrcoef(prior, worth)[0, 1] > 0.99
    assert prior.std() == pytest.approx(worth.std() / values.std(), rel=0.05)
    leaning_to = ArchitecturePosterior(NB201, (0.0,) * 30, prior=tuple(prior))
    best = tuple(int(row.argmax()) for row in worth.reshape(6, 5))
    assert leaning_to.mode.choices == best
