"""Failures of timed operators: a tuple that fails leaves no entry; what is due is set aside, or retried after a fix."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from window_setting import Sum, TimedRun, reduce, shown, window

from fries_nb.dataflow import Kind, Operator, Update, memory
from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.windowing import WindowFunction, Windowing, sliding, tumbling
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators import error_policy
from fries_nb.operators.dry_run import DryRun, loaded_update, prepare
from fries_nb.operators.instance import Instance, Ready
from fries_nb.protocol.checkpoints import CommittedChange, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.worker.saving import saved
from fries_nb.worker.snapshot import restore

Row = dict[str, Any]


class Poisoned(Sum):
    """Fails on negative numbers when they are summed, and on a sum of 13 when it is closed."""

    def process(self, row: Row, state: Row) -> None:
        super().process(row, state)
        if row["n"] < 0:
            raise ValueError(f"cannot take {row['n']}")

    def close(self, key: Any, time: Any, state: Row) -> Row:
        if state["total"] == 13:
            raise ValueError("thirteen")
        return super().close(key, time, state)


def guarded(function: Any = None, lateness: float = 0, **more: Any) -> TimedRun:
    """A window of 60 with dead letters."""
    made = window(tumbling(60), function or Poisoned(), lateness, on_error=memory(), **more)
    made.has_dead_letters = True
    return TimedRun(made)


def letters(run: TimedRun) -> list[Row]:
    """The dead letters: error and tuple."""
    rows = [row for letter in run.instance.take_letters() for row in letter.to_pylist()]
    return [{"error": row["error"], **json.loads(row["tuple"])} for row in rows]


def test_a_tuple_that_fails_leaves_no_entry() -> None:
    """Neither state nor pointstamp: the window was never open."""
    run = guarded()
    run.frame([{"k": 1, "n": -1}, {"k": 2, "n": 5}, {"k": 2, "n": -5}], [5, 65, 66])
    assert letters(run) == [
        {"error": "W failed on a tuple: ValueError: cannot take -1", "k": 1, "n": -1},
        {"error": "W failed on a tuple: ValueError: cannot take -5", "k": 2, "n": -5},
    ]
    assert [(change.time, change.delta) for change in run.counts] == [((0, 119), 1)]
    assert shown(run.fire()) == [{"k": 2, "end": 120, "total": 5, "rows": 1}]


def test_an_entry_that_is_not_undone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above fails if agendas are forgotten."""
    monkeypatch.setattr(error_policy, "remembering", error_policy._remembering_state)
    with pytest.raises(AssertionError):
        test_a_tuple_that_fails_leaves_no_entry()


def test_a_close_that_fails_becomes_a_letter_with_key_and_time() -> None:
    """The window is gone then, and other windows of the key and other keys are as they were."""
    run = guarded(audit=True)
    run.frame([{"k": 1, "n": 13}, {"k": 2, "n": 5}, {"k": 1, "n": 7}], [5, 5, 65])
    assert [row["total"] for row in shown(run.fire((0, 60)))] == [5]
    assert letters(run) == [{"error": "W failed on a tuple: ValueError: thirteen", "k": 1, "time": 59}]
    assert [row["total"] for row in shown(run.fire())] == [7]
    assert (run.instance.state.live, len(run.counts)) == ({}, 0)
    kinds = [type(record).__name__ for record in run.instance.records()]
    assert kinds == ["RanMany", "Emitted", "Began", "Wrote"]  # three taken, three dropped, two begun


def test_a_correction_that_fails_is_a_letter_too() -> None:
    """The first result has left; the window is gone after the letter."""
    run = guarded(lateness=20)
    run.frame([{"k": 1, "n": 10}], [5])
    assert len(run.fire((0, 60))) == 1
    run.frame([{"k": 1, "n": 3}], [6], stamp=(0, 61))
    assert run.fire() == []
    assert [letter["time"] for letter in letters(run)] == [79]
    assert run.instance.state.live == {}


def test_a_paused_close_is_retried_by_the_fix() -> None:
    """Until then the window and its entry are there; the new function gets the state as it was."""
    run = TimedRun(window(tumbling(60), Poisoned(), on_error="pause"))
    run.frame([{"k": 1, "n": 13}, {"k": 2, "n": 5}], [5, 5])
    with pytest.raises(OperatorError, match="W failed on a tuple: ValueError: thirteen"):
        run.fire()
    assert len(run.instance.state.live[1]) == 1
    run.instance.prepared["u1"] = Ready(WindowFunction(Sum(), None), None)
    run.instance.switch("u1")
    run.executor.rebuild()
    while run.executor.remaining:
        run.executor.advance(1)
    rows = [row for _, batch in run.executor.results() for row in batch.to_pylist()]
    assert [row["total"] for row in rows] == [13, 5]
    assert run.instance.state.live == {}


def test_early_rows_are_declared() -> None:
    """A window that returns rows from process, and was not declared so, is named."""

    class Early(Sum):
        def process(self, row: Row, state: Row) -> Any:
            super().process(row, state)
            return {"k": row["k"], "so far": state["total"]}

    with pytest.raises(DeclarationError, match=r"W returned dict from process; .* declared with early=True"):
        TimedRun(window(tumbling(60), Early())).frame([{"k": 1, "n": 1}], [5])
    run = TimedRun(window(tumbling(60), Early(), early=True))
    early = run.frame([{"k": 1, "n": 1}, {"k": 1, "n": 2}], [5, 6])
    assert [(row["so far"], row[TIME]) for _, row in early] == [(1, 5), (3, 6)]
    assert [row["total"] for row in shown(run.fire())] == [3]


def test_a_late_row_without_a_place_fails() -> None:
    """It is never silently away."""
    run = TimedRun(window(tumbling(60)), branches=1)
    run.frame([{"k": 1, "n": 1}], [5])
    run.fire((0, 60))
    with pytest.raises(OperatorError, match="W failed on a tuple: its time is earlier than all rows that can still"):
        run.frame([{"k": 1, "n": 1}], [5], stamp=(0, 60))


def test_times_are_datetimes_where_the_column_has_timestamps() -> None:
    """In its time zone; windows are in seconds."""
    run, kind = TimedRun(window(tumbling(60))), pa.timestamp("ns", "Europe/Berlin")
    run.frame([{"k": 1, "n": 1}], [59_999_999_999], kind=kind)
    [(_, row)] = run.fire((0, 60_000_000_000))
    assert row["end"] == datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.UTC)
    assert str(row["end"].tzinfo) == "Europe/Berlin"


# ---- changes


def test_open_windows_keep_their_bounds() -> None:
    """A change from 60 to 30: rows of an open window go into it, others into new ones, each once."""
    run = TimedRun(window(tumbling(60)))
    run.frame([{"k": 1, "n": 1}], [5])
    _change(run, Update(Sum(), windows=tumbling(30)))
    run.frame([{"k": 1, "n": 2}, {"k": 1, "n": 4}, {"k": 2, "n": 8}, {"k": 2, "n": 16}], [10, 40, 10, 40])
    run.frame([{"k": 1, "n": 32}], [60])
    ends = sorted((row["k"], row["end"], row["total"]) for row in shown(run.fire()))
    assert ends == [(1, 60, 7), (1, 90, 32), (2, 30, 8), (2, 60, 16)]


def test_a_later_change_keeps_the_windows_of_the_one_before() -> None:
    """And a transformation gets the state of each window."""
    run = TimedRun(window(sliding(60, every=30)))
    run.frame([{"k": 1, "n": 1}], [35])
    _change(run, Update(Sum(), windows=tumbling(30)), "u1")
    _change(run, Update(Sum(), state=lambda old: {**old, "total": old["total"] * 100}), "u2")
    run.frame([{"k": 2, "n": 3}], [35])
    found = sorted((row["k"], row["end"], row["total"]) for row in shown(run.fire()))
    assert found == [(1, 60, 100), (1, 90, 100), (2, 60, 3)]


def _change(run: TimedRun, update: Update, change: str = "u1") -> None:
    import cloudpickle

    instance = run.instance
    order = DryRun(change, instance.worker, cloudpickle.dumps(update), instance.operator, instance.function, (), ())
    prepared = prepare(order)
    assert prepared.answer.error == ""
    assert prepared.ready is not None
    instance.prepared[change] = prepared.ready
    instance.switch(change)
    run.executor.rebuild()


# ---- snapshots


def test_a_restored_window_continues() -> None:
    """With its open windows, their entries and the columns of its firings; pointstamps are introduced, not counted."""
    run = TimedRun(window(tumbling(60), lateness=20))
    run.frame([{"k": 1, "n": 1}, {"k": 1, "n": 2}], [5, 65])
    run.fire((0, 60))
    again = _restored(run)
    assert (len(again.counts), sorted(again.agenda.held)) == (0, [(0, 79), (0, 119)])
    assert again.agenda.fired == {(): 59}
    again.frame([{"k": 1, "n": 4}], [6], stamp=(0, 61))
    assert [(row["end"], row["total"]) for row in shown(again.fire())] == [(60, 5), (120, 2)]


def test_a_restored_window_fires_before_anything_comes() -> None:
    """Its keys have the types that they had."""
    run = TimedRun(window(tumbling(60)))
    run.frame([{"k": "a", "n": 1}, {"k": "b", "n": 2}], [5, 65])
    assert [row["k"] for row in shown(_restored(run).fire())] == ["a", "b"]


def test_a_window_that_is_gone_stays_so() -> None:
    """Also where one key has fired at a time, and the other has not."""
    run = TimedRun(window(tumbling(60)))
    run.frame([{"k": 1, "n": 1}, {"k": 2, "n": 2}], [5, 5])
    run.agenda.advance(_frontier(60))
    run._run("<due>", _taken(run))
    again = _restored(run)
    late = again.frame([{"k": 1, "n": 4}, {"k": 2, "n": 8}], [6, 6], stamp=(0, 61))
    assert shown(late, 1) == [{"k": 1, "n": 4}]
    assert [(row["k"], row["total"]) for row in shown(again.fire())] == [(2, 10)]


def test_a_change_since_the_checkpoint_is_applied() -> None:
    """Its windows and its transformation, to the windows that were open."""
    import cloudpickle

    run = TimedRun(window(tumbling(60)))
    run.frame([{"k": 1, "n": 1}], [5])
    update = Update(Sum(), state=lambda old: {**old, "total": 50}, windows=tumbling(30))
    decided = [CommittedChange("u1", "fries", (("W",),), {"W": cloudpickle.dumps(update)})]
    again = _restored(run, decided)
    again.frame([{"k": 1, "n": 2}, {"k": 2, "n": 3}], [40, 40])
    assert [(row["k"], row["end"], row["total"]) for row in shown(again.fire())] == [(1, 60, 52), (2, 60, 3)]
    assert again.instance.function.windowing == Windowing(30, 30)


def _frontier(t: int) -> Any:
    from fries_nb.progress.times import Antichain

    return Antichain.of([(0, t)])


def _taken(run: TimedRun) -> pa.RecordBatch:
    from fries_nb.operators.timed_calls import firing_batch

    firing = run.agenda.take(1)
    run.agenda.done(firing)
    return firing_batch(run.instance, firing, due_ns=0)


def _restored(run: TimedRun, decided: Any = ()) -> TimedRun:
    import msgspec

    packed = msgspec.msgpack.encode(saved(run.instance))
    snapshot = msgspec.msgpack.decode(packed, type=Snapshot)
    fresh = Instance(WorkerId("W", 0), run.instance.operator, run.instance.operator.function, run.instance.audit)
    restore(fresh, snapshot, decided)
    return TimedRun(fresh)


def test_an_update_as_the_operator_applies_it() -> None:
    """A window's has its windows only if it names them; the others are those of the function before."""
    import cloudpickle

    made = window(tumbling(60), lateness=5).operator
    assert loaded_update(cloudpickle.dumps(Update(Sum())), made).function.windowing is None
    assert loaded_update(cloudpickle.dumps(Update(Sum())), made).function.lateness == 5
    assert loaded_update(cloudpickle.dumps(Update(len)), Operator("M", kind=Kind.MAP)).function is len


def test_a_reduce_that_fails_names_the_time_of_the_rows() -> None:
    """As the user knows it."""
    made = reduce(Poisoned(), on_error=memory())
    made.has_dead_letters = True
    run = TimedRun(made)
    run.frame([{"k": 1, "n": 13}], [5])
    run.fire()
    assert letters(run) == [{"error": "R failed on a tuple: ValueError: thirteen", "k": 1, "time": 5}]
