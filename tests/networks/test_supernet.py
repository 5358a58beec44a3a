"""A supernet is the built network when its gates are one-hot, and computes nothing beside the sampled path."""

import gc
from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from initio.autodiff.record import Tape
from initio.errors import InputError
from initio.networks.build import GraphModule
from initio.networks.graphs import CONCAT, IDENTITY, SUM, ZERO, Graph, Mixed, Op, choose_options, prune
from initio.networks.operations import Kit
from initio.networks.supernet import Supernet
from initio.records import Architecture
from initio.spaces import SPACES, GraphSpace, NetworkSettings
from initio.spaces.darts import DARTS_BY_NODE

SUPERNETS: dict[str, GraphSpace] = {
    **{name: SPACES[name] for name in ("nb201", "nb1shot1-s1", "nb1shot1-s2", "nb1shot1-s3", "darts")},
    "darts by node": DARTS_BY_NODE,
}


def settings_of(space: GraphSpace) -> NetworkSettings:
    return NetworkSettings(channels=6, cells=3 if space.name == "darts" else 1, shape=(3, 8, 8))


def sample(space: GraphSpace, seed: int) -> list[int]:
    rng = Random(seed)
    return [rng.randrange(len(decision)) for decision in space.relaxation]


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, 8, 8, dtype=torch.float64, generator=generator)
    return x, torch.randint(10, (6,), generator=generator)


def supernet_of(space: GraphSpace) -> Supernet:
    return Supernet(space, settings_of(space), seed=1).double()


def one_hot(space: GraphSpace, choices: list[int]) -> list[Tensor]:
    return [F.one_hot(torch.tensor(c), len(d)).double() for c, d in zip(choices, space.relaxation, strict=True)]


def filled(supernet: Supernet, graph: Graph, rename: dict[str, str] | None = None) -> nn.Module:
    """The plain network of a graph, with the supernet's parameters; `rename` maps step names to the supernet's."""
    network = GraphModule(graph, Kit(supernet.settings)).double()

    def fill(graph: Graph, module: nn.Module, path: str) -> None:
        for step in graph.steps:
            inner = module.get_submodule(step.name)
            if isinstance(step.op, Graph):
                fill(step.op, inner, f"{path}{step.name}.")
            elif any(True for _ in inner.parameters()):
                name = (rename or {}).get(step.name, step.name)
                inner.load_state_dict(supernet.operation(f"{path}{name}", step.op).state_dict())

    fill(graph, network, "")
    return network


def test_nb201_sample_is_the_built_network_as_data() -> None:
    space = SUPERNETS["nb201"]
    for seed in range(20):
        choices = sample(space, seed)
        settings = settings_of(space)
        network = space.network(Architecture("nb201", tuple(choices)), settings)
        cells = [step.op for step in network.steps if isinstance(step.op, Graph)]
        sampled = choose_options(space.supernet(choices, settings), choices)
        assert [prune(step.op) for step in sampled.steps if isinstance(step.op, Graph)] == cells


@pytest.mark.parametrize("seed", range(4))
def test_nb201_with_one_hot_gates_equals_the_built_network(seed: int) -> None:
    space, (x, _) = SUPERNETS["nb201"], inputs()
    supernet, choices = supernet_of(space), sample(space, seed)
    graph = space.network(Architecture("nb201", tuple(choices)), supernet.settings)
    expected = filled(supernet, graph)(x)
    torch.testing.assert_close(supernet(x, choices), expected)
    torch.testing.assert_close(supernet(x, choices, one_hot(space, choices), all_options=True), expected)


@pytest.mark.parametrize("name", ["nb1shot1-s1", "nb1shot1-s2", "nb1shot1-s3"])
@pytest.mark.parametrize("seed", range(4))
def test_nb1shot1_with_one_hot_gates_equals_the_built_network(name: str, seed: int) -> None:
    space, (x, _) = SUPERNETS[name], inputs()
    supernet, choices = supernet_of(space), sample(space, seed)
    out = sum(1 for decision in space.decisions if decision.name.startswith("parents"))
    live = {out}
    for v in reversed(range(1, out + 1)):
        if v in live:
            live |= set(map(int, space.decisions[v - 1].options[choices[v - 1]].split(",")))
    rename = {}  # the built cell numbers only the vertices it keeps
    for new, old in enumerate(sorted(live)):
        rename |= {f"vertex_{new}": f"vertex_{old}", f"project_{new}": f"project_{old}"}
    graph = space.network(Architecture(name, tuple(choices)), supernet.settings)
    expected = filled(supernet, graph, rename)(x)
    torch.testing.assert_close(supernet(x, choices), expected)
    torch.testing.assert_close(supernet(x, choices, one_hot(space, choices), all_options=True), expected)


@pytest.mark.parametrize("seed", range(2))
def test_darts_with_zero_gates_equals_the_built_network(seed: int) -> None:
    """Of 14 edges the 8 of an architecture have gate one; the others' gate is zero."""
    space, (x, _) = SUPERNETS["darts"], inputs()
    supernet = supernet_of(space)
    arch = space.sample(Random(seed))
    used = dict(space.active(arch))
    choices = [used.get(k, 0) for k in range(len(space.relaxation))]
    gates = [gate if k in used else 0 * gate for k, gate in enumerate(one_hot(space, choices))]
    graph = space.network(arch, supernet.settings)
    names = {
        step.name: step.name[:-2]
        for cell in graph.steps
        if isinstance(cell.op, Graph)
        for step in cell.op.steps
        if "_from_" in step.name
    }
    torch.testing.assert_close(supernet(x, choices, gates), filled(supernet, graph, names)(x))


@pytest.mark.parametrize("name", ["darts", "darts by node"])
def test_darts_sample_equals_the_plain_network_of_its_graph(name: str) -> None:
    space, (x, _) = SUPERNETS[name], inputs()
    supernet, choices = supernet_of(space), sample(space, 0)
    graph = choose_options(space.supernet(choices, supernet.settings), choices)
    expected = filled(supernet, graph)(x)
    torch.testing.assert_close(supernet(x, choices), expected)
    torch.testing.assert_close(supernet(x, choices, one_hot(space, choices), all_options=True), expected)


@pytest.mark.parametrize("name", SUPERNETS)
def test_only_the_sampled_path_is_made(name: str) -> None:
    space, (x, _) = SUPERNETS[name], inputs()
    supernet, choices = supernet_of(space), sample(space, 3)
    supernet(x, choices)
    graph = choose_options(space.supernet(choices, supernet.settings), choices)
    needed = count_operations(graph)
    assert len(supernet.operations) <= needed
    supernet(x, choices, all_options=True)
    assert len(supernet.operations) > needed


def count_operations(graph: Graph) -> int:
    plain = (SUM, CONCAT, IDENTITY, ZERO)
    return sum(
        count_operations(step.op) if isinstance(step.op, Graph) else step.op.kind not in plain for step in graph.steps
    )


def test_parameters_do_not_depend_on_the_order_of_samples() -> None:
    space, (x, _) = SUPERNETS["nb201"], inputs()
    a, b = sample(space, 0), sample(space, 1)
    first, second = supernet_of(space), supernet_of(space)
    first(x, a)
    torch.testing.assert_close(first(x, b), second(x, b), rtol=0, atol=0)
    assert not torch.equal(first(x, b), Supernet(space, first.settings, seed=2).double()(x, b))


def test_a_disconnected_sample_gives_constant_logits() -> None:
    space, (x, y) = SUPERNETS["nb201"], inputs()
    supernet = supernet_of(space)
    assert supernet(x, [0] * 6).detach().abs().max() == 0
    T, dT = supernet.trace_gradient(x, y, [0] * 6, all_options=True)
    assert T > 0  # the classifier's bias
    assert all(value == 0 for row in dT for value in row)


def oracle(supernet: Supernet, choices: list[int], *, all_options: bool) -> tuple[float, list[list[float]]]:
    """T and ∂T/∂gates by differentiating the gradient norm with autograd, twice through everything."""
    x, y = inputs()
    gates = [gate.requires_grad_() for gate in one_hot(supernet.space, choices)]
    loss = F.cross_entropy(supernet(x, choices, gates, all_options=all_options), y)
    g = torch.autograd.grad(loss, list(supernet.parameters()), create_graph=True, allow_unused=True)
    T = torch.stack([part.square().sum() for part in g if part is not None]).sum()
    dT = torch.autograd.grad(T, gates, allow_unused=True)
    rows = [torch.zeros_like(h) if row is None else row for h, row in zip(gates, dT, strict=True)]
    return T.item(), [row.tolist() for row in rows]


@pytest.mark.parametrize("all_options", [False, True])
@pytest.mark.parametrize("name", SUPERNETS)
def test_trace_gradient_equals_double_backward(name: str, all_options: bool) -> None:
    space, (x, y) = SUPERNETS[name], inputs()
    supernet = supernet_of(space)
    for seed in range(1 if space.name == "darts" else 3):
        choices = sample(space, seed)
        T, dT = supernet.trace_gradient(x, y, choices, all_options=all_options)
        expected_T, expected = oracle(supernet, choices, all_options=all_options)
        assert pytest.approx(expected_T, rel=1e-10) == T
        scale = max(abs(value) for row in expected for value in row)
        for row, expected_row in zip(dT, expected, strict=True):
            assert row == pytest.approx(expected_row, rel=1e-8, abs=1e-10 * scale)


@pytest.mark.parametrize("norm", ["plain", "none"])
def test_trace_gradient_without_affine_or_any_norm(norm: str) -> None:
    space, (x, y) = SUPERNETS["nb201"], inputs()
    settings = NetworkSettings(channels=4, cells=1, shape=(3, 8, 8), norm=norm)  # type: ignore[arg-type]
    supernet = Supernet(space, settings, seed=1).double()
    choices = [3, 2, 4, 1, 3, 2]
    T, dT = supernet.trace_gradient(x, y, choices, all_options=True)
    expected_T, expected = oracle(supernet, choices, all_options=True)
    assert pytest.approx(expected_T, rel=1e-10) == T
    assert np.array(dT) == pytest.approx(np.array(expected), rel=1e-8, abs=1e-10)


def test_trace_gradient_leaves_the_network_alone() -> None:
    space, (x, y) = SUPERNETS["nb201"], inputs()
    supernet = supernet_of(space)
    supernet(x, [3] * 6)
    before = {name: value.clone() for name, value in supernet.state_dict().items()}
    supernet.trace_gradient(x, y, [3] * 6)
    assert all(torch.equal(before[name], value) for name, value in supernet.state_dict().items())
    assert all(p.grad is None for p in supernet.parameters())


def test_a_space_without_supernet_says_so() -> None:
    supernet = Supernet(SPACES["nb101"], NetworkSettings(channels=4, shape=(3, 8, 8)))
    with pytest.raises(InputError, match="nb101 has no supernet"):
        supernet(torch.zeros(2, 3, 8, 8), [0] * 26)


def test_mixed_chooses_what_it_reads() -> None:
    mixed = Mixed("mixed", categorical=0, options=(Op("identity"), Op("sum")), places=((1,), (0, 1)))
    assert mixed.choose(0, (7, 9)) == (Op("identity"), (9,))
    assert mixed.choose(1, (7, 9)) == (Op("sum"), (7, 9))


def test_a_step_leaves_no_cycle_behind() -> None:
    """A tape in a reference cycle would hold a whole network's activations until the collector runs."""
    space, (x, y) = SUPERNETS["nb201"], inputs()
    supernet = supernet_of(space)
    gc.collect()
    gc.disable()
    try:
        supernet.trace_gradient(x, y, [3, 1, 2, 4, 3, 2], all_options=True)
        assert not [thing for thing in gc.get_objects() if type(thing) is Tape]
    finally:
        gc.enable()
