r"""The section of a report on the audit, in words and pictures: a verdict, mixed transactions, a cycle as proof.

A precedence cycle as SVG: source tuples are round boxes, changes square ones, and arrows name operators.

The boxes go round in two rows: the upper one to the right, the lower one back to the left.

>>> svg = cycle_svg([CycleNode("t1", "source tuple"), CycleNode("u1", "change", is_change=True)], ["FM", "MC"])
>>> 'aria-label="t1 precedes u1 at FM, u1 precedes t1 at MC"' in svg, svg.count('<path class="line"')
(True, 2)

The ways of tuples through a dataflow as pictures, operator by operator with the version that they meet.

An old version is blue with a dotted frame, a new one orange with a thick frame; both at one operator are purple with a
dashed frame. The line below an operator's name says the same.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> met = (Met("S", (), ()), Met("FM", ("u1",), ()), Met("MC", (), ("u1",)))
>>> svg = met_svg(graph, met, {"u1"})
>>> 'data-operator="FM" data-state="old"' in svg, ">u1: new<" in svg
(True, True)

The section of a report on the audit: the verdict, the transactions that mixed versions, and a cycle as proof.

>>> from fries_nb.audit import Mixed
>>> from fries_nb.protocol.trace import ROW_BITS
>>> mixed = tuple(Mixed((1 << ROW_BITS) + row, "u1", ("FM",), ("MC",)) for row in (7, 8))
>>> verdict = Verdict(False, mixed, (str((1 << ROW_BITS) + 7), "u1"), ("FM", "MC"), 900, 1)
>>> sentence(verdict)
'Not serializable: 2 of 900 source tuples met an old version and a new one.'
>>> grouped(verdict)
[('u1', 'FM', 'MC', 2, 'row 7 of split 1 of source 0')]
>>> cycle(verdict)
'row 7 of split 1 of source 0 → (at FM) u1 → (at MC) row 7 of split 1 of source 0'

A counter-example to naive FCM in words and pictures, to be stepped through.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.planning.counter_example import counter_example
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> example = counter_example(graph, ["FM", "MC"])
>>> print("\n".join(example_lines(example)))
1. t1 passes S.
2. FM processes t1 with its old function.
3. The message reaches FM, which switches to its new function.
4. The message reaches MC, which switches to its new function.
5. MC processes t1 with its new function.
So t1 precedes the change at FM, and the change precedes t1 at MC: no serial order has this result.
>>> example_parts(graph, example).count("<svg")
7
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from markupsafe import Markup

from fries_nb.audit import Met, Verdict
from fries_nb.dataflow.graph import Graph
from fries_nb.planning.counter_example import CounterExample, ExampleStep, StepKind, counter_example
from fries_nb.protocol.trace import place_of
from fries_nb.report import markup
from fries_nb.report.dag import STATES, Ends, draw
from fries_nb.report.layout import Spot, layout, shortened
from fries_nb.report.markup import FONT, TextColumn, escaped, in_one_style, number, part, picture, themed
from fries_nb.running.results import MOST_EXAMPLES
from fries_nb.words import counted

COPIES = ("t1", "t1.1", "t1.2")
"""Names of the source tuple of a counter-example, and of the two tuples that were made of it."""
_FACT = 14  # letters below an operator's name
_WIDTH = 900.0


def met_svg(graph: Graph, met: Iterable[Met], changes: Collection[str]) -> str:
    """The dataflow with the versions, of these changes, of operators that a transaction met."""
    passed: dict[str, dict[str, list[str]]] = {}
    for passing in met:
        versions = passed.setdefault(passing.operator, {})
        for version, ids in (("old", passing.before), ("new", passing.after)):
            for change in (change for change in ids if change in changes):
                versions.setdefault(change, []).append(version)
    titles = {
        name: ", ".join(f"{change}: {', '.join(dict.fromkeys(seen))}" for change, seen in versions.items())
        for name, versions in passed.items()
    }
    found = {name: {version for seen in versions.values() for version in seen} for name, versions in passed.items()}
    states = {name: "both" if len(seen) > 1 else "".join(seen) for name, seen in found.items() if name in graph}
    facts = {name: _shortened(title) for name, title in titles.items()}
    ends = [(edge.source, edge.to) for edge in graph.edges if {edge.source, edge.to} <= passed.keys()]
    return _drawn(graph, states, titles, ends, facts)


def example_svg(graph: Graph, example: CounterExample, number: int) -> str:
    """The operators on the ways of a counter-example after a number of steps; the last one is marked."""
    steps = example.steps[:number]
    versions = dict.fromkeys(example.cycle_at, "old")
    versions |= {step.operator: "new" for step in steps if step.kind is StepKind.SWITCHED}
    states, facts = dict(versions), dict(versions)
    here = steps[-1]
    states[here.operator] = f"{versions.get(here.operator, '')} here".strip()
    if here.kind is not StepKind.SWITCHED:
        facts[here.operator] = " · ".join([COPIES[here.copy], *filter(None, [versions.get(here.operator)])])
    return _drawn(_part(graph, example), states, {}, taken(steps, example.parts_at), facts)


def example_met_svg(graph: Graph, example: CounterExample) -> str:
    """The operators on the ways of a counter-example, with the versions that the tuple has met in the end."""
    _, change = example.cycle
    met = [
        Met(
            step.operator,
            (change,) if step.kind is StepKind.OLD else (),
            (change,) if step.kind is StepKind.NEW else (),
        )
        for step in example.steps
        if step.kind is not StepKind.SWITCHED
    ]
    return met_svg(_part(graph, example), met, {change})


def taken(steps: Sequence[ExampleStep], parts_at: str) -> list[Ends]:
    """The edges that tuples have taken in these steps."""
    ends: list[Ends] = []
    for copy in range(len(COPIES)):
        names = [step.operator for step in steps if step.copy == copy and step.kind is not StepKind.SWITCHED]
        ends += pairwise([parts_at, *names] if copy and names else names)
    return ends


def _part(graph: Graph, example: CounterExample) -> Graph:
    """The operators and edges on the ways of a counter-example."""
    ends = {pair for way in example.ways for pair in pairwise(way)}
    names = {name for way in example.ways for name in way}
    operators = tuple(operator for operator in graph.operators if operator.name in names)
    return Graph(graph.name, operators, tuple(edge for edge in graph.edges if (edge.source, edge.to) in ends))


def _drawn(
    graph: Graph, states: Mapping[str, str], titles: Mapping[str, str], ends: Collection[Ends], facts: Mapping[str, str]
) -> str:
    found = {word for words in states.values() for word in words.split()}
    legend = {state: words for state, words in STATES.items() if state in found}
    return draw(graph, layout(graph, _WIDTH), states, {}, titles, ends, legend, {}, facts)


def _shortened(text: str) -> str:
    return text if len(text) <= _FACT else text[: _FACT - 1] + "…"


_HEIGHT, _ROW_GAP, _MARGIN, _SIDE = 46.0, 76.0, 14.0, 22.0
_LETTER, _SMALL = 7.4, 6.2  # widths of letters
_LONGEST_NOTE = 40

_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{FONT}; font-size: 13px; fill: {markup.INK}",
    ".name": "font-weight: 600; text-anchor: middle",
    ".note": f"font-size: 11px; fill: {markup.SOFT}; text-anchor: middle",
    ".at": "font-size: 12px",
    ".tuple": f"fill: {markup.BAND}; stroke: {markup.GREEN}; stroke-width: 2.5px",
    ".change": f"fill: {markup.BAND}; stroke: {markup.INK}; stroke-width: 1.5px",
    ".line": f"fill: none; stroke: {markup.VERMILION}; stroke-width: 2.5px",
    ".tip": f"fill: {markup.VERMILION}",
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_INK}",
    ".note": f"fill: {markup.NIGHT_SOFT}",
    ".tuple": f"fill: {markup.NIGHT_BAND}",
    ".change": f"fill: {markup.NIGHT_BAND}; stroke: {markup.NIGHT_INK}",
}
_CSS = themed(".fries-cycle-svg", _LIGHT, _DARK)


@dataclass(frozen=True)
class CycleNode:
    """A source tuple or a change of a cycle, with a note that is shown below its name."""

    name: str
    note: str
    is_change: bool = False


def cycle_svg(nodes: Sequence[CycleNode], at: Sequence[str]) -> str:
    """Draw a cycle: each node must precede the next, the last one the first, each at an operator of ``at``."""
    labels = [f"at {shortened(name)}" for name in at]
    box = max(max(_LETTER * len(node.name), _SMALL * len(_note(node))) for node in nodes) + 32
    beside = max(map(len, labels)) * _LETTER
    columns = (len(nodes) + 1) // 2
    left = _MARGIN + max(0.0, _SIDE + 8 + beside - box / 2)
    step = box + max(90.0, beside + 24)
    rows = [(place, 0) for place in range(columns)] + [(place, 1) for place in reversed(range(len(nodes) - columns))]
    if len(nodes) % 2:  # the lower row is shorter, and ends before the first column
        rows[columns:] = [(place + 1, 1) for place, _ in rows[columns:]]
    centres = [
        (left + box / 2 + step * place, _MARGIN + 14 + _HEIGHT / 2 + row * (_HEIGHT + _ROW_GAP)) for place, row in rows
    ]
    width, height = centres[columns - 1][0] + left + box / 2, centres[-1][1] + _HEIGHT / 2 + 14 + _MARGIN
    steps = [(place, (place + 1) % len(nodes)) for place in range(len(nodes))]
    arrows = "".join(_arrow(centres[start], centres[end], box, labels[start], len(nodes) == 2) for start, end in steps)
    drawn = "".join(_box(node, centre, box) for node, centre in zip(nodes, centres, strict=True))
    alt_text = ", ".join(f"{nodes[start].name} precedes {nodes[end].name} {labels[start]}" for start, end in steps)
    return picture("cycle", (width, height), alt_text, _CSS, arrows, drawn)


def _note(node: CycleNode) -> str:
    return node.note if len(node.note) <= _LONGEST_NOTE else node.note[: _LONGEST_NOTE - 1] + "…"


def _box(node: CycleNode, centre: Spot, width: float) -> str:
    x, y = centre
    corner = f'x="{number(x - width / 2)}" y="{number(y - _HEIGHT / 2)}"'
    kind, radius = ("change", 2) if node.is_change else ("tuple", _HEIGHT / 2)
    return (
        f'<rect class="{kind}" {corner} width="{number(width)}" height="{number(_HEIGHT)}" rx="{number(radius)}"/>'
        f'<text class="name" x="{number(x)}" y="{number(y - 2)}">{escaped(node.name)}</text>'
        f'<text class="note" x="{number(x)}" y="{number(y + 14)}">{escaped(_note(node))}</text>'
    )


def _arrow(start: Spot, end: Spot, width: float, label: str, is_double: bool) -> str:
    """An arrow between two boxes; two opposite ones are drawn beside each other."""
    (x0, y0), (x1, y1) = start, end
    dx, dy = x1 - x0, y1 - y0
    reach = min(_reaches(dx, dy, width))
    aside = (_SIDE if dy > 0 else -_SIDE) if is_double else 0.0
    base, tip = (x0 + dx * reach + aside, y0 + dy * reach), (x1 - dx * reach + aside, y1 - dy * reach)
    length = (dx * dx + dy * dy) ** 0.5
    unit = dx / length, dy / length
    foot = tip[0] - 9 * unit[0], tip[1] - 9 * unit[1]
    corners = (tip, (foot[0] - 5 * unit[1], foot[1] + 5 * unit[0]), (foot[0] + 5 * unit[1], foot[1] - 5 * unit[0]))
    points = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    path = f"M{number(base[0])},{number(base[1])} L{number(foot[0])},{number(foot[1])}"
    x, y, anchor = (base[0] + tip[0]) / 2, (base[1] + tip[1]) / 2, "middle"
    if dy:  # beside the arrow, outside
        x, y, anchor = (x + 9, y + 4, "start") if dy > 0 else (x - 9, y + (18 if dx else 4), "end")
    else:
        y += -8 if dx > 0 else 18
    return (
        f'<path class="line" d="{path}"/><polygon class="tip" points="{points}"/>'
        f'<text class="at" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escaped(label)}</text>'
    )


def _reaches(dx: float, dy: float, width: float) -> Iterator[float]:
    """The parts of the way from the centre of a box at which its sides, and a small gap, are passed."""
    if dx:
        yield (width / 2 + 3) / abs(dx)
    if dy:
        yield (_HEIGHT / 2 + 3) / abs(dy)


def example_parts(graph: Graph, example: CounterExample) -> Markup:
    """The counter-example as frames: one for each event, and one with what the tuple met and the precedence cycle."""
    moments = list(_moments(example))
    met, cycle = end_svgs(graph, example)
    pictures = in_one_style([*(example_svg(graph, example, number) for number, _ in moments), met])
    lines = [*(words for _, words in moments), conclusion(example)]
    more = [*[""] * len(moments), cycle]
    return part("example", [part("frame", *each) for each in zip(pictures, lines, more, strict=True)])


def end_svgs(graph: Graph, example: CounterExample) -> tuple[str, str]:
    """The versions that the tuple has met in the end, and the precedence cycle."""
    tuple_, change = example.cycle
    nodes = [CycleNode(tuple_, "source tuple"), CycleNode(change, "the change", is_change=True)]
    return example_met_svg(graph, example), cycle_svg(nodes, example.cycle_at)


def example_lines(example: CounterExample) -> list[str]:
    """The steps as numbered lines, and the conclusion."""
    lines = [f"{place}. {words}" for place, (_, words) in enumerate(_moments(example), start=1)]
    return [*lines, conclusion(example)]


def summary(example: CounterExample) -> str:
    """What the counter-example shows, in one sentence."""
    old, new = example.cycle_at
    if not example.parts_at:
        again = "in a later round by the new one" if old == new else f"by the new {new}"
        return f"a source tuple is processed by the old {old} and {again}."
    where = f"by the old {old}, the other one by the new {new}"
    return f"{example.parts_at} makes two tuples of one, and one is processed {where}."


def conclusion(example: CounterExample) -> str:
    """Why the events are not serializable."""
    tuple_, _ = example.cycle
    old, new = example.cycle_at
    made = f" ({COPIES[1]} and {COPIES[2]} are both made of {tuple_})" if example.parts_at else ""
    return (
        f"So {tuple_} precedes the change at {old}, and the change precedes {tuple_} at {new}{made}: no serial order "
        "has this result."
    )


def _moments(example: CounterExample) -> Iterator[tuple[int, str]]:
    """The number of steps up to each frame, and its words; operators that a tuple merely passes share a frame."""
    steps = list(enumerate(example.steps, start=1))
    for _, group in groupby(steps, key=lambda step: (step[1].kind, step[1].copy) if _is_pass(step[1]) else step[0]):
        members = list(group)
        yield members[-1][0], _words(example, [step for _, step in members])


def _is_pass(step: ExampleStep) -> bool:
    return step.kind is StepKind.PASSED


def _words(example: CounterExample, steps: list[ExampleStep]) -> str:
    last = steps[-1]
    match last.kind:
        case StepKind.PASSED:
            parts = f", which makes two tuples of it, {COPIES[1]} and {COPIES[2]}"
            made = parts if last.operator == example.parts_at and not last.copy else ""
            return f"{COPIES[last.copy]} passes {' → '.join(step.operator for step in steps)}{made}."
        case StepKind.SWITCHED:
            return f"The message reaches {last.operator}, which switches to its new function."
        case kind:
            return f"{last.operator} processes {COPIES[last.copy]} with its {kind} function."


_COLUMNS = (
    *map(TextColumn, ("Change", "Old version at", "New version at")), TextColumn("Source tuples", number=True),
    TextColumn("One of them"),
)  # fmt: skip


def verdict_parts(
    verdict: Verdict, labels: Mapping[str, str], graph: Graph, naive: Mapping[str, Collection[str]] = {}
) -> Markup:
    """The verdict and its proof; ``naive`` has the targets of changes by naive FCM, for a counter-example."""
    groups = [] if verdict.serializable else grouped(verdict)
    rows = [
        (f"{change}: {labels[change]}" if change in labels else change, old, new, f"{count:,}", example)
        for change, old, new, count, example in groups[:MOST_EXAMPLES]
    ]
    astray = [] if verdict.serializable else others(verdict)
    proof = cycle(verdict) if verdict.cycle else ""
    drawings = verdict_svgs(verdict, labels, graph) if verdict.cycle else []
    guilty = next((name for name in verdict.cycle if name in naive), None)
    found = None if guilty is None else counter_example(graph, naive[guilty])
    example = "" if found is None else example_parts(graph, found)
    more = len(groups) - MOST_EXAMPLES
    words = sentence(verdict)
    return part("verdict", words, verdict.serializable, _COLUMNS, rows, more, astray, proof, drawings, guilty, example)


def verdict_svgs(verdict: Verdict, labels: Mapping[str, str], graph: Graph) -> list[tuple[str, str]]:
    """The pictures of the proof with captions: what each source tuple of the cycle met, and the cycle."""
    steps = list(zip(verdict.cycle, verdict.cycle_met, strict=True))
    changes = {name for name, met in steps if not met}
    found = [
        (met_svg(graph, met, changes), f"What processed {described(name, verdict)}, and the versions that it met.")
        for name, met in steps
        if met
    ]
    nodes = [
        CycleNode(named(name, verdict), _values_of(name, verdict) or "source tuple")
        if met
        else CycleNode(name, labels.get(name, "change"), is_change=True)
        for name, met in steps
    ]
    return [*found, (cycle_svg(nodes, verdict.cycle_at), "The cycle: each must precede the next.")]


def sentence(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    if verdict.serializable:
        of_changes = f" and {counted(verdict.updates, 'change')}" if verdict.updates else ""
        return f"Serializable: {counted(verdict.transactions, 'source tuple')}{of_changes} judged, none mixed."
    if verdict.stale:
        return f"Not serializable: a switch was recorded at {counted(len(verdict.stale), 'worker')} and had no effect."
    if astray := {lost.transaction for lost in (*verdict.lost, *verdict.doubled)}:
        return f"Not serializable: tuples derived from {counted(len(astray), 'source tuple')} were lost or duplicated."
    if not verdict.mixed:
        return "Not serializable: no tuple mixed versions of one change, but tuples met changes in different orders."
    mixed = len({entry.transaction for entry in verdict.mixed})
    return f"Not serializable: {mixed:,} of {verdict.transactions:,} source tuples met an old version and a new one."


def others(verdict: Verdict) -> list[str]:
    """Switches without effect, and some of the tuples that were lost or duplicated.

    >>> from fries_nb.audit import Astray
    >>> others(Verdict(False, (), (), (), 9, 0, lost=(Astray(7, "FM", "MC", 1, 0),)))
    ['row 7 of split 0 of source 0: FM emitted 1 for MC, which took 0']
    """
    found = [
        f"{stale.operator}[{stale.worker}] recorded the switch to {stale.update or 'nothing'} and ran {stale.tuples:,} "
        f"tuples with {f'the function of {stale.ran}' if stale.ran else 'its first function'}"
        for stale in verdict.stale
    ]
    found += [
        f"{described(lost.transaction, verdict)}: {lost.account}"
        for lost in (*verdict.lost, *verdict.doubled)[:MOST_EXAMPLES]
    ]
    return found[:MOST_EXAMPLES]


def grouped(verdict: Verdict) -> list[tuple[str, str, str, int, str]]:
    """Mixed transactions by change and by where they met old and new: their number and one of them, most first."""
    groups: dict[tuple[str, str, str], list[str | int]] = {}
    for entry in verdict.mixed:
        groups.setdefault((str(entry.update), ", ".join(entry.old), ", ".join(entry.new)), []).append(entry.transaction)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [(*places, len(members), described(members[0], verdict)) for places, members in ordered]


def cycle(verdict: Verdict) -> str:
    """The cycle as text; each arrow names an operator at which the conflict occurs."""
    steps = zip(verdict.cycle, verdict.cycle_at, strict=True)
    through = "".join(f"{described(name, verdict)} → (at {at}) " for name, at in steps)
    return through + named(verdict.cycle[0], verdict)


def named(transaction: str | int, verdict: Verdict) -> str:
    """A source tuple by its number in its source, if a run knows it, else in its split; an update by its id.

    >>> from fries_nb.protocol.trace import SourceRow
    >>> read = Verdict(True, (), (), (), 9, 0, rows={7: SourceRow("payments", 1007, {"id": 9})})
    >>> named("7", read), named(8, read), named("u1", read), described(7, read)
    ('row 1,007 of payments', 'row 8 of split 0 of source 0', 'u1', 'row 1,007 of payments (id 9)')
    """
    digits = str(transaction)
    if not digits.isdigit():
        return digits
    found = verdict.rows.get(int(digits))
    if found is not None:
        return f"row {found.number:,} of {found.source}"
    source, split, row = place_of(int(digits))
    return f"row {row:,} of split {split} of source {source}"


def described(transaction: str | int, verdict: Verdict) -> str:
    """The same with what the row holds."""
    values = _values_of(transaction, verdict)
    return named(transaction, verdict) + (f" ({values})" if values else "")


def _values_of(transaction: str | int, verdict: Verdict) -> str:
    found = verdict.rows.get(int(transaction)) if str(transaction).isdigit() else None
    return "" if found is None else found.shown
