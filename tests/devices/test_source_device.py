"""No tensor is made without saying where: read from the source, so that no path is missed which no test runs."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "initio"
FACTORIES = {
    "arange", "as_tensor", "asarray", "empty", "empty_permuted", "empty_strided", "eye", "frombuffer", "from_file",
    "from_numpy", "full", "hann_window", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn",
    "randperm", "range", "scalar_tensor", "sparse_coo_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
}  # those named *_like make a tensor where the other one is  # fmt: skip
STATE = {"register_buffer", "Parameter"}  # what they make is a module's own and moves with it

CPU = "computes on the CPU, whatever the device is"
DRAWN = "random numbers are those of the CPU on every device; what they become is moved"
OWN = "the first values of a module's own numbers, which move with it"
DATA = "the data and their order are on the CPU; a batch of them is moved"
SHAPES = "only shapes and names are looked at"
READ = "an epoch's record, read as numbers"
EXCEPTIONS = {
    "analysis/eigen_bounds.py": CPU,
    "autodiff/fused.py": CPU,
    "autodiff/record.py:samples": DRAWN,
    "autodiff/recorder.py:forward_mode": "loads a part of torch, computes nothing",
    "autodiff/spill.py:unpack": "only tensors of the CPU are written to the disk",
    "kernels/infinite/differences.py": CPU,
    "kernels/infinite/duals.py": CPU,
    "kernels/infinite/fast.py": CPU,
    "kernels/infinite/finite.py": CPU,
    "kernels/infinite/recursion.py": CPU,
    "metrics/cells.py:_signs": DRAWN,
    "networks/autoattack.py:_segments": DRAWN,
    "networks/cost.py:_count_op": SHAPES,
    "networks/cost.py:count_built": SHAPES,
    "networks/export/traced.py:_example": "exported networks are on the CPU",
    "networks/shared.py:__init__": SHAPES,
    "networks/supernet.py:module": SHAPES,
    "runs/folders/ensemble.py:raw_inputs": DATA,
    "runs/sharing.py:_skip_weights": READ,
    "searches/alpha.py:knowledge": OWN,
    "searches/limits.py:forward_seconds": "latencies are measured on the CPU, as the page says",
    "searches/methods/eigen_darts.py:__init__": OWN,
    "searches/methods/eigen_darts.py:unit_scale": DATA,
    "searches/methods/enas.py:__init__": OWN,
    "searches/methods/lambda_min.py": CPU,
    "searches/methods/p_darts.py:kept": READ,
    "searches/methods/rsps.py:knowledge": OWN,
    "searches/oneshot.py:held_out": DATA,
    "training/examples.py:__getitems__": DATA,
    "training/fit.py:epoch": DATA,
}


def unplaced(source: str) -> Iterator[tuple[str, int, str]]:
    """Each call that makes a tensor and does not say where: function, line, text."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if makes(node) and not placed(node, parents):
            yield function_of(node, parents), node.lineno, ast.unparse(node)  # type: ignore[attr-defined]


def makes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    room = node.func.value
    return isinstance(room, ast.Name) and room.id == "torch" and node.func.attr in FACTORIES


def placed(call: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Made on a device, moved in the same expression, or a module's own."""
    assert isinstance(call, ast.Call)
    if any(keyword.arg == "device" for keyword in call.keywords):
        return True
    node = call
    while not isinstance(node, ast.stmt):
        up = parents[node]
        if isinstance(up, ast.Call) and node is up.func and moves(up):
            return True
        if isinstance(up, ast.Call) and node is not up.func and name_of(up) in STATE:
            return True
        node = up  # type: ignore[assignment]
    return False


def moves(call: ast.Call) -> bool:
    """Whether it is `.to(...)` a device or another tensor's place; `.to(dtype)` moves nothing."""
    if name_of(call) != "to" or not call.args:
        return False
    where = ast.unparse(call.args[0])
    return "dtype" not in where and not where.startswith("torch.")


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", "")


def function_of(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.FunctionDef):
            return node.name
    return ""


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """What the package makes without saying where, by place."""
    out = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        home = path.relative_to(PACKAGE).as_posix()
        for name, line, text in unplaced(path.read_text(encoding="utf-8")):
            place = home if home in EXCEPTIONS else f"{home}:{name}"
            out[place].append(f"{home}:{line} {text}")
    return dict(out)


def test_every_tensor_is_made_on_a_device(found: dict[str, list[str]]) -> None:
    assert {place: calls for place, calls in found.items() if place not in EXCEPTIONS} == {}


def test_every_exception_is_needed(found: dict[str, list[str]]) -> None:
    assert set(EXCEPTIONS) - set(found) == set()


def test_factories_are_called_by_their_full_names() -> None:
    """Else the check above would not know them; nor does the source change what torch makes by default."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "torch":
                assert not FACTORIES & {alias.name for alias in node.names}, path
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("set_default_device", "set_default_tensor_type"), path


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("torch.zeros(3)", True),
        ("torch.zeros(3, device=x.device)", False),
        ("torch.zeros(3).to(x.device)", False),
        ("(1 + torch.rand(3, generator=rng)).to(x) - 1", False),
        ("x.to(torch.zeros(3))", True),
        ("torch.zeros(3).to(x.dtype)", True),
        ("torch.from_numpy(x).to(torch.float64)", True),
        ("torch.eye(3) @ y.to(x.device)", True),
        ("torch.zeros_like(x)", False),
        ("self.register_buffer('b', torch.zeros(3))", False),
        ("nn.Parameter(torch.full((3,), 0.5))", False),
        ("print(torch.zeros(3))", True),
    ],
)
def test_what_counts_as_said(text: str, wrong: bool) -> None:
    assert bool(list(unplaced(text))) == wrong
