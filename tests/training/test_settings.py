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
        ({"validation": 1.0}, "the validation share must be a number at least 0 and below 1, not 1.0"),
        ({"clip": 0}, "the largest norm of a gradient must be a number above 0, not 0"),
        ({"augment": "flip"}, "augment must be one of auto, crop-flip, crop, zoom-flip, none, not 'flip'"),
        ({"schedule": "step"}, "schedule must be one of cosine, linear, constant, not 'step'"),
        ({"warmup": 3}, "the warm-up of 3 epochs must be shorter than the training of 3"),
        ({"ema": 1.0}, "the decay of the average of the weights must be a number at least 0 and below 1, not 1.0"),
        ({"smoothing": -0.1}, "the label smoothing must be a number at least 0 and below 1, not -0.1"),
        ({"patience": 0}, "the patience must be a whole number of at least 1, not 0"),
        (
            {"patience": 1, "validation": 0},
            "an early stop looks at the validation accuracy: hold out a share for it, as 0.1",
        ),
        ({"samples": 0}, "the number of samples must be a whole number of at least 2, not 0"),
    ],
)
def test_settings_are_checked(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        TrainingSettings(**wrong)  # type: ignore[arg-type]
    assert str(error.value) == sentence


def test_settings_are_plain_values() -> None:
    assert all(isinstance(value, int | float | str | None) for value in asdict(TrainingSettings()).values())
