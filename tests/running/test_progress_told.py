"""What a run tells of times and loops: in the users' types, of the right region, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fries_nb as fn
from fries_nb.controller.events import Recover
from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.states import LoopPhase
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.regions import Region
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import DataflowError
from fries_nb.planning.schedulers import Send
from fries_nb.progress.progress_graph import CountChange, GraphLocation
from fries_nb.progress.times import EARLIEST
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import FeedbackCounts, Report, WorkerId
from fries_nb.running.run_monitor import RunMonitor
from fries_nb.telemetry.frontiers import LoopState, TimeHolder
from fries_nb.telemetry.telemetry import Telemetry

NS = 10**9


class Sum:
    """Counts rows."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Add one."""
        state["n"] = state.get("n", 0) + 1

    def close(self, key: Any, time: Any, state: dict[str, int]) -> dict[str, Any]:
        """The result of a window."""
        return {"k": key, **state}


def again(row: dict[str, Any]) -> bool:
    """Whether a row goes round once more."""
    return bool(row["v"])


def timed() -> Graph:
    """A window behind a map."""
    flow = fn.Dataflow("timed")
    rows = flow.source("S", fn.rate(1), time="at").map("A", dict)
    rows.window("W", Sum(), fn.tumbling(60), key="k").sink("out", fn.memory())
    return flow.graph(workers=2)


def looped() -> Graph:
    """A loop, in rows without times."""
    flow = fn.Dataflow("looped")
    flow.source("S", fn.rate(1)).iterate("L", lambda rows: rows.map("B", dict).split("C", again)).sink(
        "out", fn.memory()
    )
    return flow.graph(workers=2)


class Watched(RunMonitor):
    """What a run shows of its telemetry."""

    graph: Any = None

    def __init__(self, graph: Graph, column: str = "int64") -> None:
        self.graph = graph
        self._telemetry = Telemetry(graph)
        self.tell(Report(WorkerId("S", 0), 1, 0, writes={"at": column, "k": "int64"}))

    def tell(self, report: Report) -> None:
        """A report has come."""
        self._telemetry.report(Region(self.graph), report)

    def reach(self, *counts: CountChange) -> None:
        """A host has sent its view."""
        self._telemetry.outstanding(0, counts)


SOURCE, TO_A, TO_W = GraphLocation("S"), GraphLocation("S", "A"), GraphLocation("A", "W")


@pytest.mark.parametrize(
    ("column", "time"),
    [
        ("int32", 90 * NS),
        ("timestamp[us]", datetime(1970, 1, 1, 0, 1, 30)),
        ("timestamp[ms, tz=UTC]", datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC)),
        ("date32[day]", datetime(1970, 1, 1, 0, 1, 30)),
        ("dictionary<values=timestamp[s], indices=int32, ordered=0>", datetime(1970, 1, 1, 0, 1, 30)),
    ],
)
def test_times_are_of_the_type_of_the_column(column: str, time: Any) -> None:
    """Integers as they are, otherwise datetimes, with a time zone if the column has one."""
    run = Watched(timed(), column)
    run.reach(CountChange(SOURCE, (0, 100 * NS), 1), CountChange(TO_W, (0, 90 * NS), 2))
    assert run.metrics().frontier["W"] == time
    assert type(run.metrics().frontier["W"]) is type(time)
    assert run.metrics().frontier["S"] is None
    assert run.holding("W") == (TimeHolder("A", time, 2, "W"),)
    later = run.metrics().frontier["A"]
    assert later - time == (10 * NS if column == "int32" else timedelta(seconds=10))
    assert [one.operator for one in run.frontiers()] == ["A", "W", "out"]


def test_a_time_zone_is_kept() -> None:
    """The same moment, as the users' functions see it."""
    run = Watched(timed(), "timestamp[us, tz=Europe/Paris]")
    run.reach(CountChange(SOURCE, (0, 0), 1))
    time = run.metrics().frontier["W"]
    assert (time.hour, time.utcoffset()) == (1, timedelta(hours=1))


def test_nothing_is_told_until_the_type_of_times_is_known() -> None:
    """Rather than integers that turn into datetimes with the first row."""
    run = Watched(timed())
    assert (run.metrics().frontier, run.frontiers(), run.holding("W")) == ({}, (), ())
    fresh = Watched(timed(), "timestamp[us]")
    fresh._telemetry = Telemetry(fresh.graph)
    fresh.reach(CountChange(SOURCE, (0, EARLIEST), 1))
    assert (fresh.metrics().frontier, fresh.frontiers(), fresh.holding("W")) == ({}, (), ())


def test_frontiers_are_those_of_the_last_view_and_none_of_lost_hosts() -> None:
    """Computed once for a view, however often they are looked at."""
    run = Watched(timed())
    run.reach(CountChange(SOURCE, (0, 5), 1))
    first = run._telemetry.frontiers()
    assert (first, run.metrics().frontier["W"]) == (run._telemetry.frontiers(), 5)
    run.reach(CountChange(SOURCE, (0, 9), 1))
    assert run.metrics().frontier["W"] == 9
    run._telemetry.recovering(Recover(2, Restoration(None), "host 1 was lost", 2))
    assert run.metrics().frontier == {}


def test_frontiers_are_of_the_shape_of_now_before_a_host_has_reported_it() -> None:
    """A window that was added has one at once; below a source that was added it is the beginning, not the end."""
    run = Watched(timed())
    run.reach(CountChange(SOURCE, (0, 5), 1))
    assert run.metrics().frontier["W"] == 5
    flow = fn.Dataflow("timed")
    rows = flow.source("S", fn.rate(1), time="at").map("A", dict)
    rows.window("W", Sum(), fn.tumbling(60), key="k").sink("out", fn.memory())
    rows.window("V", Sum(), fn.tumbling(30), key="k").sink("more", fn.memory())
    flow.source("T", fn.rate(1), time="at").window("U", Sum(), fn.tumbling(30), key="k").sink("other", fn.memory())
    run.graph = flow.graph(workers=2)
    run._telemetry.go_on(run.graph)
    assert {one.operator for one in run.frontiers()} >= {"A", "W", "out", "V", "more", "U", "other"}
    assert (run.metrics().frontier["V"], run.metrics().frontier["U"]) == (5, EARLIEST)
    [holder] = run.holding("other")
    assert (holder.operator, holder.count) == ("T", run.graph.operator("T").workers)
    run.reach(CountChange(SOURCE, (0, 7), 1), CountChange(GraphLocation("T"), (0, 6), 2))
    assert (run.metrics().frontier["V"], run.metrics().frontier["U"]) == (7, 6)


def test_when_nothing_can_arrive_nothing_holds_back() -> None:
    """At the end of a region all counts are gone."""
    run = Watched(timed())
    run.reach()
    assert run.metrics().frontier == dict.fromkeys(["S", "A", "W", "out"])
    assert run.holding("W") == ()


def test_the_least_of_several_holders_comes_first() -> None:
    """All that keep it at its place, and none that are ahead."""
    run = Watched(timed())
    counts = [(TO_W, (0, 7), 1), (TO_A, (0, 7), 3), (SOURCE, (0, 9), 1), (TO_W, (1, 5), 1)]
    run.reach(*(CountChange(*one) for one in counts))
    assert run.metrics().frontier["W"] == 5
    assert [(one.operator, one.to, one.time, one.count) for one in run.holding("W")] == [
        ("A", "W", 7, 1), ("S", "A", 7, 3), ("A", "W", 5, 1),
    ]  # fmt: skip


def test_an_unknown_operator_and_rows_without_times_are_errors() -> None:
    """Each in one sentence."""
    with pytest.raises(DataflowError, match="no operator 'V'; expected one of S, A, W, out"):
        Watched(timed()).holding("V")
    with pytest.raises(DataflowError, match=r"rows of 'looped' have no times, .*; expected source\(\.\.\., time=<"):
        Watched(looped()).holding("L")


def test_a_loop_alone_gives_no_times() -> None:
    """Its rounds are tracked, and its rows have no time."""
    run = Watched(looped())
    run.reach(CountChange(SOURCE, (0, EARLIEST), 1))
    assert (run.metrics().frontier, run.frontiers()) == ({}, ())


def test_loops_are_summed_over_the_workers_of_their_heads() -> None:
    """The largest round, and all that waits; the phase is the controller's."""
    run = Watched(looped())
    assert run._telemetry.loops({}) == (LoopState("L", "not begun"),)
    run.tell(Report(WorkerId("L", 0), 5, 0, feedback=FeedbackCounts(7, 2, 30, 5, 100)))
    run.tell(Report(WorkerId("L", 1), 5, 0, feedback=FeedbackCounts(9, 1, 10, 1, 0)))
    run.tell(Report(WorkerId("B", 1), 5, 0))
    sends = (Send("L", frozenset("LBC")),)
    loop = Loop("L", sends, LoopPhase.WAITING, attempts=3)
    [state] = run._telemetry.loops({"L": loop})
    assert state == LoopState("L", "waiting", attempts=3, round=9, frames=3, rows=40, waiting=6, spilled=100)
    assert state.rounds == "9 rounds"
    [drained] = run._telemetry.loops({"L": Loop("u1", sends, LoopPhase.ASKING, attempts=1)})
    assert (drained.change, drained.phase, drained.attempts, drained.rows) == ("u1", "asking", 1, 40)


def test_a_run_that_does_not_end_says_which_loop_goes_on_and_what_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is never dropped keeps a loop waiting; loops that have ended, or may get rows, are left out."""
    run = Watched(timed())
    run.reach(CountChange(SOURCE, (0, 5), 1))
    states = [LoopState("L"), LoopState("M", "ended"), LoopState("N", "running"), LoopState("K", "asking", round=1)]
    monkeypatch.setattr(run, "loops", lambda: (*states, LoopState("W", "waiting", round=2)))
    words = "; loop 'K' is asking after 1 round; loop 'W' is waiting after 2 rounds, held by S → A, 1 frame, from 5 on"
    assert run._unfinished() == words.replace("S → A, 1 frame", run.holding("W")[0].what)
    unseen = Watched(looped())
    monkeypatch.setattr(unseen, "loops", lambda: (LoopState("L", "waiting", round=2),))
    assert unseen._unfinished() == "; loop 'L' is waiting after 2 rounds"


def test_a_run_that_does_not_end_says_what_its_sources_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is never dropped holds back the sinks, and so a source that must not read far ahead of them."""
    for ahead, words in ((None, ""), (5, "; sources with ahead= wait, held by A: 1 token, from 3 on")):
        graph = timed()
        source = replace(graph.by_name["S"], time=EventTime("at", ahead=ahead))
        operators = (source, *(one for one in graph.operators if one.name != "S"))
        run = Watched(Graph(graph.name, operators, graph.edges))
        monkeypatch.setattr(run, "loops", tuple)
        run.reach(CountChange(SOURCE, (0, 9), 1), CountChange(GraphLocation("A"), (0, 3), 1))
        assert run._unfinished() == words
        run.reach(CountChange(SOURCE, (0, 9), 1))
        assert run._unfinished() == ""
