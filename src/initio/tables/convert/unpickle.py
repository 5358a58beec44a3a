"""The plain data of a pickle: dictionaries, lists, texts and numbers, with everything else left out or refused.

Unpickling calls what a file names. Here a name is never looked up: the few that the benchmarks' files need are
answered by stand-ins of this module that only build data, a new one each time, and every other name is refused.
Tensors and arrays (trained weights) become `LEFT_OUT`; their bytes are not read.
"""

from __future__ import annotations

import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from initio.errors import InputError

TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # the first of the pickles that are torch's older format


class LeftOut:
    """In place of a tensor or an array."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        """Forgets it."""


class PlainDict(dict[Any, Any]):
    """In place of an OrderedDict; forgets what else was attached to it."""

    def __setstate__(self, state: object) -> None:
        """Forgets it."""


class _Dtype:
    """The type of a number, as a text such as f8."""

    __slots__ = ("code", "order")

    def __init__(self, code: object = "", *_: object) -> None:
        self.code, self.order = code, "<"

    def __setstate__(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) > 1:
            self.order = state[1]

    def number(self, raw: object) -> float | int | bool:
        """The number that these bytes are."""
        data = raw.encode("latin-1") if isinstance(raw, str) else raw
        if self.code not in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"):
            raise ValueError(f"a number of type {self.code!r}")
        if self.order not in ("<", ">", "|", "=") or not isinstance(data, bytes):
            raise ValueError("a number without bytes")
        value: float | int | bool = np.frombuffer(data, np.dtype(self.order + str(self.code)), 1)[0].item()
        return value


def _scalar(dtype: object, raw: object) -> float | int | bool:
    if not isinstance(dtype, _Dtype):
        raise ValueError("a number without a type")
    return dtype.number(raw)


def _encode(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes in an unknown writing")
    return text.encode("latin-1")


def _left_out(*_: object) -> LeftOut:
    return LeftOut()


_TENSORS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
_STORAGES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): PlainDict,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _left_out,
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _left_out for core in ("core", "_core")},
    **{("torch._utils", name): _left_out for name in _TENSORS},
    **{("torch", f"{name}Storage"): _left_out for name in _STORAGES},
    ("torch", "Size"): _left_out,
}


class _StandIn:
    """A name of the file: it can be called, and nothing that a pickle does to it outlasts the reading."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __call__(self, *arguments: Any) -> Any:
        return self.make(*arguments)


class _PlainUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, where: str) -> None:
        super().__init__(file, encoding="latin-1")
        self.where = where

    def find_class(self, module: str, name: str) -> Any:
        make = STAND_INS.get((module, name))
        if make is None:
            shown = ascii(f"{module}.{name}"[:80])[1:-1]
            raise InputError(f"{self.where} refers to {shown}: refused, a benchmark's results are plain data")
        return _StandIn(make)

    def persistent_load(self, pid: object) -> LeftOut:
        return LeftOut()


def read_plain(file: BinaryIO, where: str) -> Any:
    """The next pickle of an open file.

    >>> import io
    >>> read_plain(io.BytesIO(pickle.dumps({"epochs": 12})), "results.pickle")
    {'epochs': 12}
    >>> read_plain(io.BytesIO(pickle.dumps({"epochs": print})), "results.pickle")
    Traceback (most recent call last):
    initio.errors.InputError: results.pickle refers to builtins.print: refused, a benchmark's results are plain data
    """
    try:
        return _PlainUnpickler(file, where).load()
    except InputError:
        raise
    except Exception as error:  # damage can lead an opcode to any value
        raise InputError(f"{where} is damaged or no pickle of plain data: {error or type(error).__name__}") from None


def read_torch(path: Path) -> Any:
    """The object in a file that torch saved, in its zip format or in the older one."""
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            return _read_zip(path)
        file.seek(0)
        if read_plain(file, str(path)) != TORCH_MAGIC:
            raise InputError(f"{path} is not a file that torch saved")
        for _ in ("version of the format", "system"):
            read_plain(file, str(path))
        return read_plain(file, str(path))


def _read_zip(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(names) != 1:
                raise InputError(f"{path} is not a file that torch saved")
            with archive.open(names[0]) as file:
                return read_plain(file, str(path))  # type: ignore[arg-type]
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
