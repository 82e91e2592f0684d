"""Which hosts are there, since when nothing was heard of them, and which of them to turn away.

The dataflow starts when all hosts have said hello. A hello of an older incarnation comes from a survivor of an
earlier attempt and is refused without harm. A second hello for a slot, or one of a newer incarnation, means that a
host died and Spark started it again, without what its workers held.
"""

from __future__ import annotations

from fries_nb.controller.events import HostJoined
from fries_nb.errors import ProtocolError


class Membership:
    """The hosts 0, 1, ... of one incarnation of the run; times are nanoseconds of the caller's clock."""

    def __init__(self, hosts: int, incarnation: int, silence_ns: int) -> None:
        self.hosts = hosts
        self.incarnation = incarnation
        self.silence_ns = silence_ns
        self.addresses: dict[int, str] = {}
        self._heard_ns: dict[int, int] = {}

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

    def join(self, hello: HostJoined, now_ns: int) -> None:
        """Take the host in."""
        self.addresses[hello.host] = hello.address
        self._heard_ns[hello.host] = now_ns

    def hear(self, host: int, now_ns: int) -> None:
        """Note a sign of life.

        Raises:
            ProtocolError: no such host has said hello.
        """
        if host not in self.addresses:
            raise ProtocolError(f"a message from host {host}, which has not said hello; known: {self._known()}")
        self._heard_ns[host] = now_ns

    def check(self, host: int) -> None:
        """Raise a ProtocolError unless the run has a host of this number."""
        if not 0 <= host < self.hosts:
            raise ProtocolError(f"no host {host} in this run; expected 0 to {self.hosts - 1}")

    def silent(self, now_ns: int) -> tuple[int, int] | None:
        """The host that has been silent longest and for how many nanoseconds, if that is too long."""
        if not self._heard_ns:
            return None
        host = min(self._heard_ns, key=lambda name: self._heard_ns[name])
        silence = now_ns - self._heard_ns[host]
        return (host, silence) if silence > self.silence_ns else None

    def _known(self) -> str:
        return ", ".join(map(str, sorted(self.addresses))) or "none"
