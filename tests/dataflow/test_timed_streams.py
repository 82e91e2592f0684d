"""Declarations of what works by the time of rows: what is made of them, and what is refused, in a sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import fries_nb as fn
from fries_nb.dataflow import (
    DataflowBuilder,
    Emits,
    Kind,
    Stream,
    as_updates,
    batched,
    check_runnable,
    check_updates,
    graph_from_json,
    graph_to_json,
    memory,
    rate,
)
from fries_nb.dataflow.operators import is_timed
from fries_nb.errors import DataflowError, PlanError
from fries_nb.planning.covering import cover
from fries_nb.protocol.topology import chains


class Sum:
    """A window's function."""

    def process(self, row: Any, state: Any) -> None:
        """Add."""

    def close(self, key: Any, time: Any, state: Any) -> Any:
        """The sum."""


class Merging(Sum):
    """A function of sessions."""

    def merge(self, state: Any, other: Any) -> None:
        """Both."""


class Remind:
    """A timed function."""

    def process(self, row: Any, state: Any, at: Any) -> Any:
        """Call."""

    def due(self, key: Any, time: Any, state: Any) -> Any:
        """Remind."""


TUMBLING = fn.tumbling(60)


def flow(**time: Any) -> tuple[DataflowBuilder, Stream]:
    """A dataflow with a source that has times."""
    builder = DataflowBuilder("timed")
    return builder, builder.source("pay", rate(1), **{"time": "timestamp", **time})


def test_a_window_is_an_operator_with_a_branch_for_late_rows() -> None:
    """They go to a sink of their own; the results have the operator's name."""
    builder, pay = flow()
    pay.window("W", Sum(), fn.sliding(60, every=10), key="value", lateness=5, late=memory()).sink("out", memory())
    graph = builder.graph()
    check_runnable(graph)
    operator = graph.operator("W")
    assert (operator.kind, operator.key, operator.branches) == (Kind.WINDOW, ("value",), 2)
    assert operator.emits is Emits.ONE_TO_MANY
    assert [(edge.to, edge.branch) for edge in graph.out_edges("W")] == [("W.late", 1), ("out", 0)]
    assert operator.function.windowing == fn.sliding(60, 10)
    assert operator.function.lateness == 5


def test_a_timed_operator_begins_a_chain() -> None:
    """Whether it is timed by its kind or by its function."""
    builder, pay = flow()
    mapped = pay.map("A", lambda row: row).map("B", Remind(), key="value").map("C", lambda row: row)
    mapped.window("W", Sum(), fn.tumbling(1), key="value").map("D", lambda row: row).sink("out", memory())
    graph = builder.graph(1)
    assert chains(graph) == (("pay",), ("A",), ("B", "C"), ("W", "D"), ("out",))
    assert [one.name for one in graph.operators if is_timed(one)] == ["B", "W"]


def test_planning_cuts_behind_windows_without_early_rows() -> None:
    """A result is a transaction of its own; the row of a hybrid is not. The flag goes through JSON."""
    for early in (False, True):
        builder, pay = flow()
        rows = pay.window("W", Sum(), fn.tumbling(1), key="value", early=early).map("D", lambda row: row, key="n")
        rows.map("E", lambda row: row, key="m").sink("out", memory())
        graph = graph_from_json(graph_to_json(builder.graph()))
        parts = sorted(sorted(part.operators) for part in cover(graph, ["W", "D"]).components)
        assert parts == ([["D", "W"]] if early else [["D"], ["W"]])


def test_a_window_can_be_changed_to_other_windows() -> None:
    """Not a reduce, and not to windows that leave gaps; nor a timed function to one that is not."""
    builder, pay = flow()
    pay.window("W", Sum(), fn.tumbling(60), key="value").sink("out", memory())
    pay.reduce("R", Sum(), key="value").sink("out2", memory())
    pay.window("S", Merging(), fn.session(5), key="value").sink("out4", memory())
    pay.window("C", Sum(), fn.count(5), key="value").sink("out5", memory())
    pay.map("M", Remind(), key="value").sink("out3", memory())
    graph = builder.graph()
    check_updates(graph, as_updates({"W": fn.Update(Sum(), windows=fn.tumbling(30)), "R": Sum(), "M": Remind()}))
    check_updates(graph, as_updates({"W": fn.Update(Merging(), windows=fn.session(30)), "S": Merging()}))
    others = {"C": fn.Update(Sum(), windows=fn.count(30)), "S": fn.Update(Sum(), windows=DAYS)}
    check_updates(graph, as_updates(others))
    for change, words in (
        ({"W": fn.Update(Sum(), windows=fn.sliding(10, 20))}, "window 'W' slides by 20, more than its windows of 10"),
        ({"R": fn.Update(Sum(), windows=fn.tumbling(30))}, r"'R' \(reduce\) has no windows"),
        ({"W": lambda row: row}, "window 'W' got a function of a row; expected an object with process"),
        ({"W": fn.Update(Sum(), windows=fn.session(9))}, r"window 'W' has sessions, and a Sum has no merge\(\), which"),
        ({"W": fn.Update(Sum(), windows=fn.count(9))}, "'W' has windows by time and would change to windows by count"),
        ({"C": fn.Update(Sum(), windows=TUMBLING)}, "'C' has windows by count and would change to windows by time"),
        ({"M": fn.Update(Remind(), windows=TUMBLING)}, r"'M' \(map\) has no windows; expected an update without"),
        ({"M": lambda row: row}, "'M' runs a timed function and would change to an untimed one; expected a timed"),
        ({"M": type("Deaf", (), {"process": Remind.process})()}, "'M' has entries that will be due, and its new"),
    ):
        with pytest.raises((PlanError, DataflowError), match=words):
            check_updates(graph, as_updates(change))


def method(**methods: Any) -> Any:
    """An object with these methods, by default those of a window's function."""
    return type("Given", (), {"process": Sum.process, "close": Sum.close, **methods})()


DAYS = fn.tumbling(86_400, timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((Sum(), fn.tumbling(0)), "window 'W' has windows of 0; expected a number above 0, in seconds or"),
        ((Sum(), fn.tumbling(-1)), "window 'W' has windows of -1; expected a number above 0, in seconds or"),
        ((Sum(), fn.tumbling("1m")), "window 'W' has windows of '1m'; expected a number above 0, in seconds or"),
        ((Sum(), fn.sliding(60, 0)), "window 'W' has a window every 0; expected a number above 0, in seconds or"),
        ((Sum(), fn.tumbling(timedelta(seconds=5))), "has windows of datetime.timedelta.seconds=5.; expected a number"),
        ((Sum(), fn.tumbling(1e30)), r"window 'W' has windows of 1e\+30; expected a number"),
        ((Sum(), TUMBLING, {"lateness": 2**63, "late": memory()}), "has lateness=9223372036854775808; expected"),
        ((Sum(), fn.sliding(1e9, 1e-3)), "each row would be in 1,000,000,000,000, which have a state each"),
        ((Sum(), fn.sliding(10, 20)), "window 'W' slides by 20, more than its windows of 10"),
        ((Sum(), 60), "window 'W' has 60 as its windows; expected fn.tumbling or fn.sliding"),
        ((Sum(), fn.tumbling(60, offset=60)), "window 'W' has offset=60; expected a number between -60 and 60, the di"),
        ((Sum(), fn.sliding(60, 20, offset=-20)), "window 'W' has offset=-20; expected a number between -20 and 20"),
        ((Sum(), fn.tumbling(60, offset="1")), "window 'W' has offset='1'; expected a number between -60 and 60"),
        ((Sum(), fn.tumbling(60, offset=float("nan"))), "window 'W' has offset=nan; expected a number between"),
        ((Sum(), fn.tumbling(3_600, timezone="UTC")), "window 'W' has windows of 3600 seconds in a timezone; expected"),
        ((Sum(), fn.tumbling(86_400 * 40_000, timezone="UTC")), "expected whole days, multiples of 86400 and 36,525 d"),
        ((Sum(), fn.sliding(86_400, 3_600, timezone="UTC")), "window 'W' has a window every 3600 seconds in a timezon"),
        ((Sum(), fn.tumbling(86_400, timezone="Berlin")), "window 'W' has timezone='Berlin'; expected the name of a t"),
        ((Sum(), fn.tumbling(86_400, timezone="../UTC")), "window 'W' has timezone='../UTC'; expected the name of a t"),
        ((Sum(), fn.tumbling(86_400, timezone=1)), "window 'W' has timezone=1; expected the name of a timezone"),
        ((Sum(), fn.tumbling(86_400, offset=86_400, timezone="UTC")), "window 'W' has offset=86400; expected a number"),
        ((Sum(), fn.months(0)), "window 'W' has months of 0; expected a whole number from 1 to 1,200"),
        ((Sum(), fn.months(1.5)), "window 'W' has months of 1.5; expected a whole number from 1 to 1,200"),
        ((Sum(), fn.months(timezone="Mars")), "window 'W' has timezone='Mars'; expected the name of a timezone"),
        ((Merging(), fn.session(0)), "window 'W' has sessions with a gap of 0; expected a number above 0, in seconds "),
        ((Merging(), fn.session(-1)), "window 'W' has sessions with a gap of -1; expected a number above 0, in second"),
        ((Merging(), fn.session(float("inf"))), "window 'W' has sessions with a gap of inf; expected a number above 0"),
        ((Merging(), fn.session("5m")), "window 'W' has sessions with a gap of '5m'; expected a number above 0"),
        ((Merging(), fn.session(5, longest=4)), "window 'W' has sessions with longest=4; expected a number of at leas"),
        ((Merging(), fn.session(5, longest="1h")), "window 'W' has sessions with longest='1h'; expected a number of a"),
        ((Sum(), fn.session(5)), r"window 'W' has sessions, and a Sum has no merge\(\), which makes one state of thos"),
        ((method(merge=lambda self, state: 0), fn.session(5)), "'W': its merge takes 1 parameters; expected one to be"),
        ((Sum(), fn.count(0)), "window 'W' has windows by a count of 0; expected a whole number of 1 or more"),
        ((Sum(), fn.count(2.0)), "window 'W' has windows by a count of 2.0; expected a whole number of 1 or more"),
        ((Sum(), fn.count(2, every=0)), "window 'W' has a window by count every 0; expected a whole number of 1 or mo"),
        ((Sum(), fn.count(2, every=3)), "window 'W' begins every 3 rows and has 2, so rows would be in none; expected"),
        ((Sum(), fn.count(10**6, every=1)), "window 'W' has 1,000,000 rows and begins every 1, so each row would be i"),
        ((Sum(), fn.count(2), {"late": memory()}), "window 'W' is by a count of rows and has late=.*; expected neithe"),
        ((Sum(), fn.count(2), {"early": True}), "window 'W' is by a count of rows and has early=True; expected neithe"),
        ((Sum(), fn.count(2), {"key": None}), "window 'W' has no key, by which its rows are grouped"),
        ((Sum(), TUMBLING, {"lateness": -1}), "window 'W' has lateness=-1; expected a number of 0 or more"),
        ((Sum(), TUMBLING, {"lateness": 5}), "window 'W' has lateness=5 and no place for rows that are later"),
        ((Sum(), TUMBLING, {"late": "here"}), "window 'W' has late='here'; expected a sink"),
        ((Sum(), TUMBLING, {"key": None}), "window 'W' has no key, by which its rows are grouped"),
        ((Sum(), TUMBLING, {"key": 5}), "operator 'W' has the key 5"),
        ((Sum(), TUMBLING, {"early": 1}), "window 'W' has early=1; expected True or False"),
        ((len, TUMBLING), "window 'W' got a function of a row; expected an object with process"),
        ((batched(lambda batch: batch), TUMBLING), "window 'W' got a function of a batch"),
        ((Sum, TUMBLING), "operator 'W': got the class Sum; expected an instance"),
        ((method(initial_state=0), TUMBLING), "operator 'W': its initial_state is 0; expected a method that makes"),
        ((method(close=None), TUMBLING), r"window 'W' got a Given, which has no close\(\)"),
        ((method(close=lambda self, key: 0), TUMBLING), "'W': its close takes 1 parameters; expected one to be called"),
        ((method(process=lambda self, row: 0), TUMBLING), "'W': its process takes 1 parameters; expected one to be"),
        ((method(process=lambda self, row, state, at: 0), TUMBLING), "'W': its process takes 3 parameters"),
        ((method(process=lambda self, row, state: (yield)), TUMBLING), "'W': its process is a generator, which yields"),
    ],
)
def test_bad_windows_are_refused(given: Any, words: str) -> None:
    """Each in a sentence that names the operator; nothing is declared."""
    builder, pay = flow()
    function, windows, more = (*given, {})[:3]
    with pytest.raises(DataflowError, match=words):
        pay.window("W", function, windows, **{"key": "value", **more})
    assert list(builder.graph()) == ["pay"]


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"due": lambda self, key: 0}, "operator 'M': its due takes 1 parameters"),
        ({"reached": lambda self: 0}, "operator 'M': its reached takes 0 parameters"),
        ({"reached": lambda self, frontier, state, out: (yield)}, "operator 'M': its reached is a generator, and its"),
        ({"due": 5}, r"operator 'M': its due is 5; expected a method due\(key, time, state\)"),
        ({"initial_state": {}}, "operator 'M': its initial_state is {}; expected a method that makes a state"),
        ({"process": lambda self, row, state, at, more: 0}, "operator 'M': its function takes 4 parameters"),
    ],
)
def test_bad_timed_functions_are_refused(methods: Any, words: str) -> None:
    """By the call that declares them."""
    with pytest.raises(DataflowError, match=words):
        flow()[1].map("M", type("Given", (Remind,), methods)(), key="value")


def test_a_timed_function_needs_a_key_and_no_answer() -> None:
    """A filter cannot be timed."""
    with pytest.raises(DataflowError, match="operator 'M' keeps state per key"):
        flow()[1].map("M", Remind())
    with pytest.raises(DataflowError, match="operator 'F'"):
        flow()[1].filter("F", Remind())


def test_sources_above_a_window_have_times() -> None:
    """All of them; also behind a blocking operator there are none; rows that may be late need a place."""
    builder, pay = flow()
    plain = builder.source("plain", rate(1))
    with pytest.raises(DataflowError, match="window 'W' has the source 'plain' above it, whose rows have no time"):
        plain.window("W", Sum(), TUMBLING, key="value")
    with pytest.raises(DataflowError, match="map 'M' has the source 'plain' above it, whose rows have no time; expec"):
        plain.map("M", Remind(), key="value")
    with pytest.raises(DataflowError, match="union 'U' gets rows with a time from 'pay' and rows without one from 'pl"):
        pay.union("U", plain)
    with pytest.raises(DataflowError, match="reduce 'R' has the sort 'S' above it, whose rows have no time any more"):
        pay.sort("S", "value").reduce("R", Sum(), key="value")
    _, late = flow(late=30)
    with pytest.raises(DataflowError, match="window 'W' has no place for rows that come late, and source 'pay' has la"):
        late.window("W", Sum(), TUMBLING, key="value")
    late.window("W", Sum(), TUMBLING, key="value", late=memory())


def test_results_of_windows_are_not_late() -> None:
    """So what follows a window needs no place for late rows; what follows rows that left early does."""
    _, late = flow(late=30)
    closed = late.window("W", Sum(), TUMBLING, key="value", late=memory())
    closed.window("V", Sum(), TUMBLING, key="value").reduce("R", Sum(), key="value")
    early = late.window("E", Sum(), TUMBLING, key="value", late=memory(), early=True)
    for stream in (early, closed.union("U", late)):
        with pytest.raises(DataflowError, match="reduce 'X' has no place for rows that come late, and source 'pay'"):
            stream.reduce("X", Sum(), key="value")


def test_late_rows_do_not_leave_a_loop() -> None:
    """Neither by a sink inside, nor is one asked for that would be refused."""
    _, late = flow(late=30)
    for more, words in (
        ({"late": memory()}, "window 'W' of loop 'L' has late=, and rows leave a loop by its output only; expected a"),
        ({}, "window 'W' has no place for rows that come late.*; expected a window in front of loop 'L' to take them"),
    ):
        with pytest.raises(DataflowError, match=words):
            late.iterate("L", lambda s, more=more: s.window("W", Sum(), TUMBLING, "value", **more).split("S", len))


def test_no_row_of_a_replay_is_late() -> None:
    """Rather than a place for late rows that nothing ever comes to."""
    with pytest.raises(DataflowError, match="source 'pay' has late=5 and is a replay, which knows its rows"):
        DataflowBuilder("timed").source("pay", fn.replay("pay.parquet"), time="at", late=5)


def test_a_window_is_taken_back_with_its_late_rows() -> None:
    """If the name of their sink is that of another operator: the window can be declared again."""
    builder, pay = flow()
    pay.sink("W.late", memory())
    with pytest.raises(DataflowError, match=r"two operators are named 'W\.late'"):
        pay.window("W", Sum(), TUMBLING, key="value", late=memory())
    pay.window("W", Sum(), TUMBLING, key="value")
    assert "W" in list(builder.graph())


def test_windows_by_count_need_no_time() -> None:
    """They are an operator that is not timed, and that multiplies: no part of a plan is cut below it."""
    builder = DataflowBuilder("counted")
    rows = builder.source("plain", rate(1)).window("C", Sum(), fn.count(5), key="value")
    rows.map("D", lambda row: row, key="n").sink("out", memory())
    graph = graph_from_json(graph_to_json(builder.graph()))
    assert (graph.operator("C").emits, is_timed(graph.operator("C"))) == (Emits.ONE_TO_MANY, False)
    assert [sorted(part.operators) for part in cover(graph, ["C", "D"]).components] == [["C", "D"]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n": 0}, "top keeps n=0 rows; expected a whole number of 1 or more"),
        ({"n": "5"}, "top keeps n='5' rows; expected a whole number of 1 or more"),
        ({"by": None}, "top has no by=, which says which rows are best; expected by=<column>"),
        ({"by": 7}, "operator 'top' has the key 7; expected a column name, or several"),
        ({"smallest": 1}, "top has smallest=1; expected True or False"),
        ({"rank": 1}, "top has rank=1; expected the name of a new column"),
        ({"rank": "r", "end": "r"}, "top has rank='r' and end='r'; expected two names"),
        ({"windows": 5}, "window 'T' has 5 as its windows; expected fn.tumbling or fn.sliding, fn.session, fn.months "),
        ({"key": None}, "window 'T' has no key, by which its rows are grouped"),
    ],
)
def test_the_best_rows_are_of_windows(given: Any, words: str) -> None:
    """Any of them; what is wrong is said by the call that declares it."""
    for windows in (TUMBLING, DAYS, fn.months(), fn.session(5), fn.count(5)):
        flow()[1].top("T", n=3, by="value", key="value", windows=windows)
    builder, pay = flow()
    with pytest.raises(DataflowError, match=words):
        pay.top("T", **{"n": 3, "by": "value", "key": "value", "windows": TUMBLING, **given})
    assert list(builder.graph()) == ["pay"]
