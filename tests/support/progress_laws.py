"""The laws of progress in a seeded cluster, checked against all rows that are anywhere.

A row that its source has not read, that waits or travels in a frame, or that a worker has in hand can still arrive at
each operator below. No frontier that a host has announced may have passed it.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import networkx as nx
import pyarrow as pa

from fries_nb.bundles import Bundle
from fries_nb.messages import Data, MovedBins, MovedTimes, WorkerId
from fries_nb.progress.times import EARLIEST
from fries_nb.testing.cluster import Cluster
from fries_nb.testing.network import LaneKind
from fries_nb.worker.watermarks import frontier_at
from fries_nb.worker.worker import Worker


def times_of(batch: pa.RecordBatch) -> list[int]:
    """The rows' own times, in the column of the user."""
    return batch.column("at").to_pylist()


Where = Iterator[tuple[WorkerId, bool, int, int]]
"""For each row a worker, whether the row is in front of it (otherwise behind), its version and its time."""


def outstanding(cluster: Cluster) -> Where:
    """Every row: the worker that it is at, whether it is in front of it, its version and its time."""
    for source in cluster.supply.sources:
        if cluster.hosts.host_of(source) in cluster.hosts.dead:
            continue
        for supplied in cluster.supply.unread(source):
            for time in times_of(supplied):
                yield source, False, cluster.worker(*source).version, time
    for (kind, place), _ in cluster.network.waiting():
        if kind is LaneKind.FRAMES:
            for frame in cluster.network.queued((kind, place)):
                yield from _in_front_of(place.receiver, frame)
        elif kind is LaneKind.STATE:
            for moved in cluster.network.queued((kind, place)):
                yield from _moving(moved)
    for worker in cluster.workers.values():
        yield from _at(worker)
        if worker._transfer is not None:
            for moved in worker._transfer._early:
                yield from _moving(moved)
            for moved in worker._transfer._times._waiting:
                for time in entries_of(moved):
                    yield worker.instances[0].worker, False, time[0], time[1]
            for frames in worker._transfer._held.values():
                for frame in frames:
                    yield from _in_front_of(worker.instances[0].worker, frame)


def entries_of(times: MovedTimes) -> list[tuple[int, ...]]:
    """The times of the entries of bins that move."""
    return [time for both in times.agenda.values() for time, _ in pickle.loads(both)[0]]


def _moving(moved: MovedBins) -> Where:
    if moved.times is not None:
        held = (tuple(time) for saved in moved.times.tokens.values() for time in saved.times.values())
        for time in (*entries_of(moved.times), *held):
            yield moved.to, False, time[0], time[1]


def _in_front_of(receiver: WorkerId, frame: object) -> Where:
    if isinstance(frame, Data):
        for time in times_of(frame.batch):
            yield receiver, True, frame.version, time


def _at(worker: Worker) -> Where:
    first = worker.instances[0].worker
    for queue in worker._inbox._queues.values():
        for frame in queue:
            yield from _in_front_of(first, frame)
    for aside in worker._versions._aside.values():
        for frame in aside:
            yield from _in_front_of(first, frame)
    for supplied in worker._inbox._supplied:
        if supplied.batch is not None:
            for time in times_of(supplied.batch):
                yield first, False, worker.version, time
    if worker._in_hand and (unread := worker._running.unread) is not None:
        for time in times_of(unread):
            yield first, True, worker.outbox.version, time
    agenda = worker.instances[0].agenda
    tokens = worker.instances[0].tokens
    for time in () if agenda is None or tokens is None else (*agenda.held, *tokens.times.values()):
        yield first, False, time[0], time[1]
    for out in worker.outbox._channels.values():
        for batch in out.buffer:
            for time in times_of(batch):
                yield out.channel.receiver, True, out.version, time
        for frame in out.queue:
            assert not isinstance(frame, Bundle)
            yield from _in_front_of(out.channel.receiver, frame)
    for edge, channels in worker.outbox._ways:
        for batch in worker.outbox._undivided[edge.to]._batches:
            for time in times_of(batch):
                for channel in channels:
                    yield channel.channel.receiver, True, worker.outbox.version, time


def _earliest(rows: Iterable[tuple[Hashable, bool, int, int]]) -> list[tuple[Any, bool, int, int]]:
    """Of the rows at one place and of one version the earliest: a frontier that it can pass, all of them can."""
    earliest: dict[tuple[Hashable, bool, int], int] = {}
    for at, in_front, version, time in rows:
        place = at, in_front, version
        if time < earliest.get(place, time + 1):
            earliest[place] = time
    return [(*place, time) for place, time in earliest.items()]


class FrontierLaw:
    """Checks a cluster after each step."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.checked = 0
        self._compared = Counter[tuple[int, int, str]]()
        self._below = {name: {name} | nx.descendants(cluster.graph.digraph, name) for name in cluster.graph}

    def check(self) -> None:
        """No announced frontier has passed a row, and none went back."""
        announced = self.cluster.hosts.progress.announced
        rows = _earliest((at.operator, *row) for at, *row in outstanding(self.cluster))
        for (host, listener), frontiers in announced.items():
            self.checked += 1
            place = self.cluster.hosts.incarnation, host, listener
            for before, after in itertools.pairwise(frontiers[max(0, self._compared[place] - 1) :]):
                assert before.leads_to(after), f"{listener}'s frontier at host {host} went from {before} to {after}"
            self._compared[place] = len(frontiers)
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


class WatermarkLaw(FrontierLaw):
    """The same for the watermark of each worker, which bounds the rows that can reach this one of the operator's."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._begin()

    def _begin(self) -> None:
        """Begin with the hosts of an incarnation."""
        self._hosts = self.cluster.hosts
        self._before: dict[WorkerId, int] = {}
        self._below_each = self._reachable()

    def check(self) -> None:
        """No watermark has passed a row, and none went back."""
        hosts = self.cluster.hosts
        if hosts is not self._hosts:
            self._begin()
        rows, below = _earliest(outstanding(self.cluster)), self._below_each
        for id_, worker in self.cluster.workers.items():
            reached = getattr(worker._times, "reached", EARLIEST)
            assert reached >= self._before.get(id_, EARLIEST), f"the watermark of {id_} went back to {reached}"
            self._before[id_] = reached
            if reached == EARLIEST or hosts.host_of(id_) in hosts.dead:
                continue
            self.checked += 1
            for place, in_front, version, time in rows:
                if frontier_at(reached).less_equal((version, time)):
                    continue
                at = hosts.worker_of(place).wiring.id
                can_reach = id_ in below[at] and (in_front or id_ != at)
                if can_reach:
                    where = f"{'in front of' if in_front else 'behind'} {at}"
                    raise AssertionError(f"the watermark of {id_} is {reached}; {(version, time)} is {where}")

    def _reachable(self) -> dict[WorkerId, set[WorkerId]]:
        graph = nx.DiGraph()
        for id_, worker in self.cluster.workers.items():
            graph.add_node(id_)
            graph.add_edges_from(
                (self.cluster.hosts.worker_of(channel.sender).wiring.id, id_) for channel in worker.wiring.incoming
            )
        return {id_: {id_} | nx.descendants(graph, id_) for id_ in graph}

    def check_end(self) -> None:
        """After the end all watermarks have passed everything, since all channels have ended."""
        self.cluster.settle()
        self.check()
        assert not set(outstanding(self.cluster))
