"""Keeps the activations that a backward pass needs within a memory budget: what does not fit waits on disk."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt
LARGE = 720 << 20  # bytes in use, from which gaps in the heap are returned after a forward pass
MOST_MAPPED = 32 << 20  # the largest threshold that older versions of it take
RECENT = 8  # tensors that are saved by several functions one after the other are written once
MARGIN = 0.3  # of the budget, for what is computed at the moment


@dataclass(frozen=True)
class _OnDisk:
    start: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Spill:
    """Saved tensors stay in memory until `budget` bytes are reached; the rest goes to a temporary file."""

    def __init__(self, budget: int) -> None:
        self.budget, self.held = budget, 0
        self.file: IO[bytes] | None = None
        self.recent: OrderedDict[tuple[Any, ...], tuple[Tensor, Tensor | _OnDisk]] = OrderedDict()

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()

    def pack(self, t: Tensor) -> Tensor | _OnDisk:
        """Called by autograd when it saves a tensor."""
        if t.requires_grad and t.is_leaf:
            return t  # parameters are in memory anyway
        key = (t.data_ptr(), t.shape, t.stride(), t._version, t.dtype)
        if key in self.recent:
            return self.recent[key][1]
        packed = self._pack(t.detach())
        self.recent[key] = (t.detach(), packed)  # holding the tensor keeps its address its own
        if len(self.recent) > RECENT:
            self.recent.popitem(last=False)
        return packed

    def _pack(self, t: Tensor) -> Tensor | _OnDisk:
        size = t.numel() * t.element_size()
        span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
        if t.device.type != "cpu":  # which takes no memory of the process
            return t
        if self.held + size <= self.budget or size < 1 << 16 or span != t.numel():
            self.held += size
            return t
        if self.file is None:
            self.file = tempfile.TemporaryFile(prefix="initio-")  # noqa: SIM115, gone with the tape
        start = self.file.seek(0, 2)
        flat = torch.as_strided(t, (t.numel(),), (1,), t.storage_offset())
        self.file.write(_bytes(flat))
        return _OnDisk(start, tuple(t.shape), t.stride(), t.dtype)

    def unpack(self, packed: Tensor | _OnDisk) -> Tensor:
        """Called by autograd when it needs the tensor again."""
        if isinstance(packed, Tensor):
            return packed
        assert self.file is not None
        flat = torch.empty(math.prod(packed.shape), dtype=packed.dtype)
        self.file.seek(packed.start)
        view = _bytes(flat)
        if self.file.readinto(view) != len(view):  # type: ignore[attr-defined]
            raise RuntimeError("a temporary file of saved activations was cut short")
        return torch.as_strided(flat, packed.shape, packed.stride)


def _bytes(flat: Tensor) -> memoryview:
    array: Any = flat.numpy()
    return memoryview(array).cast("B")


@contextmanager
def within(memory: int | None) -> Iterator[None]:
    """Saved tensors of the graphs recorded inside stay within a process size of `memory` bytes, if possible."""
    if memory is None:
        keep_for_the_next()
        yield
        return_gaps()
        return
    give_back_at_once()
    spill = Spill(max(0, int(memory * (1 - MARGIN)) - resident()))
    with torch.autograd.graph.saved_tensors_hooks(spill.pack, spill.unpack):
        yield
    spill.recent.clear()


def give_back_at_once() -> None:
    """Asks the C library to return freed tensors to the system; otherwise its heap keeps the gaps between them.

    What it has kept of passes without a limit is returned, too: it would count as memory that is in use.
    """
    _allocate(mapped_from=1 << 20, kept=128 << 10)
    if (c := _glibc()) is not None:
        c.malloc_trim(0)


def keep_for_the_next() -> None:
    """Asks it to keep them, a quarter of a gigabyte at its end: every pass needs the same again, as zeroed pages."""
    _allocate(mapped_from=1 << 30, kept=256 << 20)


def return_gaps() -> None:
    """Returns what is free between tensors where there are many: few of the gaps fit the next one."""
    if (c := _glibc()) is not None and _in_use(c) > LARGE:
        c.malloc_trim(0)


def _in_use(c: ctypes.CDLL) -> int:
    """Bytes of the heap; 0 where the library, one before 2.33, does not say."""
    try:
        tell = c.mallinfo2
    except AttributeError:
        return 0
    tell.restype = _Heap
    return int(tell().uordblks)


@lru_cache(maxsize=1)  # called again only when the sizes change
def _allocate(*, mapped_from: int, kept: int) -> None:
    """From which size on tensors have a mapping of their own, and how much free memory the heap's end may have.

    No value changes. Both must be set: either alone ends the library's own adjustment of the other.
    """
    c = _glibc()
    if c is not None and any(c.mallopt(M_MMAP_THRESHOLD, size) for size in (mapped_from, MOST_MAPPED)):
        c.mallopt(M_TRIM_THRESHOLD, kept)


class _Heap(ctypes.Structure):
    """What mallinfo2 tells: `uordblks` are the bytes in use."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _glibc() -> ctypes.CDLL | None:
    """The C library, if it can be asked that."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # the last where a library must have a name
        c = ctypes.CDLL(None)
        _ = c.mallopt, c.malloc_trim
        return c
    return None


def resident() -> int:
    """Bytes of memory that the process has now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * mmap.PAGESIZE
