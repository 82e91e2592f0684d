"""Small batches of a keyed edge are divided among its channels late; nobody who receives them can tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pyarrow as pa
import pytest

from fries_nb.dataflow.graph import Partitioning
from fries_nb.protocol.frames import deliveries
from fries_nb.protocol.messages import ChannelId, Commit, Data, Frame, Marker, WorkerId
from fries_nb.protocol.partitioning import bins_of_values, routing_table
from fries_nb.protocol.topology import OutEdge
from fries_nb.worker.outbox import UNDIVIDED_ROWS, Outbox

NUMBERS = list(range(12))


def edge(workers: int, routed: int = 0) -> OutEdge:
    """A keyed edge to so many workers, which get rows if they are among the first ``routed``."""
    channels = tuple(ChannelId(WorkerId("A", 0), WorkerId("B", index)) for index in range(workers))
    return OutEdge("B", Partitioning.HASH, ("n",), 0, channels, routed=routed, hosts=(0,) * workers)


def outbox(*edges: OutEdge) -> Outbox:
    """Its channels have much credit."""
    made = Outbox(edges)
    for channel in (channel for one in edges for channel in one.channels):
        made.credit(channel, 1 << 20)
    return made


def batch(numbers: list[int]) -> pa.RecordBatch:
    """A batch of these."""
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, type=pa.int64())})


def frames(out: Outbox) -> dict[int, list[Frame]]:
    """What goes to each worker now, in order."""
    got: dict[int, list[Frame]] = defaultdict(list)
    for send in out.sends():
        for channel, frame in deliveries(send.channels, send.frame):
            got[channel.receiver.index].append(frame)
    return got


def rows(out: Outbox) -> dict[int, list[int]]:
    """The numbers that go to each worker now."""
    return {
        index: [n for frame in some if isinstance(frame, Data) for n in frame.batch.column("n").to_pylist()]
        for index, some in frames(out).items()
    }


def owned(workers: int, numbers: list[int]) -> dict[int, list[int]]:
    """The numbers of each of so many workers."""
    found: dict[int, list[int]] = defaultdict(list)
    for number, owner in zip(
        numbers, routing_table(workers)[bins_of_values([pa.array(numbers)])].tolist(), strict=True
    ):
        found[owner].append(number)
    return found


def precede_the_marker() -> None:
    """What was added before it."""
    out = outbox(edge(3))
    out.add(0, batch(NUMBERS))
    marker = Marker(1, frozenset("AB"), Commit(1))
    out.mark(marker)
    got = frames(out)
    assert all(isinstance(some[0], Data) and some[1:] == [marker] for some in got.values())
    assert len(got) == 3


def keep_their_version() -> None:
    """That of the time at which they were added."""
    out = outbox(edge(3))
    for version in (1, 2):
        out.turn_to(version)
        out.add(0, batch(NUMBERS))
    out.flush()
    for some in frames(out).values():
        assert [frame.version for frame in some if isinstance(frame, Data)] == [1, 2]


def keep_their_owner() -> None:
    """The worker to which their key belonged when they were added; it has the state."""
    out = outbox(edge(3, routed=2))
    out.add(0, batch(NUMBERS))
    out.rewire([edge(3)])
    out.flush()
    assert rows(out) == owned(2, NUMBERS)
    out.add(0, batch(NUMBERS))
    out.flush()
    assert rows(out) == owned(3, NUMBERS)


def are_not_measured_from_later_on() -> None:
    """A buffer whose measuring begins has no rows of before; those added then count from the moment they were."""
    out, now = outbox(edge(3)), [0]
    out.add(0, batch(NUMBERS))
    out.observe({"B"}, lambda: now[0], 0)
    out.add(0, batch(NUMBERS))
    now[0] = 7_000_000
    out.flush()
    assert {(found.buffer_ms, found.rows) for found in out.measured()} == {
        (7.0, len(some)) for some in owned(3, NUMBERS).values()
    }


LAWS = [precede_the_marker, keep_their_version, keep_their_owner, are_not_measured_from_later_on]


@pytest.mark.parametrize("law", LAWS)
def test_rows_that_are_divided_late(law: Callable[[], None]) -> None:
    """As if they had been divided when they were added."""
    law()


@pytest.mark.parametrize("law", LAWS)
def test_an_outbox_that_divides_only_when_it_flushes_breaks_each(
    law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each law needs its own call."""
    divide, flush = Outbox._divide_all, Outbox.flush

    def flushing(out: Outbox) -> int:
        divide(out, out._edges)
        return flush(out)

    monkeypatch.setattr(Outbox, "_divide_all", lambda out, edges: None)
    monkeypatch.setattr(Outbox, "flush", flushing)
    with pytest.raises((AssertionError, IndexError, KeyError)):
        law()


def test_many_rows_are_divided_at_once() -> None:
    """They cost by the row, and would otherwise be copied once more."""
    out = outbox(edge(3))
    out.add(0, batch(list(range(3 * UNDIVIDED_ROWS - 1))))
    assert sum(channel.rows for channel in out._channels.values()) == 0
    assert out.buffered
    out.add(0, batch([0]))
    assert sum(channel.rows for channel in out._channels.values()) == 3 * UNDIVIDED_ROWS


def test_rows_of_another_schema_are_divided_apart() -> None:
    """A frame has one schema, and each schema its key."""
    out = outbox(edge(3))
    out.add(0, batch(NUMBERS))
    other = pa.RecordBatch.from_pydict({"m": [1.0] * 12, "n": pa.array(NUMBERS, type=pa.int32())})
    out.add(0, other)
    out.flush()
    got = frames(out)
    assert {index: [f.batch.num_columns for f in some if isinstance(f, Data)] for index, some in got.items()} == {
        0: [1, 2],
        1: [1, 2],
        2: [1, 2],
    }
