"""Events for a controller, one at a time; both shells run it, the driver's thread and the seeded cluster.

The controller is never re-entered: the instructions of an event are carried out, all of them, before it takes another
one. Some lead to an event themselves (a record is on disk, output could not be committed). Those are taken next, in
their order, in front of whatever else waits: until the controller knows what became of its last word, it would decide
on something that is so no more.

>>> def handle(event, now_ns):
...     return {"asked": ["write", "send"]}.get(event, [])
>>> def carry_out(instruction):
...     print("carry out", instruction)
...     return ["written"] if instruction == "write" else []
>>> queue = EventQueue(handle, lambda: 0, carry_out)
>>> queue.take("asked")
carry out write
carry out send
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from fries_nb.controller.events import Event, Instruction
from fries_nb.errors import ProtocolError


class EventQueue:
    """Hands events to a controller and has its instructions carried out.

    Args:
        handle: the controller's method of this name.
        clock_ns: nanoseconds of a clock that never goes back.
        carry_out: carries out one instruction, and returns the events that this has led to; it never calls ``take``.
    """

    def __init__(
        self,
        handle: Callable[[Event, int], list[Instruction]],
        clock_ns: Callable[[], int],
        carry_out: Callable[[Instruction], Iterable[Event]],
    ) -> None:
        self._handle = handle
        self._clock_ns = clock_ns
        self._carry_out = carry_out
        self._taking: Event | None = None

    def take(self, event: Event) -> None:
        """Let the controller take this event, and then each event that carrying out its instructions leads to.

        Raises:
            ProtocolError: it was called while an instruction is carried out, or from a second thread.
        """
        if self._taking is not None:
            raise ProtocolError(f"{event} came while the instructions of {self._taking} are carried out; it waits")
        waiting = deque([event])
        try:
            while waiting:
                self._taking = waiting.popleft()
                for instruction in self._handle(self._taking, self._clock_ns()):
                    waiting.extend(self._carry_out(instruction))
        finally:
            self._taking = None
