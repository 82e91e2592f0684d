"""Where a live view is shown, and the last change of a run in one line."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, replace_runs, told
from patience import until

from fries_nb.audit import Mixed, Verdict
from fries_nb.errors import PlanError, TraceError
from fries_nb.notebook import change_line, extension
from fries_nb.notebook.beside import Panels, ViewPlace
from fries_nb.notebook.change_line import ChangeLine
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import TypedFunctions
from fries_nb.notebook.panels import RunMoment
from fries_nb.planning import Prediction

pytestmark = pytest.mark.usefixtures("with_fraud")
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def view(run: StandIn, shell: InteractiveShell) -> Iterator[RunView]:
    """A view of the run."""
    view = RunView(run, TypedFunctions(run.graph, shell.user_ns))  # type: ignore[arg-type]
    yield view
    view.close()


def hear(place: ViewPlace, **message: Any) -> None:
    """A message of a page."""
    place.line._handle_custom_msg(message, [])


def told_of(panels: Panels) -> dict[str, list[str]]:
    """The models of the views in the panels."""
    return {
        name: [output["data"][VIEW]["model_id"] for output in panel.outputs] for name, panel in panels._panels.items()
    }


def test_a_view_moves_beside_where_a_page_has_room_and_back_where_the_user_puts_it(view: RunView) -> None:
    """It is in its cell until a page has said so; a page that is drawn anew does not move what the user has moved."""
    panels = Panels()
    place, beside = ViewPlace(view, "fraud", panels), {"fraud": [view.model_id]}
    assert (place.children, told_of(panels)) == ((place.line, view), {})
    hear(place, event="shown", room=False)
    assert (place.children, told_of(panels)) == ((place.line, view), {})
    hear(place, event="shown", room=True)
    assert (place.children, place.line.is_beside, told_of(panels)) == ((place.line,), True, beside)
    first = panels._panels["fraud"]
    hear(place, event="shown", room=True)
    assert panels._panels["fraud"] is first
    hear(place, event="here")
    hear(place, event="shown", room=True)
    assert (place.children, place.line.is_beside, told_of(panels)) == ((place.line, view), False, {})
    hear(place, event="beside")
    hear(place, event="shown", room=False)
    assert (place.children, told_of(panels)) == ((place.line,), beside)
    assert panels._panels["fraud"] is not first
    for odd in ({}, {"event": "shown"}, {"event": "shown", "room": "yes"}, {"event": ["here"]}):
        hear(place, **odd)
    assert place.children == (place.line,)


def test_a_panel_shows_the_newest_run_of_its_dataflow(view: RunView, run: StandIn) -> None:
    """Where the last page had room, the next view begins beside; another dataflow has a panel of its own."""
    panels = Panels()
    hear(ViewPlace(view, "fraud", panels), event="shown", room=True)
    second = RunView(run, TypedFunctions(run.graph, {}))  # type: ignore[arg-type]
    place = ViewPlace(second, "fraud", panels)
    assert (place.children, told_of(panels)) == ((place.line,), {"fraud": [second.model_id]})
    ViewPlace(view, "other", panels)
    assert told_of(panels) == {"fraud": [second.model_id], "other": [view.model_id]}
    second.close()


@pytest.mark.parametrize(("line", "opens"), [("%fries_run", 1), ("%fries_run --inline", 0)])
def test_a_cell_that_starts_a_run_shows_it_once(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, line: str, opens: int
) -> None:
    """By ``%fries_run``; the run as its last line adds nothing, and another cell shows it again."""
    [started] = [replace_runs(monkeypatch)]
    shell.display_pub, shell.kernel = CapturingDisplayPublisher(), SimpleNamespace()
    shell.run_line_magic("reload_ext", "fries_nb")
    told(shell, line)
    display = shell.display_formatter.ipython_display_formatter.lookup_by_type(extension.Run).__self__
    assert sum(VIEW in output["data"] for output in shell.display_pub.outputs) == opens
    display.show(started[0])
    assert sum(VIEW in output["data"] for output in shell.display_pub.outputs) == 1
    shell.execution_count += 1
    display.show(started[0])
    assert sum(VIEW in output["data"] for output in shell.display_pub.outputs) == 2
    started[0].state = "stopped"


VERDICT = Verdict(True, (), (), (), 5_812, 1)
MIXED = Verdict(False, (Mixed(9, "u1", ("FM",), ("MC",)), Mixed(9, "u1", ("MC",), ("FM",))), ("7", "u1"), (), 10, 1)


@pytest.mark.parametrize(
    ("outcome", "epoch_ms", "judged", "says"),
    [
        ("done", 22_700.0, VERDICT, "40 ms FM by fries, instead of 22.7 s by epochs · 0 of 5,812 rows mixed"),
        ("done", 30.0, MIXED, "40 ms FM by fries · 1 of 10 rows mixed"),
        ("done", None, None, "40 ms FM by fries"),
        ("done", None, TraceError("a part is missing"), "40 ms FM by fries · not audited: a part is missing"),
        ("aborted", 22_700.0, VERDICT, "aborted FM by fries · no model"),
        ("rolled_back", 22_700.0, VERDICT, "rolled back FM by fries · no model"),
        (None, 22_700.0, VERDICT, "under way FM by fries; by epochs it would take 22.7 s"),
    ],
)
def test_the_last_change_is_told_in_a_line(
    run: StandIn, outcome: str | None, epoch_ms: float | None, judged: Any, says: str
) -> None:
    """What it took, what it was spared, and what it has mixed, if that is known; nothing before the first one."""
    line = ChangeLine(run)  # type: ignore[arg-type]
    line.update(RunMoment(run))  # type: ignore[arg-type]
    assert line.children == ()
    run.prediction, run.judged_as, run.outcome = Prediction((), epoch_ms), judged, None
    change = run.reconfigure({"FM": dict})
    line.update(RunMoment(run))  # type: ignore[arg-type]
    if outcome is not None:
        run.end(change, outcome, 40.0, "" if outcome == "done" else "no model")

    def words() -> str:
        line.update(RunMoment(run))  # type: ignore[arg-type]
        text: str = line.words.value
        return text[text.index('">') + 2 : text.rindex("</div>")].replace("</span>", "").split(">")[-1]

    until(lambda: words() == says)
    assert line.undo.disabled == (outcome is None)


def test_the_trace_of_a_long_run_is_not_judged_at_each_change(run: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep the kernel for seconds."""
    line, change = ChangeLine(run), run.reconfigure({"FM": dict})  # type: ignore[arg-type]
    judged = list[Any]()
    monkeypatch.setattr(line, "_judge", judged.append)
    run.hear("out", change_line.MOST_JUDGED + 1, 4.0, 1.0)
    line.update(RunMoment(run))  # type: ignore[arg-type]
    assert (line._is_judged, judged) == (False, [])
    monkeypatch.setattr(change_line, "MOST_JUDGED", change_line.MOST_JUDGED * 2)
    line.update(RunMoment(run))  # type: ignore[arg-type]
    until(lambda: judged == [change])


def test_the_last_change_is_undone_by_a_click(run: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the page may change its operators, and while the run goes on; why it cannot be is said."""
    line, fixed = ChangeLine(run), ChangeLine(run, lambda name: False)  # type: ignore[arg-type]
    change, asked = run.reconfigure({"FM": dict}), list[Any]()
    monkeypatch.setattr(run, "rollback", asked.append, raising=False)
    for one in (line, fixed):
        one.update(RunMoment(run))  # type: ignore[arg-type]
        one.undo.click()
    until(lambda: asked == [change])
    assert (fixed.undo.disabled, fixed.undo.tooltip) == (True, "this page does not change FM")

    def refuse(change: Any) -> None:
        raise PlanError("u2 came after it")

    monkeypatch.setattr(run, "rollback", refuse)
    line.update(RunMoment(run))  # type: ignore[arg-type]
    line.undo.click()
    until(lambda: line._trouble == "u2 came after it")
    run.state = "finished"
    line.update(RunMoment(run))  # type: ignore[arg-type]
    assert (line.undo.disabled, line.undo.tooltip) == (True, "the run has ended")
    assert "u2 came after it" in line.words.value
