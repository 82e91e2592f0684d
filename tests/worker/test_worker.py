"""The worker as a whole, driven by hand: events in, instructions out."""

from __future__ import annotations

import itertools
import threading

import cloudpickle
import pyarrow as pa
import pytest
from worker_bench import Bench, Sum, change, checkpoint, data, operations, version

from fries_nb.dataflow.columns import DUE
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.errors import ProtocolError
from fries_nb.operators.dry_run import DryRun, prepare
from fries_nb.protocol.messages import (
    Abort,
    Cancel,
    ChannelId,
    Commit,
    Data,
    Done,
    Drain,
    End,
    Ended,
    Failed,
    Fcm,
    Marker,
    Prepare,
    Prepared,
    Rehearsed,
    Report,
    SetRate,
    WorkerId,
)
from fries_nb.protocol.trace import RanMany, Updated
from fries_nb.worker.events import Arrived, Grant, Granted, ToReader, Traced, WorkerTick
from fries_nb.worker.meters import TurnTime
from fries_nb.worker.outbox import SendFrame


def test_a_frame_is_processed_granted_back_and_flushed_when_nothing_is_left_to_do() -> None:
    """A frame is processed granted back and flushed when nothing is left to do."""
    bench = Bench(Operator("M", function=version(1)))
    assert [one for one in bench.take() if isinstance(one, Grant)] == [Grant(dict.fromkeys(bench.incoming, 1 << 20))]
    bench.arrive(0, data(1, 2, size=77))
    assert not bench.worker.run()
    assert [one for one in bench.take() if isinstance(one, Grant)] == [Grant({bench.incoming[0]: 77})]
    assert bench.sent == []
    assert bench.worker.outbox.buffered
    bench.worker.outbox.flush()
    assert not bench.worker.outbox.buffered
    assert bench.sent == [1, 1]


def test_an_fcm_in_mid_frame_switches_between_two_tuples() -> None:
    """An fcm in mid frame switches between two tuples."""
    bench = Bench(Operator("M", function=version(1)), audit=True)
    bench.arrive(0, data(1, 2, 3, 4))
    bench.prepare("M", "u1", Update(version(2)))
    bench.worker.run(limit=2)
    bench.direct("M", Fcm(change(1, "M")))
    bench.run()
    assert bench.sent == [1, 1, 2, 2]
    assert bench.answers(Done) == [Done(1, WorkerId("M", 0), switched=True, old_tuples=2)]
    bench.worker.handle(WorkerTick())
    (traced,) = [one for one in bench.take() if isinstance(one, Traced)]
    assert operations(traced.records) == [RanMany((1, 2), "M"), Updated("u1", "M"), RanMany((3, 4), "M")]


def test_a_chain_takes_an_fcm_between_two_tuples_of_its_first_operator() -> None:
    """A chain takes an fcm between two tuples of its first operator."""
    twice = Operator("M", kind=Kind.FLAT_MAP, function=lambda row: [row, row])
    bench = Bench(twice, Operator("N", function=version(1)), audit=True)
    bench.arrive(0, data(1, 2))
    bench.prepare("N", "u1", Update(version(2)))
    bench.worker.run(limit=1)
    bench.direct("N", Fcm(change(1, "N", scope="N")))
    bench.run()
    assert bench.sent == [1, 1, 2, 2]
    assert [done.worker.operator for done in bench.answers(Done)] == ["N"]


def test_a_marker_is_applied_when_it_has_come_from_every_sender_in_scope_and_passes_behind_its_tuples() -> None:
    """A marker is applied when it has come from every sender in scope and passes behind its tuples."""
    bench = Bench(Operator("M", function=version(1)))
    marker = change(1, "M", scope="AMZ")
    bench.prepare("M", "u1", Update(version(2)))
    for frame in (data(1), marker, data(2)):
        bench.arrive(0, frame)
    bench.arrive(1, data(3))
    bench.run()
    assert bench.sent == [1, 1]
    bench.arrive(1, marker)
    bench.run()
    assert bench.sent == [1, 1, marker, 2]


def test_a_marker_from_outside_the_scope_of_others_lets_their_tuples_pass() -> None:
    """A marker from outside the scope of others lets their tuples pass."""
    bench = Bench(Operator("M", function=version(1)))
    bench.direct("M", Fcm(change(1, scope="MZ")))
    bench.arrive(0, data(1))
    bench.run()
    assert bench.sent == [change(1, scope="MZ"), 1]


def test_a_marker_stops_in_the_chain_where_its_scope_ends() -> None:
    """A marker stops in the chain where its scope ends."""
    bench = Bench(Operator("M", function=version(1)), Operator("N", function=version(1)))
    bench.direct("M", Fcm(change(1, scope="M")))
    assert [done.worker.operator for done in bench.answers(Done)] == ["M"]
    assert bench.sent == []
    bench.direct("M", Fcm(change(2, scope="MNZ")))
    assert [done.worker.operator for done in bench.answers(Done)] == ["M", "M", "N"]
    assert bench.sent == [change(2, scope="MNZ")]


def test_a_second_fcm_of_one_id_and_one_that_was_cancelled_are_dropped() -> None:
    """A second fcm of one id and one that was cancelled are dropped."""
    bench = Bench(Operator("M", function=version(1)))
    bench.direct("M", Fcm(change(1)))
    bench.direct("M", Fcm(change(1)))
    bench.direct("M", Cancel(2))
    bench.direct("M", Fcm(change(2)))
    assert len(bench.answers(Done)) == 1


def test_a_cancel_frees_the_channels_that_its_marker_held() -> None:
    """A cancel frees the channels that its marker held."""
    bench = Bench(Operator("M", function=version(1)))
    bench.arrive(0, change(1, scope="AM"))
    bench.arrive(0, data(1))
    bench.run()
    assert bench.sent == []
    bench.direct("M", Cancel(1))
    bench.run()
    assert bench.sent == [1]


def test_the_end_of_one_sender_counts_as_its_marker() -> None:
    """The end of one sender counts as its marker."""
    bench = Bench(Operator("M", function=version(1)))
    bench.prepare("M", "u1", Update(version(2)))
    bench.arrive(0, change(1, "M", scope="AM"))
    bench.arrive(0, data(1))
    bench.arrive(1, End())
    bench.run()
    assert bench.sent == [2]
    assert bench.answers(Done)[0].switched


def test_state_is_transformed_at_first_touch_through_every_change() -> None:
    """State is transformed at first touch through every change."""
    bench = Bench(Operator("M", function=Sum(), key=("n",)))
    bench.arrive(0, data(1, 2))
    bench.run()
    for number in (1, 2):
        bench.prepare("M", f"u{number}", Update(Sum(), state=lambda old, n=number: [*old, 10 * n]))
        bench.direct("M", Fcm(change(number, "M")))
    assert bench.worker.instances[0].state.waiting == 2
    bench.arrive(0, data(1))
    bench.run()
    assert bench.sent[-1]["sum"] == [1, 10, 20, 1]
    assert bench.worker.instances[0].state.waiting == 1


def test_a_transformation_that_fails_later_fails_the_operator_by_name() -> None:
    """A transformation that fails later fails the operator by name."""
    bench = Bench(Operator("M", function=Sum(), key=("n",)))
    bench.arrive(0, data(1, 2, 3, 4))
    bench.run()

    def picky(old: list[int]) -> list[int]:
        if old == [4]:
            raise ValueError("not four")
        return old

    bench.prepare("M", "u1", Update(Sum(), state=picky))
    assert bench.answers(Prepared)[0].error == ""
    bench.direct("M", Fcm(change(1, "M")))
    bench.arrive(0, data(1, 4))
    bench.run()
    (failed,) = bench.answers(Failed)
    assert failed.error == "M failed on a tuple: ValueError: not four"
    assert failed.details.splitlines()[1].endswith("in picky")
    assert failed.details.splitlines()[-1] == 'In hand, as it came to M: {"n": 4}'
    assert bench.worker.failed
    assert not bench.worker.run()


def test_a_change_aborted_while_it_is_prepared_leaves_nothing_behind() -> None:
    """A change aborted while it is prepared leaves nothing behind."""
    bench = Bench(Operator("M", function=version(1)))
    bench.direct("M", Prepare("u1", cloudpickle.dumps(Update(version(2)))))
    (order,) = [one for one in bench.take() if isinstance(one, DryRun)]
    bench.direct("M", Abort("u1"))
    bench.worker.handle(prepare(order))
    assert bench.worker.instances[0].prepared == {}
    with pytest.raises(ProtocolError, match=r"M\[0\] was told to switch to change 'u1', which it has not prepared"):
        bench.direct("M", Fcm(change(1, "M")))


def test_a_state_that_cannot_be_copied_is_the_answer_to_prepare() -> None:
    """A state that cannot be copied is the answer to prepare."""
    bench = Bench(Operator("M", function=Sum(), key=("n",)))
    bench.worker.instances[0].state.put(1, threading.Lock())
    bench.prepare("M", "u1", Update(Sum()))
    (prepared,) = bench.answers(Prepared)
    assert prepared.error.startswith("the state of M cannot be copied for a trial: TypeError")


def test_a_rehearsal_runs_on_the_recent_tuple_and_its_real_types() -> None:
    """A rehearsal runs on the recent tuple and its real types."""
    bench = Bench(Operator("M", function=version(1)))
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1], type=pa.int16()), DUE: [1]})
    bench.arrive(0, Data(batch, size=1))
    bench.run()
    bench.prepare("M", "u1", Update(lambda row: row | {"v": "text"}))
    assert bench.answers(Rehearsed)[0].writes == {"M": {"n": "int16", "v": "string"}}


def test_nothing_is_taken_while_a_channel_waits_for_credit() -> None:
    """Nothing is taken while a channel waits for credit."""
    tight = Bench(Operator("M", function=version(1)))
    out = tight.worker.wiring.edges[0].channels[0]
    tight.worker.outbox._channels[out].window = 1
    for _ in range(3):
        tight.arrive(0, data(1))
        tight.run()
    assert tight.sent == [1]
    assert not tight.worker.wants_input
    tight.worker.handle(Granted(out, next(one.frame.size for one in tight.said if isinstance(one, SendFrame))))
    tight.run()
    assert tight.sent == [1, 1]


def test_while_attention_is_raised_no_tuple_is_taken() -> None:
    """While interrupt is raised no tuple is taken."""
    bench = Bench(Operator("M", function=version(1)))
    bench.arrive(0, data(1))
    bench.worker.interrupt.set()
    assert bench.worker.run()
    assert bench.worker.instances[0].processed == 0
    bench.worker.interrupt.clear()
    bench.run()
    assert bench.sent == [1]


def test_a_sink_writes_closes_at_commits_and_reports_latency() -> None:
    """A sink writes closes at commits and reports latency."""
    bench = Bench(Operator("M", kind=Kind.SINK))
    bench.arrive(0, data(1, 2))
    bench.run()
    assert [row["n"] for row in bench.port.rows] == [1, 2]
    bench.direct("M", Fcm(Marker(1, frozenset("M"), Commit(1))))
    assert bench.answers(Done) == [Done(1, WorkerId("M", 0), files=("part-1",))]
    bench.worker.handle(WorkerTick())
    (report,) = bench.answers(Report)
    assert sum(count for _, count in report.latency) == 2
    bench.arrive(0, End())
    bench.arrive(1, End())
    bench.run()
    assert bench.answers(Ended) == [Ended(WorkerId("M", 0), ("part-2",), begun={0: 2})]


def test_a_source_asks_its_reader_and_takes_no_credit_from_it() -> None:
    """A source asks its reader and takes no credit from it."""
    bench = Bench(Operator("M", kind=Kind.SOURCE))
    assert bench.incoming == ()
    assert bench.worker.wants_input
    bench.arrive(0, data(1))
    assert not bench.worker.wants_input
    bench.run()
    assert not [one for one in bench.said if isinstance(one, Grant)]
    for control in (SetRate(5.0), Drain()):
        bench.direct("M", control)
        assert ToReader(control) in bench.take()


def test_a_report_tells_what_waits_what_is_read_and_what_is_written() -> None:
    """A report tells what waits what is read and what is written."""
    bench = Bench(Operator("M", function=lambda row: {"x": row["n"]}))
    bench.arrive(0, data(1, 2))
    bench.run()
    bench.arrive(0, data(3, size=50))
    bench.worker.handle(WorkerTick())
    (report,) = bench.answers(Report)
    assert (report.processed, report.queued, report.queued_tuples) == (2, 50, 1)
    assert (report.reads, report.writes) == (("n",), {"x": "int64"})


def test_messages_for_others_are_errors() -> None:
    """Messages for others are errors."""
    bench = Bench(Operator("M", function=version(1)))
    with pytest.raises(ProtocolError, match=r"a message for Q\[0\] came to worker M\[0\]"):
        bench.direct("Q", Cancel(1))
    with pytest.raises(ProtocolError, match="not one of this worker's channels"):
        bench.worker.handle(Arrived(ChannelId(WorkerId("Q", 0), WorkerId("M", 0)), End()))


def test_a_columns_type_outlives_nulls_and_a_switch() -> None:
    """Whole numbers and nulls take the type that a column had; a sink sees no change of type without need."""
    bench = Bench(Operator("M", function=lambda row: row | {"x": 0.5}))
    bench.arrive(0, data(1))
    bench.run()
    bench.prepare("M", "u1", Update(lambda row: row | {"x": None}))
    bench.direct("M", Fcm(change(1, "M")))
    bench.arrive(0, data(2))
    bench.run()
    kinds = [str(one.frame.batch.schema.field("x").type) for one in bench.said if isinstance(one, SendFrame)]
    assert kinds == ["double", "double"]


@pytest.mark.parametrize("behind", ["a tuple", "nothing"])
def test_markers_need_no_turn_of_their_own(behind: str) -> None:
    """With forty senders forty of them come at once."""
    bench = Bench(Operator("M", function=version(1)))
    bench.arrive(0, checkpoint(1))
    bench.arrive(1, checkpoint(1))
    if behind == "a tuple":
        bench.arrive(1, data(1))
    assert not bench.worker.run()
    assert [done.marker for done in bench.answers(Done)] == [1]
    assert bench.worker.instances[0].processed == (behind == "a tuple")


def test_an_interrupt_at_a_marker_comes_before_the_tuple_behind_it() -> None:
    """A control message that arrives meanwhile is processed first."""
    bench = Bench(Operator("M", function=version(1)))
    held = Marker(1, frozenset("AMZ"), Commit(1))
    for index in (0, 1):
        bench.arrive(index, held)
    bench.arrive(0, data(1))
    apply = bench.worker._apply

    def interrupting(marker: Marker, start: int) -> None:
        apply(marker, start)
        bench.worker.interrupt.set()

    bench.worker._apply = interrupting  # type: ignore[method-assign]
    assert bench.worker.run()
    assert bench.worker.instances[0].processed == 0
    bench.worker.interrupt.clear()
    assert not bench.worker.run()
    assert bench.worker.instances[0].processed == 1


def test_the_time_without_credit_is_reported_by_each_operator_of_the_chain() -> None:
    """From the moment at which more than a window waits until it is sent, divided among the reports."""
    bench = Bench(Operator("M", function=version(1)), Operator("N", function=version(2)), credit=100)
    bench.worker.turn_time = TurnTime(iter([100, 800]).__next__)
    bench.worker.turn_time.begin()
    bench.worker.turn_time.end()

    def reported(at_ns: int) -> list[tuple[str, int, int]]:
        bench.ticks = itertools.repeat(at_ns)
        bench.said.clear()
        bench.worker.handle(WorkerTick())
        return [(one.worker.operator, one.blocked_ns, one.turn_ns) for one in bench.answers(Report)]

    for at_ns in (1_000, 2_000):  # a frame that is larger than the window passes alone, the next one waits
        bench.ticks = itertools.repeat(at_ns)
        bench.arrive(0, data(*range(50)))
        bench.run()
    assert bench.worker.outbox.full
    assert reported(5_000) == [("M", 3_000, 700), ("N", 3_000, 700)]
    assert reported(9_000) == [("M", 4_000, 0), ("N", 4_000, 0)]
    [channel] = bench.worker.wiring.edges[0].channels
    bench.ticks = itertools.repeat(10_000)
    bench.worker.handle(Granted(channel, bench.worker.outbox.outstanding))
    bench.take()
    assert reported(20_000) == [("M", 1_000, 0), ("N", 1_000, 0)]
    assert reported(30_000) == [("M", 0, 0), ("N", 0, 0)]
