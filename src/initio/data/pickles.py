"""The data of a pickle, read without unpickling.

CIFAR's python layout and the files of NAS-Bench-201 are pickles, and unpickling runs what a file asks for. Here
`pickletools` takes the file apart into its opcodes, and a small stack machine follows the few that dictionaries, lists,
sets, numbers, texts and numpy arrays need. No name is ever looked up or called: of the names that such files contain,
NAMES says what data each stands for, and every other one is refused. Tensors (trained weights) are left out.

Python's own machine is ten times faster, but trusts a file more than we do: it sets aside memory for as many values as
a damaged byte claims, and hashes keys that are nested so deeply that the process ends.
"""

from __future__ import annotations

import io
import math
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from initio.errors import InputError, first_line

TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # the first of the pickles that are torch's older format


@dataclass(frozen=True)
class LeftOut:
    """In place of a tensor, of its storage and of its size."""


@dataclass
class PickledDtype:
    """A type of numbers as numpy writes it: f8, and the order of its bytes."""

    code: str
    order: str = "|"

    def dtype(self) -> np.dtype[Any]:
        """The type, if it is one of plain numbers."""
        if not re.fullmatch("[uif][1248]|b1", self.code) or self.code == "f1" or self.order not in ("|", "<", ">", "="):
            raise ValueError(f"numbers of type {self.code!r}")
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


@dataclass
class PickledArray:
    """An array as numpy writes it; its values are looked at when they are asked for."""

    shape: tuple[int, ...] = ()
    dtype: PickledDtype = field(default_factory=lambda: PickledDtype("u1"))
    fortran: bool = False
    data: bytes = b""

    def value(self) -> np.ndarray:
        """The array, if its bytes are as many as its shape says."""
        dtype = self.dtype.dtype()
        if min(self.shape, default=0) < 0 or math.prod(self.shape) * dtype.itemsize != len(self.data):
            raise ValueError(f"an array of shape {self.shape} with {len(self.data)} bytes")
        return np.frombuffer(self.data, dtype).reshape(self.shape, order="F" if self.fortran else "C")


def read_pickle(raw: bytes, where: str) -> dict[str, Any]:
    """The dictionary that a pickle holds, by texts: values are arrays, lists, texts and numbers.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"labels": [3, 1], "data": np.zeros(2, np.uint8)}), "data_batch_1")
    {'labels': [3, 1], 'data': array([0, 0], dtype=uint8)}
    >>> read_pickle(pickle.dumps({"labels": print}), "data_batch_1")
    Traceback (most recent call last):
    initio.errors.InputError: data_batch_1 refers to builtins.print: refused, plain data does not
    """
    with _refusals(where):
        found = {as_text(key): value for key, value in _a(dict, _Machine(where).run(io.BytesIO(raw))).items()}
        return found | {key: value.value() for key, value in found.items() if isinstance(value, PickledArray)}


def read_plain(file: BinaryIO, where: str) -> Any:
    """The next pickle of an open file: anything of dictionaries, lists, tuples, sets, texts and numbers.

    >>> import pickle
    >>> read_plain(io.BytesIO(pickle.dumps({("cifar10", 777): {"epochs": 12}})), "results.pickle")
    {('cifar10', 777): {'epochs': 12}}
    """
    with _refusals(where):
        return _Machine(where).run(file)


def read_torch(path: Path) -> Any:
    """The object in a file that torch saved, in its zip format or in the older one."""
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            return read_plain(io.BytesIO(_member(path)), str(path))
        file.seek(0)
        if read_plain(file, str(path)) != TORCH_MAGIC:
            raise InputError(f"{path} is not a file that torch saved")
        for _ in ("version of the format", "system"):
            read_plain(file, str(path))
        return read_plain(file, str(path))


def _member(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(names) != 1:
                raise InputError(f"{path} is not a file that torch saved")
            return archive.read(names[0])
    except InputError:
        raise
    except Exception as error:  # damage, encryption, names in no known writing: zipfile raises anything
        raise InputError(f"{path} cannot be read: {first_line(error)}") from None


@contextmanager
def _refusals(where: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # damage can lead an opcode to any value
        raise InputError(f"{where} is damaged or no pickle of plain data: {first_line(error)}") from None


# --- the stack machine ----------------------------------------------------------------------------------------------

CONSTANT = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
LITERAL = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
LITERAL |= {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # Python 2's, read as Latin-1
LITERAL |= {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
LITERAL |= {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
PUT, GET = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}


@dataclass(frozen=True)
class PickledName:
    """A function that the pickle refers to: what it would make as data, never the function."""

    make: Callable[..., Any]


class _Machine:
    """The stack, the saved stacks below each mark, and the memo of one pickle."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[Any, Any] = {}

    def run(self, file: BinaryIO) -> Any:
        for opcode, argument, _ in pickletools.genops(file):
            name = opcode.name
            if name in LITERAL:
                self.stack.append(argument)
            elif name == "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            elif name in PUT:
                self.memo[argument] = self.stack[-1]
            elif name in GET:
                self.stack.append(self.memo[argument])
            elif name in CONSTANT:
                self.stack.append(CONSTANT[name])
            elif name == "STOP":
                return self.stack.pop()
            elif name in STEPS:
                STEPS[name](self, argument)
            else:
                raise ValueError(f"it uses {name}")
        raise ValueError("it does not end")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: Any) -> None:
        self.below.append(self.stack)
        self.stack = []

    def to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def last(self, n: int) -> tuple[Any, ...]:
        """Takes the last n values off the stack."""
        items = tuple(self.stack[len(self.stack) - n :])
        del self.stack[len(self.stack) - n :]
        return items

    def append(self, items: Iterable[Any]) -> None:
        _a(list, self.stack[-1]).extend(items)

    def set_items(self, items: Sequence[Any]) -> None:
        _a(dict, self.stack[-1]).update(_dictionary(items))

    def add_items(self, items: Iterable[Any]) -> None:
        _a(set, self.stack[-1]).update(map(_key, items))

    def name(self, full: str) -> None:
        if full not in NAMES:
            shown = ascii(full.replace(" ", ".")[:80])[1:-1]
            raise InputError(f"{self.where} refers to {shown}: refused, plain data does not")
        self.stack.append(PickledName(NAMES[full]))

    def stack_name(self) -> None:
        module, word = self.last(2)
        self.name(f"{_a(str, module)} {_a(str, word)}")

    def reduce(self) -> None:
        function, arguments = self.last(2)
        self.stack.append(_a(PickledName, function).make(*_a(tuple, arguments)))

    def build(self) -> None:
        """What is attached to a value later: all there is to an array, the order of a type's bytes."""
        (state,) = self.last(1)
        target = self.stack[-1]
        if isinstance(target, PickledDtype):
            target.order = as_text(_a(tuple, state)[1])
        elif isinstance(target, PickledArray):
            _, shape, dtype, fortran, data = _a(tuple, state)
            target.shape, target.dtype, target.data = _shape(shape), _a(PickledDtype, dtype), _bytes(data)
            target.fortran = bool(fortran)
        elif not isinstance(target, dict | LeftOut):  # an OrderedDict can have attributes: they are forgotten
            raise ValueError("it attaches values to something else")


STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda m, _: None,
    "FRAME": lambda m, _: None,
    "MARK": _Machine.mark,
    "EMPTY_DICT": lambda m, _: m.push({}),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "EMPTY_SET": lambda m, _: m.push(set()),
    "TUPLE1": lambda m, _: m.push(m.last(1)),
    "TUPLE2": lambda m, _: m.push(m.last(2)),
    "TUPLE3": lambda m, _: m.push(m.last(3)),
    "TUPLE": lambda m, _: m.push(tuple(m.to_mark())),
    "LIST": lambda m, _: m.push(m.to_mark()),
    "DICT": lambda m, _: m.push(_dictionary(m.to_mark())),
    "APPEND": lambda m, _: m.append(m.last(1)),
    "APPENDS": lambda m, _: m.append(m.to_mark()),
    "SETITEM": lambda m, _: m.set_items(m.last(2)),
    "SETITEMS": lambda m, _: m.set_items(m.to_mark()),
    "ADDITEMS": lambda m, _: m.add_items(m.to_mark()),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": lambda m, _: m.stack_name(),
    "REDUCE": lambda m, _: m.reduce(),
    "BUILD": lambda m, _: m.build(),
    "PERSID": lambda m, _: m.push(LeftOut()),  # torch's way to say which storage
    "BINPERSID": lambda m, _: m.push(_left_out(m.last(1))),
}


# --- what the names of a file stand for -----------------------------------------------------------------------------


def _dictionary(items: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(map(_key, items[::2]), items[1::2], strict=True))


def _ordered(pairs: Any = ()) -> dict[Any, Any]:
    split = (_a(list | tuple, pair) for pair in _a(list | tuple, pairs))
    return {_key(key): value for key, value in split}


def _set(items: Any = ()) -> set[Any]:
    return set(map(_key, _a(list | tuple, items)))


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
    return PickledArray(_shape(shape), _a(PickledDtype, dtype), order == "F", _bytes(data))


def _scalar(dtype: Any, data: Any) -> float | int | bool:
    kind = _a(PickledDtype, dtype).dtype()
    value: float | int | bool = np.frombuffer(_bytes(data), kind, 1)[0].item()
    return value


def _encode(text: Any, encoding: Any) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes in an unknown writing")
    return _bytes(_a(str, text))


def _left_out(*_: Any) -> LeftOut:
    return LeftOut()


_TENSORS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
_STORAGES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
NAMES: dict[str, Callable[..., Any]] = {
    "__builtin__ bytes": lambda: b"",  # Python 2's way to write no bytes
    "__builtin__ set": _set,
    "builtins set": _set,
    "_codecs encode": _encode,
    "collections OrderedDict": _ordered,
    "numpy dtype": lambda code, *_: PickledDtype(as_text(code)),
    "numpy ndarray": _left_out,  # named beside `_reconstruct`, never made
    **{f"numpy.{core}.multiarray _reconstruct": lambda *_: PickledArray() for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray scalar": _scalar for core in ("core", "_core")},
    **{f"numpy.{core}.numeric _frombuffer": _from_buffer for core in ("core", "_core")},
    **{f"torch._utils {name}": _left_out for name in _TENSORS},
    **{f"torch {name}Storage": _left_out for name in _STORAGES},
    "torch Size": _left_out,
}


def _key(value: Any) -> Any:
    """A key that is hashed without recursion: a text, bytes, a number, or a tuple of those."""
    if type(value) is tuple:
        return tuple(_simple(item) for item in value)
    return _simple(value)


def _simple(value: Any) -> Any:
    return _a(str | bytes | int | float | None, value)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(_a(int, n) for n in _a(tuple, value))


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("latin-1")
    return bytes(_a(bytes | bytearray, value))


def as_text(value: Any) -> str:
    """A text, which Python 2 wrote as bytes."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(_a(str, value))


def _a(kind: Any, value: Any) -> Any:
    """`value`, which must be a `kind`."""
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where another value belongs")
    return value
