"""The inbox: FIFO in each channel, channels in turn, and a blocked channel that nobody else notices."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import ChannelId, Data, End, Marker, Reconfigure, WorkerId
from fries_nb.worker.inbox import Inbox

X = WorkerId("X", 0)
CHANNELS = [ChannelId(WorkerId("A", index), X) for index in range(3)]
KINDS = ["put", "put", "mark", "take", "merge", "block", "unblock"]
ACTIONS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2)))
MARKER = Marker(1, frozenset("X"), Reconfigure("u1", frozenset("X")))


def data(number: int) -> Data:
    """A data frame."""
    return Data(pa.RecordBatch.from_pydict({"n": [number]}), size=10)


@given(ACTIONS)
def test_under_any_actions_order_is_kept_and_blocked_channels_keep_their_frames(actions: list) -> None:
    """Under any actions order is kept and blocked channels keep their frames."""
    inbox = Inbox(CHANNELS)
    model: dict[ChannelId, list[int | None]] = {channel: [] for channel in CHANNELS}
    blocked: set[ChannelId] = set()
    merged = 0
    for number, (action, index) in enumerate(actions):
        channel = CHANNELS[index]
        if action == "put":
            inbox.put(channel, data(number))
            model[channel].append(number)
        elif action == "mark":
            inbox.put(channel, MARKER)
            model[channel].append(None)
        elif action == "block":
            inbox.block(channel)
            blocked.add(channel)
        elif action == "unblock":
            inbox.unblock(channel)
            blocked.discard(channel)
        else:
            taken = inbox.take()
            free = [name for name in CHANNELS if model[name] and name not in blocked]
            assert (taken is None) == (not free)
            if taken is None:
                continue
            assert taken[0] in free
            first = model[taken[0]].pop(0)
            if first is None:
                assert taken[1] is MARKER
                continue
            assert taken[1].batch.column("n").to_pylist() == [first]
            if action == "merge":
                batch, frames = inbox.merged(*taken, rows=3)
                numbers = batch.column("n").to_pylist()
                assert numbers == [first] + [model[where].pop(0) for where, _ in frames[1:]]
                assert [frame.size for _, frame in frames] == [10] * len(numbers)
                assert all(where not in blocked for where, _ in frames[1:])
                at_hand = [name for name in free if model[name] and model[name][0] is not None and name not in blocked]
                assert len(numbers) == 3 or not at_hand
                merged += len(numbers) > 1
        waiting = sum(number is not None for numbers in model.values() for number in numbers)
        assert (inbox.tuples, inbox.bytes) == (waiting, 10 * waiting)
    event("frames were merged" if merged else "none were merged")


def test_channels_are_taken_in_turn() -> None:
    """Channels are taken in turn."""
    inbox = Inbox(CHANNELS)
    for channel in CHANNELS:
        for number in range(2):
            inbox.put(channel, data(number))
    assert [inbox.take()[0] for _ in range(6)] == CHANNELS * 2


def test_a_frame_on_a_strangers_channel_is_an_error() -> None:
    """A frame on a stranger's channel is an error."""
    with pytest.raises(ProtocolError, match="not one of this worker's channels"):
        Inbox(CHANNELS).put(ChannelId(WorkerId("Z", 0), X), End())


def test_frames_of_one_version_schema_and_sender_are_merged() -> None:
    """Others stay in front of what follows them on their channel, and so do frames that would be too many tuples."""
    other = ChannelId(WorkerId("B", 0), X)
    inbox = Inbox([*CHANNELS, other])
    inbox.put(CHANNELS[0], data(1))
    inbox.put(CHANNELS[0], Data(data(2).batch, size=10, version=1))
    inbox.put(CHANNELS[0], data(3))
    inbox.put(CHANNELS[1], data(4))
    inbox.put(CHANNELS[1], Data(pa.RecordBatch.from_pydict({"m": [5]}), size=10))
    inbox.put(CHANNELS[2], Data(pa.concat_batches([data(6).batch] * 4), size=40))
    inbox.put(other, data(7))
    batch, frames = inbox.merged(*inbox.take(), rows=5)
    assert batch.column("n").to_pylist() == [1, 4]
    assert [(on, frame.size) for on, frame in frames] == [(CHANNELS[0], 10), (CHANNELS[1], 10)]
    assert inbox.tuples == 8
    left = [inbox.take() for _ in range(5)]
    assert {str(channel): [frame.version for on, frame in left if on is channel] for channel, _ in left} == {
        "A[0]->X[0]": [1, 0], "A[1]->X[0]": [0], "A[2]->X[0]": [0], "B[0]->X[0]": [0],
    }  # fmt: skip


def test_frames_of_other_rounds_are_passed_over_and_stay_in_their_order() -> None:
    """Within a loop; never a marker, and never a frame of another version."""
    inbox = Inbox(CHANNELS)

    def round_of(number: int, version: int = 0) -> Data:
        return Data(data(number).batch, timestamp=(number % 7, number // 10), size=10, version=version)

    for number in (10, 20, 11, 30, 21, 12):
        inbox.put(CHANNELS[0], round_of(number))
    inbox.put(CHANNELS[0], MARKER)
    inbox.put(CHANNELS[0], round_of(13))
    for frame in (round_of(22), round_of(14), round_of(15, version=1), round_of(16)):
        inbox.put(CHANNELS[1], frame)
    batch, frames = inbox.merged(*inbox.take(), rows=100)
    assert sorted(batch.column("n").to_pylist()) == [10, 11, 12, 14]
    assert [on for on, _ in frames] == [CHANNELS[0]] + [CHANNELS[1]] + [CHANNELS[0]] * 2
    assert (inbox.tuples, inbox.bytes) == (7, 70)
    left: dict[ChannelId, list[int]] = {channel: [] for channel in CHANNELS}
    for channel, frame in iter(inbox.take, None):
        left[channel] += frame.batch.column("n").to_pylist() if isinstance(frame, Data) else [-1]
    assert left == {CHANNELS[0]: [20, 30, 21, -1, 13], CHANNELS[1]: [22, 15, 16], CHANNELS[2]: []}


def test_only_some_frames_are_passed_over() -> None:
    """So merging costs the same however many wait."""
    inbox = Inbox(CHANNELS)
    for round_ in (1, *[2] * (Inbox.passes + 1), 1):
        inbox.put(CHANNELS[0], Data(data(round_).batch, timestamp=(0, round_), size=10))
    batch, _ = inbox.merged(*inbox.take(), rows=100)
    assert batch.num_rows == 1
    assert [inbox.take()[1].timestamp[1] for _ in range(Inbox.passes + 2)] == [2] * (Inbox.passes + 1) + [1]
