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
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from fries_nb.dataflow.graph import Graph
from fries_nb.report.edge_paths import Box, EdgePath, Placed
from fries_nb.report.layering import in_layers
from fries_nb.report.loop_boxes import LoopBox, clusters, loop_boxes, with_loops

NODE_HEIGHT = 42.0
LONGEST_NAME = 26
"""Longest name shown in the picture; longer names are cut there and complete in tooltips."""
_LARGEST = 300
"""Graphs with more operators are laid out in layers, since Graphviz would take minutes."""
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
    sizes = tuple(node_width(operator.name) for operator in graph.operators)
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


def node_width(name: str) -> float:
    """Width in pixels of the box of an operator with this name."""
    return max(84.0, 26.0 + 7.6 * _columns(shortened(name)))


def shortened(name: str) -> str:
    """The name as shown in the picture."""
    clean = "".join(letter if letter.isprintable() else " " for letter in name)
    return clean if len(clean) <= LONGEST_NAME else clean[: LONGEST_NAME - 1] + "…"


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


@lru_cache(maxsize=64)
def _best(drawing: _Drawing, width: float) -> tuple[str, Placed, bool]:
    engine, placed = _place(drawing, True)
    if placed.width <= width:
        return engine, placed, True
    engine, downward = _place(drawing, False)
    return (engine, downward, False) if downward.width < placed.width else (engine, placed, True)


def _place(drawing: _Drawing, rightward: bool) -> tuple[str, Placed]:
    if len(drawing.sizes) <= _LARGEST:
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
    """The output of the first Graphviz engine that succeeds; ``None`` if none does.

    Args:
        source: DOT source text.
        form: Graphviz's name of the output format.
    """
    with _IN_TURN:
        for _, draw in engines():
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
