"""The button below the difference of a cell that was run again: what it applies, what it asks, and when it does not."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, refused, told
from patience import PATIENCE_S, until

from fries_nb.changes.change import Change
from fries_nb.controller.events import Outcome
from fries_nb.errors import PlanError
from fries_nb.notebook import magics
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.difference_panel import WIDGET, DifferenceBar, DifferencePanel
from fries_nb.notebook.form import TypedFunctions
from fries_nb.notebook.panels import DagPanel, RunMoment
from fries_nb.notebook.widgets import DagView
from fries_nb.report.plan_section import Shown

EDITED = FRAUD.replace("Score(1)", "Score(3)")
NUMBERED = FRAUD.replace('key="value"', 'key="value", workers=4')
RENAMED = FRAUD.replace('"FM"', '"FN"')
BRANCH = FRAUD + '\nscored.filter("Rule", lambda row: True).sink("alerts", fn.memory())'


@pytest.fixture
def run(shell: InteractiveShell, stand_ins: list[StandIn]) -> Iterator[StandIn]:
    """A stand-in that runs, in a notebook with a user."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    published = CapturingDisplayPublisher()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "kernel", SimpleNamespace(_allow_stdin=True), raising=False)
        patch.setattr(shell, "display_pub", published)
        yield stand_ins[0]


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> list[DifferencePanel]:
    """The panels that cells have shown."""
    shown: list[DifferencePanel] = []
    show = magics.show_with_button

    def kept(shell: Any, summary: Any, panel: DifferencePanel) -> None:
        shown.append(panel)
        show(shell, summary, panel)

    monkeypatch.setattr(magics, "show_with_button", kept)
    return shown


def clicked(button: Any) -> None:
    """Click a button, and wait for what it does in a thread."""
    button.click()
    for thread in threading.enumerate():
        if thread.name in ("fries-apply", "fries-examples"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def outputs(shell: InteractiveShell) -> list[dict[str, Any]]:
    """What cells have published, oldest first."""
    publisher = shell.display_pub
    assert isinstance(publisher, CapturingDisplayPublisher)
    return [output["data"] for output in publisher.outputs]


def test_the_button_stands_below_the_picture_and_applies_it(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """Its outcome takes its place, as text, which a saved notebook keeps."""
    assert told(shell, EDITED) == "None"  # both are outputs of the cell
    picture, button = outputs(shell)
    assert 'data-operator="FM" data-state="changed head mcs"' in picture["text/html"]
    assert "Next: %fries_apply --of fraud" in picture["text/plain"]
    assert WIDGET in button
    assert run.asked == {}
    clicked(panels[0].apply)
    assert set(run.asked) == {"FM"}
    assert run.guard == 5
    assert outputs(shell)[-1]["text/plain"].startswith("done by fries in ")
    clicked(panels[0].apply)  # a message that came late
    assert len(run.made) == 1


def test_examples_are_shown_before_it_is_applied(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """Nothing is changed by that; a reason why there are none is said. Of another shape there are none."""
    told(shell, EDITED)
    panel = panels[0]
    assert panel.look in panel.widget.children
    clicked(panel.look)
    assert "<mark>0.25</mark>" in panel.examples.value
    assert (run.asked, panel.apply in panel.widget.children) == ({}, True)
    run.no_examples = "not rehearsed within 30 s"
    clicked(panel.look)
    assert "not rehearsed within 30 s" in panel.words.value
    clicked(panel.apply)
    assert set(run.asked) == {"FM"}
    told(shell, BRANCH)
    assert panels[-1].look not in panels[-1].widget.children


def test_a_new_shape_is_applied(shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]) -> None:
    """With the plan above the button."""
    told(shell, BRANCH)
    assert "Plan: 2 operators take part" in outputs(shell)[0]["text/html"]
    clicked(panels[0].apply)
    assert "alerts" in run.graph
    assert run.guard == 5
    assert outputs(shell)[-1]["text/plain"].startswith("done by fries in ")


def test_another_number_of_workers_is_applied(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """The difference names both; alone it is a rescale, whose outcome takes the place of the button."""
    told(shell, NUMBERED)
    assert "~ FM: workers: 2 -> 4" in outputs(shell)[0]["text/plain"]
    assert "FM: from 2 workers to 4" in outputs(shell)[0]["text/plain"]
    clicked(panels[0].apply)
    assert run.asked["workers"] == {"FM": 4}
    assert run.made == ()
    assert outputs(shell)[-1]["text/plain"] == "2 hosts after 1.2 s: 7 workers"


def test_another_number_of_workers_is_applied_behind_a_change(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """Both outcomes are told, that of the change first."""
    told(shell, NUMBERED.replace("Score(1)", "Score(3)"))
    clicked(panels[0].apply)
    assert set(run.asked) == {"FM"}
    assert run.rescaling.workers == {"FM": 4}
    change, rescale = outputs(shell)[-1]["text/plain"].rsplit("\n", 1)
    assert change.startswith("done by fries in ")
    assert rescale == "2 hosts after 1.2 s: 7 workers"


def test_a_rescale_that_is_aborted_is_told_in_the_place_of_the_button(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """With the reason."""
    told(shell, NUMBERED)
    run.outcome = "aborted"
    clicked(panels[0].apply)
    assert outputs(shell)[-1]["text/plain"].startswith("aborted: host 2 was lost")


def test_numbers_of_workers_are_applied_by_the_magic(shell: InteractiveShell, run: StandIn) -> None:
    """Whether alone or behind a change; the variable holds what was requested."""
    told(shell, NUMBERED)
    assert told(shell, "%fries_apply") == "2 hosts after 1.2 s: 7 workers\nNext: %fries_rescale"
    assert run.asked["workers"] == {"FM": 4}
    assert shell.user_ns["change"] is run.rescaling
    told(shell, NUMBERED.replace("Score(1)", "Score(3)"))
    assert told(shell, "%fries_apply").startswith("done by fries in ")
    assert shell.user_ns["change"] is run.made[-1]


def test_a_change_that_its_guard_rolls_back_later_says_so_in_its_place(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The button has been told that it was done before."""
    back = Outcome("u1", "fries", "rolled_back", "rolled back by its guard: FM[0]: no such column")
    monkeypatch.setattr(Change, "settled", lambda self: back)
    told(shell, EDITED)
    clicked(panels[0].apply)
    said = [output["text/plain"] for output in outputs(shell)[2:]]
    assert said[0].startswith("done by fries in ")
    assert said[1] == "FM by fries: rolled back by its guard: FM[0]: no such column"


def test_a_state_is_lost_only_by_a_second_click(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """The question names the operators; keeping them changes nothing, and the button is there again."""
    told(shell, RENAMED)
    [panel] = panels
    clicked(panel.apply)
    assert "FM: the state is lost. Apply all the same?" in panel.words.value
    assert panel.widget.children == (panel.words, panel.confirm, panel.keep)
    assert panel.confirm.description == "Drop FM"
    clicked(panel.keep)
    assert "nothing changed" in panel.words.value
    assert panel.widget.children[0] is panel.apply
    assert run.asked == {}
    clicked(panel.apply)
    clicked(panel.confirm)
    assert run.asked == {"drop": ("FM",)}
    assert "FN" in run.graph


def test_the_button_of_an_earlier_difference_says_that_it_is_outdated(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """It applies neither what it shows nor what was declared since, which its reader does not see."""
    told(shell, EDITED)
    told(shell, BRANCH)
    first, second = panels
    clicked(first.apply)
    assert outputs(shell)[-1]["text/plain"] == (
        "this difference is outdated, since the dataflow was declared again; the newest one has the button"
    )
    assert run.made == ()
    clicked(second.apply)
    assert "alerts" in run.graph


def test_the_button_of_a_run_that_has_changed_or_ended_says_so(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """In a sentence; what was applied by other means is no error."""
    told(shell, BRANCH)
    run.apply(shell.user_ns["flow"])
    clicked(panels[0].apply)
    assert outputs(shell)[-1]["text/plain"] == "'fraud' runs as it is declared"
    told(shell, EDITED)
    run.graph = flow_of(FRAUD, shell)
    clicked(panels[1].apply)
    assert outputs(shell)[-1]["text/plain"] == (
        "this difference is outdated, since the run has changed meanwhile; run the cell again to see the present one"
    )
    told(shell, BRANCH)
    run.state = "finished"
    clicked(panels[2].apply)
    assert outputs(shell)[-1]["text/plain"] == "'fraud' has finished; a difference is applied to a dataflow that runs"
    assert len(run.made) == 1


def flow_of(cell: str, shell: InteractiveShell) -> Any:
    """The graph that a cell declares, without what the extension keeps of it."""
    names = dict(shell.user_ns)
    names["flow"] = magics.Dataflow("fraud")
    exec(cell.partition("\n")[2], names)
    return names["flow"].graph(2)


def test_what_is_refused_or_fails_is_a_sentence_and_can_be_tried_again(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change is under way; then its functions cannot be prepared; then they can."""

    def busy(*_: Any, **__: Any) -> None:
        raise PlanError("change u7 is under way, and a change of the shape begins alone")

    told(shell, EDITED)
    [panel] = panels
    with monkeypatch.context() as patch:
        patch.setattr(StandIn, "apply", busy)
        clicked(panel.apply)
    assert "change u7 is under way" in panel.words.value
    run.outcome = "aborted"
    clicked(panel.apply)
    assert "FM by fries aborted: FM[0]: open() raised OSError: no model" in panel.words.value
    assert panel.widget.children[0] is panel.apply
    run.outcome = "done"
    clicked(panel.apply)
    assert outputs(shell)[-1]["text/plain"].startswith("done by fries in ")


def test_a_change_that_is_doubted_is_asked_about(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """As where every recent row is dropped."""
    run.doubt = "it drops every row"
    told(shell, EDITED)
    [panel] = panels
    clicked(panel.apply)
    assert "FM by fries aborted: it drops every row" in panel.words.value
    clicked(panel.confirm)
    assert outputs(shell)[-1]["text/plain"].startswith("done by fries in ")


class Canvas:
    """The picture and the bar of a live view, updated as its thread does."""

    def __init__(self, run: StandIn) -> None:
        self.run, self.pictures = run, DagPanel(run)  # type: ignore[arg-type]
        self.bar = DifferenceBar(self.pictures)

    def seen(self) -> DagView:
        """The picture after an update."""
        moment = RunMoment(self.run)  # type: ignore[arg-type]
        self.pictures.update(moment)
        self.bar.update(moment)
        return self.pictures.view

    def drawn(self) -> set[str]:
        """The operators in the picture after an update."""
        return set(re.findall('data-operator="([^"]+)"', self.seen().svg))


@pytest.fixture
def canvas(shell: InteractiveShell, run: StandIn, monkeypatch: pytest.MonkeyPatch) -> Canvas:
    """To which every new difference goes."""
    canvas = Canvas(run)
    monkeypatch.setattr(shell.magics_manager.registry["FriesMagics"], "_offer", canvas.bar.offer)
    return canvas


def test_a_difference_is_drawn_on_the_canvas_until_it_is_applied_there(
    shell: InteractiveShell, run: StandIn, canvas: Canvas, panels: list[DifferencePanel]
) -> None:
    """By the same button as below the cell: marked as in the cell's picture, and then as the run is."""
    before = canvas.drawn()
    told(shell, BRANCH)
    [panel] = panels
    assert canvas.drawn() == before | {"Replicate(MC)", "Rule", "alerts"}
    view = canvas.seen()
    assert view.state["Rule"] == view.state["alerts"] == "added"
    assert view.state["MC"] == "target head mcs"
    assert {"added", "target"} <= set(view.legend)
    assert canvas.bar.children == (canvas.bar.line, panel.widget)
    assert "Rule, alerts added" in canvas.bar.line.value
    view._answer(None, {"event": "select", "operator": "Rule", "chosen": True}, None)
    assert view.selected == []  # there is nothing to be seen of it
    plan = run.plan(["FM"])
    canvas.pictures.show_plan(plan)
    assert view.state["FM"] == "target head mcs"
    canvas.pictures.show_plan(None)
    assert view.state["Rule"] == "added"
    clicked(panel.apply)
    assert outputs(shell)[-1]["text/plain"].startswith("done by fries in ")
    assert canvas.bar.children == ()
    assert canvas.drawn() == set(run.graph) >= {"Rule", "alerts"}
    assert "added" not in canvas.seen().state.values()


def test_a_difference_of_functions_leaves_a_replay_that_has_begun(
    shell: InteractiveShell, run: StandIn, canvas: Canvas, panels: list[DifferencePanel]
) -> None:
    """The picture keeps its layout; what is played when the change is done stays."""
    canvas.seen()
    told(shell, EDITED)
    picture = canvas.seen().svg
    assert canvas.seen().state["FM"] == "changed head mcs"
    assert "FM changed" in canvas.bar.line.value
    clicked(panels[0].apply)
    canvas.pictures.update(RunMoment(run))  # type: ignore[arg-type]
    step = Shown({"FM": "old"})
    canvas.pictures.view.show(step)
    assert canvas.seen().shown is step
    assert (canvas.seen().svg, canvas.bar.children) == (picture, ())


def test_operators_that_change_places_are_marked_in_the_picture_of_now(
    shell: InteractiveShell, run: StandIn, canvas: Canvas
) -> None:
    """Both dataflows in one would have a cycle."""
    before = canvas.drawn()
    first, second = (line for line in FRAUD.splitlines() if ".map(" in line)
    told(shell, FRAUD.replace(first, second.replace("merchants.map", "numbers.map")).replace(
        second, first.replace("numbers.map", "scored.map").replace("merchants =", "scored =")
    ).replace('row["version"]', '0', 2))  # fmt: skip
    assert canvas.drawn() == before
    assert {"FM", "MC"} <= set(canvas.seen().state)


@pytest.mark.parametrize("how", ["dismissed", "declared again", "changed", "ended"])
def test_a_difference_vanishes_from_the_canvas_when_it_is_outdated(
    shell: InteractiveShell, run: StandIn, canvas: Canvas, panels: list[DifferencePanel], how: str
) -> None:
    """The cell says why at the same time."""
    told(shell, BRANCH)
    canvas.seen()
    run.placed = replace(run.topology(), epoch=7)  # a rescale is no reason
    canvas.seen()
    assert panels[0].ended == ""
    end, words = {
        "dismissed": (lambda: clicked(panels[0].dismiss), "dismissed: 'fraud' runs as before"),
        "declared again": (lambda: told(shell, FRAUD), "this difference is outdated, since the dataflow was declared"),
        "changed": (
            lambda: setattr(run, "graph", flow_of(FRAUD.replace('"MC"', '"MD"'), shell)),
            "this difference is outdated, since the run has changed",
        ),
        "ended": (lambda: setattr(run, "state", "finished"), "'fraud' has finished"),
    }[how]
    end()
    assert canvas.drawn() == set(run.graph)
    assert canvas.bar.children == ()
    assert panels[0].ended.startswith(words)
    assert outputs(shell)[-1]["text/plain"] == panels[0].ended


def test_a_live_view_that_is_opened_later_has_the_difference(
    shell: InteractiveShell, run: StandIn, panels: list[DifferencePanel]
) -> None:
    """And so has one that is open; one that offers functions of its own has not."""
    display = shell.display_formatter.mimebundle_formatter.lookup_by_type(magics.Run)
    told(shell, BRANCH)
    early = RunView(run, TypedFunctions(run.graph, {}))  # type: ignore[arg-type]
    display.show(run)
    display.show(run, {})
    [view] = display._views.values()
    until(lambda: view.difference.children == (view.difference.line, panels[0].widget))
    told(shell, EDITED)
    until(lambda: view.difference.children == (view.difference.line, panels[1].widget))
    assert early.difference.children == ()
    run.state = "finished"
    until(lambda: view.difference.children == ())
    early.close()


def test_a_program_gets_the_difference_alone(
    shell: InteractiveShell, run: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbclient would keep the state of the widget; and what cannot be applied has no button either."""
    monkeypatch.setattr(shell, "kernel", SimpleNamespace(_allow_stdin=False))
    assert told(shell, EDITED).startswith("fraud: 1 operator changed")
    monkeypatch.setattr(shell, "kernel", SimpleNamespace(_allow_stdin=True))
    refused_one = told(shell, FRAUD.replace('Score(1), key="value"', 'Score(1), key="value", chain=False'))
    assert refused_one.endswith("Next: %fries_run fraud --replace")
    assert told(shell, FRAUD) == "'fraud' runs as it is declared\nNext: %fries_status"
    assert outputs(shell) == []


def test_a_cell_is_applied_at_once(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    """One that runs already is no error; one that does not run is declared only; what is refused changes nothing."""

    def at_once(cell: str, *options: str) -> str:
        return cell.replace("%%fries_dataflow fraud", " ".join(["%%fries_dataflow fraud --apply", *options]))

    assert told(shell, at_once(FRAUD)).startswith("Dataflow 'fraud'")
    told(shell, "%fries_run")
    [run] = stand_ins
    assert told(shell, at_once(FRAUD)).startswith("'fraud' runs as it is declared")
    assert told(shell, at_once(EDITED)).startswith("fraud: 1 operator changed\ndone by fries in ")
    assert shell.user_ns["change"] is run.made[-1]
    before = shell.user_ns["flow"]
    assert "expected drop=['FM']" in str(refused(shell, at_once(RENAMED), capsys))
    run.outcome = "aborted"
    assert "aborted: FM[0]: open() raised" in str(refused(shell, at_once(EDITED), capsys))
    assert shell.user_ns["flow"] is before
    run.outcome = "done"
    assert told(shell, at_once(RENAMED, "--drop FM")).splitlines()[1].startswith("done by fries in ")
    assert "FN" in run.graph
    for options, words in (("--drop FM", "expected --apply beside it"), ("--apply --replace", "expected one of them")):
        cell = FRAUD.replace("%%fries_dataflow fraud", f"%%fries_dataflow fraud {options}")
        assert words in str(refused(shell, cell, capsys))
