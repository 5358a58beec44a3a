"""The posterior maximises its evidence bound: its objective, its gates, and when it learns."""

import math

import pytest
import torch

from initio.data import load
from initio.errors import InputError
from initio.networks.shared import Blend
from initio.runs.search import make_search
from initio.searches import Problem
from initio.searches.methods.nesbs import Nesbs
from initio.searches.oneshot import Moment, SharedTraining
from initio.spaces import NB201, NetworkSettings, get_space

SMALL = NetworkSettings(channels=2, cells=1, shape=(1, 8, 8))


def training(search: Nesbs) -> SharedTraining:
    return search.resolved(NB201).training(Problem(NB201, load("digits"), SMALL, SMALL, batch_size=16, epochs=(2,)), 0)


@pytest.fixture(scope="module")
def at() -> SharedTraining:
    return training(Nesbs(samples=60, posterior_epochs=3, posterior_updates=1))


def test_the_objective_is_the_bound_by_sample(at: SharedTraining) -> None:
    values = torch.randn(30, generator=torch.Generator().manual_seed(0))
    uniform = torch.distributions.Categorical(logits=torch.zeros(5))
    kl = sum(
        torch.distributions.kl_divergence(torch.distributions.Categorical(logits=row), uniform)
        for row in values.split(5)
    )
    loss = Nesbs().objective(at, values, torch.tensor(0.25))
    assert float(loss) == pytest.approx(0.25 + float(kl) / len(at.other), abs=1e-6)
    assert float(Nesbs().objective(at, torch.zeros(30), torch.tensor(0.0))) == pytest.approx(0.0, abs=1e-7)


def test_gates_are_one_and_have_the_softmaxs_derivative(at: SharedTraining) -> None:
    search, values = Nesbs(tau=0.7), torch.randn(30, generator=torch.Generator().manual_seed(1)).requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        blend = search.mix(at, values, Moment(0, 1))
        torch.manual_seed(0)
        noise = [-torch.empty(5).exponential_().log() for _ in range(6)]
    place, gate = next(iter(blend.options[2].items()))
    assert gate is not None
    assert gate.item() == pytest.approx(1.0)
    soft = ((values[10:15].log_softmax(0) + noise[2]) / 0.7).softmax(0)[place]
    [ours], [plain] = (torch.autograd.grad(value, [values], retain_graph=True) for value in (gate, soft))
    torch.testing.assert_close(ours, plain)


def test_it_learns_after_the_last_epoch_alone(at: SharedTraining) -> None:
    search = Nesbs(samples=60, posterior_epochs=3, posterior_updates=1)
    search.teach(at, Moment(0, 2))
    assert int(at.knows.count) == 0
    search.teach(at, Moment(1, 2))
    assert int(at.knows.count) == 3 * math.ceil(len(at.other) / 16)
    assert at.knows.values.abs().max() > 0


def test_small_data_get_as_many_updates(at: SharedTraining) -> None:
    before = int(at.knows.count)
    Nesbs(samples=60, posterior_epochs=1, posterior_updates=5).teach(at, Moment(1, 2))
    count = math.ceil(len(at.other) / 16)
    assert int(at.knows.count) - before == count * math.ceil(5 / count)


def test_beside_the_weights_it_learns_before_each_update() -> None:
    search = Nesbs(samples=60, posterior="best-response").resolved(NB201)
    other = training(search)
    other.held = other.held_out(0, 1)
    search.learn(other, Moment(0, 2))
    assert int(other.knows.count) == 1
    assert isinstance(search.draw(other, Moment(0, 2)), Blend)


@pytest.mark.parametrize("wrong", [{"posterior": "never"}, {"held_out": 0.0}, {"tau": 0.0}, {"posterior_epochs": 0}])
def test_wrong_settings_are_sentences(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Nesbs(**wrong)  # type: ignore[arg-type]


def test_darts_has_half_of_its_channels_mixed() -> None:
    assert make_search("nesbs", get_space("darts"), {}).partial == 2
    assert make_search("nesbs", NB201, {}).partial == 1
