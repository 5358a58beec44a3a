"""What every space promises; a new space in `SPACES` inherits these tests."""

import json
import pickle
from dataclasses import replace
from itertools import islice
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from initio import Architecture, InputError, from_json, to_json
from initio.networks.cost import count
from initio.networks.graphs import choose_options
from initio.spaces import SPACES, GraphSpace, NetworkSettings, Space, get_space, mlp_space, parse
from tests.spaces.own import LISTED, OWN

SMALL = NetworkSettings(channels=4, cells=3, shape=(3, 16, 16))
INPUT = torch.zeros(2, 3, 16, 16)
EVERY: dict[str, Space] = {**SPACES, "mlp-3": mlp_space(3), "own": OWN, "listed": LISTED}
spaces = pytest.mark.parametrize("space", EVERY.values(), ids=EVERY.keys())
graph_spaces = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())


def some(space: Space, n: int = 10, seed: int = 0) -> list[Architecture]:
    rng = Random(seed)
    return [space.sample(rng) for _ in range(n)]


@spaces
def test_text_reads_back_to_equality(space: Space) -> None:
    for arch in some(space, 30):
        assert space.parse(space.format(arch)) == arch


@graph_spaces
def test_the_notation_alone_names_the_architecture(space: Space) -> None:
    for arch in some(space, 5):
        assert parse(to_json(arch)) == arch
        found = parse(space.format(arch))  # where two spaces share a notation, of the first one that has it
        assert get_space(found.space).canonical(found) == space.canonical(arch)
        assert get_space(arch.space).contains(arch)


@spaces
def test_json_and_pickle_read_back_to_equality(space: Space) -> None:
    for arch in some(space):
        assert from_json(Architecture, to_json(arch)) == arch
        assert pickle.loads(pickle.dumps(arch)) == arch


@spaces
def test_a_seed_draws_the_same_architectures(space: Space) -> None:
    assert some(space, seed=3) == some(space, seed=3)
    if space.count() > 10:
        assert some(space, 20, seed=3) != some(space, 20, seed=4)


@spaces
def test_samples_neighbours_and_mutants_are_valid_and_differ_in_one_decision(space: Space) -> None:
    rng = Random(1)
    for arch in some(space, 3):
        neighbours = list(space.neighbours(arch))
        assert len(set(neighbours)) == len(neighbours)
        for other in [*neighbours, space.mutate(arch, rng)]:
            assert space.contains(other)
            assert sum(a != b for a, b in zip(arch.choices, other.choices, strict=True)) == 1
        assert space.mutate(arch, rng) in neighbours


@spaces
def test_listed_architectures_are_valid_and_distinct(space: Space) -> None:
    first = list(islice(space.architectures(), 200))
    assert len(set(first)) == len(first) == min(200, space.count())
    assert all(space.contains(arch) for arch in first)


@spaces
def test_canonical_is_idempotent_and_keeps_connection(space: Space) -> None:
    for arch in some(space, 20):
        representative = space.canonical(arch)
        home = space if representative.space == space.name else get_space(representative.space)
        assert home.canonical(representative) == representative
        assert home.connected(representative) == space.connected(arch)


@spaces
def test_decode_takes_the_heaviest_options(space: Space) -> None:
    if not space.relaxation:
        with pytest.raises(InputError, match="not a space that weights decide in"):
            space.decode([])
        return
    for arch in some(space, 5):
        rng = Random(0)
        weights = [[rng.random() for _ in decision.options] for decision in space.relaxation]
        decoded = space.decode(weights)
        assert space.contains(decoded)
        assert space.connected(decoded)
        if space.relaxation == space.decisions and space.connected(arch):
            for row, choice in zip(weights, arch.choices, strict=True):
                row[choice] += 2
            assert space.decode(weights) == arch


@spaces
def test_an_architecture_outside_is_refused(space: Space) -> None:
    arch = some(space, 1)[0]
    with pytest.raises(InputError, match="is of space 'elsewhere'"):
        space.check(replace(arch, space="elsewhere"))
    with pytest.raises(InputError, match="decisions, not"):
        space.check(replace(arch, choices=(*arch.choices, 0)))
    with pytest.raises(InputError, match="has options 0 to"):
        space.check(replace(arch, choices=(999, *arch.choices[1:])))
    with pytest.raises(InputError, match="has options 0 to"):
        space.check(replace(arch, choices=(-1, *arch.choices[1:])))


@spaces
def test_cells_can_be_drawn(space: Space) -> None:
    for arch in some(space, 5):
        for cell in space.cells(arch):
            assert 1 <= cell.n_inputs < len(cell.nodes)
            assert all(0 <= edge.source < edge.target < len(cell.nodes) for edge in cell.edges)


@spaces
def test_networks_run_and_depend_on_the_seed_alone(space: Space) -> None:
    for arch in some(space, 2):
        before = torch.random.get_rng_state()
        models = [space.build(arch, SMALL, seed=seed) for seed in (0, 0, 1)]
        assert torch.equal(before, torch.random.get_rng_state())
        assert models[0].eval()(INPUT).shape == (2, 10)
        first, again, other = (list(model.state_dict().values()) for model in models)
        assert all(map(torch.equal, first, again))
        assert not all(map(torch.equal, first, other))


@graph_spaces
def test_counted_cost_is_that_of_the_built_network(space: GraphSpace) -> None:
    from initio.networks.cost import count_module

    for arch in some(space, 3):
        counted = count(space.network(arch, SMALL), SMALL)
        built, shape = count_module(space.build(arch, SMALL).eval(), INPUT[:1])
        assert counted == built
        assert shape == (10,)


@graph_spaces
def test_pruning_keeps_the_function(space: GraphSpace) -> None:
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for arch in some(space, 6):
        pruned = space.build(arch, SMALL).double()
        whole = space.build(arch, replace(SMALL, prune=False)).double()
        left = whole.load_state_dict(pruned.state_dict(), strict=False)
        assert not left.unexpected_keys
        torch.testing.assert_close(pruned(x), whole(x))


@graph_spaces
def test_resolved_settings_are_complete(space: GraphSpace) -> None:
    settings = space.resolve(NetworkSettings())
    assert settings.channels
    assert settings.cells
    assert space.resolve(settings) == settings


@graph_spaces
def test_its_sizes_can_be_built_and_are_smaller_than_the_published_one(space: GraphSpace) -> None:
    arch = some(space, 1)[0]
    published = space.cost(arch, space.resolve(NetworkSettings(shape=SMALL.shape)))
    assert space.sizes.published.channels
    assert space.sizes.published.cells
    for size in (space.sizes.scoring, space.sizes.training):
        settings = NetworkSettings(size.channels, size.cells, shape=SMALL.shape)
        assert space.cost(arch, space.resolve(settings)).parameters <= published.parameters


@graph_spaces
def test_only_parameters_of_chosen_operations_are_called_chosen(space: GraphSpace) -> None:
    """Architectures that choose nothing with parameters have no such parameters: all others have some."""
    for arch in some(space, 6):
        names = [name for name, _ in space.build(arch, SMALL).named_parameters()]
        chosen = {name for name in names if space.is_chosen(name)}
        labels = {label for cell in space.cells(arch) for label in (*cell.nodes, *(e.label for e in cell.edges))}
        assert bool(chosen) == (bool(space.chosen) and any("conv" in label for label in labels))
        assert not any("classifier" in name or "stem" in name or name.startswith("head") for name in chosen)


@graph_spaces
def test_a_one_shot_network_is_there_or_refused_in_a_sentence(space: GraphSpace) -> None:
    choices = [0] * len(space.relaxation)
    if space.one_shot:
        assert choose_options(space.supernet(choices, space.resolve(SMALL)), choices).steps
    else:
        assert not space.prunable
        with pytest.raises(InputError, match=f"{space.name} has no supernet"):
            space.supernet(choices, SMALL)


@graph_spaces
@given(text=st.text(max_size=80) | st.text("|~+0123_conv:;,=()[]'skips", max_size=80))
def test_any_text_parses_and_prints_back_or_raises_input_error(space: GraphSpace, text: str) -> None:
    try:
        arch = space.parse(text)
    except InputError:
        return
    assert space.parse(space.format(arch)) == arch


@graph_spaces
@given(data=st.data())
def test_a_damaged_notation_parses_and_prints_back_or_raises_input_error(
    space: GraphSpace, data: st.DataObject
) -> None:
    text = space.format(space.sample(Random(data.draw(st.integers(0, 9)))))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    damaged = text[:start] + data.draw(st.text(max_size=4)) + text[end:]
    for read in (space.parse, parse):
        try:
            arch = read(damaged)
        except InputError:
            continue
        assert read(get_space(arch.space).format(arch)) == arch


@given(
    value=st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    )
)
def test_any_json_is_an_architecture_or_raises_input_error(value: object) -> None:
    for document in (value, {"initio": "architecture", "version": 1, "space": "nb201", "choices": value}):
        try:
            arch = from_json(Architecture, json.dumps(document))
        except InputError:
            continue
        assert arch.space == "nb201"
