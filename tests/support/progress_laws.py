"""The laws of progress in a seeded cluster, checked against all rows that are anywhere.

A row that its source has not read, that waits or travels in a frame, or that a worker has in hand can still arrive at
each operator below. No frontier that a host has announced may have passed it.
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx
import pyarrow as pa

from fries_nb.bundles import Bundle
from fries_nb.dataflow.hidden_columns import TIME
from fries_nb.messages import Data, WorkerId
from fries_nb.testing.cluster import Cluster
from fries_nb.testing.network import LaneKind
from fries_nb.worker.worker import Worker

Outstanding = tuple[str, int, int]
"""An operator at whose input, or below whose output, a row can arrive; its version and time."""


def times_of(batch: pa.RecordBatch) -> list[int]:
    """The rows' own times."""
    return batch.column(TIME).cast(pa.int64()).to_pylist()


def outstanding(cluster: Cluster) -> Iterator[tuple[str, bool, int, int]]:
    """Every row: the operator that it is at, whether it is in front of it, its version and its time."""
    for source in cluster.supply.sources:
        if cluster.hosts.host_of(source) in cluster.hosts.dead:
            continue
        for supplied in cluster.supply.unread(source):
            for time in times_of(supplied):
                yield source.operator, False, cluster.worker(*source).version, time
    for (kind, place), _ in cluster.network.waiting():
        if kind is LaneKind.FRAMES:
            for frame in cluster.network.queued((kind, place)):
                yield from _in_front_of(place.receiver, frame)
    for worker in cluster.workers.values():
        yield from _at(worker)


def _in_front_of(receiver: WorkerId, frame: object) -> Iterator[tuple[str, bool, int, int]]:
    if isinstance(frame, Data):
        for time in times_of(frame.batch):
            yield receiver.operator, True, frame.version, time


def _at(worker: Worker) -> Iterator[tuple[str, bool, int, int]]:
    first, last = worker.instances[0].worker, worker.instances[-1].worker
    for queue in worker._inbox._queues.values():
        for frame in queue:
            yield from _in_front_of(first, frame)
    for supplied in worker._inbox._supplied:
        if supplied.batch is not None:
            for time in times_of(supplied.batch):
                yield first.operator, False, worker.version, time
    if worker._in_hand and (unread := worker._running.unread) is not None:
        for time in times_of(unread):
            yield first.operator, True, worker.outbox.version, time
    for out in worker.outbox._channels.values():
        for batch in out.buffer:
            for time in times_of(batch):
                yield last.operator, False, out.version, time
        for frame in out.queue:
            assert not isinstance(frame, Bundle)
            yield from _in_front_of(out.channel.receiver, frame)
    for name, waiting in worker.outbox._undivided.items():
        for batch in waiting._batches:
            for time in times_of(batch):
                yield name, True, worker.outbox.version, time


class FrontierLaw:
    """Checks a cluster after each step."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.checked = 0
        self._below = {name: {name} | nx.descendants(cluster.graph.digraph, name) for name in cluster.graph}

    def check(self) -> None:
        """No announced frontier has passed a row, and none went back."""
        announced = self.cluster.hosts.progress.announced
        rows = set(outstanding(self.cluster))
        for (host, listener), frontiers in announced.items():
            self.checked += 1
            for before, after in zip(frontiers, frontiers[1:], strict=False):
                assert before.leads_to(after), f"{listener}'s frontier at host {host} went from {before} to {after}"
            for operator, in_front, version, time in rows:
                can_reach = listener in self._below[operator] and (in_front or listener != operator)
                if can_reach and not frontiers[-1].less_equal((version, time)):
                    where = f"{'in front of' if in_front else 'behind'} {operator}"
                    raise AssertionError(
                        f"host {host} announced {frontiers[-1].elements} for {listener}; {(version, time)} is {where}"
                    )

    def run(self, every: int = 3, steps: int = 10**6) -> None:
        """Run to the end, checking after every so many steps; at the end nothing is outstanding."""
        cluster = self.cluster
        for step in range(steps):
            if cluster.state != "running":
                break
            assert cluster.step(), f"the run is stuck: {cluster.describe()}"
            if step % every == 0:
                self.check()
        cluster.settle()
        for host, progress in cluster.hosts.progress.hosts.items():
            left = [change for change in progress.state().counts if host not in cluster.hosts.dead]
            assert not left, f"host {host} ended with {left}"
