"""Chains of running workers: two workers are fused into one chain, or a chain is split into two workers.

A worker A that feeds a worker B of the same host, and nothing else, can be fused with it: their operators then process
a tuple in one call, without a frame between them. It happens at a boundary at which nothing is in between: A is
*stalled*, so that B processes all that A has sent and returns the credit. Then the two are one worker:

    of A       the inbox, the alignment of markers, the frame in hand with its credit
    of B       the outbox with its credit, the types of the columns written
    of both    the operators with their state, counts and records, and all that was prepared or kept for changes; the
               markers that have passed; recent tuples for rehearsals

If the boundary is not reached in ``PATIENCE_NS``, A is released and the fuse given up. A chain is split at any tuple
boundary. The first part keeps the inbox and the frame in hand, the second one the outbox; the channel between them is
made anew, and its receiver grants a window as at the start.

Controller and checkpoints address the workers of operators, so they need not know of chains. A restarted run has the
chains of its topology again.

The functions here rearrange the parts of workers, and are part of ``worker``. The caller owns the workers, has carried
out their instructions, and delivers further events of B's operators to A.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.operators.instance import Instance
>>> from fries_nb.worker.events import Granted
>>> graph = Graph("pair", (Operator("A", function=dict), Operator("B", function=dict)), (Edge("A", "B"),))
>>> topology = Topology.dealt(graph, hosts=1, chaining=False)
>>> def made(name):
...     wiring = wire(topology, (name,), 0)
...     return Worker(wiring, [Instance(WorkerId(name, 0), wiring.chain[0], dict, audit=False)], 1000, lambda: 0)
>>> a, b = made("A"), made("B")
>>> request = ChainRequest(WorkerId("A", 0), ("A", "B"), now_ns=0)
>>> request.step((a, b), topology, now_ns=0)             # B's grant is on its way to A
>>> a.handle(Granted(a.wiring.edges[0].channels[0], 1000))
>>> request.step((a, b), topology, now_ns=0).gone is b, request.step((a,), topology, now_ns=0)
(True, Chained(worker=WorkerId(operator='A', index=0), operators=('A', 'B'), error=''))
>>> rest = split(a, 1, topology)
>>> rest.wiring == b.wiring, a.wiring == wire(topology, ("A",), 0)
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fries_nb.dataflow.graph import Partitioning
from fries_nb.operators.instance import Instance
from fries_nb.protocol.checkpoints import Snapshot
from fries_nb.protocol.messages import Chained, WorkerId
from fries_nb.protocol.topology import Topology, Wiring, may_chain, wire
from fries_nb.worker.outbox import Outbox, output_of
from fries_nb.worker.worker import Worker

PATIENCE_NS = 250_000_000
"""Nanoseconds after which a fuse is given up."""


@dataclass(frozen=True, slots=True)
class Fused:
    """The operators of a worker that has gone are run by this one."""

    worker: Worker
    gone: Worker


@dataclass(frozen=True, slots=True)
class SplitOff:
    """A new worker runs the last operators of this one."""

    worker: Worker
    rest: Worker


class ChainRequest:
    """A requested chain (see ``messages.SetChain``), until it is answered.

    The caller repeats ``step`` with the present ``members``, which it owns. While it has to wait, the first of them is
    to be stalled.

    Args:
        worker: the worker of the chain's first operator.

    Attributes:
        worker: see ``worker``.
    """

    def __init__(self, worker: WorkerId, operators: tuple[str, ...], now_ns: int) -> None:
        self.worker = worker
        self._operators = operators
        self._until_ns = now_ns + PATIENCE_NS

    def concerns(self, index: int, operators: Sequence[str]) -> bool:
        """Whether it has one of these operators, at this index, so that a later request takes its place."""
        return self.worker.index == index and not set(self._operators).isdisjoint(operators)

    def members(self, running: Callable[[WorkerId], Worker | None]) -> tuple[Worker, ...]:
        """The workers that the next step rearranges: that of the first operator, and one to fuse with it, if any."""
        first = running(self.worker)
        if first is None:
            return ()
        following = self._operators[len(_names(first)) :]
        second = running(WorkerId(following[0], self.worker.index)) if following else None
        return (first,) if second is None or second is first else (first, second)

    def step(self, members: Sequence[Worker], topology: Topology, now_ns: int) -> Fused | SplitOff | Chained | None:
        """Take the next step; ``None`` if it must wait for tuples between the members, ``Chained`` is the last one."""
        first, names = members[0], _names(members[0])
        if any(member.states.saves for member in members):
            return self.overdue(first, "states were saved for a checkpoint", now_ns)
        begin = names.index(self.worker.operator)
        end = begin + len(self._operators)
        if names[begin:end] == self._operators and (begin or end < len(names)):
            return self._split(first, begin or end, topology)
        if names == self._operators:
            return self._answer(first)
        if len(members) < 2 or names + _names(members[1]) != self._operators[: len(names + _names(members[1]))]:
            runs = " and ".join(f"{member.wiring.id} runs {', '.join(_names(member))}" for member in members)
            return self._answer(first, f"{runs}; expected workers of this host that make {', '.join(self._operators)}")
        second = members[1]
        if error := refusal(first, second, topology):
            return self._answer(first, error)
        if why := obstacle(first, second):
            return self.overdue(first, why, now_ns)
        fuse(first, second, topology)
        return Fused(first, second)

    def _split(self, worker: Worker, at: int, topology: Topology) -> SplitOff | Chained:
        error = split_refusal(worker, topology)
        return self._answer(worker, error) if error else SplitOff(worker, split(worker, at, topology))

    def overdue(self, first: Worker, why: str, now_ns: int) -> Chained | None:
        """The answer that gives the request up, if it has waited for too long."""
        if now_ns < self._until_ns:
            return None
        return self._answer(first, f"{why} after {PATIENCE_NS // 1_000_000} ms, so the chain was left as it was")

    def _answer(self, first: Worker, error: str = "") -> Chained:
        return Chained(self.worker, _names(first), error)


def _names(worker: Worker) -> tuple[str, ...]:
    return tuple([operator.name for operator in worker.wiring.chain])


def refusal(first: Worker, second: Worker, topology: Topology) -> str:
    """Why two workers cannot be fused, in one sentence; empty if they can, as soon as there is no ``obstacle``."""
    edges = first.wiring.edges
    is_forward = len(edges) == 1 and edges[0].partitioning is Partitioning.FORWARD
    ids = f"{first.wiring.id} and {second.wiring.id}"
    if not is_forward or edges[0].channels != second.wiring.incoming:
        return f"{ids} are not connected by a forward edge alone, so they cannot share a worker"
    if not may_chain(first.wiring.chain[-1], second.wiring.chain[0]):
        return f"{ids} are not executed alike, pause on errors, or are declared with chain=False"
    for worker in (first, second):
        if worker.slowness.is_slow:
            return f"{worker.wiring.id} takes long for a tuple, and so has a thread of its own"
    return split_refusal(first, topology) or split_refusal(second, topology)


def split_refusal(worker: Worker, topology: Topology) -> str:
    """Why a chain cannot be split, nor fused with another, in one sentence; empty if it can."""
    id_ = worker.wiring.id
    if worker.failed or worker.ended:
        return f"{id_} has {'failed' if worker.failed else 'ended'}"
    if worker._pause.under_way:
        return f"{id_} is paused on a tuple"
    if worker._versions.under_way:
        return f"{id_} runs two versions, since a multi-version change is under way"
    if worker._transfer is not None:
        return f"{id_} takes part in a move of bins"
    if worker._alignment.is_closed:
        return f"{id_} lets no rows enter, since a change of a loop is under way"
    stays = id_ in topology.placement and wire(topology, _names(worker), id_.index) == worker.wiring
    if worker._adoption.under_way or not stays:
        return f"{id_} adopts another topology"
    return ""


def obstacle(first: Worker, second: Worker) -> str:
    """What is still to be processed between two workers before they can be fused; empty if nothing is."""
    [channel] = second.wiring.incoming
    between = f"on the way from {first.wiring.id} to {second.wiring.id}"
    if not first.outbox.has_settled(channel, second._inbox.cuts(channel)):
        return f"there were tuples, credit or markers {between}"
    if first.outbox.owes:
        return f"there were tuples or credit {between} on a channel that was dropped"
    if second._in_hand or second._returning.waits or not second._inbox.is_empty:
        return f"{second.wiring.id} had tuples to process"
    if first.version != second.version:
        return f"a multi-version change was {between}"
    return ""


def fuse(first: Worker, second: Worker, topology: Topology) -> None:
    """Let the first worker run the operators of both."""
    first.give_back()
    instances = (*first.instances, *second.instances)
    memory = _Memory(first, second)
    first._alignment.merge(second._alignment)
    first.freezing.join(second.freezing, 0)
    first._instructions += second.take()
    wiring = wire(topology, _names(first) + _names(second), first.wiring.index)
    second.outbox.remember(first.outbox)
    memory.compose(first, wiring, instances, second.outbox)
    _continue_output(first, second)
    second.outbox = Outbox(())  # so that nothing leaves by a late turn of it


def split(worker: Worker, at: int, topology: Topology) -> Worker:
    """Let a new worker run the operators of a chain from a position on; returns it."""
    worker.give_back()
    names, index, instances = _names(worker), worker.wiring.index, worker.instances
    memory, outbox = _Memory(worker), worker.outbox
    first, second = wire(topology, names[:at], index), wire(topology, names[at:], index)
    version = Snapshot(names[-1], index, 0, version=worker.version)
    rest = Worker(second, instances[at:], worker._window, worker._clock, version, worker._spill, 0, worker.progress)
    rest._alignment.merge(worker._alignment)
    rest.freezing.join(worker.freezing, worker._running.remaining)
    rest.freezing.keep(names[at:])
    worker.freezing.keep(names[:at])
    memory.compose(rest, second, instances[at:], outbox)
    _continue_output(rest, worker)
    memory.compose(worker, first, instances[:at], output_of(first, worker.progress))
    worker.outbox.remember(outbox)
    return rest


class _Memory:
    """What workers have learnt from tuples, and a composition of another chain would forget.

    Attributes:
        recent: recent input tuples of each operator.
    """

    def __init__(self, *workers: Worker) -> None:
        self.recent = {
            instance.worker: tuple([recent.compact() for recent in worker._recent(position)])
            for worker in workers
            for position, instance in enumerate(worker.instances)
        }
        self._types = {instance: instance.written.mark() for worker in workers for instance in worker.instances}

    def compose(self, worker: Worker, wiring: Wiring, instances: Sequence[Instance], outbox: Outbox) -> None:
        """Let a worker run another chain, from the next tuple of its frame in hand on."""
        unread, version = worker._running.unread if worker._in_hand else None, worker.outbox.version
        worker.wiring = wiring
        worker._compose(instances, outbox, worker.version)
        worker._earlier = {instance.worker: self.recent[instance.worker] for instance in instances}
        for instance in instances:
            instance.written.rewind(self._types[instance]._replace(columns=None, input=None))
        if unread is not None:
            outbox.turn_to(version, worker._times.stamp)
            worker._running.load(worker._sender, unread)


def _continue_output(worker: Worker, other: Worker) -> None:
    """Write columns as another worker did, whose last operator and outbox this one has taken over."""
    worker._executor.keep_types(other._executor)
    worker.reports.written = other.reports.written
