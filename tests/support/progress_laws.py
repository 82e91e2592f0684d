"""The laws of progress in a seeded cluster, checked against all rows that are anywhere.

A row that its source has not read, that waits or travels in a frame, or that a worker has in hand can still arrive at
each operator below. No frontier that a host has announced may have passed it.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Iterable

import networkx as nx
import pyarrow as pa

from fries_nb.dataflow.columns import TIME
from fries_nb.progress.times import LATEST, Antichain
from fries_nb.protocol.frames import Bundle
from fries_nb.protocol.messages import Data, MovedBins, MovedTimes, WorkerId
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.network import LaneKind
from fries_nb.worker.worker import Worker

Place = tuple[WorkerId, bool, int]
"""A worker, whether rows are in front of it (otherwise behind), and their version."""


class Outstanding:
    """All rows that can still arrive somewhere, as far as a frontier can pass them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._earliest: dict[Place, int] = {}
        self._known: dict[int, tuple[pa.RecordBatch, int]] = {}

    def rows(self) -> dict[Place, int]:
        """The earliest time of the rows at each place: a frontier that it can pass, all of them can."""
        self._earliest = {}
        cluster = self._cluster
        for source in cluster.supply.sources:
            worker = cluster.hosts._of.get(source)  # one that is added is made before its host runs it
            if cluster.hosts.host_of(source) not in cluster.hosts.dead and not (worker and worker.ended):
                self._batches((source, False, worker.version if worker else 0), cluster.supply.unread(source))
        for lane, _ in cluster.network.waiting():
            kind, place = lane
            if kind is LaneKind.FRAMES:
                self._frames(place.receiver, cluster.network.queued(lane))
            elif kind is LaneKind.STATE:
                for moved in cluster.network.queued(lane):
                    self._moving(moved)
        for worker in cluster.workers.values():
            self._at(worker)
            self._sent(worker)
            if worker._transfer is not None:
                self._transferred(worker)
        return self._earliest

    def _time(self, place: Place, time: int) -> None:
        if time < self._earliest.get(place, time + 1):
            self._earliest[place] = time

    def _batches(self, place: Place, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            known = self._known.get(id(batch))
            if known is None:  # it is kept, so that no other batch gets its id
                known = self._known[id(batch)] = batch, min(times_of(batch), default=LATEST)
            if batch.num_rows:
                self._time(place, known[1])

    def _frames(self, receiver: WorkerId, frames: Iterable[object]) -> None:
        for frame in frames:
            if isinstance(frame, Data):
                self._batches((receiver, True, frame.version), (frame.batch,))

    def _moving(self, moved: MovedBins) -> None:
        if moved.times is not None:
            held = (tuple(time) for saved in moved.times.tokens.values() for time in saved.times.values())
            for time in (*entries_of(moved.times), *held):
                self._time((moved.to, False, time[0]), time[1])

    def _at(self, worker: Worker) -> None:
        first = worker.instances[0].worker
        for frames in (*worker._inbox._queues.values(), *worker._versions._aside.values()):
            self._frames(first, frames)
        if supplied := worker._inbox._supplied:
            self._batches((first, False, worker.version), (one.batch for one in supplied if one.batch is not None))
        if worker._in_hand and (unread := worker._running.unread) is not None:
            for time in times_of(unread):
                self._time((first, True, worker.outbox.version), time)
        agenda = worker.instances[0].agenda
        tokens = worker.instances[0].tokens
        for time in () if agenda is None or tokens is None else (*agenda.held, *tokens.times.values()):
            self._time((first, False, time[0]), time[1])

    def _sent(self, worker: Worker) -> None:
        version = worker.outbox.version
        for out in worker.outbox._channels.values():
            if out.buffer:
                self._batches((out.channel.receiver, True, out.version), out.buffer)
            if out.queue:
                assert not any(isinstance(frame, Bundle) for frame in out.queue)
                self._frames(out.channel.receiver, out.queue)
        for edge, channels in worker.outbox._ways:
            if batches := worker.outbox._undivided[edge.to]._batches:
                for channel in channels:
                    self._batches((channel.channel.receiver, True, version), batches)

    def _transferred(self, worker: Worker) -> None:
        first, transfer = worker.instances[0].worker, worker._transfer
        for moved in transfer._early:
            self._moving(moved)
        for moved in transfer._times._waiting:
            for time in entries_of(moved):
                self._time((first, False, time[0]), time[1])
        for frames in transfer._held.values():
            self._frames(first, frames)


def times_of(batch: pa.RecordBatch) -> list[int]:
    """The rows' own times, in the column of the user; if there is none, as the runtime has them."""
    if "at" not in batch.schema.names:
        return batch.column(TIME).cast(pa.int64()).to_pylist()
    return batch.column("at").to_pylist()


def entries_of(times: MovedTimes) -> list[tuple[int, ...]]:
    """The times of the entries of bins that move."""
    return [time for both in times.agenda.values() for time, _ in pickle.loads(both)[0]]


def has_passed(frontier: Antichain, version: int, time: int) -> bool:
    """Whether no row of this version and time can still arrive, outside of loops."""
    for earlier_version, earlier in frontier.elements:  # noqa: SIM110 - a generator takes twice as long
        if earlier_version <= version and earlier <= time:
            return False
    return True


class FrontierLaw:
    """Checks a cluster after each step."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.checked = 0
        self._compared = Counter[tuple[int, int, str]]()
        self._outstanding = Outstanding(cluster)
        self._below = {name: nx.descendants(cluster.graph.digraph, name) for name in cluster.graph}

    def check(self) -> None:
        """No announced frontier has passed a row, and none went back."""
        announced = self.cluster.hosts.progress.announced
        rows = self._reaching()
        for (host, listener), frontiers in announced.items():
            self.checked += 1
            place = self.cluster.hosts.incarnation, host, listener
            for before, after in itertools.pairwise(frontiers[max(0, self._compared[place] - 1) :]):
                assert before.leads_to(after), f"{listener}'s frontier at host {host} went from {before} to {after}"
            self._compared[place] = len(frontiers)
            for operator, in_front, version, time in rows[listener]:
                if has_passed(frontiers[-1], version, time):
                    where = f"{'in front of' if in_front else 'behind'} {operator}"
                    raise AssertionError(
                        f"host {host} announced {frontiers[-1].elements} for {listener}; {(version, time)} is {where}"
                    )

    def _reaching(self) -> dict[str, list[tuple[str, bool, int, int]]]:
        """For each operator the rows that can reach it: its own operator, whether in front of it, version and time."""
        earliest: dict[tuple[str, bool, int], int] = {}
        for (at, in_front, version), time in self._outstanding.rows().items():
            place = at.operator, in_front, version
            earliest[place] = min(time, earliest.get(place, time))
        reaching: dict[str, list[tuple[str, bool, int, int]]] = {name: [] for name in self._below}
        for (operator, in_front, version), time in earliest.items():
            row = operator, in_front, version, time
            for listener in self._below[operator]:
                reaching[listener].append(row)
            if in_front:
                reaching[operator].append(row)
        return reaching

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
