"""What the parts of a controller have in common: each coordinates one thing, and follows what happens to the run.

A controller holds a list of them (see ``lifecycle``) and walks it for whatever concerns several: an event, an
acknowledged marker, a step, the start of an incarnation, the loss of its hosts, the end of the run. So a new action of
markers needs a value in ``protocol.frames``, its effect in ``worker.alignment``, and a coordinator that sends it, with
the line of ``markers.ACTIONS`` that says what triggers it.

>>> from fries_nb.controller.events import Tick
>>> class Counts(Coordinator):
...     takes = (Tick,)
...     ticks = 0
...     def take(self, event, now_ns):
...         self.ticks += 1
...         return []
>>> counts = Counts()
>>> counts.take(Tick(), now_ns=0), counts.ticks, counts.advance(now_ns=0, is_tick=True), counts.close("it is over", 0)
([], 1, [], [])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from fries_nb.controller.events import Event, Instruction
from fries_nb.protocol.messages import Action, Answer, Done, WorkerId

Taken = Event | Answer | Instruction
"""What a coordinator may take: an event, the answer of a worker, or an instruction by which another ends its work."""
MayBegin = Callable[[int], bool]
"""Whether nothing that excludes a coordinator's work is in flight, or due before it, at a time in nanoseconds."""


def alone(now_ns: int) -> bool:
    """``MayBegin`` of a coordinator beside which there is no other one."""
    return True


class Coordinator:
    """A part of a controller; whatever it does not define concerns it not.

    Attributes:
        takes: the types that ``take`` is called for.
        actions: the actions whose acknowledgements ``acknowledged`` is called for.
    """

    takes: ClassVar[tuple[type, ...]] = ()
    actions: ClassVar[tuple[type, ...]] = ()

    @property
    def holds(self) -> bool:
        """Whether the coordinators behind this one in the list must not take steps now."""
        return False

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Process one of the types in ``takes``."""
        return []

    def acknowledged(self, action: Action, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """Process the acknowledgement of a marker; ``done`` is ``None`` if the worker has ended instead."""
        return []

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Take all steps that are possible now, after an event, perhaps a ``Tick``; called while tuples flow."""
        return []

    def started(self, now_ns: int) -> list[Instruction]:
        """Begin with the workers of an incarnation, whose hosts have all joined."""
        return []

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Forget the workers of the incarnation, whose hosts are lost; ``why`` is the reason in one sentence."""
        return []

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """Answer all that is open, since the run has ended."""
        return []

    def refuse(self, event: Taken, state: str, now_ns: int) -> list[Instruction]:
        """Answer one of ``takes`` that came after the end of the run, in this state."""
        return []
