"""Distances of architectures: similar names are near, dead parts and names of nodes do not count."""

from random import Random

import numpy as np

from initio.searches.models.encoding import WAYS, Encoder, bags, one_hot
from initio.spaces import DARTS, NB101, NB201, space
from initio.spaces.mlp import mlp_space


def distances(of, *archs):  # type: ignore[no-untyped-def]
    encoder = Encoder(of)
    rows = encoder.rows(archs)
    return dict(zip(WAYS, encoder.distances(rows, rows), strict=True))


def test_two_sizes_of_a_convolution_are_nearer_than_a_convolution_and_a_pooling() -> None:
    three, one, pool = (NB201.architecture(3, 3, 3, 1, 3, op) for op in (3, 2, 4))
    d = distances(NB201, three, one, pool)["decisions"][0]
    assert 0 == d[0] < d[1] < d[2]


def test_numbers_are_near_in_order() -> None:
    own = space("tiny", lambda width: None, width=[16, 32, 64, 128])  # type: ignore[arg-type, return-value]
    d = distances(own, *own.architectures())["decisions"][0]
    assert (np.diff(d) > 0).all()


def test_dead_edges_do_not_count_in_paths_and_motifs() -> None:
    dead = NB201.architecture(3, 0, 1, 0, 3, 0)  # node 2 goes nowhere
    deader = NB201.architecture(3, 2, 4, 0, 3, 0)
    d = distances(NB201, dead, deader)
    assert d["paths"][0, 1] == d["motifs"][0, 1] == 0
    assert d["decisions"][0, 1] > 0


def test_renamed_nodes_are_the_same_in_paths_and_motifs() -> None:
    rng = Random(0)
    for _ in range(20):
        arch = DARTS.sample(rng)
        d = distances(DARTS, arch, DARTS.canonical(arch))
        assert d["paths"][0, 1] == d["motifs"][0, 1] == 0


def test_the_distance_is_the_weight_of_what_is_not_shared() -> None:
    rng = Random(1)
    for of in (NB201, NB101, DARTS):
        a, b = of.sample(rng), of.sample(rng)
        d = distances(of, a, b)
        for way, x, y in zip(WAYS, bags(of, a), bags(of, b), strict=True):
            slow = sum(abs(x.get(token, 0) - y.get(token, 0)) for token in {*x, *y})
            assert np.isclose(d[way][0, 1], slow), (of.name, way)


def test_numbers_for_regression_have_the_same_geometry() -> None:
    rng = Random(2)
    archs = [NB201.sample(rng) for _ in range(10)]
    X = one_hot(NB201, archs)
    squares = ((X[:, None] - X[None]) ** 2).sum(2)
    assert np.allclose(squares, distances(NB201, *archs)["decisions"])


def test_deep_chains_have_too_many_paths() -> None:
    deep = mlp_space(20)
    full = deep.architecture(*(len(decision) - 1 for decision in deep.decisions))
    assert bags(deep, full)[WAYS.index("motifs")]
