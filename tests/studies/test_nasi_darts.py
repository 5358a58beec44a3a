"""Width and depth of published cells are those that are published."""

import numpy as np
import pytest

from initio.spaces import DARTS, ZOO
from studies.nasi_darts import percentile, shape, size


@pytest.mark.parametrize(("name", "width", "depth"), [("darts_v2", 3.5, 3), ("snas", 4.0, 2)])
def test_width_and_depth_of_a_normal_cell(name: str, width: float, depth: int) -> None:
    assert shape(DARTS.cells(DARTS.parse(str(ZOO[name])))[0]) == (width, depth)


def test_parameters_are_those_of_the_published_network() -> None:
    assert size(DARTS.parse(str(ZOO["darts_v2"]))) == 3_349_342


def test_the_percentile_counts_what_is_worse() -> None:
    assert percentile(2.0, np.array([1.0, 2.0, 3.0, 1.5])) == 50
