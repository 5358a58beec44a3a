"""What a layout promises for any graph: boxes apart, arrows forward and around the boxes, no chance."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from initio.report.layout import Arrow, Box, Layout, Spacing, arrange, isotonic, ranks

SPACING = Spacing(row=6.0, column=15.0, slope=0.2, port=5.0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[Arrow], int]:
    n_inputs = draw(st.integers(1, 2))
    n = n_inputs + draw(st.integers(1, 6))
    pair = st.tuples(st.integers(0, n - 2), st.integers(1, n - 1)).filter(lambda p: p[0] < p[1] and p[1] >= n_inputs)
    label = st.none() | st.tuples(st.sampled_from([10.0, 60.0]), st.just(12.0))
    arrows = [Arrow(s, t, size) for (s, t), size in draw(st.lists(st.tuples(pair, label), max_size=14))]
    sizes = [(draw(st.sampled_from([15.0, 20.0, 70.0])), 20.0) for _ in range(n)]
    return sizes, arrows, n_inputs


def apart(a: Box, b: Box) -> bool:
    return a.right <= b.left or b.right <= a.left or a.bottom <= b.top or b.bottom <= a.top


def curve(layout: Layout, number: int, steps: int = 12) -> list[tuple[float, float]]:
    """Points along an arrow as it is drawn: smooth steps between columns, level lines through them."""
    points = layout.routes[number].points
    drawn = []
    for (x0, y0), (x1, y1) in pairwise(points):
        for t in (i / steps for i in range(steps + 1)):
            rise = 3 * t**2 - 2 * t**3  # y of a cubic Bezier curve that is level at both ends
            run = 1.5 * t * (1 - t) ** 2 + 1.5 * t**2 * (1 - t) + t**3  # x, both control points in the middle
            drawn.append((x0 + (x1 - x0) * run, y0 + (y1 - y0) * rise))
    return drawn


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_any_graph_is_laid_out_without_overlaps(graph):
    sizes, arrows, n_inputs = graph
    layout = arrange(sizes, arrows, n_inputs, SPACING)
    assert len(layout.nodes) == len(sizes)
    assert len(layout.routes) == len(arrows)

    boxes = [*layout.nodes, *(route.label for route in layout.routes if route.label)]
    assert all(apart(a, b) for a, b in combinations(boxes, 2))
    for box in boxes:
        assert min(box.left, box.top) >= -1e-9
        assert box.right <= layout.width + 1e-9
        assert box.bottom <= layout.height + 1e-9
    for (width, height), box in zip(sizes, layout.nodes, strict=True):
        assert box.width >= width
        assert box.height >= height

    for number, (arrow, route) in enumerate(zip(arrows, layout.routes, strict=True)):
        source, target = layout.nodes[arrow.source], layout.nodes[arrow.target]
        assert route.points[0][0] == pytest.approx(source.right)
        assert source.top < route.points[0][1] < source.bottom
        assert route.points[-1][0] == pytest.approx(target.left)
        assert target.top < route.points[-1][1] < target.bottom
        assert [x for x, _ in route.points] == sorted(x for x, _ in route.points)
        for (_, y0), (_, y1) in list(zip(route.points, route.points[1:], strict=False))[1::2]:
            assert y0 == y1, "an arrow is level where it passes a column"
        assert (route.label is None) == (arrow.label is None)

        others = [route.label for i, route in enumerate(layout.routes) if route.label and i != number]
        for x, y in curve(layout, number):
            for box in (*layout.nodes, *others):
                assert not (box.left + 1e-6 < x < box.right - 1e-6 and box.top < y < box.bottom)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_columns_go_from_inputs_to_output(graph):
    sizes, arrows, n_inputs = graph
    rank = ranks(len(sizes), arrows, n_inputs)
    assert rank[:n_inputs] == [0] * n_inputs
    assert all(0 < r < rank[-1] for r in rank[n_inputs:-1])
    assert all(rank[arrow.source] < rank[arrow.target] for arrow in arrows)


@settings(max_examples=10, deadline=None)
@given(graphs())
def test_same_graph_same_layout(graph):
    assert arrange(*graph) == arrange(*graph)


def test_a_label_lies_on_its_arrow():
    layout = arrange([(20, 20)] * 4, [Arrow(0, 1, (50, 12)), Arrow(0, 3, (50, 12)), Arrow(1, 2), Arrow(2, 3)])
    for route in layout.routes[:2]:
        level = [(a, b) for a, b in zip(route.points, route.points[1:], strict=False) if a[1] == b[1] == route.label.y]
        assert any(a[0] <= route.label.left and route.label.right <= b[0] for a, b in level)


def test_planar_graphs_have_no_crossing():
    """A ladder: two chains from the input to the output, which only a bad order would cross."""
    arrows = [Arrow(0, 1), Arrow(0, 2), Arrow(2, 3), Arrow(1, 4), Arrow(3, 5), Arrow(4, 5)]
    layout = arrange([(20, 20)] * 6, arrows)
    y = [box.y for box in layout.nodes]
    assert (y[1] < y[2]) == (y[4] < y[3])


def test_a_chain_with_skips_has_a_straight_spine():
    arrows = [*(Arrow(i, i + 1) for i in range(6)), Arrow(1, 3, (10, 8)), Arrow(2, 4, (10, 8)), Arrow(0, 6)]
    layout = arrange([(30, 20)] * 7, arrows)
    assert {round(box.y, 3) for box in layout.nodes} == {round(layout.nodes[0].y, 3)}
    for route in layout.routes[:6]:
        assert route.points[0][1] == pytest.approx(route.points[-1][1], abs=1e-3)


def test_inputs_stand_in_their_order():
    layout = arrange([(20, 20)] * 4, [Arrow(1, 2), Arrow(0, 2), Arrow(2, 3)], n_inputs=2)
    assert layout.nodes[0].y < layout.nodes[1].y


def test_parallel_arrows_are_two_lines():
    layout = arrange([(20, 20)] * 2, [Arrow(0, 1), Arrow(0, 1), Arrow(0, 1, (30, 10))])
    assert len({route.points for route in layout.routes}) == 3


def test_arrows_must_go_forward():
    with pytest.raises(ValueError, match="arrow 2 -> 1 does not lead from an earlier to a later node"):
        arrange([(20, 20)] * 3, [Arrow(2, 1)])


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 10)), min_size=1, max_size=8))
def test_isotonic_is_the_nearest_sequence(pairs):
    values, weights = zip(*pairs, strict=True)
    fit = isotonic(values, weights)
    assert all(a <= b + 1e-9 for a, b in pairwise(fit))

    def cost(x: list[float]) -> float:
        return sum(w * (a - b) ** 2 for w, a, b in zip(weights, x, values, strict=True))

    for mean in (
        min(values),
        max(values),
        sum(values) / len(values),
    ):  # constant and clipped sequences are rivals
        assert cost(fit) <= cost([mean] * len(values)) + 1e-6
    for shift in (-0.1, 0.1):
        assert cost(fit) <= cost([x + shift for x in fit]) + 1e-6
