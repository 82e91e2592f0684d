"""The panels of the live view: what each shows of a moment, and what happens when one of them fails."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, show_tab, told
from patience import PATIENCE_S, until

from fries_nb.changes.change import Change
from fries_nb.controller.states import ChangeProgress, ChangeState
from fries_nb.errors import PlanError
from fries_nb.notebook.change_panel import STEP_MS, ChangePanel, ReplayBar, why_waits
from fries_nb.notebook.dashboard import NEWS_S, RunView, StatusLine
from fries_nb.notebook.dashboard import PATIENCE_S as SILENCE_S
from fries_nb.notebook.form import TypedFunctions
from fries_nb.notebook.panels import FORMATS, FRAMES, PICTURES, DagPanel, RunMoment, SavePanel, file_of
from fries_nb.protocol.messages import Paused, Report, WorkerId
from fries_nb.protocol.running_chains import ChainedOperators
from fries_nb.report.host_rows import bytes_of
from fries_nb.report.runs import run_svg
from fries_nb.telemetry.metrics import MetricsSnapshot, OperatorMetrics

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.fixture
def view(run: StandIn) -> Iterator[RunView]:
    """A view of the run that is updated often."""
    view = RunView(run, TypedFunctions(run.graph, {}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    yield view
    view.close()
    joined("fries-view", "fries-revert")


def joined(*names: str) -> None:
    """Wait for our threads of these names."""
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def rows(table: Any) -> list[list[str]]:
    """The rows of a table, keys first."""
    return json.loads(table.rows)


def test_an_open_canary_is_told_of_compared_and_promoted(run: StandIn) -> None:
    """What it says is escaped, hidden columns are masked, and a button lets it go on to all rows."""
    panel = ChangePanel(run, DagPanel(run))  # type: ignore[arg-type]
    plain = run.reconfigure({"FM": dict})
    panel.update(RunMoment(run))  # type: ignore[arg-type]
    rollout = panel.rollout
    assert rollout.layout.display == "none"
    run.canaries.waits = "waits for <rows>"
    change = run.reconfigure({"FM": dict}, canary=0.05)
    panel.update(RunMoment(run))  # type: ignore[arg-type]
    assert "5% of the cohorts since " in rollout.told.value
    assert "waits for &lt;rows&gt;" in rollout.told.value
    assert "at last: old 0.2 ms a row, 0 failed; new 0.4 ms a row, 1 failed" in rollout.told.value
    rollout.compare.click()
    until(lambda: "compared at" in panel.result.value)
    panel.update(RunMoment(run))  # type: ignore[arg-type]
    assert "&lt;b&gt; mean</td><td>0.5</td><td>0.75" in rollout.told.value
    assert "4000" not in rollout.told.value
    assert "card mean</td><td>•••</td>" in rollout.told.value
    readers = ChangePanel(run, DagPanel(run), shows_values=False)  # type: ignore[arg-type]
    readers.update(RunMoment(run))  # type: ignore[arg-type]
    readers.rollout.compare.click()
    assert rollout.compare in rollout._row.children
    assert (readers.rollout.compare in readers.rollout._row.children, readers.result.value) == (False, "")
    assert "mean" not in readers.rollout.told.value
    rollout.promote.click()
    assert run.canaries.shares == {change.id: 0.05}
    rollout.confirm.click()
    until(lambda: run.canaries.shares == {change.id: 1.0})
    assert plain.canary is None


def test_the_share_of_a_canary_is_asked_before_it_is_changed(run: StandIn) -> None:
    """No other share than a larger one, or none; what is asked is forgotten when the share has changed meanwhile."""
    panel = ChangePanel(run, DagPanel(run))  # type: ignore[arg-type]
    change, rollout = run.reconfigure({"FM": dict}, canary=0.25), panel.rollout

    def asked() -> bool:
        return rollout._asked.layout.display is None

    def shown() -> None:
        panel.table.selected = change.id  # a step is a change, which is selected when it is new
        panel.update(RunMoment(run))  # type: ignore[arg-type]

    shown()
    shown()
    assert [share for _, share in rollout.share.options][:3] == [0.0, 0.25, 0.26]
    assert (rollout.share.value, asked()) == (0.25, False)
    rollout.share.value = 0.5
    assert "50 % of the cohorts, in place of 25 %?" in rollout.question.value
    rollout.keep.click()
    assert (rollout.share.value, asked(), change.share) == (0.25, False, 0.25)
    rollout.share.value = 0.5
    run.canaries.shares[change.id] = 0.3  # by a gate
    shown()
    assert (rollout.share.value, asked()) == (0.3, False)
    rollout.confirm.click()  # sent before
    assert change.share == 0.3
    rollout.share.value = 0.5
    rollout.confirm.click()
    rollout.confirm.click()
    until(lambda: change.share == 0.5)
    until(lambda: "is requested: go on to 50 %" in panel.result.value)
    shown()
    shown()
    rollout.share.value = 0.0
    assert rollout.confirm.description == "Roll back"
    rollout.confirm.click()
    until(lambda: change.share == 0.0)
    shown()
    shown()
    assert (rollout.share in rollout._row.children, rollout.promote.disabled) == (False, True)
    joined("fries-rollout")
    assert len(run.made) == 3


def test_a_shadow_is_compared_promoted_and_dropped(run: StandIn) -> None:
    """Counts and examples are shown, escaped; its buttons ask; an operator that the page may not change stays."""
    for end, said in (("drop", "dropped"), ("promote", "promoted")):
        panel = ChangePanel(run, DagPanel(run))  # type: ignore[arg-type]
        shadow, rollout = run.shadow({"FM": dict}), panel.rollout
        panel.update(RunMoment(run))  # type: ignore[arg-type]
        assert "shadow of FM: open, since " in rollout.told.value
        rollout.compare.click()
        until(lambda shadow=shadow: shadow.compared is not None)
        panel.update(RunMoment(run))  # type: ignore[arg-type]
        for cells in ("same</td><td>990", "differ in &lt;b&gt;</td><td>12", "FM: failed</td><td>4",
                      "numbers: left out</td><td>5", "&lt;b&gt;</td><td>0.5</td><td>0.75"):  # fmt: skip
            assert cells in rollout.told.value
        getattr(rollout, end).click()
        assert shadow.state == "open"
        rollout.confirm.click()
        until(lambda shadow=shadow, said=said: shadow.state == said)
        assert "The first that differ" in run_svg(run)  # type: ignore[arg-type]
    fixed = ChangePanel(run, DagPanel(run), lambda operator: False)  # type: ignore[arg-type]
    shadow = run.shadow({"FM": dict})
    fixed.update(RunMoment(run))  # type: ignore[arg-type]
    fixed.rollout.drop.click()
    fixed.rollout.confirm.click()
    assert "this page does not change FM" in fixed.result.value
    assert shadow.state == "open"


def test_a_panel_that_fails_says_so_in_its_place_and_the_others_go_on(
    view: RunView, run: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error goes away as soon as it can be updated again; it is logged once, with its traceback."""

    def broken() -> Any:
        raise RuntimeError("no <hosts>")

    caplog.set_level(logging.INFO, "fries_nb")
    hosts = next(frame for frame in view.frames if frame.name == "Hosts")
    show_tab(view, "Details")
    monkeypatch.setattr(run, "host_rates", broken)
    until(lambda: "Hosts cannot be shown: RuntimeError: no &lt;hosts&gt;" in hosts.error.value)
    assert hosts.error in hosts.children
    run.hear("out", 0, 4.0, 1.0)
    run.hear("out", 100, 4.0, 2.0)
    until(lambda: "100 tuples/s" in view.status.value)
    until(lambda: "100/s" in str(view.dag.labels))
    monkeypatch.undo()
    until(lambda: hosts.error.value == "")
    assert hosts.error not in hosts.children
    logged = [record for record in caplog.records if record.exc_info]
    assert ["Hosts" in record.getMessage() for record in logged] == [True]


def test_a_moment_that_cannot_be_read_does_not_end_the_view(
    view: RunView, run: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each panel that needs it says so, and the form still works."""

    def broken() -> Any:
        raise OSError("gone")

    monkeypatch.setattr(run, "metrics", broken)
    until(lambda: sum("OSError: gone" in frame.error.value for frame in view.frames) == 3)
    view.dag.selected = ["FM"]
    view.form.plan.click()
    assert "nothing has changed yet" in view.form.result.value
    monkeypatch.undo()
    until(lambda: all(frame.error.value == "" for frame in view.frames))


def test_operators_say_what_runs_now(view: RunView, run: StandIn) -> None:
    """In the table, and in the tooltips of the picture."""
    until(lambda: len(rows(view.operators)) == 4)
    fm = next(row for row in rows(view.operators) if row[0] == "FM")
    assert fm[2:10] == ["running", "0 %", "0 %", "0", "0", "2", "Score(1)", "initial"]
    assert "runs Score(1) (initial) since" in view.dag.titles["FM"]


def test_hosts_say_how_loaded_they_are(view: RunView, run: StandIn) -> None:
    """Those whose first message has come; a run that has ended has no load."""
    show_tab(view, "Details")
    assert len(rows(view.host_loads)) == 2  # at once, though the run may have ended
    first, second = rows(view.host_loads)
    assert first[3:6] == ["0", "50 %", bytes_of(200_000_000)]
    assert second[4:] == ["", "", ""]
    run.state = "finished"
    until(lambda: rows(view.host_loads)[0][4] == "")


def test_a_tab_fills_though_the_page_could_not_say_that_it_is_shown(view: RunView, run: StandIn) -> None:
    """Each has its turn while it counts as hidden; at the end of the run they are all updated."""
    until(lambda: len(rows(view.host_loads)) == 2)
    until(lambda: rows(view.host_loads)[0][4] == "50 %")
    run.state = "finished"
    until(lambda: rows(view.host_loads)[0][4] == "")


def test_news_of_the_kernel_are_sent_about_once_a_second() -> None:
    """However often the view is updated; the page waits longer for a view that is updated seldom."""
    now = [0.0]
    status = StatusLine(lambda: now[0])
    for _ in range(50):
        now[0] += NEWS_S / 10
        status.live(NEWS_S / 10)
    assert status.news == pytest.approx(5, abs=1)
    assert status.patience_ms == SILENCE_S * 1000
    status.live(60.0)
    assert status.patience_ms == 180_000


def test_changes_are_listed_with_the_newest_selected(view: RunView, run: StandIn, shell: InteractiveShell) -> None:
    """With what has changed, and buttons for what can be done with it."""
    assert rows(view.changes.table) == []
    run.reconfigure({"MC": dict})
    until(lambda: view.changes.table.selected == "u1")
    run.reconfigure({"FM": shell.user_ns["Score"](2)}, scheduler="epoch")
    until(lambda: view.changes.table.selected == "u2")
    listed = [["u2", "FM", "epoch"], ["u1", "MC", "fries"]]
    until(lambda: [row[1:4] for row in rows(view.changes.table)] == listed)  # in another message than the selection
    until(lambda: not view.changes.revert.disabled)
    assert "The function of <b>FM</b>, before (-) and after (+):" in view.changes.details.value
    view.changes.table.selected = "u1"
    assert view.changes.revert.disabled
    assert view.changes.revert.tooltip == "change u2 is later"
    assert view.changes.cancel.disabled


def test_revert_undoes_the_selected_change_in_another(view: RunView, run: StandIn) -> None:
    """And what it is refused for is said below."""
    run.reconfigure({"FM": dict})
    until(lambda: not view.changes.revert.disabled and view.changes.table.selected == "u1")
    view.changes.revert.click()
    joined("fries-revert")
    assert set(run.asked) == {"FM"}
    until(lambda: view.changes.table.selected == "u2")
    assert "done by fries" in view.changes.result.value

    def refuse(*_: Any) -> Change:
        raise PlanError("its state has no way <back>")

    run.rollback = refuse  # type: ignore[method-assign]
    until(lambda: not view.changes.revert.disabled)
    view.changes.revert.click()
    joined("fries-revert")
    assert "no way &lt;back&gt;" in view.changes.result.value


def test_a_change_that_waits_says_why_and_can_be_cancelled(view: RunView, run: StandIn) -> None:
    """Until it was decided."""
    run.outcome = None
    change = run.reconfigure({"FM": dict})
    until(lambda: "it waits for the first tuples" in view.changes.details.value)
    assert not view.changes.cancel.disabled
    assert view.changes.replay.disabled
    view.changes.cancel.click()
    assert run.cancelled == ["u1"]
    second = run.reconfigure({"MC": dict})
    assert "it waits for change u1 of FM" in why_waits(RunMoment(run), second)  # type: ignore[arg-type]
    run.hear("out", 9, 4.0, 1.0)
    assert "about to be prepared" in why_waits(RunMoment(run), change)  # type: ignore[arg-type]
    run.progress = ChangeProgress(ChangeState.PREPARING, workers=8, prepared=3)
    until(lambda: "2 under way (prepared 3 of 8 workers)" in view.status.value)
    view.changes.table.selected = "u1"
    until(lambda: "u1: prepared 3 of 8 workers" in view.changes.details.value)
    assert why_waits(RunMoment(run), change) == "prepared 3 of 8 workers"  # type: ignore[arg-type]
    run.state = "recovering"
    assert why_waits(RunMoment(run), change) == "the run is recovering"  # type: ignore[arg-type]


def test_operators_of_a_chain_share_one_busy_figure(view: RunView, run: StandIn) -> None:
    """It is measured for the chain as a whole, and said to be so in the table and in the tooltips."""
    measured = dict.fromkeys(["FM", "MC", "out"], OperatorMetrics(busy=0.98))
    run.metrics = lambda: MetricsSnapshot(measured)  # type: ignore[method-assign]
    run.chained = (ChainedOperators(("FM", "MC"), (0, 1), 2),)
    show_tab(view, "Details")

    def busy() -> dict[str, str]:
        return {row[0]: row[view.operators.columns.index("#busy") + 1] for row in json.loads(view.operators.rows)}

    until(lambda: busy().get("FM") == "98 % (chain FM → MC)")
    assert (busy()["MC"], busy()["out"]) == ("98 % (chain FM → MC)", "98 %")
    until(lambda: "busy as a whole: chain FM → MC" in view.dag.titles["MC"])
    assert "chain" not in view.dag.titles["out"]


def test_a_change_is_replayed_in_the_picture(view: RunView, run: StandIn) -> None:
    """Step by step; at the end the picture shows the last plan again."""
    run.reconfigure({"FM": dict, "MC": dict})
    until(lambda: not view.changes.replay.disabled)
    view.changes.replay.click()
    bar = view.changes.bar
    assert bar.is_open
    assert "1 of 4: The message leaves the controller for FM" in bar.words.value
    assert view.dag.state["FM"] == "old here"
    bar.play.value = 2
    assert (view.dag.state["MC"], view.dag.played["markers"]) == ("old here", ["1"])  # no worker says when it switched
    bar.shut.click()
    assert not bar.is_open
    assert "changed" in view.dag.state["FM"]
    assert view.dag.played == {}


def test_a_change_that_was_done_is_played_once_and_a_click_takes_it_over(run: StandIn) -> None:
    """Step by step by the kernel's clock; not what was done before, nor an aborted change, nor after the end."""
    now, ended, old = [0.0], list[int](), run.reconfigure({"FM": dict})
    pictures = DagPanel(run)  # type: ignore[arg-type]
    panel = ChangePanel(run, pictures)  # type: ignore[arg-type]
    bar = panel.bar = ReplayBar(pictures.view, lambda: ended.append(1), lambda: now[0])
    assert old.done

    def at(seconds: float) -> str:
        now[0] += seconds
        panel.update(RunMoment(run))  # type: ignore[arg-type]
        return str(bar.words.value) if bar.is_open else ""

    assert at(0.0) == ""
    run.reconfigure({"FM": dict, "MC": dict})
    assert "1 of 4: The message leaves" in at(0.0)
    assert pictures.view.played["messages"] == ["FM"]
    assert pictures.view.played["rows"] == {"0": "waits", "1": "old", "2": "old"}
    assert "2 of 4: " in at(STEP_MS / 1_000)
    assert "4 of 4: " in at(2 * STEP_MS / 1_000)
    assert (at(STEP_MS / 1_000), ended) == ("", [1])
    run.reconfigure({"FM": dict, "MC": dict})
    at(0.0)
    bar.play.value = 2
    assert "3 of 4: " in at(100.0)
    bar.shut.click()
    run.outcome = "aborted"
    run.reconfigure({"FM": dict})
    assert at(0.0) == ""
    run.outcome = "done"
    run.reconfigure({"FM": dict})
    assert at(0.0) != ""
    run.state = "finished"
    assert at(0.0) == ""


def test_the_drawer_follows_the_selected_operators(view: RunView, run: StandIn) -> None:
    """What each is and runs, the worker that is behind, failed rows, and the row that it is paused on."""
    show_tab(view, "Details")
    with run.reporting:
        for index, queued in ((0, 5), (1, 900)):
            run.reported.add(Report(WorkerId("FM", index), 10, 0, failed=3, queued_tuples=queued), 1.0)
    run.paused = {"FM": (Paused(WorkerId("FM", 1), "FM[1] failed: KeyError: 'shop'", row='{"n": 7}'),)}
    view.dag.selected = ["FM"]
    assert view.tabs.titles[view.tabs.selected_index] == "Function"
    told = (
        "<b>FM</b> map, 2 workers", "runs Score(1) (initial)", "worker 1 is behind: 900 of 905 rows wait for it",
        "6 failed", "worker 1 is paused on {&quot;n&quot;: 7}",
    )  # fmt: skip
    until(lambda: all(words in view.drawer.lines.value for words in told))
    show_tab(view, "Rows")
    view.dag.selected = ["FM", "MC"]
    assert view.tabs.titles[view.tabs.selected_index] == "Rows"
    until(lambda: "<b>MC</b>" in view.drawer.lines.value)
    view.dag.selected = []
    assert view.drawer.lines.value == ""


def test_every_file_can_be_saved(run: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data reads back as what the run says, and a picture is SVG, of which the browser makes PNG."""
    run.reconfigure({"FM": dict})
    for name in FRAMES:
        for kind in FORMATS:
            data = io.BytesIO(file_of(run, name, kind))  # type: ignore[arg-type]
            frame = pd.read_csv(data) if kind == "csv" else pd.read_parquet(data)
            assert len(frame) == len(FRAMES[name](run))  # type: ignore[arg-type]
    for name in PICTURES:
        assert file_of(run, name, "png").startswith(b"<svg")  # type: ignore[arg-type]
    sent: list[Any] = []
    panel = SavePanel(run)  # type: ignore[arg-type]
    monkeypatch.setattr(panel, "send", lambda content, buffers=None: sent.append((content, buffers)))
    for what, kind in (("changes", "csv"), ("secrets", "csv"), ("dataflow", "exe")):
        panel._handle_custom_msg({"event": "save", "what": what, "kind": kind}, [])
        joined("fries-save")
    (file, [data]), (failed, _), (unknown, _) = sent
    assert (file["name"], file["type"]) == ("fraud changes.csv", "text/csv")
    assert data.startswith(b"change,")
    assert (failed["event"], failed["what"]) == ("failed", "secrets")
    assert (unknown["event"], unknown["what"]) == ("failed", "dataflow")


def test_the_dashboard_is_shown_by_its_magic(shell: InteractiveShell, run: StandIn) -> None:
    """As the run itself is; without a kernel its picture."""
    with pytest.MonkeyPatch.context() as patch:
        shown: list[Any] = []
        patch.setattr(shell.display_pub, "publish", lambda data, **_: shown.append(data))
        assert told(shell, "%fries_dashboard --of fraud") == "None"
    assert shown[0]["text/plain"].startswith("fraud: running")
    assert "<svg" in shown[0]["image/svg+xml"]
