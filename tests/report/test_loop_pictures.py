"""A loop in a picture: a box around its operators, dashed edges back, by Graphviz and without it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from loop_graphs import loop_graphs

from fries_nb.dataflow import DataflowBuilder, Graph, memory, rate
from fries_nb.report import layout as layouts
from fries_nb.report.dag import dag_png, dag_svg
from fries_nb.report.layout import Box, Layout, layout


def same(row):
    """A function of a row."""
    return row


def nested() -> Graph:
    """A loop in a loop between two operators; the outer one has a name that needs escaping."""
    flow = DataflowBuilder("nested")

    def outer(stream):
        return stream.map("A", same).iterate("M", lambda rows: rows.split("B", same)).split("C", same)

    flow.source("S", rate(1)).map("Before", same).iterate('<L> "x"', outer).sink("out", memory())
    return flow.graph()


GRAPH, OUTER = nested(), '<L> "x"'


@pytest.fixture(params=["Graphviz", "layers"])
def engine(request, monkeypatch):
    """Both ways to lay out a graph."""
    layouts._best.cache_clear()
    if request.param == "layers":
        monkeypatch.setattr(layouts, "engines", list)
    yield request.param
    layouts._best.cache_clear()


def _is_inside(inner: Box, outer: Box) -> bool:
    right, bottom = inner.x + inner.width, inner.y + inner.height
    return outer.x <= inner.x and outer.y <= inner.y and (
        right <= outer.x + outer.width and bottom <= outer.y + outer.height
    )  # fmt: skip


def _check_boxes(graph: Graph, placed: Layout) -> None:
    """Operators are in the boxes of their loops, which are nested and in the picture."""
    everywhere = Box(-0.5, -0.5, placed.width + 1, placed.height + 1)
    for operator in graph.operators:
        assert _is_inside(placed.boxes[operator.name], everywhere)
        for loop in operator.within.loops:
            assert _is_inside(placed.boxes[operator.name], placed.loops[loop])
    for loop, box in placed.loops.items():
        assert _is_inside(box, everywhere)
        for around in graph.operator(loop).within.loops[:-1]:
            assert _is_inside(box, placed.loops[around])


@pytest.mark.parametrize("width", [2_000.0, 300.0])
@pytest.mark.parametrize("labelled", [False, True])
def test_boxes_are_around_loops(engine, width, labelled):
    """To the right and downward; nothing else is in them, and no operators overlap."""
    placed = layout(GRAPH, width, labelled)
    assert placed.rightward == (width > 1_000)
    assert (placed.engine == "layers") == (engine == "layers")
    _check_boxes(GRAPH, placed)
    for name in ("S", "Before", "out"):
        x, y = placed.boxes[name].centre
        assert not any(_is_inside(Box(x, y, 0, 0), box) for box in placed.loops.values())
    x, y = placed.boxes["A"].centre
    assert not _is_inside(Box(x, y, 0, 0), placed.loops["M"])


@given(loop_graphs())
def test_boxes_of_any_loops_in_layers(graph):
    """Without Graphviz as well, whatever the loops."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "engines", list)
        layouts._best.cache_clear()
        for width in (2_000.0, 1.0):
            _check_boxes(graph, layout(graph, width))
    layouts._best.cache_clear()


def test_feedback_leads_back_to_the_head(engine):
    """From its tail to the border of the head's box, and not along the edges forward."""
    placed = layout(GRAPH, 2_000.0)
    for edge in (edge for edge in GRAPH.edges if edge.feedback):
        way, head, tail = placed.ways[edge.source, edge.to], placed.boxes[edge.to], placed.boxes[edge.source]
        around = Box(head.x - 1, head.y - 1, head.width + 2, head.height + 2)
        assert _is_inside(Box(*way.tip, 0, 0), around)
        assert tail.x - 1 <= way.points[0][0] <= tail.x + tail.width + 1
        assert abs(way.middle[1] - head.centre[1]) > 5


def test_the_picture_names_loops_and_rounds(engine):
    """A box for each loop with its title, dashed edges back; valid XML whatever the names."""
    svg = dag_svg(GRAPH, {"B": "target"}, width=2_000.0, rounds={"M": "7 rounds"})
    root = ElementTree.fromstring(svg)
    found = {node.get("data-loop"): node.get("aria-label") for node in root.iter() if node.get("data-loop")}
    assert found == {OUTER: f"loop {OUTER}", "M": "loop M: 7 rounds"}
    back = [node.get("data-edge") for node in root.iter() if node.get("class") == "edge feedback"]
    assert back == [str(number) for number, edge in enumerate(GRAPH.edges) if edge.feedback]
    assert re.search(r"\.feedback \.line \{ stroke-dasharray", svg)


def test_a_picture_without_loops_has_no_boxes():
    """And no dashed edges."""
    flow = DataflowBuilder("plain")
    flow.source("S", rate(1)).sink("out", memory())
    svg = dag_svg(flow.graph())
    assert 'class="loop"' not in svg
    assert 'class="edge feedback"' not in svg


def test_as_png():
    """By Graphviz, with any names."""
    assert dag_png(GRAPH).startswith(b"\x89PNG")
