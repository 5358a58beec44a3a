"""What Initio knows, as plain immutable data with a JSON form that reads back to equality.

Every JSON document carries `initio` (which record it is) and `version` (of the format). A document of a newer version,
of another kind or with damage is refused with an `InputError`; nothing in a file is ever executed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import operator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from initio.errors import InputError

if TYPE_CHECKING:
    import numpy as np

FORMAT_VERSION = 1

Scalar = str | int | float | bool | None
Settings = tuple[tuple[str, Scalar], ...]  # sorted by name: hashable, comparable, an object in JSON


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(_whole(choice, "a choice") for choice in self.choices))

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {"space": self.space, "choices": list(self.choices)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Architecture:
        """The inverse of `to_dict`."""
        return cls(_get(data, "space", str), tuple(_items(data, "choices", int)))


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

        x = np.array(self.x, dtype=np.float32, order="C")
        y = np.array(self.y, order="C")
        if y.size and not np.array_equal(y, y.astype(np.int64)):
            raise InputError(f"the labels of {self.source} must be whole numbers")
        y = y.astype(np.int64)
        object.__setattr__(self, "classes", _whole(self.classes, "the number of classes"))
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))
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

        shape = _items(data, "shape", int)
        try:
            raw = base64.b64decode(_get(data, "x", str), validate=True)
        except ValueError as error:
            raise InputError(f"the inputs are not base64: {error}") from None
        if any(n < 0 for n in shape) or len(raw) != 4 * math.prod(shape):
            raise InputError(f"the inputs hold {len(raw)} bytes, shape {shape} needs {4 * math.prod(shape)}")
        labels, classes = _items(data, "y", int), _get(data, "classes", int)
        if any(not 0 <= label < classes for label in labels):
            raise InputError(f"a label is out of range: there are classes 0 to {classes - 1}")
        batch = cls(
            x=np.frombuffer(raw, "<f4").reshape(shape),
            y=np.array(labels, dtype=np.int64),
            classes=classes,
            source=_get(data, "source", str),
            mean=tuple(_items(data, "mean", float)),
            std=tuple(_items(data, "std", float)),
        )
        if batch.fingerprint != _get(data, "fingerprint", str):
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
    version: int = 1

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

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {
            "architecture": self.architecture.to_dict(),
            "metric": self.metric,
            "value": _number(self.value),
            "seed": self.seed,
            "flag": self.flag,
            "settings": settings_to_dict(self.settings),
            "data": self.data,
            "metric_version": self.version,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Evaluation:
        """The inverse of `to_dict`."""
        return cls(
            architecture=Architecture.from_dict(_get(data, "architecture", dict)),
            metric=_get(data, "metric", str),
            value=_optional_float(data, "value"),
            seed=_get(data, "seed", int),
            flag=_get(data, "flag", str),
            settings=settings_from_dict(_get(data, "settings", dict)),
            data=_get(data, "data", str),
            version=_get(data, "metric_version", int),
        )


@dataclass(frozen=True, order=True)
class Query:
    """What a search asks for: an architecture's training of so many epochs."""

    architecture: Architecture
    epochs: int | None = None  # None: the full training of whoever answers


@dataclass(frozen=True)
class Observation:
    """The answer to a query, and all that a search may select by."""

    value: float  # validation accuracy in percent; larger is better
    seconds: float = 0.0  # what the training took, or takes as published

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
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
    peak_bytes: int = 0

    kind: ClassVar[str] = "cost"

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Cost:
        """The inverse of `to_dict`."""
        return cls(**{item.name: _get(data, item.name, type(item.default)) for item in fields(cls)})


@dataclass(frozen=True)
class SearchResult:
    """What a search chose, what it looked at on the way, and what that cost.

    A row of `trace` is one step of the search, named values of its own choosing. Two runs are equal when they chose and
    saw the same; their cost does not count.
    """

    method: str
    space: str
    seed: int
    chosen: tuple[Architecture, ...]  # one, or the members of an ensemble; best first
    settings: Settings = ()
    trace: tuple[Settings, ...] = ()
    cost: Cost = field(default_factory=Cost, compare=False)
    versions: Settings = ()  # of initio, torch, python
    about: Settings = ()  # for people: why this architecture, its size, the data's classes and fingerprint

    kind: ClassVar[str] = "search result"

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", _whole(self.seed, "the seed"))
        object.__setattr__(self, "settings", settings(**dict(self.settings)))

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {
            "method": self.method,
            "space": self.space,
            "seed": self.seed,
            "chosen": [arch.to_dict() for arch in self.chosen],
            "settings": settings_to_dict(self.settings),
            "trace": [settings_to_dict(row) for row in self.trace],
            "cost": self.cost.to_dict(),
            "versions": settings_to_dict(self.versions),
            "about": settings_to_dict(self.about),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SearchResult:
        """The inverse of `to_dict`."""
        return cls(
            method=_get(data, "method", str),
            space=_get(data, "space", str),
            seed=_get(data, "seed", int),
            chosen=tuple(Architecture.from_dict(item) for item in _items(data, "chosen", dict)),
            settings=settings_from_dict(_get(data, "settings", dict)),
            trace=tuple(settings_from_dict(row) for row in _items(data, "trace", dict)),
            cost=Cost.from_dict(_get(data, "cost", dict)),
            versions=settings_from_dict(_get(data, "versions", dict)),
            about=settings_from_dict(_get(data, "about", dict)),
        )


Record = Architecture | Batch | Evaluation | Cost | SearchResult
R = TypeVar("R", Architecture, Batch, Evaluation, Cost, SearchResult)


def to_json(record: Record, indent: int | None = None) -> str:
    """The record as a JSON document.

    >>> to_json(Architecture("nb201", (3, 0, 1, 0, 2, 4)))
    '{"initio": "architecture", "version": 1, "space": "nb201", "choices": [3, 0, 1, 0, 2, 4]}'
    """
    head = {"initio": record.kind, "version": FORMAT_VERSION}
    return json.dumps(head | record.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)


def from_json(record: type[R], text: str, where: str = "the document") -> R:
    """Reads a document of `to_json` back; `where` names it in errors.

    >>> from_json(Architecture, '{"initio": "architecture", "version": 9}', where="best.json")
    Traceback (most recent call last):
    initio.errors.InputError: best.json has format version 9, this Initio reads up to 1: install a newer Initio
    """
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(data, dict) or data.get("initio") != record.kind:
        raise InputError(f"{where} is not an Initio {record.kind}")
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{where} has no valid format version")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{where} has format version {version}, this Initio reads up to {FORMAT_VERSION}: install a newer Initio"
        )
    try:
        return record.from_dict(data)
    except InputError as error:
        raise InputError(f"{where} is damaged: {error}") from None


def _whole(value: Any, what: str) -> int:
    """A whole number of any kind as a plain int, since numpy's are not JSON."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{what} must be a whole number, not {_shown(value)}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _get(data: dict[str, Any], name: str, kind: type) -> Any:
    """The field `name`, checked: ints are not bools, and an int will do where a float is asked for."""
    value = data.get(name)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = _to_float(value, name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"field {name!r} must be of type {kind.__name__}, not {_shown(value)}")
    return value


def _items(data: dict[str, Any], name: str, kind: type) -> list[Any]:
    return [_get({name: item}, name, kind) for item in _get(data, name, list)]


def _to_float(value: int, name: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"field {name!r} is too large for a number") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _number(value: float | None) -> float | dict[str, str] | None:
    """JSON has no infinity; it travels as an object."""
    if value is not None and math.isnan(value):
        raise InputError("a value is NaN: a value that does not exist is None with a flag")
    return {"float": str(value)} if value is not None and math.isinf(value) else value


def _optional_float(data: dict[str, Any], name: str) -> float | None:
    value = _from_number(data.get(name))
    number: float | None = None if value is None else _get({name: value}, name, float)
    return number


def _from_number(value: Any) -> Any:
    return float(value["float"]) if value in ({"float": "inf"}, {"float": "-inf"}) else value


def settings_to_dict(values: Settings) -> dict[str, Any]:
    """Settings as JSON values."""
    return {name: _number(value) if isinstance(value, float) else value for name, value in values}


def settings_from_dict(data: dict[str, Any]) -> Settings:
    """The inverse of `settings_to_dict`."""
    return settings(**{name: _from_number(value) for name, value in data.items()})
