from initio.networks.graphs import Builder, Graph, Op, prune

CONV, SUM, NONE, SKIP = Op("nor_conv_3x3", 4, 4), Op("sum"), Op("none", 4, 4), Op("identity", 4, 4)


def names(graph: Graph) -> list[str]:
    return [step.name for step in graph.steps]


def test_what_nothing_reads_is_removed() -> None:
    cell = Builder()
    live = cell("live", CONV, 0)
    cell("dead", CONV, live)
    assert names(prune(cell.graph(live))) == ["live"]


def test_zeros_are_dropped_from_sums_and_propagate_through_operations() -> None:
    cell = Builder()
    zero = cell("zero", NONE, 0)
    still_zero = cell("conv_of_zero", CONV, zero)
    live = cell("live", CONV, 0)
    pruned = prune(cell.graph(cell("node", SUM, zero, still_zero, live)))
    assert names(pruned) == ["live"]
    assert pruned.output == 1


def test_identities_are_folded_down_to_the_input() -> None:
    cell = Builder()
    skip = cell("skip", SKIP, 0)
    pruned = prune(cell.graph(cell("node", SUM, skip)))
    assert pruned == Graph(1, (), 0)


def test_a_cell_of_zeros_keeps_its_shape() -> None:
    cell = Builder()
    zero = cell("zero", NONE, 0)
    half = cell("half", Op("nor_conv_3x3", 4, 8, 2), zero)
    pruned = prune(cell.graph(cell("node", SUM, half)))
    assert [step.op for step in pruned.steps] == [NONE, Op("none", 4, 8, 2)]


def test_a_concatenation_keeps_its_zeros() -> None:
    cell = Builder()
    zero, live = cell("zero", NONE, 0), cell("live", CONV, 0)
    assert names(prune(cell.graph(cell("concat", Op("concat"), zero, live)))) == ["zero", "live", "concat"]


def test_pruning_twice_changes_nothing() -> None:
    cell = Builder(2)
    a = cell("a", CONV, 0)
    b = cell("b", SUM, a, 1, cell("z", NONE, 1))
    once = prune(cell.graph(b))
    assert prune(once) == once
    assert names(once) == ["a", "b"]
