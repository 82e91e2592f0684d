"""Latency constraints in the live view: what the page is sent, and what is left without a kernel."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import ipywidgets
import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, ipython, replace_runs, show_tab, told
from patience import PATIENCE_S, until
from verdicts import verdict_on

from fries_nb.changes.change import Change
from fries_nb.constraints.judgements import ConstraintPoint, state_of
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.errors import PlanError
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import TypedFunctions
from fries_nb.notebook.panels import WIDTHS
from fries_nb.notebook.plots import WINDOW_S, Course, LatencyPlot, window
from fries_nb.notebook.remedy_panels import ConstraintPanel, ProposalList
from fries_nb.notebook.statuses import of_constraints
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.running_chains import ChainChange
from fries_nb.report.runs import run_svg
from fries_nb.running.remedies import Proposal
from fries_nb.telemetry.history import Point

CONSTRAINT = LatencyConstraint(("FM", "MC"), latency_ms=60)
POINTS = [Point(100.0 + index / 4, 5.0, 20.0, 4_000.0) for index in range(40)]


def point(at_s: float, mean_ms: float | None, worst_ms: float | None) -> ConstraintPoint:
    """A judgement."""
    return ConstraintPoint(at_s, CONSTRAINT.sequence, 60.0, ConstraintStatus.MET, mean_ms, worst_ms)


def test_the_plot_has_a_band_and_a_line_at_the_limit() -> None:
    """In seconds since the run began, and within its axis."""
    shown = window(Course(POINTS, (), [point(101.0, 30.0, 40.0), point(102.0, 32.0, 44.0)]), 100.0)
    assert shown["bands"] == {"xs": [[1.0, 2.0, 2.0, 1.0]], "ys": [[30.0, 32.0, 44.0, 40.0]]}
    assert shown["means"] == {"xs": [[1.0, 2.0]], "ys": [[30.0, 32.0]]}
    assert shown["limits"] == {"at": [0.0], "limit": [60.0], "words": ["FM → MC ≤ 60 ms"]}
    assert shown["ticks"]["at"][-1] >= 60.0


def test_a_run_without_constraints_has_neither() -> None:
    """All columns are there, and empty."""
    shown = window(Course(POINTS), 100.0)
    assert [shown[name] for name in ("bands", "means")] == [{"xs": [], "ys": []}] * 2
    assert shown["limits"] == {"at": [], "limit": [], "words": []}


def test_stalled_rows_are_sent_as_the_end_of_the_axis() -> None:
    """JSON has no infinity."""
    judged = [point(101.0, 30.0, inf), point(102.0, inf, inf), point(103.0, None, None)]
    shown = window(Course(POINTS, (), judged), 100.0)
    json.dumps(shown, allow_nan=False)
    top = shown["ticks"]["at"][-1]
    assert shown["bands"]["ys"] == [[30.0, top, top, top]]


def test_judgements_from_before_the_window_are_sent_with_what_is_older() -> None:
    """As points are; none is sent twice, and the axis of the whole has both."""
    plot = LatencyPlot()
    points = [*POINTS, Point(100.0 + WINDOW_S + 50, 5.0, 20.0, 4_000.0)]
    plot.show(Course(points, (), [point(101.0, 30.0, 400.0), point(200.0, 30.0, 40.0)]))
    assert [part["means"]["xs"] for part in (plot.older, plot.window)] == [[[1.0]], [[100.0]]]
    assert [plot.window["ticks"][name][-1] for name in ("at", "whole")] == [100.0, 500.0]


def test_the_plot_without_a_kernel_has_the_band() -> None:
    """Its picture is that of the whole run."""
    plot = LatencyPlot()
    plot.show(Course(POINTS, (), [point(101.0, 30.0, 40.0), point(102.0, 32.0, 44.0)]))
    data, _ = plot._repr_mimebundle_()
    assert "FM → MC ≤ 60 ms" in data["image/svg+xml"]


def test_the_panel_is_drawn_for_each_width_and_sent_only_when_it_changes() -> None:
    """The view looks several times a second, hosts judge once a second."""
    panel, sent = ConstraintPanel(), list[str]()
    panel.observe(lambda change: sent.append(change["name"]), names="drawings")
    panel.show(())
    assert sent == []
    states = (state_of(CONSTRAINT, [verdict_on(CONSTRAINT, 100.0)]),)
    panel.show(states)
    panel.show(tuple(states))
    assert sent == ["drawings"]
    assert list(panel.drawings) == [f"{width:g}" for width in WIDTHS]
    for width, [drawing] in panel.drawings.items():
        assert f'width="{width}"' in drawing
        assert "violated" in drawing
    panel.show((state_of(CONSTRAINT, [verdict_on(CONSTRAINT, 101.0, edge_ms=1.0)]),))
    assert sent == ["drawings"] * 2
    data, _ = panel._repr_mimebundle_()
    assert "met" in data["image/svg+xml"]
    assert "FM -> MC met: mean 11 ms" in data["text/plain"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A stand-in that runs."""
    with ipython(tmp_path / "ipython") as shell:
        yield started(shell, monkeypatch)


def started(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The run of a dataflow."""
    stand_ins = replace_runs(monkeypatch)
    told(shell, FRAUD)
    told(shell, "%fries_run")
    return stand_ins[0]


def test_a_view_follows_the_constraints(run: StandIn) -> None:
    """One that is declared while it is open appears, and each judgement moves panel and band."""
    view = RunView(run, TypedFunctions(run.graph, {}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    show_tab(view, "Constraints")
    assert view.constraints.drawings == {}
    constraint = run.constrain(["FM", "MC"], 60.0, 15.0, "tell")
    until(lambda: "not yet judged" in str(view.constraints.drawings))
    run.judged.judge([verdict_on(constraint, 100.2)])
    until(lambda: "violated" in str(view.constraints.drawings))
    until(lambda: view.latency.window["limits"]["limit"] == [60.0])
    view.close()
    for thread in threading.enumerate():
        if thread.name == "fries-view":
            thread.join(PATIENCE_S)


def test_the_picture_of_a_run_has_its_constraints(run: StandIn) -> None:
    """Band and bars, in one picture for saved notebooks."""
    assert "constrained" not in run_svg(run)  # type: ignore[arg-type]
    run.judged.judge([verdict_on(run.constrain(["FM", "MC"], 60.0, 15.0, "tell"), 100.2)])
    svg = run_svg(run)  # type: ignore[arg-type]
    assert "FM → MC ≤ 60 ms" in svg
    assert "output buffer" in svg


def test_the_panel_shows_buffers_and_chains_as_they_change(run: StandIn) -> None:
    """Live, in each width, and in the picture for saved notebooks."""
    view = RunView(run, TypedFunctions(run.graph, {}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    show_tab(view, "Constraints")
    constraint = run.constrain(["FM", "MC"], 60.0, 15.0, "tell")
    for second, size in enumerate((32_768, 11_933)):
        run.judged.judge([verdict_on(constraint, 100.0 + second, buffer_bytes=size)])
    run.rechained = (ChainChange(100.5, ("FM + MC",)),)
    run.judged.judge([verdict_on(constraint, 102.0, buffer_bytes=200)])
    until(lambda: "200 B to 400 B" in str(view.constraints.drawings))
    assert all("chained: FM + MC" in drawings[-1] for drawings in view.constraints.drawings.values())
    assert "FM → MC: 200 B to 400 B" in run_svg(run)  # type: ignore[arg-type]
    data, _ = view.constraints._repr_mimebundle_()
    assert "chained: FM + MC" in data["image/svg+xml"]
    run.state = "stopped"
    view.close()


def proposal_of(run: StandIn, accept: Callable[[], Change]) -> Proposal:
    """A change of FM, which is proposed by a constraint on it."""
    return Proposal(CONSTRAINT, run.plan(["FM"]), "it takes <90 ms>", accept)


def buttons(shown: ProposalList) -> list[tuple[ipywidgets.Button, ipywidgets.Button]]:
    """Those of each proposal: to see its plan, and to accept it."""
    return [(row.children[1], row.children[2]) for row in shown.children[0].children]


def test_a_proposal_is_shown_with_its_reason_and_accepted_by_a_click(run: StandIn) -> None:
    """Its plan is drawn on demand; the view goes on while the change is made."""
    planned, release = list[Plan](), threading.Event()

    def accept() -> Change:
        release.wait(PATIENCE_S)
        return run.reconfigure({"FM": dict})

    shown, proposal = ProposalList(planned.append), proposal_of(run, accept)
    shown.show([proposal])
    [(plan, button)] = buttons(shown)
    words = shown.children[0].children[0].children[0].value
    assert "Proposed for FM -&gt; MC: lighter function of FM" in words
    assert "since it takes &lt;90 ms&gt;" in words
    assert (button.description, button.tooltip) == ("Accept", "Now: lighter function of FM")
    plan.click()
    assert planned == [proposal.plan]
    button.click()
    assert button.disabled
    assert "under way" in shown.result.value
    release.set()
    until(lambda: "done by fries" in shown.result.value)
    shown.show([])
    assert buttons(shown) == []
    assert "done by fries" in shown.result.value


def test_a_proposal_that_was_withdrawn_meanwhile_says_so(run: StandIn) -> None:
    """As an error that is read aloud."""

    def accept() -> Change:
        raise PlanError("the proposal was withdrawn already")

    shown = ProposalList(lambda _: None)
    shown.show([proposal_of(run, accept)])
    buttons(shown)[0][1].click()
    until(lambda: "was withdrawn already" in shown.result.value)
    assert 'role="alert"' in shown.result.value


def test_a_proposal_to_go_back_says_so(run: StandIn) -> None:
    """In its words and on its button."""
    shown, back = ProposalList(lambda _: None), replace(proposal_of(run, lambda: run.rollback()), undoes="u1")
    shown.show([back])
    [(_, button)] = buttons(shown)
    words = shown.children[0].children[0].children[0].value
    assert "back to the original function of FM, which change u1 had replaced," in words
    assert button.description == "Go back"
    assert "back to the original function of FM" in button.tooltip


def test_a_change_that_is_aborted_says_why(run: StandIn) -> None:
    """With its error, read aloud, in every view of the run; there is nothing left to click."""
    run.outcome = None
    proposal, views = proposal_of(run, lambda: run.reconfigure({"FM": dict})), [ProposalList(print) for _ in "ab"]
    views[0].show([proposal])
    buttons(views[0])[0][1].click()
    until(lambda: bool(run.changes))
    change = run.changes[0]
    accepted = replace(proposal, change=change)
    for view in views:
        view.show([accepted])
        assert "under way" in view.children[0].children[0].value
    change.resolve(Outcome(change.id, "fries", "aborted", "FM[0]: open() raised OSError: no model"))
    for view in views:
        view.show([accepted])
        [row] = view.children[0].children
        assert "change u1 aborted: FM[0]: open() raised OSError: no model" in row.value
        assert 'role="alert"' in row.value
    until(lambda: views[0].result.value == "")


def test_an_equal_proposal_after_a_withdrawn_one_has_its_own_button(run: StandIn) -> None:
    """That of the first one would be refused; a proposal that stays keeps its button."""
    first, second = (proposal_of(run, lambda: run.reconfigure({"FM": dict})) for _ in range(2))
    assert first == second
    shown = ProposalList(lambda _: None)
    shown.show([first])
    [(_, button)] = buttons(shown)
    shown.show((first,))
    assert buttons(shown)[0][1] is button
    shown.show([second])
    assert buttons(shown)[0][1] is not button


def test_a_view_shows_proposals_until_the_run_ends(run: StandIn) -> None:
    """Nothing can be changed any more then."""
    view = RunView(run, TypedFunctions(run.graph, {}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    show_tab(view, "Constraints")
    assert buttons(view.proposals) == []
    run.proposed = (proposal_of(run, lambda: run.reconfigure({"FM": dict})),)
    until(lambda: len(buttons(view.proposals)) == 1)
    run.state = "stopped"
    until(lambda: buttons(view.proposals) == [])
    view.close()


def test_the_answer_of_a_magic_has_its_table_and_a_drawing_of_each_constraint() -> None:
    """The drawing is markup, and a name of an operator is none."""
    nasty = LatencyConstraint(("FM", "<b>"), latency_ms=60)
    states = [state_of(limit, [verdict_on(limit, 100.0)]) for limit in (CONSTRAINT, nasty)]
    html = of_constraints("fraud", states, "").rich["text/html"]
    assert html.count("<svg") == html.count("</svg>") == 2
    assert html.startswith("<table>")
    assert "<b>" not in html
    assert "FM -&gt; &lt;b&gt;" in html
