"""Where the boxes and arrows of a small directed graph go, in pure Python.

The layered method of Sugiyama, Tagawa and Toda (1981) with the labels of Gansner et al. (1993, "A technique
for drawing directed graphs"): nodes stand in columns by their longest path from an input; between two columns of
nodes there is room for a column of arrow labels; an arrow holds a place of its own, its stop, in every column
that it passes. So no arrow runs through a box and no label covers another, by construction and not by luck.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

Point = tuple[float, float]
Size = tuple[float, float]  # width, height
Order = list[list[int]]  # for each column, its items from top to bottom

PIN = 1e9  # weight of what must not move
UNORDERED = 40.0  # tension that it is worth to have two nodes of a column in their natural order
# Of a link, by whether its ends are nodes: long arrows straight first, labels near their targets.
STRENGTH = {(False, False): 4.0, (False, True): 2.0, (True, False): 1.0, (True, True): 2.0}


@dataclass(frozen=True)
class Box:
    """A rectangle by its centre; y grows downwards."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        """The smallest x."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """The largest x."""
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        """The smallest y."""
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        """The largest y."""
        return self.y + self.height / 2


@dataclass(frozen=True)
class Arrow:
    """A connection to be placed; `label` is the size of its label, if it has one."""

    source: int
    target: int
    label: Size | None = None


@dataclass(frozen=True)
class Route:
    """Where an arrow runs: an even number of points, joined in turn by a curve and by a level line.

    Curves lie between columns, level lines cross them, and the arrow is level at every point. The first point is
    on the source's right side, the last on the target's left.
    """

    points: tuple[Point, ...]
    label: Box | None


@dataclass(frozen=True)
class Layout:
    """Boxes in the order of the nodes, routes in that of the arrows, all within (0, 0) and (width, height).

    A box is at least as large as its node: as wide as its column, and high enough for its arrows.
    """

    nodes: tuple[Box, ...]
    routes: tuple[Route, ...]
    width: float
    height: float


@dataclass(frozen=True)
class Spacing:
    """Free room, in the unit of the sizes.

    Args:
        row: between two things in a column.
        column: between two columns; `slope` times the steepest rise is added, so that no curve is too steep.
        slope: see `column`.
        port: between two arrows on the same side of a node, which grows to hold them.
    """

    row: float = 8.0
    column: float = 16.0
    slope: float = 0.25
    port: float = 7.0


@dataclass(frozen=True)
class _Item:
    """Something with a place in a column: a node, or the stop of an arrow (with its label, or without)."""

    column: int
    width: float
    height: float
    is_node: bool


@dataclass(frozen=True)
class _Link:
    """The piece of an arrow between two neighbouring columns."""

    arrow: int
    tail: int
    head: int


@dataclass(frozen=True)
class _Columns:
    """The graph with its arrows cut into links of neighbouring columns; items 0 to n - 1 are the nodes."""

    items: list[_Item]
    links: list[list[_Link]]  # for each column, those that leave it
    labels: list[int | None]  # for each arrow, the item that carries its label
    spine: frozenset[int]  # arrows along a chain of all nodes, to be drawn as one straight line


@dataclass(frozen=True)
class _Spring:
    """A link that pulls y[tail] + leave and y[head] + enter together."""

    link: _Link
    leave: float
    enter: float
    strength: float
    is_inner: bool  # between two stops of an arrow

    def rise(self, y: Sequence[float]) -> float:
        return y[self.link.head] + self.enter - y[self.link.tail] - self.leave


@dataclass(frozen=True)
class _Placement:
    """An order of the items, and their heights and places in it."""

    order: Order
    springs: list[_Spring]
    heights: list[float]
    y: list[float]
    pinned: frozenset[int]  # items of the spine, at y = 0

    def tension(self) -> float:
        """Lower looks calmer: arrows nearly straight, boxes low, what passes the spine rather above it."""
        bent = sum(spring.strength * spring.rise(self.y) ** 2 for spring in self.springs)
        tension = bent + sum(height**2 for height in self.heights)
        if self.pinned:
            tension += sum(y > 1e-3 for y in self.y)
        return tension


def arrange(
    sizes: Sequence[Size], arrows: Sequence[Arrow], n_inputs: int = 1, spacing: Spacing | None = None
) -> Layout:
    """Places nodes (inputs first, output last) and arrows (from earlier to later nodes) from left to right.

    >>> layout = arrange([(10, 10)] * 3, [Arrow(0, 1), Arrow(1, 2), Arrow(0, 2)])
    >>> [box.x for box in layout.nodes] == sorted(box.x for box in layout.nodes)
    True
    >>> [len(route.points) for route in layout.routes]  # the last one passes the middle column
    [2, 2, 4]
    """
    spacing = spacing or Spacing()
    columns = _cut(sizes, arrows, ranks(len(sizes), arrows, n_inputs))
    placements = (_place(columns, order, spacing) for order in _good_orders(columns))
    best = min(placements, key=lambda p: p.tension() + UNORDERED * sum(_inversions(columns, p.order)))
    _relax(best, spacing, stiffness=50.0, sweeps=400)
    _level(best, spacing)
    return _finish(columns, best, spacing)


def ranks(n_nodes: int, arrows: Sequence[Arrow], n_inputs: int) -> list[int]:
    """The column of each node: inputs in the first, the output alone in the last, others by longest path.

    >>> ranks(5, [Arrow(0, 2), Arrow(1, 2), Arrow(2, 4), Arrow(3, 4)], n_inputs=2)
    [0, 0, 1, 1, 2]
    """
    rank = [0] * n_inputs + [1] * (n_nodes - n_inputs)
    for arrow in sorted(arrows, key=lambda a: a.target):
        if not 0 <= arrow.source < arrow.target < n_nodes:
            raise ValueError(f"arrow {arrow.source} -> {arrow.target} does not lead from an earlier to a later node")
        if arrow.target >= n_inputs:
            rank[arrow.target] = max(rank[arrow.target], rank[arrow.source] + 1)
    has_source = {arrow.target for arrow in arrows}
    for node in range(n_nodes - 2, n_inputs - 1, -1):  # a node that nothing feeds stands next to what it feeds
        fed = [rank[arrow.target] for arrow in arrows if arrow.source == node]
        if node not in has_source and fed:
            rank[node] = max(1, min(fed) - 1)
    rank[-1] = max(rank[-1], 1 + max(rank[:-1], default=-1))
    return rank


# --- columns and stops --------------------------------------------------------------------------------------


def _cut(sizes: Sequence[Size], arrows: Sequence[Arrow], rank: Sequence[int]) -> _Columns:
    """Even places hold nodes, all of a place equally wide, odd places labels; empty places get no column."""
    widest = {r: max(width for (width, _), other in zip(sizes, rank, strict=True) if other == r) for r in rank}
    label_place = _label_places(arrows, rank, widest)
    used = sorted({2 * r for r in rank} | {place for place in label_place if place is not None})
    column_at = {place: column for column, place in enumerate(used)}

    nodes = zip(rank, sizes, strict=True)
    items = [_Item(column_at[2 * r], widest[r], height, is_node=True) for r, (_, height) in nodes]
    links: list[list[_Link]] = [[] for _ in used]
    labels: list[int | None] = [None] * len(arrows)
    for number, (arrow, place) in enumerate(zip(arrows, label_place, strict=True)):
        tail = arrow.source
        for column in range(items[arrow.source].column + 1, items[arrow.target].column):
            width, height = (0.0, 0.0)
            if arrow.label and used[column] == place:
                labels[number], (width, height) = len(items), arrow.label
            links[column - 1].append(_Link(number, tail, len(items)))
            tail = len(items)
            items.append(_Item(column, width, height, is_node=False))
        links[items[arrow.target].column - 1].append(_Link(number, tail, arrow.target))
    return _Columns(items, links, labels, _spine(arrows, rank))


def _label_places(arrows: Sequence[Arrow], rank: Sequence[int], widest: dict[int, float]) -> list[int | None]:
    """Where each label stands: in a column of wider nodes, or else between two columns; where the fewest are.

    Short arrows choose first, as they have less choice.
    """
    places: list[int | None] = [None] * len(arrows)
    load: dict[int, int] = {}
    for number in sorted(range(len(arrows)), key=lambda i: rank[arrows[i].target] - rank[arrows[i].source]):
        arrow = arrows[number]
        if arrow.label:
            first, last = rank[arrow.source], rank[arrow.target]
            over = [2 * r for r in range(first + 1, last) if widest.get(r, 0.0) >= arrow.label[0]]
            between = [2 * r + 1 for r in range(first, last)]
            place = min(over or between, key=lambda place: load.get(place, 0))
            places[number] = place
            load[place] = load.get(place, 0) + 1
    return places


def _spine(arrows: Sequence[Arrow], rank: Sequence[int]) -> frozenset[int]:
    """The first arrow between each node and the next, if every node has a column of its own."""
    if len(set(rank)) < len(rank):
        return frozenset()
    first: dict[int, int] = {}
    for number, arrow in enumerate(arrows):
        if rank[arrow.target] == rank[arrow.source] + 1:
            first.setdefault(arrow.source, number)
    return frozenset(first.values())


# --- the order within columns: few crossings ----------------------------------------------------------------


def _good_orders(columns: _Columns) -> Iterator[Order]:
    """The orders with the fewest crossings that were found from the given order and from random ones."""
    rng = Random(0)  # the picture of a cell is always the same
    found: dict[int, list[Order]] = {}
    for attempt in range(24 if len(columns.items) <= 150 else 3):
        order: Order = [[] for _ in columns.links]
        for number, item in reversed(list(enumerate(columns.items))):  # stops above nodes
            order[item.column].append(number)
        if attempt:
            for column in order:
                rng.shuffle(column)
        count = _uncross(columns, order)
        mirrored = [column[::-1] for column in order]
        if _inversions(columns, order) > _inversions(columns, mirrored):  # in the first column that tells
            order = mirrored
        if order not in found.setdefault(count, []):
            found[count].append(order)
    yield from found[min(found)]


def _inversions(columns: _Columns, order: Order) -> list[int]:
    """For each column, the pairs of nodes of which the later one stands above."""
    nodes = [[item for item in column if columns.items[item].is_node] for column in order]
    return [sum(a > b for i, b in enumerate(column) for a in column[:i]) for column in nodes]


def _uncross(columns: _Columns, order: Order) -> int:
    """Barycentre sweeps to and fro, then exchanges of neighbours while they help; the crossings left."""
    best, best_order = _all_crossings(columns, order), [list(column) for column in order]
    for direction in (1, -1) * 4:
        for column in range(len(order))[::direction]:
            _sort_by_barycentre(columns, order, column, direction)
        count = _all_crossings(columns, order)
        if count < best:
            best, best_order = count, [list(column) for column in order]
    order[:] = best_order
    while _exchange_neighbours(columns, order):
        pass
    return _all_crossings(columns, order)


def _sort_by_barycentre(columns: _Columns, order: Order, column: int, direction: int) -> None:
    """By the mean place of what an item is linked to in the column that was sorted before, if anything."""
    beside = column - direction
    if not 0 <= beside < len(order):
        return
    place = {item: i for i, item in enumerate(order[beside])}
    seen: dict[int, list[int]] = {item: [] for item in order[column]}
    for link in columns.links[min(column, beside)]:
        far, near = (link.tail, link.head)[::direction]
        seen[near].append(place[far])
    barycentre = {}
    for here, item in enumerate(order[column]):
        places = seen[item] or [here]
        barycentre[item] = sum(places) / len(places)
    order[column].sort(key=barycentre.__getitem__)


def _exchange_neighbours(columns: _Columns, order: Order) -> bool:
    improved = False
    for number, column in enumerate(order):
        for i in range(len(column) - 1):
            before = _crossings_around(columns, order, number)
            column[i], column[i + 1] = column[i + 1], column[i]
            if _crossings_around(columns, order, number) < before:
                improved = True
            else:
                column[i], column[i + 1] = column[i + 1], column[i]
    return improved


def _all_crossings(columns: _Columns, order: Order) -> int:
    return sum(_crossings(columns, order, column) for column in range(len(order) - 1))


def _crossings_around(columns: _Columns, order: Order, column: int) -> int:
    return sum(_crossings(columns, order, c) for c in (column - 1, column) if 0 <= c < len(order) - 1)


def _crossings(columns: _Columns, order: Order, column: int) -> int:
    """Pairs of links between this column and the next that cross."""
    tails = {item: i for i, item in enumerate(order[column])}
    heads = {item: i for i, item in enumerate(order[column + 1])}
    ends = [(tails[link.tail], heads[link.head]) for link in columns.links[column]]
    return sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for i, a in enumerate(ends) for b in ends[:i])


# --- heights: straight arrows -------------------------------------------------------------------------------


def _place(columns: _Columns, order: Order, spacing: Spacing) -> _Placement:
    springs = _springs(columns, order, spacing)
    heights = [item.height for item in columns.items]
    for spring in springs:  # a node grows until its arrows have room
        for item, shift in ((spring.link.tail, spring.leave), (spring.link.head, spring.enter)):
            if columns.items[item].is_node:
                heights[item] = max(heights[item], 2 * abs(shift) + 1.5 * spacing.port)
    y = [0.0] * len(heights)
    for column in order:
        offsets = _offsets(column, heights, spacing)
        for item, offset in zip(column, offsets, strict=True):
            y[item] = offset - offsets[-1] / 2
    spine = [spring.link for spring in springs if spring.link.arrow in columns.spine]
    pinned = frozenset(item for link in spine for item in (link.tail, link.head))
    placement = _Placement(order, springs, heights, y, pinned)
    _relax(placement, spacing, stiffness=1.0, sweeps=60)
    return placement


def _springs(columns: _Columns, order: Order, spacing: Spacing) -> list[_Spring]:
    """One spring a link; a node's arrows are spread over its side in order, around the spine if any."""
    place = {item: i for column in order for i, item in enumerate(column)}
    links = [link for column in columns.links for link in column]
    leave, enter = [0.0] * len(links), [0.0] * len(links)
    for shifts, own, other in ((leave, "tail", "head"), (enter, "head", "tail")):
        sides: dict[int, list[int]] = {}
        for number, link in enumerate(links):
            sides.setdefault(getattr(link, own), []).append(number)
        for side in sides.values():
            side.sort(key=lambda i: (place[getattr(links[i], other)], links[i].arrow))
            on_spine = (i for i, number in enumerate(side) if links[number].arrow in columns.spine)
            middle = next(on_spine, (len(side) - 1) / 2)
            for i, number in enumerate(side):
                shifts[number] = spacing.port * (i - middle)
    springs = []
    for link, start, end in zip(links, leave, enter, strict=True):
        ends = (columns.items[link.tail].is_node, columns.items[link.head].is_node)
        springs.append(_Spring(link, start, end, STRENGTH[ends], is_inner=ends == (False, False)))
    return springs


def _relax(placement: _Placement, spacing: Spacing, stiffness: float, sweeps: int) -> None:
    """Least squares of the springs by block coordinate descent: one column at a time, exactly, to and fro.

    Springs within a long arrow are `stiffness` times as strong; a high one makes it straight, in many sweeps.
    """
    y, order = placement.y, placement.order
    pulls: list[list[tuple[int, float, float]]] = [[] for _ in y]
    for spring in placement.springs:
        link, strength = spring.link, spring.strength * (stiffness if spring.is_inner else 1.0)
        pulls[link.tail].append((link.head, spring.enter - spring.leave, strength))
        pulls[link.head].append((link.tail, spring.leave - spring.enter, strength))
    totals = [sum(strength for _, _, strength in pull) or 1e-3 for pull in pulls]
    weights = list(totals)
    for item in placement.pinned:
        weights[item] = PIN

    def wish(item: int) -> float:
        if item in placement.pinned:
            return 0.0
        if not pulls[item]:
            return y[item]
        return sum(strength * (y[other] + shift) for other, shift, strength in pulls[item]) / totals[item]

    apart = [_offsets(column, placement.heights, spacing) for column in order]
    for sweep in range(sweeps):
        for number in range(len(order))[:: (1, -1)[sweep % 2]]:
            column, offsets = order[number], apart[number]
            targets = [wish(item) - offset for item, offset in zip(column, offsets, strict=True)]
            levels = isotonic(targets, [weights[item] for item in column])
            for item, level, offset in zip(column, levels, offsets, strict=True):
                y[item] = level + offset


def _level(placement: _Placement, spacing: Spacing) -> None:
    """Makes what is nearly level in a long arrow level; nothing moves so far that it could touch anything."""
    runs: dict[int, list[list[int]]] = {}
    y, tolerance = placement.y, spacing.row / 4
    for spring in placement.springs:
        if spring.is_inner:
            of_arrow = runs.setdefault(spring.link.arrow, [[spring.link.tail]])
            values = [y[item] for item in (*of_arrow[-1], spring.link.head)]
            if max(values) - min(values) > tolerance:
                of_arrow.append([])
            of_arrow[-1].append(spring.link.head)
    for run in (run for of_arrow in runs.values() for run in of_arrow):
        middle = (min(y[item] for item in run) + max(y[item] for item in run)) / 2
        for item in run:
            y[item] = middle


def _offsets(column: Sequence[int], heights: Sequence[float], spacing: Spacing) -> list[float]:
    """How far below the first item of a column each one stands at least."""
    offsets = [0.0]
    for upper, lower in itertools.pairwise(column):
        offsets.append(offsets[-1] + (heights[upper] + heights[lower]) / 2 + spacing.row)
    return offsets


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest non-decreasing sequence in weighted least squares: pool adjacent violators.

    >>> isotonic([1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0])
    [1.0, 2.5, 2.5, 4.0]
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (m1, w1, n1), (m2, w2, n2) = blocks[-2:]
            blocks[-2:] = [((m1 * w1 + m2 * w2) / (w1 + w2), w1 + w2, n1 + n2)]
    return [mean for mean, _, length in blocks for _ in range(length)]


# --- the finished layout ------------------------------------------------------------------------------------


def _finish(columns: _Columns, placement: _Placement, spacing: Spacing) -> Layout:
    items, heights = columns.items, placement.heights
    top = min(y - height / 2 for y, height in zip(placement.y, heights, strict=True))
    y = [value - top for value in placement.y]
    widths = [max(items[i].width for i in column) for column in placement.order]
    left = [0.0] * len(widths)
    for column in range(1, len(widths)):
        rises = [abs(s.rise(y)) for s in placement.springs if items[s.link.head].column == column]
        gap = spacing.column + spacing.slope * max(rises, default=0.0)
        left[column] = left[column - 1] + widths[column - 1] + gap

    points: list[list[Point]] = [[] for _ in columns.labels]
    for spring in placement.springs:  # from left to right, so the points of an arrow come in order
        link = spring.link
        start, end = items[link.tail].column, items[link.head].column
        points[link.arrow] += [
            (left[start] + widths[start], y[link.tail] + spring.leave),
            (left[end], y[link.head] + spring.enter),
        ]
    boxes: dict[int | None, Box] = {
        i: Box(left[item.column] + widths[item.column] / 2, y[i], item.width, heights[i])
        for i, item in enumerate(items)
    }
    routes = (Route(tuple(p), boxes.get(carrier)) for p, carrier in zip(points, columns.labels, strict=True))
    nodes = (boxes[i] for i, item in enumerate(items) if item.is_node)
    bottom = max(box.bottom for box in boxes.values())
    return Layout(tuple(nodes), tuple(routes), left[-1] + widths[-1], bottom)
