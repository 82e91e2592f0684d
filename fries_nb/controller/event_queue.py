"""The order of events and instructions: a controller gets one event at a time, and is never re-entered.

>>> log: list[str] = []
>>> def handle(event, now_ns):
...     return [f"journal {event}", f"send {event}"] if event == "change" else []
>>> def carry_out(instruction):
...     log.append(instruction)
...     return ["journaled"] if instruction.startswith("journal ") else []
>>> events = EventQueue(handle, lambda: 0, carry_out)
>>> events.take("change")
>>> log
['journal change', 'send change']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from fries_nb.controller import events
from fries_nb.errors import ProtocolError


class EventQueue:
    """Passes events to a controller one at a time, and carries out its instructions; used by both shells.

    The controller is never re-entered: all instructions of an event are carried out before the next event. Events that
    result from instructions (a record is on disk, output could not be committed) are processed next, in order, before
    queued events: until then the controller does not know the result of its last instructions.

    Args:
        handle: ``Controller.handle``.
        clock_ns: a monotonic clock in nanoseconds.
        carry_out: carries out one instruction and returns the resulting events; must not call ``take``.
    """

    def __init__(
        self,
        handle: Callable[[events.Event, int], list[events.Instruction]],
        clock_ns: Callable[[], int],
        carry_out: Callable[[events.Instruction], Iterable[events.Event]],
    ) -> None:
        self._handle = handle
        self._clock_ns = clock_ns
        self._carry_out = carry_out
        self._taking: events.Event | None = None

    def take(self, event: events.Event) -> None:
        """Process an event, and then each event that results from its instructions.

        Raises:
            ProtocolError: it is called while an instruction is carried out, or from a second thread.
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
