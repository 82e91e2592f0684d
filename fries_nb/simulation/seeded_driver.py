"""The core of a driver in a seeded run: whoever watches sees each instruction, and may kill the driver in front of it.

>>> peer_of(2, incarnation=3), host_at(b"2.3")
(b'2.3', (2, 3))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fries_nb.controller import events
from fries_nb.driver.driver_core import DriverCore
from fries_nb.host.region_spec import RegionSpec


class SeededDriver(DriverCore):
    """The core of a driver that is watched; see ``DriverCore``.

    Args:
        parts: the arguments of ``DriverCore``.
        watch: called before each instruction is carried out; what it raises is the driver's death.
        posted: called after each instruction; returns the events that users have posted because of it.
    """

    def __init__(
        self,
        *parts: Any,
        watch: Callable[[events.Instruction], None],
        posted: Callable[[], Iterable[events.Event]],
    ) -> None:
        super().__init__(*parts)
        self._watch = watch
        self._posted = posted

    def _carry_out(self, instruction: events.Instruction) -> Iterable[events.Event]:
        self._watch(instruction)
        return [*super()._carry_out(instruction), *self._posted()]


class SeededJob:
    """Starts the hosts of a seeded run; see ``HostJob``.

    Args:
        start: starts further hosts.
        end: called with hosts that end, and may not have come yet.
        again: starts the hosts of another incarnation.
    """

    def __init__(
        self,
        start: Callable[[tuple[int, ...]], None],
        end: Callable[[tuple[int, ...]], None],
        again: Callable[[RegionSpec], None],
    ) -> None:
        self._start, self.let_go, self.restart = start, end, again

    def grow(self, region: RegionSpec, hosts: tuple[int, ...]) -> None:
        """Start further hosts; see ``GrowingJob``."""
        self._start(hosts)

    def is_running(self) -> bool:
        """Whether the hosts of now are started, as they always are."""
        return True


def peer_of(host: int, incarnation: int) -> bytes:
    """The connection of a host."""
    return f"{host}.{incarnation}".encode()


def host_at(peer: bytes) -> tuple[int, int]:
    """The host behind a connection, and its incarnation."""
    host, incarnation = peer.decode().split(".")
    return int(host), int(incarnation)
