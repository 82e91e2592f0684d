"""Timed functions: reminders for a time, tokens that hold it back, and what is made when it has passed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from window_setting import TimedRun, shown

from fries_nb.dataflow import Kind, Operator, memory
from fries_nb.dataflow.columns import TIME, TRANSACTION
from fries_nb.errors import OperatorError
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import WorkerId
from fries_nb.worker.saving import saved
from fries_nb.worker.snapshot import restore

Row = dict[str, Any]


class Remind:
    """Reminds of a key's rows after 10."""

    def process(self, row: Row, state: Row, at: Any) -> Row:
        state["seen"] = state.get("seen", 0) + 1
        at.call(at.time + 10)
        return {"k": row["k"], "at": at.time}

    def due(self, key: Any, time: Any, state: Row) -> list[Row]:
        return [{"k": key, "due": time, "seen": state["seen"]}] * 2


class Raw:
    """Keeps a token for each key, and sends the sum with it when its time has passed."""

    def initial_state(self) -> SimpleNamespace:
        return SimpleNamespace(total=0, token=None)

    def process(self, row: Row, state: Any, at: Any) -> None:
        if row["n"] < 0:
            at.keep()
            raise ValueError("negative")
        state.total += row["n"]
        if state.token is None:
            state.token = at.keep()

    def reached(self, frontier: Any, state: Any, out: Any) -> None:
        if state.token is not None and (frontier is None or state.token.time < frontier):
            out.give(state.token, {"total": state.total})
            state.token.drop()
            state.token = None


def timed(function: Any, audit: bool = False, **more: Any) -> TimedRun:
    """A timed map, keyed by ``k``."""
    operator = Operator("M", kind=Kind.MAP, function=function, key=("k",), **more)
    made = Instance(WorkerId("M", 0), operator, function, audit)
    made.has_dead_letters = more.get("on_error") is not None
    return TimedRun(made, branches=1)


def test_what_was_called_for_is_due_once() -> None:
    """When no row of the time can come; the rows of the tuple itself leave at once, with its time."""
    run = timed(Remind())
    rows = run.frame([{"k": 1, "n": 0}, {"k": 1, "n": 0}, {"k": 2, "n": 0}], [5, 5, 7])
    assert [(row["k"], row["at"], row[TIME]) for _, row in rows] == [(1, 5, 5), (1, 5, 5), (2, 7, 7)]
    assert run.fire((0, 15)) == []
    due = run.fire((0, 16))
    assert shown(due) == [{"k": 1, "due": 15, "seen": 2}] * 2
    assert {row[TIME] for _, row in due} == {15}
    assert [row["k"] for row in shown(run.fire())] == [2, 2]
    assert len(run.counts) == 0


def test_what_is_called_for_must_not_be_past() -> None:
    """Nor be no time, or called for without due, or after the function has returned."""
    kept = []

    class Wrong:
        def process(self, row: Row, state: Row, at: Any) -> None:
            kept.append(at)
            at.call(row["n"])

    class WrongTime(Wrong):
        due = Remind.due

    for function, n, words in (
        (WrongTime(), 4, "TokenError: M: at.call.4. is for a time before that of the row, 5"),
        (WrongTime(), "noon", "TokenError: got the time 'noon' .str.; expected an integer"),
        (Wrong(), 9, "TokenError: M: at.call.. needs a function with due"),
    ):
        with pytest.raises(OperatorError, match=words):
            timed(function).frame([{"k": 1, "n": n}], [5])
    with pytest.raises(Exception, match="M: at was used outside of the function that got it"):
        _ = kept[0].time


@pytest.mark.parametrize("audit", [False, True])
def test_rows_are_sent_with_tokens(audit: bool) -> None:
    """At the time of the token, which is held until it is dropped."""
    run = timed(Raw(), audit)
    run.frame([{"k": 1, "n": 1}, {"k": 2, "n": 10}, {"k": 1, "n": 2}], [5, 7, 9])
    assert sorted((change.time, change.delta) for change in run.counts) == [((0, 5), 1), ((0, 7), 1)]
    assert run.fire((0, 5)) == []
    first = run.fire((0, 6))
    assert [(row["total"], row[TIME]) for _, row in first] == [(3, 5)]
    last = run.fire()
    assert [(row["total"], row[TIME]) for _, row in last] == [(10, 7)]
    assert len(run.counts) == 0
    begun = [record for record in run.instance.records() if type(record).__name__ == "Began"]
    assert len({one for record in begun for one in record.transactions}) == (2 if audit else 0)


def test_a_tuple_that_fails_keeps_no_token() -> None:
    """Nor is its key called when the frontier advances."""
    run = timed(Raw(), on_error=memory())
    run.frame([{"k": 1, "n": -1}, {"k": 2, "n": 10}], [5, 7])
    assert [change.time for change in run.counts] == [(0, 7)]
    assert [row["total"] for row in shown(run.fire())] == [10]


def test_tokens_and_reminders_are_restored() -> None:
    """Each with its key and its time."""
    for function, rows in ((Raw(), [1]), (Remind(), [None, None])):
        run = timed(function)
        run.frame([{"k": "a", "n": 1}], [5])
        fresh = timed(function).instance
        restore(fresh, saved(run.instance), ())
        again = TimedRun(fresh, branches=1)
        assert [change.time[1] for change in fresh.held()] == [5 if isinstance(function, Raw) else 15]
        assert [row.get("total") for row in shown(again.fire())] == rows


def test_times_of_tokens_are_those_of_rows() -> None:
    """Timestamps, which are cut off to microseconds when shown, and only then."""
    seen: list[Any] = []

    class Later:
        def process(self, row: Row, state: Row, at: Any) -> None:
            with at.keep() as token:
                assert token.time == at.time
                token.downgrade(at.time)
                seen.append((at.time, token.delayed(at.time + timedelta(seconds=1)).time))
            at.call(at.time)

        def due(self, key: Any, time: Any, state: Row) -> None:
            seen.append(time)

    run = timed(Later())
    run.frame([{"k": 1, "n": 1}], [1_789], kind=pa.timestamp("ns"))
    assert (run.fire((0, 1_789)), len(seen)) == ([], 1)
    run.fire()
    first = datetime(1970, 1, 1, microsecond=1)
    assert seen == [(first, first + timedelta(seconds=1)), first]


def test_times_that_cannot_be_compared_are_refused() -> None:
    """Integers after timestamps, and timestamps with a time zone after others without."""
    for before, after, words in (
        (None, pa.timestamp("ns"), "times are timestamps without time zone, from S, after others whose times are int"),
        (pa.timestamp("ns"), pa.timestamp("ns", "UTC"), "times are timestamps with a time zone, from S, after others"),
    ):
        run = timed(Raw())
        run.frame([{"k": 1, "n": 1}], [5], kind=before)
        with pytest.raises(OperatorError, match=words):
            run.frame([{"k": 1, "n": 1}], [5], kind=after)


@pytest.mark.parametrize(
    ("reached", "words"),
    [
        (lambda self, frontier, state, out: (yield), "M returned generator from reached; rows are sent with out.give"),
        (lambda self, frontier, state, out: [{"n": 1}], "M returned list from reached; rows are sent with out.give"),
        (lambda self, frontier, state, out: out.give(5, {"n": 1}), r"M: out.give\(\) got 5; expected a token"),
        (lambda self, frontier, state, out: out.give(state.token, 5), r"M made 5 \(int\); expected a row \(a dict\)"),
        (lambda self, frontier, state, out: out.round, "M: reached has no round outside of loops"),
    ],
)
def test_what_reached_may_not_do_is_an_error(reached: Any, words: str) -> None:
    """No rows are lost in silence, because they were returned."""
    run = timed(type("Given", (Raw,), {"reached": reached})())
    run.frame([{"k": 1, "n": 1}], [5])
    with pytest.raises(OperatorError, match=words):
        run.fire()


def test_reached_knows_its_round() -> None:
    """A key that holds tokens of two rounds gives rows with those of the round for which it runs."""
    class Rounds(Raw):
        def process(self, row: Row, state: Any, at: Any) -> None:
            state.token = [*(state.token or []), at.keep()]

        def reached(self, frontier: Any, state: Any, out: Any) -> None:
            mine = [one for one in state.token if self.every or one.round == out.round]
            state.token = [one for one in state.token if one not in mine]
            for token in mine:
                out.give(token, {"round": token.round})
                token.drop()

    for every in (False, True):
        function = Rounds()
        function.every = every
        run = timed(function)
        run.frame([{"k": 1, "n": 1}], [5], stamp=(0, 5, 1))
        run.frame([{"k": 1, "n": 1}], [5], stamp=(0, 5, 2))
        if every:
            with pytest.raises(OperatorError, match=r"M: a token of round \d was given rows while reached runs for"):
                run.fire()
        else:
            assert sorted(row["round"] for row in shown(run.fire())) == [1, 2]


def test_at_is_of_no_use_in_another_thread() -> None:
    """Where it might stand for another row by then."""
    class Threaded(Remind):
        def process(self, row: Row, state: Row, at: Any) -> None:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(at.call, at.time).result()

    with pytest.raises(OperatorError, match="M: at was used outside of its function, or in another thread"):
        timed(Threaded()).frame([{"k": 1, "n": 1}], [5])


@pytest.mark.parametrize("audit", [False, True])
def test_each_row_that_time_brings_out_has_its_own_time(audit: bool) -> None:
    """Also of an operator that makes one row of each; and its own transaction, under audit."""

    class All(Raw):
        def process(self, row: Row, state: Any, at: Any) -> None:
            state.token = [*(state.token or []), at.keep()]

        def reached(self, frontier: Any, state: Any, out: Any) -> None:
            for token in state.token:
                out.give(token, [{"at": token.time}] * 2)
                token.drop()
            state.token = []

    run = timed(All(), audit)
    run.frame([{"k": 1, "n": 1}] * 4, [3, 9, 5, 3])
    rows = [row for _, row in run.fire()]
    assert [(row["at"], row[TIME]) for row in rows] == [(time, time) for time in (3, 3, 9, 9, 5, 5, 3, 3)]
    assert len({row.get(TRANSACTION) for row in rows}) == (8 if audit else 1)


def test_a_late_row_has_no_right_to_its_own_time() -> None:
    """Frontiers do not go back: its token has the time of the frame, and what it calls for is due at that."""
    run = timed(Raw())
    run.frame([{"k": 1, "n": 1}], [3], stamp=(0, 5))
    assert [(change.time, change.delta) for change in run.counts] == [((0, 5), 1)]
    assert [row[TIME] for _, row in run.fire()] == [5]
    run = timed(Remind())
    run.frame([{"k": 1, "n": 1}], [3], stamp=(0, 50))
    assert [row["due"] for row in shown(run.fire())] == [50, 50]
