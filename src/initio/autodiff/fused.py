"""Optional compiled kernels: `fused.c`, built once by the system's C compiler when it is first needed.

They are used for float32 tensors, channels last, on one thread. Without a compiler, with several threads or with
INITIO_FUSED=0 in the environment, the plain torch code beside every call is used instead; values differ by rounding.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

FLAGS = (
    "-O3", "-march=native", "-fPIC", "-shared", "-fassociative-math", "-freciprocal-math", "-fno-signed-zeros",
    "-fno-trapping-math", "-fno-math-errno", "-ffp-contract=fast",
)  # not -ffast-math: a library linked with it makes the whole process flush subnormal numbers to zero  # fmt: skip
SOURCE = Path(__file__).with_name("fused.c")
LANES = 8
SIGNATURES = {"outer": (3, 15), "sums": (5, 3), "combine": (4, 3), "agreement": (2, 2)}  # pointers, then whole numbers


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where they cannot be had."""
    if os.environ.get("INITIO_FUSED", "1") == "0":
        return None
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    try:
        lib = ctypes.CDLL(str(_built(compiler)))
    except (OSError, subprocess.SubprocessError):
        return None
    for name, (pointers, longs) in SIGNATURES.items():
        getattr(lib, name).argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_long] * longs
    return lib


def _built(compiler: str) -> Path:
    """The shared library in the user's cache; its name changes with the source, the flags and the processor."""
    key = hashlib.sha256("\n".join([SOURCE.read_text(), *FLAGS, compiler, _processor()]).encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "initio"
    try:
        base.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=base, suffix=".so")
    except OSError:  # a read-only home: a copy of our own, for this process
        base = Path(tempfile.mkdtemp(prefix="initio-"))
        handle, name = tempfile.mkstemp(dir=base, suffix=".so")
    os.close(handle)
    target = base / f"fused-{key}.so"
    try:
        if not target.exists():
            subprocess.run([compiler, *FLAGS, "-o", name, str(SOURCE)], check=True, capture_output=True, timeout=120)
            Path(name).replace(target)  # several processes may build at once: the last one wins, all are equal
    finally:
        Path(name).unlink(missing_ok=True)
    return target


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor() + platform.machine()


def usable(*tensors: Tensor | None) -> ctypes.CDLL | None:
    """The library if it can work on all these tensors, which may be missing."""
    for t in tensors:
        if t is not None and not (
            t.dtype == torch.float32
            and t.ndim == 4
            and t.shape[1] % LANES == 0
            and t.is_contiguous(memory_format=torch.channels_last)
        ):
            return None
    return library() if torch.get_num_threads() == 1 else None


def _at(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


def outer(
    lib: ctypes.CDLL, x: Tensor, delta: Tensor, kernel: tuple[int, int], padding: tuple[int, int],
    dilation: tuple[int, int], stride: tuple[int, int], *, each: bool, add_to: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Σ_p δ(p) x(p + k)ᵀ for every kernel position k: (m, kh, kw, c_out, c_in), or summed over the batch."""
    m, c_in, height, width = x.shape
    c_out = delta.shape[1]
    shape = (*kernel, c_out, c_in)
    G = torch.empty((m, *shape) if each else shape) if add_to is None else add_to
    size = (m, height, width, c_in, c_out, *kernel, *padding, *dilation, *stride, int(each), int(add_to is not None))
    if lib.outer(_at(x), _at(delta), _at(G), *size):
        raise MemoryError("no memory for a padded image")
    return G


def sums(lib: ctypes.CDLL, a: Tensor, b: Tensor, c: Tensor | None = None, e: Tensor | None = None) -> Tensor:
    """Σ over positions of a, ab, ae, c, cb: (5, m, channels) in float64; zeros for what is missing."""
    m, channels, height, width = a.shape
    out = torch.empty(5, m, channels, dtype=torch.float64)
    lib.sums(_at(a), _at(b), _at(c), _at(e), _at(out), m, height * width, channels)
    return out


def combine(lib: ctypes.CDLL, constant: Tensor, terms: list[tuple[Tensor, Tensor]]) -> Tensor:
    """constant + Σ t ∘ coefficient by channel, in one sweep."""
    first = terms[0][0]
    out = torch.empty_like(first)
    rows = first.numel() // first.shape[1]
    coefficients = [a.to(torch.float32).contiguous() for _, a in terms]
    constant = constant.to(torch.float32).contiguous()
    pointers = ctypes.c_void_p * len(terms)
    lib.combine(
        _at(out), _at(constant), pointers(*(t.data_ptr() for t, _ in terms)),
        pointers(*(a.data_ptr() for a in coefficients)), len(terms), rows, first.shape[1],
    )  # fmt: skip
    return out


def agreement(lib: ctypes.CDLL, x: Tensor) -> Tensor:
    """On how many units the signs of two inputs agree: (m, m) in float64."""
    K = torch.zeros(len(x), len(x), dtype=torch.float64)
    if lib.agreement(_at(x), _at(K), len(x), x[0].numel()):
        raise MemoryError("no memory for activation patterns")
    return K
