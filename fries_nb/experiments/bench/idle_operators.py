"""Messages of tokens and of in-band watermarks, over many operators that rows do not reach.

Each time has rows that go to a reduce, which makes a result of it as soon as the time is past. A branch to a line of
idle operators, connected by hash edges, gets no row. Counted are the messages that only coordinate:

    tokens        progress frames, once for each other host that one goes to
    watermarks    watermarks on channels, between workers of one host as well; those between hosts apart

A host sums the steps of its workers in one progress frame, and a worker passes on the last of several watermarks that
wait; so both send fewer messages when they lag behind.

>>> flow = idle_flow(fn.rate(None), 2)
>>> [edge.to for edge in flow.graph(workers=2).edges]
['Sort', 'R', 'out', 'I0', 'I1', 'idle']
>>> counts = [counted(operators=4, times=20, seed=1, watermarks=one) for one in (None, Watermarks())]
>>> counts[0].progress < counts[1].watermarks, counts[1].progress
(True, 0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fries_nb as fn
from fries_nb.checkpoints import Restoration
from fries_nb.dataflow.endpoints import Source
from fries_nb.errors import RunError
from fries_nb.messages import Answer, Watermark
from fries_nb.testing.cluster import Cluster
from fries_nb.testing.deployment import Deployment
from fries_nb.testing.hosts import Hosts
from fries_nb.testing.network import LaneKind
from fries_nb.topology.progress_locations import Watermarks

HOSTS = 2
KEYS = 16


class TimeCount:
    """Counts the rows of a key and time."""

    def initial_state(self) -> list[int]:
        """No row."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Count a row."""
        state[0] += 1

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The count."""
        return {"key": key, "time": time, "count": state[0]}


def _busy(row: dict[str, Any]) -> int:
    return 0


def _same_row(row: dict[str, Any]) -> dict[str, Any]:
    return row


def idle_flow(source: Source, operators: int) -> fn.Dataflow:
    """The dataflow, with a line of so many idle operators."""
    flow = fn.Dataflow("idle")
    busy, idle = flow.source("Src", source, time="at").split("Sort", _busy)
    busy.reduce("R", TimeCount(), key="key").sink("out", fn.memory())
    for number in range(operators):
        idle = idle.map(f"I{number}", _same_row, key="key")
    idle.sink("idle", fn.memory())
    return flow


@dataclass
class CoordinationCount:
    """Numbers of messages that only coordinate.

    Attributes:
        progress: progress frames, for each host that one went to.
        watermarks: watermarks on channels.
        remote: those of them between hosts.
    """

    progress: int = 0
    watermarks: int = 0
    remote: int = 0


class CountedHosts(Hosts):
    """Hosts that count what arrives.

    Attributes:
        counts: what has arrived.
    """

    def __init__(self, plan: Deployment, incarnation: int, restoration: Restoration) -> None:
        super().__init__(plan, incarnation, restoration)
        self.counts = CoordinationCount()

    def _arrive(self, kind: LaneKind, place: Any, what: Any) -> Answer | None:
        if kind is LaneKind.PROGRESS:
            self.counts.progress += 1
        elif isinstance(what, Watermark):
            self.counts.watermarks += 1
            self.counts.remote += self.host_of(place.sender) != self.host_of(place.receiver)
        return super()._arrive(kind, place, what)


class CountedCluster(Cluster):
    """A cluster whose hosts count what arrives; the arguments are those of ``Cluster``."""

    hosts: CountedHosts
    hosts_of = CountedHosts


def counted(operators: int, times: int, seed: int, watermarks: Watermarks | None) -> CoordinationCount:
    """Run the dataflow in memory, with one row of each time, read in batches of at most five.

    Args:
        operators: number of idle operators.
        times: number of distinct times.
        seed: determines the interleaving.
        watermarks: how watermarks are made; ``None`` for tokens.

    Raises:
        RunError: a result is missing.
    """
    graph = idle_flow(fn.rate(None), operators).graph(workers=HOSTS)
    rows = [{"key": time % KEYS, "at": time} for time in range(times)]
    cluster = CountedCluster(
        graph, {"Src": rows}, hosts=HOSTS, seed=seed, window=1 << 20, audit=False, notifications=watermarks
    )
    cluster.run(steps=10**9)
    cluster.settle()
    if (found := len(cluster.rows("out"))) != times:
        raise RunError(f"a benchmark has {found} results; expected {times}")
    return cluster.hosts.counts
