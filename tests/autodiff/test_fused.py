"""The compiled kernels: the same numbers as torch, checked buffers, and a sentence when they are not in use."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from initio.autodiff import fused
from initio.autodiff.layers import Geometry
from initio.autodiff.pools import Windows
from initio.autodiff.record import record

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


@pytest.fixture
def quickly_built(monkeypatch):
    """Where the kernels are built is asked, not what they calculate: without optimisations, which take seconds."""
    monkeypatch.setattr(fused, "FLAGS", ("-O0", *fused.FLAGS[1:]))


@pytest.mark.parametrize(
    ("c_in", "c_out", "kernel", "stride", "padding", "side"),
    [
        (8, 8, 1, 1, 0, 7), (16, 24, 3, 1, 1, 9), (24, 16, 3, 2, 1, 8), (40, 8, 5, 1, 2, 6), (64, 64, 3, 1, 1, 8),
        (8, 16, 3, 1, 1, 17), (24, 8, 3, 1, 1, 16),
    ],
)  # fmt: skip
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
    whole, parts = geometry.outer_parts(x, delta, weight, 3)
    torch.testing.assert_close(whole.double() / scale, truth.sum(0) / scale, rtol=0, atol=4e-6)
    torch.testing.assert_close(parts.double() / scale, truth / scale, rtol=0, atol=4e-6)
    assert torch.equal(whole, geometry.outer(x, delta, weight))  # whoever asks for parts gets the same gradient


@pytest.mark.parametrize(("side", "stride"), [(8, 1), (9, 2)])
def test_whoever_asks_for_parts_of_many_samples_gets_the_same_gradient(library, side, stride):
    generator = torch.Generator().manual_seed(1)
    geometry = Geometry((stride, stride), (1, 1), (1, 1))
    x = torch.randn(21, 16, side, side, generator=generator).contiguous(memory_format=LAST)
    weight = torch.randn(8, 16, 3, 3, generator=generator)
    delta = torch.randn(geometry.apply(x, weight).shape, generator=generator).contiguous(memory_format=LAST)
    whole, parts = geometry.outer_parts(x, delta, weight, 8)
    assert parts.shape == (8, 8, 16, 3, 3)
    assert torch.equal(whole, geometry.outer(x, delta, weight))


@pytest.mark.parametrize(("m", "columns"), [(1, 3), (4, 16), (7, 37), (13, 2049)])
def test_fused_products_of_rows_agree_with_float64(library, m, columns):
    G = torch.randn(m, columns, generator=torch.Generator().manual_seed(9))
    truth = G.double() @ G.double().T
    K = fused.products(library, G)
    torch.testing.assert_close(K, truth, rtol=0, atol=3e-7 * float(truth.max()))
    assert torch.equal(K, K.T)


@pytest.mark.parametrize("c_in", [1, 3, 8])
def test_the_kernel_of_a_layer_of_images_agrees_with_float64(library, c_in):
    """The compiled kernels take channels by LANES: images have too few, and are given some of zeros."""
    generator = torch.Generator().manual_seed(3)
    geometry = Geometry((1, 1), (1, 1), (1, 1))
    x, delta = (torch.randn(5, c, 9, 9, generator=generator).contiguous(memory_format=LAST) for c in (c_in, 16))
    truth = geometry.gram(x.double(), delta.double(), (16, c_in, 3, 3))
    K = geometry.gram(x, delta, (16, c_in, 3, 3))
    torch.testing.assert_close(K, truth, rtol=0, atol=2e-6 * float(truth.max()))
    torch.testing.assert_close(
        K, geometry.gram(x, delta, (16, c_in, 3, 3), chunk=64), rtol=1e-5, atol=1e-5 * float(truth.max())
    )


@pytest.mark.parametrize(
    ("c", "kernel", "stride", "padding", "dilation", "side"),
    [(8, 3, 1, 1, 1, 7), (16, 5, 2, 2, 1, 9), (24, 3, 1, 2, 2, 8), (8, 5, 1, 4, 2, 5), (8, 3, 2, 0, 1, 40)],
)
def test_fused_depthwise_convolutions_agree_with_torch(library, c, kernel, stride, padding, dilation, side):
    generator = torch.Generator().manual_seed(1)
    geometry = Geometry((stride,) * 2, (padding,) * 2, (dilation,) * 2, c)
    x = torch.randn(3, c, side, side, generator=generator).contiguous(memory_format=LAST)
    weight = torch.randn(c, 1, kernel, kernel, generator=generator)
    assert geometry._by_channel(weight, x) is library
    truth = geometry.apply(x.double(), weight.double())
    torch.testing.assert_close(geometry.apply(x, weight).double(), truth, rtol=1e-5, atol=1e-5)
    delta = torch.randn(truth.shape, generator=generator).contiguous(memory_format=LAST)
    truth = geometry.transpose(delta.double(), x.double(), weight.double())
    torch.testing.assert_close(geometry.transpose(delta, x, weight).double(), truth, rtol=1e-5, atol=1e-5)
    truth = geometry.outer(x.double(), delta.double(), weight.double())
    found = geometry.outer(x, delta, weight).double()
    torch.testing.assert_close(found / truth.abs().max(), truth / truth.abs().max(), rtol=0, atol=4e-6)
    with fused.switched_off():  # another kernel
        assert not torch.equal(found, geometry.outer(x, delta, weight).double())


@pytest.mark.parametrize(
    ("m", "c_in", "c_out", "height", "width"),
    [(1, 8, 8, 1, 5), (2, 16, 8, 3, 4), (3, 24, 40, 5, 7), (4, 64, 32, 8, 8), (1, 8, 72, 6, 2)],
)
def test_fused_pointwise_convolutions_agree_with_torch(library, m, c_in, c_out, height, width):
    generator = torch.Generator().manual_seed(8)
    geometry = Geometry((1, 1), (0, 0), (1, 1))
    x, delta = (
        torch.randn(m, c, height, width, generator=generator).contiguous(memory_format=LAST) for c in (c_in, c_out)
    )
    weight = torch.randn(c_out, c_in, 1, 1, generator=generator)
    assert geometry._pointwise(x, weight) is library
    truth = geometry.apply(x.double(), weight.double())
    torch.testing.assert_close(geometry.apply(x, weight).double(), truth, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(geometry.add_to(delta.clone(), x, weight).double(), truth + delta, rtol=1e-5, atol=1e-5)
    truth = geometry.transpose(delta.double(), x.double(), weight.double())
    torch.testing.assert_close(geometry.transpose(delta, x, weight).double(), truth, rtol=1e-5, atol=1e-5)
    found = geometry.add_transpose(x.clone(), delta, x, weight)
    torch.testing.assert_close(found.double(), truth + x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("m", "c_in", "c_out", "height", "width"),
    [(2, 8, 8, 1, 1), (1, 16, 8, 2, 5), (3, 24, 16, 7, 4), (5, 64, 40, 8, 8), (2, 8, 72, 33, 3)],
)
def test_fused_convolutions_agree_with_torch(library, m, c_in, c_out, height, width):
    generator = torch.Generator().manual_seed(5)
    geometry = Geometry((1, 1), (1, 1), (1, 1))
    x, delta, more = (
        torch.randn(m, c, height, width, generator=generator).contiguous(memory_format=LAST)
        for c in (c_in, c_out, c_out)
    )
    weight = torch.randn(c_out, c_in, 3, 3, generator=generator).contiguous(memory_format=LAST)
    assert geometry._tiled(x, weight) is library
    truth = geometry.apply(x.double(), weight.double()) + more
    scale = float(truth.abs().max())
    torch.testing.assert_close(geometry.apply(x, weight, more=more).double() / scale, truth / scale, rtol=0, atol=3e-6)
    torch.testing.assert_close(geometry.apply(x, weight) + more, truth.float(), rtol=1e-5, atol=1e-5 * scale)
    truth = geometry.transpose(delta.double(), x.double(), weight.double())
    scale = float(truth.abs().max())
    torch.testing.assert_close(geometry.transpose(delta, x, weight).double() / scale, truth / scale, rtol=0, atol=3e-6)


@pytest.mark.parametrize("with_padding", [True, False])
@pytest.mark.parametrize(
    ("size", "step", "padding", "sides"),
    [((3, 3), (1, 1), (1, 1), (8, 8)), ((3, 3), (2, 2), (1, 1), (9, 6)), ((2, 2), (2, 2), (0, 0), (7, 8)),
     ((5, 3), (1, 2), (2, 0), (6, 5)), ((1, 1), (2, 2), (0, 0), (4, 5)), ((3, 3), (1, 1), (1, 1), (1, 2))],
)  # fmt: skip
def test_fused_pooling_agrees_with_torch(library, size, step, padding, sides, with_padding):
    generator = torch.Generator().manual_seed(6)
    windows = Windows(size, step, padding, False, with_padding, None)
    x = torch.randn(3, 16, *sides, generator=generator).contiguous(memory_format=LAST)
    truth = windows.means(x.double())
    torch.testing.assert_close(windows.means(x).double(), truth, rtol=1e-5, atol=1e-6)
    delta = torch.randn(truth.shape, generator=generator).contiguous(memory_format=LAST)
    truth = windows.transpose(delta.double(), x.double())
    torch.testing.assert_close(windows.transpose(delta, x).double(), truth, rtol=1e-5, atol=1e-6)
    with fused.switched_off():
        torch.testing.assert_close(windows.transpose(delta, x).double(), truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sides", [(8, 8), (7, 8)])
def test_pooling_whose_last_windows_reach_beyond_the_image_agrees_with_torch(library, sides):
    """Where none does, `ceil_mode` changes nothing, and the kernel is taken."""
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(3, 8, *sides, generator=generator).contiguous(memory_format=LAST)
    windows = Windows((2, 2), (2, 2), (0, 0), True, True, None)
    assert windows._is_simple(sides) is (sides == (8, 8))
    truth = windows.means(x.double())
    torch.testing.assert_close(windows.means(x).double(), truth, rtol=1e-5, atol=1e-6)
    delta = torch.randn(truth.shape, generator=generator).contiguous(memory_format=LAST)
    truth = windows.transpose(delta.double(), x.double())
    torch.testing.assert_close(windows.transpose(delta, x).double(), truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mean", [0.0, 30.0])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("moving", ["weight", "bias", "norm", "all"])
def test_fused_batch_norms_agree_with_torch_in_float64(library, mean, frozen, moving):
    """Value, tangent, gradient, second derivative: a convolution whose outputs have a mean, and its batch norm."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 25, 3))
    for p in model[1].parameters():
        nn.init.uniform_(p, 0.5, 1.5)
    nn.init.constant_(model[0].bias, mean)
    x = torch.randn(6, 8, 5, 5)
    names = {"weight": ["0.weight"], "bias": ["1.bias"], "norm": ["1.weight", "1.bias"]}
    v = {n: torch.randn_like(p) for n, p in model.named_parameters() if n in names.get(moving, [n])}
    c, dot = torch.randn(6, 3), torch.randn(6, 3)
    found = []
    for dtype in (torch.float32, torch.float64):
        tape = record(model, x, direction=v, dtype=dtype, frozen=frozen)
        assert tape.ft is not None
        g, H = tape.dual_gradient(c.to(dtype), dot.to(dtype))
        single = record(model, x, dtype=dtype)
        plain = single.gradient(c.to(dtype), batch_norm="frozen" if frozen else "coupled")
        values = {"f": tape.f, "ft": tape.ft, "x": single.input_gradient(c.to(dtype))} | {
            f"g {n}": t for n, t in g.items()
        }
        found.append(values | {f"H {n}": t for n, t in H.items()} | {f"p {n}": t for n, t in plain.items()})
    for name, truth in found[1].items():
        size, limit = max(1.0, float(truth.detach().abs().max())), 2e-5 * max(1.0, mean)
        if name.endswith(" 0.bias") and not frozen:  # zero: terms that cancel, as large as those of the weights
            size, limit = max(1.0, float(found[1][name.replace("bias", "weight")].abs().max())), 2e-5
        torch.testing.assert_close(found[0][name].double() / size, truth / size, rtol=0, atol=limit)


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


def test_vectors_of_sixteen_lanes_agree_with_those_of_eight(library, anew, monkeypatch, tmp_path):
    if "avx512f" not in fused.processor().split():
        pytest.skip("this processor has no vectors of sixteen lanes")
    generator = torch.Generator().manual_seed(9)
    x, delta = (torch.randn(3, c, 9, 7, generator=generator).contiguous(memory_format=LAST) for c in (40, 48))
    found = []
    for flags in (fused.FLAGS, (*fused.FLAGS, "-mno-avx512f")):
        monkeypatch.setattr(fused, "FLAGS", flags)
        fused._build.cache_clear()
        own: list[torch.Tensor] = []
        for kernel, c_out, groups in ((1, 48, 1), (3, 48, 1), (5, 40, 40)):
            geometry = Geometry((1, 1), (kernel // 2,) * 2, (1, 1), groups)
            weight = torch.linspace(-1, 1, c_out * 40 // groups * kernel**2).view(c_out, 40 // groups, kernel, kernel)
            weight = weight.contiguous(memory_format=LAST) if groups == 1 else weight
            back = delta if groups == 1 else x
            own += [geometry.apply(x, weight), geometry.transpose(back, x, weight), geometry.outer(x, back, weight)]
        assert fused.status().startswith("the compiled kernels are in use")
        found.append(own)
    for wide, narrow in zip(*found, strict=True):
        torch.testing.assert_close(wide, narrow, rtol=1e-5, atol=1e-5)


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
            fused.outer(library, good, bad, (3, 3), (1, 1), (1, 1), (1, 1), 1, together=True)
        with pytest.raises(ValueError, match="a compiled kernel expects"):
            fused.convolve(library, good, torch.zeros(8, 8, 3, 3).contiguous(memory_format=LAST), bad, transposed=False)
        with pytest.raises(ValueError, match="a compiled kernel expects"):
            fused.pointwise(library, good, torch.zeros(8, 8, 1, 1), bad, transposed=False)
        with pytest.raises(ValueError, match="a compiled kernel expects"):
            fused.depthwise(library, bad, torch.zeros(8, 1, 3, 3), (5, 4), (1, 1), (1, 1), (1, 1))
        with pytest.raises(ValueError, match="a compiled kernel expects"):
            fused.normalise_tangent(library, good, bad, torch.zeros(3, 8, dtype=torch.float64), None, None, False)
    with pytest.raises(ValueError, match="a compiled kernel expects"):
        fused.convolve(library, good, torch.zeros(8, 16, 3, 3).contiguous(memory_format=LAST), transposed=False)
    with pytest.raises(ValueError, match="a compiled kernel expects"):
        fused.pointwise(library, good, torch.zeros(8, 16, 1, 1), transposed=False)
    with pytest.raises(ValueError, match="a compiled kernel expects"):
        fused.depthwise(library, good, torch.zeros(16, 1, 3, 3), (4, 4), (1, 1), (1, 1), (1, 1))
    with pytest.raises(ValueError, match="a compiled kernel expects"):
        fused.pool(library, good, (5, 5), (3, 3), (1, 1), (1, 1), with_padding=False)
    with pytest.raises(ValueError, match="a compiled kernel expects 1 to 2 parts"):
        fused.outer(library, good, good, (3, 3), (1, 1), (1, 1), (1, 1), 3, together=False)
    with pytest.raises(ValueError, match="a compiled kernel expects"):
        fused.normalise(library, good, torch.zeros(4), None, 1e-5)
    with pytest.raises(ValueError, match="a compiled kernel expects"):
        fused.combine(library, torch.zeros(4), [(good, torch.zeros(8)), (good, torch.zeros(8))])
    with pytest.raises(ValueError, match="a compiled kernel expects"):
        fused.products(library, torch.zeros(3, 8).T)
    with pytest.raises(ValueError, match="a multiple of 64"):
        fused.agreement(library, torch.zeros(2, 8, 3, 3).contiguous(memory_format=LAST))


def test_the_kernels_stay_inside_their_buffers(tmp_path):
    """Under the address and undefined-behaviour sanitizers, on buffers of exactly their size."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path / "harness"
    command = [compiler, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", str(program)]
    nothing = ["-x", "c", "-"]
    if subprocess.run([*command, *nothing], input=b"int main(void) { return 0; }", capture_output=True).returncode:
        pytest.skip("this compiler has no sanitizers")
    subprocess.run([*command, f'-DSOURCE="{fused.SOURCE}"', str(HARNESS), "-lm"], check=True)
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
    assert fused.arithmetic() == fused.ARITHMETIC
    torch.set_num_threads(2)
    assert fused.arithmetic() == "torch"
    assert "one thread, torch has 2" in fused.status()
    torch.set_num_threads(1)
    with fused.switched_off():
        assert fused.arithmetic() == "torch"
        assert "switched off" in fused.status()
    assert fused.arithmetic() == fused.ARITHMETIC


def test_a_library_is_built_where_the_home_folder_is_read_only(library, anew, quickly_built, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fused.library() is not None


def test_only_what_others_cannot_write_is_loaded(library, anew, quickly_built, monkeypatch, tmp_path):
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
