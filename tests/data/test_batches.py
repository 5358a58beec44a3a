"""Drawing: one seeded way, normalised by the training part, at any size."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from initio.data import Dataset, Noise, load, noise
from initio.data import statistics as statistics_module
from initio.data.arrays import dataset, labelled
from initio.data.resize import resize
from initio.errors import InputError
from initio.records import Batch, from_json, to_json
from tests.data.formats import images, labels


def toy(split: str = "train") -> Dataset:
    parts = {
        "train": labelled(images(30, 3, 8, 8), labels(30), "toy"),
        "test": labelled(images(12, 3, 8, 8, seed=5) // 2, labels(12, seed=5), "toy"),
    }
    return dataset("toy", split, parts)


def test_noise_is_standard_normal_with_uniform_labels() -> None:
    batch = noise((3, 32, 32), classes=10, batch_size=256, seed=3)
    assert batch.x.shape == (256, 3, 32, 32)
    assert abs(batch.x.mean()) < 0.005
    assert abs(batch.x.std() - 1) < 0.005
    assert set(batch.y.tolist()) == set(range(10))
    assert (batch.source, batch.mean, batch.std) == ("noise", (), ())


def test_noise_depends_on_the_seed_alone_and_larger_batches_extend_smaller_ones() -> None:
    small, large = noise((1, 4, 4), batch_size=8, seed=1), noise((1, 4, 4), batch_size=20, seed=1)
    assert small == noise((1, 4, 4), batch_size=8, seed=1)
    assert small != noise((1, 4, 4), batch_size=8, seed=2)
    np.testing.assert_array_equal(small.x, large.x[:8])
    np.testing.assert_array_equal(small.y, large.y[:8])


def test_noise_by_name_is_the_same_noise() -> None:
    assert load("noise").batch(64, seed=7) == noise(batch_size=64, seed=7)
    assert load("noise:1x5x6:3").batch(4, seed=0) == noise((1, 5, 6), classes=3, batch_size=4)
    assert load("noise:784:10").batch(4).shape == (784,)
    assert load("noise@16").batch(2).shape == (3, 16, 16)
    assert load("noise").batch(2, labels="true") == load("noise").batch(2, labels="random")


def test_fingerprints_are_those_of_other_days_and_machines() -> None:
    assert noise().fingerprint == "5e707a02feb3f47f"
    assert load("digits").batch(64, seed=0).fingerprint == "7cd69a75ac60778c"


def test_no_global_random_state_is_read_or_changed() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    first = toy().batch(4, seed=0)
    np.random.seed(99)  # noqa: NPY002
    assert toy().batch(4, seed=0) == first
    np.random.set_state(("MT19937", np.array(before, dtype=np.uint32), 624))  # noqa: NPY002
    noise(batch_size=2)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index] # noqa: NPY002


def test_a_batch_is_normalised_by_hand() -> None:
    data = toy()
    x, y = data.arrays()
    assert isinstance(data.images, np.ndarray)
    for c in range(3):
        values = [Fraction(int(v), 255) for v in data.images[:, c].ravel()]
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / len(values)
        assert data.mean[c] == pytest.approx(float(mean), rel=1e-15)
        assert data.std[c] == pytest.approx(float(variance) ** 0.5, rel=1e-15)
    value = (int(data.images[4, 1, 2, 3]) / 255 - data.mean[1]) / data.std[1]
    assert x[4, 1, 2, 3] == np.float32(value)
    np.testing.assert_array_equal(y, data.labels)
    np.testing.assert_allclose(x.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(axis=(0, 2, 3)), 1, atol=1e-6)


def test_the_test_part_is_normalised_by_the_training_part() -> None:
    train, test = toy(), toy("test")
    assert (test.mean, test.std) == (train.mean, train.std)
    assert test.batch(12).x.mean() < -0.5  # it is darker, and stays so
    assert test.batch(4).source == "toy test"


def test_a_batch_holds_each_sample_once_with_its_label() -> None:
    data = toy()
    everything, y = data.arrays()
    batch = data.batch(30, seed=4)
    rows = [int(np.flatnonzero((everything == row).all(axis=(1, 2, 3)))[0]) for row in batch.x]
    assert sorted(rows) == list(range(30))
    assert rows != list(range(30))
    np.testing.assert_array_equal(batch.y, y[rows])
    np.testing.assert_array_equal(data.batch(7, seed=4).x, batch.x[:7])
    assert data.batch(7, seed=4) != data.batch(7, seed=5)


def test_random_labels_keep_the_inputs() -> None:
    true, random = toy().batch(30, seed=2), toy().batch(30, seed=2, labels="random")
    np.testing.assert_array_equal(true.x, random.x)
    assert (true.y != random.y).any()
    assert random.source == "toy train, random labels"


def test_a_batch_reads_back_from_json_to_equality() -> None:
    batch = toy().batch(5, seed=1)
    assert from_json(Batch, to_json(batch)) == batch


def test_minibatches_are_one_shuffled_pass() -> None:
    batches = list(toy().minibatches(8, seed=3))
    assert [len(b) for b in batches] == [8, 8, 8, 6]
    np.testing.assert_array_equal(np.concatenate([b.x for b in batches]), toy().batch(30, seed=3).x)


def test_resizing_averages_areas() -> None:
    x = images(2, 3, 8, 8)
    slow = x.astype(float).reshape(2, 3, 4, 2, 4, 2).mean(axis=(3, 5))
    np.testing.assert_array_equal(resize(x, (4, 4)), np.floor(slow + 0.5))
    np.testing.assert_allclose(resize(x.astype(np.float32), (4, 4)), slow)
    np.testing.assert_array_equal(resize(x, (8, 8)), x)
    np.testing.assert_array_equal(resize(x, (16, 16))[..., ::2, ::2], x)  # a larger image repeats pixels


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_resizing_keeps_the_mean_and_the_constant(n: int, m: int, seed: int) -> None:
    x = np.random.default_rng(seed).random((1, n, n))
    assert resize(x, (m, m)).mean() == pytest.approx(x.mean())
    assert (resize(np.full((1, n, n), 200, dtype=np.uint8), (m, m)) == 200).all()


def test_resizing_to_other_proportions_cuts_around_the_centre() -> None:
    wide = np.arange(24, dtype=np.uint8).reshape(1, 4, 6)
    np.testing.assert_array_equal(resize(wide, (4, 4)), wide[:, :, 1:5])
    np.testing.assert_array_equal(resize(wide, (2, 6)), wide[:, 1:3, :])


def test_a_resized_batch_is_the_resized_images_of_that_batch() -> None:
    data = toy()
    drawn, resized = data.batch(6, seed=1), data.batch(6, seed=1, pixels=4)
    assert resized.shape == (3, 4, 4)
    assert resized == data.resized((4, 4)).batch(6, seed=1)
    assert data.resized(4).shape == (3, 4, 4)
    assert (resized.mean, resized.source) == (drawn.mean, "toy train at 4x4")
    # Only the rounding to 8 bits stands between them.
    np.testing.assert_allclose(resized.x, resize(drawn.x, (4, 4)), atol=0.51 / 255 / min(data.std))


@given(st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_byte_statistics_are_exact(values: list[int]) -> None:
    mean, std = statistics_module.of_array(np.array(values, dtype=np.uint8).reshape(-1, 1, 1, 1))
    exact = [Fraction(v, 255) for v in values]
    average = sum(exact) / len(exact)
    variance = sum((v - average) ** 2 for v in exact) / len(exact)
    assert mean[0] == float(average)
    assert std[0] == pytest.approx(float(variance) ** 0.5 or 1.0, rel=1e-14)


def test_statistics_are_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(50, 3, 4, 4)
    whole = statistics_module.of_array(x)
    floats = statistics_module.of_array(x.astype(np.float32))
    monkeypatch.setattr(statistics_module, "CHUNK", 7)
    assert statistics_module.of_array(x) == whole
    np.testing.assert_allclose(statistics_module.of_array(x.astype(np.float32)), floats, rtol=1e-12)
    np.testing.assert_allclose(np.array(floats) / 255, whole, rtol=1e-12)


def test_a_constant_feature_becomes_zero_and_invents_nothing() -> None:
    x = np.column_stack([np.full(9, 0.1), np.arange(9)]).astype(np.float32)
    data = dataset("features", "train", {"train": labelled(x, labels(9), "features")})
    assert data.std[0] == 1.0
    drawn, _ = data.arrays()
    assert (drawn[:, 0] == 0).all()
    assert drawn[:, 1].std() == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: toy().batch(31), "a batch of 31 is larger than the train part of toy, which has 30 samples"),
        (lambda: toy().batch(0), "the batch size must be a whole number of at least 1, not 0"),
        (lambda: toy().batch(2.5), "the batch size must be a whole number"),
        (lambda: toy().batch(4, seed=-1), "the seed must be a whole number of at least 0, not -1"),
        (lambda: toy().batch(4, labels="false"), "labels must be 'true' or 'random', not 'false'"),
        (lambda: toy().batch(4, pixels=0), "the image size must be"),
        (lambda: toy().batch(4, pixels=(1, 2, 3)), "the image size must be a side or"),
        (lambda: toy().batch(4, pixels=10**6), "up to 4096"),
        (lambda: list(toy().minibatches(0, 0)), "the batch size must be"),
        (lambda: noise((3, 32)), "noise needs a shape"),
        (lambda: noise((3, 0, 32)), "the size of a noise input must be"),
        (lambda: noise(classes=0), "the number of classes must be"),
        (lambda: noise((3, 4096, 4096), batch_size=10**6), "is too large"),
        (lambda: Noise((5,)).resized(3), "has no pixels to resize"),
        (lambda: load("noise:10x"), "noise:10x is not understood: write noise"),
        (lambda: load("noise:3x16x16:0"), "the number of classes must be"),
    ],
)
def test_wrong_wishes(call: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        call()  # type: ignore[operator]


def test_features_have_no_pixels() -> None:
    data = dataset("features", "train", {"train": labelled(np.eye(4), labels(4, 2), "features")})
    with pytest.raises(InputError, match="features has features, not images"):
        data.batch(2, pixels=4)


def test_a_test_value_that_overflows_is_named() -> None:
    train = np.full((4, 1), 1e-30) * np.array([[1.0], [2.0], [3.0], [4.0]])
    far = np.array([[0.0], [1e30]])
    parts = {"train": labelled(train, labels(4, 2), "far"), "test": labelled(far, labels(2, 2), "far")}
    with pytest.raises(InputError, match="sample 1 of far test is infinite"):
        dataset("far", "test", parts).batch(2)


class Pictures:
    """Images that are read one by one, the last of another size."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full((3, 4, 5 if index == 5 else 4), index, dtype=np.uint8)

    def where(self, index: int) -> str:
        return f"{index}.png"


def test_arrays_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Dataset("pictures", Pictures(), np.arange(6) % 2, classes=2)
    whole, _ = data.arrays(np.arange(5))
    monkeypatch.setattr("initio.data.dataset.CHUNK", 2)
    x, y = data.arrays(np.array([4, 0, 3, 1, 2]))
    assert np.array_equal(x, whole[[4, 0, 3, 1, 2]])
    assert y.tolist() == [0, 0, 1, 1, 0]
    monkeypatch.setattr("initio.data.dataset.CHUNK", 5)
    with pytest.raises(InputError, match=r"5.png has 4x5 pixels and 0.png has 4x4: state one size for all"):
        data.arrays()
