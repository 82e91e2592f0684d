"""The widgets without a browser: which traits change, and that any thread may change them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from planning_graphs import FIGURE_8, FIGURE_10

import fries_nb.report.layout as layouts
from fries_nb.notebook.editor import VERSIONS, FunctionEditor, _loader
from fries_nb.notebook.form import EntryField
from fries_nb.notebook.function_text import FunctionText
from fries_nb.notebook.panels import RunMoment, TableView
from fries_nb.notebook.plots import Course, LatencyPanel, LatencyPlot, marks_of, ticks_ms, window
from fries_nb.notebook.widgets import DagView
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.report.latency import Scale, laid_out, latency_svg
from fries_nb.report.markup import text_width
from fries_nb.report.plan_section import Shown
from fries_nb.telemetry.history import History, MarkKind, PlotMark, Point, WaitingPoint
from fries_nb.telemetry.metrics import MetricsSnapshot, OperatorMetrics

ROOT = Path(__file__).parents[2]
MARKS = (PlotMark(110.0, "u1", "request", "FM by fries"), PlotMark(110.01, "u1", "done", "FM by fries"))


def points_of(count: int, since_s: float = 100.0) -> list[Point]:
    """So many points, four a second."""
    return [Point(since_s + index / 4, 5.0, 20.0 + index % 11, 4_000.0) for index in range(count)]


def waiting_of(count: int) -> list[WaitingPoint]:
    """So many, one a second."""
    return [WaitingPoint(100.0 + second, 7) for second in range(count)]


def snapshot(rate: float) -> MetricsSnapshot:
    """All operators alike."""
    return MetricsSnapshot({name: OperatorMetrics(1, rate, 2) for name in FIGURE_8})


def test_a_plan_changes_states_and_nothing_else():
    """The picture is sent once; a plan, metrics and clearing only change states, labels and tooltips."""
    view = DagView(FIGURE_8)
    changed: list[str] = []
    view.observe(lambda change: changed.append(change["name"]))
    view.show_plan(schedule("fries", FIGURE_8, ["FMX"]))
    assert view.state == {"J": "head mcs", "SP": "mcs", "FMX": "target mcs"}
    assert "several_tuples" in view.titles["J"]
    edges = [(edge.source, edge.to) for edge in FIGURE_8.edges]
    assert {edges[int(number)] for number in view.marked} == {("J", "SP"), ("SP", "FMX")}
    assert view.legend == {"target": "Target of the change", "head": "Gets the message", "mcs": "Marker passes"}
    view.show_metrics(snapshot(1_000.0))
    assert view.labels["0"] == "1.0k/s\n2 queued"
    view.show(Shown())
    assert view.state == {}
    assert view.marked == []
    assert view.legend == {}
    assert "several_tuples" not in view.titles["J"]
    assert set(changed) == {"state", "titles", "marked", "labels", "legend"}


def test_a_plan_comes_in_one_message(monkeypatch):
    """States, tooltips and marked edges never disagree, not even for a moment."""
    view = DagView(FIGURE_10)
    sent: list[set[str]] = []
    monkeypatch.setattr(view, "send_state", lambda key=None: sent.append({key} if isinstance(key, str) else set(key)))
    view.show_plan(schedule("fries", FIGURE_10, ["C", "D"]))
    assert sent == [{"state", "titles", "marked", "legend"}]


def test_no_new_layout(monkeypatch):
    """After the first picture no engine is asked again."""
    view = DagView(FIGURE_8)
    monkeypatch.setattr(layouts, "_place", None)
    view.show_plan(schedule("fries", FIGURE_8, ["FMX"]))
    view.show_metrics(snapshot(5.0))


def test_pictures_go_along_for_viewers_without_a_kernel():
    """The bundle has the widget, an SVG and text with the plan shown, and a PNG where Graphviz gives one."""
    view = DagView(FIGURE_8)
    view.show_plan(schedule("fries", FIGURE_8, ["FMX"]))
    data, _ = view._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert 'data-operator="FMX" data-state="target mcs"' in data["image/svg+xml"]
    assert "FMX: target mcs" in data["text/plain"]
    assert base64.b64decode(data.get("image/png", base64.b64encode(b"\x89PNG"))).startswith(b"\x89PNG")


@pytest.mark.parametrize("marks", [(), MARKS])
def test_the_plot_has_the_whole_run_and_follows_its_end(marks: Sequence[PlotMark]):
    """It shows three minutes or all since the last request; of an hour it has some hundred points, coarser with age."""
    plot = LatencyPlot()
    plot.show(Course(points_of(14_400), marks, (), waiting_of(3_600)))
    past, lately = plot.older["points"]["at"], plot.window["points"]["at"]
    assert (300 <= len(lately) <= 400, len(past) <= 400) == (True, True)
    assert past[0] == 0.0 < past[-1] < lately[0] <= 3_420 < lately[-1]
    steps = [after - before for before, after in pairwise(past)]
    assert all(step <= max(0.5, (3_600 - at) / 100) for step, at in zip(steps, past[1:], strict=True))
    assert max(plot.older["points"]["p99"]) == 30.0
    (start, end), (first, last) = plot.window["across"]["at"], plot.window["across"]["whole"]
    assert (start < 60) == bool(marks)
    assert first < 0 < lately[-1] < last == pytest.approx(end, abs=40)
    assert len(plot.marks["lines"]["at"]) == len(marks)
    for part in (plot.older, plot.window):
        assert {len(column) for column in part["points"].values()} == {len(part["points"]["at"])}
    assert [*plot.older["queues"]["queued"], *plot.window["queues"]["queued"]] == [7.0] * 3_600


def test_what_an_update_sends_does_not_grow_with_the_run():
    """Each sends the window; what is older every 20 seconds, and marks when there is another one."""
    sent = list[str]()
    plot, points, marks = LatencyPlot(), points_of(20_000), list(MARKS)
    plot.observe(lambda change: sent.append(change["name"]), names=["older", "window", "marks"])
    sizes = []
    for count in range(4_000, 20_001, 20):  # every five seconds
        plot.show(Course(points[:count], tuple(marks)))
        sizes.append(len(json.dumps(plot.window)))
    assert [sent.count(name) for name in ("window", "older", "marks")] == [801, 201, 1]
    assert max(sizes[400:]) < 1.2 * max(sizes[:400])
    plot.show(Course(points, (*marks, PlotMark(5_000.0, "u2", "request", "FM by fries"))))
    assert sent.count("marks") == 2


def test_the_axis_of_latency_fits_what_is_followed_and_the_whole():
    """A peak of an hour ago does not flatten what is shown now; it has its place where the whole is shown."""
    points = [Point(100.0, 5.0, 20_000.0, 4_000.0), *points_of(14_400, since_s=100.25)]
    plot = LatencyPlot()
    plot.show(Course(points))
    ticks = plot.window["ticks"]
    assert (ticks["at"][-1], ticks["whole"][-1]) == (50.0, 100_000.0)
    plot.show(Course(points, MARKS))  # all is shown, since the request
    assert plot.window["ticks"]["at"] == plot.window["ticks"]["whole"] == ticks["whole"]


def test_old_checkpoints_have_no_lines_and_changes_keep_theirs():
    """A run may take a checkpoint every second."""
    checkpoints = [PlotMark(200.0 + second, f"c{second}", "checkpoint", "checkpoint") for second in range(1_000)]
    shown = marks_of([*MARKS, *checkpoints], 100.0)
    assert len(shown["lines"]["at"]) == 202
    assert shown["lines"]["at"][:3] == [10.0, 10.01, 900.0]
    assert [words for _, words, _, _ in shown["said"]] == ["FM by fries", "10 ms: FM by fries"]


def test_a_time_without_output_is_a_gap_and_not_a_line():
    """In the live plot and in the picture; what stands alone between two gaps is a dot."""
    history = History()
    for quarter in (*range(8), *range(40, 41), *range(80, 88)):
        for at_s, latency in ((quarter / 4 - 0.01, ()), (quarter / 4, ((4.0, 2),))):
            history.add(Report(WorkerId("out", 0), quarter, 0, latency=latency), 100.0 + at_s)
    shown = window(Course(history.points()), 100.0)["points"]
    assert None not in shown["at"]
    assert [one for one, _ in groupby(value is None for value in shown["p99"])] == [False, True, False, True, False]
    assert {rate for rate, p50 in zip(shown["rate"], shown["p50"], strict=True) if p50 is None} == {0.0}
    assert sum(shown["dot"]) == 4.0
    svg = latency_svg(history.points(), [])
    assert svg.count('class="p99') - 1 == svg.count('class="p50') - 1 == 3
    assert svg.count('class="p99 dot') == 1
    quiet = History()
    for _ in range(3):
        for idle_s in range(9_000):
            quiet.add(Report(WorkerId("out", 0), 1, 0, latency=((4.0, 1),) * (not idle_s)), float(idle_s))
    assert len(quiet.points()) <= 9


@pytest.mark.parametrize("width", [180, 270, 380, 760, 1_100])
@pytest.mark.parametrize("at_s", [0.0, 20.0, 50.0, 99.0])
@pytest.mark.parametrize("kind", ["done", "aborted"])
def test_the_number_of_a_label_is_never_cut_and_stands_at_its_line(width: int, at_s: float, kind: MarkKind):
    """Wherever the change is in the window, and however narrow the plot: what is cut is the name behind it."""
    label = "DetectorOfMerchants, DetectorOfFrauds by multiversion"
    marks = [PlotMark(at_s, "u1", "request", label), PlotMark(at_s + 0.1698, "u1", kind, label)]
    marks += [PlotMark(100.0, "u2", "request", "x")]
    across = Scale.of_time(0.0, 100.0, 0.0, float(width))
    said = laid_out(marks, 0.0, across)[-1]
    assert said.at_s == at_s
    assert said.words.startswith("169.8 ms: " if kind == "done" else "169.8 ms, ")
    assert text_width(said.words, 11.5) <= (across.at(at_s) if said.ends else width - across.at(at_s))


@pytest.mark.parametrize("count", [0, 1, 500])
def test_marks_with_and_without_points(count):
    """A mark is a line, and words that are not repeated for a quick change."""
    plot = LatencyPlot()
    plot.show(Course(points_of(count), MARKS))
    assert len(plot.marks["lines"]["at"]) == 2
    assert [both for *_, both in plot.marks["said"]] == ["10 ms: FM by fries", ""]
    assert len(plot.window["points"]["at"]) == min(count, 400) or count > 400
    data, _ = plot._repr_mimebundle_()
    assert "10 ms: FM by fries" in data["image/svg+xml"]


@pytest.mark.parametrize("span", [(0.0, 0.0), (7.0, 7.1), (40.0, 60.0), (0.05, 1e12), (3.0, 20_000.0), (1e11, 1e12)])
def test_the_latency_axis_has_some_ticks_and_not_too_many(span: tuple[float, float]):
    """Whatever the range, and all that can be shown lies between the first and the last."""
    ticks = ticks_ms(span)
    assert 4 <= len(ticks) <= 12
    assert ticks == sorted(set(ticks))
    assert ticks[0] <= max(min(span[0], 1e9), 0.1)
    assert ticks[-1] >= min(span[1], 1e9)


def test_time_goes_on_when_old_points_are_forgotten():
    """Seconds count from the first point that was ever shown."""
    plot = LatencyPlot()
    plot.show(Course(points_of(10)))
    plot.show(Course(points_of(10, since_s=200.0)))
    assert plot.window["points"]["at"][0] == 100.0


def test_zero_latency_has_a_place_on_a_logarithmic_axis():
    """Nothing that a logarithm cannot take reaches the browser, and all of it is JSON."""
    shown = window(Course([Point(1.0, 0.0, 0.0, 0.0)]), 1.0)
    assert shown["points"]["p50"] == [0.1]
    json.dumps(shown, allow_nan=False)


@pytest.mark.parametrize(("before", "over", "shown"), [(40, False, 1), (700, False, 0), (700, True, 1)])
def test_a_point_too_narrow_to_be_seen_waits(before: int, over: bool, shown: int):
    """Of a long window a plotted point stands for two: one more is not sent alone, but two are, and so is the last."""
    panel, points = LatencyPanel(), points_of(before)
    history = SimpleNamespace(latency=points, marks=MARKS, constraints=(), waiting=())
    run = SimpleNamespace(state="running", history=history)
    panel.update(RunMoment(run))
    sent: list[object] = []
    panel.plot.observe(sent.append, names="window")
    points += points_of(1, since_s=100.0 + before / 4)
    run.state = "finished" if over else "running"
    panel.update(RunMoment(run))
    assert len(sent) == shown
    points += points_of(1, since_s=100.25 + before / 4)
    panel.update(RunMoment(run))
    assert len(sent) == shown + 1


@pytest.mark.parametrize("wrong", [
    {"event": "select", "operator": "none of the flow", "chosen": True}, {"event": "select"}, {"event": []},
    {"event": "select", "operator": ["J"], "chosen": True}, {"event": "select", "operator": "J", "chosen": "yes"},
    {"event": "select", "key": 3}, {"event": "entered", "text": None}, "select", None, [], 7,
])  # fmt: skip
def test_clicks_and_keys_are_messages_of_their_own(wrong: object) -> None:
    """In the order in which they come, and idempotent; a page that sends anything else changes nothing."""
    view, line = DagView(FIGURE_8), EntryField("FM")
    table = TableView("Changes", ("id", "what"), selectable=True)
    fixed = TableView("Hosts", ("host",))
    for name, chosen in (("J", False), ("FMX", True), ("J", True), ("SP", True), ("FMX", True), ("J", False)):
        view._handle_custom_msg({"event": "select", "operator": name, "chosen": chosen}, [])
    for key in ("u1", "", "u2", "u2"):
        table._handle_custom_msg({"event": "select", "key": key}, [])
        fixed._handle_custom_msg({"event": "select", "key": key}, [])
    for text in ("S", "Sc", "Score()"):
        line._handle_custom_msg({"event": "entered", "text": text}, [])
    for widget in (view, table, fixed, line):
        widget._handle_custom_msg(wrong, [])
    assert view.selected == ["FMX", "SP"]
    assert (table.selected, fixed.selected) == ("u2", "")
    assert line.value == "Score()"


def test_several_threads_may_show():
    """Any thread may; the window that is left is one of those shown, whole."""
    plot, view = LatencyPlot(), DagView(FIGURE_8)
    runs = [points_of(size) for size in (3, 5, 8, 13)]

    def show(points: list[Point]) -> None:
        for turn in range(20):
            plot.show(Course(points, MARKS))
            view.show_metrics(snapshot(float(turn)))
            view.show_plan(schedule("fries", FIGURE_8, ["FMX" if turn % 2 else "FMY"]))

    threads = [threading.Thread(target=show, args=(points,)) for points in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert plot.window in [window(Course(points, MARKS), 100.0) for points in runs]
    assert view.state == {"J": "head mcs", "SP": "mcs", "FMX": "target mcs"}


def test_the_library_is_sent_once_a_kernel():
    """All plots name the same carrier of BokehJS, whose version is the one installed."""
    one, other = LatencyPlot(), LatencyPlot()
    assert one.loader == other.loader
    assert one.version in json.loads(one.item)["doc"]["version"]


def test_the_bundle_of_the_editor_has_the_versions_that_are_locked():
    """`make editor` makes it anew; it is sent once a kernel."""
    lock = json.loads((ROOT / "docs" / "editor" / "package-lock.json").read_text("utf8"))["packages"]
    used = {path: one for path, one in lock.items() if path and not {"dev", "optional"} & one.keys()}
    assert sorted(f"{path.removeprefix('node_modules/')} {one['version']}" for path, one in used.items()) == (
        VERSIONS.split(", ")
    )
    wanted = json.loads((ROOT / "docs" / "editor" / "package.json").read_text("utf8"))["dependencies"]
    assert {f"{name} {version}" for name, version in wanted.items()} <= {*VERSIONS.split(", ")}
    one, other = FunctionEditor("FM", FunctionText("")), FunctionEditor("MC", FunctionText(""))
    assert one.loader == other.loader
    assert len(_loader().code) < 600_000


def test_nothing_is_fetched_from_a_network():
    """The widgets name no address."""
    for widget in (DagView(FIGURE_8), LatencyPlot(), FunctionEditor("FM", FunctionText("len"))):
        sent = json.dumps({name: str(value) for name, value in widget.get_state().items() if name != "svg"})
        assert "http://" not in sent
        assert "https://" not in sent
        assert "cdn" not in sent.lower()
