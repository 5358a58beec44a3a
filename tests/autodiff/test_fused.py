"""The compiled kernels: the same numbers as torch, checked buffers, and a sentence when they are not in use."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from initio.autodiff import fused
from initio.autodiff.layers import Geometry

LAST = torch.channels_last
HARNESS = Path(__file__).with_name("fused_harness.c")


@pytest.fixture
def library():
    if fused.library() is None:
        pytest.skip(fused.status())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield fused.library()
    torch.set_num_threads(threads)


@pytest.fixture
def anew():
    """The kernels are looked for again, in the test and after it."""
    fused._build.cache_clear()
    yield
    fused._build.cache_clear()


@pytest.mark.parametrize(
    ("c_in", "c_out", "kernel", "stride", "padding", "side"),
    [(8, 8, 1, 1, 0, 7), (16, 24, 3, 1, 1, 9), (24, 16, 3, 2, 1, 8), (40, 8, 5, 1, 2, 6), (64, 64, 3, 1, 1, 8)],
)
def test_fused_outer_products_agree_with_torch(library, c_in, c_out, kernel, stride, padding, side):
    generator = torch.Generator().manual_seed(1)
    geometry = Geometry((stride, stride), (padding, padding), (1, 1))
    x = torch.randn(3, c_in, side, side, generator=generator).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(c_out, c_in, kernel, kernel, generator=generator)
    delta = torch.randn(geometry.apply(x, weight).shape, generator=generator)
    delta = delta.contiguous(memory_format=torch.channels_last)
    assert geometry._fused(x, delta) is library
    truth = geometry.per_sample(x.double(), delta.double(), tuple(weight.shape))
    scale = float(truth.abs().max())
    each = geometry.per_sample(x, delta, tuple(weight.shape)).double()
    torch.testing.assert_close(each / scale, truth / scale, rtol=0, atol=2e-6)
    summed = geometry.outer(x, delta, weight).double()
    torch.testing.assert_close(summed / scale, truth.sum(0) / scale, rtol=0, atol=4e-6)


def test_fused_sums_and_combinations_agree_with_torch(library):
    generator = torch.Generator().manual_seed(2)
    a, b, c, e = (
        torch.randn(3, 16, 9, 7, generator=generator).contiguous(memory_format=torch.channels_last) for _ in range(4)
    )
    truth = [t.double().sum((2, 3)) for t in (a, a.double() * b, a.double() * e, c, c.double() * b)]
    torch.testing.assert_close(fused.sums(library, a, b, c, e), torch.stack(truth), rtol=1e-5, atol=1e-5)
    assert not fused.sums(library, a, b)[2:].any()
    constant, k1, k2 = (torch.randn(16, generator=generator) for _ in range(3))
    out = fused.combine(library, constant, [(a, k1), (b, k2)])
    view = lambda t: t.view(1, -1, 1, 1)  # noqa: E731
    torch.testing.assert_close(out, view(constant) + view(k1) * a + view(k2) * b, rtol=1e-5, atol=1e-5)


def test_fused_agreement_counts_equal_signs(library):
    x = torch.randn(5, 8, 4, 4, generator=torch.Generator().manual_seed(3))
    x = x.contiguous(memory_format=torch.channels_last)
    K = fused.agreement(library, x)
    for i, j in itertools.product(range(5), range(5)):
        assert K[i, j] == ((x[i] > 0) == (x[j] > 0)).sum()


# --- buffers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_the_default_dtype_of_torch_changes_no_value(library, dtype):
    generator = torch.Generator().manual_seed(4)
    x, delta = (torch.randn(3, 8, 6, 6, generator=generator).contiguous(memory_format=LAST) for _ in range(2))
    geometry = Geometry((1, 1), (1, 1), (1, 1))
    expected = geometry.per_sample(x, delta, (8, 8, 3, 3))
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        got = geometry.per_sample(x, delta, (8, 8, 3, 3))
    finally:
        torch.set_default_dtype(default)
    assert torch.equal(got, expected)


def test_a_buffer_of_another_kind_size_or_layout_is_refused(library):
    good = torch.zeros(2, 8, 4, 4).contiguous(memory_format=LAST)
    for bad in (good.double(), good[:, :, :2].contiguous(memory_format=LAST), good.contiguous()):
        with pytest.raises(ValueError, match="a compiled kernel expects"):
            fused.sums(library, good, bad)
        with pytest.raises(ValueError, match="a compiled kernel expects"):
            fused.combine(library, torch.zeros(8), [(good, torch.zeros(8)), (bad, torch.zeros(8))])
        with pytest.raises(ValueError, match="a compiled kernel expects"):
            fused.outer(library, good, bad, (3, 3), (1, 1), (1, 1), (1, 1), each=False)
    with pytest.raises(ValueError, match="a compiled kernel expects"):
        fused.combine(library, torch.zeros(4), [(good, torch.zeros(8)), (good, torch.zeros(8))])
    with pytest.raises(ValueError, match="a multiple of 64"):
        fused.agreement(library, torch.zeros(2, 8, 3, 3).contiguous(memory_format=LAST))


def test_the_kernels_stay_inside_their_buffers(tmp_path):
    """Under the address and undefined-behaviour sanitizers, on buffers of exactly their size."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path / "harness"
    command = [compiler, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command += [f'-DSOURCE="{fused.SOURCE}"', str(HARNESS), "-o", str(program)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this compiler has no sanitizers")
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    assert done.stdout.split()[0] == "calls"


# --- whether they are in use -----------------------------------------------------------------------------------------


def test_a_status_says_why_not(anew, monkeypatch):
    monkeypatch.setenv("INITIO_FUSED", "0")
    assert fused.library() is None
    assert fused.status() == "the compiled kernels are not in use: INITIO_FUSED=0 is set"
    assert fused.arithmetic() == "torch"


def test_without_a_compiler_there_is_no_library(anew, monkeypatch):
    monkeypatch.setattr(fused.shutil, "which", lambda name: None)
    assert fused.prepare() == "the compiled kernels are not in use: there is no C compiler (cc, gcc or clang)"


def test_a_compiler_that_fails_is_heard(anew, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "fused.c"
    source.write_text("#error never\n")
    monkeypatch.setattr(fused, "SOURCE", source)
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    assert "could not compile them" in fused.prepare()
    assert "never" in fused.status()
    assert not list((tmp_path / "initio").iterdir())


def test_several_threads_and_switching_off_are_said(library):
    assert fused.status().startswith("the compiled kernels are in use, from ")
    assert fused.arithmetic() == "fused"
    torch.set_num_threads(2)
    assert fused.arithmetic() == "torch"
    assert "one thread, torch has 2" in fused.status()
    torch.set_num_threads(1)
    with fused.switched_off():
        assert fused.arithmetic() == "torch"
        assert "switched off" in fused.status()
    assert fused.arithmetic() == "fused"


def test_a_library_is_built_where_the_home_folder_is_read_only(library, anew, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fused.library() is not None


def test_only_what_others_cannot_write_is_loaded(library, anew, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "initio"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    fused.prepare()
    (built,) = folder.iterdir()
    assert not folder.stat().st_mode & 0o022
    built.unlink()  # the process has it in memory: never write into it
    built.write_bytes(b"planted")
    built.chmod(0o722)
    fused._build.cache_clear()
    assert fused.library() is not None
    assert built.read_bytes() != b"planted"
    assert not built.stat().st_mode & 0o022
    monkeypatch.setattr(fused, "_is_ours", lambda path: path != folder)
    fused._build.cache_clear()
    assert fused.library() is not None
    assert str(folder) not in fused.status()
