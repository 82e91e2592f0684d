"""The sizes of output buffers over time as SVG, one line an edge, and when operators were chained or split.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fries_nb.constraints.judgements import BufferSize
from fries_nb.report import theme
from fries_nb.report.scales import Scale
from fries_nb.report.theme import BLUE, FONT, GREEN, ORANGE, PURPLE, SKY, VERMILION, escaped, number, themed
from fries_nb.topology.running_chains import ChainChange

MOST_LINES = 6
"""Maximum number of edges in one drawing; those that changed last are shown."""
_TOP, _HEIGHT, _BELOW, _LEFT, _LETTER, _LINE = 48.0, 120.0, 32.0, 62.0, 6.3, 15.0
_TICKS = ((200.0, "200 B"), *((1024.0 * kib, f"{kib} KiB") for kib in (1, 4, 16, 64)))
_COLOURS = ((BLUE, SKY), (ORANGE, ORANGE), (GREEN, "#2fc79a"), (VERMILION, "#ff8a3d"), (PURPLE, PURPLE), (SKY, BLUE))
_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 4", "12 4")
_LIGHT = {
    ".paper": f"fill: {theme.PAPER}",
    "text": f"{FONT}; font-size: 11.5px; fill: {theme.SOFT}",
    ".title": f"font-size: 13px; font-weight: 600; fill: {theme.INK}",
    ".name": f"fill: {theme.INK}",
    ".grid": f"stroke: {theme.LINE}; stroke-width: 1px",
    ".chains": f"stroke: {theme.SOFT}; stroke-width: 1px; stroke-dasharray: 3 3",
    ".steps": "fill: none; stroke-width: 2px; stroke-linejoin: round",
    ".between": "opacity: 0.15",
    **{f".steps.e{place}": f"stroke: {light}; stroke-dasharray: {_DASHES[place]}"
       for place, (light, _) in enumerate(_COLOURS)},
    **{f".between.e{place}": f"fill: {light}" for place, (light, _) in enumerate(_COLOURS)},
}  # fmt: skip
_DARK = {
    ".paper": f"fill: {theme.NIGHT_PAPER}",
    "text": f"fill: {theme.NIGHT_SOFT}",
    ".title, .name": f"fill: {theme.NIGHT_INK}",
    ".grid": f"stroke: {theme.NIGHT_LINE}",
    ".chains": f"stroke: {theme.NIGHT_SOFT}",
    **{f".steps.e{place}": f"stroke: {dark}" for place, (_, dark) in enumerate(_COLOURS)},
    **{f".between.e{place}": f"fill: {dark}" for place, (_, dark) in enumerate(_COLOURS)},
}
_CSS = themed(".fries-buffers-svg", _LIGHT, _DARK)
Step = tuple[float, int, int]
"""Time in seconds since the Unix epoch, smallest and largest size in bytes from then on."""


@dataclass(frozen=True)
class SizeLine:
    """The buffers of an edge over time.

    Attributes:
        edge: the edge as text.
        steps: its sizes at each change and at the end.
    """

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
    """The lines of a drawing, in order of the first report.

    Args:
        sizes: the sizes of any number of edges, in order of time; several constraints may have an edge in common.
        ended_s: the time at which the lines end.
    """
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
    """Draw the sizes of output buffers, and when chains were made or split.

    Args:
        sizes: the sizes, in order of time; at least one.
        chains: the changes of chains, in order of time.
        began_s: time of the left end of the axis, in seconds since the Unix epoch.
        ended_s: time of its right end.
        width: width in pixels.

    Returns:
        An ``<svg>`` element.
    """
    lines = lines_of(sizes, ended_s)
    key, top = _key([line.label for line in lines], width)
    across = Scale.of_time(0.0, ended_s - began_s, _LEFT, width - 20)
    up = Scale(_TICKS[0][0] * 0.8, _TICKS[-1][0] * 1.15, top + _HEIGHT, top, True, _TICKS)
    drawn = "".join(_line(place, line, began_s, across, up) for place, line in enumerate(lines))
    height = top + _HEIGHT + _BELOW
    size = f'viewBox="0 0 {number(width)} {number(height)}" width="{number(width)}" height="{number(height)}"'
    told = "; ".join([line.label for line in lines] + [_said(change) for change in chains[-1:]])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fries-buffers-svg" {size} role="img" '
        f'aria-label="{escaped(f"Sizes of output buffers over time, now {told}")}"><style>{_CSS}</style>'
        f'<rect class="paper" width="100%" height="100%" rx="6"/>'
        f'<text class="title" x="16" y="24">Output buffers over time</text>{key}'
        f"{_axes(across, up)}{_chains(chains, began_s, across, up)}{drawn}</svg>"
    )


def _key(labels: Sequence[str], width: float) -> tuple[str, float]:
    """The names of the lines with their present sizes, and where the plot may begin."""
    x, y, drawn = 16.0, 44.0, []
    for place, label in enumerate(labels):
        needed = 30 + _LETTER * len(label) + 18
        if x > 16 and x + needed > width - 16:
            x, y = 16.0, y + _LINE + 2
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
        told = f"<title>{escaped(line.label)}</title>"
        drawn.append(f'<path class="steps e{place}" d="{_path(high)}">{told}</path>')
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
        start = min(x, across.end - _LETTER * len(words))
        if start >= across.start and start + _LETTER * len(words) <= free:
            drawn.append(f'<text class="name" x="{number(start)}" y="{number(up.end - 8)}">{escaped(words)}</text>')
            free = start - 12
    return "".join(drawn)


def _said(change: ChainChange) -> str:
    return f"chained: {', '.join(change.chains)}" if change.chains else "no chains"


def _path(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{number(x)} {number(y)}" for x, y in corners)
