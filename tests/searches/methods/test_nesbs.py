"""The posterior maximises its evidence bound: its objective, its gates, and when it learns."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from initio.data import load
from initio.errors import InputError
from initio.networks.shared import Blend
from initio.runs.search import make_search
from initio.searches import Problem
from initio.searches.ensembles import ArchitecturePosterior
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


@pytest.mark.parametrize(
    "wrong", [{"posterior": "never"}, {"held_out": 0.0}, {"tau": 0.0}, {"posterior_epochs": 0}, {"draws": 1}]
)
def test_wrong_settings_are_sentences(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Nesbs(**wrong)  # type: ignore[arg-type]


def test_darts_has_half_of_its_channels_mixed() -> None:
    found = [make_search("nesbs", space, {}).resolved(space) for space in (get_space("darts"), NB201)]
    assert [search.partial for search in found if isinstance(search, Nesbs)] == [2, 1]


class Sum(torch.nn.Module):
    """A network whose loss is a known sum over options: the logits of two classes, 0 and that sum."""

    def __init__(self, worth: torch.Tensor) -> None:
        super().__init__()
        self.worth = worth

    def forward(self, x: torch.Tensor, blend: Blend) -> torch.Tensor:
        gates = [
            self.worth[categorical, option] * (1 if gate is None else gate)
            for categorical, row in enumerate(blend.options)
            for option, gate in row.items()
        ]
        total = torch.stack([torch.as_tensor(gate) for gate in gates]).sum()
        return torch.stack([torch.zeros(()), total]).expand(len(x), 2)


def test_the_posterior_learns_what_options_are_worth(at: SharedTraining) -> None:
    """All samples are of class 1, and the loss falls with the sum of what the architecture's options are worth."""
    worth = torch.randn(6, 5, generator=torch.Generator().manual_seed(3)) * 0.5
    y = torch.ones(64, dtype=torch.int64)
    found = {}
    for estimator in ("score", "straight-through"):
        search = Nesbs(estimator=estimator, alpha_lr=0.05)  # type: ignore[arg-type]
        fake = replace(at, network=Sum(worth), knows=search.knowledge(NB201, 0, (), 0))  # type: ignore[arg-type]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for _ in range(400):
                values = fake.knows.leaf()
                search.update(fake, search.gradient(fake, values, Moment(0, 1), torch.zeros(64, 1), y))
        learned = fake.knows.values.reshape(6, 5)
        found[estimator] = float(torch.corrcoef(torch.stack([learned.flatten(), centred(worth).flatten()]))[0, 1])
        assert (learned.argmax(1) == worth.argmax(1)).sum() >= 5
    assert found["score"] > 0.8


def centred(rows: torch.Tensor) -> torch.Tensor:
    return rows - rows.mean(1, keepdim=True)


def test_the_gradient_of_the_score_function_is_that_of_the_expectation(at: SharedTraining) -> None:
    """Its mean over many draws, against the sum over all options of one edge that matters."""
    worth = torch.zeros(6, 5)
    worth[2] = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5])
    search, y = Nesbs(draws=200), torch.ones(1, dtype=torch.int64)
    values = torch.randn(30, generator=torch.Generator().manual_seed(4)) * 0.3
    fake = replace(at, network=Sum(worth))  # type: ignore[arg-type]
    losses = torch.nn.functional.softplus(-worth[2])
    leaf = values.clone().requires_grad_()
    expected = search.objective(fake, leaf, (leaf[10:15].softmax(0) * losses).sum())
    [exact] = torch.autograd.grad(expected, [leaf])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        draws = [
            search.gradient(fake, values.clone().requires_grad_(), Moment(0, 1), torch.zeros(1, 1), y)
            for _ in range(60)
        ]
    off = (torch.stack(draws).mean(0) - exact).abs()
    assert off.max() < 0.01
    assert exact[10:15].abs().max() > 0.1


def test_a_node_of_darts_takes_its_likeliest_edges() -> None:
    """One distribution over (edge, operation) a node: two favoured edges of five are nearly always taken."""
    space = get_space("darts")
    search = Nesbs(samples=60, posterior_updates=1).resolved(space)
    size = NetworkSettings(channels=4, cells=2, shape=(1, 8, 8))
    own = search.training(Problem(space, load("digits"), size, size, batch_size=16, epochs=(1,)), 0)
    group = space.rivals[3]
    assert [len(each) for each in space.rivals] == [2, 3, 4, 5] * 2
    values = torch.zeros(28 * 7)
    for k in (group[1], group[3]):
        values[7 * k + 2] = 6.0
    log_p = search.log_probabilities(own, values)
    assert float(torch.cat([log_p[k] for k in group]).exp().sum()) == pytest.approx(1.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = [search.sampled(own, log_p) for _ in range(40)]
    taken = [{k for k, _ in space.active(arch)} & set(group) for arch, _, _ in drawn]
    assert all(len(edges) == 2 for edges in taken)
    assert sum(edges == {group[1], group[3]} for edges in taken) > 30
    posterior = ArchitecturePosterior(space, tuple(values.tolist()))
    rng = np.random.default_rng(0)
    sampled = [{k for k, _ in space.active(posterior.sample(rng))} & set(group) for _ in range(40)]
    assert sum(edges == {group[1], group[3]} for edges in sampled) > 30
    assert {k for k, _ in space.active(posterior.mode)} & set(group) == {group[1], group[3]}
    [near] = posterior.sets(3, [-2.0], rng)
    assert all({k for k, _ in space.active(arch)} & set(group) == {group[1], group[3]} for arch in near)
