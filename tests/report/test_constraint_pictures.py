"""Pictures of latency constraints: bars by element and cause, and bands in the plot of latency."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf, isclose

import pytest
from report_page import NASTY
from verdicts import STALLED, verdict_on

from fries_nb.constraints.judgements import ConstraintPoint, ConstraintState, state_of
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.report import constraint_bars, latency
from fries_nb.report.constraint_bars import CAUSES, constraint_svg, in_figures, latency_text
from fries_nb.report.latency import MOST_BANDS, bands_of, latency_svg
from fries_nb.telemetry.history import Point

SVG = "{http://www.w3.org/2000/svg}"
CONSTRAINT = LatencyConstraint(("FC", "FM", "MC"), latency_ms=100)
WIDTH = 760.0
POINTS = tuple(Point(1_000.0 + n / 4, 5.0 + n, 20.0 + n, 400.0) for n in range(40))


def measured(constraint: LatencyConstraint = CONSTRAINT, **latencies: float) -> ConstraintState:
    """What one host says."""
    return state_of(constraint, [verdict_on(constraint, 100.0, **latencies)])


def bars(svg: str) -> list[tuple[str, float, float]]:
    """Cause, left and right end of each bar, from the top."""
    found = [one for one in ET.fromstring(svg).iter(f"{SVG}rect") if (one.get("class") or "").startswith("bar ")]
    spans = [(float(one.get("x") or 0), float(one.get("width") or 0)) for one in found]
    causes = [(one.get("class") or "").removeprefix("bar ") for one in found]
    return [(cause, left, left + width) for cause, (left, width) in zip(causes, spans, strict=True)]


def lines(svg: str, kind: str) -> list[ET.Element]:
    """The lines of a class."""
    return [one for one in ET.fromstring(svg).iter(f"{SVG}line") if one.get("class") == kind]


# ---- laws of the bars, and drawings that break them


def each_bar_begins_where_the_last_ended(svg: str) -> None:
    """From the first element to the last, in order of the sequence."""
    drawn = bars(svg)[: -len(CAUSES)]
    assert [cause for cause, *_ in drawn] == [
        "task", "buffer", "transport", "task", "buffer", "transport", "task",
    ]  # fmt: skip
    for (_, _, before), (_, after, _) in pairwise(drawn):
        assert isclose(before, after, abs_tol=0.2)


def the_last_row_sums_up_each_cause(svg: str) -> None:
    """It ends where the bars of the elements end."""
    drawn = bars(svg)
    elements, total = drawn[: -len(CAUSES)], drawn[-len(CAUSES) :]
    for cause, left, right in total:
        assert isclose(right - left, sum(end - begin for one, begin, end in elements if one == cause), abs_tol=0.5)
    assert isclose(total[-1][2], elements[-1][2], abs_tol=0.2)


def the_limit_lies_where_the_bars_would_reach_it(svg: str) -> None:
    """The bars are 95 ms long, and the limit is 100 ms."""
    [line] = lines(svg, "limit")
    left, right = bars(svg)[0][1], bars(svg)[-1][2]
    assert isclose(float(line.get("x1") or 0), left + (right - left) * 100 / 95, abs_tol=1)


LAWS = (
    each_bar_begins_where_the_last_ended,
    the_last_row_sums_up_each_cause,
    the_limit_lies_where_the_bars_would_reach_it,
)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("width", [440.0, WIDTH])
def test_bars(law: Callable[[str], None], width: float) -> None:
    """Laws of the picture in each width."""
    law(constraint_svg(measured(), width))


SABOTAGE = {
    "bars from zero": ("_offsets", lambda parts: [0.0] * len(parts)),
    "buffers as transport": ("_by_cause", lambda part: (part.task_ms, 0.0, part.buffer_ms + part.transport_ms)),
    "no limit": ("_limit", lambda state, columns, first, bottom: ""),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_wrong_picture_breaks_a_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws are not empty."""
    monkeypatch.setattr(constraint_bars, *SABOTAGE[name])
    svg, broken = constraint_svg(measured()), 0
    for law in LAWS:
        try:
            law(svg)
        except (AssertionError, ValueError):
            broken += 1
    assert broken


@pytest.mark.parametrize("status", ConstraintStatus)
def test_the_status_is_a_word_and_a_shape(status: ConstraintStatus) -> None:
    """Not only a colour."""
    svg = constraint_svg(replace(measured(), status=status))
    assert str(status) in svg
    glyphs = [one for one in ET.fromstring(svg).iter(f"{SVG}path") if "glyph" in (one.get("class") or "")]
    [glyph] = [one.get("d") for one in glyphs]
    others = [constraint_svg(replace(measured(), status=other)) for other in ConstraintStatus if other is not status]
    assert all(f'd="{glyph}"' not in other for other in others)


def test_a_limit_far_away_does_not_squeeze_the_bars() -> None:
    """It is named at the end of the scale."""
    svg = constraint_svg(measured(LatencyConstraint(CONSTRAINT.path, latency_ms=9_000)))
    assert lines(svg, "limit") == []
    assert "limit 9,000 ms →" in svg
    assert bars(svg)[-1][2] > WIDTH / 2


def test_a_stalled_sequence_reaches_the_end_of_the_scale() -> None:
    """All that is finite is drawn to scale."""
    state = measured(edge_ms=STALLED)
    svg = constraint_svg(state)
    assert in_figures(state) == "violated: stalled, at most 100 ms over 15 s"
    assert "inf" not in svg
    assert "nan" not in svg
    assert all(0 <= left <= right <= WIDTH for _, left, right in bars(svg))
    assert bars(svg)[0][2] < WIDTH / 3


def test_what_was_not_judged_has_words_only() -> None:
    """No bars, and why."""
    svg = constraint_svg(state_of(CONSTRAINT, []))
    assert bars(svg) == []
    assert "no host has reported measurements yet" in svg
    assert "not yet judged: at most 100 ms over 15 s" in svg.replace("\u00a0", " ")


@pytest.mark.parametrize("width", [300.0, 440.0, WIDTH])
def test_all_text_has_room(width: float) -> None:
    """Long sequences and reasons are broken, long names cut, and whole in their tooltips."""
    names = tuple(f"a rather long name of operator {index}" for index in range(6))
    state = replace(measured(LatencyConstraint(names, latency_ms=100)), reason=" -> ".join(names))
    svg = constraint_svg(state, width)
    assert f"<title>{names[0]}</title>" in svg
    for text in ET.fromstring(svg).iter(f"{SVG}text"):
        shown = (text.text or "") + "".join(child.tail or "" for child in text)
        assert len(shown) * 5.4 <= width, shown


def test_what_its_policy_has_done_is_said() -> None:
    """Below the reason, and to those who cannot see it."""
    svg = constraint_svg(replace(measured(), remedy="lighter functions of FM are proposed"))
    assert ">lighter functions of FM are proposed</text>" in svg
    assert "lighter functions of FM are proposed" in (ET.fromstring(svg).get("aria-label") or "")


def test_names_are_only_names() -> None:
    """Markup in them is escaped."""
    svg = constraint_svg(measured(LatencyConstraint((NASTY, "FM"), latency_ms=100)))
    assert NASTY not in svg
    assert (ET.fromstring(svg).get("aria-label") or "").startswith(f"Latency of {NASTY} -> FM")


def test_large_latencies_keep_their_column() -> None:
    """At most nine letters."""
    values = [0.0, 1e-9, 0.05, 9.96, 99.96, 999.9, 9_999.4, 9_999.9, 99_999.0, inf]
    assert max(len(latency_text(value)) for value in values) <= 9


# ---- bands


def points_of(*latencies: tuple[float | None, float | None], sequence: str = "FC -> FM",
              limit_ms: float = 100.0) -> list[ConstraintPoint]:  # fmt: skip
    """One a second."""
    status = ConstraintStatus.MET
    return [
        ConstraintPoint(POINTS[0].at_s + second, sequence, limit_ms, status, *known)
        for second, known in enumerate(latencies)
    ]


def paths(svg: str, kind: str) -> list[list[tuple[float, float]]]:
    """The corners of the paths of a class."""
    found = [one.get("d") or "" for one in ET.fromstring(svg).iter(f"{SVG}path") if one.get("class") == kind]
    return [[(float(x), float(y)) for x, y in (spot.split() for spot in d[1:].split(" L"))] for d in found]


def test_a_band_spans_mean_and_worst_below_its_limit() -> None:
    """Pixels go down: the limit has the least y, then the worst latency, then the mean."""
    svg = latency_svg(POINTS, (), bands_of(points_of((40.0, 60.0), (40.0, 60.0))))
    [band], [mean], [limit] = paths(svg, "band"), paths(svg, "sequence"), lines(svg, "limit")
    assert len(band) == 4
    assert mean == band[:2]
    assert all(float(limit.get("y1") or 0) < worst < y for (_, y), (_, worst) in zip(mean, band[2:], strict=True))
    assert "FC → FM ≤ 100 ms" in svg
    assert "constrained sequence: mean to worst" in svg


def test_a_plot_without_constraints_has_none_of_it() -> None:
    """Neither lines nor a key."""
    assert "constrained" not in latency_svg(POINTS, ())


def test_a_band_has_gaps_where_nothing_was_judged_and_ends_at_the_axis_where_rows_are_stalled() -> None:
    """No corner leaves the plot."""
    latencies = [(40.0, 60.0), (None, None), (40.0, inf), (inf, inf)]
    svg = latency_svg(POINTS, (), bands_of(points_of(*latencies)))
    assert [len(band) for band in paths(svg, "band")] == [2, 4]
    assert "nan" not in svg
    assert all(0 <= x <= WIDTH and 30 <= y <= 500 for band in paths(svg, "band") for x, y in band)


def test_the_lowest_limits_have_bands() -> None:
    """A plot with more could not be read."""
    points = [one for index in range(6) for one in points_of((1.0, 2.0), sequence=f"s{index}", limit_ms=60.0 - index)]
    assert [band.sequence for band in bands_of(points)] == ["s5", "s4", "s3"]
    assert len(bands_of(points)) == MOST_BANDS


def test_several_bands_are_named_and_one_needs_no_name() -> None:
    """The label of its limit has it."""
    one = points_of((40.0, 60.0), (40.0, 60.0))
    two = one + points_of((10.0, 12.0), (10.0, inf), sequence="FM -> MC", limit_ms=20.0)
    assert ">FC → FM</text>" not in latency_svg(POINTS, (), bands_of(one))
    svg = latency_svg(POINTS, (), bands_of(two))
    assert [svg.count(f">{name}</text>") for name in ("FC → FM", "FM → MC")] == [1, 1]


def test_an_hour_is_thinned_and_keeps_its_peak() -> None:
    """The worst of each interval."""
    latencies: list[tuple[float | None, float | None]] = [(10.0, 20.0)] * 3_600
    latencies[1_234] = (10.0, 900.0)
    [band] = bands_of(points_of(*latencies))
    spots = list(band.spots)
    assert len(spots) <= latency._MOST_POINTS
    assert max(worst for *_, worst in spots) == 900.0
    assert {mean for _, mean, _ in spots} == {10.0}
