"""The picture alone tells where it hurts: what holds up the others, what was changed, and where the run has failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from notebook_shell import StandIn, show_tab
from patience import PATIENCE_S, until

from fries_nb.controller.events import Outcome
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import TypedFunctions
from fries_nb.protocol.messages import Paused, WorkerId
from fries_nb.report.runs import display, run_svg
from fries_nb.run import Run
from fries_nb.telemetry.metrics import MetricsSnapshot, OperatorMetrics

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.fixture
def view(run: StandIn) -> Iterator[RunView]:
    """A view of the run that is updated often."""
    view = RunView(run, TypedFunctions(run.graph, {"Score": dict}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    yield view
    view.close()


def test_the_operator_that_holds_up_the_others_is_marked(view: RunView, run: StandIn) -> None:
    """Busy while tuples wait for it; neither one that is busy for a moment, nor one that keeps up."""
    measured = {
        "FM": OperatorMetrics(busy=0.98, queued=7_200), "MC": OperatorMetrics(busy=0.98),
        "out": OperatorMetrics(busy=0.3, queued=5),
    }  # fmt: skip
    run.metrics = lambda: MetricsSnapshot(measured)  # type: ignore[method-assign]
    until(lambda: view.dag.troubles == {"FM": ["busy", "busy 98 %"]})
    run.paused = {"MC": (Paused(WorkerId("MC", 0), "MC[0] failed: KeyError: 'shop'"),)}
    until(lambda: view.dag.troubles.get("MC") == ["paused", "paused"])
    show_tab(view, "Details")
    until(lambda: '["MC", "MC", "paused"' in view.operators.rows)


def test_the_operator_that_has_failed_is_marked_live_and_in_the_picture_that_stays(view: RunView, run: StandIn) -> None:
    """And no other one is said to have failed, nor to be busy."""
    run.failed_at = "MC"
    assert 'data-state="failed"' in run_svg(run)  # type: ignore[arg-type]
    assert 'data-state="failed"' in display.dispatch(Run)(run)["text/html"]  # where no extension shows a run
    run.error, run.state = "MC failed on a tuple: KeyError: 'shop'", "failed"
    until(lambda: view.dag.troubles == {"MC": ["failed", "failed"]})
    until(lambda: '["FM", "FM", "ended"' in view.operators.rows)
    assert '["MC", "MC", "failed"' in view.operators.rows


@pytest.mark.parametrize(
    ("outcome", "shown"), [("done", "changed head mcs"), (None, "target head mcs"), ("aborted", ""), ("failed", "")]
)
def test_only_what_was_changed_is_called_so(view: RunView, run: StandIn, outcome: str | None, shown: str) -> None:
    """A plan has targets; what had no effect leaves no trace in the picture."""
    view.form.choose(["FM"])
    view.form.plan.click()
    until(lambda: view.dag.state.get("FM") == "target head mcs")
    assert "changed" not in view.dag.legend
    run.outcome = outcome
    change = run.reconfigure({"FM": dict})
    until(lambda: view.dag.state.get("FM", "") == shown)
    assert (f'data-operator="FM" data-state="{shown}"') in run_svg(run)  # type: ignore[arg-type]
    if outcome is None:  # and once it has ended
        run.outcome = "done"
        ended = run.reconfigure({"FM": dict}).result(PATIENCE_S)
        change.resolve(change_ended(ended.change))
        until(lambda: view.dag.state.get("FM") == "changed head mcs")


def change_ended(change: str) -> Outcome:
    """It was done."""
    return Outcome(change, "fries", "done")


def test_a_replay_is_played_where_it_can_be_seen(view: RunView, run: StandIn) -> None:
    """Its button is in a tab below: the page scrolls to the picture."""
    run.reconfigure({"FM": dict, "MC": dict})
    until(lambda: not view.changes.replay.disabled)
    before = view.dag.looked_at
    view.changes.replay.click()
    assert view.dag.looked_at == before + 1


def test_no_tab_is_an_empty_box(view: RunView) -> None:
    """A tab without anything to show says why."""
    for panel in (view.progress, view.constraints):
        assert panel.drawings or len(panel.empty) > 40
    assert view.changes.table.empty
