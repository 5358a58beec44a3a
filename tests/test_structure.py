"""The house keeps its order: class names stand once, imports go up the page's listing, few need torch, none Unix."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "initio"
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_DOUBLED = 37  # names of functions


def rooms() -> list[str]:
    """The rooms in the order of the page: each may know those before it."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listing = page.partition("src/initio/\n")[2].partition("studies/")[0]
    return [name.removesuffix("/").removesuffix(".py") for name in re.findall(r"^  (\w+(?:/|\.py))  ", listing, re.M)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """The rooms that a module imports, also inside functions; what is there for type checkers alone does not count."""
    if isinstance(tree, ast.If) and getattr(tree.test, "id", "") == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.ImportFrom) and tree.module and tree.module.split(".")[0] == "initio":
        if "." in tree.module:
            yield tree.module.split(".")[1]
        else:
            yield from (alias.name for alias in tree.names)
    if isinstance(tree, ast.Import):
        yield from (alias.name.split(".")[1] for alias in tree.names if alias.name.startswith("initio."))
    for child in ast.iter_child_nodes(tree):
        yield from imported(child)


def test_the_page_lists_every_room() -> None:
    entries = {
        path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name not in ("__pycache__", "py.typed")
    }
    assert sorted(rooms()) == sorted(entries)
    assert len(entries) <= 20


@pytest.mark.parametrize("name", [name for name in rooms() if name != "__init__"])
def test_imports_go_up_the_listing(name: str) -> None:
    order = rooms()
    above = set(order[: order.index(name) + 1])
    for path in FILES:
        if room(path) == name:
            below = set(imported(parsed(path))) - above
            assert not below, f"{path.relative_to(ROOT)} imports {sorted(below)}, which stand below {name}"


def test_a_class_name_stands_once() -> None:
    homes = defaultdict(list)
    for path in FILES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


# --- a space owns its facts -------------------------------------------------------------------------------------------

SPACES = {"nb201", "nb101", "nb1shot1", "nb1shot1-s1", "nb1shot1-s2", "nb1shot1-s3", "darts", "zoo", "mlp", "nb301"}
KNOWS_A_SPACE = {"runs/solve.py": "what it compares with is a ResNet, which is a cell of nb201, in sizes made for it"}


def compared(tree: ast.Module) -> Iterator[str]:
    """Comparisons with a space's name, also by a constant of the module, and checks for a concrete class of space."""
    classes, constants = concrete(), dict[str, ast.expr]()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                constants |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                told = constants.get(side.id, side) if isinstance(side, ast.Name) else side
                words = told.elts if isinstance(told, ast.Tuple | ast.List | ast.Set) else [told]
                if {word.value for word in words if isinstance(word, ast.Constant)} & SPACES:
                    yield ast.unparse(node)
        checks = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass")
        if checks and set(re.findall(r"\w+", ast.unparse(node))) & classes:
            yield ast.unparse(node)


@cache
def concrete() -> set[str]:
    """The classes of spaces that are not there to be derived from."""
    classes = [
        node
        for path in (PACKAGE / "spaces").glob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and any("Space" in ast.unparse(base) for base in node.bases)
    ]
    abstract = {node.name for node in classes if "@abstractmethod" in ast.unparse(node)}
    return {node.name for node in classes} - abstract


def test_a_space_owns_its_facts() -> None:
    assert {"NB201Space", "MlpSpace", "DartsByNode", "CustomSpace"} <= concrete()
    assert not {"GraphSpace", "GenotypeSpace"} & concrete()
    found = {}
    for path in FILES:
        if room(path) not in ("spaces", "tables"):
            found[path.relative_to(PACKAGE).as_posix()] = list(compared(parsed(path)))
    assert {name: places for name, places in found.items() if places and name not in KNOWS_A_SPACE} == {}
    assert all(found[name] for name in KNOWS_A_SPACE), "an exception that is none any more"


def test_a_function_name_rarely_stands_twice() -> None:
    """As few as there are, that is: a module's public functions are called by their names alone."""
    homes = defaultdict(list)
    for path in FILES:
        for node in parsed(path).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    doubled = {name: places for name, places in homes.items() if len(places) > 1}
    assert len(doubled) <= MOST_DOUBLED, doubled


def test_conditional_expressions_are_rare() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    count = sum(isinstance(node, ast.IfExp) for path in FILES for node in ast.walk(parsed(path)))
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    assert 1000 * count / lines <= 12


# --- what an import costs, and where it works -------------------------------------------------------------------------


def run_python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_plain_data_and_the_lists_of_names_do_not_import_torch() -> None:
    run_python(
        "import sys, initio\n"
        "assert not {'numpy', 'torch'} & sys.modules.keys()\n"
        "import initio.cli, initio.records, initio.plugins, initio.spaces, initio.networks.graphs\n"
        "import initio.report, initio.searches\n"
        "initio.SPACES, initio.parse('darts_v2'), initio.Architecture, initio.searches.SEARCHES\n"
        "assert 'torch' not in sys.modules"
    )


def test_stored_scores_are_compared_without_torch() -> None:
    run_python(
        "import sys\n"
        "import initio.analysis.relate, initio.cli.correlate, initio.scores.read, initio.tables\n"
        "from initio.metrics import NAMES, is_higher_better\n"
        "assert [name for name in NAMES if not is_higher_better(name)] == ['kappa', 'latency']\n"
        "assert 'torch' not in sys.modules"
    )


def test_every_module_can_be_imported_where_unix_ends() -> None:
    """Windows has neither fcntl nor resource: memory degrades, nothing else does."""
    modules = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in FILES]
    names = [name.removesuffix(".__init__") for name in modules if not name.endswith("__main__")]
    run_python(
        "import importlib, sys\n"
        "import torch, joblib, sklearn, matplotlib\n"  # they look after themselves
        "for hidden in ('fcntl', 'resource', 'pwd', 'grp', 'termios', 'pty'): sys.modules[hidden] = None\n"
        f"for name in {names}: importlib.import_module(name)\n"
        "from initio.system.files import peak_bytes\n"
        "assert peak_bytes() is None\n"
        "import initio\n"
        "from pathlib import Path\n"
        "from tempfile import TemporaryDirectory\n"
        "folder = Path(TemporaryDirectory().name)\n"
        "small = {'folder': folder, 'first': 3, 'rounds': 0, 'channels': 2, 'cells': 1, 'pixels': 8, 'workers': 1}\n"
        "found = initio.search('nb201', 'votes', **small)\n"
        "(folder / 'result.json').unlink()\n"
        "again = initio.search('nb201', 'votes', **small, resume=True)\n"
        "assert (again.best, again.steps) == (found.best, found.steps)\n"
        "assert found.cost.peak_bytes is None and ' MB' not in str(found.told()), found.told()\n"
        "assert initio.load(folder).cost.peak_bytes is None\n"
    )
