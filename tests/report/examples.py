"""Cells of every space, built by hand from the spaces' definitions."""

from initio.report import Cell, Edge


def genotype(name: str, pairs: list[tuple[str, int]], outputs: list[int]) -> Cell:
    """A cell of two inputs from the notation of DARTS: two (operation, input) pairs for each node."""
    n = len(pairs) // 2
    edges = [Edge(source, 2 + i // 2, op) for i, (op, source) in enumerate(pairs)]
    edges += [Edge(node, 2 + n) for node in outputs]
    return Cell(name, ("c_{k-2}", "c_{k-1}", *map(str, range(n)), "c_{k}"), tuple(edges), n_inputs=2)


NB201_EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))


def nb201(*ops: str) -> Cell:
    edges = tuple(Edge(s, t, op) for (s, t), op in zip(NB201_EDGES, ops, strict=True))
    return Cell("cell", ("input", "1", "2", "output"), edges)


NB201 = nb201("nor_conv_3x3", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3", "nor_conv_3x3")
NB201_SPARSE = nb201("nor_conv_3x3", "skip_connect", "none", "none", "nor_conv_1x1", "avg_pool_3x3")
NB201_DEAD = nb201("none", "none", "nor_conv_3x3", "skip_connect", "none", "nor_conv_1x1")
NB201_ZERO = nb201(*["none"] * 6)

S3, S5, SK, D3 = "sep_conv_3x3", "sep_conv_5x5", "skip_connect", "dil_conv_3x3"
MP, AP = "max_pool_3x3", "avg_pool_3x3"
DARTS_NORMAL = genotype(
    "normal", [(S3, 0), (S3, 1), (S3, 0), (S3, 1), (S3, 1), (SK, 0), (SK, 0), (D3, 2)], [2, 3, 4, 5]
)
DARTS_REDUCE = genotype(
    "reduction", [(MP, 0), (MP, 1), (SK, 2), (MP, 1), (MP, 0), (SK, 2), (SK, 2), (MP, 1)], [2, 3, 4, 5]
)
DARTS_DEEP = genotype(
    "normal",
    [(S3, 0), (S5, 1), (S3, 2), ("dil_conv_5x5", 0), (MP, 3), (SK, 1), (S3, 4), (AP, 2)],
    [2, 3, 4, 5],
)
NASNET_NORMAL = genotype(
    "normal",
    [(S5, 1), (S3, 0), (S5, 0), (S3, 0), (AP, 1), (SK, 0), (AP, 0), (AP, 0), (S3, 1), (SK, 1)],
    [2, 3, 4, 5, 6],
)
NASNET_REDUCE = genotype(
    "reduction",
    [
        (S5, 1),
        ("sep_conv_7x7", 0),
        (MP, 1),
        ("sep_conv_7x7", 0),
        (AP, 1),
        (S5, 0),
        (SK, 3),
        (AP, 2),
        (S3, 2),
        (MP, 1),
    ],
    [3, 4, 5, 6],
)

C3, C1, P3 = "conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3"
NB101 = Cell(
    "cell",
    ("input", C3, C1, C3, C3, P3, "output"),
    tuple(Edge(s, t) for s, t in ((0, 1), (0, 2), (0, 6), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6))),
)
NB101_DENSE = Cell(
    "cell",
    ("input", C3, C3, C3, C1, "output"),
    tuple(Edge(s, t) for s, t in ((0, 1), (0, 2), (0, 3), (0, 5), (1, 2), (1, 4), (2, 3), (3, 4), (4, 5))),
)

ACTIVATIONS = ("relu", "tanh", "swish", "leaky_relu", "sigmoid", "relu", "relu", "tanh", "swish", "relu")
MLP = Cell(
    "mlp",
    ("input", *ACTIVATIONS, "output"),
    (*(Edge(i, i + 1) for i in range(11)), *(Edge(i - 1, i + 1, "skip") for i in (2, 5, 6, 9))),
)
MLP_RESIDUAL = Cell(
    "mlp",
    ("input", *ACTIVATIONS[:5], "output"),
    (*(Edge(i, i + 1) for i in range(6)), *(Edge(i, i + 1, "skip") for i in (2, 4))),
)

EXAMPLES: dict[str, tuple[Cell, ...]] = {
    "nb201": (NB201,),
    "nb201_sparse": (NB201_SPARSE,),
    "nb201_dead": (NB201_DEAD,),
    "nb201_zero": (NB201_ZERO,),
    "darts": (DARTS_NORMAL, DARTS_REDUCE),
    "darts_deep": (DARTS_DEEP,),
    "nasnet": (NASNET_NORMAL, NASNET_REDUCE),
    "nb101": (NB101,),
    "nb101_dense": (NB101_DENSE,),
    "mlp": (MLP,),
    "mlp_residual": (MLP_RESIDUAL,),
}
