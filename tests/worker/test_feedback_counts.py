"""What the inbox of a loop's head counts for people: rounds, rows back, rows that wait, bytes on disk."""

from __future__ import annotations

import pyarrow as pa

from fries_nb.protocol.messages import ChannelId, Data, FeedbackCounts, WorkerId
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.loop_head import FeedbackInbox

FORWARD, BACK = (ChannelId(WorkerId(name, 0), WorkerId("L", 0)) for name in "AB")


def frame(rows: int, round: int, size: int = 10) -> Data:
    """So many rows of a round."""
    return Data(pa.RecordBatch.from_pydict({"x": list(range(rows))}), (7, round), size)


def test_only_feedback_is_counted() -> None:
    """Rows that enter are not; any other inbox counts nothing."""
    inbox = FeedbackInbox([FORWARD, BACK], frozenset("B"), budget=100, spill=list)
    inbox.put(FORWARD, frame(5, 0))
    assert inbox.feedback == FeedbackCounts()
    inbox.put(BACK, frame(2, 3))
    inbox.put(BACK, frame(4, 1))
    assert inbox.feedback == FeedbackCounts(round=3, frames=2, rows=6, waiting=6)
    assert Inbox([FORWARD]).feedback is None


def test_rows_wait_until_they_are_taken_alone_or_merged() -> None:
    """The others stay counted."""
    inbox = FeedbackInbox([BACK], frozenset("B"), budget=1_000, spill=list)
    for _ in range(3):
        inbox.put(BACK, frame(2, 1))
    taken = inbox.take()
    assert taken is not None
    assert inbox.feedback.waiting == 4
    assert isinstance(taken[1], Data)
    _, frames = inbox.merged(*taken, 100)
    inbox.put(BACK, frame(1, 2))
    assert len(frames) == 3
    assert inbox.feedback == FeedbackCounts(round=2, frames=4, rows=7, waiting=1)


def test_what_is_moved_to_disk_is_counted_once() -> None:
    """Each byte when it is spilled, and not again when more is."""
    inbox = FeedbackInbox([BACK], frozenset("B"), budget=25, spill=list)
    for _ in range(3):
        inbox.put(BACK, frame(1, 1))
    assert inbox.feedback.spilled == 30
    for _ in range(3):
        inbox.put(BACK, frame(1, 1))
    assert inbox.feedback.spilled == 60
    while inbox.take() is not None:
        pass
    assert inbox.feedback == FeedbackCounts(round=1, frames=6, rows=6, waiting=0, spilled=60)
