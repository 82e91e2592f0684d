"""What one worker counts: the frames that it has received, those that it fills, and the tokens of its operators.

A message is counted on its edge from the moment its sender's output buffer gets the first batch of it, so before the
frame is sent, until its receiver has *used up* the frame: not when it takes it, for what is made of its rows has not
been counted then. Everything that happens in a slice is handed over at its end, whole.

>>> flow = ProgressGraph({"Src": (), "FM": (), "Out": ()}, (FlowEdge("Src", "FM"), FlowEdge("FM", "Out")))
>>> counts = WorkerCounts(flow)
>>> arrived, leaves = (edge.location for edge in flow.edges)
>>> counts.append("FM[0]->Out[0]", leaves, (0, 5))        # rows made of a frame of time 5
>>> counts.append("FM[0]->Out[0]", leaves, (0, 4))        # and of one of time 4, that lower the stamp of the buffer
>>> counts.cut("FM[0]->Out[0]")                           # which is sent
(0, 4)
>>> counts.used_up(arrived, (0, 5))
>>> [(str(change.location), change.time, change.delta) for change in counts.hand_over()]
[('FM->Out', (0, 4), 1), ('Src->FM', (0, 5), -1)]

Rows of another version or round need a frame of their own:

>>> counts.append("FM[0]->Out[0]", leaves, (0, 6))
>>> counts.fits("FM[0]->Out[0]", leaves, (1, 6))
False
"""

from __future__ import annotations

from collections.abc import Hashable

from fries_nb.errors import ProtocolError
from fries_nb.progress.change_batch import ChangeBatch, CountChanges, GraphLocation
from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
from fries_nb.progress.times import Time, earlier, share_frame

__all__ = ["FlowEdge", "WorkerCounts"]


class WorkerCounts:
    """The counts of one worker.

    Args:
        graph: the dataflow.

    Attributes:
        changes: what has changed since the last ``hand_over``; tokens and agendas of the worker's operators change it
            as well.
    """

    def __init__(self, graph: ProgressGraph) -> None:
        self.changes = ChangeBatch()
        self._graph = graph
        self._buffers: dict[Hashable, tuple[GraphLocation, Time]] = {}

    def fits(self, channel: Hashable, edge: GraphLocation, time: Time) -> bool:
        """Whether rows of this time can join the buffer of a channel; otherwise ``cut`` it first.

        Args:
            channel: the channel.
            edge: its edge.
            time: the time of the rows at the sender.
        """
        buffer = self._buffers.get(channel)
        return buffer is None or share_frame(buffer[1], self._graph.summary(edge).apply(time))

    def append(self, channel: Hashable, edge: GraphLocation, time: Time) -> None:
        """Count rows that are appended to the buffer of a channel.

        The worker must have an input frame in hand, or a token, of this time or an earlier one.

        Args:
            channel: the channel.
            edge: its edge.
            time: the time of the rows at the sender.

        Raises:
            ProtocolError: the rows need a frame of their own; see ``fits``.
        """
        arrival = self._graph.summary(edge).apply(time)
        buffer = self._buffers.get(channel)
        if buffer is None:
            self._count(channel, edge, arrival)
        elif not share_frame(buffer[1], arrival):
            raise ProtocolError(f"rows of {arrival} came into a frame of {buffer[1]}; expected the frame to be cut")
        elif (stamp := earlier(buffer[1], arrival)) != buffer[1]:
            self.changes.update(edge, buffer[1], -1)
            self._count(channel, edge, stamp)

    def _count(self, channel: Hashable, edge: GraphLocation, stamp: Time) -> None:
        self.changes.update(edge, stamp, +1)
        self._buffers[channel] = (edge, stamp)

    def cut(self, channel: Hashable, rest: bool = False) -> Time:
        """The buffer of a channel becomes a frame; returns its stamp.

        Args:
            channel: the channel.
            rest: whether rows remain in the buffer; they have the same stamp, and are counted as another message.

        Raises:
            ProtocolError: the buffer is empty.
        """
        if channel not in self._buffers:
            raise ProtocolError(f"a frame of {channel} was cut from an empty buffer")
        edge, stamp = self._buffers.pop(channel)
        if rest:
            self._count(channel, edge, stamp)
        return stamp

    def used_up(self, edge: GraphLocation, stamp: Time) -> None:
        """Count an input frame whose rows have all been processed, and whose output was appended or dropped."""
        self.changes.update(edge, stamp, -1)

    def hand_over(self) -> CountChanges:
        """The changes of the slice, whole, for ``HostProgress.record``; once a slice, in order."""
        return self.changes.take()
