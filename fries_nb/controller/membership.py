"""Which hosts have joined, and which hellos to turn away.

The dataflow starts when all hosts have said hello. A hello of an older incarnation comes from a survivor of an
earlier attempt and is refused without harm. A second hello for a slot, or one of a newer incarnation, means that a
host died and Spark started it again, without what its workers held.

No host is judged by how long it says nothing: a user's function may hold Python's interpreter lock for minutes. The
network (ZeroMQ's own heartbeats) and Spark report a loss, as ``HostLost``.
"""

from __future__ import annotations

from fries_nb.controller.events import HostJoined
from fries_nb.errors import ProtocolError


class Membership:
    """The hosts 0, 1, ... of one incarnation of the run."""

    def __init__(self, hosts: int, incarnation: int) -> None:
        self.hosts = hosts
        self.incarnation = incarnation
        self.addresses: dict[int, str] = {}

    @property
    def complete(self) -> bool:
        """All hosts have said hello."""
        return len(self.addresses) == self.hosts

    def stranger(self, hello: HostJoined) -> str:
        """Why this hello is none of this run's, or an empty string."""
        if not 0 <= hello.host < self.hosts:
            return f"no host {hello.host} in this run; expected 0 to {self.hosts - 1}"
        if hello.incarnation < self.incarnation:
            return f"incarnation {hello.incarnation} is over; this run is at incarnation {self.incarnation}"
        return ""

    def restarted(self, hello: HostJoined) -> str:
        """How this hello shows that the host had died and was started again, or an empty string."""
        if hello.host in self.addresses:
            return f"Spark started it again at {hello.address}, without its state"
        if hello.incarnation > self.incarnation:
            return f"Spark started it again as incarnation {hello.incarnation}, without its state"
        return ""

    def join(self, hello: HostJoined) -> None:
        """Take the host in."""
        self.addresses[hello.host] = hello.address

    def check(self, host: int) -> None:
        """Raise a ProtocolError unless the run has a host of this number."""
        if not 0 <= host < self.hosts:
            raise ProtocolError(f"no host {host} in this run; expected 0 to {self.hosts - 1}")
