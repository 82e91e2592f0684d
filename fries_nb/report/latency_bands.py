"""Latency constraints over time, for plots of latency: the limit, and a band from mean to worst of the sequence.

>>> from fries_nb.constraints.reactions import ConstraintStatus
>>> values = [(100.0, 40.0, 60.0), (101.0, None, None), (102.0, 50.0, 90.0), (103.0, 50.0, math.inf)]
>>> judged = [ConstraintPoint(at_s, "FC -> FM", 80.0, ConstraintStatus.MET, *known) for at_s, *known in values]
>>> bands_of(judged)[0].pieces
(((100.0, 40.0, 60.0),), ((102.0, 50.0, 90.0), (103.0, 50.0, inf)))
>>> outline(bands_of(judged)[0].pieces[1])
[(102.0, 50.0), (103.0, 50.0), (103.0, inf), (102.0, 90.0)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from fries_nb.constraints.judgements import ConstraintPoint
from fries_nb.report.scales import Scale
from fries_nb.report.theme import escaped, number

MOST_BANDS = 3
"""Maximum number of constraints in one plot; those with the lowest limits are shown."""
_MOST_POINTS = 200
Spot = tuple[float, float, float]
"""Time in seconds since the Unix epoch, mean and worst latency in milliseconds."""


@dataclass(frozen=True, slots=True)
class LatencyBand:
    """A constrained sequence over time.

    Attributes:
        sequence: the sequence as text.
        limit_ms: the limit in milliseconds.
        pieces: the spots of each time in which the latency was known without interruption.
    """

    sequence: str
    limit_ms: float
    pieces: tuple[tuple[Spot, ...], ...]

    @property
    def name(self) -> str:
        """The sequence for display."""
        return self.sequence.replace(" -> ", " → ")

    @property
    def label(self) -> str:
        """The limit as text."""
        return f"{self.name} ≤ {self.limit_ms:,g} ms"

    @property
    def spots(self) -> Iterator[Spot]:
        """The spots of all pieces, in order of time."""
        return (spot for piece in self.pieces for spot in piece)


def bands_of(points: Iterable[ConstraintPoint]) -> tuple[LatencyBand, ...]:
    """The bands of a plot, lowest limit first.

    Args:
        points: judgements of any number of constraints, in order of time.

    Returns:
        At most ``MOST_BANDS`` bands, with few enough spots to be drawn.
    """
    by_sequence: dict[tuple[float, str], list[ConstraintPoint]] = {}
    for point in points:
        by_sequence.setdefault((point.limit_ms, point.sequence), []).append(point)
    return tuple(
        LatencyBand(sequence, limit_ms, tuple(_pieces(by_sequence[limit_ms, sequence])))
        for limit_ms, sequence in sorted(by_sequence)[:MOST_BANDS]
    )


def names_of(bands: Sequence[LatencyBand]) -> list[tuple[float, float, str]]:
    """The names of several bands, to tell them apart: time and mean latency of their last spot, and the name."""
    ends = [(next(iter(reversed(list(band.spots))), None), band.name) for band in bands if len(bands) > 1]
    return [(end[0], end[1], name) for end, name in ends if end is not None]


def finite_values(bands: Iterable[LatencyBand]) -> list[float]:
    """The limits, and all latencies that are finite, for the range of an axis."""
    values: list[float] = []
    for band in bands:
        values += [band.limit_ms, *(value for _, *latencies in band.spots for value in latencies)]
    return [value for value in values if math.isfinite(value)]


def outline(piece: Sequence[Spot]) -> list[tuple[float, float]]:
    """The corners of a piece: along the means, and back along the worst latencies."""
    return [(at_s, mean) for at_s, mean, _ in piece] + [(at_s, worst) for at_s, _, worst in reversed(piece)]


def bands_svg(bands: Sequence[LatencyBand], began: float, across: Scale, up: Scale) -> tuple[str, str]:
    """The bands and limits as SVG elements of the classes ``band``, ``sequence`` and ``limit``, and their labels.

    Args:
        bands: the bands.
        began: time of the left end of the axis, in seconds.
        across: the time axis.
        up: the latency axis; infinite latencies are drawn at its upper end.
    """
    drawn, labels = [], []
    for band in bands:
        for piece in band.pieces:
            spots = [(at_s, min(mean, up.high), min(worst, up.high)) for at_s, mean, worst in piece]
            drawn.append(_path("band", [(across.at(at_s - began), up.at(value)) for at_s, value in outline(spots)]))
            drawn.append(_path("sequence", [(across.at(at_s - began), up.at(mean)) for at_s, mean, _ in spots]))
        y = up.at(band.limit_ms)
        ends = f'x1="{number(across.start)}" x2="{number(across.end)}" y1="{number(y)}" y2="{number(y)}"'
        drawn.append(f'<line class="limit" {ends}/>')
        labels.append(_label(across.start + 6, y - 5, band.label))
    for at_s, mean, name in names_of(bands):
        labels.append(_label(across.at(at_s - began) - 4, up.at(min(mean, up.high)) + 13, name, "end"))
    return "".join(drawn), "".join(labels)


def _label(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="said" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escaped(words)}</text>'


def _path(kind: str, corners: Sequence[tuple[float, float]]) -> str:
    return f'<path class="{kind}" d="M{" L".join(f"{number(x)} {number(y)}" for x, y in corners)}"/>'


def _pieces(points: Sequence[ConstraintPoint]) -> Iterator[tuple[Spot, ...]]:
    size = math.ceil(len(points) / _MOST_POINTS)
    for is_known, piece in groupby(points, lambda point: point.mean_ms is not None and point.worst_ms is not None):
        if is_known:
            spots = [(point.at_s, point.mean_ms or 0.0, point.worst_ms or 0.0) for point in piece]
            yield tuple(_thinned(spots[start : start + size]) for start in range(0, len(spots), size))


def _thinned(spots: Sequence[Spot]) -> Spot:
    """Several spots as one: the last time, the mean of the means, and the worst of all."""
    return spots[-1][0], fmean(mean for _, mean, _ in spots), max(worst for *_, worst in spots)
