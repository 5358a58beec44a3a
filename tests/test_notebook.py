"""What a notebook shows of architectures and spaces."""

import pytest

import initio
from initio.spaces import SPACES


@pytest.mark.parametrize("text", ["|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|", "nasnet"])
def test_an_architecture_is_shown_as_its_cells(text: str) -> None:
    arch = initio.parse(text)
    picture = arch._repr_svg_()
    assert picture is not None
    assert picture.lstrip().startswith(("<?xml", "<svg"))
    assert "_repr_svg_" not in initio.to_json(arch)


def test_what_cannot_be_drawn_is_shown_as_text() -> None:
    nameless = initio.space("nameless", lambda width: None, width=[1, 2])  # type: ignore[arg-type, return-value]
    assert nameless.architecture(0)._repr_svg_() is None


@pytest.mark.parametrize("name", SPACES)
def test_a_space_is_shown_as_its_decisions(name: str) -> None:
    shown = SPACES[name]._repr_html_()
    assert f"<caption>{SPACES[name].name}: " in shown
    assert f"<td>{SPACES[name].decisions[0].name}</td>" in shown
    assert shown.count("<tr>") <= 33
