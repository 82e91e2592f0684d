"""Text of any length and alphabet stays in its box and in its picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from fries_nb.constraints.judgements import ConstraintState
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.constraints import constraint_of
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.report import layout as layouts
from fries_nb.report.constraint_bars import constraint_svg
from fries_nb.report.dag import dag_png, dag_svg
from fries_nb.report.host_rows import hosts_svg
from fries_nb.report.latency import latency_svg
from fries_nb.report.layout import FACT_SIZE, NAME_SIZE, layout
from fries_nb.report.markup import fitted, text_width
from fries_nb.telemetry.history import PlotMark, Point

SVG = "{http://www.w3.org/2000/svg}"
# In Chromium, in DejaVu Sans Bold at 13 px.
MEASURED = {
    "W" * 20: 286.8, "M" * 20: 258.7, "m" * 26: 352.2, "w" * 26: 312.3, "i" * 26: 115.9, "@" * 26: 338.0,
    "%" * 26: 338.7, "MERCHANT_MODEL_WITH_WINDO": 244.3, "CUSTOMER_ID": 103.5, '<b>x</b> & "y"': 117.7,
    "Überraschung": 102.8, "The quick brown fox jumps over it": 250.0, "0123456789" * 3: 271.4,
    "e\u0301" * 13: 114.8, "~!#$^*()+{}|:<>?": 135.0, "Kundenmodell für Händler": 194.1, "модель клиента Щука": 170.5,
}  # fmt: skip
LONG = (
    "W" * 60, "客户评分模型" * 10, '<b>x</b> & "y"',
    "the merchant model that looks at payments of terminals",
)


def long_graph(names: tuple[str, ...] = LONG, workers: int = 200) -> Graph:
    """A chain of operators of these names."""
    edges = tuple(Edge(a, b) for a, b in pairwise(names))
    return Graph("odd", tuple(Operator(name, workers=workers) for name in names), edges)


@pytest.fixture(params=["graphviz", "layers"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With a Graphviz, and as on a machine that has none."""
    if request.param == "layers":
        monkeypatch.setattr(layouts, "engines", list)
    layouts._best.cache_clear()
    return str(request.param)


@pytest.mark.parametrize("text", MEASURED)
def test_no_text_is_wider_than_it_is_taken_to_be(text: str) -> None:
    """And none is taken to be half as wide again, which would waste room."""
    assert MEASURED[text] <= text_width(text, 13, bold=True) <= 1.5 * MEASURED[text]


@pytest.mark.usefixtures("engine")
def test_names_stay_in_their_boxes_and_are_whole_in_tooltips() -> None:
    """Whatever the letters, and with many workers below the name."""
    graph = long_graph()
    root = ET.fromstring(dag_svg(graph, width=400.0))
    nodes = [one for one in root.iter(f"{SVG}g") if one.get("class") == "node"]
    assert [one.get("data-operator") for one in nodes] == list(LONG)
    for name, node in zip(LONG, nodes, strict=True):
        texts = {one.get("class"): one.text or "" for one in node.iter(f"{SVG}text")}
        [box] = [one for one in node.iter(f"{SVG}rect") if one.get("class") == "box"]
        width = float(box.get("width", "0"))
        assert text_width(texts["name"], NAME_SIZE, bold=True) < width
        assert text_width(texts["fact"], FACT_SIZE) < width
        assert texts["fact"].endswith("×200")  # noqa: RUF001
        assert node.findtext(f"{SVG}title", "").startswith(f"{name}: ")
        assert texts["name"] == name or (texts["name"].endswith("…") and name.startswith(texts["name"][:-1]))


def test_words_beside_pictures_stay_in_the_pictures() -> None:
    """Labels of changes, sequences of constraints, operators with bins; names that cannot be wrapped are cut."""
    graph = long_graph(("W" * 60, "m" * 60))
    marks = [PlotMark(100.1, "u1", "request", f"{'W' * 60}, {'m' * 60} by fries")]
    constraint = constraint_of(graph, ["W" * 60, "m" * 60], 80.0, 15.0, "tell")
    judged = ConstraintState(constraint, ConstraintStatus.NOT_YET_JUDGED, "w" * 200)
    hosts = TopologyStatus((0,), 1, "idle", {"W" * 90: (0,)}, {}, {"W" * 90: RoutingTable.even(1)})
    for drawing in (
        latency_svg([Point(100.0, 1, 1, 1), Point(101.0, 1, 1, 1)], marks), constraint_svg(judged), hosts_svg(hosts, {})
    ):  # fmt: skip
        root = ET.fromstring(drawing)
        width, found = float(root.get("width", "0")), 0
        for text in root.iter(f"{SVG}text"):
            words = text.text or ""
            if "WWW" in words or "www" in words:
                found += 1
                size = 13.0 if text.get("class") == "sequence" else 11.5
                bold = text.get("class") in ("sequence", "name")
                assert float(text.get("x", "0")) + text_width(words, size, bold) <= width, words
        assert found, drawing[:80]


def test_large_graphs_with_many_edges_are_laid_out_in_layers_and_pictures_are_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Graphviz would take seconds for 200 operators with 400 labelled edges; for a chain of as many it does not."""
    asked: list[str] = []

    def counted(source: str, form: str) -> bytes:
        asked.append(form)
        if form == "png":
            return b"png"
        raise RuntimeError("only counted")

    monkeypatch.setattr(layouts, "engines", lambda: [("dot", counted)])
    layouts._best.cache_clear()
    names = [f"operator {place}" for place in range(200)]
    edges = [Edge(names[place], names[place + step]) for step in (1, 7) for place in range(200 - step)]
    assert layout(Graph("wide", tuple(map(Operator, names)), tuple(edges)), 460.0, labelled=True).engine == "layers"
    assert asked == []
    layout(Graph("chain", tuple(map(Operator, names)), tuple(edges[:199])), 460.0, labelled=True)
    assert asked == ["json0"]  # downward at once, since the operators alone are wider side by side
    layouts._best.cache_clear()


def test_a_picture_for_print_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is shown again at the end of each change; its picture without states is the same."""
    whole = layouts.engines()
    if not whole:
        pytest.skip("no Graphviz")
    asked: list[str] = []
    [(name, draw), *_] = whole
    engines = [(name, lambda source, form: (asked.append(form), draw(source, form))[1])]
    monkeypatch.setattr(layouts, "engines", lambda: engines)
    graph = long_graph(("A", "B"))
    assert dag_png(graph) == dag_png(graph)
    assert dag_png(graph, {"A": "target"}) != dag_png(graph)
    assert asked.count("png") == 2
    assert fitted("", 10, 13) == ""
