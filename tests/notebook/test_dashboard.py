"""A run as the value of a cell: the live view and its form, and what is left of it without a kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, ipython, replace_runs, told
from patience import PATIENCE_S, until

from fries_nb.notebook import dashboard, extension
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import HINT, TypedFunctions
from fries_nb.notebook.plots import LatencyPlot
from fries_nb.notebook.widgets import DagView
from fries_nb.planning import CriticalPath, Prediction
from fries_nb.protocol.messages import Paused, WorkerId
from fries_nb.report.plan_section import Shown
from fries_nb.running.run_end import UncommittedCheck
from fries_nb.telemetry.metrics import MetricsSnapshot

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.fixture
def run(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A stand-in that runs."""
    monkeypatch.setattr(extension, "dag_png", lambda graph: b"drawn")  # whether or not a Graphviz is here
    started = replace_runs(monkeypatch)
    told(shell, "%fries_run")
    return started[0]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the two pictures were told to show."""
    told_of: dict[str, list[Any]] = {"plan": [], "metrics": [], "points": []}
    monkeypatch.setattr(DagView, "show_plan", lambda _, plan: told_of["plan"].append(plan))
    monkeypatch.setattr(DagView, "show_metrics", lambda _, snapshot: told_of["metrics"].append(snapshot))
    monkeypatch.setattr(LatencyPlot, "show", lambda _, run: told_of["points"].append((run.points, run.marks)))
    return told_of


@pytest.fixture
def view(run: StandIn, shell: InteractiveShell, shown: dict[str, list[Any]]) -> Iterator[RunView]:
    """A view of the run."""
    view = RunView(run, TypedFunctions(run.graph, shell.user_ns))  # type: ignore[arg-type]
    yield view
    view.close()
    joined("fries-view", "fries-apply")


def joined(*names: str) -> None:
    """Wait for our threads of these names."""
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_view_publishes_until_the_run_ends(view: RunView, run: StandIn, shown: dict[str, list[Any]]) -> None:
    """Status and metrics follow the run, the plot only what is new; the last update shows the end."""
    assert "fraud: running" in view.status.value
    run.hear("out", 0, 4.0, 1.0)
    run.hear("out", 100, 4.0, 2.0)
    until(lambda: "100 tuples/s · p50 4 ms" in view.status.value)
    assert len(shown["points"]) == 1
    assert shown["metrics"][-1].operators["out"].rate > 0
    assert not view.stop.disabled
    run.state, run.error = "failed", "FM[0] failed: <bad>"
    joined("fries-view")
    assert "fraud: failed" in view.status.value
    assert "FM[0] failed: &lt;bad&gt;" in view.status.value
    assert shown["metrics"][-1] == MetricsSnapshot()  # nothing flows any more
    assert view.stop.disabled
    assert view.form.apply.disabled


def test_a_view_asks_how_long_to_wait_before_each_update(run: StandIn, shown: dict[str, list[Any]]) -> None:
    """So a setting that is changed holds at once."""
    asked: list[float] = []

    def period_s() -> float:
        asked.append(0.01)
        return asked[-1]

    view = RunView(run, TypedFunctions(run.graph, {}), period_s=period_s)  # type: ignore[arg-type]
    until(lambda: len(asked) > 3 and len(shown["metrics"]) > 3)
    view.close()
    joined("fries-view")


def test_measurements_that_take_long_to_show_are_read_less_often(
    run: StandIn, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 12 ms of a processor not before six tenths of a second have passed; the rest is shown in every update."""
    clock = SimpleNamespace(now_s=100.0, used_s=0.0)
    read: list[float] = []

    def metrics() -> MetricsSnapshot:
        clock.used_s += 0.012
        read.append(clock.now_s)
        return MetricsSnapshot()

    view = RunView(run, TypedFunctions(run.graph, shell.user_ns), period_s=lambda: PATIENCE_S)  # type: ignore[arg-type]
    monkeypatch.setattr(dashboard, "time", SimpleNamespace(
        monotonic=lambda: clock.now_s, thread_time=lambda: clock.used_s
    ))  # fmt: skip
    run.metrics = metrics  # type: ignore[method-assign]
    for _ in range(11):
        view._update()
        clock.now_s += 0.125
    assert read == [100.0, 100.625, 101.25]
    run.state = "finished"
    assert view._update()
    assert read[-1] == clock.now_s
    view.close()
    joined("fries-view")


def test_the_setting_refresh_holds_for_views_that_are_shown(
    run: StandIn, shell: InteractiveShell, shown: dict[str, list[Any]]
) -> None:
    """By ``%config``, whenever that was."""
    shell.kernel = SimpleNamespace()
    displayed = shell.display_formatter.mimebundle_formatter.lookup_by_type(dashboard.Run)
    shell.display_pub = CapturingDisplayPublisher()
    displayed.show(run)
    [view] = displayed._views.values()
    for seconds in (0.1, 0.7):
        shell.run_line_magic("config", f"FriesMagics.refresh = {seconds}")
        assert view._period_s() == seconds
    view.close()
    joined("fries-view")


def test_a_closed_view_publishes_no_more(view: RunView) -> None:
    """Its thread ends though the run goes on."""
    view.close()
    joined("fries-view")
    assert not view.is_open


def test_stop_drains_the_run_and_a_second_click_ends_it_at_once(view: RunView, run: StandIn) -> None:
    """The button says so by then, and the status how much still waits; in the end, what the output lacks."""
    run.drains = True
    assert view.stop.description == "Stop"
    view.stop.click()
    assert run.state == "draining"
    until(lambda: view.stop.description == "Stop now" and not view.stop.disabled)
    assert "draining" in view.status.value
    assert "0 tuples wait" in view.status.value
    run.uncommitted = UncommittedCheck(1204, 0.0)
    view.stop.click()
    assert run.state == "stopped"
    joined("fries-view")
    assert view.stop.disabled
    assert "1,204 tuples read since the last commit at" in view.status.value


def test_a_click_chooses_and_another_takes_back(view: RunView) -> None:
    """One line for each operator that can change, in the order of choice; what was typed is there again."""
    assert HINT in view.form._hint.value
    assert view.form.plan.disabled
    view.dag.selected = ["MC", "numbers", "FM"]
    assert lines(view) == ["MC", "FM"]
    assert not view.form.plan.disabled
    view.form.functions["MC"].value = "dict"
    view.dag.selected = ["numbers"]
    assert lines(view) == []
    assert "numbers is a source, which has no function to change" in view.form._hint.value
    assert view.form.plan.disabled
    assert view.form.apply.disabled
    view.dag.selected = ["MC"]
    assert lines(view) == ["MC"]
    assert view.form.functions["MC"].value == "dict"


def lines(view: RunView) -> list[str]:
    """The operators that the form has a line for."""
    return [line.description for line in view.form._rows.children]


def test_plan_shows_what_the_form_says(view: RunView, run: StandIn, shown: dict[str, list[Any]]) -> None:
    """With functions or without, of one operator or more; nothing changes."""
    view.dag.selected = ["FM"]
    view.form.plan.click()
    assert "nothing has changed yet" in view.form.result.value
    view.dag.selected = ["FM", "MC"]
    view.form.scheduler.value = "epoch"
    view.form.plan.click()
    assert "FM, MC change together" in view.form.result.value
    assert [sorted(plan.targets) for plan in shown["plan"]] == [["FM"], ["FM", "MC"]]
    assert shown["plan"][1].scheduler == "epoch"
    assert "predicted" not in view.form.result.value
    view.form.functions["FM"].value = "Score(2)"
    view.form.plan.click()
    assert "MC keeps its function, whose text is the same" in view.form.result.value
    assert shown["plan"].pop().targets == {"FM"}
    run.prediction = Prediction((CriticalPath(("numbers", "FM", "MC"), 8_400.0),), 8_400.0)
    view.form.plan.click()
    assert "then commit 8.4 s along numbers → FM → MC" in view.form.result.value
    assert run.changes == ()


def test_a_plan_goes_with_its_selection(view: RunView, run: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the form and in the picture, which then shows the last change again."""
    drawn: list[Any] = []
    monkeypatch.setattr(view.dag, "show", drawn.append)
    view.dag.selected = ["FM"]
    view.form.plan.click()
    assert "nothing has changed yet" in view.form.result.value
    view.dag.selected = ["FM", "MC"]
    assert view.form.result.value == ""
    assert drawn == [Shown()]
    view.form.plan.click()
    view.form.scheduler.value = "epoch"
    assert view.form.result.value == ""
    view.form.functions["FM"].value = view.form.functions["MC"].value = "dict"
    view.form.apply.click()
    joined("fries-apply")
    view.form.plan.click()
    view.dag.selected = []
    assert drawn[-1] == Shown.of(run.graph, run.changes[0].plan, done=True)


def test_enter_plans_the_change(view: RunView, run: StandIn) -> None:
    """With Ctrl or Cmd; an empty editor says what is wanted, by what the operator was declared with."""
    view.dag.selected = ["FM", "MC"]
    line = view.form.functions["FM"]
    assert line.placeholder == "the new function of FM, as in Score(...)"
    assert "as in lambda row: ..." in view.form.functions["MC"].placeholder
    line._handle_custom_msg({"event": "blur"}, [])
    assert view.form.result.value == ""
    line._handle_custom_msg({"event": "submit"}, [])
    assert "nothing has changed yet" in view.form.result.value
    assert run.changes == ()


def test_plan_refuses_a_wrong_function(view: RunView, shown: dict[str, list[Any]]) -> None:
    """Before it is applied."""
    view.dag.selected = ["FM"]
    view.form.functions["FM"].value = "lambda a, b: a"
    view.form.plan.click()
    assert "takes 2 parameters" in view.form.result.value
    assert shown["plan"] == []


def test_apply_changes_all_and_shows_the_outcome(view: RunView, run: StandIn, shown: dict[str, list[Any]]) -> None:
    """From a thread, all that were chosen in one change; its plan is shown, whoever asked for it."""
    view.dag.selected = ["MC", "FM"]
    view.form.functions["MC"].value = "lambda row: row"
    view.form.functions["FM"].value = " Score(2) "
    view.form.apply.click()
    joined("fries-apply")
    assert "done by fries in" in view.form.result.value
    assert set(run.asked) == {"FM", "MC"}
    assert len(run.changes) == 1
    assert not view.form.apply.disabled
    until(lambda: view.dag.state.get("FM") == "changed head mcs")
    assert shown["plan"] == []  # that of a change is shown as such


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("", "FM has no new function"),
        ("Scroe(2)", "did you mean &#x27;Score&#x27;?"),
        ("Score(", "was never closed"),
        ("lambda a, b: a", "takes 2 parameters"),
    ],
)
def test_what_is_wrong_is_said_below_the_form(view: RunView, run: StandIn, function: str, said: str) -> None:
    """In a line that screen readers hear; the form can be used again."""
    view.dag.selected = ["FM"]
    view.form.functions["FM"].value = function
    view.form.apply.click()
    joined("fries-apply")
    assert said in view.form.result.value
    assert 'role="alert"' in view.form.result.value
    assert run.changes == ()
    assert not view.form.apply.disabled


def test_a_change_that_is_aborted_is_said_below_the_form(view: RunView, run: StandIn) -> None:
    """With the worker's error."""
    run.outcome = "aborted"
    view.dag.selected = ["FM"]
    view.form.functions["FM"].value = "dict"
    view.form.apply.click()
    joined("fries-apply")
    assert "FM by fries aborted: FM[0]: open() raised OSError: no model" in view.form.result.value


def test_a_change_that_waits_for_a_fix_says_so(view: RunView, run: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that is paused is mended by a change of it alone; other changes wait for that."""
    said: list[str] = []
    monkeypatch.setattr(view.form, "_say", lambda text, failed=False: said.append(text))
    run.paused = {"FM": (Paused(WorkerId("FM", 0), "FM[0] failed: KeyError: 'shop'"),)}
    for chosen in (["MC", "FM"], ["FM"]):
        view.dag.selected = chosen
        for operator in chosen:
            view.form.functions[operator].value = f"lambda row: {len(chosen)}"
        view.form.apply.click()
        joined("fries-apply")
    waits = "under way ... It waits for a change of FM alone, which is paused on a tuple."
    assert [text for text in said if text.startswith("under way")] == [waits, "under way ..."]


def test_a_run_is_shown_as_text_and_picture_without_a_kernel(run: StandIn, shell: InteractiveShell) -> None:
    """Plain IPython: one bundle, no widget, no thread."""
    bundle, _ = bundle_of(shell, run)
    assert set(bundle) == {"text/plain", "image/svg+xml", "image/png"}
    assert bundle["text/plain"].startswith("fraud: running · 0 tuples/s")
    assert 'data-operator="FM"' in bundle["image/svg+xml"]
    assert bundle["image/svg+xml"].count("<svg") == 4


def test_a_run_is_shown_in_one_view_where_there_is_a_kernel(
    run: StandIn, shell: InteractiveShell, shown: dict[str, list[Any]]
) -> None:
    """Shown twice, it is the same view, each time beside a picture: front ends show a view or nothing of its bundle."""
    outputs = published(shell, lambda shows: (shows.show(run), shows.show(run)))
    widget = "application/vnd.jupyter.widget-view+json"
    style, picture, view, _, _, again = (set(output["data"]) for output in outputs)
    assert style == {"text/html"}
    assert picture == {"text/plain", "image/svg+xml", "image/png"}
    assert view == again == {widget}
    assert outputs[2]["data"][widget]["model_id"] == outputs[5]["data"][widget]["model_id"]
    run.state = "stopped"
    joined("fries-view")


def test_a_saved_notebook_keeps_the_end_of_a_run(run: StandIn, shell: InteractiveShell) -> None:
    """Each picture is renewed when a change has ended, and before the view says that the run is over."""

    def shown_until_the_end(shows: extension.RunDisplay) -> None:
        shows.show(run)  # type: ignore[arg-type]
        shows.show(run)  # type: ignore[arg-type]
        run.reconfigure({"FM": dict})
        until(lambda: len(shell.display_pub.outputs) >= 8)
        run.state = "stopped"
        joined("fries-view")

    outputs = [output for output in published(shell, shown_until_the_end) if "image/svg+xml" in output["data"]]
    first, second, *updates = [(output["transient"]["display_id"], output["update"]) for output in outputs]
    assert [first[1], second[1]] == [False, False]
    assert updates == 2 * [(first[0], True), (second[0], True)]
    assert 'data-operator="FM" data-state=""' in outputs[0]["data"]["image/svg+xml"]
    assert all('data-operator="FM" data-state="changed' in output["data"]["image/svg+xml"] for output in outputs[2:])


def published(shell: InteractiveShell, show: Callable[[extension.RunDisplay], Any]) -> list[dict[str, Any]]:
    """What is published in a shell with a kernel."""
    shell.display_pub = CapturingDisplayPublisher()
    shell.kernel = SimpleNamespace()
    show(extension.RunDisplay(shell, lambda name: None, lambda: 0.01, lambda: False))
    return list(shell.display_pub.outputs)


def test_a_kernel_shows_runs_in_outputs_that_can_be_updated(tmp_path: Path) -> None:
    """The extension sees to it where there is a kernel, and takes it away again."""
    with ipython(tmp_path / "ipython") as shell:
        formatter = shell.display_formatter.ipython_display_formatter
        assert dashboard.Run not in formatter.type_printers
        shell.kernel = SimpleNamespace()
        shell.run_line_magic("reload_ext", "fries_nb")
        assert dashboard.Run in formatter.type_printers
        shell.run_line_magic("unload_ext", "fries_nb")
        assert dashboard.Run not in formatter.type_printers
        shell.run_line_magic("load_ext", "fries_nb")


def bundle_of(shell: InteractiveShell, run: Any) -> Any:
    """What a cell with this value sends."""
    formatter = shell.display_formatter
    assert formatter is not None
    formatter.mimebundle_formatter.for_type(StandIn, formatter.mimebundle_formatter.lookup_by_type(dashboard.Run))
    try:
        return formatter.format(run)
    finally:
        formatter.mimebundle_formatter.pop(StandIn)
