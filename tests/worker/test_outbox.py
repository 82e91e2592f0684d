"""The outbox: order in each channel, markers behind their own tuples and before nobody else's, credit conserved."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.dataflow.graph import Partitioning
from fries_nb.errors import DeclarationError, ProtocolError
from fries_nb.protocol.frames import deliveries
from fries_nb.protocol.messages import ChannelId, Commit, Data, End, Marker, WorkerId
from fries_nb.protocol.partitioning import bins_of_values, routing_table
from fries_nb.protocol.topology import OutEdge
from fries_nb.worker.outbox import FLUSH_ROWS, Outbox, SendFrame

ME = WorkerId("A", 0)


def channels(to: str, count: int) -> tuple[ChannelId, ...]:
    """The channels to the workers of an operator."""
    return tuple(ChannelId(ME, WorkerId(to, index)) for index in range(count))


def edge(
    to: str,
    partitioning: Partitioning,
    count: int,
    key: tuple[str, ...] = (),
    branch: int = 0,
    hosts: tuple[int, ...] = (),
) -> OutEdge:
    """An out-edge of the operator under test."""
    return OutEdge(to, partitioning, key, branch, channels(to, count), hosts=hosts)


def batch(*numbers: int) -> pa.RecordBatch:
    """A batch of these columns."""
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, type=pa.int64())})


def received(sends: list[SendFrame]) -> dict[ChannelId, list[Any]]:
    """What each channel got, in order."""
    got: dict[ChannelId, list[Any]] = defaultdict(list)
    for send in sends:
        for channel, frame in deliveries(send.channels, send.frame):
            got[channel] += frame.batch.column("n").to_pylist() if isinstance(frame, Data) else [frame]
    return got


PARTITIONINGS = st.sampled_from([Partitioning.HASH, Partitioning.BROADCAST])
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["flush", "mark", "credit"]), st.integers(0, 2)),
    ),
    max_size=40,
)


HOSTS = st.sampled_from([(), (0, 0, 0), (0, 1, 0), (0, 1, 2)])


@given(PARTITIONINGS, ACTIONS, st.integers(1, 60), HOSTS)
def test_under_any_actions_order_markers_and_credit_are_right(
    how: Partitioning, actions: list, window: int, hosts: tuple[int, ...]
) -> None:
    """Whether frames travel alone or in bundles."""
    outbox = Outbox([edge("B", how, 3, ("n",), hosts=hosts)])
    names = channels("B", 3)
    table = routing_table(3)
    due: dict[ChannelId, list[Any]] = {name: [] for name in names}
    owed: dict[ChannelId, list[int]] = {name: [] for name in names}
    got: dict[ChannelId, list[Any]] = {name: [] for name in names}
    number = 0

    def carry_out() -> None:
        for send in outbox.sends():
            for channel, frame in deliveries(send.channels, send.frame):
                got[channel] += received([SendFrame((channel,), frame)])[channel]
                if isinstance(frame, Data):
                    under_way = sum(owed[channel])
                    assert not under_way or under_way + frame.size <= window
                    owed[channel].append(frame.size)

    for name in names:
        outbox.credit(name, window)
    for action, argument in actions:
        if action == "add":
            numbers = list(range(number, number + argument))
            number += argument
            outbox.add(0, batch(*numbers))
            bins = bins_of_values([pa.array(numbers)])
            for position, n in enumerate(numbers):
                targets = [0, 1, 2] if how is Partitioning.BROADCAST else [int(table[bins[position]])]
                for target in targets:
                    due[names[target]].append(n)
        elif action == "flush":
            outbox.flush()
        elif action == "mark":
            marker = Marker(number, frozenset("AB"), Commit(number))
            outbox.mark(marker)
            for name in names:
                due[name].append(marker)
        elif owed[names[argument]]:
            outbox.credit(names[argument], owed[names[argument]].pop(0))
        carry_out()
        for name in names:
            assert got[name] == due[name][: len(got[name])]
            assert bool(got[name] == due[name]) or outbox.blocked or outbox.buffered
    outbox.end()
    while any(owed.values()) or outbox.blocked:
        carry_out()
        for name in names:
            while owed[name]:
                outbox.credit(name, owed[name].pop(0))
    carry_out()
    assert got == {name: [*due[name], End()] for name in names}


def is_marker(one: Any) -> bool:
    """Whether it is a marker, not a row's number."""
    return isinstance(one, Marker)


@given(ACTIONS, st.integers(1, 60), HOSTS)
def test_round_robin_sends_each_row_once_and_before_the_markers_behind_it(
    actions: list, window: int, hosts: tuple[int, ...]
) -> None:
    """Whichever receivers wait for credit, and are passed over, nothing is lost, repeated or out of order."""
    outbox = Outbox([edge("B", Partitioning.REBALANCE, 3, hosts=hosts)])
    names = channels("B", 3)
    got: dict[ChannelId, list[Any]] = {name: [] for name in names}
    owed: dict[ChannelId, list[int]] = {name: [] for name in names}
    added: list[Any] = []

    def carry_out() -> None:
        for send in outbox.sends():
            for channel, frame in deliveries(send.channels, send.frame):
                got[channel] += received([SendFrame((channel,), frame)])[channel]
                if isinstance(frame, Data):
                    owed[channel].append(frame.size)

    for name in names:
        outbox.credit(name, window)
    for action, argument in actions:
        if action == "add" and not outbox.full:
            start = sum(isinstance(one, int) for one in added)
            added += range(start, start + argument)
            outbox.add(0, batch(*range(start, start + argument)))
        elif action == "flush":
            outbox.flush()
        elif action == "mark":
            added.append(Marker(len(added), frozenset("AB"), Commit(1)))
            outbox.mark(added[-1])
        elif action == "credit" and owed[names[argument]]:
            outbox.credit(names[argument], owed[names[argument]].pop(0))
        carry_out()
    outbox.end()
    while any(owed.values()) or outbox.blocked:
        carry_out()
        for name in names:
            while owed[name]:
                outbox.credit(name, owed[name].pop(0))
    carry_out()
    rank = {repr(one): place for place, one in enumerate(added)}
    for name in names:
        places = [rank[repr(one)] for one in got[name][:-1]]
        assert places == sorted(places)
        assert list(filter(is_marker, got[name])) == list(filter(is_marker, added))
    rows = sorted(one for name in names for one in got[name] if isinstance(one, int))
    assert rows == [one for one in added if isinstance(one, int)]


@pytest.mark.parametrize(("how", "least"), [(Partitioning.REBALANCE, 1_300), (Partitioning.HASH, 800)])
def test_with_one_slow_receiver_of_two_the_other_goes_on(how: Partitioning, least: int) -> None:
    """The slow one keeps a window of data waiting; all that is for the other leaves meanwhile."""
    outbox = Outbox([edge("B", how, 2, ("n",))])
    slow, quick = channels("B", 2)
    outbox.credit(slow, 10_000)
    outbox.credit(quick, 10_000)
    rows: dict[ChannelId, int] = {slow: 0, quick: 0}
    for number in range(100):
        assert not outbox.full
        outbox.add(0, batch(*range(20 * number, 20 * number + 20)))
        outbox.flush()
        for send in outbox.sends():
            assert isinstance(send.frame, Data)
            rows[send.channels[0]] += send.frame.batch.num_rows
            if send.channels == (quick,):
                outbox.credit(quick, send.frame.size)
    assert rows[slow] <= 10_000 // 8 + 20
    assert rows[quick] >= least


def test_what_waits_for_a_slow_receiver_is_bounded() -> None:
    """More than a window of it fills the channel, and a keyed edge with it: a next tuple may be for this receiver."""
    outbox = Outbox([edge("B", Partitioning.HASH, 2, ("n",))])
    slow, quick = channels("B", 2)
    outbox.credit(slow, 500)
    outbox.credit(quick, 1 << 20)
    waiting = 0
    while not outbox.full:
        outbox.add(0, batch(*range(10)))
        outbox.flush()
        outbox.sends()
        waiting += 1
        assert waiting < 100
    assert outbox._channels[slow].waiting <= 500 + 80
    outbox.credit(slow, outbox._channels[slow].outstanding)
    assert outbox.sends()
    assert not outbox.full


def test_a_receiver_is_not_passed_over_for_a_frame_that_has_credit() -> None:
    """A buffer that is framed because it is long waits for no credit, so its receiver keeps its turn."""
    outbox = Outbox([edge("B", Partitioning.REBALANCE, 2)])
    first, second = channels("B", 2)
    outbox.credit(first, 1 << 20)
    outbox.credit(second, 1 << 20)
    outbox.add(0, batch(*range(2 * FLUSH_ROWS - 1)))  # one row more for the first, whose buffer is framed
    outbox.add(0, batch(1, 2))
    outbox.flush()
    rows = received(outbox.sends())
    assert [len(rows[first]), len(rows[second])] == [FLUSH_ROWS + 1, FLUSH_ROWS]


def test_an_edge_in_turn_is_full_when_all_its_receivers_are() -> None:
    """A receiver that has given no credit takes nothing; the first free one is next."""
    outbox = Outbox([edge("B", Partitioning.REBALANCE, 3)])
    first, second, third = channels("B", 3)
    outbox.credit(second, 1 << 20)
    outbox.credit(third, 1 << 20)
    outbox.add(0, batch(0, 1, 2))
    outbox.flush()
    assert received(outbox.sends()) == {second: [1], third: [2]}
    outbox.add(0, batch(3, 4, 5))
    outbox.flush()
    assert received(outbox.sends()) == {second: [3, 5], third: [4]}
    assert not outbox.full
    outbox.credit(first, 1 << 20)
    assert received(outbox.sends()) == {first: [0]}
    alone = Outbox([edge("B", Partitioning.REBALANCE, 2)])
    alone.add(0, batch(1, 2))
    alone.flush()
    assert alone.full


def test_a_blocked_channel_does_not_block_its_neighbour() -> None:
    """A blocked channel does not block its neighbour."""
    outbox = Outbox([edge("B", Partitioning.BROADCAST, 2)])
    blocked, free = channels("B", 2)
    outbox.credit(free, 1000)
    outbox.add(0, batch(1, 2))
    marker = Marker(1, frozenset("AB"), Commit(1))
    outbox.mark(marker)
    assert received(outbox.sends()) == {free: [1, 2, marker]}
    outbox.credit(blocked, 1)
    assert received(outbox.sends()) == {blocked: [1, 2, marker]}


def test_markers_and_ends_need_no_credit() -> None:
    """Markers and ends need no credit."""
    outbox = Outbox([edge("B", Partitioning.BROADCAST, 2)])
    marker = Marker(1, frozenset("AB"), Commit(1))
    outbox.mark(marker)
    outbox.end()
    assert outbox.sends() == [SendFrame(channels("B", 2), marker), SendFrame(channels("B", 2), End())]
    assert not outbox.blocked


def test_a_frame_larger_than_its_window_passes_alone_on_an_empty_channel() -> None:
    """A frame larger than its window passes alone on an empty channel."""
    outbox = Outbox([edge("B", Partitioning.FORWARD, 1)])
    (name,) = channels("B", 1)
    outbox.credit(name, 10)
    outbox.add(0, batch(*range(100)))
    outbox.flush()
    outbox.add(0, batch(7))
    outbox.flush()
    (large,) = outbox.sends()
    assert large.frame.size > 10
    assert outbox.blocked
    outbox.credit(name, large.frame.size)
    assert received(outbox.sends()) == {name: [7]}


def test_a_marker_goes_only_into_the_edges_of_its_scope() -> None:
    """A marker goes only into the edges of its scope."""
    outbox = Outbox([edge("B", Partitioning.FORWARD, 1), edge("C", Partitioning.FORWARD, 1)])
    outbox.mark(Marker(1, frozenset("AC"), Commit(1)))
    assert [send.channels for send in outbox.sends()] == [channels("C", 1)]


def test_a_branch_goes_to_its_own_edge_and_one_without_an_edge_to_nobody() -> None:
    """A branch goes to its own edge and one without an edge to nobody."""
    edges = [edge("B", Partitioning.FORWARD, 1), edge("C", Partitioning.FORWARD, 1, branch=1)]
    outbox = Outbox(edges)
    for name in (*channels("B", 1), *channels("C", 1)):
        outbox.credit(name, 1000)
    for branch in range(3):
        outbox.add(branch, batch(branch))
    outbox.flush()
    assert received(outbox.sends()) == {channels("B", 1)[0]: [0], channels("C", 1)[0]: [1]}


def test_a_full_buffer_is_framed_and_one_of_another_schema_starts_a_frame() -> None:
    """A full buffer is framed and one of another schema starts a frame."""
    outbox = Outbox([edge("B", Partitioning.FORWARD, 1)])
    outbox.credit(channels("B", 1)[0], 1 << 30)
    outbox.add(0, batch(*range(FLUSH_ROWS)))
    assert [send.frame.batch.num_rows for send in outbox.sends()] == [FLUSH_ROWS]
    outbox.add(0, batch(1))
    outbox.add(0, batch(2))
    outbox.add(0, pa.RecordBatch.from_pydict({"n": ["text"]}))
    outbox.flush()
    assert [send.frame.batch.num_rows for send in outbox.sends()] == [2, 1]


def test_credit_that_nobody_owes_is_an_error() -> None:
    """Credit that nobody owes is an error."""
    outbox = Outbox([edge("B", Partitioning.FORWARD, 1)])
    outbox.credit(channels("B", 1)[0], 100)
    with pytest.raises(ProtocolError, match="only 0 are owed"):
        outbox.credit(channels("B", 1)[0], 1)
    with pytest.raises(ProtocolError, match="not one of this worker's channels"):
        outbox.credit(channels("Z", 1)[0], 1)


def test_rows_without_the_receivers_key_name_operator_columns_and_key() -> None:
    """Rows without the receiver's key name operator columns and key."""
    outbox = Outbox([edge("B", Partitioning.HASH, 2, ("customer",))])
    with pytest.raises(DeclarationError, match="A sends rows with columns n; B is keyed by customer") as caught:
        outbox.add(0, batch(1, 2))
    assert caught.value.operator == "A"
    with pytest.raises(DeclarationError, match="keyed by customer; did you mean 'customers'"):
        outbox.add(0, pa.RecordBatch.from_pydict({"customers": [1]}))
    with pytest.raises(DeclarationError, match="cannot be a key"):
        outbox.add(0, pa.RecordBatch.from_pydict({"customer": [[1], [2]]}))
