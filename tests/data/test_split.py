"""Parts in which every class has its share."""

from collections import Counter

import numpy as np

from initio.data.digits import read_digits
from initio.data.draw import generator
from initio.data.split import stratified


def test_the_split_is_stratified_disjoint_and_seeded() -> None:
    digits = read_digits("train")
    learn, validate = stratified(digits.labels, 0.3, generator(0, 0))
    assert sorted([*learn, *validate]) == list(range(len(digits)))
    all_of, part = Counter(digits.labels.tolist()), Counter(digits.labels[validate].tolist())
    assert all(abs(part[label] - 0.3 * n) <= 0.5 for label, n in all_of.items())
    assert np.array_equal(validate, stratified(digits.labels, 0.3, generator(0, 0))[1])
    assert not np.array_equal(validate, stratified(digits.labels, 0.3, generator(1, 0))[1])
