"""A worker of a seeded host, with its mailbox, as the threads of the host run it.

Its tuples take the virtual time that its functions name in an attribute ``takes_ns``, and none by default. While a
thread is inside such a tuple, the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fries_nb.operators.dry_run import DryRunResult
from fries_nb.protocol.messages import AdoptSplits, AdoptTopology, ChannelId, Drain, Fcm, Prepare, SplitsRead, WorkerId
from fries_nb.protocol.topology import wire
from fries_nb.simulation.virtual_threads import OwnerMark, Steps, Wait
from fries_nb.worker import events as heard
from fries_nb.worker.rota import AHEAD_BYTES
from fries_nb.worker.worker import Worker

if TYPE_CHECKING:
    from fries_nb.simulation.threaded_hosts import ThreadedHosts

PAUSES_NS = (0, 0, 50_000, 2_000_000)
"""Possible time until a reader's next tuples are due, in nanoseconds."""


class SeededMember:
    """One worker of a host.

    Args:
        worker: the worker.
        hosts: carries out its instructions.
        clock: returns nanoseconds.

    Attributes:
        owner: held by the thread that runs the worker.
        awake: whether a wake-up is queued; see ``turns``.
        inside: whether a thread is running it.
        mailbox: events that have not been processed.
    """

    def __init__(self, worker: Worker, hosts: ThreadedHosts, clock: Callable[[], int]) -> None:
        self.worker = worker
        self.owner = OwnerMark(hosts.threads)
        self.awake = False
        self.inside = False
        self.mailbox: deque[heard.Event] = deque()
        self._hosts = hosts
        self._clock = clock
        self._due_ns: int | None = 0

    @property
    def buffers(self) -> bool:
        """Whether tuples wait in its output buffers for a flush."""
        return self.worker.outbox.buffered

    @property
    def is_blocked(self) -> bool:
        """Whether frames wait for credit."""
        return self.worker.outbox.blocked

    @property
    def awaits_credit(self) -> bool:
        """Whether credit that was posted to it has to wake it."""
        return self.is_blocked or self._hosts.has_gone(self)

    @property
    def is_ahead(self) -> bool:
        """Whether its receivers are to be served first."""
        return self.worker.outbox.outstanding > AHEAD_BYTES

    @property
    def due_ns(self) -> int | None:
        """Time at which a source is to be read; ``None`` if not by itself."""
        return self._due_ns if self._hosts.reads(self.worker) and self.worker.wants_input else None

    @property
    def takes_ns(self) -> int:
        """Virtual duration of a tuple in nanoseconds."""
        return sum(getattr(instance.function, "takes_ns", 0) for instance in self.worker.instances)

    def may_read(self) -> None:
        """Let a source be read at once."""
        self._due_ns = 0

    # ---- called by the owner

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Note that the current thread, which must be the owner, runs the worker."""
        assert self.owner.is_held, f"{self.worker.wiring.id} is run by a thread that does not own it"
        assert self.owner.holder is self._hosts.threads.current, f"{self.worker.wiring.id} is owned by another thread"
        assert not self.inside, f"two threads run {self.worker.wiring.id}"
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def process(self) -> None:
        """Process the events of the mailbox."""
        with self.entered():
            self._process()

    def flush(self) -> int:
        """Send what is buffered; returns the number of frames."""
        with self.entered():
            flushed = self.worker.outbox.flush()
            self._settle()
            return flushed

    def turn(self) -> Steps[bool]:
        """Process the mailbox and some tuples; returns whether there may be more to do."""
        with self.entered():
            self._process()
            yield None
            self._feed()
            busy = yield from self._slice()
            self._settle()
        return busy or self.due_ns == 0

    def _slice(self) -> Steps[bool]:
        """Process a few tuples; after each, or inside it if it takes long, other threads go on."""
        left = self._hosts.chance.randint(1, 4)
        while True:
            limit = self._hosts.chance.randint(1, left) if not self.takes_ns else 1
            before, takes_ns = self.worker.instances[0].processed, self.takes_ns
            busy = self.worker.run(limit)
            left -= limit
            if takes_ns and self.worker.instances[0].processed > before:
                self._hosts.noted.append(("inside", self))
                yield Wait(due_ns=self._clock() + takes_ns)
                self.worker.slowness.learn(takes_ns, 1)
            else:
                yield None
            if not (busy and left) or self.worker.interrupt.raised:
                return busy

    def _process(self) -> None:
        while self.mailbox:
            self._handle(self.mailbox.popleft())
        self._settle()

    def _settle(self) -> None:
        self._hosts.carry_out(self.worker)
        while self.mailbox and self.is_blocked:
            self._handle(self.mailbox.popleft())
            self._hosts.carry_out(self.worker)

    def _handle(self, event: heard.Event) -> None:
        """Process an event, or pass it on if another worker runs its operator by now."""
        to = addressee(event)
        owner = self._hosts.member_of(to) if to is not None else None
        if owner is not None and owner is not self:
            self._hosts.post(owner, event)
        elif owner is None and self._hosts.has_gone(self):
            return
        else:
            if isinstance(event, heard.Directed) and isinstance(event.control, AdoptTopology):
                chain = tuple(operator.name for operator in self.worker.wiring.chain)
                wiring = wire(self._hosts.topology, chain, self.worker.wiring.index)
                event = heard.Rewired(event.control.epoch, wiring, event.worker)
            elif isinstance(event, heard.Directed) and isinstance(event.control, Fcm | Prepare):
                self._hosts.noted.append(("urgent", self))
            if isinstance(event, heard.Directed) and isinstance(event.control, Drain | AdoptSplits):
                self.may_read()
            self.worker.handle(event)

    def _feed(self) -> None:
        if self._hosts.reads(self.worker) and self.worker.wants_input and (self._due_ns or 0) <= self._clock():
            supplied = self._hosts.supply.next(self.worker.wiring.id)
            if isinstance(supplied, SplitsRead):
                self._hosts.answer(self.worker.wiring.id, supplied)
                self._due_ns = None
            elif supplied is not None:
                self.worker.handle(supplied)
                pause = self._hosts.chance.choice(PAUSES_NS)
                self._due_ns = self._clock() + pause if pause else 0
            else:
                self._due_ns = None


def addressee(event: heard.Event) -> WorkerId | None:
    """The operator's worker whose event it is; ``None`` if it is that of the worker that has it."""
    match event:
        case heard.Arrived(channel=ChannelId(receiver=to)):
            return to
        case heard.Granted(channel=ChannelId(sender=to)):
            return to
        case heard.Directed() | heard.Expected():
            return event.worker
        case DryRunResult():
            return event.answer.worker
        case _:
            return None
