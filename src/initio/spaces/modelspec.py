"""NAS-Bench-101's cells as text: `ModelSpec(matrix=[[...], ...], ops=['input', ..., 'output'])` and its relatives."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from initio.errors import InputError, did_you_mean

Matrix = tuple[tuple[int, ...], ...]  # upper triangular
Ops = tuple[int, ...]  # numbers in OPS, for the vertices between input and output

OPS = ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3")
INPUT, OUTPUT = "input", "output"
MAX_VERTICES = 7

# As the benchmark's own example has them: ModelSpec(matrix=[...], ops=[INPUT, CONV3X3, ..., OUTPUT]).
CONSTANTS = {"INPUT": INPUT, "OUTPUT": OUTPUT, "CONV3X3": OPS[0], "CONV1X1": OPS[1], "MAXPOOL3X3": OPS[2]}
HOW_TO_WRITE = "write ModelSpec(matrix=[[...], ...], ops=['input', ..., 'output'])"
MAX_TEXT = 4000  # characters: ten times what a cell needs, and few enough for Python's parser to be safe


def write_spec(matrix: Matrix, ops: Ops) -> str:
    """The benchmark's constructor call."""
    names = [INPUT, *(OPS[op] for op in ops), OUTPUT]
    return f"ModelSpec(matrix={[list(row) for row in matrix]}, ops={names})"


def read_spec(text: str) -> tuple[Matrix, Ops]:
    """The matrix and the operations in any notation in use, checked but for paths and the number of edges.

    `ModelSpec(matrix=[[...]], ops=[...])`, JSON with the keys `matrix` and `ops` or the published records'
    `module_adjacency` and `module_operations`, or the two lists one after the other. Nothing is executed.

    >>> read_spec("[[0, 1, 0], [0, 0, 1], [0, 0, 0]] ['input', 'maxpool3x3', 'output']")
    (((0, 1, 0), (0, 0, 1), (0, 0, 0)), (2,))
    """
    if len(text) > MAX_TEXT:
        raise InputError(f"a cell is written in at most {MAX_TEXT} characters, not {len(text)}")
    matrix_node, ops_node = _two_parts(_syntax(text.strip()))
    matrix = _read_matrix(matrix_node)
    return matrix, _read_ops(ops_node, len(matrix))


def _syntax(text: str) -> ast.expr:
    """The text as a Python expression; JSON looks like one."""
    source = text
    if text.startswith("[") and (end := re.search(r"\]\s*\]", text)):  # two lists: make them a pair
        source = f"({text[: end.end()]}, {text[end.end() :].lstrip(' ,')})"
    try:
        with warnings.catch_warnings():  # such as for a backslash in a string
            warnings.simplefilter("ignore")
            return ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{_shown(repr(text))} is not a cell: {HOW_TO_WRITE}") from None


def _two_parts(node: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The expressions of the matrix and of the operations."""
    parts: dict[object, ast.expr] = {}
    if isinstance(node, ast.Tuple) and len(node.elts) == 2:
        return node.elts[0], node.elts[1]
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            parts[getattr(key, "value", None)] = value
    elif isinstance(node, ast.Call) and _source(node.func).endswith("ModelSpec"):
        parts.update(zip(("matrix", "ops"), node.args, strict=False))
        parts.update((keyword.arg, keyword.value) for keyword in node.keywords)
    for names in (("matrix", "ops"), ("module_adjacency", "module_operations")):
        if all(name in parts for name in names):
            return parts[names[0]], parts[names[1]]
    raise InputError(f"a cell needs a matrix and ops: {HOW_TO_WRITE}")


def _read_matrix(node: ast.expr) -> Matrix:
    rows = [_items(row, f"row {i} of the matrix") for i, row in enumerate(_items(node, "the matrix"))]
    n = len(rows)
    if not 2 <= n <= MAX_VERTICES:
        raise InputError(f"the matrix has {n} rows, a cell has 2 to {MAX_VERTICES} vertices")
    for i, row in enumerate(rows):
        if len(row) != n:
            raise InputError(f"row {i} of the matrix has {len(row)} entries, the matrix has {n} rows")
    return tuple(tuple(_read_entry(entry, i, j) for j, entry in enumerate(row)) for i, row in enumerate(rows))


def _read_entry(node: ast.expr, i: int, j: int) -> int:
    value = _constant(node)
    if type(value) is not int or value not in (0, 1):
        raise InputError(f"row {i} column {j} of the matrix must be 0 or 1, not {_source(node)}")
    if value and j <= i:
        raise InputError(f"the matrix is not upper triangular: row {i} column {j} must be 0")
    return value


def _read_ops(node: ast.expr, n: int) -> Ops:
    items = _items(node, "ops")
    if len(items) != n:
        raise InputError(f"ops has {len(items)} entries, the matrix has {n} rows")
    names = [_constant(item) for item in items]
    for place, right in ((0, INPUT), (n - 1, OUTPUT)):
        if names[place] != right:
            raise InputError(f"entry {place} of ops must be {right!r}, not {_source(items[place])}")
    for place in range(1, n - 1):
        if names[place] not in OPS:
            hint = did_you_mean(str(names[place]), list(OPS))
            raise InputError(f"entry {place} of ops is {_source(items[place])}, not an operation: {hint}")
    return tuple(OPS.index(name) for name in names[1:-1])


def _items(node: ast.expr, what: str) -> list[ast.expr]:
    if not isinstance(node, ast.List | ast.Tuple):
        raise InputError(f"{what} must be a list, not {_source(node)}")
    return node.elts


def _constant(node: ast.expr) -> Any:
    """The number or string that is written there, or None."""
    if isinstance(node, ast.Name):
        return CONSTANTS.get(node.id)
    return node.value if isinstance(node, ast.Constant) else None


def _source(node: ast.expr) -> str:
    """What the user wrote there, shortened."""
    try:
        return _shown(ast.unparse(node))
    except (RecursionError, ValueError):  # deep nesting; a number of thousands of digits
        return "that"


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
