"""Positions of operators and edges in a graph's picture, computed once for each graph.

Graphviz receives boxes of given sizes only; names, colours and states are drawn afterwards. So the layout does not
depend on states, and names need no escaping. ``dot`` from PATH is tried first, then the Graphviz of pygraphviz; without
either, :mod:`fries_nb.report.layout` is used.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> placed = layout(Graph("w1", (Operator("Src"), Operator("Sink")), (Edge("Src", "Sink"),)))
>>> placed.boxes["Src"].x < placed.boxes["Sink"].x, placed.boxes["Src"].y == placed.boxes["Sink"].y
(True, True)

Geometry of boxes and edges, in pixels from the upper left corner of the picture.

A layered layout (Sugiyama), for machines without Graphviz and for graphs too large for it.

An operator is placed in the layer after all of its inputs; an edge that spans several layers gets a dummy node in each.
Nodes within layers are ordered by the barycentre of their neighbours, in four sweeps.

>>> placed = in_layers([80, 80, 80], 40, [(0, 1), (1, 2), (0, 2)], rightward=True)
>>> [round(box.x) for box in placed.boxes], len(placed.ways[2].points)
([0, 128, 256], 7)

Loops in a picture: a box around the operators of each, and edges that lead back.

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

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.report.markup import ELLIPSIS, fitted, text_width

Spot = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, given by its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> Spot:
        """The centre of the box."""
        return self.x + self.width / 2, self.y + self.height / 2

    def moved(self, dx: float, dy: float) -> Box:
        """The same rectangle elsewhere."""
        return Box(self.x + dx, self.y + dy, self.width, self.height)


@dataclass(frozen=True, slots=True)
class EdgePath:
    """An edge: its start, three points for each cubic Bézier curve, the tip of its arrow, and the label's centre."""

    points: tuple[Spot, ...]
    tip: Spot
    label: Spot | None = None

    @property
    def middle(self) -> Spot:
        """The centre of the label: the place reserved for it, or else the middle of the edge."""
        if self.label:
            return self.label
        return self._at(len(self.points) // 6, 0.5)

    @property
    def above(self) -> Spot:
        """The point of a rightward edge at the height of its label's centre."""
        wanted = self.middle[0]
        spots = [self._at(curve, part / 16) for curve in range(len(self.points) // 3) for part in range(17)]
        return min(spots, key=lambda spot: abs(spot[0] - wanted))

    def moved(self, dx: float, dy: float) -> EdgePath:
        """The same edge elsewhere."""
        points = tuple((x + dx, y + dy) for x, y in self.points)
        label = None if self.label is None else (self.label[0] + dx, self.label[1] + dy)
        return EdgePath(points, (self.tip[0] + dx, self.tip[1] + dy), label)

    def _at(self, curve: int, part: float) -> Spot:
        """The point at a fraction, 0 to 1, of one of the curves."""
        weights = (1 - part) ** 3, 3 * (1 - part) ** 2 * part, 3 * (1 - part) * part**2, part**3
        corners = self.points[3 * curve : 3 * curve + 4]
        x = sum(weight * corner[0] for weight, corner in zip(weights, corners, strict=True))
        y = sum(weight * corner[1] for weight, corner in zip(weights, corners, strict=True))
        return x, y


@dataclass(frozen=True, slots=True)
class Placed:
    """Boxes, edges and the boxes of loops, in the order in which they were requested."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    ways: tuple[EdgePath, ...]
    loops: tuple[Box, ...] = ()


_GAP = 48.0  # between layers
_SPACE = 22.0  # between neighbours of a layer
_LANE = 12.0  # width of a dummy node
_ARROW = 8.0


def in_layers(
    sizes: Sequence[float], height: float, edges: Sequence[tuple[int, int]], rightward: bool, label: float = 0.0
) -> Placed:
    """Place boxes on layers, with ``label`` pixels for labels on edges, which must be acyclic."""
    depth = _depths(len(sizes), edges)
    chains = _chains(depth, edges)
    links = [link for chain in chains for link in pairwise(chain)]
    layers = _ordered(depth, links)
    # Sizes along the streams and across them; a dummy node has no length.
    along = [(size if rightward else height) for size in sizes] + [0.0] * (len(depth) - len(sizes))
    across = [(height if rightward else size) for size in sizes] + [_LANE] * (len(depth) - len(sizes))
    gap, space = (max(_GAP, label + 14), _SPACE) if rightward else (_GAP, _SPACE + label * 0.6)
    centres, length, breadth = _centres(layers, along, across, gap, space)

    def spot(along_it: float, across_it: float) -> Spot:
        return (along_it, across_it) if rightward else (across_it, along_it)

    boxes = []
    for place, size in enumerate(sizes):
        x, y = spot(*centres[place])
        boxes.append(Box(x - size / 2, y - height / 2, size, height))
    ways = []
    for chain in chains:
        stops = [(centres[place][0] + along[place] / 2, centres[place][1]) for place in chain[:-1]]
        end = (centres[chain[-1]][0] - along[chain[-1]] / 2, centres[chain[-1]][1])
        curve = _curve([*stops, (end[0] - _ARROW, end[1])])
        way = EdgePath(tuple(spot(*point) for point in curve), spot(*end))
        beside = (way.middle[0] + label / 2, way.middle[1])
        ways.append(way if rightward or not label else EdgePath(way.points, way.tip, beside))
    width, tall = spot(length, breadth + (0.0 if rightward else label))
    return Placed(width, tall, tuple(boxes), tuple(ways))


def _depths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    depth, waiting = [0] * count, [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for tail, head in edges:
        after[tail].append(head)
        waiting[head] += 1
    ready = [place for place in range(count) if not waiting[place]]
    for tail in ready:
        for head in after[tail]:
            depth[head] = max(depth[head], depth[tail] + 1)
            waiting[head] -= 1
            if not waiting[head]:
                ready.append(head)
    return depth


def _chains(depth: list[int], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Each edge as a path of nodes one layer apart; adds the dummy nodes to ``depth``."""
    chains = []
    for tail, head in edges:
        passing = list(range(len(depth), len(depth) + depth[head] - depth[tail] - 1))
        depth.extend(range(depth[tail] + 1, depth[head]))
        chains.append([tail, *passing, head])
    return chains


def _ordered(depth: Sequence[int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for place, level in enumerate(depth):
        layers[level].append(place)
    before: list[list[int]] = [[] for _ in depth]
    after: list[list[int]] = [[] for _ in depth]
    for tail, head in links:
        before[head].append(tail)
        after[tail].append(head)
    rank = {place: float(index) for layer in layers for index, place in enumerate(layer)}
    for sweep in range(4):
        neighbours, turn = (before, layers) if sweep % 2 == 0 else (after, layers[::-1])
        for layer in turn:
            middle = {
                place: sum(rank[near] for near in neighbours[place]) / len(neighbours[place])
                if neighbours[place] else rank[place] for place in layer
            }  # fmt: skip
            layer.sort(key=middle.__getitem__)
            rank.update((place, float(index)) for index, place in enumerate(layer))
    return layers


def _centres(
    layers: Sequence[Sequence[int]], along: Sequence[float], across: Sequence[float], gap: float, space: float
) -> tuple[dict[int, Spot], float, float]:
    """The centre of each node as (along, across), and the size of the picture."""
    breadths = [sum(across[place] + space for place in layer) - space for layer in layers]
    breadth, start = max(breadths, default=0.0), 0.0
    centres = {}
    for layer, own in zip(layers, breadths, strict=True):
        length = max(along[place] for place in layer)
        side = (breadth - own) / 2
        for place in layer:
            centres[place] = (start + length / 2, side + across[place] / 2)
            side += across[place] + space
        start += length + gap
    return centres, max(0.0, start - gap), breadth


def _curve(stops: Sequence[Spot]) -> list[Spot]:
    """A smooth path through these points that leaves and enters along the direction of the layers."""
    points = [stops[0]]
    for (a, b), (c, d) in pairwise(stops):
        points += [((a + c) / 2, b), ((a + c) / 2, d), (c, d)]
    return points


_PADDING = 12.0
_TITLE = 18.0  # height of the line with the loop's name
_BEYOND = 24.0  # from the operators of a loop to its arcs
_ROUNDS = 14  # letters that are reserved for the number of rounds

Ends = tuple[int, int]


@dataclass(frozen=True)
class LoopBox:
    """A loop, the loops around it (outermost first), and the numbers of its operators, those of inner loops too."""

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
            number for number, operator in enumerate(graph.operators)
            if operator.within == head.within or operator.within.is_inner_of(head.within)
        ))
        for head in sorted(heads, key=lambda head: head.within.level)
    )  # fmt: skip


def clusters(groups: Sequence[LoopBox], titles: Sequence[str], around: tuple[str, ...] = ()) -> str:
    """DOT source of loops directly inside of ``around``, as nested clusters of nodes ``n<number>``."""
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
    """Feedback edges as arcs beyond the operators of their loops: below them, or else on their right."""
    found = {}
    for tail, head in feedback:
        group = min((loop for loop in groups if {tail, head} <= {*loop.members}), key=lambda loop: len(loop.members))
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
    """The box of each loop, around its operators, inner loops, and those of these paths that begin in it."""
    arrows = list(ways)
    found: dict[str, Box] = {}
    for group in reversed(groups):
        inner = [found[loop.name] for loop in groups if loop.around == (*group.around, group.name)]
        members = [boxes[number] for number in group.members]
        own = [way for way in arrows if _touches(way, members)]
        spots = [(box.x, box.y) for box in (*members, *inner)]
        spots += [(box.x + box.width, box.y + box.height) for box in (*members, *inner)]
        spots += [way.middle for way in own]
        xs, ys = [x for x, _ in spots], [y for _, y in spots]
        left, top = min(xs) - _PADDING, min(ys) - _PADDING - _TITLE
        found[group.name] = Box(left, top, max(xs) + _PADDING - left, max(ys) + _PADDING - top)
    return tuple(found[group.name] for group in groups)


def with_loops(placed: Placed, feedback: Sequence[Ends], groups: Sequence[LoopBox], rightward: bool) -> Placed:
    """A layout in layers with arcs for feedback edges, after its other edges, and boxes for loops; moved to fit."""
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
    depth = len(group.around)
    depths = [len(loop.around) for loop in groups if loop.around[: depth + 1] == (*group.around, group.name)]
    return max(depths, default=depth) - depth


def _touches(way: EdgePath, members: Sequence[Box]) -> bool:
    x, y = way.tip
    return any(box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height for box in members)


def _end(box: Box, rightward: bool) -> float:
    return box.y + box.height if rightward else box.x + box.width


def _middle(box: Box, rightward: bool) -> float:
    return box.centre[0] if rightward else box.centre[1]


def _spot(spot: Spot, rightward: bool) -> Spot:
    return spot if rightward else (spot[1], spot[0])


NODE_HEIGHT = 42.0
NAME_SIZE, FACT_SIZE = 13.0, 10.5
"""Font sizes of an operator's name and of the line below it, in pixels."""
LONGEST_NAME, WIDEST_NAME = 26, 250.0
"""Most letters and pixels of a name shown in the picture; longer names are cut there and complete in tooltips."""
_ROOM = 9.0
"""Pixels at each side of a name."""
_LARGEST = 600
"""Graphs with more operators and edges are laid out in layers, since Graphviz would take seconds, or minutes. An edge
with room for a label counts twice: it is one more node to Graphviz."""
_POINTS = 72.0  # to Graphviz's inch
_IN_TURN = threading.RLock()
_ASK_PYGRAPHVIZ = """
import sys
import pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
sys.stdout.buffer.write(graph.draw(prog="dot", format=sys.argv[1]))
"""

Asked = Callable[[str, str], bytes]


@dataclass(frozen=True)
class Layout:
    """Positions in pixels from the upper left corner."""

    width: float
    height: float
    # operator to its box; ``ways`` maps each edge to its path, and ``loops`` each loop to the box around it
    boxes: dict[str, Box]
    ways: dict[tuple[str, str], EdgePath]
    loops: dict[str, Box]
    rightward: bool  # whether streams flow to the right, or else downward
    engine: str  # what computed the layout: "dot", "pygraphviz" or "layers"


@dataclass(frozen=True)
class _Drawing:
    """What is laid out: widths of operators, and edges between their numbers; ``back`` has the feedback edges."""

    sizes: tuple[float, ...]
    edges: tuple[tuple[int, int], ...]
    back: tuple[tuple[int, int], ...]
    loops: tuple[LoopBox, ...]
    labelled: bool


def layout(graph: Graph, width: float = 900.0, labelled: bool = False) -> Layout:
    """The layout of a graph; cached. Streams flow to the right if that fits, else downward if that is narrower."""
    # ``labelled`` reserves space for labels of two short lines on the edges.
    sizes = tuple(map(node_width, graph.operators))
    number = {operator.name: index for index, operator in enumerate(graph.operators)}
    ends = [(number[edge.source], number[edge.to]) for edge in graph.edges if not edge.feedback]
    back = [(number[edge.source], number[edge.to]) for edge in graph.edges if edge.feedback]
    drawing = _Drawing(sizes, tuple(ends), tuple(back), loop_boxes(graph), labelled)
    with _IN_TURN:
        engine, placed, rightward = _best(drawing, width)
    names = list(number)
    boxes = dict(zip(names, placed.boxes, strict=True))
    ways = {(names[edge[0]], names[edge[1]]): way for edge, way in zip([*ends, *back], placed.ways, strict=True)}
    loops = {group.name: box for group, box in zip(drawing.loops, placed.loops, strict=True)}
    return Layout(placed.width, placed.height, boxes, ways, loops, rightward, engine)


def node_width(operator: Operator) -> float:
    """Width in pixels of the box of an operator."""
    name = text_width(shortened(operator.name), NAME_SIZE, bold=True)
    return max(84.0, 2 * _ROOM + max(name, text_width(fact_of(operator), FACT_SIZE)))


def fact_of(operator: Operator) -> str:
    """The line below the name of an operator: its kind and its number of workers."""
    return f"{kind_of(operator)} ×{operator.workers}"  # noqa: RUF001


def kind_of(operator: Operator) -> str:
    """The kind of an operator in words; of one without a function, as in a flow read from JSON, "operator"."""
    is_known = operator.function is not None or not operator.traits.runs_user_code
    return operator.kind.replace("_", " ") if is_known else "operator"


def shortened(name: str) -> str:
    """The name as shown in the picture."""
    clean = "".join(letter if letter.isprintable() else " " for letter in name)
    clean = clean if len(clean) <= LONGEST_NAME else clean[: LONGEST_NAME - 1] + ELLIPSIS
    return fitted(clean, WIDEST_NAME, NAME_SIZE, bold=True)


@lru_cache(maxsize=64)
def _best(drawing: _Drawing, width: float) -> tuple[str, Placed, bool]:
    least = _longest_path(drawing)
    rightward = _place(drawing, True) if least <= width else None
    if rightward is not None and rightward[1].width <= width:
        return (*rightward, True)
    engine, downward = _place(drawing, False)
    if downward.width <= least:
        return engine, downward, False
    engine, placed = rightward or _place(drawing, True)
    return (engine, downward, False) if downward.width < placed.width else (engine, placed, True)


def _longest_path(drawing: _Drawing) -> float:
    """Least width in pixels if streams flow to the right: that of the operators of the widest path."""
    after: list[list[int]] = [[] for _ in drawing.sizes]
    waiting = [0] * len(drawing.sizes)
    for tail, head in drawing.edges:
        after[tail].append(head)
        waiting[head] += 1
    reached = list(drawing.sizes)
    ready = [place for place, count in enumerate(waiting) if not count]
    for tail in ready:
        for head in after[tail]:
            reached[head] = max(reached[head], reached[tail] + drawing.sizes[head])
            waiting[head] -= 1
            if not waiting[head]:
                ready.append(head)
    return max(reached, default=0.0)


def _place(drawing: _Drawing, rightward: bool) -> tuple[str, Placed]:
    if len(drawing.sizes) + len(drawing.edges) * (2 if drawing.labelled else 1) <= _LARGEST:
        source = _dot(drawing, rightward)
        for engine, draw in engines():
            try:
                return engine, _read(json.loads(draw(source, "json0")), drawing)
            except (OSError, ValueError, KeyError, RuntimeError):
                continue  # a broken Graphviz, or one without plug-ins: try the next one, then the layered layout
    placed = in_layers(drawing.sizes, NODE_HEIGHT, drawing.edges, rightward, 84.0 if drawing.labelled else 0.0)
    return "layers", with_loops(placed, drawing.back, drawing.loops, rightward) if drawing.loops else placed


def engines() -> list[tuple[str, Asked]]:
    """The installed Graphviz engines, as functions of (DOT, format), in the order in which to try them."""
    found: list[tuple[str, Asked]] = []
    if shutil.which("dot"):
        found.append(("dot", _through_dot))
    if find_spec("pygraphviz"):
        found.append(("pygraphviz", _through_pygraphviz))
    return found


def drawn(source: str, form: str) -> bytes | None:
    """The output of the first Graphviz engine that succeeds; ``None`` if none does. Cached."""
    with _IN_TURN:
        return _drawn(source, form, tuple(engines()))


@lru_cache(maxsize=16)
def _drawn(source: str, form: str, among: tuple[tuple[str, Asked], ...]) -> bytes | None:
    for _, draw in among:
        try:
            return draw(source, form)
        except (OSError, ValueError, RuntimeError):
            continue  # without the plug-in for this format
    return None


def _through_dot(source: str, form: str) -> bytes:
    import graphviz

    try:
        return bytes(graphviz.pipe("dot", form, source.encode(), quiet=True))
    except graphviz.CalledProcessError as error:
        raise RuntimeError(f"dot failed: {error}") from error


def _through_pygraphviz(source: str, form: str) -> bytes:
    """Runs in a separate process, since the library keeps global state and writes font warnings into notebook cells."""
    command = [sys.executable, "-P", "-c", _ASK_PYGRAPHVIZ, form]
    answer = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"pygraphviz failed: {answer.stderr.decode(errors='replace')[-200:]}")
    return answer.stdout


def _dot(drawing: _Drawing, rightward: bool) -> str:
    """DOT source with boxes without names, and labels of the size of the text that will be drawn."""
    labelled = drawing.labelled
    nodes = "".join(f"n{index} [width={size / _POINTS:.3f}];\n" for index, size in enumerate(drawing.sizes))
    label = 'label="00000000000000\\n0"' if labelled else 'label=""'
    lines = "".join(f"n{tail} -> n{head};\n" for tail, head in drawing.edges)
    lines += "".join(f"n{tail} -> n{head} [constraint=false];\n" for tail, head in drawing.back)
    grouped = clusters(drawing.loops, [loop.space for loop in drawing.loops])
    return (
        f"digraph {{ rankdir={'LR' if rightward else 'TB'}; nodesep=0.32; ranksep={0.2 if labelled else 0.42}; pad=0;\n"
        f'node [shape=box fixedsize=true label="" height={NODE_HEIGHT / _POINTS:.3f}];\n'
        f"edge [{label} fontsize=10 arrowsize=0.7];\n{nodes}{grouped}{lines}}}"
    )


def _read(answer: dict[str, Any], drawing: _Drawing) -> Placed:
    """Parse Graphviz's JSON output, whose y axis points upward."""
    left, bottom, right, top = (float(number) for number in answer["bb"].split(","))

    def point(text: str) -> tuple[float, float]:
        x, y = text.split(",")
        return float(x) - left, top - float(y)

    objects = answer.get("objects", ())
    centres = {node["name"]: point(node["pos"]) for node in objects if "pos" in node}
    around = {cluster["name"]: cluster["bb"] for cluster in objects if "bb" in cluster}
    boxes = tuple(
        Box(x - size / 2, y - NODE_HEIGHT / 2, size, NODE_HEIGHT)
        for size, (x, y) in ((size, centres[f"n{index}"]) for index, size in enumerate(drawing.sizes))
    )
    names = [node["name"] for node in objects]
    ways = {}
    for edge in answer.get("edges", ()):
        tip, *points = edge["pos"].removeprefix("e,").split()
        label = point(edge["lp"]) if "lp" in edge else None
        ends = int(names[edge["tail"]][1:]), int(names[edge["head"]][1:])
        ways[ends] = EdgePath(tuple(map(point, points)), point(tip), label)

    def box(text: str) -> Box:
        x0, y0, x1, y1 = text.split(",")
        (west, south), (east, north) = point(f"{x0},{y0}"), point(f"{x1},{y1}")
        return Box(west, north, east - west, south - north)

    loops = tuple(box(around[f"cluster_{place}"]) for place in range(len(drawing.loops)))
    paths = tuple(ways[edge] for edge in (*drawing.edges, *drawing.back))
    return Placed(right - left, top - bottom, boxes, paths, loops)
