from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from initio.autodiff.layers import Geometry

CONVOLUTIONS = [  # c_in, c_out, kernel, stride, padding, dilation, groups
    (3, 4, (3, 3), 1, 1, 1, 1),
    (4, 6, (3, 3), 2, 1, 1, 1),
    (4, 4, (3, 3), 1, 1, 1, 4),  # depthwise
    (4, 4, (5, 5), 2, 4, 2, 4),  # dilated, depthwise
    (4, 6, (3, 3), 1, 1, 1, 2),  # grouped
    (4, 2, (1, 7), 1, (0, 3), 1, 1),
    (4, 2, (1, 1), 2, 0, 1, 1),
    (4, 6, (1, 1), 1, 0, 1, 1),
    (4, 2, (1, 1), 1, 1, 1, 1),
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
    turned = replace(geometry, free=True).flipped(weight)
    torch.testing.assert_close(geometry.transpose(delta, x, weight, lambda: turned), gx)
    torch.testing.assert_close(geometry.outer(x, delta, weight), gw)


@pytest.mark.parametrize("index", range(len(CONVOLUTIONS)))
@pytest.mark.parametrize("format", [torch.channels_last, torch.contiguous_format])
def test_free_roundings_change_no_more_than_roundings(index, format):
    geometry, x, weight, delta = case(index, torch.float64)
    free = replace(geometry, free=True)
    z, (gx, _) = geometry.apply(x, weight), stock_gradient(geometry, x, weight, delta)
    image = lambda t: t.clone(memory_format=torch.preserve_format).contiguous(memory_format=format)  # noqa: E731
    torch.testing.assert_close(free.apply(x, weight), z)
    torch.testing.assert_close(free.add_to(image(delta), x, weight), delta + z)
    torch.testing.assert_close(free.transpose(delta, x, weight), gx)
    torch.testing.assert_close(free.add_transpose(image(x), delta, x, weight), x + gx)
    assert free.apply(x, weight).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("index", range(len(CONVOLUTIONS)))
def test_per_sample_gradients_are_those_of_single_samples(index):
    geometry, x, weight, delta = case(index, torch.float64)
    one_by_one = torch.stack([stock_gradient(geometry, x[i : i + 1], weight, delta[i : i + 1])[1] for i in range(5)])
    shape = tuple(weight.shape)
    torch.testing.assert_close(geometry.per_sample(x, delta, shape), one_by_one)
    J = one_by_one.flatten(1)
    torch.testing.assert_close(geometry.gram(x, delta, shape), J @ J.T)
    torch.testing.assert_close(geometry.gram(x, delta, shape, chunk=1), J @ J.T)  # the smallest slices there are


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
