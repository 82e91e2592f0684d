"""The tables of states: every move that a table has is made, every other one is refused, and the machines obey."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from itertools import product

import pytest
from controller_setting import FM_ALONE, flow

from fries_nb.controller.commits import Checkpoints, CommitNumbers, Recovery
from fries_nb.controller.coordinator import alone
from fries_nb.controller.events import ChangeRequested
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Membership, Workers
from fries_nb.controller.states import CHANGE_MOVES, TABLES, ChangeState, HostState
from fries_nb.controller.transactions import Transaction
from fries_nb.errors import ProtocolError
from fries_nb.transitions import moved

PAIRS = [(what, before, after) for what, moves in TABLES.items() for before, after in product(moves, moves)]


@pytest.mark.parametrize(("what", "before", "after"), PAIRS)
def test_only_the_moves_of_a_table_are_possible(what: str, before: StrEnum, after: StrEnum) -> None:
    """Every pair of states of every machine."""
    if after in TABLES[what][before]:
        assert moved(TABLES[what], before, after, what) is after
    else:
        with pytest.raises(ProtocolError, match=f"{what} is {before} and cannot be {after}; next is"):
            moved(TABLES[what], before, after, what)


@pytest.mark.parametrize("what", TABLES)
def test_every_state_of_a_table_can_be_reached(what: str) -> None:
    """From the first one, where the machine begins; and the table has all states of its kind."""
    moves = TABLES[what]
    first = next(iter(moves))
    assert set(moves) == set(type(first))
    reached, ahead = set(), [first]
    while ahead:
        state = ahead.pop()
        if state not in reached:
            reached.add(state)
            ahead += moves[state]
    assert reached == set(moves)


class _Machine:
    """One of the machines of a controller: where it is put, where it is, and what moves it."""

    def __init__(self, of: object, state: str, move: Callable[..., None]) -> None:
        self.of, self.state, self.move = of, state, move


def machine(what: str) -> _Machine:
    """The machine that obeys this table."""
    workers = Workers(flow("a>b b>out"))
    if what == "a run":
        life = Lifecycle(flow("a>out"), 1, 1, None)
        return _Machine(life, "state", life._move)
    if what == "a change":
        change = Transaction(ChangeRequested("u1", FM_ALONE, {"FM": b"code"}), [], (), now_ns=0)
        return _Machine(change, "state", change.move)
    attempts = Checkpoints(workers, MarkerCoordinator(workers), CommitNumbers(None), Recovery(1), "r", alone)
    return _Machine(attempts, "phase", attempts.move)


@pytest.mark.parametrize(
    ("what", "before", "after"), [each for each in PAIRS if each[0] in ("a run", "a change", "a checkpoint")]
)
def test_the_machines_of_a_controller_obey_their_tables(what: str, before: StrEnum, after: StrEnum) -> None:
    """Legal moves go; all others raise and leave the state as it was."""
    one = machine(what)
    setattr(one.of, one.state, before)
    if after in TABLES[what][before]:
        one.move(after)
        assert getattr(one.of, one.state) is after
    else:
        with pytest.raises(ProtocolError, match=f"is {before} and cannot be {after}; next is"):
            one.move(after)
        assert getattr(one.of, one.state) is before


@pytest.mark.parametrize(("before", "after"), list(product(HostState, HostState)))
def test_hosts_obey_their_table(before: HostState, after: HostState) -> None:
    """One host among two; the other one is left as it is."""
    members = Membership(2, 1)
    members._states[1] = before
    legal = after in TABLES["a host"][before]
    if legal:
        members._move(1, after)
    else:
        with pytest.raises(ProtocolError, match=f"host 1 is {before} and cannot be {after}"):
            members._move(1, after)
    assert members._states == {0: HostState.AWAITED, 1: after if legal else before}


def test_a_decided_change_cannot_be_aborted() -> None:
    """After the first FCM some worker may have switched, so "nothing changed" can no longer be said."""
    assert ChangeState.ABORTED not in CHANGE_MOVES[ChangeState.COMMITTING]
    assert ChangeState.COMMITTING not in CHANGE_MOVES[ChangeState.REQUESTED]


def test_every_end_of_a_change_is_final() -> None:
    """A change resolves once."""
    ends = {ChangeState.DONE, ChangeState.ABORTED, ChangeState.FAILED, ChangeState.REHEARSED}
    assert {state for state in ChangeState if not CHANGE_MOVES[state]} == ends
