"""The queue in front of a controller: in what order events are taken, and that it is never re-entered."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, Desk, markers

from fries_nb.controller.controller import EventQueue
from fries_nb.controller.events import Answered, Event, Instruction, Journal, Journaled, Tell, Tick
from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import Prepared


def test_what_carrying_out_leads_to_is_taken_behind_all_instructions_of_the_event() -> None:
    """The decision is on disk before the first FCM leaves, and the controller hears of it when the last one has."""
    desk = Desk()
    desk.request(FM_ALONE)
    seen: list[Event | Instruction] = []

    def handle(event: Event, now_ns: int) -> list[Instruction]:
        seen.append(event)
        return desk.controller.handle(event, now_ns)

    def carry_out(instruction: Instruction) -> list[Event]:
        seen.append(instruction)
        return [Journaled("u1", 5)] if isinstance(instruction, Journal) else []

    queue = EventQueue(handle, lambda: 0, carry_out)
    for worker in desk.workers("FM"):
        queue.take(Answered(Prepared("u1", worker)))
    kinds = [type(one) for one in seen]
    assert kinds == [Answered, Answered, Journal, Tell, Tell, Journaled]
    assert len(markers(one for one in seen if isinstance(one, Tell))) == 1


def test_an_event_that_comes_while_an_instruction_is_carried_out_is_refused() -> None:
    """Whoever carries out returns what that led to; a call is a defect, and the next event is taken all the same."""
    taken: list[Event] = []

    def handle(event: Event, now_ns: int) -> list[Instruction]:
        taken.append(event)
        return [Tell] if len(taken) == 1 else []  # type: ignore[list-item]  # whatever it is

    def carry_out(instruction: Instruction) -> list[Event]:
        queue.take(Tick())
        return []

    queue = EventQueue(handle, lambda: 0, carry_out)
    with pytest.raises(ProtocolError, match="while the instructions of Tick"):
        queue.take(Tick())
    queue.take(Tick())
    assert taken == [Tick(), Tick()]
