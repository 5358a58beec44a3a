"""What the one-shot searches share: derivatives of α, Adam as a part of the state, and going on to the bit."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import initio
from initio.data import load
from initio.errors import InputError
from initio.networks.shared import Blend
from initio.searches import Problem, drive
from initio.searches.alpha import Alpha, alpha_of, entropy
from initio.searches.methods.darts import Darts, Lookahead
from initio.searches.methods.drnas import DrNas
from initio.searches.methods.enas import Enas, controller_of
from initio.searches.methods.gdas import Gdas, straight_through
from initio.searches.methods.p_darts import PDarts
from initio.searches.methods.pc_darts import PcDarts, edge_weights
from initio.searches.methods.rsps import Rsps
from initio.searches.methods.sdarts import SdartsAdv, SdartsRs
from initio.searches.methods.snas import Snas
from initio.searches.oneshot import Learned, Moment, OneShotSearch, SharedEpoch, SharedTraining
from initio.spaces import NB201, SPACES, NetworkSettings
from initio.training.fit import Update

SMALL = NetworkSettings(channels=4, cells=1, shape=(1, 8, 8))


def problem(**changes: Any) -> Problem:
    made = Problem(NB201, load("digits"), SMALL, SMALL, batch_size=16, epochs=(2,))
    return replace(made, **changes)


def training(search: OneShotSearch, seed: int = 0) -> SharedTraining:
    at = search.resolved(NB201).training(problem(), seed)
    at.network.double()
    at.knows.values.normal_(generator=torch.Generator().manual_seed(seed))
    return at


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 1, 8, 8, generator=generator).double(), torch.randint(10, (6,), generator=generator)


def update(at: SharedTraining, lr: float = 0.05) -> Update:
    """Before an update of weights that have moved once, so that there is momentum."""
    optimizer = torch.optim.SGD(at.network.parameters(), lr, momentum=0.9, weight_decay=3e-4)
    x, y = batch(1)
    F.cross_entropy(at.network(x, Darts().mix(at, at.knows.values, Moment(0, 1))), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    return Update(0, 0, *batch(2), lr, optimizer)


# --- the second order of DARTS -------------------------------------------------------------------------------------


def smooth(network: nn.Module) -> None:
    """Every ReLU becomes a SiLU: across a kink, a difference of gradients has no limit."""
    for module in network.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.SiLU())


def test_the_second_order_is_the_derivative_through_one_step() -> None:
    """Exact to 1e-6 of a difference in α, which knows nothing of Hessians; the release's own difference to 1e-2."""
    at = training(Darts())
    smooth(at.network)
    told = update(at)
    x, y = batch(3)

    def after_one_step(values: Tensor) -> float:
        """L_val(w'(α), α), the step written out as SGD takes it."""
        blend = Darts().mix(at, values, Moment(0, 1))
        weights = list(at.network.parameters())
        loss = F.cross_entropy(at.network(told.x, blend), told.y)
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        kept = [w.detach().clone() for w in weights]
        with torch.no_grad():
            for w, g in zip(weights, gradients, strict=True):
                if g is not None:
                    w -= told.lr * (0.9 * told.optimizer.state[w]["momentum_buffer"] + g + 3e-4 * w)
            value = F.cross_entropy(at.network(x, blend), y).item()
            for w, before in zip(weights, kept, strict=True):
                w.copy_(before)
        return value

    values, step = at.knows.values, 1e-5
    look = Lookahead(at, at.knows.leaf(), told, momentum=0.9, decay=3e-4)
    exact = look.exact(x, y)
    scale = exact.abs().max()
    for seed in range(2):
        direction = torch.randn(len(values), generator=torch.Generator().manual_seed(seed)).double()
        slope = (after_one_step(values + step * direction) - after_one_step(values - step * direction)) / (2 * step)
        assert abs(slope - float(exact @ direction)) < 1e-6 * float(scale)
    released = Lookahead(at, at.knows.leaf(), told, momentum=0.9, decay=3e-4).difference(x, y)
    assert float((released - exact).abs().max() / scale) < 1e-2
    first = Darts().gradient(at, leaf := at.knows.leaf(), Moment(0, 1), x, y)
    assert float((first - exact).abs().max() / scale) > 1e-3, "nothing would tell the two orders apart"
    assert leaf.grad is None


def test_a_difference_across_kinks_is_no_derivative() -> None:
    """The release's distance of 0.01 crosses kinks of ReLUs and counts their jumps; one that crosses none agrees."""
    at = training(Darts())
    told = update(at)
    exact = Lookahead(at, at.knows.leaf(), told, 0.9, 3e-4).exact(*batch(3))
    off = []
    for radius in (1e-2, 1e-5):
        released = Lookahead(at, at.knows.leaf(), told, 0.9, 3e-4, radius).difference(*batch(3))
        off.append(float((released - exact).abs().max() / exact.abs().max()))
    assert off[0] > 1
    assert off[1] < 1e-6


def test_both_ways_to_the_second_order_leave_the_weights_alone() -> None:
    for hessian in ("difference", "exact"):
        search = Darts(order=2, hessian=hessian)  # type: ignore[arg-type]
        at = training(search)
        told = update(at)
        before = {name: value.clone() for name, value in at.network.state_dict().items() if "tally" not in name}
        search.gradient(at, at.knows.leaf(), Moment(0, 1, told), *batch(3))
        assert all(torch.equal(before[name], at.network.state_dict()[name]) for name in before)
        assert all(p.grad is None for p in at.network.parameters())


# --- how architectures are drawn, and what learns --------------------------------------------------------------------


def test_adam_is_torchs() -> None:
    start = torch.randn(5, generator=torch.Generator().manual_seed(0))
    ours, theirs = Learned(start), torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([theirs], lr=0.01, betas=(0.5, 0.999), weight_decay=1e-3)
    for k in range(5):
        theirs.grad = torch.randn(5, generator=torch.Generator().manual_seed(k + 1))
        ours.adam(theirs.grad, 0.01, (0.5, 0.999), 1e-3)
        optimizer.step()
    torch.testing.assert_close(ours.values, theirs.detach(), rtol=1e-5, atol=1e-7)
    with pytest.raises(InputError, match="the gradient of the architecture is not finite"):
        ours.adam(torch.full((5,), math.nan), 0.01, (0.5, 0.999))


def test_gates_have_value_one_and_the_slope_of_a_softmax() -> None:
    at = training(Gdas())
    values = at.knows.leaf()
    torch.manual_seed(5)
    blend = straight_through(at, values, tau=0.7)
    torch.manual_seed(5)
    rows, _ = alpha_of(at).rows(values)
    for row, options in zip(rows, blend.options, strict=True):
        noisy = (row - torch.empty_like(row).exponential_().log()) / 0.7
        [(option, gate)] = options.items()
        assert gate is not None
        assert gate.item() == 1.0
        assert option == int(noisy.argmax())
        expected = torch.autograd.grad(noisy.softmax(0)[option], values, retain_graph=True)[0]
        torch.testing.assert_close(torch.autograd.grad(gate, values, retain_graph=True)[0], expected)
    plain = Gdas().draw(at, Moment(0, 2))
    assert all(weight is None for options in plain.options for weight in options.values())


def test_the_temperature_falls() -> None:
    assert [Moment(e, 5).progress for e in range(5)] == [0, 0.25, 0.5, 0.75, 1]
    assert Moment(0, 1).progress == 0


def test_edges_into_a_node_share_their_weight() -> None:
    at = training(PcDarts(parts=2))
    rows, edges = alpha_of(at).rows(at.knows.values)
    assert [len(row) for row in rows] == [5] * 6
    weights = edge_weights(at, edges)
    for node in ((0,), (1, 2), (3, 4, 5)):
        assert float(sum(weights[k] for k in node)) == pytest.approx(1)
    assert float(weights[1] / weights[2]) == pytest.approx(math.exp(float(edges[1] - edges[2])))


def test_alpha_rests_first() -> None:
    at = training(PcDarts(parts=2, rest=0.5))
    PcDarts(parts=2, rest=0.5).learn(at, Moment(0, 2))  # would ask for a batch that is not there
    with pytest.raises(StopIteration):
        PcDarts(parts=2, rest=0.5).learn(at, Moment(1, 2))


def test_smooth_darts_stays_in_its_box_and_the_worst_is_worse() -> None:
    losses = {}
    for search in (SdartsRs(), SdartsAdv()):
        at = training(search)
        told = update(at)
        torch.manual_seed(0)
        blend = search.draw(at, Moment(1, 2, told))
        for row, options in zip(search.probabilities(at, at.knows.values), blend.options, strict=True):
            drawn = torch.stack([weight for weight in options.values() if weight is not None])
            assert float(drawn.sum()) == pytest.approx(1)
            assert float(drawn.min()) >= 0
            assert not torch.allclose(drawn, row)
        losses[search.name] = F.cross_entropy(at.network(told.x, blend), told.y).item()
    assert losses["sdarts-adv"] > losses["sdarts-rs"]


def test_dirichlet_draws_have_the_mean_that_is_read() -> None:
    search = DrNas().resolved(NB201)
    at = training(search)
    torch.manual_seed(0)
    drawn = [search.draw(at, Moment(0, 1)).options[0] for _ in range(300)]
    means = torch.tensor([[float(w) for w in options.values() if w is not None] for options in drawn]).mean(0)
    torch.testing.assert_close(means.double(), search.probabilities(at, at.knows.values)[0], atol=0.06, rtol=0)


def test_snas_learns_from_the_backward_pass_of_the_weights() -> None:
    search = Snas()
    at = training(search)
    before = at.knows.values.clone()
    x, y = batch(1)
    F.cross_entropy(at.network(x, search.draw(at, Moment(0, 1))), y).backward()
    search.learn(at, Moment(0, 1))
    assert not torch.equal(at.knows.values, before)
    assert at.pending is None


def test_the_controller_learns_what_is_rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a network that is right exactly where the first edge is a 3x3 convolution, that becomes likely."""
    search = Enas(steps=40, batch=20, controller_lr=0.05, hidden=8)
    at = search.training(problem(), 0)

    def forward(x: Tensor, blend: Blend) -> Tensor:
        good = 3 in blend.options[0]
        right = F.one_hot(labels[x.sum().item()], 10).float()
        return right if good else 1 - right

    labels = {}
    held = list(at.held_out(0, 1))
    for x, y in held:
        labels[x.sum().item()] = y
    monkeypatch.setattr(at.network, "forward", forward)
    monkeypatch.setattr(at, "held_out", lambda epoch, count, *stream: iter(held * count))

    def share() -> float:
        return float((controller_of(at).sample(at.knows.values, 500)[0][:, 0] == 3).float().mean())

    torch.manual_seed(0)
    before = share()
    search.teach(at, Moment(0, 1))
    assert before < 0.35
    assert share() > 0.7


def test_p_darts_drops_options_deepens_and_limits_skips() -> None:
    search = PDarts(first_drop=2, second_drop=1, growth=1, most_skips=1)
    alpha = tuple(float(v) for v in [5, 4, 3, 2, 1] * 6)
    arch = NB201.architecture(1, 1, 1, 1, 1, 1)
    done = [SharedEpoch(k, arch, 1.0, 1.0, None, None, None, 6, alpha) for k in range(2)]
    kept = search.kept(NB201, 1, done)
    assert kept == [(0, 1, 2)] * 6
    assert search.sized(problem(), 2).network.cells == 3
    at = search.training(problem(), 0, 2, [*done, *(replace(step, alpha=(1.0, 9.0, 8.0) * 6) for step in done)])
    assert alpha_of(at).kept == ((1, 2),) * 6
    at.knows.values.copy_(torch.tensor([9.0, 8.0] * 6) + torch.arange(12) * torch.tensor([0.01, 0.0] * 6))
    found = search.read(at, Moment(1, 2)).architecture
    assert found.choices == (2, 2, 2, 2, 2, 1), "the skip with the most weight stays"
    assert search.dropped(1, Moment(0, 10)) == pytest.approx(0.4 * 0.9)
    assert search.dropped(1, Moment(5, 10)) == pytest.approx(0.4 * math.exp(-0.2))


def test_entropy_counts_rows() -> None:
    alpha = Alpha(torch.zeros(7), [(0, 1, 2), (0, 1), (0, 3)])
    assert entropy([row.softmax(0) for row in alpha.rows(alpha.values)[0]]) == pytest.approx(1)


# --- a search like all others -----------------------------------------------------------------------------------------


def tiny(name: str, folder: Path | None, **changes: Any) -> initio.SearchResult:
    given: dict[str, Any] = {"epochs": 3, "samples": 60, "channels": 4, "pixels": 8, "batch_size": 16}
    return initio.search("nb201", name, "digits", folder=folder, **{**given, **changes})


class Killed(BaseException):
    """As kill −9: nothing is tidied up."""


def learned_by(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs that are learned from now on."""
    learned: list[int] = []
    epoch = initio.training.fit._Trainer.epoch  # type: ignore[attr-defined]

    def noted(trainer: Any, number: int, *, validate: bool) -> Any:
        learned.append(number)
        return epoch(trainer, number, validate=validate)

    monkeypatch.setattr("initio.training.fit._Trainer.epoch", noted)
    return learned


KEPT = [Darts(samples=60), Gdas(samples=60), Snas(samples=60), PDarts(samples=60, growth=0),
        Rsps(samples=60, candidates=2), Enas(samples=60, candidates=2, steps=1, batch=2)]  # fmt: skip


@pytest.mark.parametrize("search", KEPT, ids=lambda search: search.name)
def test_every_kind_of_knowledge_is_in_the_checkpoint(
    search: OneShotSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = problem(folder=tmp_path)
    whole = drive(search, where, seed=0)
    before = len(whole.steps) - 1
    for path in tmp_path.iterdir():
        path.unlink()
    done: list[SharedEpoch] = []

    def die(step: SharedEpoch) -> None:
        done.append(step)
        if len(done) == before:
            raise Killed

    with pytest.raises(Killed):
        drive(search, where, seed=0, on_step=die)
    learned = learned_by(monkeypatch)
    assert drive(search, where, seed=0, done=done) == whole
    assert learned == [1]


def test_a_kill_between_checkpoint_and_step_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search, where = Darts(samples=60), problem(folder=tmp_path)

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Darts, "_step", die)
        with pytest.raises(Killed):
            drive(search, where, seed=0)
    learned = learned_by(monkeypatch)
    again = drive(search, where, seed=0)
    assert learned == [1]
    assert again.steps == drive(search, problem(), seed=0).steps


def test_steps_and_checkpoint_that_do_not_fit_start_over_or_are_refused(tmp_path: Path) -> None:
    search, where = Darts(samples=60), problem(folder=tmp_path)
    expected = drive(search, where, seed=0)
    assert drive(search, where, seed=0).steps == expected.steps, "all steps were lost"
    done = [replace(expected.steps[0], loss=9.0)]  # type: ignore[call-arg]
    with pytest.raises(InputError, match="epoch 1 came out otherwise than the run has it"):
        drive(search, problem(), seed=0, done=done)


def test_what_cannot_be_searched_gets_a_sentence() -> None:
    with pytest.raises(InputError, match="noise has nothing to learn"):
        initio.search("nb201", "darts", "noise")
    with pytest.raises(InputError, match="darts trains a supernet, which nb101 does not have"):
        initio.search("nb101", "darts", "digits")
    with pytest.raises(InputError, match="queries is not an option of gdas: it trains one network"):
        initio.search("nb201", "gdas", "digits", queries=3)
    with pytest.raises(InputError, match="cannot be cut into 4 equal parts"):
        initio.search("nb201", "pc-darts", "digits", channels=6)
    with pytest.raises(InputError, match="order must be 1 or 2, not 3"):
        Darts(order=3)
    with pytest.raises(InputError, match="dropout must be three shares"):
        PDarts(dropout="0.1,2")
    with pytest.raises(InputError, match="held_out must be above 0"):
        Enas(held_out=0.0)
    with pytest.raises(InputError, match="the number of epochs must be a whole number of at least 1"):
        tiny("darts", None, epochs=0)


def test_a_loss_that_is_not_finite_ends_in_a_sentence() -> None:
    with pytest.raises(InputError, match="the training diverged: .*; a smaller learning rate may help|not finite"):
        tiny("rsps", None, lr=1e30, clip=1e30, candidates=2)


def test_published_sizes_are_one_flag_away() -> None:
    assert Rsps(size="published").network_size(NB201) == NB201.sizes.shared_published
    assert Rsps().network_size(NB201).channels == 8
    assert [PDarts(size=size).network_size(SPACES["darts"]).cells for size in ("small", "published")] == [5, 5]
    assert Darts(size="published").network_size(SPACES["darts"]).cells == 8
