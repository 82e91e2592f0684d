"""Tables of legal moves of state machines.

>>> from enum import StrEnum
>>> Door = StrEnum("Door", "OPEN SHUT LOCKED")
>>> moves = {Door.OPEN: {Door.SHUT}, Door.SHUT: {Door.OPEN, Door.LOCKED}, Door.LOCKED: {Door.SHUT}}
>>> moved(moves, Door.OPEN, Door.SHUT, "the door").value
'shut'
>>> moved(moves, Door.OPEN, Door.LOCKED, "the door")
Traceback (most recent call last):
fries_nb.errors.ProtocolError: the door is open and cannot be locked; next is shut
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from fries_nb.errors import ProtocolError

S = TypeVar("S", bound=StrEnum)
Moves = Mapping[S, frozenset[S]]
"""The legal moves of a machine: state to its successors. A state without successors is final."""


def moved(moves: Moves[S], state: S, to: S, what: str) -> S:
    """Check a move, and return the next state."""
    if to not in moves[state]:
        legal = ", ".join(sorted(moves[state])) or "nothing, it is over"
        raise ProtocolError(f"{what} is {state} and cannot be {to}; next is {legal}")
    return to
