"""Latency constraints in the live view: what the page is sent, and what is left without a kernel."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, ipython, replace_runs, told
from patience import PATIENCE_S, until
from verdicts import verdict_on

from fries_nb.constraints.judgements import ConstraintPoint, state_of
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.controller.history import Point
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.notebook.constraint_panel import WIDTHS, ConstraintPanel
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.function_sources import TypedFunctions
from fries_nb.notebook.plots import WINDOW_S, LatencyPlot, window
from fries_nb.notebook.static_pictures import run_svg

CONSTRAINT = LatencyConstraint(("FM", "MC"), latency_ms=60)
POINTS = [Point(100.0 + index / 4, 5.0, 20.0, 4_000.0) for index in range(40)]


def point(at_s: float, mean_ms: float | None, worst_ms: float | None) -> ConstraintPoint:
    """A judgement."""
    return ConstraintPoint(at_s, CONSTRAINT.sequence, 60.0, ConstraintStatus.MET, mean_ms, worst_ms)


def test_the_plot_has_a_band_and_a_line_at_the_limit() -> None:
    """In seconds since the run began, and within its axis."""
    shown = window(POINTS, [], 100.0, [point(101.0, 30.0, 40.0), point(102.0, 32.0, 44.0)])
    assert shown["bands"] == {"xs": [[1.0, 2.0, 2.0, 1.0]], "ys": [[30.0, 32.0, 44.0, 40.0]]}
    assert shown["means"] == {"xs": [[1.0, 2.0]], "ys": [[30.0, 32.0]]}
    assert shown["limits"] == {"at": [0.0], "limit": [60.0], "words": ["FM → MC ≤ 60 ms"]}
    assert shown["ticks"]["at"][-1] >= 60.0


def test_a_run_without_constraints_has_neither() -> None:
    """All columns are there, and empty."""
    shown = window(POINTS, [], 100.0)
    assert [shown[name] for name in ("bands", "means")] == [{"xs": [], "ys": []}] * 2
    assert shown["limits"] == {"at": [], "limit": [], "words": []}


def test_stalled_rows_are_sent_as_the_end_of_the_axis() -> None:
    """JSON has no infinity."""
    shown = window(POINTS, [], 100.0, [point(101.0, 30.0, inf), point(102.0, inf, inf), point(103.0, None, None)])
    json.dumps(shown, allow_nan=False)
    top = shown["ticks"]["at"][-1]
    assert shown["bands"]["ys"] == [[30.0, top, top, top]]


def test_judgements_from_before_the_window_are_left_out() -> None:
    """As points are."""
    late = [Point(100.0 + WINDOW_S + 50, 5.0, 20.0, 4_000.0)]
    shown = window(late, [], 100.0, [point(101.0, 30.0, 40.0), point(200.0, 30.0, 40.0)])
    assert shown["means"]["xs"] == [[100.0]]


def test_the_plot_without_a_kernel_has_the_band() -> None:
    """Its picture is that of the whole run."""
    plot = LatencyPlot()
    plot.show(POINTS, [], [point(101.0, 30.0, 40.0), point(102.0, 32.0, 44.0)])
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
    assert "FM -> MC met: mean 11.0 ms" in data["text/plain"]


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
