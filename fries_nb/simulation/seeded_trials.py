"""Dry runs and rehearsals of seeded hosts: work that a host does outside its workers' threads, at any later step.

    a worker asks for a dry run         add; its result is an event of the worker, and an answer to the controller
    the controller asks for a rehearsal add; all workers of the host are copied, and the answer says how they did

Which of those that were requested happens next is drawn, as everything else.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fries_nb.operators.dry_run import DryRun
from fries_nb.protocol.messages import Answer, Rehearse, WorkerId
from fries_nb.simulation.deployment import Deployment
from fries_nb.worker.rehearsal import Rehearsals

if TYPE_CHECKING:
    from fries_nb.simulation.hosts import Hosts

Trial = DryRun | tuple[WorkerId, Rehearse]
"""A dry run, or a rehearsal on the host of a worker."""


class SeededTrials:
    """The trials of the hosts of one incarnation.

    Args:
        hosts: the hosts, whose draws say when a trial happens.
        plan: the settings of the cluster.
    """

    def __init__(self, hosts: Hosts, plan: Deployment) -> None:
        self._hosts = hosts
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
            answer: Answer = result.answer
        else:
            there = [one for id_, one in hosts.workers.items() if hosts.host_of(id_) == home]
            answer = self._rehearsals[home].rehearse(*trial, there)
        hosts.answer(worker, answer)
