"""The drawing of output buffers over time: steps, bands, ends at chains; and drawings that are wrong."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise

import pytest
from report_page import NASTY

from fries_nb.constraints.judgements import BufferSize
from fries_nb.protocol.running_chains import ChainChange
from fries_nb.report import constraint_bars
from fries_nb.report.constraint_bars import MOST_LINES, buffers_svg, lines_of

SVG = "{http://www.w3.org/2000/svg}"
SIZES = [
    BufferSize(100.0, "S", "A -> B", 32_768, 32_768),
    BufferSize(100.0, "S", "B -> C", 32_768, 32_768),
    BufferSize(104.0, "S", "B -> C", 200, 16_384),
    BufferSize(106.0, "S", "A -> B", 0, 0),
]
CHAINS = [ChainChange(106.0, ("A + B",))]


def drawn(width: float = 760.0) -> str:
    """The drawing of both edges."""
    return buffers_svg(SIZES, CHAINS, 100.0, 110.0, width)


def paths(svg: str, kind: str) -> list[list[tuple[float, float]]]:
    """The corners of the paths of a class."""
    found = [one for one in ET.fromstring(svg).iter(f"{SVG}path") if (one.get("class") or "").startswith(kind)]
    corners = [re.findall(r"([\d.]+) ([\d.]+)", one.get("d") or "") for one in found]
    return [[(float(x), float(y)) for x, y in each] for each in corners]


def lines_are_steps(svg: str) -> None:
    """Each piece is horizontal or vertical: a size holds until the next one."""
    for line in paths(svg, "steps"):
        assert all(x == right or y == low for (x, y), (right, low) in pairwise(line))


def a_smaller_size_is_lower(svg: str) -> None:
    """Of B -> C the largest falls to half, by a quarter of the height between 4 KiB and 64 KiB."""
    _, (first, *_, last) = paths(svg, "steps")
    assert last[1] > first[1]


def a_chained_edge_ends_at_its_chain(svg: str) -> None:
    """And the other goes on to the end of the axis."""
    (chained, other) = paths(svg, "steps")
    [change] = [one for one in ET.fromstring(svg).iter(f"{SVG}line") if one.get("class") == "chains"]
    assert chained[-1][0] == float(change.get("x1") or 0)
    assert other[-1][0] > chained[-1][0]


def buffers_that_differ_have_a_band(svg: str) -> None:
    """From the smallest to the largest; equal ones have none."""
    assert len(paths(svg, "between")) == 1


LAWS = (lines_are_steps, a_smaller_size_is_lower, a_chained_edge_ends_at_its_chain, buffers_that_differ_have_a_band)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("width", [360.0, 760.0])
def test_buffers(law: Callable[[str], None], width: float) -> None:
    """Laws of the picture in each width."""
    law(drawn(width))


SABOTAGE = {
    "slopes": ("_corners", iter),
    "no gap": ("_pieces", lambda steps: [[step for step in steps if step[2]] + [(110.0, 32_768, 32_768)]]),
    "the present size": ("lines_of", lambda sizes, ended_s: lines_of(sizes[-2:], ended_s)),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_wrong_picture_breaks_a_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws are not empty."""
    monkeypatch.setattr(constraint_bars, *SABOTAGE[name])
    svg, broken = drawn(), 0
    for law in LAWS:
        try:
            law(svg)
        except (AssertionError, ValueError):
            broken += 1
    assert broken


def test_each_edge_is_named_with_its_present_sizes() -> None:
    """In the key and to those who hear; chains in words at their line."""
    svg = drawn()
    label = ET.fromstring(svg).get("aria-label") or ""
    for words in ("A → B: chained", "B → C: 200 B to 16 KiB", "chained: A + B"):
        assert f">{words}</text>" in svg
        assert words in label


def test_an_edge_of_two_constraints_is_drawn_once() -> None:
    """And of many edges those that changed last."""
    twice = [*SIZES, *(BufferSize(107.0, "other", one.edge, 1, 1) for one in SIZES[:2])]
    assert [line.steps for line in lines_of(twice, 110.0)] == [line.steps for line in lines_of(SIZES, 110.0)]
    many = [BufferSize(100.0 + n, "S", f"E{n} -> E", 400, 400) for n in range(9)]
    assert [line.edge for line in lines_of(many, 110.0)] == [f"E{n} -> E" for n in range(9 - MOST_LINES, 9)]


def test_hostile_names_are_escaped() -> None:
    """Names are the user's."""
    ET.fromstring(buffers_svg([BufferSize(1.0, NASTY, NASTY, 400, 400)], [ChainChange(2.0, (NASTY,))], 0.0, 9.0))
