"""NAS-Bench-101: notations, isomorphism, enumeration and networks, against the published table."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from initio.errors import InputError
from initio.networks.graphs import Graph, NetworkSettings, Op
from initio.records import Architecture
from initio.spaces.base import GraphSpace
from initio.spaces.dags import PAIRS, valid_words
from initio.spaces.modelspec import MAX_TEXT, OPS
from initio.spaces.nb101 import NB101, vertex_channels
from studies.check_networks import from_bits

DATA = Path(os.environ.get("INITIO_DATA", Path(__file__).parents[3] / "shared" / "data"))
INCEPTION_LIKE = """ModelSpec(
    matrix=[[0, 1, 1, 1, 0, 1, 0],    # input
            [0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 1, 0, 0],
            [0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0, 0]],   # output
    ops=[INPUT, CONV1X1, CONV3X3, CONV3X3, CONV3X3, MAXPOOL3X3, OUTPUT])"""


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    files = DATA / "nb101.npz", DATA / "nb101_hash64.npz"
    if not all(file.is_file() for file in files):
        pytest.skip(f"needs nb101.npz and nb101_hash64.npz in {DATA}: set INITIO_DATA")
    return {name: array for file in files for name, array in np.load(file, allow_pickle=False).items()}


@pytest.fixture(scope="module")
def every() -> list[Architecture]:
    return list(NB101.architectures())


def row(table: dict[str, np.ndarray], number: int) -> tuple:
    return from_bits(*(table[name][number].tolist() for name in ("n_vertices", "adj_bits", "ops")))


def samples(count: int, seed: int = 0) -> list[Architecture]:
    rng = random.Random(seed)
    return [NB101.sample(rng) for _ in range(count)]


architectures = st.tuples(
    st.integers(0, 10**6).map(lambda k: int(valid_words()[k % len(valid_words())])),
    st.lists(st.integers(0, 2), min_size=5, max_size=5),
).map(lambda pair: NB101.architecture(*(pair[0] >> k & 1 for k in range(len(PAIRS))), *pair[1]))


# --- hash, canonical form, enumeration ----------------------------------------------------------------------


def test_hash_equals_the_published_one(table):
    for number in random.Random(0).sample(range(len(table["params"])), 2000):
        assert int(NB101.graph_hash(NB101.from_matrix(*row(table, number)))[:16], 16) == table["hash64"][number]


def shuffled(arch: Architecture, rng: random.Random) -> Architecture:
    """The same cell with its inner vertices in another topological order."""
    matrix, ops = NB101.pruned(arch)
    order, left = [0], list(range(1, len(matrix) - 1))
    while left:
        v = rng.choice([v for v in left if all(w in order for w in range(len(matrix)) if matrix[w][v])])
        order.append(v)
        left.remove(v)
    order.append(len(matrix) - 1)
    return NB101.from_matrix([[matrix[v][w] for w in order] for v in order], [ops[v - 1] for v in order[1:-1]])


def slow_canonical(arch: Architecture) -> Architecture:
    """The smallest columns, then operations, over all permutations that leave the matrix upper triangular."""
    matrix, ops = NB101.pruned(arch)
    n = len(matrix)
    found = []
    for inner in itertools.permutations(range(1, n - 1)):
        order = (0, *inner, n - 1)
        renamed = [[matrix[v][w] for w in order] for v in order]
        if not any(renamed[i][j] for i in range(n) for j in range(i + 1)):
            columns = [sum(renamed[i][j] << i for i in range(j)) for j in range(n)]
            found.append((columns, [ops[v - 1] for v in inner], renamed))
    _, renamed_ops, renamed = min(found)
    return NB101.from_matrix(renamed, renamed_ops)


def test_canonical_is_the_smallest_of_all_permutations():
    for arch in samples(150):
        assert NB101.canonical(arch) == slow_canonical(arch)


def test_isomorphic_cells_have_one_canonical_form_and_one_hash():
    rng = random.Random(1)
    for arch in samples(300):
        other = shuffled(arch, rng)
        assert NB101.canonical(other) == NB101.canonical(arch)
        assert NB101.graph_hash(other) == NB101.graph_hash(arch)


def test_canonical_is_valid_and_stays():
    for arch in samples(200):
        canonical = NB101.canonical(arch)
        assert NB101.contains(canonical)
        assert NB101.canonical(canonical) == canonical
        assert NB101.to_matrix(canonical) == NB101.pruned(canonical)


def test_canonical_forms_are_equal_exactly_when_hashes_are(every):
    rng = random.Random(2)
    archs = rng.sample(every, 500)
    archs += [shuffled(other, rng) for arch in archs for other in [arch, *list(NB101.neighbours(arch))[::9]]]
    archs += samples(1000)
    pairs = {(NB101.canonical(arch), NB101.graph_hash(arch)) for arch in archs}
    assert len(pairs) == len({form for form, _ in pairs}) == len({digest for _, digest in pairs})
    assert 1500 < len(pairs) < len(archs) - 500


def test_small_cells_are_those_of_the_table(table):
    listed = list(NB101.architectures(max_vertices=5))
    truth = set(table["hash64"][table["n_vertices"] <= 5].tolist())
    assert len(listed) == len(truth) == 2532
    assert {int(NB101.graph_hash(arch)[:16], 16) for arch in listed} == truth
    assert all(NB101.canonical(arch) == arch for arch in listed)


def test_all_cells_are_listed_once_and_smaller_ones_first(every):
    assert len(set(every)) == len(every) == NB101.count() == 423_624
    vertices = [len(NB101.to_matrix(arch)[0]) for arch in every[::1000]]
    assert vertices == sorted(vertices)


# --- validity, sampling, decoding ---------------------------------------------------------------------------


def test_valid_words_agree_with_why_invalid():
    valid = set(valid_words().tolist())
    for word in random.Random(0).sample(range(1 << 21), 3000):
        assert (word in valid) == (not NB101.why_invalid(tuple(word >> k & 1 for k in range(21))))


def test_samples_are_uniform_over_valid_choices():
    choices = np.array([arch.choices for arch in samples(4000)])
    truth = np.array([valid_words() >> k & 1 for k in range(21)]).mean(axis=1)
    assert np.abs(choices[:, :21].mean(axis=0) - truth).max() < 5 * 0.5 / np.sqrt(4000)
    shares = np.array([(choices[:, 21:] == op).mean(axis=0) for op in range(3)])
    assert np.abs(shares - 1 / 3).max() < 5 * 0.5 / np.sqrt(4000)
    assert samples(5) == samples(5) != samples(5, seed=1)


def test_neighbours_are_valid_and_differ_in_one_decision():
    for arch in samples(20):
        for other in NB101.neighbours(arch):
            assert NB101.contains(other)
            assert sum(a != b for a, b in zip(arch.choices, other.choices, strict=True)) == 1


def test_decode_finds_what_trying_the_best_first_finds():
    rng = random.Random(0)
    for _ in range(10):
        weights = [[rng.gauss(0, 1) for _ in decision.options] for decision in NB101.decisions]
        assert NB101.decode(weights) == GraphSpace.decode(NB101, weights)


def test_decode_of_all_edges_drops_the_cheapest():
    weights = [[0.0, 1.0 + k / 100] for k in range(21)] + [[0.0, 0.0, 1.0]] * 5
    arch = NB101.decode(weights)
    assert sum(map(sum, NB101.pruned(arch)[0])) <= 9
    assert arch.choices[21:] == (2,) * 5


@pytest.mark.parametrize(
    ("edges", "reason"),
    [
        ([(0, 1), (2, 6)], "has no path from its input to its output"),
        ([(i, j) for i, j in PAIRS if j - i <= 2], "has 11 edges on its paths from input to output"),
    ],
)
def test_what_is_no_cell_is_refused(edges, reason):
    choices = [int(pair in edges) for pair in PAIRS] + [0] * 5
    with pytest.raises(InputError, match=reason):
        NB101.architecture(*choices)


def test_edges_that_are_pruned_do_not_count():
    dangling = [(0, 6), *((i, j) for i, j in PAIRS if j < 6)]
    arch = NB101.architecture(*(int(pair in dangling) for pair in PAIRS), *[1] * 5)
    assert NB101.pruned(arch) == (((0, 1), (0, 0)), ())


# --- text ---------------------------------------------------------------------------------------------------


@given(architectures)
def test_text_reads_back(arch):
    assert NB101.parse(NB101.format(arch)) == arch


def test_all_notations_are_read():
    arch = NB101.parse(INCEPTION_LIKE)
    matrix, ops = NB101.to_matrix(arch)
    lists = [list(r) for r in matrix], ["input", *(OPS[op] for op in ops), "output"]
    texts = [
        NB101.format(arch),
        "api." + INCEPTION_LIKE,
        f"ModelSpec({lists[0]}, {lists[1]})",
        f"{lists[0]} {lists[1]}",
        f"{lists[0]},\n{lists[1]}",
        repr(lists),
        json.dumps({"matrix": lists[0], "ops": lists[1]}, indent=4),
        json.dumps({"n": None, "ok": True, "module_adjacency": lists[0], "module_operations": lists[1]}),
    ]
    assert {NB101.parse(text) for text in texts} == {arch}
    assert NB101.format(arch) == f"ModelSpec(matrix={lists[0]}, ops={lists[1]})"
    assert lists[1][:3] == ["input", "conv1x1-bn-relu", "conv3x3-bn-relu"]


def test_missing_vertices_come_last_and_are_not_printed():
    text = "ModelSpec(matrix=[[0, 1, 1], [0, 0, 1], [0, 0, 0]], ops=['input', 'maxpool3x3', 'output'])"
    arch = NB101.parse(text)
    edges = [pair for pair, bit in zip(PAIRS, arch.choices, strict=False) if bit]
    assert edges == [(0, 1), (0, 6), (1, 6)]
    assert arch.choices[21:] == (2, 0, 0, 0, 0)
    assert NB101.format(arch) == text


LINE = "[[0, 1, 0], [0, 0, 1], [0, 0, 0]]"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a cell: write ModelSpec"),
        ("ModelSpec(", "is not a cell: write ModelSpec"),
        ("hello", "a cell needs a matrix and ops"),
        ("__import__('os').system('true')", "a cell needs a matrix and ops"),
        ("ModelSpec(matrix=[[0, 1], [0, 0]])", "a cell needs a matrix and ops"),
        ('{"matrix": 3, "ops": []}', "the matrix must be a list, not 3"),
        ("ModelSpec([0, 1], [])", "row 0 of the matrix must be a list, not 0"),
        (
            "ModelSpec([[0, 1], [0]], ['input', 'output'])",
            "row 1 of the matrix has 1 entries, the matrix has 2 rows",
        ),
        (
            "ModelSpec([[0, 2], [0, 0]], ['input', 'output'])",
            "row 0 column 1 of the matrix must be 0 or 1, not 2",
        ),
        ("ModelSpec([[0, True], [0, 0]], ['input', 'output'])", "row 0 column 1 .* not True"),
        (
            "ModelSpec([[0, 1], [1, 0]], ['input', 'output'])",
            "not upper triangular: row 1 column 0 must be 0",
        ),
        (
            "ModelSpec([[0, 1], [0, 1]], ['input', 'output'])",
            "not upper triangular: row 1 column 1 must be 0",
        ),
        (f"ModelSpec({[[0] * 8] * 8}, [])", "the matrix has 8 rows, a cell has 2 to 7 vertices"),
        ("ModelSpec([], [])", "the matrix has 0 rows"),
        (f"{LINE} ['input', 'output']", "ops has 2 entries, the matrix has 3 rows"),
        (f"{LINE} ['input', 'conv3x3-bnrelu', 'output']", "entry 1 of ops .* did you mean 'conv3x3-bn-relu'"),
        (
            f"{LINE} ['input', 7, 'output']",
            "entry 1 of ops is 7, not an operation: choose one of conv3x3-bn-relu",
        ),
        (f"{LINE} ['in', 'maxpool3x3', 'output']", "entry 0 of ops must be 'input', not 'in'"),
        (f"{LINE} ['input', 'maxpool3x3', 'input']", "entry 2 of ops must be 'output'"),
        ("[[0, 0], [0, 0]] ['input', 'output']", "the architecture has no path from its input to its output"),
        ("[" * (MAX_TEXT + 1), "at most 4000 characters, not 4001"),
        ("[" * MAX_TEXT, "is not a cell"),
        ("-" * (MAX_TEXT - 1) + "1", "cell"),
        ("ModelSpec([[" + "-" * 900 + "1, 1], [0, 0]], ['input', 'output'])", "row 0 column 0"),
        ("a" + ".a" * 1900, "a cell needs a matrix"),
        ("a" + "()" * 1900, "cell"),
        ("[[0, " + "9" * 3900 + "], [0, 0]] []", "row 0 column 1"),
        ("ModelSpec(matrix=\0)", "is not a cell"),
        ("ModelSpec('\\d', '\\d')", "the matrix must be a list"),
        ("\ud800", "is not a cell"),
    ],
)
def test_errors_name_the_place(text, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        NB101.parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def parses_or_refuses(text: str) -> None:
    try:
        arch = NB101.parse(text)
    except InputError:
        return
    assert NB101.parse(NB101.format(arch)) == arch


@given(st.text())
def test_any_text_is_read_or_refused(text):
    parses_or_refuses(text)


@given(
    architectures,
    st.integers(0, 400),
    st.integers(0, 3),
    st.text("[](){}01,'\"=:-\\ ioputModelSpec\0", max_size=4),
)
def test_damaged_text_is_read_or_refused(arch, place, removed, inserted):
    text = NB101.format(arch)
    parses_or_refuses(text[:place] + inserted + text[place + removed :])


nested = st.recursive(
    st.integers(-1, 2) | st.sampled_from(["input", "output", *OPS]), lambda x: st.lists(x, max_size=4)
)


@given(nested, nested)
def test_any_pair_is_read_or_refused(matrix, ops):
    parses_or_refuses(json.dumps({"matrix": matrix, "ops": ops}))
    parses_or_refuses(f"{matrix} {ops}")


# --- pictures and networks ----------------------------------------------------------------------------------


def test_the_drawn_cell_is_pruned():
    arch = NB101.parse(f"{[[0, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1], [0] * 4]} ['input', CONV3X3, CONV1X1, 'output']")
    (cell,) = NB101.cells(arch)
    assert cell.nodes == ("input", "conv1x1-bn-relu", "output")
    assert [(edge.source, edge.target, edge.label) for edge in cell.edges] == [
        (0, 1, ""),
        (0, 2, ""),
        (1, 2, ""),
    ]


def parameters(graph: Graph) -> int:
    """Counted by formula: k² c_in c_out weights and a batch norm's 2 c_out, no bias but the classifier's."""
    total = 0
    for step in graph.steps:
        if isinstance(step.op, Graph):
            total += parameters(step.op)
        elif step.op.kind in ("conv3x3-bn-relu", "conv1x1-bn-relu"):
            total += int(step.op.kind[4]) ** 2 * step.op.c_in * step.op.c_out + 2 * step.op.c_out
        elif step.op.kind == "linear":
            total += (step.op.c_in + 1) * step.op.c_out
    return total


def test_parameters_equal_the_published_ones(table):
    for number in random.Random(1).sample(range(len(table["params"])), 500):
        arch = NB101.from_matrix(*row(table, number))
        assert parameters(NB101.network(arch, NetworkSettings())) == table["params"][number]


def out_channels(graph: Graph, c_in: int) -> int:
    """The width of the output; every step must be given what it was made for."""
    widths = [c_in]
    for step in graph.steps:
        given = [widths[i] for i in step.inputs]
        if isinstance(step.op, Graph):
            widths.append(out_channels(step.op, *given))
        elif step.op.kind == "concat":
            assert step.op.c_out == sum(given)
            widths.append(sum(given))
        else:
            assert set(given) == {step.op.c_in}
            assert step.op.kind != "truncate" or step.op.c_out < step.op.c_in
            widths.append(step.op.c_out)
    assert len({step.name for step in graph.steps}) == len(graph.steps)
    return widths[graph.output]


@pytest.mark.parametrize("channels", [5, 7, 128])
def test_widths_fit(channels):
    for arch in samples(100):
        net = NB101.network(arch, NetworkSettings(channels=channels, cells=2, classes=7, shape=(1, 8, 8)))
        assert out_channels(net, 1) == 7
        assert [step.op.kind for step in net.steps if isinstance(step.op, Op)] == [
            "conv3x3-bn-relu", "max_pool_2x2", "max_pool_2x2", "global_pool", "linear"
        ]  # fmt: skip


def test_vertex_channels_share_the_width():
    for arch in samples(100):
        matrix, _ = NB101.pruned(arch)
        widths = vertex_channels(matrix, 3, 129)
        feeding = [w for w, row in zip(widths[1:-1], matrix[1:-1], strict=True) if row[-1]]
        assert not feeding or (sum(feeding) == 129 and feeding == sorted(feeding, reverse=True))
        assert not feeding or feeding[0] - feeding[-1] <= 1


def test_the_built_network_has_the_published_parameters(table):
    import torch

    arch = NB101.from_matrix(*row(table, 1))
    model = NB101.build(arch)
    assert sum(p.numel() for p in model.parameters()) == table["params"][1]
    small = NB101.build(arch, NetworkSettings(channels=8, cells=1))
    assert small(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_an_edge_from_input_to_output_is_projected_and_added():
    plain = NB101.network(NB101.from_matrix([[0, 1], [0, 0]], []), NetworkSettings(cells=1))
    (cell,) = [step.op for step in plain.steps if step.name == "stack_1_cell_1"]
    assert [step.op for step in cell.steps] == [Op("conv1x1-bn-relu", 128, 128)]
    both = NB101.network(NB101.from_matrix([[0, 1, 1], [0, 0, 1], [0, 0, 0]], [2]), NetworkSettings(cells=1))
    (cell,) = [step.op for step in both.steps if step.name == "stack_2_cell_1"]
    assert [step.op for step in cell.steps] == [
        Op("conv1x1-bn-relu", 128, 256),
        Op("maxpool3x3", 256, 256),
        Op("conv1x1-bn-relu", 128, 256),
        Op("sum", 256, 256),
    ]


def test_settings_that_cannot_be_are_refused():
    arch = NB101.parse(INCEPTION_LIKE)
    with pytest.raises(InputError, match="channels must be at least 4 for this cell's concatenation, not 3"):
        NB101.network(arch, NetworkSettings(channels=3))
    with pytest.raises(InputError, match=r"inputs of shape \(channels, height, width\), not \(10,\)"):
        NB101.network(arch, NetworkSettings(shape=(10,)))
