import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from initio.autodiff import spill
from initio.autodiff.record import record
from initio.autodiff.spill import Spill, resident, within
from initio.errors import InputError


def test_a_tensor_comes_back_from_disk_as_it_was():
    own = Spill(budget=0)
    t = torch.randn(4, 8, 64, 64).contiguous(memory_format=torch.channels_last)
    packed = own.pack(t)
    assert not isinstance(packed, torch.Tensor)
    back = own.unpack(packed)
    assert torch.equal(back, t)
    assert back.stride() == t.stride()


def test_the_same_tensor_is_written_once_and_a_changed_one_again():
    own = Spill(budget=0)
    t = torch.randn(1 << 16)
    first = own.pack(t)
    assert own.pack(t) is first
    t.add_(1)
    assert own.pack(t) is not first


def test_within_the_budget_nothing_is_written():
    own = Spill(budget=1 << 30)
    assert isinstance(own.pack(torch.randn(1 << 16)), torch.Tensor)
    assert own.file is None


def test_gradients_are_the_same_from_disk():
    x = torch.randn(1 << 16, requires_grad=True)
    with within(1):
        y = (x.sin() * x.exp()).sum()
    (spilled,) = torch.autograd.grad(y, x)
    (plain,) = torch.autograd.grad((x.sin() * x.exp()).sum(), x)
    assert torch.equal(spilled, plain)


class Heap:
    """Remembers what it is asked; `most` is the largest threshold that it takes."""

    def __init__(self, most: int) -> None:
        self.most, self.asked = most, []

    def mallopt(self, what: int, size: int) -> int:
        self.asked.append((what, size))
        return int(what == spill.M_TRIM_THRESHOLD or size <= self.most)

    def malloc_trim(self, pad: int) -> int:
        self.asked.append(("trim", pad))
        return 1


@pytest.mark.parametrize("most", [1 << 40, 32 << 20])
def test_freed_memory_is_kept_without_a_limit_and_returned_with_one(most, monkeypatch):
    heap = Heap(most)
    monkeypatch.setattr(spill, "_glibc", lambda: heap)
    spill._allocate.cache_clear()
    for memory in (None, None, 1, None):
        with within(memory):
            pass
    spill._allocate.cache_clear()
    trims = [size for what, size in heap.asked if what == spill.M_TRIM_THRESHOLD]
    assert trims == [256 << 20, 128 << 10, 256 << 20]
    mapped = [size for what, size in heap.asked if what == spill.M_MMAP_THRESHOLD and size <= most]
    assert mapped == [min(most, 1 << 30), 1 << 20, min(most, 1 << 30)]
    assert ("trim", 0) in heap.asked


@pytest.mark.parametrize(("used", "trimmed"), [(spill.LARGE, []), (spill.LARGE + 1, [("trim", 0)])])
def test_gaps_between_many_tensors_are_returned(used, trimmed, monkeypatch):
    heap = Heap(1 << 40)
    assert spill._in_use(heap) == 0  # an older library does not say
    monkeypatch.setattr(spill, "_glibc", lambda: heap)
    monkeypatch.setattr(spill, "_in_use", lambda _: used)
    spill.return_gaps()
    assert heap.asked == trimmed


def test_the_heap_says_what_is_in_use():
    c = spill._glibc()
    if c is None or not hasattr(c, "mallinfo2"):
        pytest.skip("this C library does not say what is in use")
    before = spill._in_use(c)
    held = [torch.empty(64 << 10, dtype=torch.uint8) for _ in range(32)]  # too small for mappings of their own
    assert spill._in_use(c) - before > len(held) * (64 << 10) // 2


def test_the_process_has_a_size():
    assert resident() >= 0


class Twice(nn.Module):
    """A layer whose activations are computed once more in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.layer, x, use_reentrant=False)


def test_a_recorded_pass_spills_and_gives_the_same_gradients(monkeypatch):
    written = []
    pack = Spill._pack

    def packed(self, t):
        out = pack(self, t)
        written.append(not isinstance(out, torch.Tensor))
        return out

    monkeypatch.setattr(Spill, "_pack", packed)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    x = torch.randn(8, 3, 16, 16)
    model(x)
    free, tight = record(model, x), record(model, x, memory=1)
    assert any(written)
    assert resident() == 0 or written.count(True) >= 3  # the layers' inputs and outputs
    g, h = (tape.gradient(torch.ones_like(tape.f)) for tape in (free, tight))
    assert all(torch.equal(g[name], h[name]) for name in g)


@pytest.mark.parametrize("memory", [None, 1])
def test_activations_that_are_computed_once_more_are_refused(memory):
    with pytest.raises(InputError, match="computed once more"):
        record(Twice(), torch.randn(4, 8), memory=memory)
