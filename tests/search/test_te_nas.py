"""TE-NAS: the pruned supernet is the right network, and pruning removes what the two ranks say."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from initio import InputError
from initio.networks import build
from initio.records import Observation
from initio.search import Budget, Task, TeNas, run_queries
from initio.search.te_nas import Kept, keep
from initio.spaces import DARTS, NB101, NB201, GraphSpace, NetworkSettings

SMALL = NetworkSettings(channels=2, cells=1, shape=(3, 8, 8))


@dataclass(frozen=True)
class Toy(TeNas):
    """Measured is only which options are left: removing 3 is worst, then 1, 4, 2, 0."""

    def measure(self, space: GraphSpace, kept: Kept, draws: Sequence[int]) -> tuple[float, float]:
        loss = {3: 5, 1: 4, 4: 3, 2: 2, 0: 1, 5: 0, 6: 0}
        gone = sum(loss[o] for k, left in enumerate(kept) for o in range(len(space.relaxation[k])) if o not in left)
        return float(gone), -float(gone)


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
        weights = Toy(prunes=prunes).weights(NB201, seed=0)
        assert NB201.decode(weights).choices == (3,) * 6
        for row in weights:
            assert sorted(range(5), key=row.__getitem__) == [0, 2, 4, 1, 3]


def test_darts_keeps_two_edges_a_node() -> None:
    arch = DARTS.decode(Toy(prunes=3).weights(DARTS, seed=0))
    assert DARTS.contains(arch)


def test_one_query_and_the_nearest_member_of_a_pool() -> None:
    pool = (NB201.architecture(0, 0, 0, 0, 0, 0), NB201.architecture(3, 3, 3, 3, 3, 1))
    result = run_queries(Toy(), Task(NB201, Budget(queries=9), pool), lambda query: Observation(1.0), seed=0)
    assert (result.cost.queries, result.chosen) == (1, pool[1:])


def test_measured_values_are_those_of_the_metrics_and_repeat() -> None:
    search, full = TeNas(data="noise:3x8x8", batch_size=4, channels=2), tuple((1, 3) for _ in range(6))
    log_kappa, regions = search.measure(NB201, full, [5])
    assert log_kappa > 0
    assert 1 < regions <= 1000
    assert search.measure(NB201, full, [5]) == (log_kappa, regions)
    assert search.measure(NB201, ((0,),) * 6, [5])[0] == float("inf")  # disconnected: the worst, not an error


def test_what_has_no_supernet() -> None:
    with pytest.raises(InputError, match="te-nas prunes a supernet, which nb101 does not have: take nb201 or darts"):
        run_queries(TeNas(), Task(NB101, Budget(queries=1)), lambda query: Observation(1.0), seed=0)
    with pytest.raises(InputError, match="batch_size must be at least 2, not 1"):
        TeNas(batch_size=1)
