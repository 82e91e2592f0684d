"""A worker whose calls are in flight: what waits for them, what does not, and what they leave behind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pause_setting import fix, rows_sent
from worker_bench import Bench

from fries_nb.dataflow.awaiting import Awaiting
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.graph import Operator
from fries_nb.protocol.messages import Abort, Commit, Data, Done, Fcm, Freeze, Marker, WorkerId
from fries_nb.worker.events import ClosePart, Grant, TellController

M = WorkerId("M", 0)


class Ask:
    """Counts the rows of a key, and fails on some."""

    def __init__(self, version: int = 1, refused: int = -1) -> None:
        self.version, self.refused = version, refused

    async def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        state["count"] = state.get("count", 0) + 1
        if row["n"] == self.refused:
            raise ValueError(f"not {row['n']}")
        return row | {"v": self.version, "count": state["count"]}


def bench(function: Any = None, **options: Any) -> Bench:
    """Two senders, M with two calls in flight, and a receiver."""
    policy = options.pop("on_error", "fail")
    awaiting = Awaiting(**{"concurrency": 2} | options)
    return Bench(Operator("M", function=function or Ask(), key=("k",), awaiting=awaiting, on_error=policy, chain=False))


def rows(*numbers: int, key: Any = None) -> list[dict[str, int]]:
    """Rows, each of a key of its own unless one is given."""
    return [{"n": number, "k": number if key is None else key} for number in numbers]


def data(given: list[dict[str, int]]) -> Data:
    """A frame of these rows; each is the next one of its source."""
    hidden = [{DUE: row["n"], TRANSACTION: row["n"]} for row in given]
    return Data(pa.RecordBatch.from_pylist([row | own for row, own in zip(given, hidden, strict=True)]), size=100)


def begun(one: Bench) -> list[tuple[int, int]]:
    """(n, version) of the calls in flight."""
    return [(call.row["n"], call.function.__self__.version) for call in one.calls.running]


def sent(one: Bench) -> list[tuple[int, int]]:
    """(n, version) of the rows that have left."""
    return [(row["n"], row["v"]) for row in rows_sent(one)]


def answered(one: Bench) -> list[Any]:
    """What the controller was told."""
    one.take()
    return [each.answer for each in one.said if isinstance(each, TellController | ClosePart)]


def done(one: Bench) -> bool:
    """Whether a marker was acknowledged."""
    return any(isinstance(answer, Done) for answer in answered(one))


def test_a_change_lets_calls_in_flight_end_and_begins_none_by_the_old_function() -> None:
    """They leave ahead of its marker; the other rows in hand are called by the new one."""
    one = bench()
    one.arrive(0, data(rows(0, 1, 2, 3)))
    one.run()
    assert begun(one) == [(0, 1), (1, 1)]
    fix(one, 1, Ask(2))
    one.calls.finish(1)
    one.run()
    assert (begun(one), done(one), sent(one)) == ([(0, 1)], False, [])
    one.calls.finish()
    one.run()
    assert (begun(one), done(one), sent(one)) == ([(2, 2), (3, 2)], True, [(0, 1), (1, 1)])


def test_a_change_may_cancel_them_and_call_again() -> None:
    """With the same rows, by the new function; what had returned behind another one is called again, too."""
    one = bench(on_change="retry")
    one.arrive(0, data(rows(0, 1, 2)))
    one.run()
    one.calls.finish(1)
    one.run()
    fix(one, 1, Ask(2))
    assert (begun(one), done(one), sent(one)) == ([(0, 2), (1, 2)], True, [])
    assert [call.row["n"] for call in one.calls.cancelled] == [0]


def test_what_the_controller_says_next_waits_behind_it() -> None:
    """An abort must not come ahead of the message that froze the worker for the change."""
    one = bench()
    one.arrive(0, data(rows(0, 1, 2)))
    one.run()
    one.direct("M", Fcm(Marker(1, frozenset("M"), Freeze("u1"))))
    one.direct("M", Abort("u1"))
    one.calls.finish()
    one.calls.finish()
    one.run()
    assert done(one)
    assert begun(one) == [(2, 1)]


def test_a_marker_on_the_channels_waits_for_rows_in_flight() -> None:
    """So the state behind it has all of them, and there is no call to be kept."""
    one = bench()
    one.arrive(0, data(rows(0)))
    for index in (0, 1):
        one.arrive(index, Marker(1, frozenset("AMZ"), Commit(1, checkpoint=True)))
    one.run()
    assert not done(one)
    one.calls.finish()
    one.run()
    assert sent(one) == [(0, 1)]
    assert not one.worker.is_busy


def test_the_state_is_written_when_the_row_leaves() -> None:
    """A call has a copy, so one that is behind another, or has failed, has changed nothing."""
    one = bench(Ask(refused=2), on_error="pause", ordered=False)
    states = one.worker.instances[0].state
    one.arrive(0, data([*rows(0, 1), *rows(2, key=0)]))
    one.run()
    one.calls.finish(1)
    assert states.get(1) is None
    one.run()
    assert (states.get(0), states.get(1)) == (None, {"count": 1})
    one.calls.finish()
    one.run()
    one.calls.finish()
    one.run()
    assert states.get(0) == {"count": 1}
    fix(one, 1, Ask(2))
    one.calls.finish()
    one.run()
    assert (states.get(0), sent(one)) == ({"count": 2}, [(1, 1), (0, 1), (2, 2)])


def test_calls_of_several_frames_are_in_flight_and_each_returns_its_credit() -> None:
    """The next frame is begun before the last row of this one has left; behind a marker none is."""
    one = bench(concurrency=3)
    for number in range(4):
        one.arrive(0, data(rows(number)))
        one.run()
    assert begun(one) == [(0, 1), (1, 1), (2, 1)]
    before = sum(isinstance(each, Grant) for each in one.said)
    one.calls.finish()
    one.run()
    assert sum(isinstance(each, Grant) for each in one.said) == before + 1
    assert begun(one) == [(1, 1), (2, 1), (3, 1)]
    one.arrive(1, Marker(1, frozenset("AMZ"), Commit(1)))
    one.arrive(0, data(rows(4)))
    one.calls.finish()
    one.run()
    assert begun(one) == [(2, 1), (3, 1)]


def test_a_row_whose_key_is_in_flight_is_passed_over_and_counts_as_begun() -> None:
    """As calls end rows leave; a cut is above all rows in hand, since others behind a waiting one have begun."""
    one = bench(ordered=False)
    one.arrive(0, data([*rows(0), *rows(1, key=0), *rows(2)]))
    one.run()
    assert begun(one) == [(0, 1), (2, 1)]
    one.direct("M", Fcm(Marker(1, frozenset("M"), Freeze("u1"))))
    one.calls.finish(1)
    one.calls.finish()
    one.run()
    [answer] = [answer for answer in answered(one) if isinstance(answer, Done)]
    assert answer.begun[0] == 2
    assert sent(one) == [(2, 1), (0, 1)]


def test_a_timeout_says_which_operator_and_what_to_do() -> None:
    """As any failure on a tuple."""
    one = bench(timeout_s=2.5)
    one.arrive(0, data(rows(0)))
    one.run()
    one.calls.running.pop().time_out()
    one.run()
    [failed] = answered(one)
    assert failed.error.startswith(
        "M failed on a tuple: its call gave no answer within 2.5 s, which is its timeout=; expected a service that "
    )


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_of_one_key_are_called_one_after_the_other(ordered: bool) -> None:
    """Whatever the concurrency."""
    one = bench(concurrency=8, ordered=ordered)
    one.arrive(0, data(rows(0, 1, 2, key="a")))
    one.run()
    for number in range(3):
        assert begun(one) == [(number, 1)]
        one.calls.finish()
        one.run()
    assert [row["count"] for row in rows_sent(one)] == [1, 2, 3]
