"""Pictures and tables of times and loops: complete, within their width, escaped, and in the report of a run."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from report_page import NASTY

from fries_nb.report.host_rows import frontiers_svg, loops_svg, progress_svgs
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier, TimeHolder

SVG = "{http://www.w3.org/2000/svg}"
LETTER = 6.5
HOLDERS = (TimeHolder("numbers", 40, 12_345, "FM", (3,)), TimeHolder("numbers", 40, 1))
FRONTIERS = [OperatorFrontier("FM", 40, HOLDERS), OperatorFrontier("out", None)]
LOOPS = [LoopState("L" * 30, "asking", 12, "u12", 123_456, 10**9, 10**12, 10**9, 10**12), LoopState("M")]


def texts(svg: str) -> list[ET.Element]:
    """The texts of a picture."""
    return list(ET.fromstring(svg).iter(f"{SVG}text"))


@pytest.mark.parametrize("width", [300.0, 360.0, 540.0, 760.0])
def test_texts_are_within_the_picture(width: float) -> None:
    """Beside each other or below each other, whatever fits."""
    for svg in progress_svgs(FRONTIERS, LOOPS, width):
        height = float(ET.fromstring(svg).attrib["height"])
        for text in texts(svg):
            length = LETTER * len(text.text or "")
            x = float(text.attrib["x"]) - (length if "number" in text.attrib["class"] else 0)
            assert x >= 0
            assert x + length <= width, text.text
            assert 0 < float(text.attrib["y"]) < height


@pytest.mark.parametrize("width", [360.0, 760.0])
def test_nothing_is_left_out(width: float) -> None:
    """Each figure, and the words for screen readers."""
    [drawn] = progress_svgs([], [LoopState("L", "asking", 3, "", 7, 40, 1_200, 5, 3 << 20)], width)
    shown = " ".join(text.text or "" for text in texts(drawn)).replace("\N{NO-BREAK SPACE}", " ")
    for figure in ("L", "asking", "7", "1,200", "40", "5", "3.0 MiB", "3"):
        assert figure in shown.split() or figure in shown
    heard = ET.fromstring(drawn).attrib["aria-label"]
    assert heard == (
        "Loops. loop L: phase: asking, rounds: 7, rows back: 1,200, frames back: 40, waiting: 5, spilled: 3.0 MiB, "
        "attempts: 3"
    )


def test_what_there_is_not_is_not_drawn() -> None:
    """Neither a heading nor an empty table."""
    assert progress_svgs([], []) == []
    assert len(progress_svgs(FRONTIERS, [])) == len(progress_svgs([], LOOPS)) == 1


def test_names_are_escaped() -> None:
    """Whatever users call their operators."""
    for svg in (frontiers_svg([OperatorFrontier(NASTY, 1, (TimeHolder(NASTY, 1, 1),))]), loops_svg([LoopState(NASTY)])):
        ET.fromstring(svg)


def test_a_large_dataflow_says_how_many_operators_are_left_out() -> None:
    """And where they are shown."""
    svg = frontiers_svg([OperatorFrontier(f"M{n}", n) for n in range(60)])
    assert "36 more" in svg
    assert "%fries_frontier shows all" in svg
