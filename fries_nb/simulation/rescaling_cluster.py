"""Clusters that change while they run: chains are fused and split, workers and hosts come and go, bins and splits move.

Runs that are rescaled: workers come and go, and bins of keyed operators and splits of sources move between them.

>>> from fries_nb.simulation.drawn_flows import source_rows
>>> from fries_nb.simulation.stamp_functions import Counter
>>> from fries_nb.protocol.messages import WorkerId
>>> import fries_nb as fn
>>> flow = fn.Dataflow("count")
>>> numbers = flow.source("S", fn.rate(None, count=1), workers=1)
>>> keyed = numbers.map("K", Counter("K"), key="customer", workers=1)
>>> keyed.sink("out", fn.memory(), workers=1)
Stream('out')
>>> cluster = RescalingCluster(flow.graph(), {"S": source_rows("S", 60)}, seed=3)
>>> cluster.often = 0.0
>>> cluster.hold([WorkerId("S", 0)])
>>> cluster.grow("K", 0), cluster.until_settled()
(None, None)
>>> cluster.widen(), cluster.until_settled()
(None, None)
>>> cluster.move({"K": RoutingTable.even(2)}, at_once=100), cluster.until_settled()
(None, None)
>>> cluster.moved[0].reason, [len(one.state) > 0 for one in cluster.instances("K")]
('', [True, True])
>>> cluster.release(), cluster.run(), len(cluster.rows("out"))
(None, None, 60)

Runs in which chains are fused and split while whatever else happens: changes, checkpoints, failures, guards.

>>> from fries_nb.simulation.scenarios import draw_focused, play
>>> cluster = play(draw_focused(3, chained=True), RechainingCluster).cluster
>>> cluster.state, bool(cluster.chained)
('finished', True)

Runs that change their topology: workers come, get rows, and leave, or a run is resumed with other numbers.

Runs whose hosts join and leave at random, with bins that move, changes, checkpoints, and kills of any host.

    instruction      what happens
    StartHosts       each host says hello some time later, or is lost before
    ChangeTopology   the workers of hosts that join are made, and answer when these hosts are told to take part
    ReleaseHosts     hosts that leave, or did not join, are gone when they have said what is left
    Recover          the next incarnation has as many hosts as the run had members

>>> from fries_nb.simulation.scenarios import draw_rescaled
>>> from fries_nb.simulation.scenarios import play
>>> cluster = play(draw_rescaled(5), JoiningCluster).cluster
>>> cluster.state, {end.outcome for end in cluster.rescaled} <= {"done", "aborted"}
('finished', True)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from msgspec import structs

from fries_nb.controller import events
from fries_nb.controller.moves import senders_of
from fries_nb.dataflow.graph import Partitioning
from fries_nb.driver.driver_core import Told
from fries_nb.errors import DataflowError
from fries_nb.host.region_spec import RegionSpec
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.progress_locations import is_tracked
from fries_nb.protocol.topology import Topology, may_chain, workers_of
from fries_nb.protocol.trace import Record, TraceFlow
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.scenarios import Scenario, draw_focused
from fries_nb.simulation.seeded_changes import ChainRequested, TopologyRequested
from fries_nb.transport.control import Heard
from fries_nb.worker.worker import Worker


class RechainingCluster(Cluster):
    """A cluster in which chains are requested at random; the arguments are those of ``Cluster``.

    Attributes:
        rechains: probability at a step that a chain is requested.
    """

    rechains = 0.03

    def step(self) -> bool:
        """Carry out one event; sometimes request another chain first."""
        if self.hosts.started and self.random.random() < self.rechains:
            self._want_chain()
        return super().step()

    def chain(self, *operators: str, index: int = 0) -> None:
        """Request that these operators are run as one chain; ``chained`` gets the answer, unless their host is gone."""
        if self.hosts.running(WorkerId(operators[0], index)) is not None:
            self._say(ChainRequested(WorkerId(operators[0], index), operators))

    def _want_chain(self) -> None:
        """Request some of the operators of a chain, or those of two workers, which mostly may share one."""
        pairs = list(self._pairs())
        alike = [pair for pair in pairs if may_chain(pair[0].wiring.chain[-1], pair[1].wiring.chain[0])]
        wanted = alike if self.random.random() < 0.9 else pairs
        chains = [worker for worker in self.workers.values() if len(worker.instances) > 1]
        if chains and (not wanted or self.random.random() < 0.5):
            worker = self.random.choice(chains)
            names = [operator.name for operator in worker.wiring.chain]
            begin = self.random.randrange(len(names))
            self.chain(*names[begin : self.random.randint(begin + 1, len(names))], index=worker.wiring.index)
        elif wanted:
            first, second = self.random.choice(wanted)
            both = (*first.wiring.workers, *second.wiring.workers)
            self.chain(*(one.operator for one in both), index=first.wiring.index)

    def _pairs(self) -> Iterator[tuple[Worker, Worker]]:
        """The workers that feed one worker, each with that one."""
        for worker in self.workers.values():
            if len(worker.wiring.edges) == 1 and len(worker.wiring.edges[0].channels) == 1:
                yield worker, self.hosts.worker_of(worker.wiring.edges[0].channels[0].receiver)


def draw_reshaped(seed: int) -> Scenario:
    """Draw a scenario with keyed state, frequent checkpoints, and kills of the driver; runs resume rescaled."""
    chance = random.Random(f"reshaped {seed}")
    plain = draw_focused(seed, chained=seed % 2 == 0)
    faults = Faults(chance.choice((0.003, 0.01)), driver_kills=2, reshapes=True)
    settings = plain.cluster | {"faults": faults, "commit_interval_ns": chance.choice((500_000, 1_000_000))}
    return replace(plain, cluster=settings)


class GrowingCluster(Cluster):
    """A cluster in which workers are added, get rows, get no more, and are removed; see ``Cluster`` for the arguments.

    Attributes:
        often: probability at a step that a change of topology is requested, if none is in progress.
    """

    often = 0.05

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.adopted: list[Topology] = []  # the topologies that all workers have adopted, in order
        self.refused: list[str] = []  # the reasons of all requests that were refused, as when a worker had ended
        self._asked_for: Topology | None = None
        super().__init__(*args, **settings)

    def step(self) -> bool:
        """Carry out one event; sometimes request another topology first."""
        if self._may_ask() and self.random.random() < self.often:
            added = [worker.operator for worker in self.hosts.topology.added]
            everyone = [operator.name for operator in self.graph.operators]
            self._want(self.random.choice(added if added and self.random.random() < 0.6 else everyone))
        return super().step()

    def records(self) -> list[Record]:
        """The trace so far, with the workers of now, and earlier ones that have left records."""
        flow, *records = super().records()
        assert isinstance(flow, TraceFlow), "the first record"
        workers = {WorkerId(record.operator, record.worker) for record in records if not isinstance(record, TraceFlow)}
        workers.update(one for name in self.graph.by_name for one in workers_of(self.graph, name))
        traced = {name: sum(worker.operator == name for worker in workers) for name in flow.workers}
        return [structs.replace(flow, workers=traced), *records]

    def _may_ask(self) -> bool:
        return self._asked_for is None and self.hosts.started

    def grow(self, operator: str, host: int) -> None:
        """Request an idle worker of this operator on this host.

        Raises:
            DataflowError: the operator cannot get another worker.
        """
        self._ask(self.hosts.topology.grown(operator, host))

    def shrink(self, operator: str) -> None:
        """Request the removal of an operator's idle worker.

        Raises:
            DataflowError: it has none.
        """
        self._ask(self.hosts.topology.shrunk(operator))

    def widen(self) -> None:
        """Request that rows are routed to idle workers; those of keyed operators own no bins yet."""
        self._ask(self.hosts.topology.widened())

    def narrow(self, operator: str) -> None:
        """Request that no more rows are routed to an operator's last worker.

        Raises:
            DataflowError: it is the only one, or owns bins.
        """
        topology = self.hosts.topology
        self._ask(topology.narrowed(topology.last_workers(operator)))

    def _want(self, operator: str) -> None:
        topology = self.hosts.topology
        try:
            if any(worker.operator == operator for worker in topology.idle):
                self.widen() if self.random.random() < 0.5 else self.shrink(operator)
            elif any(worker.operator == operator for worker in topology.added) and self.random.random() < 0.5:
                self.narrow(operator)
            else:
                self.grow(operator, self.random.randrange(self._plan.hosts))
        except DataflowError as error:  # a source, or a worker that was added together with those of other operators
            self.refused.append(str(error))

    def _ask(self, topology: Topology) -> None:
        self._asked_for = topology
        self._say(TopologyRequested(topology))

    def _see(self, instruction: events.Instruction) -> None:
        super()._see(instruction)
        match instruction:
            case events.ChangeTopology():
                self.hosts.extend(instruction.topology, instruction.issued)
            case events.TopologyChanged():
                self.adopted.append(instruction.topology)
                self._asked_for, self.graph = None, instruction.topology.graph
                self._plan = replace(self._plan, graph=self.graph)
                self.hosts.settle(instruction.topology)
            case events.TopologyRefused():
                self.refused.append(instruction.reason)
                self._asked_for = None
            case events.Recover():
                self._asked_for = None


MOST_WORKERS = 4
"""Number of workers of an operator beyond which none is added."""


class RescalingCluster(GrowingCluster):
    """A cluster that is rescaled at random; the arguments are those of ``Cluster``.

    Attributes:
        tables: keyed operator to its routing table, if its bins are not dealt evenly.
        often: probability at a step that a step of a rescale is requested, if none is in progress.
    """

    often = 0.1

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.moved: list[events.BinsMoved] = []  # the ends of all moves of bins, in order
        self.tables: Mapping[str, RoutingTable] = {}
        self.dealt: list[events.SplitsMoved] = []  # the ends of all moves of splits, in order
        self._is_moving = self._is_dealing = False
        super().__init__(*args, **settings)

    @property
    def is_settled(self) -> bool:
        """Whether no request is open."""
        return self._asked_for is None and not (self._is_moving or self._is_dealing)

    def until_settled(self) -> None:
        """Take steps until no request is open, or the run has ended."""
        self.until(lambda: self.is_settled)

    def narrow(self, operator: str) -> None:
        """Request that no rows are routed to an operator's last worker.

        Raises:
            DataflowError: it owns bins, has splits, or is the only one.
        """
        topology = self.hosts.topology.with_tables(self.tables)
        leaving = topology.last_workers(operator)
        narrowed = topology.narrowed(leaving)
        for worker in sorted(leaving):
            if worker.operator in self.graph.sources and worker.index < self.reading(worker.operator):
                raise DataflowError(f"{worker} has splits; expected them to be moved to other workers first")
        self._ask(narrowed)

    def reading(self, source: str) -> int:
        """The number of a source's workers that have splits."""
        return self.controller._workers.reading(source)

    def deal(self, source: str, workers: int) -> None:
        """Request that the splits of a source are dealt to so many of its workers.

        Raises:
            DataflowError: rows are not routed to so many workers, or the dataflow does not allow it.
        """
        self._is_dealing = True
        try:
            self._say(events.SplitsRequested({source: workers}))
        except DataflowError:
            self._is_dealing = False
            raise

    def move(self, targets: Mapping[str, RoutingTable], at_once: int = 0) -> None:
        """Request that bins move until operators are routed by these tables.

        Raises:
            DataflowError: a table does not fit its operator.
        """
        self._is_moving = True
        try:
            self._say(events.BinsRequested(targets, at_once))
        except DataflowError:
            self._is_moving = False
            raise

    def _may_ask(self) -> bool:
        return super()._may_ask() and not (self._is_moving or self._is_dealing)

    def _want(self, operator: str) -> None:
        """Request a random step of a rescale of this operator, or of any keyed one, or of a source."""
        chance, keyed = self.random, [one.name for one in self.graph.operators if senders_of(self.graph, one.name)]
        steps: list[Callable[[], None]] = [
            self.widen, lambda: self._leave(operator), lambda: self.shrink(operator),
        ]  # fmt: skip
        if self.graph.operator(operator).workers < MOST_WORKERS:
            steps += [lambda: self.grow(operator, chance.randrange(self._plan.hosts))] * 2
        if keyed:
            steps += [lambda: self._move_some(chance.choice(keyed))] * 2
        if not is_tracked(self.graph):
            steps += [lambda: self._deal_some(chance.choice(self.graph.sources))] * 2
        try:
            chance.choice(steps)()
        except DataflowError as error:
            self.refused.append(str(error))

    def _leave(self, operator: str) -> None:
        """Request that an operator's last worker gets no rows, after its splits have moved if it is a source's."""
        routed = self.hosts.topology.routed(operator)
        if operator in self.graph.sources and 1 < routed == self.reading(operator):
            self.deal(operator, routed - 1)
        else:
            self.narrow(operator)

    def _move_some(self, operator: str) -> None:
        """Request to deal an operator's bins evenly to its first workers, or some bins to random ones."""
        chance, routed = self.random, self.hosts.topology.routed(operator)
        target = RoutingTable.even(chance.randint(1, routed))
        if chance.random() < 0.4:
            bins = chance.sample(range(len(target.owners)), 400)
            target = target.moved({bin_: (0, chance.randrange(routed)) for bin_ in bins})
        self.move({operator: target}, chance.choice((0, 200, 350)))

    def _deal_some(self, source: str) -> None:
        """Request to deal the splits of a source to a random number of workers."""
        self.deal(source, self.random.randint(1, self.hosts.topology.routed(source)))

    def _see(self, instruction: events.Instruction) -> None:
        super()._see(instruction)
        if isinstance(instruction, events.BinsMoved):
            self.moved.append(instruction)
            self._is_moving, self.tables = False, instruction.tables
        elif isinstance(instruction, events.SplitsMoved):
            self.dealt.append(instruction)
            self._is_dealing = False
        elif isinstance(instruction, events.TopologyChanged):
            self.tables = instruction.topology.tables

    def kill_driver(self) -> None:
        """Kill the driver with all hosts; the run is resumed without what was requested."""
        self._is_moving = self._is_dealing = False
        self._asked_for, self.tables = None, {}
        super().kill_driver()


NO_NUMBERS: Mapping[str, int] = MappingProxyType({})
MOST_HOSTS = 4
"""Number of hosts beyond which none is requested."""
NEVER = 0.1
"""Probability that a new host is lost before it says hello."""


class JoiningCluster(GrowingCluster):
    """A cluster whose hosts join and leave at random; the arguments are those of ``Cluster``.

    Attributes:
        often: probability at a step that another number of hosts is requested, if none is in progress.
        at_once: the numbers of bins that a step of the moves has, of which one is drawn; 0 adapts it.
        of_workers: probability that other numbers of workers of operators are requested in place of hosts.
    """

    often = 0.03
    at_once = (0, 0, 100, 1024)
    of_workers = 0.0

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.rescaled: list[events.RescaleEnded] = []  # the ends of all requests, in order
        self.requested: dict[str, events.RescaleRequested] = {}  # all requests, by their ids
        self.led_to: dict[str, Mapping[str, int]] = {}  # request that has ended to the numbers of workers then
        super().__init__(*args, **settings)

    def rescale(self, hosts: int | None, at_once: int = 0, workers: Mapping[str, int] = NO_NUMBERS) -> str:
        """Request so many hosts, or workers of operators; returns the id of the request."""
        request = f"r{len(self.requested) + 1}"
        self.requested[request] = events.RescaleRequested(request, hosts, self._shares(), at_once, workers)
        self._say(self.requested[request])
        return request

    def _shares(self) -> dict[str, int]:
        """One worker for each new host, of all operators that can get one."""
        topology = Topology.dealt(self.graph, 1, self._plan.chaining)
        stay = {edge.to for edge in self.graph.edges if edge.partitioning is Partitioning.BROADCAST}
        stay.update(self.graph.sources if is_tracked(self.graph) else ())
        groups = {name: {worker.operator for worker in topology.last_workers(name)} for name in self.graph.by_name}
        return {name: 1 for name, group in groups.items() if not group & stay}

    def _may_ask(self) -> bool:
        return self.state == "running" and self.hosts.started and len(self.rescaled) == len(self.requested)

    def _want(self, operator: str) -> None:
        """Request another number of hosts or of workers, sometimes two, and sometimes cancel one."""
        chance = self.random
        for _ in range(chance.choice((1, 1, 2))):
            if self.of_workers and chance.random() < self.of_workers:
                numbers = {name: chance.randint(1, MOST_WORKERS) for name in (operator, *self._others())}
                request = self.rescale(None, chance.choice(self.at_once), numbers)
            else:
                request = self.rescale(chance.randint(1, MOST_HOSTS), chance.choice(self.at_once))
            if chance.random() < 0.15:
                self._say(events.RescaleCancelled(request))

    def _others(self) -> list[str]:
        """A further operator, now and then."""
        return [self.random.choice(list(self.graph.by_name))] if self.random.random() < 0.3 else []

    def _told(self, event: Told) -> None:
        if isinstance(event, events.RescaleEnded):
            self.rescaled.append(event)
            placed = self.controller.topology.workers
            self.led_to[event.request] = {name: len(hosts) for name, hosts in placed.items()}
        super()._told(event)

    def _start_hosts(self, hosts: tuple[int, ...]) -> None:
        """Start hosts, each of which comes some time later, or is lost before."""
        self._fate.hosts += hosts
        self._news += map(self._come, hosts)

    def _let_go(self, hosts: tuple[int, ...]) -> None:
        """Expect the end of hosts, also of those that have not come yet."""
        self._fate.hosts = [host for host in self._fate.hosts if host not in hosts]
        self._news = [one for one in self._news if getattr(one, "host", None) not in hosts]
        self.hosts.kill(host for host in hosts if not self.hosts.progress.takes_part(host))

    def _restart(self, region: RegionSpec) -> None:
        """Start as many hosts as there were members."""
        self._plan = replace(self._plan, hosts=region.options.hosts)
        self._fate.hosts = list(range(region.options.hosts))
        super()._restart(region)

    def _come(self, host: int) -> events.Event | Heard:
        if self.random.random() < NEVER:
            return events.HostLost(host, "it did not come", self.hosts.incarnation)
        return self._hello(host, self.hosts.incarnation)

    def kill_driver(self) -> None:
        """Kill the driver with all hosts; the run is resumed without what was requested."""
        open_ = self.requested.keys() - {end.request for end in self.rescaled}
        self.rescaled += [events.RescaleEnded(one, "aborted", self._plan.hosts, "the driver died") for one in open_]
        self._fate.hosts = list(range(self._plan.hosts))
        super().kill_driver()
