"""What notebooks show of a verdict: the versions that tuples met, the cycle, and how naive FCM comes to it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from changes_asked import ChangesAsked
from markupsafe import Markup
from planning_graphs import W3, W5
from report_page import NASTY, Page, stands_alone

from fries_nb.audit import Verdict, judge
from fries_nb.changes.change import Change
from fries_nb.dataflow import Edge, Graph, Operator
from fries_nb.planning import CriticalPath, Prediction
from fries_nb.planning.counter_example import counter_example
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.trace import Ran, Updated
from fries_nb.report import display
from fries_nb.report.audit_section import CycleNode, cycle_svg
from fries_nb.report.markup import rendered
from fries_nb.report.plan_section import in_words
from fries_nb.running.results import RunVerdict

TWO_CHANGES = [
    Ran("t1", "A"), Updated("u1", "A"), Ran("t2", "A"),
    Ran("t2", NASTY, worker=1), Updated("u2", NASTY, worker=1), Updated("u2", NASTY), Ran("t1", NASTY),
]  # fmt: skip
CHAIN = Graph("chain", (Operator("S"), Operator("A"), Operator(NASTY)), (Edge("S", "A"), Edge("A", NASTY)))


def shown(verdict: Verdict, graph: Graph, changes: Mapping[str, tuple[str, Collection[str]]]) -> tuple[Page, str, str]:
    """The page, the SVG and the text of a verdict on a run with these changes, each by a scheduler, of operators."""
    plans = {id_: schedule(by, graph, names) for id_, (by, names) in changes.items()}
    made = [Change(id_, plan, {}, plan_ms=1.0, run=ChangesAsked()) for id_, plan in plans.items()]
    bundle = RunVerdict.of(verdict, graph, made, lambda identity: None)._repr_mimebundle_()
    html = rendered("page.jinja", title="verdict", contents=Markup(bundle["text/html"]))
    return stands_alone(html), bundle.get("image/svg+xml", ""), bundle["text/plain"]


def test_only_what_a_run_answers_is_shown() -> None:
    """Another value is a mistake of ours, which has a name."""
    with pytest.raises(TypeError, match="nothing shows a Graph; expected a plan, a difference, a replay or a verdict"):
        display(CHAIN)


def test_a_run_is_imported_without_what_draws() -> None:
    """Hosts import the library as well: pictures are imported when the first one is shown."""
    code = "import sys, fries_nb.run; print([name for name in sys.modules if name.startswith('fries_nb.report')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def states(svg: str) -> list[tuple[str, str]]:
    """Operators and their states, in the order in which they are drawn."""
    return re.findall(r'data-operator="([^"]*)" data-state="([^"]*)"', svg)


def test_two_tuples_and_two_changes_are_drawn() -> None:
    """What each tuple met, and the cycle of four; no plan is to blame."""
    changes = {"u1": ("fries", ["A"]), "u2": ("fries", [NASTY])}
    html, svg, text = shown(judge(TWO_CHANGES), CHAIN, changes)
    assert [state for _, state in states(svg)] == ["", "old", "new", "", "new", "old"]
    assert html.tags.count("svg") == 3
    for said in ("t1", "source tuple", "u2", f"{NASTY} by fries", "u1: old", "u2: new", f"at {NASTY}"):
        assert said in html.texts
    assert f"Cycle: t1 → (at A) u1 → (at A) t2 → (at {NASTY}) u2 → (at {NASTY}) t1" in text
    assert "Step 1" not in html.text


@pytest.mark.parametrize("scheduler", ["naive", "fries"])
def test_two_tuples_of_one_at_one_target_are_drawn(scheduler: str) -> None:
    """The operator has both versions; the plan of a change by naive FCM shows step by step that this may happen."""
    example = counter_example(W5, ["SJ"])
    assert example is not None
    html, svg, _ = shown(judge(example.records()), W5, {"u1": (scheduler, ["SJ"])})
    assert ("SJ", "both") in states(svg)
    assert ("FD4", "") in states(svg)
    assert "u1: old, new" in html.texts
    steps = [said for said in html.texts if said.startswith("Step ")]
    assert steps == ([f"Step {step} of 7" for step in range(1, 8)] if scheduler == "naive" else [])


def test_each_component_has_its_predicted_delay() -> None:
    """Where there are several, and the delay is known."""
    paths = (CriticalPath(("J5",), 12.0), CriticalPath(("J6",), None, ("J6",)))
    plan = replace(schedule("fries", W3, ["J5", "J6"]), prediction=Prediction(paths, None))
    first, second, naive, _ = in_words(W3, plan)
    assert first == "J5 receives the message directly, and no marker follows (predicted: 12 ms)."
    assert second == "J6 receives the message directly, and no marker follows."
    assert naive == "Naive FCM would be consistent here: no tuple meets two targets."


def test_a_serializable_run_has_no_picture() -> None:
    """Words suffice."""
    html, svg, text = shown(judge(TWO_CHANGES[:3]), CHAIN, {"u1": ("naive", ["A"])})
    assert svg == ""
    assert "svg" not in html.tags
    assert text == "Serializable: 2 source tuples and 1 change judged, none mixed."


@pytest.mark.parametrize("number", range(2, 8))
def test_a_cycle_of_any_length_fits_its_picture(number: int) -> None:
    """Boxes are apart and inside, and each arrow begins and ends at its boxes."""
    nodes = [CycleNode(f"row {place} of split 0 of source 0", "", place % 2 == 1) for place in range(number)]
    svg = cycle_svg(nodes, ["a long name of an operator"] * number)
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    boxes = [tuple(map(float, one)) for one in re.findall(
        r'<rect class="(?:tuple|change)" x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', svg
    )]  # fmt: skip
    assert len(boxes) == svg.count('<path class="line"') == number
    for x, y, wide, high in boxes:
        assert x > 0
        assert y > 0
        assert x + wide < width
        assert y + high < height
    corners = {(x, y) for x, y, _, _ in boxes}
    assert len(corners) == number
    for x, words, anchor in re.findall(r'<text class="at" x="(\S+)" y="\S+" text-anchor="(\w+)">([^<]+)<', svg):
        reach = {"start": (0, 1), "end": (-1, 0), "middle": (-0.5, 0.5)}[words]
        assert float(x) + reach[0] * 7.4 * len(anchor) >= 0
        assert float(x) + reach[1] * 7.4 * len(anchor) <= width
