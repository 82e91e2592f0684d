"""Pictures without a kernel: well-formed, complete, escaped, and saying what the plan says."""

from __future__ import annotations

import math
import threading
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from planning_graphs import FIGURE_7, FIGURE_8, FIGURE_9_I, FIGURE_10, W3, W5, drawn

import fries_nb.report.layout as layouts
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator
from fries_nb.errors import DataflowError
from fries_nb.notebook.static_pictures import EdgeLabels
from fries_nb.planning.schedulers import schedule
from fries_nb.report.dag import dag_png, dag_svg
from fries_nb.report.latency import Scale, laid_out, latency_svg, thinned
from fries_nb.report.layout import layout
from fries_nb.report.plan_section import Shown, plan_svg
from fries_nb.telemetry.history import PlotMark, Point
from fries_nb.telemetry.metrics import MetricsSnapshot, OperatorMetrics

SVG = "{http://www.w3.org/2000/svg}"
AWKWARD = ("<b>&amp;", 'say "hi"', "it's", "\\N \\l {a|b}", "naïve 数据流", "a\tb\nc", "a\x00b", "n" * 200)


def nodes(svg: str) -> dict[str, ET.Element]:
    """The operators of a picture, by name."""
    found = [group for group in ET.fromstring(svg).iter(f"{SVG}g") if group.get("class") == "node"]
    return {group.attrib["data-operator"]: group for group in found}


def states(svg: str) -> dict[str, str]:
    """The operators that have a state."""
    return {name: node.attrib["data-state"] for name, node in nodes(svg).items() if node.attrib["data-state"]}


def title(node: ET.Element) -> str:
    """The tooltip of an operator."""
    return node.find(f"{SVG}title").text


def points_of(count: int) -> list[Point]:
    """So many points, four a second."""
    return [Point(100.0 + index / 4, 5.0 + index % 7, 20.0 + index % 11, 4_000.0) for index in range(count)]


@pytest.fixture(params=["graphviz", "layers"])
def engine(request, monkeypatch):
    """With a Graphviz, and as on a machine that has none."""
    if request.param == "layers":
        monkeypatch.setattr(layouts, "engines", list)
    layouts._best.cache_clear()
    yield request.param
    layouts._best.cache_clear()


@pytest.mark.parametrize("graph", [FIGURE_7, FIGURE_8, FIGURE_9_I, FIGURE_10, W3, W5], ids=range(6))
@pytest.mark.parametrize("width", [200.0, 2_000.0])
def test_all_operators_and_edges_are_there_and_none_overlap(engine, graph, width):
    """Whoever lays out: every operator once, every edge, boxes apart from each other and inside the picture."""
    placed = layout(graph, width, labelled=True)
    svg = dag_svg(graph, width=width)
    assert (placed.engine == "layers") == (engine == "layers")
    assert list(nodes(svg)) == list(graph)
    assert svg.count('class="edge"') == len(graph.edges)
    boxes = list(placed.boxes.values())
    for index, one in enumerate(boxes):
        assert one.x >= -0.1
        assert one.y >= -0.1
        assert one.x + one.width <= placed.width + 0.1
        assert one.y + one.height <= placed.height + 0.1
        for other in boxes[index + 1 :]:
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y


def test_edges_end_at_their_operators(engine):
    """An arrow's tip is at the frame of the operator that it leads to, and streams flow one way."""
    placed = layout(FIGURE_8, 2_000.0)
    assert placed.rightward
    for (source, to), way in placed.ways.items():
        assert way.points[0][0] == pytest.approx(placed.boxes[source].x + placed.boxes[source].width, abs=3)
        assert way.tip[0] == pytest.approx(placed.boxes[to].x, abs=3)
    assert not layout(FIGURE_8, 300.0).rightward


def test_a_graph_is_laid_out_once(engine, monkeypatch):
    """Other states, labels and names of the same widths ask no engine again."""
    dag_svg(FIGURE_8)
    monkeypatch.setattr(layouts, "_place", None)
    dag_svg(FIGURE_8, {"J": "head"}, titles={"J": "kept"})


def test_names_are_escaped_everywhere(engine):
    """Markup, quotes, Graphviz's own escapes, other alphabets, control characters and long names are only names."""
    graph = Graph("<i>'\"&", tuple(map(Operator, AWKWARD)), tuple(Edge(a, b) for a, b in pairwise(AWKWARD)))
    svg = dag_svg(graph, {AWKWARD[0]: "target"}, {(AWKWARD[0], AWKWARD[1]): "<1/s>\n&"}, {AWKWARD[2]: "<script>"})
    shown = nodes(svg)
    assert [name for name in AWKWARD if name in shown] == [name for name in AWKWARD if "\x00" not in name]
    assert len(shown) == len(AWKWARD)
    assert "<script>" in title(shown["it's"])
    assert "n" * 200 in title(shown["n" * 200])
    assert "<script" not in svg
    assert ET.fromstring(svg).get("aria-label").startswith("Dataflow <i>'\"&")
    assert dag_png(graph, {AWKWARD[0]: "target head"}).startswith(b"\x89PNG") or engine == "layers"


def test_no_graphviz_no_png(monkeypatch):
    """Where nothing can draw a PNG there is none."""
    monkeypatch.setattr(layouts, "engines", list)
    assert dag_png(FIGURE_8) == b""


def test_a_broken_graphviz_is_passed_over(monkeypatch):
    """A dot without its plug-ins does not cost the picture."""

    def broken(source: str, form: str) -> bytes:
        raise RuntimeError("no such plug-in")

    monkeypatch.setattr(layouts, "engines", lambda: [("dot", broken)])
    layouts._best.cache_clear()
    assert layout(FIGURE_10).engine == "layers"
    layouts._best.cache_clear()


def test_large_and_odd_graphs(engine):
    """One operator, none at all, parts that are not joined, and a thousand operators."""
    assert list(nodes(dag_svg(Graph("one", (Operator("A"),), ())))) == ["A"]
    assert nodes(dag_svg(Graph("none", (), ()))) == {}
    assert len(nodes(dag_svg(drawn("A > B, C > D")))) == 4
    chain = [f"n{index}" for index in range(1_000)]
    assert len(nodes(dag_svg(drawn(" > ".join(chain))))) == 1_000


def test_figure_8_shows_head_and_reason():
    """J is kept: the marker starts at it, passes SP, and FMX is the target."""
    svg = plan_svg(FIGURE_8, schedule("fries", FIGURE_8, ["FMX"]))
    assert states(svg) == {"J": "head mcs", "SP": "mcs", "FMX": "target mcs"}
    assert "J kept (several_tuples)" in title(nodes(svg)["J"])
    assert svg.count('data-state="marked"') == 2


def test_figures_9_and_10_show_what_was_pruned():
    """The Replicate is pruned by the edge-wise rule in figure 9, by the self-join in figure 10."""
    nine = plan_svg(FIGURE_9_I, schedule("fries", FIGURE_9_I, ["C"]))
    assert states(nine) == {"C": "target head mcs", "RE": "pruned"}
    assert "RE pruned (edgewise)" in title(nodes(nine)["RE"])
    ten = plan_svg(FIGURE_10, schedule("fries", FIGURE_10, ["E"]))
    assert states(ten) == {"E": "target head mcs", "RE": "pruned"}
    assert "SJ lets one tuple" in title(nodes(ten)["RE"])


def test_a_pruned_operator_inside_a_component_is_drawn_as_both():
    """P adds nothing to the component, but the marker from K passes it: blue, with the dashed frame of the pruned."""
    many = Emits.ONE_TO_MANY
    operators = (Operator("Src"), Operator("K", many), Operator("P", many, True), Operator("T"), Operator("O"))
    ends = (("Src", "K"), ("K", "P"), ("P", "T"), ("P", "O"))
    graph = Graph("both", operators, tuple(Edge(*pair) for pair in ends))
    plan = schedule("fries", graph, ["T"])
    assert {one.operator: one.pruned for one in plan.covering.pruning} == {"K": False, "P": True}
    svg = plan_svg(graph, plan)
    assert states(svg) == {"K": "head mcs", "P": "mcs pruned", "T": "target mcs"}
    assert "a marker passes on its way to a target; pruned: none starts here" in title(nodes(svg)["P"])
    assert ">Pruned<" in svg
    assert "P" not in [name for name, words in states(plan_svg(graph, schedule("epoch", graph, ["T"]))).items()
                       if "pruned" in words]  # fmt: skip


def test_other_schedulers_show_whom_they_tell():
    """Epoch tells the sources and passes everywhere; naive FCM tells each target and passes nowhere."""
    epoch = Shown.of(FIGURE_10, schedule("epoch", FIGURE_10, ["E"]))
    assert epoch.states["Src"] == "head mcs"
    assert len(epoch.marked) == len(FIGURE_10.edges)
    chain = drawn("Src > A > B > Sink")
    naive = Shown.of(chain, schedule("naive", chain, ["A", "B"]))
    assert naive.marked == frozenset()
    assert naive.states == {"A": "target head mcs", "B": "target head mcs"}


def test_what_there_is_not_is_refused():
    """A state, title or label of what the graph has not is an error with a close match."""
    with pytest.raises(DataflowError, match="did you mean 'FMX'"):
        dag_svg(FIGURE_8, {"FMXX": "target"})
    with pytest.raises(DataflowError, match="no state 'targets'"):
        dag_svg(FIGURE_8, {"FMX": "targets"})
    with pytest.raises(DataflowError, match="Src -> U"):
        dag_svg(FIGURE_8, labels={("Src", "U"): "1/s"})


def test_rates_and_queues_stand_at_edges():
    """The rate of an edge is the head's, or the tail's where several enter; a shared queue stands once."""
    operators = (Operator("A", kind=Kind.SOURCE), Operator("B"), Operator("C", Emits.ONE_TO_MANY),
                 Operator("U", kind=Kind.UNION))  # fmt: skip
    graph = Graph("u", operators, (Edge("A", "B"), Edge("A", "C"), Edge("B", "U"), Edge("C", "U")))
    seen = {name: OperatorMetrics(9, rate, queued) for name, rate, queued in
            (("A", 9_000.0, 0), ("B", 4_512.0, 3), ("C", 10.0, 1_500), ("U", 4_600.0, 7))}  # fmt: skip
    assert EdgeLabels(graph).of(MetricsSnapshot(seen)) == {
        ("A", "B"): "4.5k/s\n3 queued",
        ("A", "C"): "10/s\n1.5k queued",
        ("B", "U"): "4.5k/s\nΣ 7 queued",
        ("C", "U"): "\n",
    }
    assert set(EdgeLabels(graph).of(MetricsSnapshot()).values()) == {"\n"}


def test_layouts_from_several_threads():
    """Graphviz keeps global state, so the threads take turns."""
    layouts._best.cache_clear()
    svgs: list[str] = []
    graphs = [drawn(" > ".join(f"n{index}" for index in range(size))) for size in range(2, 14)]
    threads = [threading.Thread(target=lambda graph=graph: svgs.append(dag_svg(graph))) for graph in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(nodes(svg)) for svg in svgs) == list(range(2, 14))


@pytest.mark.parametrize("count", [0, 1, 2, 300, 10_000])
def test_any_number_of_points(count):
    """No history, one point and an hour of them are drawn; more than can be told apart are thinned."""
    svg = latency_svg(points_of(count), [PlotMark(101.0, "u1", "request", "FM by <fries>")])
    lines = [line.get("points").split() for line in ET.fromstring(svg).iter(f"{SVG}polyline")]
    assert len(lines) == (3 if count else 1)
    assert all(len(line) <= 1_000 for line in lines)
    assert ("no tuples" in svg) == (count == 0)
    assert "FM by &lt;fries&gt;" in svg
    for x, y in (spot.split(",") for line in lines for spot in line):
        assert 0 <= float(x) <= 760
        assert 0 <= float(y) <= 500


def test_nothing_at_all_is_drawn_too():
    """Neither points nor marks."""
    assert "no tuples" in ET.fromstring(latency_svg([], [])).get("aria-label")


def test_marks_stand_where_they_happened():
    """A change is two lines with one label if it was quick, and with a label for each if it was not."""
    quick = [PlotMark(110.0, "u1", "request", "FM"), PlotMark(110.012, "u1", "done", "FM")]
    slow = [PlotMark(105.0, "u1", "request", "FM"), PlotMark(120.0, "u1", "aborted", "FM")]
    assert "12 ms: FM" in latency_svg(points_of(100), quick)
    svg = latency_svg(points_of(100), slow)
    assert ">FM<" in svg
    assert "15 s, aborted: FM" in svg
    assert svg.count('class="mark ') == 2
    assert "failed: FM" in latency_svg([], [PlotMark(1.0, "u9", "failed", "FM")])


def test_labels_never_overlap():
    """However many changes come in a moment: in each lane one label ends before the next begins."""
    marks = [PlotMark(100.0 + index / 3, f"u{index}", "request", f"operator {index} by fries") for index in range(200)]
    across = Scale.of_time(0.0, 70.0, 64.0, 742.0)
    labels = laid_out(marks, 100.0, across)
    assert labels
    assert max(label.at_s for label in labels) == pytest.approx(199 / 3)
    for lane in {label.lane for label in labels}:
        spans = sorted(
            (across.at(one.at_s) - one.ends * 6 * len(one.words), 6 * len(one.words))
            for one in labels if one.lane == lane
        )  # fmt: skip
        assert all(start + length <= after for (start, length), (after, _) in pairwise(spans))


def test_thinning_keeps_peaks():
    """The highest p99 of an interval survives, and the last moment."""
    points = points_of(9_999)
    points[5_000] = Point(points[5_000].at_s, 5.0, 9_000.0, 4_000.0)
    few = thinned(points, 400)
    assert len(few) <= 400
    assert max(point.p99_ms for point in few) == 9_000.0
    assert few[-1].at_s == points[-1].at_s


def test_the_axis_fits_the_range():
    """Linear from zero for values near each other, logarithmic for the surge of a demo; zeros and NaN do no harm."""
    assert not Scale.of([20.0, 30.0], 0, 1).logarithmic
    assert Scale.of([3.0, 20_000.0], 0, 1).logarithmic
    odd = [Point(100.0, 0.0, 0.0, 0.0), Point(101.0, math.nan, math.inf, 1.0), Point(102.0, 0.0, 5_000.0, 1.0)]
    assert "nan" not in latency_svg(odd, [])
    for span in (0.5, 7.0, 100.0, 5_000.0, 1e6, 1e8):
        assert 2 <= len(Scale.of_time(0.0, span, 0.0, 700.0).ticks) <= 12
