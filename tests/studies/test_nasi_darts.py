"""Sizes of published cells are those that are published."""

import numpy as np

from initio.spaces import DARTS, ZOO
from studies.nasi_darts import percentile, size


def test_parameters_are_those_of_the_published_network() -> None:
    assert size(DARTS.parse(str(ZOO["darts_v2"]))) == 3_349_342


def test_the_percentile_counts_what_is_worse() -> None:
    assert percentile(2.0, np.array([1.0, 2.0, 3.0, 1.5])) == 50
