"""A shared network is the built one where its blend is one-hot, and PC-DARTS' edges are what the paper writes."""

from collections.abc import Callable
from functools import lru_cache
from random import Random

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.errors import InputError
from initio.networks.graphs import Graph, Mixed
from initio.networks.shared import Blend, SharedNetwork
from initio.records import Architecture
from initio.spaces import SPACES, GraphSpace, NetworkSettings
from tests.networks.test_supernet import filled, inputs, settings_of

EXACT = {"rtol": 1e-10, "atol": 1e-10}


@lru_cache  # to make one takes longer than to run it
def shared(space: GraphSpace, channels: int = 1) -> SharedNetwork:
    made = SharedNetwork(space, settings_of(space), seed=1, channels=channels, statistics="running")
    return made.double()


def one_hot(space: GraphSpace, arch: Architecture) -> Blend:
    """All options, those of the architecture with weight one, all others with zero."""
    used = dict(space.active(arch))
    rows = [torch.zeros(len(decision)).double() for decision in space.relaxation]
    for k, option in used.items():
        rows[k][option] = 1.0
    return Blend.rows(rows)


def built(network: SharedNetwork, arch: Architecture) -> torch.nn.Module:
    assert isinstance(network.space, GraphSpace)
    graph = network.space.network(arch, network.supernet.settings)
    cells = [step.op for step in graph.steps if isinstance(step.op, Graph)]
    names = {step.name: step.name[:-2] for cell in cells for step in cell.steps if "_from_" in step.name}
    return filled(network.supernet, graph, names)


@pytest.mark.parametrize(("name", "seed"), [("nb201", 0), ("nb201", 1), ("nb201", 2), ("darts", 0), ("darts", 1)])
def test_one_hot_mixed_operations_equal_the_built_network(name: str, seed: int) -> None:
    space, (x, _) = SPACES[name], inputs()
    network, arch = shared(space), space.sample(Random(seed))
    expected = built(network, arch)(x)
    torch.testing.assert_close(network(x, one_hot(space, arch)), expected, **EXACT)
    torch.testing.assert_close(network(x, Blend.path(space, arch)), expected, **EXACT)


@pytest.mark.parametrize("name", ["nb1shot1-s1", "nb1shot1-s2", "nb1shot1-s3"])
def test_one_hot_nb1shot1_is_the_built_network_where_the_output_reads_blocks_alone(name: str) -> None:
    space, (x, _) = SPACES[name], inputs()
    network = shared(space)
    cells = (space.sample(Random(seed)) for seed in range(1000))
    arch = next(arch for arch in cells if whole_output(space, arch))
    graph = space.network(arch, network.supernet.settings)
    expected = filled(network.supernet, graph)(x)
    torch.testing.assert_close(network(x, one_hot(space, arch)), expected, **EXACT)
    torch.testing.assert_close(network(x, Blend.path(space, arch)), expected, **EXACT)
    for seed in range(3):  # those that read the input too have no built twin, but a value
        assert torch.isfinite(network(x, Blend.path(space, space.sample(Random(seed))))).all()


def whole_output(space: GraphSpace, arch: Architecture) -> bool:
    """Whether the output reads no input and every block is live, so that blocks keep their numbers."""
    parents = [d.options[c] for d, c in zip(space.decisions, arch.choices, strict=True) if d.name.startswith("parents")]
    used = {word for text in parents for word in text.split(",")}
    return "0" not in parents[-1].split(",") and used >= {str(v) for v in range(1, len(parents))}


def test_a_path_computes_nothing_else() -> None:
    """Nor what only a dead node would read: of this cell one convolution is left, and the network around it."""
    space, (x, _) = SPACES["nb201"], inputs()
    network = shared(space)
    network.zero_grad()
    network(x, Blend.path(space, space.architecture(3, 3, 3, 2, 0, 0))).sum().backward()
    cells = [key for key, part in network.supernet.operations.items() if "edge_" in key and has_gradient(part)]
    assert {key.split("/")[1].split(":")[0] for key in cells} == {"edge_0_3"}
    assert {key.split(":")[1] for key in cells} == {"nor_conv_1x1"}


def has_gradient(module: torch.nn.Module) -> bool:
    return any(p.grad is not None for p in module.parameters())


@pytest.mark.parametrize("name", ["nb201", "darts"])
def test_partial_channels_with_all_channels_equal_full_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space, (x, _) = SPACES[name], inputs()
    network = shared(space)
    rows = [torch.rand(len(decision), generator=torch.Generator().manual_seed(k)).double().softmax(0)
            for k, decision in enumerate(space.relaxation)]  # fmt: skip
    full = network(x, Blend.rows(rows))
    monkeypatch.setattr(SharedNetwork, "_bypassed", lambda network, mixed: True)
    torch.testing.assert_close(network(x, Blend.rows(rows)), full, **EXACT)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_partial_edge_is_what_the_paper_writes(stride: int) -> None:
    """Half of the channels mixed, the others passed by (pooled where the edge halves), all shuffled, times the edge."""
    space = SPACES["darts"]
    network = shared(space, channels=2)
    path, mixed = next(
        (f"{cell.name}.{step.name}", step.op)
        for cell in network.graph.steps
        if isinstance(cell.op, Graph)
        for step in cell.op.steps
        if isinstance(step.op, Mixed) and step.op.options[0].stride == stride  # type: ignore[union-attr]
    )
    x = torch.randn(2, mixed.c_in, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    weights = torch.rand(7).double().softmax(0)
    edge = torch.tensor(0.3).double()
    options = [dict(enumerate(weights)) if k == mixed.categorical else {} for k in range(len(space.relaxation))]
    blend = Blend(tuple(options), tuple([edge] * len(options)))
    half = mixed.c_in // 2
    parts = [network.supernet.option(mixed, option, path, [x[:, :half]]) for option in range(7)]
    total = sum(w * part for w, part in zip(weights, parts, strict=True))  # type: ignore[operator]
    past = x[:, half:]
    if stride == 2:
        past = F.max_pool2d(past, 2)
    assert isinstance(total, Tensor)
    pairs = [channel for both in zip(total.unbind(1), past.unbind(1), strict=True) for channel in both]
    expected = edge * torch.stack(pairs, dim=1)
    found = network._mix(blend, {}, mixed, path, [x])
    torch.testing.assert_close(found, expected, **EXACT)


@pytest.mark.parametrize("name", ["nb201", "darts"])
def test_poolings_of_one_value_are_computed_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same logits and gradients as one pooling an edge."""
    space, (x, _) = SPACES[name], inputs()
    network, calls = shared(space), []
    for pool in ("avg_pool2d", "max_pool2d"):
        monkeypatch.setattr(F, pool, counted(getattr(F, pool), calls))
    seen = []
    for poolings in ((), ("avg_pool_3x3", "max_pool_3x3")):
        monkeypatch.setattr("initio.networks.shared.POOLINGS", poolings)
        rows = [torch.linspace(-1, 1, len(decision)).double().requires_grad_() for decision in space.relaxation]
        calls.clear()
        logits = network(x, Blend.rows([row.softmax(0) for row in rows]))
        logits.square().sum().backward()
        seen.append((len(calls), [logits.detach(), *(row.grad for row in rows)]))
    (often, expected), (once, found) = seen
    assert once < 0.7 * often
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


def counted(function: Callable[..., Tensor], calls: list[None]) -> Callable[..., Tensor]:
    def call(*args: object, **kwargs: object) -> Tensor:
        calls.append(None)
        return function(*args, **kwargs)

    return call


def test_a_width_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(InputError, match="a width of 6 channels cannot be cut into 4 equal parts"):
        shared(SPACES["nb201"], channels=4)


def test_nodes_are_what_sums_read() -> None:
    assert shared(SPACES["nb201"]).nodes == [(0,), (1, 2), (3, 4, 5)]
    assert [len(node) for node in shared(SPACES["darts"]).nodes] == [2, 3, 4, 5] * 2


def test_batch_norms_use_the_batch_or_what_they_remember() -> None:
    space, (x, _) = SPACES["nb201"], inputs()
    arch = space.architecture(3, 3, 3, 3, 3, 3)
    for statistics, same in (("batch", True), ("running", False)):
        network = SharedNetwork(space, NetworkSettings(4, 1, shape=(3, 8, 8)), statistics=statistics).double()  # type: ignore[arg-type]
        network.blend = Blend.path(space, arch)
        assert torch.equal(network.train()(x), network.eval()(x)) == same


def test_dropped_skips_are_skips_alone() -> None:
    space, (x, _) = SPACES["nb201"], inputs()
    network = shared(space)
    for option, changes in ((1, True), (3, False)):
        blend = Blend.path(space, space.architecture(0, 0, 0, option, 0, 0))
        network.skip_dropout = 0.0
        plain = network(x, blend)
        network.skip_dropout = 0.5
        assert torch.equal(network(x, blend), plain) != changes
    network.skip_dropout = 0.0
