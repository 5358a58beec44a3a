"""Spaces and networks against the published tables: counts, hashes, parameters, FLOPs.

python -m studies.check_networks --data ../shared/data
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random

import numpy as np

from initio.networks.cost import count
from initio.spaces import DARTS, NB101, NB201, SPACES, ZOO, NetworkSettings, dags
from initio.spaces.modelspec import Matrix, Ops
from initio.spaces.nb1shot1 import NB1Shot1Space
from initio.spaces.nb201 import EDGES, OPS, graph_key

Check = tuple[str, int, int]  # what, how many agree, how many there are
NB201_DATASETS = {"c10": (10, 32), "c100": (100, 32), "in16": (120, 16)}  # classes, side of the images


def nb201_costs(data: Path) -> Iterator[Check]:
    """Built as published, dead operations included; parameters and FLOPs (multiply-adds, see `NetworkCost`) in M."""
    table = np.load(data / "nb201_tss.npz", allow_pickle=False)
    archs = [NB201.architecture(*map(int, row)) for row in table["ops"]]
    for name, (classes, side) in NB201_DATASETS.items():
        settings = NetworkSettings(prune=False, classes=classes, shape=(3, side, side))
        costs = [count(NB201.network(arch, settings), settings) for arch in archs]
        for what, ours in (
            ("params", [cost.parameters for cost in costs]),
            ("flops", [cost.flops for cost in costs]),
        ):
            equal = np.float32(np.array(ours) / 1e6) == table[f"{what}_{name}"]
            yield f"nb201 {what} on {name}", int(equal.sum()), len(archs)


def nb201_built(data: Path, n: int = 200, seed: int = 0) -> Iterator[Check]:
    """The same for modules that are really built: a seeded sample."""
    table = np.load(data / "nb201_tss.npz", allow_pickle=False)
    settings = NetworkSettings(prune=False)
    rows = Random(seed).sample(range(len(table["ops"])), n)
    equal = 0
    for row in rows:
        model = NB201.build(NB201.architecture(*map(int, table["ops"][row])), settings)
        parameters = sum(p.numel() for p in model.parameters())
        equal += np.float32(parameters / 1e6) == table["params_c10"][row]
    yield "nb201 params of built modules, seeded sample", int(equal), n


def paper_key(choices: tuple[int, ...]) -> str:
    """The benchmark's own notion of equality, by which it has 6,466 distinct cells.

    Each node is written as the sum of what it receives, sorted; a skip is its source, and `#` stands for zero. Zeros
    remain in the sums, so some equal functions keep different keys.
    """
    nodes = ["0"]
    for node in (1, 2, 3):
        edges = [(nodes[s], OPS[op]) for (s, t), op in zip(EDGES, choices, strict=True) if t == node]
        nodes.append("+".join(sorted(_paper_term(source, op) for source, op in edges)))
    return nodes[-1]


def _paper_term(source: str, op: str) -> str:
    if op == "none" or source == "#":
        return "#"
    if op == "skip_connect":
        return source
    return f"({source})@{op}"


def nb201_classes() -> Iterator[Check]:
    everything = list(product(range(5), repeat=6))
    yield "nb201 distinct cells by the benchmark's rule", len(set(map(paper_key, everything))), 6466
    yield "nb201 distinct cells as graphs", len(set(map(graph_key, everything))), 5260


def from_bits(n_vertices: int, adj_bits: int, ops: Sequence[int]) -> tuple[Matrix, Ops]:
    """The cell packed in a row of a table: bit k is the k-th pair (i, j) for j in 0..n-1 for i in 0..j-1.

    Operations beyond the vertices (the table pads with -1) are ignored.

    >>> from_bits(3, 0b101, [2, -1, -1, -1, -1])
    (((0, 1, 0), (0, 0, 1), (0, 0, 0)), (2,))
    """
    parents = dags.unpacked(int(adj_bits), int(n_vertices))
    return dags.matrix_of(parents), tuple(int(op) for op in ops[: n_vertices - 2])


def nb101_hashes(data: Path) -> Iterator[Check]:
    table = np.load(data / "nb101.npz", allow_pickle=False)
    published = np.load(data / "nb101_hash64.npz", allow_pickle=False)["hash64"]
    rows = zip(table["n_vertices"].tolist(), table["adj_bits"].tolist(), table["ops"].tolist(), strict=True)
    ours = np.array(
        [int(NB101.graph_hash(NB101.from_matrix(*from_bits(*row)))[:16], 16) for row in rows], dtype=np.uint64
    )
    yield "nb101 graph hash", int((ours == published).sum()), len(published)


def nb101_parameters(data: Path, n: int = 2000, seed: int = 0) -> Iterator[Check]:
    table = np.load(data / "nb101.npz", allow_pickle=False)
    settings = NetworkSettings()
    equal = 0
    for row in Random(seed).sample(range(len(table["params"])), n):
        matrix, ops = from_bits(int(table["n_vertices"][row]), int(table["adj_bits"][row]), table["ops"][row].tolist())
        cost = count(NB101.network(NB101.from_matrix(matrix, ops), settings), settings)
        equal += cost.parameters == table["params"][row]
    yield "nb101 params, seeded sample", int(equal), n


def nb101_enumerated() -> Iterator[Check]:
    yield "nb101 distinct cells enumerated", sum(1 for _ in NB101.architectures()), 423_624


def nb1shot1_cells(data: Path, n: int = 2000, seed: int = 0) -> Iterator[Check]:
    published = np.load(data / "nb101_hash64.npz", allow_pickle=False)["hash64"]
    for name, size in (("nb1shot1-s1", 14_580), ("nb1shot1-s2", 29_160), ("nb1shot1-s3", 1_312_200)):
        space, rng = SPACES[name], Random(seed)
        assert isinstance(space, NB1Shot1Space)
        yield f"{name} architectures", space.count(), size
        found = 0
        for _ in range(n):
            key = np.uint64(int(NB101.graph_hash(space.to_nb101(space.sample(rng)))[:16], 16))
            place = np.searchsorted(published, key)
            found += place < len(published) and published[place] == key
        yield f"{name} sampled cells found in nb101", int(found), n


def darts_size() -> Iterator[Check]:
    settings = NetworkSettings()
    arch = DARTS.from_genotype(ZOO["darts_v2"])
    built = sum(p.numel() for p in DARTS.build(arch, settings).parameters())
    yield "darts_v2, 20 cells, C=36, no auxiliary head: parameters", built, 3_349_342  # published as 3.35 M
    yield (
        "  the same, counted without building",
        count(DARTS.network(arch, settings), settings).parameters,
        3_349_342,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--data", type=Path, required=True, help="folder with nb201_tss.npz, nb101.npz, nb101_hash64.npz"
    )
    data = arguments.parse_args().data
    print("FLOPs: multiply-adds of convolutions and linear layers, biases included; the published column's convention")
    start, failed = time.perf_counter(), 0
    for checks in (
        darts_size(),
        nb201_classes(),
        nb201_costs(data),
        nb201_built(data),
        nb101_parameters(data),
        nb1shot1_cells(data),
        nb101_hashes(data),
        nb101_enumerated(),
    ):
        for what, equal, expected in checks:
            failed += equal != expected
            print(f"{'ok  ' if equal == expected else 'FAIL'}  {what}: {equal}/{expected}", flush=True)
    print(f"{failed} of the checks failed; {time.perf_counter() - start:.0f} s")
    assert not failed


if __name__ == "__main__":
    main()
