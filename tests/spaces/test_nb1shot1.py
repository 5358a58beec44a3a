"""NAS-Bench-1Shot1: three sub-spaces of NAS-Bench-101."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from initio.errors import InputError
from initio.networks.graphs import NetworkSettings
from initio.spaces.modelspec import OPS
from initio.spaces.nb1shot1 import NB1SHOT1_S1, NB1SHOT1_S2, NB1SHOT1_S3, NB1Shot1Space
from initio.spaces.nb101 import NB101

DATA = Path(os.environ.get("INITIO_DATA", Path(__file__).parents[3] / "shared" / "data"))
SPACES = (NB1SHOT1_S1, NB1SHOT1_S2, NB1SHOT1_S3)
every_space = pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    files = DATA / "nb101.npz", DATA / "nb101_hash64.npz"
    if not all(file.is_file() for file in files):
        pytest.skip(f"needs nb101.npz and nb101_hash64.npz in {DATA}: set INITIO_DATA")
    return {name: array for file in files for name, array in np.load(file, allow_pickle=False).items()}


def samples(space: NB1Shot1Space, count: int) -> list:
    rng = random.Random(0)
    return [space.sample(rng) for _ in range(count)]


@pytest.mark.parametrize(
    ("space", "count", "parents"),
    [
        (NB1SHOT1_S1, 14_580, [1, 1, 3, 6, 10]),
        (NB1SHOT1_S2, 29_160, [1, 2, 3, 6, 10]),
        (NB1SHOT1_S3, 1_312_200, [1, 2, 3, 6, 10, 15]),
    ],
)
def test_counts(space, count, parents):
    assert space.count() == count
    assert [len(decision) for decision in space.decisions] == parents + [3] * (len(parents) - 1)
    if count < 20_000:
        assert len(set(space.architectures())) == count


@every_space
def test_every_sampled_cell_is_in_nb101(space, table):
    hashes = [int(NB101.graph_hash(space.to_nb101(arch))[:16], 16) for arch in samples(space, 1000)]
    assert np.isin(np.array(hashes, dtype=np.uint64), table["hash64"]).all()


@pytest.mark.parametrize(("space", "published"), [(NB1SHOT1_S1, 5.449), (NB1SHOT1_S2, 5.759)])
def test_best_mean_test_error_is_close_to_the_best_single_trial(space, published, table):
    """The benchmark's constant is of one trial; a mean over trials cannot be lower, and is little above."""
    cells = {space.canonical(arch) for arch in space.architectures()}
    hashes = np.array([int(NB101.graph_hash(cell)[:16], 16) for cell in cells], dtype=np.uint64)
    rows = np.searchsorted(table["hash64"], hashes)
    assert (table["hash64"][rows] == hashes).all()
    assert published < 100 - table["test_acc_108"][rows].max() < published + 0.5


@every_space
def test_the_cell_has_nine_edges_and_the_given_parents(space):
    for arch in samples(space, 50):
        matrix, ops = space.to_matrix(arch)
        assert sum(map(sum, matrix)) == 9
        degrees = [sum(column) for column in zip(*matrix, strict=True)]
        isolated = [0] * (5 - space.n_blocks)
        assert degrees == [0, *space.n_parents[:-1], *isolated, space.n_parents[-1]]
        assert ops[space.n_blocks :] == (OPS.index("conv1x1-bn-relu"),) * len(isolated)


@every_space
def test_both_notations_read_back(space):
    for arch in samples(space, 50):
        assert space.parse(space.format(arch)) == arch
        assert space.parse(NB101.format(space.to_nb101(arch))) == arch


def test_a_cell_without_the_filling_vertex_is_read():
    arch = NB1SHOT1_S1.architecture(0, 0, 2, 5, 9, 0, 0, 1, 2)
    matrix, ops = NB1SHOT1_S1.to_matrix(arch)
    keep = (0, 1, 2, 3, 4, 6)
    smaller = [[matrix[i][j] for j in keep] for i in keep]
    assert NB1SHOT1_S1.from_matrix(smaller, ops[:4]) == arch
    text = NB101.format(NB101.from_matrix(smaller, ops[:4]))
    assert NB1SHOT1_S1.parse(text) == arch


@every_space
def test_representatives_pictures_and_networks_are_those_of_nb101(space):
    settings = NetworkSettings(channels=8, cells=1)
    for arch in samples(space, 20):
        twin = space.to_nb101(arch)
        assert space.canonical(arch) == NB101.canonical(twin)
        assert space.cells(arch) == NB101.cells(twin)
        assert space.network(arch, settings) == NB101.network(twin, settings)
        assert space.size(NetworkSettings()) == NB101.size(NetworkSettings()) == (128, 3)


CHAIN = [[int(j == i + 1) for j in range(6)] for i in range(6)]
GOOD = "nb1shot1-s1:parents=0|0,1|0,1|0,1|0,1;ops=maxpool3x3,maxpool3x3,maxpool3x3,maxpool3x3"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a cell of nb1shot1-s1 looks like nb1shot1-s1:parents=0|"),
        (GOOD.replace("s1", "s2"), "a cell of nb1shot1-s1 looks like"),
        (GOOD.replace("|0,1;", ";"), "parents of nb1shot1-s1 has 5 entries, not 4"),
        (GOOD.replace(";ops=maxpool3x3,", ";ops="), "ops of nb1shot1-s1 has 4 entries, not 3"),
        (GOOD.replace("|0,1;", "|1,0;"), "parents of the output of nb1shot1-s1 cannot be '1,0'"),
        (GOOD.replace("=maxpool3x3", "=maxpool3x4"), "operation of block 1 .* did you mean 'maxpool3x3'?"),
        ("[[0, 1], [0, 0]] ['input', 'output']", r"has 6 vertices \(7 with an isolated one .*\), not 2"),
        (f"{CHAIN} {['input', *[OPS[0]] * 4, 'output']}", "vertex 2 of a nb1shot1-s1 cell has 2 parents, not 1"),
    ],
)
def test_errors_name_the_place(text, sentence):
    with pytest.raises(InputError, match=sentence):
        NB1SHOT1_S1.parse(text)


@given(st.text() | st.tuples(st.integers(0, 90), st.integers(0, 3), st.text("01,|;=:px3 ", max_size=3)))
def test_any_text_is_read_or_refused(text):
    if isinstance(text, tuple):
        place, removed, inserted = text
        text = GOOD[:place] + inserted + GOOD[place + removed :]
    try:
        arch = NB1SHOT1_S1.parse(text)
    except InputError:
        return
    assert NB1SHOT1_S1.parse(NB1SHOT1_S1.format(arch)) == arch


def test_a_one_shot_network_too_narrow_to_be_shared_out_is_refused() -> None:
    arch = NB1SHOT1_S2.parse("nb1shot1-s2:parents=0|0|0,1|0,1|2,3,4;ops=" + ",".join(["conv1x1-bn-relu"] * 4))
    with pytest.raises(InputError, match="channels must be at least 3 for this cell's concatenation, not 2"):
        NB1SHOT1_S2.supernet(arch.choices, NetworkSettings(channels=2, cells=1))
    NB1SHOT1_S2.supernet(arch.choices, NetworkSettings(channels=3, cells=1))
