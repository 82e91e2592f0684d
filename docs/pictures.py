"""The pictures of the site, as SVG: dataflows, bars and hosts by the library's own drawing code, the others drawn here.

A picture states its colours for light and for dark pages; see ``fries_nb.report.markup``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

import fries_nb as fn
from fries_nb.constraints.judgements import ConstraintState
from fries_nb.constraints.reactions import ConstraintStatus, ElementLatency
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, Partitioning
from fries_nb.planning.counter_example import counter_example
from fries_nb.planning.covering import components, covered
from fries_nb.planning.difference import Difference
from fries_nb.planning.schedulers import schedule
from fries_nb.planning.shape import PlannedDifference, shape_plan, with_plan
from fries_nb.protocol.topology import Topology
from fries_nb.report import markup
from fries_nb.report.audit_section import CycleNode, cycle_svg, example_met_svg
from fries_nb.report.constraint_bars import constraint_svg
from fries_nb.report.dag import dag_svg
from fries_nb.report.host_rows import hosts_svg
from fries_nb.report.markup import FONT, escaped, number, themed
from fries_nb.report.plan_section import difference_svg, roles

Spot = tuple[float, float]

_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{FONT}; font-size: 13px; fill: {markup.INK}; text-anchor: middle",
    ".small": f"font-size: 11.5px; fill: {markup.SOFT}",
    ".left": "text-anchor: start",
    ".strong": "font-weight: 600",
    ".box": f"fill: {markup.BAND}; stroke: {markup.SOFT}; stroke-width: 1.2px",
    ".old": f"fill: {markup.SKY}; stroke: {markup.SOFT}",
    ".new": f"fill: {markup.ORANGE}; stroke: {markup.SOFT}",
    ".mark": f"fill: {markup.INK}",
    ".line": f"fill: none; stroke: {markup.SOFT}; stroke-width: 1.5px",
    ".message": f"fill: none; stroke: {markup.BLUE}; stroke-width: 2.5px; stroke-dasharray: 6 4",
    ".tip": f"fill: {markup.SOFT}",
    ".message-tip": f"fill: {markup.BLUE}",
    ".in": "fill: #111418; font-size: 12px",
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_INK}",
    ".small": f"fill: {markup.NIGHT_SOFT}",
    ".box": f"fill: {markup.NIGHT_BAND}; stroke: {markup.NIGHT_SOFT}",
    ".mark": f"fill: {markup.NIGHT_INK}",
    ".line": f"stroke: {markup.NIGHT_SOFT}",
    ".tip": f"fill: {markup.NIGHT_SOFT}",
    ".message": f"stroke: {markup.SKY}",
    ".message-tip": f"fill: {markup.SKY}",
    ".in": "fill: #111418",
}
_CSS = themed(".fries-idea-svg", _LIGHT, _DARK)


def pictures() -> dict[str, str]:
    """All pictures, by name."""
    return {
        "plan-fries": _planned("fries"),
        "plan-epoch": _planned("epoch"),
        "plan-pruned": _pruned(),
        "overtaking": _overtaking(),
        "cut": _cut(),
        "naive": _naive(),
        "naive-cycle": _cycle(["t1", "u"], ["FM", "MC"]),
        "naive-steps": _steps(),
        "two-changes": _cycle(["t1", "u1", "t2", "u2"], ["A", "A", "B", "B"]),
        "exactly-once": _exactly_once(),
        "frontier": _frontier(),
        "loop": _loop(),
        "constraint": _constraint(),
        "rescaling": _rescaling(),
        "shape": _shape(),
        "shape-old": _of_one_shape(0),
        "shape-new": _of_one_shape(1),
        "shape-union": difference_svg(_difference(*SHAPES)),
        "shape-channels": _channels(),
    }


# ---- parts


def picture(width: float, height: float, said: str, parts: Iterable[str]) -> str:
    """A picture of these parts; ``said`` is its text for screen readers."""
    size = f'viewBox="0 0 {number(width)} {number(height)}" width="{number(width)}" height="{number(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fries-idea-svg" {size} role="img" '
        f'aria-label="{escaped(said)}"><style>{_CSS}</style>'
        f'<rect class="paper" width="100%" height="100%" rx="6"/>{"".join(parts)}</svg>'
    )


def box(x: float, y: float, width: float, height: float, words: str, kind: str = "box") -> str:
    """A rectangle around its centre, with words in it, a line for each line."""
    corner = f'x="{number(x - width / 2)}" y="{number(y - height / 2)}"'
    lines = words.split("\n")
    inside = "in strong" if kind in ("old", "new") else "strong"
    said = "".join(text(x, y + 4.5 + 16 * (at - (len(lines) - 1) / 2), line, inside) for at, line in enumerate(lines))
    return f'<rect class="{kind}" {corner} width="{number(width)}" height="{number(height)}" rx="6"/>{said}'


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """A line of text."""
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}">{escaped(words)}</text>'


def tuples(x: float, y: float, kinds: Sequence[str]) -> Iterable[str]:
    """Tuples in a row, the first at ``x``; ``mark`` is a marker."""
    for at, kind in enumerate(kinds):
        left, wide = x + 16 * at, 5 if kind == "mark" else 12
        high = 22 if kind == "mark" else 12
        yield (
            f'<rect class="{kind}" x="{number(left + (12 - wide) / 2)}" y="{number(y - high / 2)}" width="{wide}" '
            f'height="{high}" rx="2"/>'
        )


def arrow(path: Sequence[Spot], kind: str = "line") -> str:
    """An arrow along straight lines."""
    base = _base(path[-2], path[-1])
    points = " ".join(f"{number(x)},{number(y)}" for x, y in [*path[:-1], base])
    return f'<polyline class="{kind}" points="{points}"/>{_tip(base, path[-1], kind)}'


def _base(before: Spot, end: Spot) -> Spot:
    """Where the head of an arrow begins that comes from ``before``."""
    (x0, y0), (x, y) = before, end
    length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
    return x - 8 * (x - x0) / length, y - 8 * (y - y0) / length


def _tip(base: Spot, end: Spot, kind: str) -> str:
    (x0, y0), (x, y) = base, end
    across = ((y - y0) / 2, (x0 - x) / 2)
    corners = (end, (x0 + across[0], y0 + across[1]), (x0 - across[0], y0 - across[1]))
    points = " ".join(f"{number(a)},{number(b)}" for a, b in corners)
    return f'<polygon class="{"tip" if kind == "line" else f"{kind}-tip"}" points="{points}"/>'


# ---- pictures


def _fraud() -> Graph:
    flow = DataflowBuilder("fraud")
    customers = flow.source("payments", fn.rate(100)).map("FC", dict, key="value")
    customers.map("FM", dict, key="value").map("MC", dict).sink("scored", fn.memory())
    return flow.graph(2)


def _planned(scheduler: str) -> str:
    graph = _fraud()
    return dag_svg(graph, roles(schedule(scheduler, graph, ["FM", "MC"])), width=760)


def _pruned() -> str:
    one = Operator("RE", Emits.ONE_TO_MANY, edgewise_one_to_one=True)
    names = (Operator("S"), one, Operator("C"), Operator("D"), Operator("SJ", unique_per_transaction=True))
    edges = [("S", "RE"), ("RE", "C"), ("RE", "D"), ("C", "SJ"), ("D", "SJ"), ("SJ", "E"), ("E", "out")]
    graph = Graph("pruned", (*names, Operator("E"), Operator("out")), tuple(Edge(*ends) for ends in edges))
    return dag_svg(graph, roles(schedule("fries", graph, ["E"])), width=760)


def _overtaking() -> str:
    said = "The controller's message reaches A ahead of the queued tuples; A puts a marker between its output tuples."
    parts = [
        box(360, 34, 120, 34, "controller"),
        arrow([(360, 51), (360, 116)], "message"),
        text(374, 88, "FCM", "small left"),
        *tuples(30, 140, ["old"] * 12),
        text(126, 170, "queued in front of A", "small"),
        arrow([(228, 140), (312, 140)]),
        box(360, 140, 92, 46, "A"),
        arrow([(406, 140), (596, 140)]),
        *tuples(424, 122, ["new"] * 3 + ["mark"] + ["old"] * 5),
        text(496, 170, "new    | marker |    old", "small"),
        box(644, 140, 92, 46, "B"),
        text(360, 184, "switched", "small"),
        text(644, 184, "switches at the marker", "small"),
    ]
    return picture(740, 200, said, parts)


def _cut() -> str:
    said = "A has begun position 41 of a split, B 37 and C 40; rows up to 41 are old at all three, those above are new."
    begun, positions, cut = {"A": 41, "B": 37, "C": 40}, range(35, 46), 41
    left, wide = 150, 40

    def end(position: int) -> float:
        return left + wide * (position - positions[0] + 1)

    parts = [text(end(cut), 22, f"cut: {cut}, the highest of all answers", "strong")]
    for number_of, (name, last) in enumerate(begun.items()):
        y = 62 + 44 * number_of
        parts += [text(24, y + 5, name, "strong left"), text(48, y + 5, f"has begun {last}", "small left")]
        kinds = ((at, "old" if at <= cut else "new") for at in positions)
        parts += [box(end(at) - wide / 2, y, wide - 6, 28, str(at), kind) for at, kind in kinds]
        parts.append(f'<rect class="mark" x="{number(end(last) - 2.5)}" y="{number(y - 19)}" width="5" height="38"/>')
    parts.append(f'<line class="message" x1="{end(cut)}" x2="{end(cut)}" y1="30" y2="182"/>')
    parts.append(text(end(38), 200, "by the old function, begun or not", "small"))
    parts.append(text(end(43), 200, "by the new one", "small"))
    return picture(610, 214, said, parts)


def _naive() -> str:
    said = "FM processes t1, switches, processes t2; MC switches, and then processes t1 and t2."
    parts = [text(24, 64, "FM", "strong left"), text(24, 134, "MC", "strong left")]
    parts += [arrow([(60, y), (560, y)]) for y in (60, 130)]
    parts += [text(560, 84, "time", "small")]
    steps = [(130, 60, "t1", "old"), (210, 60, "u", "box"), (310, 60, "t2", "new")]
    steps += [(160, 130, "u", "box"), (290, 130, "t1", "new"), (440, 130, "t2", "new")]
    parts += [box(x, y, 44, 32, words, kind) for x, y, words, kind in steps]
    parts += [box(116, 24, 14, 14, "", "old"), text(130, 28, "by the old function", "small left")]
    parts += [box(276, 24, 14, 14, "", "new"), text(290, 28, "by the new function", "small left")]
    parts += [text(420, 28, "u: the update takes effect", "small left")]
    return picture(600, 165, said, parts)


def _cycle(names: Sequence[str], at: Sequence[str]) -> str:
    """Tuples and changes in turn."""
    kinds = ("source tuple", "change")
    return cycle_svg([CycleNode(name, kinds[place % 2], place % 2 == 1) for place, name in enumerate(names)], at)


def _steps() -> str:
    """What the tuple of the counter-example has met in the end."""
    graph = _fraud()
    example = counter_example(graph, ["FM", "MC"])
    assert example is not None  # FM is above MC
    return example_met_svg(graph, example)


def _exactly_once() -> str:
    said = "A marker passes source, operator and sink, which save position, state and parts; a record names them."
    parts = []
    for x, words in ((90, "source"), (310, "operator"), (530, "sink")):
        parts.append(box(x, 56, 100, 44, words))
    for x in (140, 360):
        parts += [arrow([(x, 56), (x + 120, 56)]), *tuples(x + 16, 38, ["old"] * 2 + ["mark"] + ["old"] * 2)]
    parts.append(text(200, 22, "marker", "small"))
    for x, words in ((90, "position"), (310, "state"), (530, "parts")):
        parts += [arrow([(x, 78), (x, 124)]), box(x, 144, 100, 38, words)]
        parts.append(arrow([(x, 163), (x, 212)]))
    parts += [
        text(600, 149, "1. on disk, invisible", "small left"),
        box(310, 232, 560, 38, "record of the checkpoint"),
        text(600, 237, "2. complete", "small left"),
        arrow([(530, 251), (530, 296)]),
        box(530, 316, 120, 38, "output"),
        text(600, 321, "3. parts become visible", "small left"),
    ]
    return picture(750, 345, said, parts)


def _frontier() -> str:
    said = "A window from 0 to 10; a row on its way at 9, the source's token at 12; the frontier is at 9."

    def at(time: float) -> float:
        return 60 + 36 * time

    parts = [arrow([(40, 110), (660, 110)]), text(660, 130, "time", "small")]
    parts += [text(at(time), 132, str(time), "small") for time in (0, 5, 9, 10, 12, 15)]
    parts += [f'<line class="line" x1="{at(time)}" x2="{at(time)}" y1="104" y2="116"/>' for time in (0, 5, 10, 15)]
    parts.append(f'<rect class="box" x="{at(0)}" y="84" width="{at(10) - at(0)}" height="20" rx="3"/>')
    parts.append(text(at(4), 99, "window from 0 to 10, open", "small"))
    for time, words, kind in ((9, "row on its way", "old"), (12, "token of the source", "new")):
        parts += [box(at(time), 60, 18, 18, "", kind), text(at(time), 40, words, "small")]
        parts.append(f'<line class="line" x1="{at(time)}" x2="{at(time)}" y1="69" y2="110"/>')
    parts += [arrow([(at(9), 172), (at(9), 140)], "message"), text(at(9), 190, "frontier of the window", "strong")]
    return picture(700, 205, said, parts)


def _loop() -> str:
    flow = DataflowBuilder("halving")
    numbers = flow.source("numbers", fn.rate(100))
    numbers.iterate("L", lambda rows: rows.map("halve", dict).split("enough", bool)).sink("halved", fn.memory())
    return dag_svg(flow.graph(2), width=760)


def _constraint() -> str:
    constraint = LatencyConstraint(("FC", "FM", "MC"), latency_ms=100, window_s=5)
    elements = (
        ElementLatency("FC", 2.0, 3.0), ElementLatency("FC -> FM", 48.0, 70.0, buffer_ms=40.0),
        ElementLatency("FM", 9.0, 12.0), ElementLatency("FM -> MC", 61.0, 90.0, buffer_ms=52.0),
        ElementLatency("MC", 1.0, 2.0),
    )  # fmt: skip
    reason = "rows wait longest in the buffers of FM -> MC"
    return constraint_svg(ConstraintState(constraint, ConstraintStatus.VIOLATED, reason, 121.0, 168.0, (), elements))


def _rescaling() -> str:
    edges = (Edge("S", "K", Partitioning.HASH, ("k",)), Edge("K", "Z"))
    def status(hosts: int) -> TopologyStatus:
        operators = (Operator("S"), Operator("K", key=("k",), workers=2 * hosts), Operator("Z"))
        return TopologyStatus.of(Topology.dealt(Graph("rescaled", operators, edges), hosts), tuple(range(hosts)))

    return hosts_svg(status(2), {}, [("1 host", status(1))])


def _sketch(*paths: str, changed: str = "") -> Graph:
    """A graph of the paths through it; the operators that are named run another function."""
    names = dict.fromkeys(name for path in paths for name in path.split())
    edges = dict.fromkeys(ends for path in paths for ends in pairwise(path.split()))
    sources, sinks = names.keys() - {to for _, to in edges}, names.keys() - {name for name, _ in edges}
    kinds = dict.fromkeys(sources, Kind.SOURCE) | dict.fromkeys(sinks, Kind.SINK)
    functions = {name: len if name in changed.split() else abs for name in names if name not in kinds}
    operators = (Operator(name, kind=kinds.get(name, Kind.MAP), function=functions.get(name)) for name in names)
    return Graph("shape", tuple(operators), tuple(Edge(*ends) for ends in edges))


def _difference(before: Graph, after: Graph) -> PlannedDifference:
    found = Difference.of(before, after)
    changed = [operator.name for operator in found.changed]
    functions = partial(schedule, "fries", before, changed)
    plans = shape_plan(before, after, changed), shape_plan(before, after, changed, order=False)
    return with_plan(found, functions, lambda: plans)


def _shape() -> str:
    """N is inserted between A and B, and C runs another function."""
    return difference_svg(_difference(_sketch("S A B C out"), _sketch("S A N B C out", changed="C")))


SHAPES = (_sketch("S A D T Y", "P D", "Q E T"), _sketch("S A E T Y", "P D T", "Q E", changed="T"))
"""A sends to E instead of to D, and T, below both, runs another function."""


def _of_one_shape(number: int) -> str:
    """What the covering of the same targets would be on one of the graphs alone."""
    graph, targets = SHAPES[number], frozenset("AT")
    parts = components(graph, covered(graph, targets), targets)
    found = {
        "mcs": {name for part in parts for name in part.operators},
        "head": {name for part in parts for name in part.heads},
        "target": targets,
    }
    states = {name: " ".join(word for word, names in found.items() if name in names) for name in found["mcs"]}
    return dag_svg(graph, states, marked={ends for part in parts for ends in part.edges}, width=760)


def _channels() -> str:
    """When each channel of the first example carries rows, and when its receiver reads them."""
    said = (
        "Until B has the marker, its channel from A is read and the one from N is not; then the old one has ended and "
        "the new one is read."
    )
    times = {"prepared": 150, "A switches": 270, "B switches": 450, "C switches": 570}
    parts = [text(x, 24, words, "small") for words, x in times.items()]
    parts += [f'<line class="line" x1="{x}" x2="{x}" y1="32" y2="212"/>' for x in times.values()]
    rows: dict[str, list[tuple[float, float, str, str]]] = {
        "A to B": [(110, 450, "old", "rows from before")],
        "A to N": [(150, 270, "box", "made, empty"), (270, 660, "new", "rows are read at once")],
        "N to B": [(150, 270, "box", "made, empty"), (270, 450, "box", "rows wait unread"), (450, 660, "new", "read")],
        "B to C": [(110, 570, "old", "rows from before"), (570, 660, "new", "after")],
    }
    for number_of, (channel, bars) in enumerate(rows.items()):
        y = 58 + 44 * number_of
        parts.append(text(20, y + 5, channel, "strong left"))
        for start, end, kind, words in bars:
            parts.append(box((start + end) / 2, y, end - start, 26, "", kind))
            parts.append(text((start + end) / 2, y + 4.5, words, "small" if kind == "box" else "in"))
    parts += [*tuples(444, 58, ["mark"]), text(462, 63, "marker and End", "small left"), *tuples(564, 190, ["mark"])]
    return picture(690, 232, said, parts)

