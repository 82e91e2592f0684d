"""A latency constraint as SVG: whether it is met and why, and where the latency of its sequence arises.

Each operator and edge of the sequence has a bar, split into task, output buffer and transport. A bar begins where the
one before it ends, so that the bars lead to the mean latency of the sequence, which the last row sums up by cause. A
line marks the limit, a diamond the slowest sequence of workers.

>>> from fries_nb.constraints.reactions import ElementLatency
>>> from fries_nb.dataflow.constraints import LatencyConstraint
>>> constraint = LatencyConstraint(("FC", "FM"), latency_ms=300)
>>> elements = (ElementLatency("FC", 4.0, 9.0), ElementLatency("FC -> FM", 206.0, 390.0, buffer_ms=200.0))
>>> state = ConstraintState(constraint, ConstraintStatus.VIOLATED, "too slow", 210.0, 399.0, (), elements)
>>> [constraint_svg(state).count(f'class="bar {cause}"') for cause in CAUSES]
[2, 2, 2]
>>> in_figures(state)
'violated: mean 210 ms, worst 399 ms, at most 300 ms over 15 s'

The sizes of output buffers over time as SVG, one line an edge, and when operators were chained or split.

An edge whose buffers differ has a band from the smallest to the largest. A line ends where all workers of the edge are
chained, since no buffer is left between them.

>>> sizes = [BufferSize(100.0, "FC -> FM", "FC -> FM", 32_768, 32_768)]
>>> sizes.append(BufferSize(104.0, "FC -> FM", "FC -> FM", 11_933, 32_768))
>>> [(line.edge, line.steps) for line in lines_of(sizes, ended_s=110.0)]
[('FC -> FM', ((100.0, 32768, 32768), (104.0, 11933, 32768), (110.0, 11933, 32768)))]
>>> bytes_text(200, 200), bytes_text(714, 32_768), bytes_text(0, 0)
('200 B', '714 B to 32 KiB', 'chained')
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fries_nb.constraints.judgements import BufferSize, ConstraintState, LatencyParts
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.protocol.running_chains import ChainChange
from fries_nb.report import markup
from fries_nb.report.latency import Scale
from fries_nb.report.markup import all_fitted, escaped, fitted, number, text_width, themed
from fries_nb.words import milliseconds

CAUSES = {"task": "task", "buffer": "output buffer", "transport": "transport and queue"}
"""The causes of latency in words, by the class of their bars."""
_PAD, _LINE, _ROW, _BAR = 16.0, 17.0, 21.0, 12.0
_FIGURES, _LABELS, _INDENT = 62.0, 190.0, 22.0
_BOLD_LETTER, _LETTER, _MEAN_LETTER = 7.2, 6.3, 6.2
_SIZE = 11.5
"""Font size of all but the sequence, in pixels."""
_FAR = 2.5
"""A limit above this multiple of the latencies is not drawn to scale."""
_STATUS_CLASSES = {
    ConstraintStatus.MET: "met",
    ConstraintStatus.VIOLATED: "violated",
    ConstraintStatus.NOT_YET_JUDGED: "unjudged",
}
_GLYPHS = {
    "met": "M-6 0 l4 5 l8 -10",
    "violated": "M0 -6 l7 12 l-14 0 z",
    "unjudged": "M-5 0 a5 5 0 1 0 10 0 a5 5 0 1 0 -10 0",
}

_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{markup.FONT}; font-size: {_SIZE:g}px; fill: {markup.SOFT}",
    ".sequence": f"font-size: 13px; font-weight: 600; fill: {markup.INK}",
    ".said, .name, .mean": f"fill: {markup.INK}",
    ".sum": "font-weight: 600",
    ".grid": f"stroke: {markup.LINE}; stroke-width: 1px",
    ".bar": f"stroke: {markup.PAPER}; stroke-width: 1px",
    ".task": f"fill: {markup.BLUE}",
    ".buffer": f"fill: {markup.ORANGE}",
    ".transport": f"fill: {markup.GREY}",
    ".limit": f"stroke: {markup.PURPLE}; stroke-width: 2px; stroke-dasharray: 6 3",
    ".limit-said": f"fill: {markup.INK}; paint-order: stroke; stroke: {markup.PAPER}; stroke-width: 3px",
    ".worst": f"fill: {markup.INK}; stroke: {markup.PAPER}; stroke-width: 1px",
    ".glyph": "stroke-width: 2.2px; stroke-linejoin: round; stroke-linecap: round; fill: none",
    ".glyph.met": f"stroke: {markup.GREEN}",
    ".glyph.violated": f"stroke: {markup.VERMILION}; fill: {markup.VERMILION}",
    ".glyph.unjudged": f"stroke: {markup.GREY}",
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_SOFT}",
    ".sequence, .said, .name, .mean": f"fill: {markup.NIGHT_INK}",
    ".limit-said": f"fill: {markup.NIGHT_INK}; stroke: {markup.NIGHT_PAPER}",
    ".grid": f"stroke: {markup.NIGHT_LINE}",
    ".bar": f"stroke: {markup.NIGHT_PAPER}",
    ".task": f"fill: {markup.SKY}",
    ".worst": f"fill: {markup.NIGHT_INK}; stroke: {markup.NIGHT_PAPER}",
    ".glyph.met": "stroke: #2fc79a",
    ".glyph.violated": "stroke: #ff8a3d; fill: #ff8a3d",
}
_CSS = themed(".fries-constraint-svg", _LIGHT, _DARK)


@dataclass(frozen=True)
class BarColumns:
    """The columns of a drawing: names of elements, bars to scale, mean and worst in figures."""

    bars: Scale
    labels: float
    width: float

    @staticmethod
    def of(state: ConstraintState, width: float) -> BarColumns:
        """The columns for a state in a drawing of this width."""
        names = [latency.element for latency in state.elements] + ["sequence"]
        labels = min(_LABELS, width * 0.3, max(text_width(name, _SIZE, bold=True) for name in names) + 22)
        latencies = [sum(part.mean_ms for part in state.parts), state.worst_ms or 0.0]
        limit_ms = state.constraint.latency_ms
        values = [latency for latency in latencies if math.isfinite(latency)]
        if len(values) < len(latencies) or limit_ms <= _FAR * max(values):
            values.append(limit_ms * 1.2)  # room for what is beyond
        bars = Scale.of(values, _PAD + labels, width - _PAD - 2 * _FIGURES - 8, logarithmic=False)
        return BarColumns(bars, labels, width)

    def at(self, value: float) -> float:
        """The pixel of a latency; the right end for an infinite one."""
        return self.bars.end if math.isinf(value) else self.bars.at(value)


def constraint_svg(state: ConstraintState, width: float = 760.0) -> str:
    """Draw a constraint and the latency of its sequence by element and cause; words if nothing was measured."""
    head, top = _head(state, width)
    bars, height = _bars(state, BarColumns.of(state, width), top) if state.elements else ("", top)
    return markup.picture("constraint", (width, height), _read_aloud(state), _CSS, head, bars)


def in_figures(state: ConstraintState) -> str:
    """Status, latencies and limit in one line."""
    constraint = state.constraint
    known = [("mean", state.mean_ms), ("worst", state.worst_ms)]
    facts = [f"{word} {latency_text(value)}" for word, value in known if value is not None]
    if state.mean_ms == state.worst_ms == math.inf:
        facts = [latency_text(math.inf)]
    limit = f"at most {constraint.latency_ms:,g} ms over {constraint.window_s:g} s"
    return f"{state.status}: {', '.join([*facts, limit])}"


def chained_text(state: ConstraintState) -> str:
    """The chains of a sequence in one line; empty without any."""
    return f"chained: {', '.join(map(str, state.chains))}" if state.chains else ""


def latency_text(value: float | None) -> str:
    """A latency as text.

    >>> latency_text(0.0), latency_text(0.04), latency_text(12.34), latency_text(402.5), latency_text(12_345.0)
    ('0 ms', '< 0.1 ms', '12.3 ms', '402.5 ms', '12.3 s')
    >>> latency_text(math.inf), latency_text(None)
    ('stalled', '-')
    """
    return "stalled" if value == math.inf else milliseconds(value)


def _head(state: ConstraintState, width: float) -> tuple[str, float]:
    """Sequence, status and reason; and the height that they take."""
    kind = _STATUS_CLASSES[state.status]
    letters = int((width - 2 * _PAD - _INDENT) / _MEAN_LETTER)
    named = textwrap.wrap(_arrows(state.constraint.sequence), int((width - 2 * _PAD) / _BOLD_LETTER))
    figures = textwrap.wrap(_kept_together(in_figures(state)), letters)
    reasons = [line for line in (state.reason, chained_text(state), state.remedy) if line]
    reason = [line for text in reasons for line in _wrapped(text, letters)]
    y, drawn = 24.0, []
    for line in all_fitted(named, width - 2 * _PAD, 13, bold=True):
        drawn.append(_text("sequence", _PAD, y, line))
        y += _LINE
    moved = f'transform="translate({number(_PAD + 7)} {number(y)})"'
    drawn.append(f'<path class="glyph {kind}" {moved} d="{_GLYPHS[kind]}"/>')
    for place, line in enumerate(all_fitted([*figures, *reason], width - 2 * _PAD - _INDENT, _SIZE)):
        drawn.append(_text("said" if place < len(figures) else "why", _PAD + _INDENT, y + 4, line))
        y += _LINE
    return "".join(drawn), y + 4


def _bars(state: ConstraintState, columns: BarColumns, top: float) -> tuple[str, float]:
    """The rows of bars below ``top``, and where they end."""
    y = top + 2 * _LINE + 6
    rows, first = [], y
    for part, offset in zip(state.parts, _offsets(state.parts), strict=True):
        rows.append(_row(part, offset, columns, y))
        y += _ROW
    ends = f'x1="{number(_PAD)}" x2="{number(columns.width - _PAD)}"'
    rows.append(f'<line class="grid" {ends} y1="{number(y)}" y2="{number(y)}"/>')
    y += 4
    rows.append(_sum_row(state, columns, y))
    y += _ROW
    around = _key(top + 4) + _headings(columns, first) + _scale(columns, first, y)
    return around + "".join(rows) + _limit(state, columns, first, y), y + 24


def _offsets(parts: Sequence[LatencyParts]) -> Iterator[float]:
    total = 0.0
    for part in parts:
        yield total
        total += part.mean_ms


def _row(part: LatencyParts, offset: float, columns: BarColumns, y: float) -> str:
    figures = _figures(part.mean_ms, part.worst_ms, columns, y)
    return _name(_arrows(part.element), "name", columns, y) + _stack(part, offset, columns, y) + figures


def _sum_row(state: ConstraintState, columns: BarColumns, y: float) -> str:
    """The whole sequence by cause, with its worst latency."""
    task_ms, buffer_ms, transport_ms = (
        sum(values) for values in zip(*(_by_cause(part) for part in state.parts), strict=True)
    )
    worst_ms = state.worst_ms or 0.0
    whole = LatencyParts("sequence", task_ms, buffer_ms, transport_ms, worst_ms)
    place = f"translate({number(columns.at(worst_ms))} {number(y + _ROW / 2)})"
    tooltip = f"<title>{escaped(f'worst: {latency_text(worst_ms)}')}</title>"
    diamond = f'<path class="worst" transform="{place}" d="M0 -6 l5 6 l-5 6 l-5 -6 z">{tooltip}</path>'
    figures = _figures(state.mean_ms, state.worst_ms, columns, y, "sum")
    return _name("sequence", "name sum", columns, y) + _stack(whole, 0.0, columns, y) + diamond + figures


def _by_cause(part: LatencyParts) -> tuple[float, float, float]:
    return part.task_ms, part.buffer_ms, part.transport_ms


def _stack(part: LatencyParts, offset: float, columns: BarColumns, y: float) -> str:
    drawn, begin = [], offset
    for cause, value in zip(CAUSES, _by_cause(part), strict=True):
        if value > 0:
            left, right = columns.at(begin), columns.at(begin + value)
            words = escaped(f"{_arrows(part.element)}: {CAUSES[cause]} {latency_text(value)}")
            drawn.append(
                f'<rect class="bar {cause}" x="{number(left)}" y="{number(y + (_ROW - _BAR) / 2)}" '
                f'width="{number(max(right - left, 3.0))}" height="{number(_BAR)}"><title>{words}</title></rect>'
            )
        begin += value
    return "".join(drawn)


def _name(name: str, kind: str, columns: BarColumns, y: float) -> str:
    shown = fitted(name, columns.labels - 8, _SIZE, bold="sum" in kind)
    return _text(kind, _PAD, y + _ROW / 2 + 4, shown, title=name)


def _figures(mean_ms: float | None, worst_ms: float | None, columns: BarColumns, y: float, kind: str = "") -> str:
    right, base = columns.width - _PAD, y + _ROW / 2 + 4
    mean = _text(f"mean {kind}".strip(), right - _FIGURES, base, latency_text(mean_ms), "end")
    return mean + _text(f"most {kind}".strip(), right, base, latency_text(worst_ms), "end")


def _headings(columns: BarColumns, first: float) -> str:
    right, base = columns.width - _PAD, first - 4
    return _text("unit", right - _FIGURES, base, "mean", "end") + _text("unit", right, base, "worst", "end")


def _scale(columns: BarColumns, first: float, bottom: float) -> str:
    drawn, free = [], -math.inf
    for value, words in columns.bars.ticks:
        x, text = columns.at(value), words if value else f"{words} ms"
        ends = f'x1="{number(x)}" x2="{number(x)}" y1="{number(first)}" y2="{number(bottom)}"'
        drawn.append(f'<line class="grid" {ends}/>')
        half = _LETTER * len(text) / 2
        if x - half >= free:  # on narrow pages only some of them have room
            drawn.append(_text("unit", x, bottom + 14, text, "middle"))
            free = x + half + 6
    return "".join(drawn)


def _limit(state: ConstraintState, columns: BarColumns, first: float, bottom: float) -> str:
    limit_ms = state.constraint.latency_ms
    words = f"limit {limit_ms:,g} ms"
    if limit_ms > columns.bars.high:
        return _text("limit-said", columns.bars.end, first - 4, f"{words} →", "end")
    x = columns.at(limit_ms)
    line = f'<line class="limit" x1="{number(x)}" x2="{number(x)}" y1="{number(first - 2)}" y2="{number(bottom)}"/>'
    return line + _text("limit-said", min(x + 4, columns.bars.end), first - 4, words, "end")


def _key(y: float) -> str:
    x, drawn = _PAD, []
    for cause, words in CAUSES.items():
        drawn.append(f'<rect class="key {cause}" x="{number(x)}" y="{number(y)}" width="12" height="12"/>')
        drawn.append(_text("name", x + 17, y + 10, words))
        x += 17 + _LETTER * len(words) + 18
    return "".join(drawn)


def _text(kind: str, x: float, y: float, words: str, anchor: str = "start", title: str = "") -> str:
    hint = f"<title>{escaped(title)}</title>" if title else ""
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{hint}{escaped(words)}</text>'


def _read_aloud(state: ConstraintState) -> str:
    causes = [f"{part.element} {latency_text(part.mean_ms)}" for part in state.parts]
    parts = f"; by element: {', '.join(causes)}" if causes else ""
    alt_text = "; ".join(filter(None, [in_figures(state), state.reason, chained_text(state), state.remedy]))
    return f"Latency of {state.constraint.sequence}, {alt_text}{parts}"


def _arrows(text: str) -> str:
    return text.replace(" -> ", " → ")


def _wrapped(text: str, letters: int) -> list[str]:
    return textwrap.wrap(_kept_together(_arrows(text)), letters, max_lines=4, placeholder=" …")


def _kept_together(text: str) -> str:
    """The text with numbers that stay on the line of their unit."""
    return re.sub(r"(?<=\d) (?=m?s\b)", "\u00a0", text)


MOST_LINES = 6
"""Maximum number of edges in one drawing; those that changed last are shown."""
_TOP, _HEIGHT, _BELOW, _LEFT, _step_LETTER, _step_LINE = 48.0, 120.0, 32.0, 62.0, 6.3, 15.0
_TICKS = ((200.0, "200 B"), *((1024.0 * kib, f"{kib} KiB") for kib in (1, 4, 16, 64)))
_COLOURS = (
    (markup.BLUE, markup.SKY), (markup.ORANGE, markup.ORANGE), (markup.GREEN, "#2fc79a"),
    (markup.VERMILION, "#ff8a3d"), (markup.PURPLE, markup.PURPLE), (markup.SKY, markup.BLUE),
)  # fmt: skip
_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 4", "12 4")
_step_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{markup.FONT}; font-size: 11.5px; fill: {markup.SOFT}",
    ".title": f"font-size: 13px; font-weight: 600; fill: {markup.INK}",
    ".name": f"fill: {markup.INK}",
    ".grid": f"stroke: {markup.LINE}; stroke-width: 1px",
    ".chains": f"stroke: {markup.SOFT}; stroke-width: 1px; stroke-dasharray: 3 3",
    ".steps": "fill: none; stroke-width: 2px; stroke-linejoin: round",
    ".between": "opacity: 0.15",
    **{f".steps.e{place}": f"stroke: {light}; stroke-dasharray: {_DASHES[place]}"
       for place, (light, _) in enumerate(_COLOURS)},
    **{f".between.e{place}": f"fill: {light}" for place, (light, _) in enumerate(_COLOURS)},
}  # fmt: skip
_step_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_SOFT}",
    ".title, .name": f"fill: {markup.NIGHT_INK}",
    ".grid": f"stroke: {markup.NIGHT_LINE}",
    ".chains": f"stroke: {markup.NIGHT_SOFT}",
    **{f".steps.e{place}": f"stroke: {dark}" for place, (_, dark) in enumerate(_COLOURS)},
    **{f".between.e{place}": f"fill: {dark}" for place, (_, dark) in enumerate(_COLOURS)},
}
_STEP_CSS = themed(".fries-buffers-svg", _step_LIGHT, _step_DARK)
Step = tuple[float, int, int]
"""Time in seconds since the Unix epoch, smallest and largest size in bytes from then on."""


@dataclass(frozen=True)
class SizeLine:
    """The sizes of the buffers of an edge, at each change and at the end."""

    edge: str
    steps: tuple[Step, ...]

    @property
    def label(self) -> str:
        """The edge and its present sizes."""
        return f"{self.edge.replace(' -> ', ' → ')}: {bytes_text(*self.steps[-1][1:])}"


def bytes_text(smallest: int, largest: int) -> str:
    """The sizes of an edge's buffers as text; ``chained`` without any buffer."""
    if not largest:
        return "chained"
    low, high = (f"{size} B" if size < 1024 else f"{size / 1024:.3g} KiB" for size in (smallest, largest))
    return high if low == high else f"{low} to {high}"


def lines_of(sizes: Sequence[BufferSize], ended_s: float) -> tuple[SizeLine, ...]:
    """The lines of a drawing until ``ended_s``, in order of the first report; constraints may share an edge."""
    found: dict[str, tuple[str, list[Step]]] = {}
    for size in sizes:
        sequence, steps = found.setdefault(size.edge, (size.sequence, []))
        if sequence == size.sequence:
            steps.append((size.at_s, size.smallest_bytes, size.largest_bytes))
    latest = sorted(found, key=lambda edge: -found[edge][1][-1][0])[:MOST_LINES]
    return tuple(
        SizeLine(edge, (*steps, (max(ended_s, steps[-1][0]), *steps[-1][1:])))
        for edge, (_, steps) in found.items()
        if edge in latest
    )


def buffers_svg(
    sizes: Sequence[BufferSize], chains: Sequence[ChainChange], began_s: float, ended_s: float, width: float = 760.0
) -> str:
    """Draw the sizes of output buffers, in order of time and at least one, and when chains were made or split."""
    lines = lines_of(sizes, ended_s)
    key, top = _step_key([line.label for line in lines], width)
    across = Scale.of_time(0.0, ended_s - began_s, _LEFT, width - 20)
    up = Scale(_TICKS[0][0] * 0.8, _TICKS[-1][0] * 1.15, top + _HEIGHT, top, True, _TICKS)
    drawn = "".join(_line(place, line, began_s, across, up) for place, line in enumerate(lines))
    height = top + _HEIGHT + _BELOW
    states = "; ".join([line.label for line in lines] + [_said(change) for change in chains[-1:]])
    alt_text = f"Sizes of output buffers over time, now {states}"
    title = '<text class="title" x="16" y="24">Output buffers over time</text>'
    axes, events = _axes(across, up), _chains(chains, began_s, across, up)
    return markup.picture("buffers", (width, height), alt_text, _STEP_CSS, title, key, axes, events, drawn)


def _step_key(labels: Sequence[str], width: float) -> tuple[str, float]:
    """The names of the lines with their present sizes, and where the plot may begin."""
    x, y, drawn = 16.0, 44.0, []
    for place, label in enumerate(labels):
        needed = 30 + _step_LETTER * len(label) + 18
        if x > 16 and x + needed > width - 16:
            x, y = 16.0, y + _step_LINE + 2
        ends = f'x1="{number(x)}" x2="{number(x + 24)}" y1="{number(y - 4)}" y2="{number(y - 4)}"'
        drawn.append(f'<line class="steps e{place}" {ends}/>')
        drawn.append(f'<text class="name" x="{number(x + 30)}" y="{number(y)}">{escaped(label)}</text>')
        x += needed
    return "".join(drawn), y + 26


def _axes(across: Scale, up: Scale) -> str:
    drawn = []
    for value, words in up.ticks:
        y = up.at(value)
        ends = f'x1="{number(across.start)}" x2="{number(across.end)}" y1="{number(y)}" y2="{number(y)}"'
        drawn.append(f'<line class="grid" {ends}/>')
        drawn.append(f'<text x="{number(across.start - 8)}" y="{number(y + 4)}" text-anchor="end">{words}</text>')
    for value, words in across.ticks:
        place = f'x="{number(across.at(value))}" y="{number(up.start + 16)}"'
        drawn.append(f'<text {place} text-anchor="middle">{words}{"" if value else " s"}</text>')
    return "".join(drawn)


def _line(place: int, line: SizeLine, began_s: float, across: Scale, up: Scale) -> str:
    """The largest sizes as steps, and a band down to the smallest ones."""
    drawn = []
    for piece in _pieces(line.steps):
        low = _pixels([(at_s, least) for at_s, least, _ in piece], began_s, across, up)
        high = _pixels([(at_s, most) for at_s, _, most in piece], began_s, across, up)
        if high != low:
            drawn.append(f'<path class="between e{place}" d="{_path([*high, *reversed(low)])} Z"/>')
        tooltip = f"<title>{escaped(line.label)}</title>"
        drawn.append(f'<path class="steps e{place}" d="{_path(high)}">{tooltip}</path>')
    return "".join(drawn)


def _pieces(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps of each time in which the edge had buffers, each with the time at which that ended."""
    piece: list[Step] = []
    for step in steps:
        if step[2]:
            piece.append(step)
        elif piece:
            yield [*piece, (step[0], *piece[-1][1:])]
            piece = []
    if piece:
        yield piece


def _pixels(
    steps: Sequence[tuple[float, int]], began_s: float, across: Scale, up: Scale
) -> list[tuple[float, float]]:
    return [(across.at(at_s - began_s), up.at(size)) for at_s, size in _corners(steps)]


def _corners(steps: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """The corners of a line that keeps each size until the next time."""
    yield steps[0]
    for (_, before), (at_s, size) in pairwise(steps):
        yield at_s, before
        if size != before:
            yield at_s, size


def _chains(changes: Sequence[ChainChange], began_s: float, across: Scale, up: Scale) -> str:
    """A vertical line for each change of chains, with words where there is room, newest first."""
    drawn, free = [], across.end
    for change in reversed(changes):
        x, words = across.at(change.at_s - began_s), _said(change)
        ends = f'x1="{number(x)}" x2="{number(x)}" y1="{number(up.end - 4)}" y2="{number(up.start)}"'
        drawn.append(f'<line class="chains" {ends}><title>{escaped(words)}</title></line>')
        start = min(x, across.end - _step_LETTER * len(words))
        if start >= across.start and start + _step_LETTER * len(words) <= free:
            drawn.append(f'<text class="name" x="{number(start)}" y="{number(up.end - 8)}">{escaped(words)}</text>')
            free = start - 12
    return "".join(drawn)


def _said(change: ChainChange) -> str:
    return f"chained: {', '.join(change.chains)}" if change.chains else "no chains"


def _path(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{number(x)} {number(y)}" for x, y in corners)
