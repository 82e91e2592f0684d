"""The topology of a region as its driver carries it out: hosts are started, told of each epoch, and released.

    instruction       to the members                   to new hosts
    StartHosts        -                                Spark starts them
    ChangeTopology    Extend; AddWorkers, to those     TakePart, once a member has told the configuration in effect
                      with new workers of operators,
                      once one has told it
    TopologyChanged   Go                               Go
    ReleaseHosts      HostsLeft; Leave, to those       Leave, or Spark cancels them

The configuration (the changes that each operator has applied) is asked of host 0, which has the first worker of every
operator; it does not change meanwhile, since nothing else is under way.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from msgspec import structs

from fries_nb.controller.events import (
    AddedOperators,
    ChangeTopology,
    Recover,
    ReleaseHosts,
    StartHosts,
    TopologyChanged,
)
from fries_nb.dataflow.graph import Graph, ends_of, resized
from fries_nb.driver.tracing import Trace
from fries_nb.host.region_spec import Additions, RegionSpec
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import audience, is_tracked, listeners
from fries_nb.protocol.topology import Topology
from fries_nb.transport.envelopes import (
    AddWorkers,
    Begin,
    Configured,
    ControllerMessage,
    Extend,
    Go,
    Hello,
    HostsLeft,
    Leave,
    TakePart,
)


class GrowingJob(Protocol):
    """The Spark jobs of the hosts; see ``stage``."""

    def grow(self, region: RegionSpec, hosts: tuple[int, ...]) -> None:
        """Submit further hosts, with these indices."""

    def let_go(self, hosts: tuple[int, ...]) -> None:
        """Expect the end of these hosts, and cancel them if they do not run yet."""


class DriverTopology:
    """The topology of the current incarnation; called from the driver's thread.

    Args:
        region: the specification of the region.
        stage: starts and cancels hosts.
        send: sends a message to a host's connection.
        peers: host to its connection, for all hosts that have said hello; released ones are removed.
        hosts: the hello of each of them; released ones are removed.
        trace: the audit trace.
    """

    def __init__(
        self,
        region: RegionSpec,
        stage: GrowingJob,
        send: Callable[[bytes, ControllerMessage], None],
        peers: dict[int, bytes],
        hosts: dict[int, Hello],
        trace: Trace,
    ) -> None:
        self._stage = stage
        self._send = send
        self._peers = peers
        self._hosts = hosts
        self._trace = trace
        self._begin(region)

    def restarted(self, region: RegionSpec, order: Recover) -> RegionSpec:
        """The specification of the next incarnation, which begins with its first topology."""
        again = replace(
            region,
            incarnation=order.incarnation,
            restoration=order.restoration,
            graph=resized(region.graph, self._settled.graph.sizes),
            sources={
                name: replace(plan, rate=order.rates.get(name, plan.rate)) for name, plan in region.sources.items()
            },
            options=replace(region.options, hosts=order.hosts),
            begun=self._settled.begun,
        )
        self._trace.leave(one for one in self._settled.placement if one.operator not in again.graph)
        self._begin(again)
        return again

    def _begin(self, region: RegionSpec) -> None:
        self._settled = self._current = region.topology
        self._epochs = [self._current]
        self._members = frozenset(range(region.options.hosts))
        self._joining: tuple[Extend, ChangeTopology] | None = None
        self._additions: Additions | None = None

    def reshaped(self, region: RegionSpec) -> RegionSpec:
        """The specification of the region after the change of the shape whose channels all workers know."""
        assert self._additions is not None, "they came with the topology"
        assert self._current.after is not None, "its epoch is the current one"
        return region.reshaped(self._current.after, self._additions)

    @property
    def traced(self) -> dict[str, int]:
        """Operator to the number of its workers in the trace: those of now, and earlier ones that have left records."""
        workers = self._trace.workers() | self._settled.placement.keys()
        return dict(Counter(worker.operator for worker in sorted(workers)))

    def workers_of(self, operator: str, to: str = "") -> list[WorkerId]:
        """The workers of an operator on hosts that are there, in the topology of which all know; none without the edge.

        The edge is the one ``to`` another operator, if one is given.
        """
        if to and (operator, to) not in ends_of(self._settled.graph):
            return []
        placed = self._settled.placement.items()
        return [worker for worker, host in placed if worker.operator == operator and host in self._peers]

    def host_of(self, worker: WorkerId) -> int:
        """The host that runs a worker, even if the topology that is being adopted lacks it."""
        topology = self._current if worker in self._current.placement else self._settled
        return topology.host_of(worker)

    def carry_out(
        self, instruction: StartHosts | ReleaseHosts | ChangeTopology | TopologyChanged, region: RegionSpec
    ) -> None:
        """Carry out an instruction."""
        match instruction:
            case StartHosts():
                self._stage.grow(region, instruction.hosts)
            case ReleaseHosts():
                self._release(instruction.hosts, instruction.reason)
            case ChangeTopology():
                self._change(instruction)
            case TopologyChanged():
                self._changed(instruction.topology)

    def _change(self, order: ChangeTopology) -> None:
        self._current = order.topology.with_functions({})
        self._epochs.append(self._current)
        joins = self._growing(order) if order.added is None else {}
        epochs = [replace(epoch) for epoch in self._epochs]  # without what was derived from them
        addresses = {host: hello.data_address for host, hello in sorted(self._hosts.items())}
        extend = Extend(pickle.dumps(epochs[-1:]), addresses, tuple(sorted(order.lost)))
        if order.added is not None:
            self._additions = order.added.additions
            extend = structs.replace(extend, added=self._added(order.added, order.issued, order.topology.graph))
        asking = structs.replace(extend, asks=bool(joins))
        for host in self._peers.keys() & self._members:
            self._send(self._peers[host], asking if host == 0 else extend)
        if joins:
            self._joining = structs.replace(extend, topologies=pickle.dumps(epochs)), order

    def _growing(self, order: ChangeTopology) -> dict[int, set[WorkerId]]:
        """The hosts that join, and those that get workers, with their new workers."""
        found: dict[int, set[WorkerId]] = {host: set() for host in self._peers.keys() - self._members}
        for worker in order.awaited:
            found.setdefault(order.topology.host_of(worker), set()).add(worker)
        return found

    def configured(self, answer: Configured) -> None:
        """Let new hosts take part, and others make new workers, with the configuration that a member has told."""
        if self._joining is not None:
            (extend, order), self._joining = self._joining, None
            for host, fresh in sorted(self._growing(order).items()):
                if host in self._peers:  # a new one may be lost meanwhile
                    earlier = {worker: known for worker, known in self._trace.earlier().items() if worker in fresh}
                    add = AddWorkers(order.decided, answer.configurations, order.issued, earlier)
                    self._send(self._peers[host], add if host in self._members else TakePart(extend, add))

    def _added(self, added: AddedOperators, issued: int, union: Graph) -> Begin:
        """What the workers of added operators begin with; only here all operators have functions."""
        fresh = self._current.fresh
        earlier = {worker: known for worker, known in self._trace.earlier().items() if worker in fresh}
        sources = (worker.operator for worker in fresh if worker.operator in union.sources)
        told = (listeners(union), audience(union), dict(Counter(sources))) if is_tracked(union) else ((), {}, {})
        packed, parked, given = added.additions.packed, dict(added.parked), dict(added.given)
        heirs = tuple(sorted(added.heirs))
        return Begin(added.change, packed, issued, parked, given, earlier, *told, heirs=heirs)

    def _changed(self, topology: Topology) -> None:
        self._trace.leave(self._settled.placement.keys() - topology.placement.keys())
        self._settled = topology.with_functions({})
        self._members = frozenset(self._peers)
        self._tell(Go(topology.epoch))

    def _release(self, hosts: tuple[int, ...], reason: str) -> None:
        for host in hosts:
            self._hosts.pop(host, None)
            if (peer := self._peers.pop(host, None)) is not None:
                self._send(peer, Leave(reason, hosts))
        self._stage.let_go(hosts)
        self._members = self._members.difference(hosts)
        self._tell(HostsLeft(hosts))

    def _tell(self, message: ControllerMessage) -> None:
        for peer in self._peers.values():
            self._send(peer, message)
