import json
import math
import pickle
import re
from dataclasses import dataclass, replace
from dataclasses import field as record_field
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from initio.errors import InputError
from initio.records import (
    FORMAT_VERSION,
    Architecture,
    Batch,
    Cost,
    Evaluation,
    Observation,
    decode,
    encode,
    from_json,
    settings,
    to_json,
)

ARCH = Architecture("nb201", (3, 0, 1, 0, 2, 4))
BATCH = Batch(np.linspace(-1, 1, 24).reshape(2, 3, 2, 2), np.array([0, 4]), 5, "by hand", (0.5,) * 3, (0.25,) * 3)
EVALUATION = Evaluation(ARCH, "kappa", math.inf, seed=3, flag="singular", settings=settings(cells=5), data="00ff")
RECORDS = [
    ARCH,
    BATCH,
    EVALUATION,
    Evaluation(ARCH, "trace", None, 0, "no gradient"),
    Cost(3, seconds=1.5),
]
each_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)


@each_record
def test_json_reads_back_to_equality(record: Any) -> None:
    assert from_json(type(record), to_json(record)) == record


@each_record
def test_json_is_strict_and_carries_kind_and_version(record: Any) -> None:
    document = json.loads(to_json(record, indent=2), parse_constant=lambda name: pytest.fail(name))
    assert document["initio"] == record.kind
    assert document["version"] == FORMAT_VERSION


@each_record
def test_records_are_immutable_hashable_and_picklable(record: Any) -> None:
    with pytest.raises(AttributeError):
        record.space = "other"  # type: ignore[misc, union-attr]
    assert hash(pickle.loads(pickle.dumps(record))) == hash(record)


@each_record
def test_a_newer_version_another_kind_and_damage_are_refused(record: Any) -> None:
    document = json.loads(to_json(record))

    def read(changed: object) -> None:
        from_json(type(record), json.dumps(changed), where="best.json")

    with pytest.raises(InputError, match=r"best.json has format version 3, .* install a newer Initio"):
        read(document | {"version": 3})
    with pytest.raises(InputError, match="best.json is not an Initio"):
        read(document | {"initio": "recipe"})
    with pytest.raises(InputError, match="best.json has no valid format version"):
        read({name: value for name, value in document.items() if name != "version"})
    with pytest.raises(InputError, match="best.json is not valid JSON"):
        from_json(type(record), to_json(record)[:-5], where="best.json")
    for name in set(document) - {"initio", "version"}:
        with pytest.raises(InputError, match="best.json is damaged"):
            read({key: value for key, value in document.items() if key != name})
        with pytest.raises(InputError, match="best.json is damaged"):
            read(document | {name: {"nested": [1]} if name != "settings" else 3})


@each_record
@given(data=st.data())
def test_a_flipped_character_is_refused_or_reads_as_some_record(record: Any, data: st.DataObject) -> None:
    text = to_json(record)
    place = data.draw(st.integers(0, len(text) - 1))
    flipped = text[:place] + data.draw(st.characters()) + text[place + 1 :]
    try:
        read = from_json(type(record), flipped)
    except InputError:
        return
    assert from_json(type(record), to_json(read)) == read


def test_a_changed_batch_is_noticed() -> None:
    document = json.loads(to_json(BATCH)) | {"y": [1, 4]}
    with pytest.raises(InputError, match="the fingerprint differs"):
        from_json(Batch, json.dumps(document))


def test_a_batch_is_read_only_also_in_a_worker() -> None:
    for batch in (BATCH, pickle.loads(pickle.dumps(BATCH))):
        with pytest.raises(ValueError, match="read-only"):
            batch.x[0] = 0


def test_the_fingerprint_sees_inputs_labels_and_classes() -> None:
    x, y = np.zeros((2, 3)), np.array([0, 1])
    prints = {
        Batch(x, y, 5, "a").fingerprint,
        Batch(x + 1, y, 5, "a").fingerprint,
        Batch(x, y[::-1], 5, "a").fingerprint,
        Batch(x, y, 6, "a").fingerprint,
        Batch(x.reshape(2, 1, 3), y, 5, "a").fingerprint,
    }
    assert len(prints) == 5


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((2, 3)), [0, 5], "label 5 of sample 1 is out of range: by hand has classes 0 to 4"),
        (np.zeros((2, 3)), [-1, 0], "label -1 of sample 0 is out of range"),
        (np.zeros((2, 3)), [0], "m >= 1 inputs and m labels"),
        (np.zeros((0, 3)), [], "m >= 1 inputs"),
        (np.zeros(3), [0, 1, 2], "m >= 1 inputs"),
        (np.array([[0.0], [np.nan]]), [0, 1], "sample 1 of by hand holds NaN or infinity"),
    ],
)
def test_bad_batches_are_refused(x: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Batch(x, np.array(y, dtype=int), 5, "by hand")


def test_a_missing_value_needs_a_reason_and_nan_is_no_value() -> None:
    with pytest.raises(InputError, match="neither a value nor a flag"):
        Evaluation(ARCH, "trace", None, 0)
    with pytest.raises(InputError, match="trace is NaN"):
        Evaluation(ARCH, "trace", math.nan, 0)
    with pytest.raises(InputError, match="NaN"):
        encode({"value": math.nan})


def test_numbers_of_numpy_become_plain() -> None:
    arch = Architecture("nb201", tuple(np.arange(3)))
    assert to_json(arch) == to_json(Architecture("nb201", (0, 1, 2)))
    assert to_json(Evaluation(arch, "m", np.float32(1.5), 0)) == to_json(Evaluation(arch, "m", 1.5, 0))  # type: ignore[arg-type]


def test_settings_hold_single_values_only_and_keep_words_that_look_like_numbers() -> None:
    with pytest.raises(InputError, match="setting 'shape' must be a single value"):
        settings(shape=(3, 32, 32))  # type: ignore[arg-type]
    words = replace(EVALUATION, settings=settings(a="inf", b=math.inf))
    assert from_json(Evaluation, to_json(words)) == words


@dataclass(frozen=True)
class Everything:
    """Of each kind of field one."""

    words: tuple[str, ...]
    shares: dict[str, float]
    inner: Architecture
    way: Literal["up", "down"]
    sizes: tuple[int, ...] | None
    value: float | None = None
    number: int | None = record_field(default=None, kw_only=True)
    secret: object = record_field(default=None, metadata={"saved": False})


def test_the_codec_knows_every_kind_of_field() -> None:
    full = Everything(("a",), {"relu": math.inf}, ARCH, "up", (1, 2), 0.5, number=3)
    assert decode(Everything, json.loads(json.dumps(encode(full)))) == full
    empty = Everything((), {}, ARCH, "down", None, secret=object())
    assert encode(empty).keys() == {"words", "shares", "inner", "way", "sizes"}  # what is None by default is left out
    assert decode(Everything, encode(empty)) == replace(empty, secret=None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"way": "left"}, "field 'way' must be one of up, down, not 'left'"),
        ({"shares": {"relu": "much"}}, "field 'shares.relu' must be of type float, not 'much'"),
        ({"words": [1]}, "field 'words' must be of type str, not 1"),
        ({"inner": {"space": "nb201"}}, "field 'choices' is missing"),
        ({"number": True}, "field 'number' must be of type int, not True"),
        ({"value": 10**400}, "field 'value' is too large for a number"),
        ({"sizes": "12"}, "field 'sizes' must be of type list, not '12'"),
    ],
)
def test_damage_is_named(change: dict[str, Any], sentence: str) -> None:
    data = encode(Everything(("a",), {"relu": 1.0}, ARCH, "up", (1, 2)))
    with pytest.raises(InputError, match=re.escape(sentence)):
        decode(Everything, data | change)


def test_a_field_without_a_default_must_be_there_also_where_it_may_be_none() -> None:
    data = encode(Everything(("a",), {}, ARCH, "up", None))
    assert decode(Everything, data).sizes is None
    del data["sizes"]
    with pytest.raises(InputError, match="field 'sizes' is missing"):
        decode(Everything, data)


def test_costs_add_up_and_the_higher_peak_counts() -> None:
    assert (Cost(1) + Cost(2)).peak_bytes is None
    assert (Cost(1) + Cost(2, peak_bytes=7)).peak_bytes == 7
    assert Cost(1, seconds=2.0, peak_bytes=5) + Cost(2, 3, seconds=0.5, peak_bytes=4) == Cost(
        3, 3, seconds=2.5, peak_bytes=5
    )


def test_settings_in_any_order_are_equal_and_numbers_are_whole() -> None:
    assert Evaluation(ARCH, "m", 1.0, np.int64(3), settings=(("b", 1), ("a", 2))) == Evaluation(  # type: ignore[arg-type]
        ARCH, "m", 1.0, 3, settings=settings(a=2, b=1)
    )
    for wrong in ((1.7, 2), "12"):
        with pytest.raises(InputError, match="a choice must be a whole number"):
            Architecture("nb201", wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="labels of s must be whole numbers"):
        Batch(np.zeros((2, 1)), np.array([0.9, 1.2]), 2, "s")


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_what_a_training_took_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(InputError, match="seconds of an evaluation"):
        Observation(93.0, seconds)


def test_a_training_without_a_value_says_why() -> None:
    assert Observation(None, 3.0, "the loss is not finite").value is None
    with pytest.raises(InputError, match="needs a flag that says why"):
        Observation(None)


@pytest.mark.parametrize("field", ["mean", "std"])
def test_statistics_of_a_batch_are_finite(field: str) -> None:
    with pytest.raises(InputError, match="must be finite numbers"):
        replace(BATCH, **{field: (math.inf,) * 3})


def test_a_number_too_large_is_no_json() -> None:
    with pytest.raises(InputError, match="the number 1e400 is too large"):
        from_json(Architecture, '{"initio": "architecture", "version": 2, "space": "nb201", "choices": [1e400]}')
