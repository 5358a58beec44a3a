"""The docs say what the code does: generated pages are fresh, every name is documented, links lead somewhere."""

import re
from pathlib import Path

import pytest

import initio
from initio.cli import COMMANDS
from initio.cli.reference import reference
from initio.spaces import SPACES, ZOO

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_command_line_page_is_fresh() -> None:
    assert (ROOT / "docs/cli.md").read_text() == reference(), "run `make docs`"


def test_every_command_has_its_section() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    assert all(f"\n## initio {name}\n" in page for name in COMMANDS)


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


@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in p.read_text()], ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run in order, in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
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
