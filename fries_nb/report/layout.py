"""Positions of operators and edges in a graph's picture, computed once for each graph.

Graphviz receives boxes of given sizes only; names, colours and states are drawn afterwards. So the layout does not
depend on states, and names need no escaping. ``dot`` from PATH is tried first, then the Graphviz of pygraphviz; without
either, :mod:`fries_nb.report.layering` is used.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> placed = layout(Graph("w1", (Operator("Src"), Operator("Sink")), (Edge("Src", "Sink"),)))
>>> placed.boxes["Src"].x < placed.boxes["Sink"].x, placed.boxes["Src"].y == placed.boxes["Sink"].y
(True, True)
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.report.edge_paths import Box, EdgePath, Placed
from fries_nb.report.layering import in_layers
from fries_nb.report.loop_boxes import LoopBox, clusters, loop_boxes, with_loops
from fries_nb.report.text_widths import ELLIPSIS, fitted, text_width

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
    """Positions in pixels from the upper left corner.

    Attributes:
        boxes: operator to its box; ``ways`` maps each edge to its path, and ``loops`` each loop to the box around it.
        rightward: whether streams flow to the right, or else downward.
        engine: what computed the layout: "dot", "pygraphviz" or "layers".
    """

    width: float
    height: float
    boxes: dict[str, Box]
    ways: dict[tuple[str, str], EdgePath]
    loops: dict[str, Box]
    rightward: bool
    engine: str


@dataclass(frozen=True)
class _Drawing:
    """What is laid out: widths of operators, and edges between their numbers; ``back`` has the feedback edges."""

    sizes: tuple[float, ...]
    edges: tuple[tuple[int, int], ...]
    back: tuple[tuple[int, int], ...]
    loops: tuple[LoopBox, ...]
    labelled: bool


def layout(graph: Graph, width: float = 900.0, labelled: bool = False) -> Layout:
    """The layout of a graph; cached.

    Args:
        graph: the dataflow.
        width: available width in pixels. Streams flow to the right if that fits, else downward if that is narrower.
        labelled: whether to reserve space for labels of two short lines on the edges.
    """
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
    """The output of the first Graphviz engine that succeeds; ``None`` if none does. Cached.

    Args:
        source: DOT source text.
        form: Graphviz's name of the output format.
    """
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
    around = {one["name"]: one["bb"] for one in objects if "bb" in one}
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
