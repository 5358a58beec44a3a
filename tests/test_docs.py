"""The docs say what the code does: generated pages are fresh, every name is documented, links lead somewhere."""

import re
from pathlib import Path

import pytest

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


def test_every_space_and_published_cell_is_documented() -> None:
    page = (ROOT / "docs/spaces.md").read_text()
    assert all(f"`{name}`" in page for name in [*SPACES, *ZOO])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
