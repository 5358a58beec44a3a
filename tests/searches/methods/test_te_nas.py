"""TE-NAS: the pruned supernet is the right network, and pruning removes what the two ranks say."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from initio import InputError
from initio.data import Data, load
from initio.networks.build import build
from initio.records import Observation
from initio.searches import Budget
from initio.searches.methods.te_nas import Kept, PrunedSupernet, TeNas, _start, _without, keep, mixed_names
from initio.spaces import DARTS, NB101, NB201, GraphSpace, NetworkSettings
from tests.searches.asking import ask, asking

NOISE = load("noise:3x8x8")
SMALL = NetworkSettings(channels=2, cells=1, shape=(3, 8, 8))


@dataclass(frozen=True)
class Toy(TeNas):
    """Measured is only which options are left: removing 3 is worst, then 1, 4, 2, 0."""

    def changes(
        self, space: GraphSpace, data: Data, kept: Kept, smaller: Sequence[Kept], draw: int, device: str = "cpu"
    ) -> tuple[list[float], list[float]]:
        loss = {3: 5, 1: 4, 4: 3, 2: 2, 0: 1, 5: 0, 6: 0}
        everything = [range(len(decision)) for decision in space.relaxation]
        gone = [
            float(sum(loss[o] for k, left in enumerate(s) for o in everything[k] if o not in left)) for s in smaller
        ]
        return gone, [-g for g in gone]


@pytest.mark.parametrize("choices", [(3, 1, 0, 2, 4, 3), (3, 3, 3, 3, 3, 3), (0, 0, 0, 0, 0, 0)])
def test_one_option_an_edge_is_the_network_itself(choices: tuple[int, ...]) -> None:
    graph = keep(NB201.supernet(choices, SMALL), tuple((c,) for c in choices))
    net = build(graph, SMALL, seed=0)
    plain = NB201.build(NB201.architecture(*choices), SMALL, seed=0)
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(net(x), plain(x))


def test_options_of_an_edge_are_added() -> None:
    """Two skips side by side on the only path double the value that the head normalises."""
    kept: Kept = ((0,), (0,), (0,), (1, 4), (0,), (0,))
    steps = [step for step in keep(NB201.supernet((0,) * 6, SMALL), kept).steps if step.name == "stage_1_cell_1"]
    cell = steps[0].op
    assert [step.name for step in cell.steps] == ["edge_0_3_4", "edge_0_3"]  # type: ignore[union-attr]
    assert cell.steps[1].inputs == (0, 1)  # type: ignore[union-attr]


def test_the_option_whose_loss_is_worst_survives() -> None:
    for prunes in (1, 2, 9):
        weights = Toy(prunes=prunes).weights(NB201, NOISE, seed=0)
        assert NB201.decode(weights).choices == (3,) * 6
        for row in weights:
            assert sorted(range(5), key=row.__getitem__) == [0, 2, 4, 1, 3]


def test_darts_keeps_two_edges_a_node() -> None:
    arch = DARTS.decode(Toy(prunes=3).weights(DARTS, NOISE, seed=0))
    assert DARTS.contains(arch)


def test_one_query_and_the_nearest_member_of_a_pool() -> None:
    pool = (NB201.architecture(0, 0, 0, 0, 0, 0), NB201.architecture(3, 3, 3, 3, 3, 1))
    result = ask(Toy(), asking(NB201, Budget(queries=9), pool), lambda query: Observation(1.0), seed=0)
    assert (result.cost.queries, result.chosen) == (1, pool[1:])


def test_none_leaves_before_the_first_round() -> None:
    """Its removal changes nothing, so no rank could tell that it is useless."""
    assert _start(NB201) == ((1, 2, 3, 4),) * 6
    assert all(len(options) == 7 for options in _start(DARTS))  # that space has none


def test_smaller_supernets_have_the_weights_of_the_whole_one() -> None:
    """Otherwise a change of weights would drown the change of one option."""
    kept: Kept = ((1, 2, 3),) * 6
    whole, less = PrunedSupernet(NB201, kept, SMALL, 3).parts([_without(kept, 0, 2)])
    weights, names = whole.state_dict(), less.state_dict().keys()
    assert set(weights) - names == {n for n in weights if ".edge_0_1_2." in n}
    assert all(torch.equal(weights[name], value) for name, value in less.state_dict().items())


def test_options_of_an_edge_are_averaged() -> None:
    """A skip beside a skip-like pooling of a constant image gives the image, not twice the image."""
    kept: Kept = ((0,), (0,), (0,), (1, 4), (0,), (0,))
    (net,) = PrunedSupernet(NB201, kept, NetworkSettings(channels=1, cells=1, shape=(1, 3, 3)), 0, bare=True).parts([])
    seen: list[torch.Tensor] = []
    net.cell.register_forward_hook(lambda module, values, out: seen.append(out))  # type: ignore[union-attr]
    x = torch.ones(2, 1, 3, 3)
    net(x)
    torch.testing.assert_close(seen[0], x)
    assert mixed_names(NB201.supernet((0,) * 6, SMALL)) == {f"edge_{i}_{j}" for j in (1, 2, 3) for i in range(j)}


def test_changes_are_those_of_the_metrics_and_repeat() -> None:
    search, kept = TeNas(images=4, width=2), tuple((1, 3) for _ in range(6))
    smaller = [kept, _without(kept, 5, 3), ((),) * 6]
    kappa, regions = search.changes(NB201, NOISE, kept, smaller, 5)
    assert (kappa[0], regions[0]) == (0.0, 0.0)
    assert kappa[1] != 0.0
    assert (kappa[2], regions[2]) == (math.inf, pytest.approx(-1, abs=0.01))  # nothing connects: the worst, no error
    assert search.changes(NB201, NOISE, kept, smaller, 5) == (kappa, regions)


def test_what_has_no_supernet() -> None:
    with pytest.raises(InputError, match="te-nas prunes a supernet, which nb101 does not have: take nb201 or darts"):
        ask(TeNas(), asking(NB101, Budget(queries=1)), lambda query: Observation(1.0), seed=0)
    with pytest.raises(InputError, match="images must be at least 2, not 1"):
        TeNas(images=1)


def test_the_images_are_the_problems_own() -> None:
    """On a table, which has none, they are noise."""
    seen = []

    @dataclass(frozen=True)
    class Looking(Toy):
        def weights(self, space: GraphSpace, data: Data, seed: int, device: str = "cpu") -> list[list[float]]:
            seen.append(data.name)
            return super().weights(space, data, seed, device)

    for data in (load("digits"), None):
        problem = replace(asking(NB201, Budget(queries=1)), data=data)
        ask(Looking(), problem, lambda query: Observation(1.0), seed=0)
    assert seen[0] == "digits"
    assert seen[1].startswith("noise")
