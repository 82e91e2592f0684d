"""Loops in a picture: a box around the operators of each, and edges that lead back.

Graphviz receives the loops as nested clusters, without names. In the layered layout a loop's box is the smallest one
around its operators, and a feedback edge is an arc beyond them, from its tail to the head.

>>> groups = (LoopBox("L", (), (1, 2)),)
>>> boxes = [Box(0, 0, 80, 40), Box(120, 0, 80, 40), Box(240, 0, 80, 40)]
>>> arc = arcs([(2, 1)], boxes, groups, rightward=True)[2, 1]
>>> arc.points[0], arc.tip, round(arc.middle[1])
((280.0, 40), (160.0, 40), 65)
>>> [around] = boxes_around(groups, boxes, [arc])
>>> around.x, around.y, around.width
(108.0, -30.0, 224.0)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fries_nb.dataflow.graph import Graph
from fries_nb.report.edge_paths import Box, EdgePath, Placed, Spot

_PADDING = 12.0
_TITLE = 18.0  # height of the line with the loop's name
_BEYOND = 24.0  # from the operators of a loop to its arcs
_ARROW = 8.0
_ROUNDS = 14  # letters that are reserved for the number of rounds

Ends = tuple[int, int]


@dataclass(frozen=True)
class LoopBox:
    """A loop in a graph whose operators are numbered.

    Attributes:
        name: the loop.
        around: the loops around it, outermost first.
        members: numbers of the operators inside of it, those of inner loops as well.
    """

    name: str
    around: tuple[str, ...]
    members: tuple[int, ...]

    @property
    def space(self) -> str:
        """A title in DOT of about the size of the one that will be drawn."""
        return f'"{"0" * (len(self.name) + _ROUNDS)}"'


def loop_boxes(graph: Graph) -> tuple[LoopBox, ...]:
    """The loops of a graph, each after those around it."""
    heads = [operator for operator in graph.operators if operator.traits.heads_loop]
    return tuple(
        LoopBox(head.name, head.within.loops[:-1], tuple(
            number for number, one in enumerate(graph.operators)
            if one.within == head.within or one.within.is_inner_of(head.within)
        ))
        for head in sorted(heads, key=lambda head: head.within.level)
    )  # fmt: skip


def clusters(groups: Sequence[LoopBox], titles: Sequence[str], around: tuple[str, ...] = ()) -> str:
    """DOT source of loops as nested clusters of nodes ``n<number>``.

    Args:
        groups: all loops.
        titles: their titles, quoted for DOT.
        around: only loops that are directly inside of these.
    """
    source = ""
    for place, group in enumerate(groups):
        if group.around == around:
            nodes = "; ".join(f"n{number}" for number in group.members)
            source += (
                f'subgraph cluster_{place} {{ margin={_PADDING:.0f}; fontsize=11; label={titles[place]};\n'
                f"{nodes};\n{clusters(groups, titles, (*around, group.name))}}}\n"
            )
    return source


def arcs(
    feedback: Iterable[Ends], boxes: Sequence[Box], groups: Sequence[LoopBox], rightward: bool
) -> dict[Ends, EdgePath]:
    """Feedback edges as arcs beyond the operators of their loops: below them, or else on their right.

    Args:
        feedback: the edges, by numbers of operators.
        boxes: the operators' boxes.
        groups: the loops.
        rightward: whether streams flow to the right, or else downward.
    """
    found = {}
    for tail, head in feedback:
        group = min((one for one in groups if {tail, head} <= {*one.members}), key=lambda one: len(one.members))
        far = max(_end(boxes[number], rightward) for number in group.members) + _BEYOND * (1 + _inner(groups, group))
        (start, near), (end, close) = (
            (_middle(boxes[number], rightward), _end(boxes[number], rightward)) for number in (tail, head)
        )
        # A cubic curve comes to three quarters of the way to its control points.
        controls = (start, near + (far - near) * 4 / 3), (end, close + (far - close) * 4 / 3)
        along = [(start, near), *controls, (end, close + _ARROW)]
        points = tuple(_spot(spot, rightward) for spot in along)
        found[tail, head] = EdgePath(points, _spot((end, close), rightward))
    return found


def boxes_around(groups: Sequence[LoopBox], boxes: Sequence[Box], ways: Iterable[EdgePath]) -> tuple[Box, ...]:
    """The box of each loop, around its operators, inner loops, and those of these paths that begin in it.

    Args:
        groups: the loops.
        boxes: the operators' boxes.
        ways: the paths of feedback edges.
    """
    arrows = list(ways)
    found: dict[str, Box] = {}
    for group in reversed(groups):
        inner = [found[one.name] for one in groups if one.around == (*group.around, group.name)]
        members = [boxes[number] for number in group.members]
        own = [way for way in arrows if _touches(way, members)]
        spots = [(one.x, one.y) for one in (*members, *inner)]
        spots += [(one.x + one.width, one.y + one.height) for one in (*members, *inner)]
        spots += [way.middle for way in own]
        xs, ys = [x for x, _ in spots], [y for _, y in spots]
        left, top = min(xs) - _PADDING, min(ys) - _PADDING - _TITLE
        found[group.name] = Box(left, top, max(xs) + _PADDING - left, max(ys) + _PADDING - top)
    return tuple(found[group.name] for group in groups)


def with_loops(placed: Placed, feedback: Sequence[Ends], groups: Sequence[LoopBox], rightward: bool) -> Placed:
    """A layout in layers with arcs for feedback edges, after its other edges, and boxes for loops; moved to fit.

    Args:
        placed: the layout without feedback edges.
        feedback: the feedback edges.
        groups: the loops.
        rightward: whether streams flow to the right, or else downward.
    """
    back = arcs(feedback, placed.boxes, groups, rightward)
    around = boxes_around(groups, placed.boxes, back.values())
    left, top = min([0.0, *(box.x for box in around)]), min([0.0, *(box.y for box in around)])
    width = max([placed.width, *(box.x + box.width for box in around)]) - left
    height = max([placed.height, *(box.y + box.height for box in around)]) - top
    ways = (*placed.ways, *(back[ends] for ends in feedback))
    return Placed(
        width, height, tuple(box.moved(-left, -top) for box in placed.boxes),
        tuple(way.moved(-left, -top) for way in ways), tuple(box.moved(-left, -top) for box in around),
    )  # fmt: skip


def loop_title(name: str, rounds: Mapping[str, str]) -> str:
    """The title of a loop's box, with its rounds if they are known.

    >>> loop_title("Checks", {"Checks": "3 rounds"}), loop_title("Checks", {})
    ('loop Checks: 3 rounds', 'loop Checks')
    """
    return f"loop {name}: {rounds[name]}" if name in rounds else f"loop {name}"


def _inner(groups: Sequence[LoopBox], group: LoopBox) -> int:
    """How deep loops are nested inside of one; the arcs of outer loops are further out."""
    depths = [len(one.around) for one in groups if one.around[: len(group.around) + 1] == (*group.around, group.name)]
    return max(depths, default=len(group.around)) - len(group.around)


def _touches(way: EdgePath, members: Sequence[Box]) -> bool:
    x, y = way.tip
    return any(box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height for box in members)


def _end(box: Box, rightward: bool) -> float:
    return box.y + box.height if rightward else box.x + box.width


def _middle(box: Box, rightward: bool) -> float:
    return box.centre[0] if rightward else box.centre[1]


def _spot(spot: Spot, rightward: bool) -> Spot:
    return spot if rightward else (spot[1], spot[0])
