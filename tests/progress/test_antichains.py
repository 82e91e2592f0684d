"""Antichains and counted antichains against brute force, and against times that are compared one by one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from progress_observer import unshrunk

from fries_nb.errors import ProtocolError
from fries_nb.progress.times import SPARE, Antichain, CountedAntichain, precedes

TIMES = st.tuples(st.integers(0, 2), st.integers(-3, 5), st.integers(0, 3))


def minimal_of(times) -> tuple:
    """The minimal ones, by comparing all pairs."""
    return tuple(sorted(one for one in set(times) if not any(o != one and precedes(o, one) for o in times)))


@given(st.lists(TIMES), TIMES)
def test_an_antichain_is_the_minimal_times(times, asked):
    """Its elements are those of brute force, and it is below what any of the times is below."""
    antichain = Antichain.of(times)
    assert antichain.elements == minimal_of(times)
    assert antichain.less_equal(asked) == any(precedes(time, asked) for time in times)
    assert antichain.less_than(asked) == any(time != asked and precedes(time, asked) for time in times)


@given(st.lists(TIMES), st.integers(-3, 5), st.integers(0, 3))
def test_a_moment_can_come_in_any_version(times, moment, round):
    """``may_bring`` holds exactly if a row of some version still can."""
    antichain = Antichain.of(times)
    some = any(antichain.less_equal((version, moment, round)) for version in range(4))
    assert antichain.may_bring(moment, (round,)) == some


@given(st.lists(TIMES), st.lists(TIMES))
def test_a_frontier_leads_to_what_it_precedes(before, after):
    """One may follow another exactly if what is below it is below the other."""
    one, other = Antichain.of(before), Antichain.of(after)
    space = [(version, moment, round) for version in range(3) for moment in range(-3, 6) for round in range(4)]
    assert one.leads_to(other) == all(one.less_equal(time) for time in space if other.less_equal(time))


@given(st.data())
def test_a_counted_antichain_is_the_frontier_of_its_multiset(data):
    """After any sequence of updates, whose counts never are negative."""
    counted, model = CountedAntichain(), Counter()
    for _ in range(data.draw(st.integers(1, 25))):
        held = sorted(model)
        takes = held and data.draw(st.booleans())
        time = data.draw(st.sampled_from(held) if takes else TIMES)
        delta = -data.draw(st.integers(1, model[time])) if takes else data.draw(st.integers(1, 3))
        counted.update(time, delta)
        model += Counter({time: delta}) if delta > 0 else Counter()
        model -= Counter({time: -delta}) if delta < 0 else Counter()
        assert counted.frontier.elements == minimal_of(model)


def test_outdated_entries_are_given_up():
    """Many moments that come and go behind the least one do not remain in memory."""
    counted = CountedAntichain()
    counted.update((0, 0), 1)
    for moment in range(1, 50 * SPARE):
        counted.update((0, moment), 1)
        counted.update((0, moment), -1)
    (moments,) = counted._moments.values()
    assert len(moments._heap) <= SPARE + 3
    counted.update((0, 0), -1)
    assert (counted.frontier.elements, counted._moments) == ((), {})


def test_what_is_not_there_cannot_be_taken():
    """A count that would become negative is an error."""
    counted = CountedAntichain()
    counted.update((0, 4), 1)
    with pytest.raises(ProtocolError, match="t=4 was taken 2 times from an antichain that has it 1 times"):
        counted.update((0, 4), -2)


def _last_alone(counted, time):
    """What has come last is taken for the only minimal time."""
    counted.frontier = Antichain((time,))


def _forgetful(counted, time):
    """What a time preceded does not come forth when the time goes."""
    counted.frontier = Antichain(tuple(known for known in counted.frontier.elements if known != time))


@pytest.mark.parametrize(("method", "instead"), [("_lower_to", _last_alone), ("_raise_from", _forgetful)])
def test_the_model_sees_a_wrong_frontier(method, instead, monkeypatch):
    """Without either rule the frontier of some multiset is wrong."""
    monkeypatch.setattr(CountedAntichain, method, instead)
    with pytest.raises(AssertionError):
        unshrunk(test_a_counted_antichain_is_the_frontier_of_its_multiset)()
