"""A worker that takes no tuple: a source that is held, or an operator that is paused on a tuple on which it failed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pause_setting import fix, numbers, rows_sent
from worker_bench import Bench, change, data, operations, version

from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.updates import Update
from fries_nb.protocol.messages import (
    Abort,
    Commit,
    Data,
    Done,
    End,
    Ended,
    Failed,
    Fcm,
    Hold,
    Marker,
    Paused,
    Reconfigure,
    Rehearsed,
    Release,
    Report,
    Resumed,
    WorkerId,
)
from fries_nb.protocol.trace import RanMany, Updated
from fries_nb.worker.events import Grant, Save, Traced, WorkerTick

M = WorkerId("M", 0)


class Picky:
    """Counts by key, and fails on some numbers, after it has spoilt the row and the state."""

    def __init__(self, *refused: int, version: int = 1) -> None:
        self.refused, self.version = refused, version

    def initial_state(self) -> list[int]:
        return []

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        number = row["n"]
        state.append(number)
        row["spoilt"] = row["n"] = -1
        if number in self.refused:
            raise ValueError(f"not {number}")
        del row["spoilt"]
        return row | {"n": number, "v": self.version, "count": len(state)}


def pausing(function: Any = None) -> Operator:
    """An operator that pauses."""
    return Operator("M", function=function or Picky(2), key=("k",), on_error="pause")


def frame(*numbers: int) -> Data:
    """Tuples with these numbers, of one key."""
    batch = data(*numbers, size=10).batch.append_column("k", pa.array(["x"] * len(numbers)))
    return Data(batch, size=10)


def standing(audit: bool = False) -> Bench:
    """A bench whose worker stands in front of the second tuple of three."""
    bench = Bench(pausing(), audit=audit)
    bench.arrive(0, frame(1, 2, 3))
    bench.run()
    return bench


def test_tuples_in_front_leave_and_the_one_that_failed_is_told_as_it_came() -> None:
    """What the function did to the row does not show."""
    bench = standing()
    assert numbers(bench) == [(1, 1, 1)]
    (paused,) = bench.answers(Paused)
    assert (paused.worker, paused.error) == (M, "M failed on a tuple: ValueError: not 2")
    assert paused.details.splitlines()[-1] == "ValueError: not 2"
    assert json.loads(paused.row) == {"n": 2, "k": "x"}
    assert bench.worker.instances[0].processed == 1
    assert bench.answers(Failed) == []
    assert not bench.worker.failed
    assert [one.sizes for one in bench.said if isinstance(one, Grant)][1:] == []


def test_a_standing_worker_takes_no_tuple_and_no_marker_and_hears_control() -> None:
    """A standing worker takes no tuple and no marker and hears control."""
    bench = standing()
    bench.arrive(1, frame(7))
    for index in (0, 1):
        bench.arrive(index, Marker(1, frozenset("AMZ"), Commit(1, checkpoint=True)))
    bench.run()
    assert numbers(bench) == [(1, 1, 1)]
    assert bench.answers(Done) == []
    bench.worker.handle(WorkerTick())
    (report,) = bench.answers(Report)
    assert (report.processed, report.queued_tuples) == (1, 3)
    bench.prepare("M", "u1", Update(version(2)))
    bench.direct("M", Abort("u1"))
    assert bench.worker.instances[0].prepared == {}
    assert len(bench.answers(Paused)) == 1


def test_a_fix_retries_the_tuple_and_goes_on_with_the_frame_and_what_waits_behind_it() -> None:
    """State counts the tuple once; the checkpoint that waited comes after it."""
    bench = standing()
    for index in (0, 1):
        bench.arrive(index, Marker(1, frozenset("AMZ"), Commit(1, checkpoint=True)))
    fix(bench, 2, Picky(version=2))
    assert numbers(bench) == [(1, 1, 1), (2, 2, 2), (3, 2, 3)]
    assert "spoilt" not in set().union(*rows_sent(bench)[1:])
    assert bench.answers(Resumed) == [Resumed(M)]
    assert [done.marker for done in bench.answers(Done)] == [2, 1]
    (save,) = [one for one in bench.said if isinstance(one, Save)]
    assert save.snapshots[0].processed == 3
    assert [one.sizes for one in bench.said if isinstance(one, Grant)][1:] == [{bench.incoming[0]: 10}]


def test_a_fix_that_does_not_get_past_the_tuple_lets_it_stand_again() -> None:
    """Each try is told; the state is as before the first."""
    bench = standing()
    fix(bench, 1, Picky(2, 3, version=2))
    assert [paused.error[-5:] for paused in bench.answers(Paused)] == ["not 2", "not 2"]
    assert bench.answers(Resumed) == []
    fix(bench, 2, Picky(3, version=3))
    assert [paused.error[-5:] for paused in bench.answers(Paused)] == ["not 2", "not 2", "not 3"]
    assert bench.answers(Resumed) == [Resumed(M)]
    fix(bench, 3, Picky(version=4))
    assert numbers(bench) == [(1, 1, 1), (2, 3, 2), (3, 4, 3)]
    assert bench.answers(Resumed) == [Resumed(M), Resumed(M)]
    bench.arrive(0, frame(4))
    bench.run()
    assert len(bench.answers(Resumed)) == 2


def test_an_fcm_of_a_change_of_others_as_well_comes_in_front_of_the_tuple() -> None:
    """The worker is its head: the tuple is the first of the new version, and the marker leaves before its rows."""
    bench = standing()
    bench.direct("M", Fcm(Marker(2, frozenset("M"), Commit(2))))
    bench.run()
    assert bench.answers(Resumed) == []
    fix(bench, 1, Picky(version=2), scope="MZ")
    assert numbers(bench) == [(1, 1, 1), (2, 2, 2), (3, 2, 3)]
    assert [isinstance(one, Marker) for one in bench.sent].index(True) == 1


def test_a_fix_ahead_of_a_change_is_skipped_where_that_was_applied() -> None:
    """It counts as applied, and the later change's function stays; where it was not, the fix is the present version."""
    for first, (late, early) in ((1, ("u1", "u2")), (2, ("u2", "u1"))):
        bench = standing()
        for change_, function in (("u1", Picky(version=2)), ("u2", Picky(version=3))):
            bench.prepare("M", change_, Update(function))
        ahead = Marker(2, frozenset("M"), Reconfigure("u2", frozenset("M"), before="u1"))
        orders = {1: change(1, "M", scope="MZ"), 2: ahead}
        bench.direct("M", Fcm(orders[first]))
        bench.direct("M", Fcm(orders[3 - first]))
        bench.run()
        assert bench.worker.instances[0].function.version == 2
        assert bench.worker.instances[0].applied == (late, early)
        assert [done.switched for done in bench.answers(Done)] == [True, first == 2]


def test_a_fix_is_rehearsed_on_the_very_tuple() -> None:
    """One that does not get past it is refused, and nothing has changed; a tuple that passed is no trial."""
    bench = standing()
    bench.prepare("M", "u1", Update(Picky(2)))
    bench.prepare("M", "u2", Update(Picky(1)))
    assert [rehearsed.error for rehearsed in bench.answers(Rehearsed)] == [
        "new M failed in a rehearsal on a recent tuple: M failed on a tuple: ValueError: not 2",
        "",
    ]


def test_the_trace_knows_of_the_try_that_counted_alone() -> None:
    """The trace knows of the try that counted alone."""
    bench = standing(audit=True)
    fix(bench, 1, Picky(version=2))
    bench.worker.handle(WorkerTick())
    bench.take()
    records = operations(record for one in bench.said if isinstance(one, Traced) for record in one.records)
    assert records == [RanMany((1,), "M"), Updated("u1", "M"), RanMany((2, 3), "M")]


def test_a_batched_function_stands_in_front_of_the_row_that_failed() -> None:
    """A slice that fails is tried row by row."""

    def whole(refused: int, tag: int) -> Any:
        def function(batch: pa.RecordBatch) -> pa.RecordBatch:
            if refused in batch.column("n").to_pylist():
                raise ValueError(f"not {refused}")
            return batch.append_column("v", pa.array([tag] * batch.num_rows))

        return batched(function)

    bench = Bench(Operator("M", function=whole(2, 1), on_error="pause"))
    bench.arrive(0, data(1, 2, 3))
    bench.run()
    assert [row["v"] for row in rows_sent(bench)] == [1]
    assert json.loads(bench.answers(Paused)[0].row) == {"n": 2}
    fix(bench, 1, whole(9, 2))
    assert [(row["n"], row["v"]) for row in rows_sent(bench)] == [(1, 1), (2, 2), (3, 2)]
    assert bench.answers(Resumed) == [Resumed(M)]


def test_an_operator_that_does_not_pause_fails_the_run() -> None:
    """An operator that does not pause fails the run."""
    bench = Bench(Operator("M", function=Picky(2), key=("k",)))
    bench.arrive(0, frame(1, 2, 3))
    bench.run()
    assert len(bench.answers(Failed)) == 1
    assert bench.answers(Paused) == []


@pytest.mark.parametrize("checked", [1, 2, 3, 100])
def test_where_slices_end_does_not_matter(checked: int) -> None:
    """The tuple that fails may be the first of a slice, the last, or amid."""
    bench = Bench(pausing())
    bench.arrive(0, frame(1, 2, 3))
    while bench.worker.run(limit=checked):
        bench.take()
    fix(bench, 1, Picky(version=2))
    assert numbers(bench) == [(1, 1, 1), (2, 2, 2), (3, 2, 3)]


# ---- held


def held() -> Bench:
    """A source with a tuple and the end in its inbox, held."""
    bench = Bench(Operator("M", kind=Kind.SOURCE))
    bench.arrive(0, data(1))
    bench.run()
    bench.arrive(0, data(2))
    bench.arrive(0, End())
    bench.direct("M", Fcm(Marker(1, frozenset("MZ"), Hold("u1"))))
    bench.run()
    return bench


def test_a_held_source_takes_nothing_and_does_not_end_until_it_is_released() -> None:
    """What waits in its inbox stays there; markers go out."""
    bench = held()
    assert [row["n"] for row in rows_sent(bench)] == [1]
    assert bench.sent[-1] == Marker(1, frozenset("MZ"), Hold("u1"))
    assert bench.answers(Done) == [Done(1, M)]
    assert not bench.worker.wants_input
    bench.direct("M", Fcm(Marker(2, frozenset("M"), Release("u1"))))
    bench.run()
    assert [row["n"] for row in rows_sent(bench)] == [1, 2]
    assert [ended.worker for ended in bench.answers(Ended)] == [M]


def test_an_idle_source_is_hungry_again_when_it_is_released() -> None:
    """And another hold of a source that is held changes nothing."""
    bench = Bench(Operator("M", kind=Kind.SOURCE))
    for number in (1, 2):
        bench.direct("M", Fcm(Marker(number, frozenset("MZ"), Hold("u1"))))
        assert not bench.worker.wants_input
    bench.direct("M", Fcm(Marker(3, frozenset("M"), Release("u1"))))
    assert bench.worker.wants_input


def test_what_is_buffered_leaves_a_held_source_in_front_of_the_marker() -> None:
    """Behind the marker nothing is left."""
    bench = Bench(Operator("M", kind=Kind.SOURCE))
    bench.arrive(0, data(1))
    bench.worker.run()
    bench.direct("M", Fcm(Marker(1, frozenset("MZ"), Hold("u1"))))
    assert [one["n"] if isinstance(one, dict) else one for one in bench.sent] == [
        1,
        Marker(1, frozenset("MZ"), Hold("u1")),
    ]


def test_other_operators_let_hold_and_release_pass() -> None:
    """Other operators let hold and release pass."""
    bench = Bench(Operator("M", function=version(1)))
    for index in (0, 1):
        bench.arrive(index, Marker(1, frozenset("AMZ"), Hold("u1")))
        bench.arrive(index, data(index))
    bench.run()
    assert bench.sent == [Marker(1, frozenset("AMZ"), Hold("u1")), 1, 1]


def test_a_source_that_has_ended_acknowledges_a_hold_for_nothing() -> None:
    """A source that has ended acknowledges a hold for nothing."""
    bench = Bench(Operator("M", kind=Kind.SOURCE))
    bench.arrive(0, End())
    bench.run()
    bench.direct("M", Fcm(Marker(1, frozenset("MZ"), Hold("u1"))))
    assert bench.answers(Done) == [Done(1, M, ended=True)]


def test_a_recovered_source_is_not_held() -> None:
    """A checkpoint of a held source does not hold the source that is restored from it."""
    bench = held()
    bench.direct("M", Fcm(Marker(2, frozenset("MZ"), Commit(1, checkpoint=True))))
    bench.run()
    (save,) = [one for one in bench.said if isinstance(one, Save)]
    assert save.snapshots[0].processed == 1
    assert Bench(Operator("M", kind=Kind.SOURCE), snapshots=save.snapshots).worker.wants_input
