"""What is requested of seeded hosts beside the work of their workers: chains, dry runs and rehearsals, in drawn steps.

The chains that are requested while a seeded run goes on, and their steps, as a host carries them out.

A request is stepped whenever its event is drawn, at whatever has happened by then between the workers: frames, markers
and credit on their lanes, a worker in the middle of a frame. So fuses are given up as well, by the manual clock.

Dry runs and rehearsals of seeded hosts: work that a host does outside its workers' threads, at any later step.

    a worker asks for a dry run         add; its result is an event of the worker, and an answer to the controller
    the controller asks for a rehearsal add; all workers of the host are copied, and the answer says how they did

Which of those that were requested happens next is drawn, as everything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from fries_nb.operators.dry_run import DryRun
from fries_nb.protocol.messages import Chained, Rehearse, SetChain, WorkerId
from fries_nb.simulation.faults import Deployment
from fries_nb.worker.chaining import ChainRequest
from fries_nb.worker.events import Stalled
from fries_nb.worker.rehearsal import Rehearsals

if TYPE_CHECKING:
    from fries_nb.simulation.hosts import Hosts


class SeededChains:
    """The requests of one incarnation that have not been answered."""

    def __init__(self, hosts: Hosts, clock: Callable[[], int]) -> None:
        self._hosts = hosts  # the hosts of the incarnation
        self._clock = clock  # returns nanoseconds
        self._requests: list[ChainRequest] = []

    def request(self, worker: WorkerId, control: SetChain) -> None:
        """Begin to make a chain, unless its worker has gone."""
        if self._hosts.running(worker) is not None:
            self._requests.append(ChainRequest(worker, control.operators, self._clock()))
            self._hosts.draws.add(("chain", None))

    def step(self) -> None:
        """Take a step of the first request; it is the last one then, unless it is answered."""
        request = self._requests.pop(0)
        if not self._requests:
            self._hosts.draws.discard(("chain", None))
        members = request.members(self._hosts.running)
        if not members:
            return
        made = request.step(members, self._hosts.topology, self._clock())
        if isinstance(made, Chained):
            self._hosts.give(request.worker, Stalled(False))
            self._hosts.answer(request.worker, made)
            return
        self._requests.append(request)
        self._hosts.draws.add(("chain", None))
        if made is None:
            self._hosts.give(request.worker, Stalled(True))
        else:
            self._hosts.replace(made)

    def drop(self) -> None:
        """Drop all requests, since the run is over."""
        self._requests.clear()
        self._hosts.draws.discard(("chain", None))


Trial = DryRun | tuple[WorkerId, Rehearse]
"""A dry run, or a rehearsal on the host of a worker."""


class SeededTrials:
    """The trials of the hosts of one incarnation."""

    def __init__(self, hosts: Hosts, plan: Deployment) -> None:
        self._hosts = hosts  # the hosts, whose draws say when a trial happens
        # ``plan``: the settings of the cluster
        self._random = plan.random
        self._waiting: list[Trial] = []
        self._rehearsals = defaultdict[int, Rehearsals](lambda: Rehearsals(plan.clock))

    def add(self, trial: Trial) -> None:
        """Let a trial happen at some later step."""
        self._waiting.append(trial)
        self._hosts.draws.add(("try", None))

    def happen(self) -> None:
        """Carry out one of the trials; there must be one."""
        hosts, trial = self._hosts, self._waiting.pop(self._random.randrange(len(self._waiting)))
        if not self._waiting:
            hosts.draws.discard(("try", None))
        worker = trial.worker if isinstance(trial, DryRun) else trial[0]
        home = hosts.host_of(worker)
        if isinstance(trial, DryRun):
            hosts.give(worker, result := self._rehearsals[home].prepare(trial))
            hosts.answer(worker, result.answer)
        else:
            there = [worker for id_, worker in hosts.workers.items() if hosts.host_of(id_) == home]
            for answer in self._rehearsals[home].rehearse(*trial, there):
                hosts.answer(worker, answer)
