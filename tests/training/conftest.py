"""Digits, read once."""

import pytest

from initio.data import Dataset, load


@pytest.fixture(scope="session")
def digits() -> Dataset:
    data = load("digits")
    assert isinstance(data, Dataset)
    return data
