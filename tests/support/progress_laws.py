"""The laws of progress in a seeded cluster, checked against all rows that are anywhere.

A row that its source has not read, that waits or travels in a frame, or that a worker has in hand can still arrive at
each operator below. No frontier that a host has announced may have passed it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import networkx as nx
import pyarrow as pa

from fries_nb.bundles import Bundle
from fries_nb.messages import Data, WorkerId
from fries_nb.testing.cluster import Cluster
from fries_nb.testing.network import LaneKind
from fries_nb.worker.worker import Worker


def times_of(batch: pa.RecordBatch) -> list[int]:
    """The rows' own times, in the column of the user."""
    return batch.column("at").to_pylist()


Where = Iterator[tuple[str, bool, int, int]]
"""For each row an operator, whether the row is in front of it (otherwise behind), its version and its time."""


def outstanding(cluster: Cluster) -> Where:
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


def _in_front_of(receiver: WorkerId, frame: object) -> Where:
    if isinstance(frame, Data):
        for time in times_of(frame.batch):
            yield receiver.operator, True, frame.version, time


def _at(worker: Worker) -> Where:
    first = worker.instances[0].worker
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
    agenda = worker.instances[0].agenda
    for time in () if agenda is None else agenda.held:
        yield first.operator, False, time[0], time[1]
    for out in worker.outbox._channels.values():
        for batch in out.buffer:
            for time in times_of(batch):
                yield out.channel.receiver.operator, True, out.version, time
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
            for before, after in itertools.pairwise(frontiers):
                assert before.leads_to(after), f"{listener}'s frontier at host {host} went from {before} to {after}"
            for operator, in_front, version, time in rows:
                can_reach = listener in self._below[operator] and (in_front or listener != operator)
                if can_reach and not frontiers[-1].less_equal((version, time)):
                    where = f"{'in front of' if in_front else 'behind'} {operator}"
                    raise AssertionError(
                        f"host {host} announced {frontiers[-1].elements} for {listener}; {(version, time)} is {where}"
                    )

    def run_until(self, reached: Callable[[], bool], every: int = 3, steps: int = 10**6) -> None:
        """Take steps until a condition holds or the run has ended, and check after every so many."""
        cluster = self.cluster
        for step in range(steps):
            if reached() or cluster.state != "running":
                return
            assert cluster.step(), f"the run is stuck: {cluster.describe()}"
            if step % every == 0:
                self.check()

    def check_end(self) -> None:
        """After the end nothing is outstanding at any host."""
        self.cluster.settle()
        for host, progress in self.cluster.hosts.progress.hosts.items():
            left = () if host in self.cluster.hosts.dead else progress.state().counts
            assert not left, f"host {host} ended with {left}"
