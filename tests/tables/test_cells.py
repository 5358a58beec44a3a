"""Many cells at once agree with one at a time."""

from random import Random

import numpy as np
import pytest

from initio.records import Architecture
from initio.spaces import NB1SHOT1_S1, NB101
from initio.spaces.dags import PAIRS
from initio.tables.cells import architectures, class_keys, words_of_rows, words_of_space
from studies.check_networks import from_bits
from tests.tables.files import SHARED, needs_data


def arrays(archs: list[Architecture]) -> tuple[np.ndarray, np.ndarray]:
    choices = np.array([arch.choices for arch in archs])
    return choices[:, : len(PAIRS)] @ (1 << np.arange(len(PAIRS))), choices[:, len(PAIRS) :]


def test_keys_are_equal_exactly_for_isomorphic_cells() -> None:
    rng = Random(0)
    archs = [NB101.sample(rng) for _ in range(400)]
    archs += [NB101.canonical(arch) for arch in archs]
    keys = class_keys(*arrays(archs)).tolist()
    by_hash: dict[str, set[int]] = {}
    for arch, key in zip(archs, keys, strict=True):
        by_hash.setdefault(NB101.graph_hash(arch), set()).add(key)
    assert all(len(found) == 1 for found in by_hash.values())
    assert len(set(keys)) == len(by_hash) > 200


def test_words_of_a_space_are_its_cells() -> None:
    words, ops, choices = words_of_space(NB1SHOT1_S1)
    assert len(words) == NB1SHOT1_S1.count()
    for k in range(0, len(words), 997):
        arch = Architecture(NB1SHOT1_S1.name, tuple(choices[k].tolist()))
        (cell,) = architectures(words[k : k + 1], ops[k : k + 1])
        assert NB101.graph_hash(cell) == NB101.graph_hash(NB1SHOT1_S1.to_nb101(arch))
    assert [tuple(row) for row in choices[:500].tolist()] == [
        arch.choices for arch, _ in zip(NB1SHOT1_S1.architectures(), range(500), strict=False)
    ]


@needs_data
@pytest.mark.parametrize("vertices", [2, 3, 4, 5, 6, 7])
def test_rows_of_the_real_table(vertices: int) -> None:
    with np.load(SHARED / "nb101.npz") as table:
        n, bits, ops = (table[name] for name in ("n_vertices", "adj_bits", "ops"))
    picked = np.flatnonzero(n == vertices)[::5000]
    found = architectures(words_of_rows(n[picked], bits[picked]), ops[picked])
    assert found == tuple(NB101.from_matrix(*from_bits(n[k], bits[k], ops[k])) for k in picked)
