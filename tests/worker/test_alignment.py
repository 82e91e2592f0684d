"""Alignment, state by state of its table: waiting, passed, cancelled, ended; and the moves that are illegal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import ChannelId, Commit, Marker, Reconfigure, WorkerId
from fries_nb.worker.alignment import Alignment

X = WorkerId("X", 0)
A, A2, B, C = (ChannelId(WorkerId(name, index), X) for name, index in (("A", 0), ("A", 1), ("B", 0), ("C", 0)))
SCOPE = frozenset("ABX")


def marker(number: int, scope: frozenset[str] = SCOPE) -> Marker:
    """A commit marker."""
    return Marker(number, scope, Commit(number))


def test_it_is_complete_when_every_channel_from_the_scope_has_delivered_it() -> None:
    """It is complete when every channel from the scope has delivered it."""
    alignment, first = Alignment([A, A2, B, C]), marker(1)
    assert alignment.arrived(first, A) is None
    assert alignment.blocked == {A}
    assert alignment.arrived(first, B) is None
    assert alignment.blocked == {A, B}
    assert alignment.arrived(first, A2) is first
    assert alignment.blocked == set()
    assert alignment.passed(1)


def test_one_that_passed_is_dropped_and_blocks_nothing() -> None:
    """One that passed is dropped and blocks nothing."""
    alignment = Alignment([A, B])
    alignment.applied(1)
    assert alignment.arrived(marker(1), A) is None
    assert alignment.blocked == set()


@pytest.mark.parametrize("early", [True, False])
def test_a_cancelled_one_frees_its_channels_and_never_completes(early: bool) -> None:
    """A cancelled one frees its channels and never completes."""
    alignment, first = Alignment([A, B]), marker(1)
    if not early:
        alignment.arrived(first, A)
    alignment.cancel(1)
    alignment.cancel(1)
    assert alignment.blocked == set()
    assert alignment.arrived(first, A) is None
    assert alignment.arrived(first, B) is None
    assert alignment.arrived(marker(2), A) is None
    assert alignment.arrived(marker(2), B) is not None


def test_the_end_of_a_stream_counts_as_every_marker_that_waits() -> None:
    """The end of a stream counts as every marker that waits."""
    alignment, first = Alignment([A, B]), marker(1)
    alignment.arrived(first, A)
    assert alignment.ended(B) == [first]
    assert alignment.ended(A) == []
    assert alignment.blocked == set()


def test_the_end_of_a_stream_counts_as_every_marker_to_come() -> None:
    """The end of a stream counts as every marker to come."""
    alignment, first = Alignment([A, B]), marker(1)
    assert alignment.ended(B) == []
    assert alignment.arrived(first, A) is first


def test_a_marker_on_an_ended_channel_tells_but_blocks_nothing() -> None:
    """An ended worker passes markers on; those who wait for others learn of it."""
    alignment, first = Alignment([A, A2, B]), marker(1)
    alignment.ended(B)
    assert alignment.arrived(first, B) is None
    assert alignment.blocked == set()
    alignment.arrived(first, A)
    assert alignment.arrived(first, A2) is first


def test_a_marker_on_the_last_ended_channel_completes_at_once() -> None:
    """A marker on the last ended channel completes at once."""
    alignment, first = Alignment([A, B]), marker(1)
    alignment.ended(A)
    alignment.ended(B)
    assert alignment.arrived(first, A) is first
    assert alignment.arrived(first, B) is None


def test_channels_from_outside_the_scope_neither_wait_nor_block() -> None:
    """Channels from outside the scope neither wait nor block."""
    alignment, first = Alignment([A, C]), marker(1)
    assert alignment.arrived(first, A) is first


def test_alignment_does_not_look_at_the_action() -> None:
    """Alignment does not look at the action."""
    alignment = Alignment([A, B])
    change = Marker(1, SCOPE, Reconfigure("u1", frozenset("X")))
    alignment.arrived(change, A)
    assert alignment.arrived(change, B) is change


def test_a_marker_that_comes_twice_is_an_error() -> None:
    """A marker that comes twice is an error."""
    alignment = Alignment([A, B])
    alignment.arrived(marker(1), A)
    with pytest.raises(ProtocolError, match="marker 1 came twice on A"):
        alignment.arrived(marker(1), A)


def test_a_marker_behind_one_that_is_not_applied_is_an_error() -> None:
    """A marker behind one that is not applied is an error."""
    alignment = Alignment([A, B])
    alignment.arrived(marker(1), A)
    with pytest.raises(ProtocolError, match="marker 2 came behind marker 1, not yet applied, on A"):
        alignment.arrived(marker(2), A)


@pytest.mark.parametrize("scope", [frozenset("BX"), frozenset("AB")])
def test_a_marker_on_a_channel_outside_its_scope_is_an_error(scope: frozenset[str]) -> None:
    """A marker on a channel outside its scope is an error."""
    with pytest.raises(ProtocolError, match="not in its scope"):
        Alignment([A, B]).arrived(marker(1, scope), A)


@given(st.permutations([("arrive", A), ("arrive", A2), ("arrive", B), ("end", C)]), st.sets(st.sampled_from([A, B])))
def test_in_any_order_it_completes_exactly_once_at_the_last_arrival(order: list, ends: set[ChannelId]) -> None:
    """In any order it completes exactly once at the last arrival."""
    alignment, first = Alignment([A, A2, B, C]), marker(1)
    completed = []
    for position, (what, channel) in enumerate(order):
        if what == "end" or channel in ends:
            got = alignment.ended(channel)
        else:
            got = [one for one in [alignment.arrived(first, channel)] if one]
        completed += [position] * len(got)
    arrivals = [i for i, (what, channel) in enumerate(order) if channel != C]
    assert len(completed) == (0 if ends >= {A, B, A2} else 1)
    assert not completed or completed[0] == arrivals[-1]
    assert alignment.blocked == set()
