"""The data of a pickle, read without unpickling.

The python layout of CIFAR is a pickle, and unpickling runs what a file asks for. Here `pickletools` takes the
file apart into its opcodes, and a small stack machine follows the few that dictionaries, lists, numbers,
texts and numpy arrays need. No name is ever looked up or called: a file that names anything but numpy's array
and its parts is refused.
"""

from __future__ import annotations

import math
import pickletools
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from initio.errors import InputError

CONSTANT = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
LITERAL = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"}
LITERAL |= {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # Python 2's, read as Latin-1
LITERAL |= {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
LITERAL |= {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
PUT, GET = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

_RECONSTRUCT, _FROMBUFFER, _NDARRAY, _DTYPE = "_reconstruct", "_frombuffer", "ndarray", "dtype"
_ENCODE, _BYTES = "encode", "bytes"
NAMES = {  # all that a pickle of plain arrays refers to, by numpy 1's and 2's module names
    "numpy.core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy.core.numeric _frombuffer": _FROMBUFFER,
    "numpy._core.numeric _frombuffer": _FROMBUFFER,
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _DTYPE,
    "_codecs encode": _ENCODE,
    "__builtin__ bytes": _BYTES,
}


@dataclass(frozen=True)
class _Name:
    """A function that the pickle refers to: a word, never the function."""

    word: str


@dataclass
class _Dtype:
    code: str
    order: str = "|"


@dataclass
class _Array:
    shape: tuple[int, ...] = ()
    dtype: _Dtype = field(default_factory=lambda: _Dtype("u1"))
    fortran: bool = False
    data: bytes = b""

    def value(self) -> np.ndarray:
        code, order = self.dtype.code, self.dtype.order
        if not re.fullmatch("[uif][1248]", code) or code == "f1" or order not in ("|", "<", ">", "="):
            raise ValueError(f"an array of type {code!r}")
        dtype = np.dtype(code).newbyteorder(order)  # type: ignore[arg-type]
        if min(self.shape, default=0) < 0 or math.prod(self.shape) * dtype.itemsize != len(self.data):
            raise ValueError(f"an array of shape {self.shape} with {len(self.data)} bytes")
        return np.frombuffer(self.data, dtype).reshape(self.shape, order="F" if self.fortran else "C")


def read_pickle(raw: bytes, where: str) -> dict[str, Any]:
    """The dictionary that a pickle holds: values are arrays, lists, texts and numbers.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"labels": [3, 1], "data": np.zeros(2, np.uint8)}), "data_batch_1")
    {'labels': [3, 1], 'data': array([0, 0], dtype=uint8)}
    >>> read_pickle(pickle.dumps({"labels": print}), "data_batch_1")
    Traceback (most recent call last):
    initio.errors.InputError: data_batch_1 refers to builtins.print: refused, plain arrays do not
    """
    try:
        value = _Machine(where).run(raw)
        if not isinstance(value, dict):
            raise ValueError(f"a {type(value).__name__} in place of a dictionary")
        return {_text(key): v.value() if isinstance(v, _Array) else v for key, v in value.items()}
    except InputError:
        raise
    except Exception as error:  # damage can lead an opcode to any value
        raise InputError(f"{where} is damaged or no pickle of plain arrays: {error or type(error).__name__}") from None


class _Machine:
    """The stack, the saved stacks below each mark, and the memo of one pickle."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, raw: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(raw):
            if opcode.name == "STOP":
                return self.stack.pop()
            self.step(opcode.name, argument)
        raise ValueError("it does not end")

    def step(self, name: str, argument: Any) -> None:
        push = self.stack.append
        if name in LITERAL:
            push(argument)
        elif name in PUT or name == "MEMOIZE":
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.stack[-1]
        elif name in GET:
            push(self.memo[argument])
        elif name in CONSTANT:
            push(CONSTANT[name])
        elif name in EMPTY:
            push(EMPTY[name]())
        elif name == "MARK":
            self.below.append(self.stack)
            self.stack = []
        elif name == "GLOBAL":
            push(self.name(argument))
        elif name == "STACK_GLOBAL":
            word, module = _a(str, self.stack.pop()), _a(str, self.stack.pop())
            push(self.name(f"{module} {word}"))
        elif name not in ("PROTO", "FRAME"):
            self.combine(name)

    def combine(self, name: str) -> None:
        """The opcodes that take values off the stack."""
        if name in TUPLES:
            n = TUPLES[name]
            self.stack[-n:] = [tuple(self.stack[len(self.stack) - n :])]
        elif name in ("TUPLE", "LIST"):
            items = self.to_mark()
            self.stack.append(tuple(items) if name == "TUPLE" else items)
        elif name in ("APPEND", "APPENDS"):
            items = [self.stack.pop()] if name == "APPEND" else self.to_mark()
            _a(list, self.stack[-1]).extend(items)
        elif name in ("SETITEM", "SETITEMS", "DICT"):
            items = [self.stack.pop(-2), self.stack.pop()] if name == "SETITEM" else self.to_mark()
            if name == "DICT":
                self.stack.append({})
            # Only keys that hash without recursion.
            keys = [key if isinstance(key, bytes) else _a(str, key) for key in items[::2]]
            _a(dict, self.stack[-1]).update(zip(keys, items[1::2], strict=True))
        elif name == "REDUCE":
            arguments, function = self.stack.pop(), self.stack.pop()
            self.stack.append(_made(_a(_Name, function).word, *_a(tuple, arguments)))
        elif name == "BUILD":
            state = _a(tuple, self.stack.pop())
            _fill(self.stack[-1], state)
        else:
            raise ValueError(f"it uses {name}")

    def to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def name(self, full: str) -> _Name:
        if full not in NAMES:
            shown = ascii(full.replace(" ", ".")[:80])[1:-1]
            raise InputError(f"{self.where} refers to {shown}: refused, plain arrays do not")
        return _Name(NAMES[full])


def _made(word: str, *arguments: Any) -> Any:
    """What a function of NAMES would make, as data."""
    if word == _RECONSTRUCT:
        return _Array()  # its shape and values follow in BUILD
    if word == _DTYPE:
        return _Dtype(_text(arguments[0]))
    if word == _FROMBUFFER:
        data, dtype, shape, order = arguments
        return _Array(_shape(shape), _a(_Dtype, dtype), order == "F", _bytes(data))
    if word == _ENCODE and arguments[1:] in (("latin1",), ("latin-1",)):
        return _a(str, arguments[0]).encode("latin-1")
    if word == _BYTES and not arguments:
        return b""
    raise ValueError(f"it calls {word}")


def _fill(target: Any, state: tuple[Any, ...]) -> None:
    if isinstance(target, _Dtype):
        target.order = _text(state[1])
    else:
        array = _a(_Array, target)
        _, shape, dtype, fortran, data = state
        array.shape, array.dtype = _shape(shape), _a(_Dtype, dtype)
        array.fortran, array.data = bool(fortran), _bytes(data)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(_a(int, n) for n in _a(tuple, value))


def _bytes(value: Any) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else bytes(_a(bytes | bytearray, value))


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(_a(str, value))


def _a(kind: Any, value: Any) -> Any:
    """`value`, which must be a `kind`."""
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where another value belongs")
    return value
