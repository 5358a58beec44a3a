"""The house keeps its order: names stand once, imports go up the listing in docs/architecture.md, torch can wait.

The listing of that page is the one place that says in which order the rooms stand: a room may import from those above,
also inside functions.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "initio"

LISTING = (ROOT / "docs" / "architecture.md").read_text().partition("src/initio/\n")[2].partition("__init__.py")[0]
ORDER = re.findall(r"^  (\w+)(?:\.py|/) ", LISTING, flags=re.MULTILINE)
ENTRANCES = {"__init__", "__main__"}  # know every room, or belong to none


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module by its name below the package, such as `spaces.darts`, with its syntax tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts), ast.parse(path.read_text(encoding="utf-8"))


MODULES = dict(modules())


def room(module: str) -> str:
    return module.partition(".")[0]


def for_type_checkers(tree: ast.Module) -> set[ast.AST]:
    """What stands below `if TYPE_CHECKING`: it is never executed."""
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {inner for node in tests for inner in ast.walk(node)}


def imported_rooms(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The rooms that a module imports from, and where."""
    skipped = for_type_checkers(tree)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node not in skipped:
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import) and node not in skipped:
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("initio."):
                yield name.split(".")[1], node.lineno


def test_the_page_lists_every_room_once() -> None:
    assert sorted(ORDER) == sorted({room(module) for module in MODULES} - ENTRANCES)


def test_imports_go_up_the_listing() -> None:
    down = []
    for module, tree in MODULES.items():
        if room(module) in ORDER:
            allowed = ORDER[: ORDER.index(room(module)) + 1]
            down += [f"{module}:{line} imports {name}" for name, line in imported_rooms(tree) if name not in allowed]
    assert down == []


def test_a_class_name_stands_once() -> None:
    places = defaultdict(list)
    for module, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_few_conditional_expressions() -> None:
    """Dense lines hide an equation's cases: at most 12 in 1,000 lines."""
    expressions = sum(isinstance(node, ast.IfExp) for tree in MODULES.values() for node in ast.walk(tree))
    lines = sum(bool(line.strip()) for path in PACKAGE.rglob("*.py") for line in path.read_text().splitlines())
    assert expressions <= lines * 12 / 1000


def run_python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_plain_data_and_the_lists_of_names_do_not_import_torch() -> None:
    run_python(
        "import sys, initio, initio.cli, initio.records, initio.plugins, initio.spaces, initio.networks.graphs\n"
        "import initio.report, initio.searches\n"
        "initio.SPACES, initio.parse('darts_v2'), initio.Architecture, initio.searches.SEARCHES\n"
        "assert 'torch' not in sys.modules"
    )


def test_every_module_can_be_imported_where_unix_ends() -> None:
    """Windows has neither fcntl nor resource: locks and memory degrade, nothing else does."""
    names = [f"initio.{module}".removesuffix(".__init__") for module in MODULES if not module.endswith("__main__")]
    run_python(
        "import importlib, sys\n"
        "import torch, joblib, sklearn, matplotlib\n"  # they look for themselves
        "for hidden in ('fcntl', 'resource', 'pwd', 'grp', 'termios', 'pty'): sys.modules[hidden] = None\n"
        f"for name in {names}: importlib.import_module(name)\n"
        "from initio.files import locked, peak_bytes\n"
        "from pathlib import Path\n"
        "with locked(Path(importlib.import_module('initio').__file__), 'busy'): pass\n"
        "assert peak_bytes() == 0\n"
    )
