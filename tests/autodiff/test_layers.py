import itertools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from initio.autodiff import fused
from initio.autodiff.layers import Geometry

CONVOLUTIONS = [  # c_in, c_out, kernel, stride, padding, dilation, groups
    (3, 4, (3, 3), 1, 1, 1, 1),
    (4, 6, (3, 3), 2, 1, 1, 1),
    (4, 4, (3, 3), 1, 1, 1, 4),  # depthwise
    (4, 4, (5, 5), 2, 4, 2, 4),  # dilated, depthwise
    (4, 6, (3, 3), 1, 1, 1, 2),  # grouped
    (4, 2, (1, 7), 1, (0, 3), 1, 1),
    (4, 2, (1, 1), 2, 0, 1, 1),
    (8, 16, (3, 3), 1, 1, 1, 1),
    (16, 24, (3, 3), 2, 1, 1, 1),
    (8, 8, (3, 3), 1, 2, 2, 1),
]


def pair(value):
    return (value, value) if isinstance(value, int) else value


def case(index, dtype):
    c_in, c_out, kernel, stride, padding, dilation, groups = CONVOLUTIONS[index]
    generator = torch.Generator().manual_seed(index)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    geometry = Geometry(pair(stride), pair(padding), pair(dilation), groups)
    x, weight = draw(5, c_in, 9, 8), draw(c_out, c_in // groups, *kernel)
    x = x.contiguous(memory_format=torch.channels_last)
    delta = draw(*geometry.apply(x, weight).shape).contiguous(memory_format=torch.channels_last)
    return geometry, x, weight, delta


def stock_gradient(geometry, x, weight, delta):
    x, weight = x.detach().clone().requires_grad_(), weight.detach().clone().requires_grad_()
    z = F.conv2d(x, weight, None, geometry.stride, geometry.padding, geometry.dilation, geometry.groups)
    return torch.autograd.grad((z * delta).sum(), (x, weight))


@pytest.mark.parametrize("index", range(len(CONVOLUTIONS)))
def test_a_convolution_s_gradients_are_autograd_s(index):
    geometry, x, weight, delta = case(index, torch.float64)
    gx, gw = stock_gradient(geometry, x, weight, delta)
    torch.testing.assert_close(geometry.transpose(delta, x, weight), gx)
    torch.testing.assert_close(geometry.outer(x, delta, weight), gw)


@pytest.mark.parametrize("index", range(len(CONVOLUTIONS)))
def test_per_sample_gradients_are_those_of_single_samples(index):
    geometry, x, weight, delta = case(index, torch.float64)
    one_by_one = torch.stack([stock_gradient(geometry, x[i : i + 1], weight, delta[i : i + 1])[1] for i in range(5)])
    shape = tuple(weight.shape)
    torch.testing.assert_close(geometry.per_sample(x, delta, shape), one_by_one)
    J = one_by_one.flatten(1)
    torch.testing.assert_close(geometry.gram(x, delta, shape), J @ J.T)
    torch.testing.assert_close(geometry.gram(x, delta, shape, chunk=1), J @ J.T)  # the smallest slices there are
    torch.testing.assert_close(geometry.squares(x, delta, shape), (J * J).sum(1))


@pytest.mark.parametrize("shape", [(5, 7), (5, 3, 7)])
def test_a_linear_layer_s_kernel_with_and_without_positions(shape):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    delta = torch.randn(*shape[:-1], 4, generator=generator, dtype=torch.float64)
    J = torch.stack([d.reshape(-1, 4).T @ a.reshape(-1, 7) for d, a in zip(delta, x, strict=True)]).flatten(1)
    geometry = Geometry(())
    torch.testing.assert_close(geometry.per_sample(x, delta, (4, 7)).flatten(1), J)
    torch.testing.assert_close(geometry.gram(x, delta, (4, 7)), J @ J.T)
    torch.testing.assert_close(geometry.gram(x, delta, (4, 7), chunk=1), J @ J.T)


def test_one_and_three_dimensional_convolutions():
    for dims in (1, 3):
        x = torch.randn(2, 2, *(4,) * dims, dtype=torch.float64)
        geometry = Geometry((1,) * dims, (1,) * dims, (1,) * dims)
        delta = torch.randn(2, 3, *(4,) * dims, dtype=torch.float64)
        weight = torch.zeros(3, 2, *(3,) * dims, dtype=torch.float64)
        each = geometry.per_sample(x, delta, tuple(weight.shape))
        torch.testing.assert_close(each.sum(0), geometry.outer(x, delta, weight))


# --- the compiled twins ----------------------------------------------------------------------------------------------


@pytest.fixture
def library(monkeypatch):
    if fused.library() is None:
        pytest.skip("no C compiler here, or INITIO_FUSED=0")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield fused.library()
    torch.set_num_threads(threads)


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


def test_without_a_compiler_there_is_no_library(monkeypatch):
    monkeypatch.setenv("INITIO_FUSED", "0")
    fused.library.cache_clear()
    try:
        assert fused.library() is None
    finally:
        fused.library.cache_clear()


def test_a_library_is_built_where_the_home_folder_is_read_only(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    fused.library.cache_clear()
    try:
        assert (fused.library() is None) == (fused.shutil.which("cc") is None and fused.shutil.which("gcc") is None)
    finally:
        fused.library.cache_clear()
