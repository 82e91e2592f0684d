"""The panel of a source: what it says, what it sets, and what it follows; the run is a stand-in."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, replace_runs, told
from patience import PATIENCE_S, until

from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import OfferedFunctions, TypedFunctions
from fries_nb.notebook.panels import RunMoment
from fries_nb.notebook.source_panel import SourcePanel
from fries_nb.protocol.checkpoints import Reading
from fries_nb.protocol.messages import Report, WorkerId

pytestmark = pytest.mark.usefixtures("with_fraud")
SUBMIT = {"event": "submit"}


def shown(panel: SourcePanel) -> bool:
    """Whether a page would show it."""
    return panel.layout.display != "none"


def carried_out() -> None:
    """Wait for the threads that set rates."""
    for thread in threading.enumerate():
        if thread.name == "fries-rate":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture
def panel(run: StandIn) -> Iterator[SourcePanel]:
    """The panel of the source, which is selected."""
    panel = SourcePanel(run)  # type: ignore[arg-type]
    panel.choose(["numbers"])
    yield panel
    carried_out()


def act(panel: SourcePanel, run: StandIn) -> float | None:
    """The rate that was set, once it is shown."""
    carried_out()
    panel.update(RunMoment(run))  # type: ignore[arg-type]
    return run.rates.get("numbers")


def test_it_is_shown_while_one_source_alone_is_selected(panel: SourcePanel) -> None:
    """Of other operators there is nothing to set."""
    seen = []
    for operators in (["numbers"], ["FM"], ["numbers", "FM"], [], ["gone"], ["numbers"]):
        panel.choose(operators)
        seen.append(shown(panel))
    assert seen == [True, False, False, False, False, True]


def test_a_rate_is_set_by_slider_and_number_and_followed(panel: SourcePanel, run: StandIn) -> None:
    """From a tenth to ten times the present one; one that a cell sets is shown, and is not set again."""
    assert (panel.rate.min, panel.rate.max) == pytest.approx((2.301, 4.301), abs=0.001)
    assert (panel.number.value, panel.rate.value, run.rates) == ("2000", pytest.approx(2_000), {})
    panel.rate.value = 499.6
    assert act(panel, run) == 500.0
    assert (panel.number.value, 10**panel.rate.max) == ("500", pytest.approx(5_000))
    panel.number.value = "40000"
    panel.update(RunMoment(run))  # type: ignore[arg-type]
    assert panel.number.value == "40000"  # what is being typed stays
    panel.number._handle_custom_msg(SUBMIT, [])
    assert act(panel, run) == 40_000.0
    for rate in (3.0, 9e6, 7.5):
        run.rates["numbers"] = rate
        assert act(panel, run) == rate
        assert (panel.number.value, panel.rate.value) == (f"{rate:g}", pytest.approx(rate))


def test_a_source_pauses_and_goes_on_at_its_rate(panel: SourcePanel, run: StandIn) -> None:
    """Of before the pause, also one that a cell has set; while it is paused, the panel says so."""
    run.rates["numbers"] = 700.0
    act(panel, run)
    assert (panel.pause.disabled, panel.goes_on.disabled) == (False, True)
    panel.pause.click()
    assert act(panel, run) == 0.0
    assert (panel.pause.disabled, panel.goes_on.disabled, panel.number.value) == (True, False, "0")
    assert "paused" in panel.lag.value
    panel.goes_on.click()
    assert act(panel, run) == 700.0
    assert "paused" not in panel.lag.value


def test_the_lag_is_told(panel: SourcePanel, run: StandIn) -> None:
    """As `run.explain()` has it."""
    reading = Reading(("row 7",), behind=1_204, behind_ns=2_500_000_000)
    run.reported.add(Report(WorkerId("numbers", 0), processed=30, queued=0, reading=reading), 1.0)
    act(panel, run)
    assert "numbers reads generated rows, 2,000 a second: 30 read, 1,204 behind for 2.5 s" in panel.lag.value


@pytest.mark.parametrize(("text", "said"), [("-1", "a rate is a number of tuples a second"), ("", "expected a number")])
def test_what_is_refused_is_said(panel: SourcePanel, run: StandIn, text: str, said: str) -> None:
    """And the rate that the source has is shown again, until another is set."""
    panel.number.value = text
    panel.number._handle_custom_msg(SUBMIT, [])
    assert act(panel, run) is None
    assert said in panel.words.value
    assert panel.number.value == "2000"
    panel.rate.value = 1_000.0
    assert act(panel, run) == 1_000.0
    assert panel.words.value == ""


def test_a_rate_that_was_set_is_taken_back(panel: SourcePanel, run: StandIn) -> None:
    """And a source that was paused before the page was opened goes on at its own rate."""
    act(panel, run)
    assert (panel.own.disabled, panel.own.tooltip) == (True, "2,000 rows a second, as it was declared")
    run.rates["numbers"] = 7.0
    act(panel, run)
    panel.own.click()
    assert act(panel, run) is None
    assert (panel.own.disabled, panel.number.value, panel.rate.value) == (True, "2000", pytest.approx(2_000))
    run.rates["numbers"] = 0.0
    opened = SourcePanel(run)  # type: ignore[arg-type]
    opened.choose(["numbers"])
    assert (opened.goes_on.disabled, opened.rate.value) == (False, pytest.approx(2_000))
    opened.goes_on.click()
    assert act(opened, run) is None


def test_a_source_without_a_rate_says_so(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It pauses, goes on without one, and a rate that slows it down is taken back."""
    started = replace_runs(monkeypatch)
    told(shell, '%%fries_dataflow free\nflow.source("numbers", fn.rate(None)).sink("out", fn.memory())')
    told(shell, "%fries_run free")
    panel, run = SourcePanel(started[0]), started[0]  # type: ignore[arg-type]
    panel.choose(["numbers"])
    assert "reads as fast as the dataflow takes its rows" in panel.words.value
    assert (panel.pause.disabled, panel.rate.disabled, panel.number.value) == (False, True, "")
    for second in range(3):
        run.hear("numbers", 3_000 * second, 1.0, float(second))
    act(panel, run)
    panel.pause.click()
    assert (act(panel, run), panel.goes_on.tooltip) == (0.0, "As fast as the dataflow takes its rows")
    panel.goes_on.click()
    assert act(panel, run) is None
    assert panel.rate.value == pytest.approx(3_000, rel=0.6)
    panel.rate.value = 400.0
    assert act(panel, run) == 400.0
    panel.own.click()
    assert act(panel, run) is None


def test_a_view_has_the_panel_and_a_page_for_looking_only_no_controls(run: StandIn) -> None:
    """It follows the picture's selection; of a run that is over nothing can be set."""
    view = RunView(run, TypedFunctions(run.graph, {}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    only = RunView(run, OfferedFunctions(run.graph, {}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    for one in (view, only):
        one.dag.selected = ["numbers"]
        assert shown(one.source)
    assert (len(view.source.children), len(only.source.children)) == (3, 1)
    view.source.pause.click()
    until(lambda: "paused" in view.source.lag.value and "paused" in only.source.lag.value)
    run.state = "finished"
    until(lambda: view.source.goes_on.disabled and view.source.pause.disabled and view.source.rate.disabled)
    for one in (view, only):
        one.close()
