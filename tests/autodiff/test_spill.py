import torch

from initio.autodiff.spill import Spill, resident, within


def test_a_tensor_comes_back_from_disk_as_it_was():
    spill = Spill(budget=0)
    t = torch.randn(4, 8, 64, 64).contiguous(memory_format=torch.channels_last)
    packed = spill.pack(t)
    assert not isinstance(packed, torch.Tensor)
    back = spill.unpack(packed)
    assert torch.equal(back, t)
    assert back.stride() == t.stride()


def test_the_same_tensor_is_written_once_and_a_changed_one_again():
    spill = Spill(budget=0)
    t = torch.randn(1 << 16)
    first = spill.pack(t)
    assert spill.pack(t) is first
    t.add_(1)
    assert spill.pack(t) is not first


def test_within_the_budget_nothing_is_written():
    spill = Spill(budget=1 << 30)
    assert isinstance(spill.pack(torch.randn(1 << 16)), torch.Tensor)
    assert spill.file is None


def test_gradients_are_the_same_from_disk():
    x = torch.randn(1 << 16, requires_grad=True)
    with within(1):
        y = (x.sin() * x.exp()).sum()
    (spilled,) = torch.autograd.grad(y, x)
    (plain,) = torch.autograd.grad((x.sin() * x.exp()).sum(), x)
    assert torch.equal(spilled, plain)


def test_the_process_has_a_size():
    assert resident() >= 0
