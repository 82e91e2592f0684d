"""A dataflow graph as SVG: operators are boxes, and their roles in a change are states.

A state is one or more words: ``target``, ``head``, ``mcs`` and ``pruned`` show a plan, with ``changed`` in place of
``target`` once it has been carried out; ``failed`` is where a run has ended; ``old``, ``new``, ``both`` and
``here`` versions that tuples meet; ``answered``, ``wrong`` and ``missing`` a student's answer; ``added``, ``removed``
and ``changed`` a difference. CSS maps ``data-state`` to a colour and, independent of colour vision, to a shape: heads
have a ring, pruned operators, old versions and what is missing or removed a broken frame, what is added a thick one.
States can therefore be changed in place, without a new layout or drawing.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> graph = Graph("w1", (Operator("Src"), Operator("FD")), (Edge("Src", "FD"),))
>>> svg = dag_svg(graph, {"FD": "target head"}, {("Src", "FD"): "1,200/s"})
>>> 'data-operator="FD" data-state="target head"' in svg, "1,200/s" in svg
(True, True)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.errors import DataflowError, unknown
from fries_nb.report import markup
from fries_nb.report.layout import (
    FACT_SIZE,
    NAME_SIZE,
    Box,
    EdgePath,
    Layout,
    Spot,
    clusters,
    drawn,
    fact_of,
    kind_of,
    layout,
    loop_boxes,
    loop_title,
    shortened,
)
from fries_nb.report.markup import (
    FONT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    escaped,
    fitted,
    number,
    picture,
    themed,
)

Ends = tuple[str, str]
STATES = {
    "target": "Target of the change", "changed": "Changed", "failed": "Failed", "head": "Gets the message",
    "mcs": "Marker passes", "pruned": "Pruned",
    "added": "Added", "removed": "Removed",
    "old": "Old version", "new": "New version", "both": "Both versions", "here": "This step",
    "answered": "Your answer", "wrong": "Not right", "missing": "Missing",
}  # fmt: skip
_SAID = {
    "target": "target of the change",
    "changed": "changed",
    "failed": "the run has failed here",
    "head": "head: gets the message",
    "mcs": "a marker passes",
    "pruned": "pruned: takes no part",
    "added": "added",
    "removed": "removed",
    "old": "old version",
    "new": "new version",
    "both": "both versions",
    "here": "in this step",
    "answered": "in the answer",
    "wrong": "in the answer, and not right",
    "missing": "missing in the answer",
}
_TAKING_PART = {"target", "changed", "head"}
_MARGIN = 14.0
_LEGEND_WIDTH, _LEGEND_HEIGHT = 420.0, 30.0
_SAMPLE, _LOOP_SIZE = 22.0, 11.0
_IN_COLOUR = ", ".join(
    f'[data-state~="{state}"] .{text}'
    for state in (
        "mcs", "head", "target", "changed", "failed", "added", "removed", "old", "new", "both", "answered", "wrong",
        "missing",
    )
    for text in ("name", "fact")
)  # fmt: skip

_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{FONT}; font-size: {NAME_SIZE:g}px; fill: {INK}",
    ".box": f"fill: {markup.BAND}; stroke: {markup.SOFT}; stroke-width: 1.2px",
    ".ring": f"fill: none; stroke: {INK}; stroke-width: 2px; visibility: hidden",
    ".name": "font-weight: 600; text-anchor: middle",
    ".fact": f"font-size: {FACT_SIZE:g}px; fill: {markup.SOFT}; text-anchor: middle",
    ".line": f"fill: none; stroke: {markup.SOFT}; stroke-width: 1.3px",
    ".tip": f"fill: {markup.SOFT}; stroke: none",
    ".flow": f"font-size: 10.5px; fill: {INK}; text-anchor: middle; paint-order: stroke; stroke: {markup.PAPER}; "
    "stroke-width: 4px; stroke-linejoin: round",
    ".rule": f"stroke: {markup.LINE}; stroke-width: 1px",
    ".loop-box": f"fill: none; stroke: {markup.SOFT}; stroke-width: 1px; stroke-dasharray: 2 3",
    ".loop-name": f"font-size: {_LOOP_SIZE:g}px; fill: {markup.SOFT}; paint-order: stroke; "
    f"stroke: {markup.PAPER}; stroke-width: 4px",
    ".feedback .line": "stroke-dasharray: 6 4",
    ".key": f"font-size: 11px; fill: {markup.SOFT}",
    '[data-state~="mcs"] .box': f"fill: {SKY}; stroke: #20638c; stroke-width: 1.5px",
    '[data-state~="head"] .box': f"fill: {SKY}; stroke: #20638c; stroke-width: 1.5px",
    '[data-state~="target"] .box': f"fill: #fbe9c6; stroke: {ORANGE}; stroke-width: 3px",
    '[data-state~="changed"] .box': f"fill: {ORANGE}; stroke: #7a5400; stroke-width: 2.5px",
    '[data-state~="failed"] .box': f"fill: #f6c9b0; stroke: {VERMILION}; stroke-width: 4px",
    '[data-state~="added"] .box': f"fill: #d3f0e5; stroke: {GREEN}; stroke-width: 4px",
    '[data-state~="removed"] .box': f"fill: #fdf3ee; stroke: {VERMILION}; stroke-width: 2px; stroke-dasharray: 7 4",
    _IN_COLOUR: f"fill: {INK}",
    '[data-state~="old"] .box': f"fill: {SKY}; stroke: #20638c; stroke-width: 2px; stroke-dasharray: 2 2.5",
    '[data-state~="new"] .box': f"fill: {ORANGE}; stroke: #7a5400; stroke-width: 2.5px",
    '[data-state~="both"] .box': f"fill: {PURPLE}; stroke: #5c2146; stroke-width: 2.5px; stroke-dasharray: 9 3",
    '[data-state~="answered"] .box': f"fill: {SKY}",
    '[data-state~="wrong"] .box': f"fill: #f6c9b0; stroke: {VERMILION}; stroke-width: 4px",
    '[data-state~="missing"] .box': f"fill: #fdf3ee; stroke: {VERMILION}; stroke-width: 3px; stroke-dasharray: 7 4",
    '[data-state~="head"] .ring, [data-state~="here"] .ring': "visibility: visible",
    '[data-state~="pruned"] .box': "stroke-dasharray: 5 4",
    '[data-state="pruned"] .box': "fill-opacity: 0.45",
    '[data-state="pruned"] .name': "fill-opacity: 0.62",
    '[data-state~="marked"] .line': "stroke: #0072B2; stroke-width: 3px",
    '[data-state~="marked"] .tip': "fill: #0072B2",
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_INK}",
    ".box": f"fill: {markup.NIGHT_BAND}; stroke: {markup.NIGHT_SOFT}",
    ".ring": f"stroke: {markup.NIGHT_INK}",
    ".fact": f"fill: {markup.NIGHT_SOFT}",
    ".line": f"stroke: {markup.NIGHT_SOFT}",
    ".tip": f"fill: {markup.NIGHT_SOFT}",
    ".flow": f"fill: {markup.NIGHT_INK}; stroke: {markup.NIGHT_PAPER}",
    ".rule": f"stroke: {markup.NIGHT_LINE}",
    ".loop-box": f"stroke: {markup.NIGHT_SOFT}",
    ".loop-name": f"fill: {markup.NIGHT_SOFT}; stroke: {markup.NIGHT_PAPER}",
    ".key": f"fill: {markup.NIGHT_SOFT}",
    '[data-state~="mcs"] .box': f"fill: {SKY}; stroke: #bfe3f8",
    '[data-state~="head"] .box': f"fill: {SKY}; stroke: #bfe3f8",
    '[data-state~="target"] .box': f"fill: #fbe9c6; stroke: {ORANGE}",
    '[data-state~="changed"] .box': f"fill: {ORANGE}; stroke: #ffe0a0",
    '[data-state~="failed"] .box': f"fill: #f6c9b0; stroke: {VERMILION}",
    '[data-state~="added"] .box': f"fill: #d3f0e5; stroke: {GREEN}",
    '[data-state~="removed"] .box': f"fill: #fdf3ee; stroke: {VERMILION}",
    '[data-state~="old"] .box': f"fill: {SKY}; stroke: #bfe3f8",
    '[data-state~="new"] .box': f"fill: {ORANGE}; stroke: #ffe0a0",
    '[data-state~="both"] .box': f"fill: {PURPLE}; stroke: #f6d3e6",
    '[data-state~="answered"] .box': f"fill: {SKY}",
    '[data-state~="wrong"] .box': f"fill: #f6c9b0; stroke: {VERMILION}",
    '[data-state~="missing"] .box': f"fill: #fdf3ee; stroke: {VERMILION}",
    _IN_COLOUR: f"fill: {INK}",
    '[data-state~="marked"] .line': f"stroke: {SKY}",
    '[data-state~="marked"] .tip': f"fill: {SKY}",
}
_CSS = (
    themed(".fries-dag-svg", _LIGHT, _DARK)
    + "\n@media (prefers-reduced-motion: no-preference) { .fries-dag-svg .box, .fries-dag-svg .line "
    "{ transition: fill 0.2s, stroke 0.2s } }"
)


def dag_svg(
    graph: Graph,
    states: Mapping[str, str] = {},
    labels: Mapping[Ends, str] = {},
    titles: Mapping[str, str] = {},
    marked: Collection[Ends] | None = None,
    width: float = 900.0,
    rounds: Mapping[str, str] = {},
) -> str:
    """The graph as a self-contained SVG element, whose layout runs to the right if it fits, else downward."""
    # A legend explains the ``states`` (keys of ``STATES``) that occur; ``titles`` are appended to tooltips of
    # operators. By default the edges between operators with a state other than ``pruned`` are ``marked``.
    _refuse_unknown(graph, states, labels, titles)
    taking_part = {name for name, words in states.items() if (_TAKING_PART | {"mcs"}) & set(words.split())}
    if marked is None:
        marked = {(edge.source, edge.to) for edge in graph.edges if {edge.source, edge.to} <= taking_part}
    legend = explained(states, marked)
    return draw(graph, layout(graph, width, bool(labels)), states, labels, titles, marked, legend, rounds)


def dag_png(graph: Graph, states: Mapping[str, str] = {}, labels: Mapping[Ends, str] = {}) -> bytes:
    """The graph as a PNG drawn by Graphviz; empty if no usable Graphviz is installed, or if the graph is too large."""
    _refuse_unknown(graph, states, labels, {})
    placed = layout(graph)
    if placed.engine == "layers":
        return b""
    ids = {name: f"n{index}" for index, name in enumerate(graph)}
    nodes = "".join(f"{ids[name]} [{_dot_attributes(name, states.get(name, ''))}];\n" for name in graph)
    edges = "".join(
        f"{ids[edge.source]} -> {ids[edge.to]} [label={_dot_text(labels.get((edge.source, edge.to), ''))}"
        f"{' style=dashed constraint=false' if edge.feedback else ''}];\n"
        for edge in graph.edges
    )
    groups = loop_boxes(graph)
    grouped = clusters(groups, [_dot_text(loop_title(shortened(group.name), {})) for group in groups])
    source = (
        f"digraph {{ rankdir={'LR' if placed.rightward else 'TB'}; dpi=120; pad=0.15;\n"
        'node [shape=box fontname="sans-serif" fontsize=12];\n'
        f'edge [fontname="sans-serif" fontsize=9 color="{markup.SOFT}"];\n{nodes}{grouped}{edges}}}'
    )
    return drawn(source, "png") or b""


def operator_title(operator: Operator) -> str:
    """An operator's declaration in one line."""
    workers = f"{operator.workers} worker{'' if operator.workers == 1 else 's'}"
    keyed = f", keyed by {', '.join(operator.key)}" if operator.key else ""
    return f"{operator.name}: {kind_of(operator)}, {workers}{keyed}"


def state_words(words: str) -> str:
    """A state as text for screen readers.

    >>> state_words("target head mcs")
    'target of the change, head: gets the message'
    >>> state_words("mcs pruned")
    'a marker passes on its way to a target; pruned: none starts here'
    """
    known = [word for word in words.split() if word in _SAID]
    if known == ["mcs", "pruned"]:
        return f"{_SAID['mcs']} on its way to a target; pruned: none starts here"
    return ", ".join(_SAID[word] for word in known if word != "mcs" or known == ["mcs"])


def explained(states: Mapping[str, str], marked: Collection[Ends]) -> dict[str, str]:
    """The states that occur in a picture, with their meaning, for its legend.

    >>> explained({"A": "target head mcs", "B": "target mcs"}, [("A", "B")])
    {'target': 'Target of the change', 'head': 'Gets the message', 'mcs': 'Marker passes'}
    >>> explained({"A": "changed mcs", "B": ""}, [])
    {'changed': 'Changed'}
    """
    seen = [set(words.split()) for words in states.values()]
    found = {state for words in seen for state in words if state != "mcs"}
    if marked or any("mcs" in words and not words & _TAKING_PART for words in seen):
        found.add("mcs")
    return {state: words for state, words in STATES.items() if state in found}


def draw(
    graph: Graph,
    placed: Layout,
    states: Mapping[str, str],
    labels: Mapping[Ends, str],
    titles: Mapping[str, str],
    marked: Collection[Ends],
    legend: Mapping[str, str],
    rounds: Mapping[str, str] = {},
    facts: Mapping[str, str] = {},
) -> str:
    """Draw a graph that has been laid out; ``facts`` replace the kind and the number of workers below a name."""
    width = placed.width + 2 * _MARGIN
    height = placed.height + 2 * _MARGIN
    key, key_width, key_height = _legend(legend, width, height) if legend else ("", 0.0, 0.0)
    total = max(width, key_width)
    shift = (total - placed.width) / 2
    loops = "".join(_loop(name, box, loop_title(shortened(name), rounds)) for name, box in placed.loops.items())
    edges = "".join(
        _edge(
            index, placed.ways[ends], placed.rightward, "marked" if ends in marked else "", labels.get(ends, ""),
            "edge feedback" if graph.edges[index].feedback else "edge",
        )
        for index, ends in enumerate((edge.source, edge.to) for edge in graph.edges)
    )  # fmt: skip
    nodes = "".join(
        _node(operator, placed.boxes[name], states.get(name, ""), titles.get(name, ""), facts.get(name, ""))
        for name, operator in graph.by_name.items()
    )
    name = f"Dataflow {graph.name}: {len(graph.operators)} operators"
    graph_at = f'<g transform="translate({number(shift)} {number(_MARGIN)})">{edges}{loops}{nodes}</g>'
    css, size = _CSS.replace(">", "&gt;"), (total, height + key_height)
    return picture("dag", size, name, css, graph_at, key, role="group")


def _node(operator: Operator, box: Box, state: str, title: str, fact: str) -> str:
    x, y = box.centre
    facts = fitted(fact or fact_of(operator), box.width - 6, FACT_SIZE)
    alt_text = ", ".join(filter(None, [operator_title(operator), state_words(state)]))
    shape = f'x="{number(box.x)}" y="{number(box.y)}" width="{number(box.width)}" height="{number(box.height)}"'
    ring = (
        f'x="{number(box.x - 4)}" y="{number(box.y - 4)}" width="{number(box.width + 8)}" '
        f'height="{number(box.height + 8)}"'
    )
    return (
        f'<g class="node" data-operator="{escaped(operator.name)}" data-state="{escaped(state)}" role="img" '
        f'aria-label="{escaped(alt_text)}"><title>{escaped(_tooltip(operator, title))}</title>'
        f'<rect class="ring" {ring} rx="12"/><rect class="box" {shape} rx="8"/>'
        f'<text class="name" x="{number(x)}" y="{number(y - 2)}">{escaped(shortened(operator.name))}</text>'
        f'<text class="fact" x="{number(x)}" y="{number(y + 13)}">{escaped(facts)}</text></g>'
    )


def _tooltip(operator: Operator, title: str) -> str:
    return "\n".join(filter(None, [operator_title(operator), title]))


def _loop(name: str, box: Box, title: str) -> str:
    shape = f'x="{number(box.x)}" y="{number(box.y)}" width="{number(box.width)}" height="{number(box.height)}"'
    return (
        f'<g class="loop" data-loop="{escaped(name)}" role="img" aria-label="{escaped(title)}">'
        f"<title>{escaped(f'loop {name}')}</title>"
        f'<rect class="loop-box" {shape} rx="10"/>'
        f'<text class="loop-name" x="{number(box.x + 9)}" y="{number(box.y + 15)}">'
        f"{escaped(fitted(title, box.width - 14, _LOOP_SIZE))}</text></g>"
    )


def _edge(index: int, way: EdgePath, rightward: bool, state: str, label: str, kind: str) -> str:
    start, *others = way.points
    curves = " ".join(f"{number(x)},{number(y)}" for x, y in others)
    path = f"M{number(start[0])},{number(start[1])} C{curves}"
    x, y = way.above if rightward else way.middle
    upper, _, lower = label.partition("\n")
    texts = "".join(
        f'<text class="flow" x="{number(x)}" y="{number(y + dy)}">{escaped(line)}</text>'
        for line, dy in ((upper, -5.0 if rightward else -4.0), (lower, 13.0 if rightward else 11.0))
    )
    return (
        f'<g class="{kind}" data-edge="{index}" data-state="{state}"><path class="line" d="{path}"/>'
        f'<polygon class="tip" points="{_arrow(way.points[-1], way.tip)}"/>{texts}</g>'
    )


def _arrow(base: Spot, tip: Spot) -> str:
    dx, dy = tip[0] - base[0], tip[1] - base[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    across = (-dy / length * 3.6, dx / length * 3.6)
    corners = ((base[0] + across[0], base[1] + across[1]), tip, (base[0] - across[0], base[1] - across[1]))
    return " ".join(f"{number(x)},{number(y)}" for x, y in corners)


def _legend(legend: Mapping[str, str], width: float, top: float) -> tuple[str, float, float]:
    """The legend below the picture, in as many rows as needed, and its height."""
    limit = max(width, _LEGEND_WIDTH)
    placed: list[tuple[float, int, str, str]] = []
    x, row, widest = _MARGIN, 0, width
    for state, words in legend.items():
        room = _SAMPLE + 8 + 6.2 * len(words) + 18
        if x + room > limit and x > _MARGIN:
            x, row = _MARGIN, row + 1
        placed.append((x, row, state, words))
        x += room
        widest = max(widest, x)
    rows = "".join(_sample(x, top + 16 + 22 * row, state, words) for x, row, state, words in placed)
    rule = f'<line class="rule" x1="{_MARGIN}" x2="{number(widest - _MARGIN)}" y1="{number(top)}" y2="{number(top)}"/>'
    return f'<g class="legend" aria-hidden="true">{rule}{rows}</g>', widest, _LEGEND_HEIGHT + 22 * row


def _sample(x: float, y: float, state: str, words: str) -> str:
    shape = f'x="{number(x + 4)}" y="{number(y - 7)}" width="{_SAMPLE - 6}" height="14" rx="4"'
    ring = f'x="{number(x + 1)}" y="{number(y - 10)}" width="{_SAMPLE}" height="20" rx="6"'
    return (
        f'<g data-state="{state}"><rect class="ring" {ring}/><rect class="box" {shape}/></g>'
        f'<text class="key" x="{number(x + _SAMPLE + 8)}" y="{number(y + 4)}">{escaped(words)}</text>'
    )


def _dot_attributes(name: str, state: str) -> str:
    words = set(state.split())
    fill = ORANGE if {"target", "changed"} & words else SKY if "mcs" in words else markup.BAND
    style = '"rounded,filled,dashed"' if "pruned" in words else '"rounded,filled"'
    ring = " peripheries=2 penwidth=2" if "head" in words else ""
    return f'label={_dot_text(shortened(name))} fillcolor="{fill}" style={style}{ring}'


def _dot_text(text: str) -> str:
    """The text as a plain label for Graphviz, without escapes, entities or HTML."""
    plain = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


def _refuse_unknown(
    graph: Graph, states: Mapping[str, str], labels: Mapping[Ends, str], titles: Mapping[str, str]
) -> None:
    edges = {(edge.source, edge.to) for edge in graph.edges}
    for name in _names(states, titles):
        if name not in graph:
            raise DataflowError(unknown("operator", name, graph))
    for ends in labels:
        if ends not in edges:
            raise DataflowError(f"a label for the edge {' -> '.join(ends)}, which dataflow {graph.name!r} has not")
    for name, words in states.items():
        for word in words.split():
            if word not in STATES:
                raise DataflowError(f"operator {name!r}: {unknown('state', word, STATES)}")


def _names(*mappings: Mapping[str, str]) -> Iterator[str]:
    for mapping in mappings:
        yield from mapping
