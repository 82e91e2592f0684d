"""Changes by versions: old and new configuration side by side at one worker, no channel blocked."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from worker_bench import Bench, Sum, change, checkpoint, data, operations, version

from fries_nb.dataflow.graph import Kind, Operator, Partitioning
from fries_nb.dataflow.updates import Update
from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import (
    Abort,
    ChannelId,
    Data,
    Done,
    End,
    Ended,
    Failed,
    Fcm,
    Frame,
    Marker,
    Reconfigure,
    Report,
    WorkerId,
)
from fries_nb.protocol.topology import OutEdge
from fries_nb.protocol.trace import RanMany, Updated
from fries_nb.worker.events import Grant, Save, Traced, WorkerTick
from fries_nb.worker.outbox import Outbox, SendFrame

TAG = change(1, "M", scope="AMNZ", tagged=True)
NEW = Update(version(2))


def plain(name: str = "M") -> Operator:
    """An operator without state."""
    return Operator(name, function=version(1))


def keyed() -> Operator:
    """An operator with keyed state."""
    return Operator("M", function=Sum(), key=("n",))


def prepared(*chain: Operator, update: Update = NEW, audit: bool = False) -> Bench:
    """A bench whose operator M is ready for the tagged change u1."""
    bench = Bench(*chain, audit=audit)
    bench.prepare("M", "u1", update, tagged=True)
    return bench


def feed(bench: Bench, index: int, *frames: Frame) -> None:
    """Let these frames arrive one behind the other, and the worker do all that it can."""
    for frame in frames:
        bench.arrive(index, frame)
    bench.run()


def frames_of(bench: Bench) -> list[Any]:
    """(n, v, version) of each row that went to Z, and the other frames."""
    bench.take()
    out: list[Any] = []
    for send in (one for one in bench.said if isinstance(one, SendFrame)):
        if isinstance(send.frame, Data):
            out += [(row["n"], row.get("v"), send.frame.version) for row in send.frame.batch.to_pylist()]
        else:
            out.append(send.frame)
    return out


def said(bench: Bench) -> list[Any]:
    """All that the worker has said."""
    bench.take()
    return bench.said


def reports(bench: Bench) -> list[Report]:
    """All its reports, a new one included."""
    bench.worker.handle(WorkerTick())
    return bench.answers(Report)


def test_a_source_tags_what_it_takes_behind_the_marker() -> None:
    """Tuples in front of the marker, buffered ones too, have the old version."""
    bench = Bench(Operator("M", kind=Kind.SOURCE))
    tag = Marker(1, frozenset("MZ"), Reconfigure("u1", frozenset("Z"), tagged=True))
    bench.arrive(0, data(1))
    bench.worker.run()
    bench.direct("M", Fcm(tag))
    feed(bench, 0, data(2))
    bench.direct("M", Fcm(Marker(2, frozenset("MZ"), Reconfigure("u2", frozenset("Z"), tagged=True))))
    feed(bench, 0, data(3))
    assert [frame for frame in frames_of(bench) if isinstance(frame, tuple)] == [
        (1, None, 0),
        (2, None, 1),
        (3, None, 2),
    ]
    assert frames_of(bench)[1] == tag


def test_frames_of_both_versions_are_processed_as_they_come_each_by_its_own_function() -> None:
    """New ones come in front of the marker, old ones behind it on another channel; none waits."""
    bench = prepared(plain())
    feed(bench, 0, data(1), data(2, version=1), data(3), TAG, data(4, version=1))
    feed(bench, 1, data(5), data(6, version=1))
    rows = [(1, 1, 0), (2, 2, 1), (3, 1, 0), (4, 2, 1), (5, 1, 0), (6, 2, 1)]
    assert frames_of(bench) == rows
    assert bench.answers(Done) == []
    feed(bench, 1, TAG, data(7, version=1))
    assert frames_of(bench) == [*rows, TAG, (7, 2, 1)]
    assert bench.answers(Done) == [Done(1, WorkerId("M", 0), switched=True, old_tuples=3)]
    (instance,) = bench.worker.instances
    assert (instance.processed, instance.applied) == (7, ("u1",))


def test_the_next_tagged_change_begins_from_the_version_of_the_last() -> None:
    """The next tagged change begins from the version of the last."""
    bench = prepared(plain())
    for index in (0, 1):
        feed(bench, index, TAG)
    bench.prepare("M", "u2", Update(version(3)), tagged=True)
    second = change(2, "M", scope="AMZ", tagged=True)
    feed(bench, 0, data(1, version=1), data(2, version=2), second)
    feed(bench, 1, data(3, version=1), second, data(4, version=2))
    assert frames_of(bench) == [TAG, (1, 2, 1), (2, 3, 2), (3, 2, 1), second, (4, 3, 2)]


def test_an_operator_that_is_no_target_passes_both_versions_on_as_they_come() -> None:
    """Even one that is being prepared for another change, which is not by versions."""
    bench = Bench(plain())
    bench.prepare("M", "u9", NEW)
    elsewhere = change(1, "N", scope="AMNZ", tagged=True)
    feed(bench, 0, data(1), data(2, version=1), elsewhere)
    feed(bench, 1, data(3), data(4, version=1), elsewhere, data(5, version=1))
    assert frames_of(bench) == [(1, 1, 0), (2, 1, 1), (3, 1, 0), (4, 1, 1), elsewhere, (5, 1, 1)]
    assert not bench.answers(Done)[0].switched


def test_what_a_chain_shares_counts_for_both_versions() -> None:
    """A chain of a target, and of an operator with keyed state that is none: the state is one."""
    bench = prepared(plain(), Operator("N", function=Sum(), key=("n",)))
    feed(bench, 0, data(1), data(1, version=1), TAG)
    feed(bench, 1, data(1), TAG)
    assert [row["sum"] for row in bench.sent if isinstance(row, dict)] == []
    assert [instance.processed for instance in bench.worker.instances] == [3, 3]
    assert bench.worker.instances[1].state.live == {1: [1, 1, 1]}
    assert [row[1] for row in frames_of(bench) if isinstance(row, tuple)] == [1, 2, 1]


def test_the_trace_tells_what_ran_by_the_new_function_behind_the_switch() -> None:
    """The trace tells what ran by the new function behind the switch, whenever it is handed out."""
    bench = prepared(plain(), audit=True)
    feed(bench, 0, data(1, version=1), data(2))
    bench.worker.handle(WorkerTick())
    feed(bench, 0, TAG, data(3, version=1))
    feed(bench, 1, data(4), TAG, data(5, version=1))
    bench.worker.handle(WorkerTick())
    records = operations(record for one in said(bench) if isinstance(one, Traced) for record in one.records)
    assert records == [
        *(RanMany((number,), "M") for number in (2, 4)),
        Updated("u1", "M"),
        RanMany((1, 3), "M"),
        RanMany((5,), "M"),
    ]


def test_where_a_target_keeps_state_new_tuples_wait_for_the_old_ones() -> None:
    """In front of the marker credit is given back at once, since old ones follow; behind it credit waits as well."""
    bench = prepared(keyed(), update=Update(Sum(), state=lambda old: [*old, -1]))
    feed(bench, 0, data(1, size=70, version=1), data(1), TAG, data(1, size=30, version=1))
    assert [one.sizes for one in bench.said if isinstance(one, Grant)][1:] == [
        {bench.incoming[0]: 70},
        {bench.incoming[0]: 100},
    ]
    assert bench.worker.instances[0].state.live == {1: [1]}
    assert [report.held for report in reports(bench)] == [70]
    feed(bench, 1, data(1), TAG, data(1, version=1))
    sums = [row["sum"] for row in bench.sent if isinstance(row, dict)]
    assert sums == [[1], [1, 1], [1, 1, -1, 1], [1, 1, -1, 1, 1], [1, 1, -1, 1, 1, 1]]
    assert bench.sent.index(TAG) == 2
    returned = [size for one in bench.said if isinstance(one, Grant) for size in one.sizes.values()]
    assert returned[2:] == [70, 100, 100, 100, 30]
    assert [report.held for report in reports(bench)] == [70, 70]
    assert [report.held for report in reports(bench)][-1] == 0


@pytest.mark.parametrize(("old", "new"), [(Sum(), version(2)), (version(1), Sum())])
def test_one_of_the_two_functions_with_a_state_is_enough(old: Any, new: Any) -> None:
    """One of the two functions with a state is enough to wait."""
    bench = prepared(Operator("M", function=old, key=("n",)), update=Update(new))
    feed(bench, 0, data(1, version=1), TAG)
    assert frames_of(bench) == []
    feed(bench, 1, data(2), TAG)
    assert [frame[0] if isinstance(frame, tuple) else frame for frame in frames_of(bench)] == [2, TAG, 1]


def test_what_is_set_aside_keeps_the_order_of_its_channel_and_stays_in_front_of_what_comes_later() -> None:
    """What is set aside keeps the order of its channel, in front of what has arrived there meanwhile."""
    bench = prepared(keyed())
    feed(bench, 0, data(1, version=1), TAG, data(2, version=1))
    bench.arrive(0, data(3, version=1))
    bench.arrive(1, TAG)
    bench.arrive(0, data(4, version=1))
    bench.run()
    assert [frame[0] for frame in frames_of(bench) if isinstance(frame, tuple)] == [1, 2, 3, 4]
    assert bench.worker._inbox.tuples == bench.worker._inbox.bytes == 0


def test_the_end_of_a_channel_stays_behind_what_was_set_aside_on_it() -> None:
    """The worker ends when it has processed what it had set aside, and not before."""
    bench = prepared(keyed())
    feed(bench, 0, data(1, version=1), TAG, data(2, version=1), End())
    assert not bench.worker.ended
    feed(bench, 1, data(3), End())
    assert [frame[0] for frame in frames_of(bench) if isinstance(frame, tuple)] == [3, 1, 2]
    assert frames_of(bench)[-1] == End()
    assert bench.answers(Done)[0].switched
    assert [ended.worker for ended in bench.answers(Ended)] == [WorkerId("M", 0)]
    assert bench.worker.instances[0].processed == 3


def test_what_was_set_aside_does_not_come_again_with_the_next_change() -> None:
    """What was set aside does not come again with the next change."""
    bench = prepared(keyed(), update=Update(Sum()))
    feed(bench, 0, data(1, version=1), TAG)
    feed(bench, 1, TAG)
    bench.prepare("M", "u2", Update(Sum()), tagged=True)
    for index in (0, 1):
        feed(bench, index, change(2, "M", scope="AMZ", tagged=True))
    assert bench.answers(Failed) == []
    assert bench.worker.instances[0].processed == 1


def test_a_marker_behind_the_end_of_its_channel_sets_nothing_aside() -> None:
    """The end had counted as the marker; the marker that comes later is dropped."""
    bench = prepared(keyed())
    feed(bench, 1, End())
    feed(bench, 0, TAG)
    feed(bench, 1, TAG)
    feed(bench, 0, data(1, version=1), End())
    assert [frame[0] for frame in frames_of(bench) if isinstance(frame, tuple)] == [1]
    assert bench.worker.ended


def test_an_aborted_change_leaves_no_new_configuration_behind() -> None:
    """The number of an aborted change goes to the next one."""
    bench = prepared(plain())
    bench.direct("M", Abort("u1"))
    bench.prepare("M", "u2", Update(version(3)), tagged=True)
    feed(bench, 0, data(1, version=1))
    assert frames_of(bench) == [(1, 3, 1)]


def test_a_checkpoint_behind_the_marker_remembers_the_version() -> None:
    """A restored worker goes on in the version that it had."""
    bench = prepared(plain())
    for frame in (TAG, checkpoint(2)):
        for index in (0, 1):
            feed(bench, index, frame)
    (save,) = [one for one in bench.said if isinstance(one, Save)]
    assert save.snapshots[0].version == 1
    source = Bench(Operator("M", kind=Kind.SOURCE))
    source.direct("M", Fcm(change(1, "N", scope="AMNZ", tagged=True)))
    source.direct("M", Fcm(checkpoint(2)))
    source.run()
    (save,) = [one for one in said(source) if isinstance(one, Save)]
    restored = Bench(Operator("M", kind=Kind.SOURCE), snapshots=save.snapshots)
    feed(restored, 0, data(1))
    assert frames_of(restored) == [(1, None, 1)]


def test_a_version_that_cannot_be_under_way_is_an_error() -> None:
    """Two ahead, or one that is over."""
    bench = prepared(plain())
    feed(bench, 0, data(1, version=2))
    assert bench.answers(Failed)[0].error == "tuples of version 2 came to M[0], where 0 and 1 are possible"
    late = prepared(plain())
    for index in (0, 1):
        feed(late, index, TAG)
    feed(late, 0, data(1))
    assert late.answers(Failed)[0].error == "tuples of version 0 came to M[0], where 1 and 2 are possible"


def test_illegal_moves_of_a_tagged_marker_are_errors() -> None:
    """It starts at sources, and comes once on a channel."""
    bench = prepared(plain())
    with pytest.raises(ProtocolError, match=r"as its head; only a source can tag what it reads"):
        bench.direct("M", Fcm(TAG))
    feed(bench, 0, TAG, TAG)
    assert "marker 1 came twice on" in bench.answers(Failed)[0].error
    crossed = prepared(plain())
    feed(crossed, 0, TAG, change(2, scope="AMZ"))
    assert "marker 2 came behind marker 1, not yet applied," in crossed.answers(Failed)[0].error


def test_a_target_that_has_not_prepared_is_told_so() -> None:
    """A target that has not prepared is told so."""
    bench = Bench(plain())
    for index in (0, 1):
        feed(bench, index, TAG)
    assert "told to switch to change 'u1', which it has not prepared" in bench.answers(Failed)[0].error


@pytest.mark.parametrize("seed", range(20))
def test_a_frame_never_mixes_versions_and_no_tuple_is_lost(seed: int) -> None:
    """Random batches over hash, rebalanced and broadcast edges: each receiver gets each version's tuples in order."""
    chance = random.Random(seed)
    kinds = (Partitioning.HASH, Partitioning.REBALANCE, Partitioning.BROADCAST)
    edges = [
        OutEdge(to, kind, ("n",), 0, tuple(ChannelId(WorkerId("A", 0), WorkerId(to, i)) for i in range(3)))
        for to, kind in zip("XYZ", kinds, strict=True)
    ]
    outbox, sent, added = Outbox(edges), [], []
    for channel in (channel for edge in edges for channel in edge.channels):
        outbox.credit(channel, 1 << 20)
    for _ in range(30):
        tag, numbers = chance.randrange(2), [chance.randrange(100) for _ in range(chance.randint(1, 6))]
        outbox.turn_to(tag)
        outbox.add(0, pa.RecordBatch.from_pydict({"n": numbers, "tag": [tag] * len(numbers)}))
        added += [(number, tag) for number in numbers]
        if chance.random() < 0.2:
            outbox.flush()
        sent += outbox.sends()
    outbox.flush()
    sent += outbox.sends()
    got: dict[str, list[tuple[int, int]]] = {"X": [], "Y": [], "Z": []}
    for send in sent:
        assert isinstance(send.frame, Data)
        assert set(send.frame.batch.column("tag").to_pylist()) == {send.frame.version}
        for channel in send.channels:
            numbers = send.frame.batch.column("n").to_pylist()
            got[channel.receiver.operator] += [(number, send.frame.version) for number in numbers]
    assert sorted(got["X"]) == sorted(got["Y"]) == sorted(added)
    assert sorted(got["Z"]) == sorted(added * 3)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("with_state", [False, True])
def test_whatever_the_order_each_tuple_meets_its_own_version_and_old_state_comes_before_new(
    seed: int, with_state: bool
) -> None:
    """Random frames of both versions on two channels, in random order, a few tuples at a time."""
    chance = random.Random(seed)
    operator = keyed() if with_state else plain()
    bench = prepared(operator, update=Update(Sum(), state=lambda old: [*old, -1]) if with_state else NEW)
    queues: list[list[Frame]] = []
    for _ in range(2):
        front = [data(*[chance.randrange(3)] * chance.randint(1, 3), version=chance.randrange(2)) for _ in range(6)]
        behind: list[Frame] = [data(chance.randrange(3), version=1) for _ in range(chance.randrange(4))]
        queues.append([*front, TAG, *behind, End()])
    total = sum(frame.batch.num_rows for queue in queues for frame in queue if isinstance(frame, Data))
    while any(queues):
        index = chance.randrange(2)
        if queues[index]:
            bench.arrive(index, queues[index].pop(0))
        for _ in range(chance.randrange(3)):
            bench.worker.run(limit=chance.randint(1, 2))
    bench.run()
    rows = [(row, send.frame.version) for send in bench.said if isinstance(send, SendFrame)
            and isinstance(send.frame, Data) for row in send.frame.batch.to_pylist()]  # fmt: skip
    assert bench.answers(Failed) == []
    assert len(rows) == total
    assert bench.worker.ended
    assert bench.worker.instances[0].processed == total
    if not with_state:
        assert all(row["v"] == tag + 1 for row, tag in rows)
        return
    for row, tag in rows:
        seen, number = row["sum"], row["n"]
        assert seen.count(-1) == (1 if tag and -1 in seen else 0)
        assert set(seen) <= {number, -1}
    assert [tag for _, tag in rows] == sorted(tag for _, tag in rows)
