"""State that ends: a silent key is forgotten, and what is made of it."""

from __future__ import annotations

from datetime import datetime
from math import inf, nan
from typing import Any

import pytest
from window_setting import TimedRun, shown

import fries_nb as fn
from fries_nb.dataflow import Kind, Operator
from fries_nb.errors import DataflowError
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import WorkerId

Row = dict[str, Any]


class Counting:
    """Counts the rows of a key, and tells the count when the key ends."""

    def process(self, row: Row, state: Row) -> Row:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1
        return {"k": row["k"], "n": state["n"]}

    def on_expire(self, key: Any, state: Row) -> Row:
        """The count, below 0."""
        return {"k": key, "n": -state["n"]}


def counting(function: Any) -> TimedRun:
    """A map with this function, keyed by ``k``."""
    operator = Operator("M", kind=Kind.MAP, function=function, key=("k",))
    made = Instance(WorkerId("M", 0), operator, function, False)
    made.has_dead_letters = False
    return TimedRun(made, branches=1)


def test_a_silent_key_ends_and_begins_anew() -> None:
    """When no row of its newest time + ttl can come; an earlier row that comes later does not shorten that."""
    run = counting(fn.expiring(Counting(), ttl=10))
    run.frame([{"k": 1}, {"k": 2}, {"k": 1}, {"k": 1}], [5, 5, 8, 6])
    state = run.instance.state
    assert run.fire((0, 15)) == []
    assert shown(run.fire((0, 16))) == [{"k": 2, "n": -1}]
    assert set(state.live) == {1}
    assert [row["n"] for row in shown(run.frame([{"k": 1}, {"k": 2}], [18, 18]))] == [4, 1]
    assert run.fire((0, 28)) == []
    assert sorted(row["n"] for row in shown(run.fire((0, 29)))) == [-4, -1]
    assert not state.live
    assert len(run.counts) == 0


@pytest.mark.parametrize("ttl", [0, -1, nan, inf, True, "3600", None])
def test_a_ttl_is_a_duration(ttl: Any) -> None:
    """Not none, negative, endless, a truth value or text."""
    with pytest.raises(DataflowError, match=r"has ttl=.*; expected a finite number above 0"):
        fn.expiring(Counting(), ttl)


def test_what_keeps_no_state_by_the_time_of_rows_does_not_expire() -> None:
    """Neither a function without state, key or times, nor one that yields, awaits or is timed."""

    class Yielding:
        def process(self, row: Row, state: Row) -> Any:
            yield row

    class Awaiting:
        async def process(self, row: Row, state: Row) -> Row:
            return row

    class Timed:
        def process(self, row: Row, state: Row, at: Any) -> Row:
            return row

    class Fixed(Counting):
        def initial_state(self) -> int:
            return 0

    for given, words in (
        (len, "keeps no state"), (fn.expiring(Counting(), 1), "keeps no state"), (Yielding(), "yields its rows"),
        (Awaiting(), "awaits its rows"), (Timed(), "timed function"), (Fixed(), "initial_state.. returns"),
    ):  # fmt: skip
        with pytest.raises(DataflowError, match=words):
            fn.expiring(given, 1)
    flow = fn.Dataflow("ends")
    untimed = flow.source("untimed", fn.rate(1))
    with pytest.raises(DataflowError, match=r"no time; expected source.*time="):
        untimed.map("M", fn.expiring(Counting(), 1), key="k")
    with pytest.raises(DataflowError, match="has no key"):
        flow.source("S", fn.rate(1), time="at").map("N", fn.expiring(Counting(), 1))


def test_timestamps_end_after_seconds() -> None:
    """The end is shown as the source's times are."""

    class At:
        time = datetime(2024, 1, 1)

        def call(self, time: datetime) -> None:
            assert time == datetime(2024, 1, 1, 1)

    function = fn.expiring(Counting(), 3600)
    state = function.initial_state()
    function.process({"k": 1}, state, At())
    assert state == {"state": {"n": 1}, "until": datetime(2024, 1, 1, 1)}
