"""What Initio knows, as plain immutable data with a JSON form that reads back to equality.

The JSON of a record follows from the types of its fields: `encode` and `decode` know plain values, tuples, mappings,
`Literal`, optional values and records inside records. A field that is None by default is left out where it is None, and
one with `metadata={"saved": False}` always; any other must be there. A record whose JSON is not its fields has the two
methods `to_dict` and `from_dict`.

Every JSON document carries `initio` (which record it is) and `version` (of the format). A document of a newer version,
of another kind or with damage is refused with an `InputError`; nothing in a file is ever executed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from dataclasses import field as record_field
from functools import cache, cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from initio.errors import InputError

if TYPE_CHECKING:
    import numpy as np

FORMAT_VERSION = 2

Scalar = str | int | float | bool | None
Settings = tuple[tuple[str, Scalar], ...]  # sorted by name: hashable, comparable, an object in JSON
R = TypeVar("R")


def settings(**values: Scalar) -> Settings:
    """Settings from keyword arguments, in the one canonical order.

    >>> settings(cells=5, batch_size=64)
    (('batch_size', 64), ('cells', 5))
    """
    for name, value in values.items():
        if not isinstance(value, str | int | float | bool | None):
            raise InputError(f"setting {name!r} must be a single value, not {_shown(value)}")
    return tuple(sorted(values.items()))


@dataclass(frozen=True, order=True)
class Architecture:
    """A point of a search space: for each of the space's decisions, the number of the chosen option."""

    space: str
    choices: tuple[int, ...]

    kind: ClassVar[str] = "architecture"
    _repr_svg_: ClassVar[Callable[[Architecture], str | None]]  # handed in by `initio`: a record knows no pictures

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(_whole(choice, "a choice") for choice in self.choices))


@dataclass(frozen=True, eq=False)
class Batch:
    """m inputs with their labels, and where they came from.

    `mean` and `std` are what was subtracted and divided by, per channel, to make `x` from values in [0, 1]; they are
    empty for data that was never scaled (noise).
    """

    x: np.ndarray  # float32, (m, channels, height, width) or (m, features)
    y: np.ndarray  # int64, (m,)
    classes: int
    source: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    kind: ClassVar[str] = "batch"

    def __post_init__(self) -> None:
        import numpy as np

        given = np.asarray(self.x)
        if given.dtype.kind not in "fiub":
            raise InputError(f"the inputs of {self.source} must be real numbers, not {given.dtype}")
        x = np.array(given, dtype=np.float32, order="C")
        y = np.array(self.y, order="C")
        if y.size and not np.array_equal(y, y.astype(np.int64)):
            raise InputError(f"the labels of {self.source} must be whole numbers")
        y = y.astype(np.int64)
        object.__setattr__(self, "classes", _whole(self.classes, "the number of classes"))
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))
        if not all(map(math.isfinite, (*self.mean, *self.std))):
            raise InputError("the mean and the deviation of a batch must be finite numbers")
        if x.ndim < 2 or y.shape != x.shape[:1] or len(y) == 0:
            raise InputError(f"a batch needs m >= 1 inputs and m labels, not shapes {x.shape} and {y.shape}")
        if not np.isfinite(x).all():
            raise InputError(f"sample {int(np.argwhere(~np.isfinite(x))[0][0])} of {self.source} holds NaN or infinity")
        if y.min() < 0 or y.max() >= self.classes:
            where = int(np.flatnonzero((y < 0) | (y >= self.classes))[0])
            raise InputError(
                f"label {y[where]} of sample {where} is out of range: {self.source} has classes 0 to {self.classes - 1}"
            )
        x.flags.writeable = y.flags.writeable = False
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)

    def __len__(self) -> int:
        return len(self.y)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.fingerprint, self.source, self.mean, self.std)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x.shape[1:])

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles through the constructor, so that a worker's copy is read-only too."""
        return Batch, (self.x, self.y, self.classes, self.source, self.mean, self.std)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any input, label, shape or the number of classes."""
        digest = hashlib.sha256(f"{self.x.shape} {self.classes}".encode())
        digest.update(self.x.tobytes())
        digest.update(self.y.tobytes())
        return digest.hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values; arrays are base64 of their little-endian bytes."""
        return {
            "x": base64.b64encode(self.x.astype("<f4").tobytes()).decode(),
            "y": self.y.tolist(),
            "shape": list(self.x.shape),
            "classes": self.classes,
            "source": self.source,
            "mean": list(self.mean),
            "std": list(self.std),
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Batch:
        """The inverse of `to_dict`; the fingerprint must match."""
        import numpy as np

        shape = decode(list[int], data.get("shape"), "shape")
        try:
            raw = base64.b64decode(decode(str, data.get("x"), "x"), validate=True)
        except ValueError as error:
            raise InputError(f"the inputs are not base64: {error}") from None
        if any(n < 0 for n in shape) or len(raw) != 4 * math.prod(shape):
            raise InputError(f"the inputs hold {len(raw)} bytes, shape {shape} needs {4 * math.prod(shape)}")
        labels, classes = decode(list[int], data.get("y"), "y"), decode(int, data.get("classes"), "classes")
        if any(not 0 <= label < classes for label in labels):
            raise InputError(f"a label is out of range: there are classes 0 to {classes - 1}")
        batch = cls(
            x=np.frombuffer(raw, "<f4").reshape(shape),
            y=np.array(labels, dtype=np.int64),
            classes=classes,
            source=decode(str, data.get("source"), "source"),
            mean=decode(tuple[float, ...], data.get("mean"), "mean"),
            std=decode(tuple[float, ...], data.get("std"), "std"),
        )
        if batch.fingerprint != data.get("fingerprint"):
            raise InputError("the inputs or labels were changed after they were written: the fingerprint differs")
        return batch


@dataclass(frozen=True)
class Evaluation:
    """One metric's value on one architecture.

    A value that does not exist is None and `flag` says why; a value to be doubted keeps its number and has a flag too.
    `version` is that of the metric's code: a change of definition makes older values another thing.
    """

    architecture: Architecture
    metric: str
    value: float | None
    seed: int
    flag: str = ""
    settings: Settings = ()  # of the network and of the metric
    data: str = ""  # fingerprint of the batch
    version: int = record_field(default=1, metadata={"json": "metric_version"})  # a document has a version of its own

    kind: ClassVar[str] = "evaluation"

    def __post_init__(self) -> None:
        if self.value is not None:
            object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "seed", _whole(self.seed, "the seed"))
        object.__setattr__(self, "settings", settings(**dict(self.settings)))
        if self.value is None and not self.flag:
            raise InputError(f"{self.metric} has neither a value nor a flag that says why")
        if self.value is not None and math.isnan(self.value):
            raise InputError(f"{self.metric} is NaN: a value that does not exist is None with a flag")


@dataclass(frozen=True, order=True)
class Query:
    """What a search asks for: an architecture's training of so many epochs.

    A training that does not clear a hurdle (epoch, validation accuracy in percent) is given up there and has no value.
    With hurdles, and be there none yet, each epoch is validated and the answer has its curve.
    """

    architecture: Architecture
    epochs: int | None = None  # None: the full training of whoever answers
    hurdles: tuple[tuple[int, float], ...] | None = None


@dataclass(frozen=True)
class Observation:
    """The answer to a query, and all that a search may select by; a value that does not exist is None with a flag."""

    value: float | None  # validation accuracy in percent; larger is better
    seconds: float = 0.0  # what the training took, or takes as published
    flag: str = ""  # why there is no value
    curve: tuple[float, ...] | None = None  # validation accuracies of the epochs, where the query had hurdles

    def __post_init__(self) -> None:
        if self.value is None and not self.flag:
            raise InputError("an evaluation without a value needs a flag that says why")
        if self.value is not None and not math.isfinite(self.value):
            raise InputError(f"an evaluation must give a finite number, not {self.value}")
        if not (self.seconds >= 0 and math.isfinite(self.seconds)):
            raise InputError(f"the seconds of an evaluation must be a number of at least 0, not {self.seconds}")


@dataclass(frozen=True)
class Cost:
    """What a search spent; `published_seconds` is the training time that the answers of a benchmark table stand for."""

    steps: int = 0
    scorings: int = 0
    trainings: int = 0
    queries: int = 0
    seconds: float = 0.0
    published_seconds: float = 0.0
    peak_bytes: int | None = None  # where the system says it

    kind: ClassVar[str] = "cost"

    def __add__(self, other: Cost) -> Cost:
        """Both together; of the peaks, the higher one."""
        added = [item.name for item in fields(self) if item.name != "peak_bytes"]
        known = [peak for peak in (self.peak_bytes, other.peak_bytes) if peak is not None]
        totals = {name: getattr(self, name) + getattr(other, name) for name in added}
        return Cost(**totals, peak_bytes=max(known, default=None))


# --- JSON -----------------------------------------------------------------------------------------------------------


def to_json(record: Any, indent: int | None = None) -> str:
    """The record as a JSON document.

    >>> to_json(Architecture("nb201", (3, 0, 1, 0, 2, 4)))
    '{"initio": "architecture", "version": 2, "space": "nb201", "choices": [3, 0, 1, 0, 2, 4]}'
    """
    head = {"initio": record.kind, "version": FORMAT_VERSION}
    return json.dumps(head | encode(record), indent=indent, ensure_ascii=False, allow_nan=False)


def from_json(record: type[R], text: str, where: str = "the document") -> R:
    """Reads a document of `to_json` back; `where` names it in errors.

    >>> from_json(Architecture, '{"initio": "architecture", "version": 9}', where="best.json")
    Traceback (most recent call last):
    initio.errors.InputError: best.json has format version 9, this Initio reads up to 2: install a newer Initio
    """
    kind = record.kind  # type: ignore[attr-defined]
    data = load_json(text, where)
    if not isinstance(data, dict) or data.get("initio") != kind:
        raise InputError(f"{where} is not an Initio {kind}")
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise InputError(f"{where} has no valid format version")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{where} has format version {version}, this Initio reads up to {FORMAT_VERSION}: install a newer Initio"
        )
    oldest = getattr(record, "oldest", 1)
    if version < oldest:
        raise InputError(
            f"{where} has format version {version}, which this Initio does not read any more: "
            f"run the search again in a new folder"
        )
    try:
        found: R = decode(record, data)
    except InputError as error:
        raise InputError(f"{where} is damaged: {error}") from None
    return found


def load_json(text: str | bytes, where: str) -> Any:
    """JSON values; what is no strict JSON is refused."""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON: {error}") from None


def encode(value: Any) -> Any:
    """A record, or anything that a field may hold, as JSON values.

    >>> encode(Query(Architecture("nb201", (0, 1))))
    {'architecture': {'space': 'nb201', 'choices': [0, 1]}}
    """
    if isinstance(value, float):
        return _from_float(value)
    if isinstance(value, str | int | None):
        return value
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return encode_fields(value)
    if isinstance(value, Mapping):
        return {str(name): encode(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [encode(item) for item in value]
    raise InputError(f"{_shown(value)} has no form in JSON")


def encode_fields(record: Any) -> dict[str, Any]:
    """What `encode` says of a record without a `to_dict` of its own."""
    return {
        name: _field(kind, value)
        for item, name, kind in _layout(record.__class__)
        if (value := getattr(record, item.name)) is not None or item.default is not None
    }


def decode(kind: Any, data: Any, name: str = "record") -> Any:
    """The inverse of `encode`: a value of this type, or an `InputError` that names the field.

    >>> decode(Query, {"architecture": {"space": "nb201", "choices": [0, 1]}})
    Query(architecture=Architecture(space='nb201', choices=(0, 1)), epochs=None, hurdles=None)
    >>> decode(tuple[int, ...], [1, 2.5], "sizes")
    Traceback (most recent call last):
    initio.errors.InputError: field 'sizes' must be of type int, not 2.5
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind == Settings:
        return settings(**decode(dict[str, Scalar], data, name))
    if origin in (Union, UnionType):
        return _decode_one_of(inner, data, name)
    if origin is Literal:
        if data not in inner:
            raise InputError(f"field {name!r} must be one of {', '.join(map(str, inner))}, not {_shown(data)}")
        return data
    if origin in (tuple, list):
        items = [decode(inner[0], item, name) for item in _plain(list, data, name)]
        return origin(items)
    if origin in (dict, Mapping):
        return {key: decode(inner[1], item, f"{name}.{key}") for key, item in _plain(dict, data, name).items()}
    if not is_dataclass(kind):
        return _plain(kind, data, name)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(_plain(dict, data, name))
    return cast("type[Any]", kind)(**decode_fields(kind, _plain(dict, data, name)))


def decode_fields(record: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `encode_fields`, as arguments of the record."""
    found = {}
    for item, name, kind in _layout(record):
        if name in data:
            found[item.name] = decode(kind, data[name], name)
        elif item.default is not None and not item.metadata.get("later"):
            raise InputError(f"field {name!r} is missing")
    return found


def later(default: Any, **options: Any) -> Any:
    """A field that documents of an earlier Initio lack: there it has its default.

    >>> @dataclass(frozen=True)
    ... class Planned:
    ...     seed: int
    ...     device: str = later("cpu")
    >>> decode(Planned, {"seed": 3}).device
    'cpu'
    """
    return record_field(default=default, metadata={"later": True}, **options)


@cache
def _layout(record: type) -> list[tuple[Any, str, Any]]:
    """The fields that a document has, each with its name there and its type."""
    hints = get_type_hints(record)
    return [
        (item, item.metadata.get("json", item.name), hints[item.name])
        for item in fields(record)
        if item.metadata.get("saved", True)
    ]


def _field(kind: Any, value: Any) -> Any:
    """Settings are pairs in memory and an object in JSON."""
    if kind == Settings:
        return encode(dict(value))
    return encode(value)


def _decode_one_of(kinds: tuple[Any, ...], data: Any, name: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        return decode(others[0], data, name)
    value = _to_float(data)
    if type(value) not in others:
        raise InputError(f"field {name!r} must be a single value, not {_shown(data)}")
    return value


def _plain(kind: type, data: Any, name: str) -> Any:
    """The value, checked: ints are not bools, and an int will do where a float is asked for."""
    value = data
    if kind is float:
        value = _to_float(data)
        if type(value) is int:
            try:
                value = float(value)
            except OverflowError:
                raise InputError(f"field {name!r} is too large for a number") from None
    if type(value) is not kind:
        raise InputError(f"field {name!r} must be of type {kind.__name__}, not {_shown(data)}")
    return value


# JSON has no infinity; it travels as an object.


def _from_float(value: float) -> float | dict[str, str]:
    if math.isnan(value):
        raise InputError("a value is NaN: a value that does not exist is None with a flag")
    if math.isinf(value):
        return {"float": str(value)}
    return value


def _to_float(data: Any) -> Any:
    if data in ({"float": "inf"}, {"float": "-inf"}):
        return float(data["float"])
    return data


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _whole(value: Any, what: str) -> int:
    """A whole number of any kind as a plain int, since numpy's are not JSON."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{what} must be a whole number, not {_shown(value)}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
