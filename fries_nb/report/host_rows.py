"""The hosts of a run as SVG, and the owners of each keyed operator's bins, by colour and by number.

A row for each host: its colour and number, how many workers it has, and how many tuples a second they take in. Below, a
strip for each keyed operator: its 1,024 bins in order, coloured by the host of the worker that owns them; a thin line
separates workers. Where there is room the strip has the number of the host as well. A list of strips shows how a
rescale has changed them.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> from fries_nb.protocol.topology import Topology
>>> edge = Edge("S", "K", Partitioning.HASH, ("k",))
>>> topology = Topology.dealt(Graph("pair", (Operator("S"), Operator("K", key=("k",), workers=2)), (edge,)), hosts=2)
>>> status = TopologyStatus.of(topology, (0, 1))
>>> runs_of(status, "K")
[(0, 512, 0, 0), (512, 1024, 1, 1)]
>>> hosts_svg(status, {0: 1_500.0, 1: 20.0}).count('class="bins h')
2
>>> phrase_of(status)
'2 hosts'

Frontiers and loops in rows: for the live view, the report and the cells of magics.

>>> from fries_nb.telemetry.frontiers import TimeHolder
>>> frontier_row(OperatorFrontier("W", 30, (TimeHolder("Src", 30, 2, "W"), TimeHolder("Src", 40, 1))))
('W', 'from 30 on', 'Src → W: 2 frames; and 1 more')
>>> frontier_row(OperatorFrontier("out", None))
('out', 'nothing', '')
>>> loop_row(LoopState("L", "asking", attempts=2, round=7, frames=4, rows=1_200, waiting=5, spilled=3 << 20))
('L', 'asking', '7', '1,200', '4', '5', '3.0 MiB', '2')
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.protocol.partitioning import BINS
from fries_nb.report import markup
from fries_nb.report.markup import TextColumn, escaped, fitted, number, rows_svg, themed
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier, time_text
from fries_nb.words import counted

_PAD, _ROW, _LINE, _STRIP, _TITLE = 16.0, 22.0, 17.0, 16.0, 30.0
_LETTER, _BOLD_LETTER, _FIGURES, _LABELS = 6.4, 7.6, 92.0, 120.0
_MOST = 12
"""Number of hosts, and of strips, that a drawing shows."""
# Light and dark alternate, so that neighbours differ in lightness as well.
_COLOURS = (
    markup.BLUE, markup.ORANGE, markup.GREEN, markup.PURPLE, markup.SKY, markup.VERMILION, markup.GREY, "#F0E442",
)  # fmt: skip
_DARK_LETTERS = {markup.ORANGE, markup.PURPLE, markup.SKY, markup.GREY, "#F0E442"}

_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{markup.FONT}; font-size: 11.5px; fill: {markup.SOFT}; font-variant-numeric: tabular-nums",
    ".title": f"font-size: 13px; font-weight: 600; fill: {markup.INK}",
    ".name": f"fill: {markup.INK}; font-weight: 600",
    ".figure": f"fill: {markup.INK}",
    ".track": f"fill: {markup.BAND}",
    ".rate": f"fill: {markup.GREY}",
    ".edge": f"stroke: {markup.PAPER}; stroke-width: 1px",
    **{f".h{place}": f"fill: {colour}" for place, colour in enumerate(_COLOURS)},
    ".again": "fill-opacity: 0.55",
    ".in": "font-size: 10.5px; font-weight: 600; fill: #ffffff; text-anchor: middle",
    ".in.dark, .in.pale": "fill: #111418",
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_SOFT}",
    ".title, .name, .figure": f"fill: {markup.NIGHT_INK}",
    ".track": f"fill: {markup.NIGHT_BAND}",
    ".edge": f"stroke: {markup.NIGHT_PAPER}",
    ".in": "fill: #ffffff",
    ".in.dark": "fill: #111418",
    ".in.pale": "fill: #ffffff",
}
_CSS = themed(".fries-hosts-svg", _LIGHT, _DARK)

BinRun = tuple[int, int, int, int]
"""Adjacent bins of one owner: the first bin, the one behind the last, the owner's index, and its host."""


@dataclass(frozen=True)
class HostColumns:
    """Where the columns of a drawing begin and end, in pixels."""

    labels: float
    end: float

    @staticmethod
    def of(width: float, times: Sequence[str]) -> HostColumns:
        """The columns for a drawing with these labels of strips."""
        labels = min(_LABELS, width * 0.3, _LETTER * max(map(len, ["a host 00 ", *times])) + 18)
        return HostColumns(_PAD + labels, width - _PAD)


def runs_of(status: TopologyStatus, operator: str) -> list[BinRun]:
    """The bins of a keyed operator as runs of equal owners, in order."""
    hosts, runs, at = status.workers[operator], [], 0
    for owner, some in groupby(status.tables[operator].owners.tolist()):
        size = len(list(some))
        runs.append((at, at + size, owner, hosts[owner]))
        at += size
    return runs


def phrase_of(status: TopologyStatus) -> str:
    """The number of hosts and, while a rescale is under way, how far it is."""
    hosts = len(status.hosts)
    moved = f"{bytes_of(status.moved_bytes)} moved" if status.moved_bytes else ""
    if status.is_idle:
        return counted(hosts, "host")
    left = f"{counted(status.bins_left, 'bin')} left" if status.bins_left else ""
    facts = ", ".join(filter(None, [status.phase, left, moved]))
    if status.wanted == hosts:  # it is one of workers
        return f"{counted(hosts, 'host')}: {facts}"
    return f"from {hosts} to {counted(status.wanted, 'host')}: {facts}"


def bytes_of(size: int) -> str:
    """A size in bytes as text.

    >>> bytes_of(900), bytes_of(20_480), bytes_of(3 << 20)
    ('900 B', '20 KiB', '3.0 MiB')
    """
    if size >= 1 << 20:
        return f"{size / (1 << 20):,.1f} MiB"
    return f"{size / 1024:,.0f} KiB" if size >= 1 << 10 else f"{size} B"


def hosts_svg(
    status: TopologyStatus,
    rates: Mapping[int, float],
    before: Sequence[tuple[str, TopologyStatus]] = (),
    width: float = 760.0,
) -> str:
    """Draw the hosts and the owners of bins, below those of earlier topologies, oldest first, with their labels."""
    # ``rates`` has the tuples per second that the workers of a host take in; it is empty if nothing flows.
    shown = [*before[-4:], ("now", status)] if before else [("", status)]
    columns = HostColumns.of(width, [label for label, _ in shown])
    titles = textwrap.wrap(_title(status), int((width - 2 * _PAD) / _BOLD_LETTER))
    parts = [_text("title", _PAD, _TITLE - 8 + _LINE * place, line) for place, line in enumerate(titles)]
    y = _TITLE + 2 + _LINE * (len(titles) - 1)
    for drawn in _host_rows(status, rates, columns, y):
        parts.append(drawn)
        y += _ROW
    for name in list(status.tables)[:_MOST]:
        y += 8
        parts.append(_text("name", _PAD, y + 12, fitted(f"bins of {name}", width - 2 * _PAD, 11.5, bold=True)))
        y += _LINE
        for label, topology in shown:
            if name in topology.tables:
                parts.append(_strip(topology, name, label, columns, y))
                y += _STRIP + 5
    if len(status.tables) > _MOST:
        parts.append(_text("more", _PAD, y + _LINE, counted(len(status.tables) - _MOST, "more keyed operator")))
        y += _LINE + 4
    height = y + _PAD / 2
    return markup.picture("hosts", (width, height), read_aloud(status, rates), _CSS, *parts)


def before_now(topologies: Sequence[HostCount]) -> list[tuple[str, TopologyStatus]]:
    """The topologies before the current one, which is the last, with the numbers of hosts as labels."""
    return [(counted(topology.hosts, "host"), topology.topology) for topology in topologies[:-1]]


def read_aloud(status: TopologyStatus, rates: Mapping[int, float]) -> str:
    """The hosts and the shares of bins as text."""
    hosts = [f"host {host}: {', '.join(_facts(status, host, rates))}" for host in status.hosts_now]
    for name in status.tables:
        owned = {owner: len(bins) for owner, bins in status.bins(name).items()}
        shares = [f"{count} at {name}[{owner}] on host {status.workers[name][owner]}" for owner, count in owned.items()]
        hosts.append(f"bins of {name}: {', '.join(shares)}")
    return "; ".join([_title(status), *hosts])


def _title(status: TopologyStatus) -> str:
    return f"Hosts: {phrase_of(status)}"


def _facts(status: TopologyStatus, host: int, rates: Mapping[int, float]) -> list[str]:
    facts = [counted(status.worker_counts.get(host, 0), "worker")]
    return [*facts, f"{rates[host]:,.0f} tuples/s"] if host in rates else facts


def _host_rows(
    status: TopologyStatus, rates: Mapping[int, float], columns: HostColumns, first: float
) -> Iterator[str]:
    """A row for each host, and one that counts those that are not shown."""
    top = max([*rates.values(), 1.0])
    for place, host in enumerate(status.hosts_now[:_MOST]):
        y = first + _ROW * place
        facts = _facts(status, host, rates)
        drawn = f'<rect class="{_kind(host)}" x="{number(_PAD)}" y="{number(y + 4)}" width="12" height="12" rx="2"/>'
        drawn += _text("name", _PAD + 18, y + 14, f"host {host}")
        drawn += _text("figure", columns.labels, y + 14, facts[0])
        if len(facts) > 1:
            start = columns.labels + _FIGURES
            space = columns.end - start - _FIGURES - 8
            for kind, share in (("track", 1.0), ("rate", rates[host] / top)):
                size = f'width="{number(max(space * share, 0.0))}" height="8"'
                drawn += f'<rect class="{kind}" x="{number(start)}" y="{number(y + 6)}" {size} rx="2"/>'
            drawn += _text("figure", columns.end, y + 14, facts[1], "end")
        yield drawn
    if len(status.hosts_now) > _MOST:
        yield _text("more", _PAD, first + _ROW * _MOST + 14, counted(len(status.hosts_now) - _MOST, "more host"))


def _strip(status: TopologyStatus, operator: str, label: str, columns: HostColumns, y: float) -> str:
    left = columns.labels if label else _PAD
    scale = (columns.end - left) / BINS
    drawn = [_text("label", _PAD, y + 12, label)] if label else []
    for first, behind, owner, host in runs_of(status, operator):
        x, wide = left + first * scale, (behind - first) * scale
        bins = f"{counted(behind - first, 'bin')} ({first} to {behind - 1})"
        tooltip = escaped(f"{bins} at {operator}[{owner}], host {host}")
        size = f'width="{number(wide)}" height="{number(_STRIP)}"'
        drawn.append(
            f'<rect class="bins {_kind(host)}" x="{number(x)}" y="{number(y)}" {size}><title>{tooltip}</title></rect>'
        )
        if first and wide > 3:
            drawn.append(f'<path class="edge" d="M{number(x)} {number(y)} v{number(_STRIP)}"/>')
        if wide > 9 + _LETTER * len(str(host)):
            drawn.append(_text(_letters(host), x + wide / 2, y + 12, str(host), ""))
    return "".join(drawn)


def _kind(host: int) -> str:
    """The CSS classes of a host's colour; from the ninth on colours are used again, paler."""
    return f"h{host % len(_COLOURS)}{' again' if host >= len(_COLOURS) else ''}"


def _letters(host: int) -> str:
    """The CSS classes of a host's number on its colour."""
    if host >= len(_COLOURS):
        return "in pale"
    return "in dark" if _COLOURS[host] in _DARK_LETTERS else "in"


def _text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    turned = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}"{turned}>{escaped(words)}</text>'


FRONTIER_TITLE = "Times"
FRONTIER_COLUMNS = (TextColumn("operator"), TextColumn("can still arrive"), TextColumn("held back by"))
LOOP_TITLE = "Loops"
LOOP_COLUMNS = (
    TextColumn("loop"),
    TextColumn("phase"),
    *(
        TextColumn(name, number=True)
        for name in ("rounds", "rows back", "frames back", "waiting", "spilled", "attempts")
    ),
)
_MOST_TIMES = 24
"""Number of operators that a drawing shows; those of more are in the table of ``%fries_frontier``."""


def frontier_row(frontier: OperatorFrontier) -> tuple[str, str, str]:
    """An operator, what can still arrive, and what holds it back, with its time if that is another one."""
    arrives = "nothing" if frontier.time is None else f"from {time_text(frontier.time)} on"
    if not frontier.holders:
        return frontier.operator, arrives, ""
    first, more = frontier.holders[0], len(frontier.holders) - 1
    what = first.what if first.time == frontier.time else str(first)
    return frontier.operator, arrives, what + (f"; and {more:,} more" if more else "")


def loop_row(loop: LoopState) -> tuple[str, ...]:
    """A loop in texts, as in ``LOOP_COLUMNS``."""
    counts = (f"{number:,}" for number in (loop.round, loop.rows, loop.frames, loop.waiting))
    phase = f"{loop.phase} for {loop.change}" if loop.change else loop.phase
    return loop.name, phase, *counts, _size(loop.spilled), f"{loop.attempts:,}"


def frontiers_svg(frontiers: Sequence[OperatorFrontier], width: float = 760.0) -> str:
    """Draw the frontiers of operators."""
    rows = [*map(frontier_row, frontiers[:_MOST_TIMES])]
    if (more := len(frontiers) - _MOST_TIMES) > 0:
        rows.append((f"{more:,} more", "", "%fries_frontier shows all"))
    return rows_svg(FRONTIER_TITLE, FRONTIER_COLUMNS, rows, width)


def loops_svg(loops: Sequence[LoopState], width: float = 760.0) -> str:
    """Draw the states of loops."""
    return rows_svg(LOOP_TITLE, LOOP_COLUMNS, [*map(loop_row, loops)], width)


def progress_svgs(
    frontiers: Sequence[OperatorFrontier], loops: Sequence[LoopState], width: float = 760.0
) -> list[str]:
    """The drawings of frontiers and loops; none of what there is not."""
    drawn = [frontiers_svg(frontiers, width)] if frontiers else []
    return drawn + ([loops_svg(loops, width)] if loops else [])


def _size(spilled: int) -> str:
    return f"{spilled / (1 << 20):,.1f} MiB" if spilled >= 1 << 20 else f"{spilled / 1024:,.0f} KiB" if spilled else "0"
