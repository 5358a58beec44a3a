"""Optional compiled kernels: `fused.c`, built once by the system's C compiler and kept in the user's cache.

They work on float32 tensors, channels last, on one thread. Elsewhere the plain torch code beside every call is used
instead; values differ by rounding, which is why the store's key holds `arithmetic()`. `status()` says in a sentence
whether they are in use and why not. `prepare()` builds them: call it before anything is timed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
LAST = torch.channels_last
TILED_FROM = 64  # positions behind one gradient, from which tiles are faster
ARITHMETIC = "fused-4"  # the kernels' roundings: another name whenever they change
SIGNATURES = {  # pointers, then whole numbers
    "outer": (3, 14), "outer_depthwise": (3, 12), "outer_tiles": (3, 7), "convolve": (4, 6), "depthwise": (3, 15),
    "pointwise": (4, 4), "pool": (2, 14), "sums": (5, 3), "combine": (4, 3), "normalise": (6, 2),
    "normalise_tangent": (7, 3), "normalise_back": (10, 3), "agreement": (2, 2), "gram": (2, 2),
}  # fmt: skip
Pair = tuple[int, int]
Ints = tuple[int, ...]
_off = False


# --- whether they are in use -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Build:
    """The compiled kernels and where they are, or the reason why there are none."""

    library: ctypes.CDLL | None
    note: str


def prepare() -> str:
    """Builds and loads the kernels if that has not been done, which may take some seconds; returns `status()`."""
    _build()
    return status()


def status() -> str:
    """One sentence: whether the compiled kernels are in use, and why not."""
    build = _build()
    if _off:
        return "the compiled kernels are not in use: they are switched off"
    if build.library is None:
        return f"the compiled kernels are not in use: {build.note}"
    if torch.get_num_threads() != 1:
        return f"the compiled kernels are not in use: they work on one thread, torch has {torch.get_num_threads()}"
    return f"the compiled kernels are in use, from {build.note}"


def arithmetic() -> str:
    """The compiled kernels' (`ARITHMETIC`) or `torch`: whose roundings a value of float32 has."""
    return "torch" if _on_one_thread() is None else ARITHMETIC


def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where they cannot be had or are switched off."""
    if _off:
        return None
    return _build().library


@contextmanager
def switched_off() -> Iterator[None]:
    """Plain torch for a while, in all threads: to measure the gain, or to compare values."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def usable(*tensors: Tensor | None) -> ctypes.CDLL | None:
    """The library if it can work on all these tensors, which may be missing."""
    for t in tensors:
        if t is not None and t.device.type != "cpu":
            return None
        if t is not None and not (
            t.dtype is torch.float32 and t.ndim == 4 and not t.shape[1] % LANES and t.is_contiguous(memory_format=LAST)
        ):
            return None
    return _on_one_thread()


def usable_rows(G: Tensor) -> ctypes.CDLL | None:
    """The library if it can take the products of this matrix's rows."""
    if G.device.type != "cpu" or G.dtype is not torch.float32 or not G.is_contiguous():
        return None
    return _on_one_thread()


def _on_one_thread() -> ctypes.CDLL | None:
    """The library where torch has one thread, which is all that it works on."""
    if torch.get_num_threads() != 1:
        return None
    return library()


# --- building --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _build() -> Build:
    if os.environ.get("INITIO_FUSED", "1") == "0":
        return Build(None, "INITIO_FUSED=0 is set")
    if not hasattr(os, "getuid"):
        return Build(None, "this system does not say whom a file belongs to")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return Build(None, "there is no C compiler (cc, gcc or clang)")
    try:
        path = _compiled(compiler)
        lib = ctypes.CDLL(str(path))
        for name, (pointers, longs) in SIGNATURES.items():
            getattr(lib, name).argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_long] * longs
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").splitlines() or [f"exit code {error.returncode}"]
        return Build(None, f"{compiler} could not compile them: {lines[0][:200]}")
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        return Build(None, f"they could not be built or loaded: {error}")
    return Build(lib, str(path))


def _compiled(compiler: str) -> Path:
    """The shared library in the user's cache; its name changes with the source, the flags and the processor."""
    key = hashlib.sha256("\n".join([SOURCE.read_text(), *FLAGS, compiler, processor()]).encode()).hexdigest()[:16]
    folder = _folder()
    target = folder / f"fused-{key}.so"
    if target.exists() and _is_ours(target):
        return target
    handle, name = tempfile.mkstemp(dir=folder, suffix=".so")
    os.close(handle)
    try:
        subprocess.run([compiler, *FLAGS, "-o", name, str(SOURCE), "-lm"], check=True, capture_output=True, timeout=120)
        Path(name).chmod(0o700)
        Path(name).replace(target)  # several processes may build at once: the last one wins, all are equal
    finally:
        Path(name).unlink(missing_ok=True)
    if not _is_ours(target):
        raise PermissionError(f"{target} belongs to somebody else, or others can write to it")
    return target


def _folder() -> Path:
    """Where the library is kept: a folder of the user's own that nobody else can write to."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "initio"
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        if base.stat().st_uid == os.getuid():
            base.chmod(stat.S_IMODE(base.stat().st_mode) & ~0o022)
        handle, name = tempfile.mkstemp(dir=base)  # a folder that is there may still be read-only
        os.close(handle)
        Path(name).unlink()
        if _is_ours(base):
            return base
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="initio-"))  # a copy for this process


def _is_ours(path: Path) -> bool:
    """Whether a file or folder belongs to the user and nobody else can write to it: code is loaded from there."""
    found = path.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor() + platform.machine()


# --- calling ---------------------------------------------------------------------------------------------------------


def _at(
    t: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype = torch.float32,
    format: torch.memory_format = torch.contiguous_format,
) -> int | None:  # fmt: skip
    """The address of a buffer that C reads or writes: the one place where kind, size and layout are checked.

    A missing tensor is a null pointer.
    """
    if t is None:
        return None
    if not (t.dtype is dtype and t.shape == shape and t.is_cpu and t.is_contiguous(memory_format=format)):
        raise ValueError(f"a compiled kernel expects {dtype} {shape}, {format}, not {t.dtype} {tuple(t.shape)}")
    return t.data_ptr()


def _image(t: Tensor | None, shape: tuple[int, ...]) -> int | None:
    """The address of values (m, channels, height, width), channels last."""
    return _at(t, shape, format=LAST)


def outer(
    lib: ctypes.CDLL, x: Tensor, delta: Tensor, kernel: Pair, padding: Pair, dilation: Pair, stride: Pair, parts: int,
    *, together: bool,
) -> Tensor:  # fmt: skip
    """Σ_p δ(p) x(p + k)ᵀ for every kernel position k and equal parts of the samples: (parts, kh, kw, c_out, c_in).

    With `together` the sum over the parts, which keep sums of float short.
    """
    m, c_in, height, width = x.shape
    c_out = delta.shape[1]
    if not 1 <= parts <= m:
        raise ValueError(f"a compiled kernel expects 1 to {m} parts, not {parts}")
    out = _sides((height, width), kernel, padding, dilation, stride)
    images = (_image(x, (m, c_in, height, width)), _image(delta, (m, c_out, *out)))
    size = (m, height, width, c_in, c_out)
    shape: tuple[int, ...] = (*kernel, c_out, c_in)
    if tiled(kernel, padding, dilation, stride) and m * height * width >= TILED_FROM * parts:
        if not together:
            shape = (parts, *shape)
        G = torch.empty(shape, dtype=torch.float32)
        _enough(lib.outer_tiles(*images, _at(G, shape), *size, parts, int(together)))
        return G
    G = torch.empty((parts, *shape), dtype=torch.float32)
    numbers = (*kernel, *padding, *dilation, *stride, parts)
    _enough(lib.outer(*images, _at(G, (parts, *shape)), *size, *numbers))
    if together:
        return added(G)
    return G


def added(parts: Tensor) -> Tensor:
    """The sum over the parts, one after the other, as the kernel for tiles adds them up."""
    out = parts[0].clone()
    for part in parts[1:]:
        out += part
    return out


def outer_depthwise(
    lib: ctypes.CDLL, x: Tensor, delta: Tensor, kernel: Pair, padding: Pair, dilation: Pair, stride: Pair
) -> Tensor:  # fmt: skip
    """Σ_p δ(p) x(p + k), channel by channel, for every kernel position k: (kh, kw, c)."""
    m, c, height, width = x.shape
    out = _sides((height, width), kernel, padding, dilation, stride)
    G = torch.empty((*kernel, c), dtype=torch.float32)
    images = (_image(x, (m, c, height, width)), _image(delta, (m, c, *out)), _at(G, (*kernel, c)))
    _enough(lib.outer_depthwise(*images, m, height, width, c, *kernel, *padding, *dilation, *stride))
    return G


def _sides(image: Pair, kernel: Pair, padding: Pair, dilation: Pair, stride: Pair) -> list[int]:
    """Of a convolution's output."""
    return [
        (side + 2 * p - d * (k - 1) - 1) // s + 1
        for side, k, p, d, s in zip(image, kernel, padding, dilation, stride, strict=True)
    ]


def tiled(kernel: Ints, padding: Ints, dilation: Ints, stride: Ints) -> bool:
    """Whether Winograd's tiles fit: 3x3, one row of zeros around the image, no steps."""
    return kernel == (3, 3) and padding == dilation == stride == (1, 1)


def convolve(lib: ctypes.CDLL, x: Tensor, weight: Tensor, more: Tensor | None = None, *, transposed: bool) -> Tensor:
    """W ∗ x, or Wᵀ ∗ x, plus `more` in the shape of the result: for kernels that are `tiled`."""
    m, c_in, height, width = x.shape
    shape = tuple(weight.shape)
    c_out = shape[transposed]
    if shape != ((c_in, c_out, 3, 3) if transposed else (c_out, c_in, 3, 3)):
        raise ValueError(f"a compiled kernel expects 3x3 weights for {c_in} channels, not {shape}")
    out = torch.empty((m, c_out, height, width), dtype=torch.float32, memory_format=LAST)
    of_out = (m, c_out, height, width)
    images = (_image(x, (m, c_in, height, width)), _image(weight, shape), _image(more, of_out), _image(out, of_out))
    _enough(lib.convolve(*images, m, height, width, c_in, c_out, int(transposed)))
    return out


def pointwise(lib: ctypes.CDLL, x: Tensor, weight: Tensor, more: Tensor | None = None, *, transposed: bool) -> Tensor:
    """W x or Wᵀ x at every pixel, plus `more` in the shape of the result: for 1x1 kernels of stride 1."""
    m, c_in, height, width = x.shape
    c_out = weight.shape[transposed]
    out = torch.empty((m, c_out, height, width), dtype=torch.float32, memory_format=LAST)
    shape, of_out = ((c_in, c_out) if transposed else (c_out, c_in)) + (1, 1), (m, c_out, height, width)
    images = (_image(x, (m, c_in, height, width)), _image(weight, shape), _image(more, of_out), _image(out, of_out))
    _enough(lib.pointwise(*images, m * height * width, c_in, c_out, int(transposed)))
    return out


def depthwise(
    lib: ctypes.CDLL, x: Tensor, weight: Tensor, sides: Pair, padding: Pair, dilation: Pair, stride: Pair, *,
    back: bool = False,
) -> Tensor:  # fmt: skip
    """W ∗ x of images with these `sides`, each channel with a kernel of its own; `back` is the transposed map."""
    m, channels = x.shape[:2]
    kernel = (weight.shape[2], weight.shape[3])
    small = tuple(_sides(sides, kernel, padding, dilation, stride))
    into, outof = ((m, channels, *side) for side in ((small, sides) if back else (sides, small)))
    out = torch.empty(outof, dtype=torch.float32, memory_format=LAST)
    images = (_image(x, into), _at(weight, (channels, 1, *kernel)), _image(out, outof))
    _enough(lib.depthwise(*images, m, *sides, channels, *small, *kernel, *padding, *dilation, *stride, int(back)))
    return out


def pool(
    lib: ctypes.CDLL, x: Tensor, sides: Pair, kernel: Pair, stride: Pair, padding: Pair, *, with_padding: bool,
    back: bool = False,
) -> Tensor:  # fmt: skip
    """Means over windows of images with these `sides`; `back` is the transposed map."""
    m, channels = x.shape[:2]
    small = tuple((n + 2 * p - k) // s + 1 for n, k, s, p in zip(sides, kernel, stride, padding, strict=True))
    into, outof = ((m, channels, *side) for side in ((small, sides) if back else (sides, small)))
    out = torch.empty(outof, dtype=torch.float32, memory_format=LAST)
    size = (m, *sides, channels, *small, *kernel, *stride, *padding, int(with_padding), int(back))
    _enough(lib.pool(_image(x, into), _image(out, outof), *size))
    return out


def sums(lib: ctypes.CDLL, a: Tensor, b: Tensor, c: Tensor | None = None, e: Tensor | None = None) -> Tensor:
    """Σ over positions of a, ab, ae, c, cb: (5, m, channels) in float64; zeros for what is missing."""
    m, channels, height, width = shape = tuple(a.shape)
    out = torch.empty(5, m, channels, dtype=torch.float64)
    images = [_image(t, shape) for t in (a, b, c, e)]
    lib.sums(*images, _at(out, (5, m, channels), torch.float64), m, height * width, channels)
    return out


def combine(lib: ctypes.CDLL, constant: Tensor, terms: list[tuple[Tensor, Tensor]]) -> Tensor:
    """constant + Σ t ∘ coefficient by channel, in one sweep; at most four terms."""
    first = terms[0][0]
    shape, channels = tuple(first.shape), first.shape[1]
    out = torch.empty_like(first)
    by_channel = [t.to(torch.float32).contiguous() for t in (constant, *(a for _, a in terms))]
    numbers = [_at(t, (channels,)) for t in by_channel]
    pointers = ctypes.c_void_p * len(terms)
    lib.combine(
        _image(out, shape), numbers[0], pointers(*(_image(t, shape) for t, _ in terms)), pointers(*numbers[1:]),
        len(terms), first.numel() // channels, channels,
    )  # fmt: skip
    return out


def normalise(
    lib: ctypes.CDLL, z: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Batch norm: y, and μ, 1/√(v + ε), γ in float64: (3, C)."""
    shape, C = tuple(z.shape), z.shape[1]
    y, stats = torch.empty_like(z), torch.empty(3, C, dtype=torch.float64)
    of_eps = ctypes.c_double(eps)
    parameters = (_at(gamma, (C,)), _at(beta, (C,)), ctypes.addressof(of_eps))
    _enough(lib.normalise(
        _image(z, shape), *parameters, _image(y, shape), _at(stats, (3, C), torch.float64), z.numel() // C, C
    ))  # fmt: skip
    return y, stats


def normalise_tangent(
    lib: ctypes.CDLL, z: Tensor, zt: Tensor | None, stats: Tensor, g_dot: Tensor | None, b_dot: Tensor | None,
    frozen: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Its tangent ẏ, and ⟨ż⟩, ⟨x̂ ż⟩ in float64: (2, C)."""
    shape, C = tuple(z.shape), z.shape[1]
    yt, means = torch.empty_like(z), torch.empty(2, C, dtype=torch.float64)
    _enough(lib.normalise_tangent(
        _image(z, shape), _image(zt, shape), _at(stats, (3, C), torch.float64), _at(g_dot, (C,), torch.float64),
        _at(b_dot, (C,), torch.float64), _image(yt, shape), _at(means, (2, C), torch.float64), z.numel() // C, C,
        int(frozen),
    ))  # fmt: skip
    return yt, means


def normalise_back(
    lib: ctypes.CDLL, delta: Tensor, z: Tensor, dot: Tensor | None, zt: Tensor | None, stats: Tensor,
    means: Tensor | None, g_dot: Tensor | None, *, frozen: bool, gz: Tensor | None, gzt: Tensor | None, summed: bool,
) -> Tensor | None:  # fmt: skip
    """Its backward pass, which fills the cotangents of z and ż; Σ δ, Σ δ x̂ and their tangents if asked: (4, C)."""
    shape, C = tuple(z.shape), z.shape[1]
    sums = None
    if summed:
        sums = torch.empty(4, C, dtype=torch.float64)
    images = [_image(t, shape) for t in (delta, z, dot, zt)]
    _enough(lib.normalise_back(
        *images, _at(stats, (3, C), torch.float64), _at(means, (2, C), torch.float64),
        _at(g_dot, (C,), torch.float64), _image(gz, shape), _image(gzt, shape), _at(sums, (4, C), torch.float64),
        z.numel() // C, C, int(frozen),
    ))  # fmt: skip
    return sums


def _enough(failed: int) -> None:
    if failed:
        raise MemoryError("no memory for a compiled kernel")


def products(lib: ctypes.CDLL, G: Tensor) -> Tensor:
    """G Gᵀ in float64; sums are kept in float for some columns at a time."""
    m, columns = G.shape
    K = torch.empty(m, m, dtype=torch.float64)
    _enough(lib.gram(_at(G, (m, columns)), _at(K, (m, m), torch.float64), m, columns))
    return K


def agreement(lib: ctypes.CDLL, x: Tensor) -> Tensor:
    """On how many units the signs of two inputs agree: (m, m) in float64; units are a multiple of 64."""
    m, units = len(x), x[0].numel()
    if units % 64:
        raise ValueError(f"a compiled kernel expects a multiple of 64 units, not {units}")
    K = torch.zeros(m, m, dtype=torch.float64)
    _enough(lib.agreement(_image(x, tuple(x.shape)), _at(K, (m, m), torch.float64), m, units))
    return K
