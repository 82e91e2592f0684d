"""Runs whose hosts join and leave at random, with bins that move, changes, checkpoints, and kills of any host.

    instruction      what happens
    StartHosts       each host says hello some time later, or is lost before
    ChangeTopology   the workers of hosts that join are made, and answer
    ReleaseHosts     hosts that leave, or did not join, are gone
    Recover          the next incarnation has as many hosts as the run had members

>>> from fries_nb.simulation.drawn_rescales import draw_rescaled
>>> from fries_nb.simulation.scenarios import play
>>> cluster = play(draw_rescaled(5), JoiningCluster).cluster
>>> cluster.state, {end.outcome for end in cluster.rescaled} <= {"done", "aborted"}
('finished', True)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fries_nb.controller import events as said
from fries_nb.dataflow.graph import Partitioning
from fries_nb.protocol.messages import End, TopologyAdopted
from fries_nb.protocol.progress_locations import is_tracked
from fries_nb.protocol.topology import Topology
from fries_nb.simulation.growing import GrowingCluster
from fries_nb.simulation.network import LaneKind
from fries_nb.worker.events import Arrived

MOST_HOSTS = 4
"""Number of hosts beyond which none is requested."""
NEVER = 0.1
"""Probability that a new host is lost before it says hello."""


class JoiningCluster(GrowingCluster):
    """A cluster whose hosts join and leave at random; the arguments are those of ``Cluster``.

    Attributes:
        rescaled: the ends of all requests, in order.
        requested: id of each request to the number of hosts.
        often: probability at a step that another number of hosts is requested, if none is in progress.
        at_once: the numbers of bins that a step of the moves has, of which one is drawn; 0 adapts it.
    """

    often = 0.03
    at_once = (0, 0, 100, 1024)

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.rescaled: list[said.RescaleEnded] = []
        self.requested: dict[str, int] = {}
        super().__init__(*args, **settings)

    def rescale(self, hosts: int, at_once: int = 0) -> str:
        """Request so many hosts; returns the id of the request."""
        request = f"r{len(self.requested) + 1}"
        self.requested[request] = hosts
        self._say(said.HostsRequested(request, hosts, self._shares(), at_once))
        return request

    def _shares(self) -> dict[str, int]:
        """One worker for each new host, of all operators that can get one."""
        topology = Topology.dealt(self.graph, 1, self._plan.chaining)
        stay = {edge.to for edge in self.graph.edges if edge.partitioning is Partitioning.BROADCAST}
        stay.update(self.graph.sources if is_tracked(self.graph) else ())
        groups = {name: {one.operator for one in topology.last_workers(name)} for name in self.graph.by_name}
        return {name: 1 for name, group in groups.items() if not group & stay}

    def _may_ask(self) -> bool:
        return self.state == "running" and self.hosts.started and len(self.rescaled) == len(self.requested)

    def _want(self, operator: str) -> None:
        """Request another number of hosts, sometimes two, and sometimes cancel one."""
        chance = self.random
        for _ in range(chance.choice((1, 1, 2))):
            request = self.rescale(chance.randint(1, MOST_HOSTS), chance.choice(self.at_once))
            if chance.random() < 0.15:
                self._say(said.RescaleCancelled(request))

    def _obey(self, instruction: said.Instruction) -> Iterable[said.Event]:
        match instruction:
            case said.StartHosts():
                self._fate.hosts += instruction.hosts
                self._news += map(self._come, instruction.hosts)
            case said.ReleaseHosts():
                self._let_go(instruction.hosts)
            case said.RescaleEnded():
                self.rescaled.append(instruction)
            case said.Recover():
                self._plan = replace(self._plan, hosts=instruction.hosts)
                self._fate.hosts = list(range(instruction.hosts))
        return super()._obey(instruction)

    def _carry_out(self, instruction: said.Instruction) -> Iterable[said.Event]:
        before = self.hosts.topology
        resulting = super()._carry_out(instruction)
        if isinstance(instruction, said.ChangeTopology):
            for worker in sorted(instruction.topology.placement.keys() - before.placement.keys()):
                self.hosts.answer(worker, TopologyAdopted(instruction.topology.epoch, worker))
            for channel in [one for one in before.channels() if one.sender in instruction.lost]:
                self.hosts.give(channel.receiver, Arrived(channel, End()))
        return resulting

    def _come(self, host: int) -> said.Event:
        if self.random.random() < NEVER:
            return said.HostLost(host, "it did not come", self.hosts.incarnation)
        return said.HostJoined(host, f"host-{host}", self.hosts.incarnation)

    def _let_go(self, hosts: tuple[int, ...]) -> None:
        self._fate.hosts = [host for host in self._fate.hosts if host not in hosts]
        self._news = [one for one in self._news if getattr(one, "host", None) not in hosts]
        self.hosts.progress.release(hosts)
        self.hosts.kill(hosts)
        for host in hosts:  # whose connections the driver has closed
            self.network.lose((LaneKind.ANSWERS, host), 0)

    def kill_driver(self) -> None:
        """Kill the driver with all hosts; the run is resumed without what was requested."""
        open_ = self.requested.keys() - {end.request for end in self.rescaled}
        self.rescaled += [said.RescaleEnded(one, "aborted", self._plan.hosts, "the driver died") for one in open_]
        self._fate.hosts = list(range(self._plan.hosts))
        super().kill_driver()
