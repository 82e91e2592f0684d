"""The chains that are requested while a seeded run goes on, and their steps, as a host carries them out.

A request is stepped whenever its event is drawn, at whatever has happened by then between the workers: frames, markers
and credit on their lanes, a worker in the middle of a frame. So fuses are given up as well, by the manual clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fries_nb.protocol.messages import Chained, SetChain, WorkerId
from fries_nb.worker.chaining import ChainRequest
from fries_nb.worker.events import Stalled

if TYPE_CHECKING:
    from fries_nb.simulation.hosts import Hosts


class SeededChains:
    """The requests of one incarnation that have not been answered.

    Args:
        hosts: the hosts of the incarnation.
        clock: returns nanoseconds.
    """

    def __init__(self, hosts: Hosts, clock: Callable[[], int]) -> None:
        self._hosts = hosts
        self._clock = clock
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
