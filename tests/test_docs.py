"""The docs say what the code does: generated pages are fresh, every name is documented, links lead somewhere."""

import re
import tomllib
from pathlib import Path

import pytest

import initio
from initio.cli import COMMANDS, all_commands
from initio.cli.options import options_of
from initio.cli.reference import reference
from initio.spaces import SPACES, ZOO

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_command_line_page_is_fresh() -> None:
    assert (ROOT / "docs/cli.md").read_text() == reference(), "run `make docs`"


def test_every_command_has_its_section() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    assert all(f"\n## initio {name}\n" in page for name in COMMANDS)


def test_every_extra_is_on_the_page_of_installing() -> None:
    page = (ROOT / "docs/install.md").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"`initio\[(\w+)\]`", page)) == set(extras)


def test_the_page_of_many_machines_is_found_and_lists_who_takes_a_device() -> None:
    for page in ("README.md", "docs/index.md"):
        assert "scale.md" in (ROOT / page).read_text()
    listed = (ROOT / "docs/scale.md").read_text().partition("## A GPU")[2].partition("networks are built")[0]
    for name, command in all_commands():
        if "device" in options_of(command):
            assert f"`{name}`" in listed or f"`{name.removeprefix('initio ')}`" in listed, name


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs/api.md").read_text()
    assert set(re.findall(r"`?initio\.(\w+)`?", page)) >= set(initio.__all__)


def test_every_space_and_published_cell_is_documented() -> None:
    page = (ROOT / "docs/spaces.md").read_text()
    assert all(f"`{name}`" in page for name in [*SPACES, *ZOO])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


# --- no page cites what is not here -----------------------------------------------------------------------------------

EVERYWHERE = [*PAGES, ROOT / "CHANGELOG.md"]
COMMON = ("--config", "--print-config", "--quiet")
OTHERS = ("pytest",)  # modules that are run and not ours


def cited(pattern: str) -> set[tuple[str, ...]]:
    """What the pages say of this form, each with its page."""
    return {
        (*found.groups(), page.name)
        for page in EVERYWHERE
        for found in re.finditer(pattern, page.read_text(), flags=re.MULTILINE)
    }


def module_file(name: str) -> Path | None:
    """What `python -m NAME` would run."""
    places = (root / name.replace(".", "/") for root in (ROOT, ROOT / "src"))
    return next((file for at in places for file in (at.with_suffix(".py"), at / "__main__.py") if file.is_file()), None)


def test_files_that_are_cited_exist() -> None:
    found = cited(r"`((?:src|studies|tests|docs|examples|\.ci)/[\w./*-]*)`")
    assert len(found) > 20
    assert [(path, page) for path, page in sorted(found) if not any(ROOT.glob(path.rstrip("/")))] == []


def test_modules_that_are_cited_exist_and_have_the_options() -> None:
    found = cited(r"python3? -m ([\w.]+)((?: [^\n`#>|]*)?)")
    assert len(found) > 20
    for name, options, page in found:
        if name not in OTHERS:
            file = module_file(name)
            assert file is not None, f"{page} cites {name}"
            for option in re.findall(r"--[a-z][a-z-]+", options):
                assert f'"{option}"' in file.read_text(), f"{page} cites {name} {option}"


def test_targets_of_make_that_are_cited_exist() -> None:
    rules = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {name for name, _ in cited(r"(?:`|^)make ([a-z]+)")} <= set(rules)


def test_commands_that_are_cited_exist_and_have_the_options() -> None:
    """The page of the command line is fresh, so it knows them; methods' and recipes' settings are options beside."""
    page = (ROOT / "docs/cli.md").read_text()
    sections = dict(re.findall(r"^## (initio .*?)\n(.*?)(?=^#)", page, flags=re.MULTILINE | re.DOTALL))
    beside = set(re.findall(r"^- `(--[\w-]+)", page, flags=re.MULTILINE)) | {"--help", *COMMON}
    found = cited(r"(?:`|^)initio ([a-z]+)((?: [^\n`#>|]*)?)")
    assert len(found) > 50
    for name, words, where in found:
        about = "".join(text for title, text in sections.items() if f"{title} ".startswith(f"initio {name} "))
        assert about, f"{where} cites initio {name}"
        known = beside | set(re.findall(r"--[a-z][\w-]*", about))
        own = re.search(r" \w+\.\w+:\w", words)  # a part of one's own has options of its own
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]+", words):
            either = {option, option.replace("--no-", "--"), option.replace("--", "--no-", 1)}
            assert own or known & either, f"{where} cites initio {name} {option}"


@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in p.read_text()], ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run in order, in one namespace, in an empty folder, as on a machine of one core."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("initio.runs.search.cores", lambda: 1)
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)


def test_papers_are_named_once() -> None:
    """Everyone else cites by the short name."""
    titles = re.findall(r'"([^"]+)"', (ROOT / "docs/papers.md").read_text())
    assert len(titles) == 6
    texts = {page: page.read_text() for page in [*PAGES, *(ROOT / "src").rglob("*.py")]}
    for title in titles:
        words = r"[\s#]+".join(map(re.escape, title.split()))
        named = [page.name for page, text in texts.items() if re.search(words, text, re.IGNORECASE)]
        assert named == ["papers.md"], title
