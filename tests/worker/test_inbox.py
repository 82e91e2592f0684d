"""The inbox: FIFO in each channel, channels in turn, and a blocked channel that nobody else notices."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.errors import ProtocolError
from fries_nb.messages import ChannelId, Data, End, WorkerId
from fries_nb.worker.inbox import Inbox

X = WorkerId("X", 0)
CHANNELS = [ChannelId(WorkerId("A", index), X) for index in range(3)]
ACTIONS = st.lists(st.tuples(st.sampled_from(["put", "put", "take", "block", "unblock"]), st.integers(0, 2)))


def data(number: int) -> Data:
    """A data frame."""
    return Data(pa.RecordBatch.from_pydict({"n": [number]}), size=10)


@given(ACTIONS)
def test_under_any_actions_order_is_kept_and_blocked_channels_keep_their_frames(actions: list) -> None:
    """Under any actions order is kept and blocked channels keep their frames."""
    inbox = Inbox(CHANNELS)
    model: dict[ChannelId, list[int]] = {channel: [] for channel in CHANNELS}
    blocked: set[ChannelId] = set()
    for number, (action, index) in enumerate(actions):
        channel = CHANNELS[index]
        if action == "put":
            inbox.put(channel, data(number))
            model[channel].append(number)
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
            if taken:
                assert taken[0] in free
                assert taken[1].batch.column("n").to_pylist() == [model[taken[0]].pop(0)]
        waiting = sum(map(len, model.values()))
        assert (inbox.tuples, inbox.bytes) == (waiting, 10 * waiting)


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
