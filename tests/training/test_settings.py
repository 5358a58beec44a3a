"""Settings are plain values, checked at once."""

from dataclasses import asdict

import pytest

from initio.errors import InputError
from initio.training import TrainingSettings


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"epochs": 0}, "the number of epochs must be a whole number of at least 1, not 0"),
        ({"epochs": 1.5}, "the number of epochs must be a whole number of at least 1, not 1.5"),
        ({"batch_size": 1}, "the batch size must be a whole number of at least 2, not 1"),
        ({"lr": 0}, "the learning rate must be a number above 0, not 0"),
        ({"lr": float("nan")}, "the learning rate must be a number above 0, not nan"),
        ({"lr": float("inf")}, "the learning rate must be a number above 0, not inf"),
        ({"momentum": 1}, "the momentum must be a number at least 0 and below 1, not 1"),
        ({"weight_decay": -1}, "the weight decay must be a number at least 0, not -1"),
        ({"validation": 1.0}, "the validation share must be a number above 0 and below 1, not 1.0"),
        ({"clip": 0}, "the largest norm of a gradient must be a number above 0, not 0"),
        ({"augment": "flip"}, "augment must be one of auto, crop-flip, crop, none, not 'flip'"),
        ({"samples": 0}, "the number of samples must be a whole number of at least 2, not 0"),
    ],
)
def test_settings_are_checked(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        TrainingSettings(**wrong)  # type: ignore[arg-type]
    assert str(error.value) == sentence


def test_settings_are_plain_values() -> None:
    assert all(isinstance(value, int | float | str | None) for value in asdict(TrainingSettings()).values())
