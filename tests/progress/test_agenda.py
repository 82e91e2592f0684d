"""Agendas against a list of entries: what is ripe, in which order, and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from fries_nb.errors import ProtocolError, TokenError
from fries_nb.progress.agenda import Agenda, EndAgenda, Firing
from fries_nb.progress.progress_graph import ChangeBatch
from fries_nb.progress.times import Antichain, Time
from fries_nb.progress.tokens import TokenBook

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("frame"), st.integers(0, 1), st.integers(0, 9), st.integers(0, 1)),
        st.tuples(st.just("call"), st.integers(0, 9), st.integers(0, 3)),
        st.tuples(st.just("failing"), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=3)),
        st.tuples(st.just("fire"), st.integers(0, 9), st.integers(1, 2)),
        st.tuples(st.just("restore")),
    ),
    max_size=30,
)


class ListOfEntries:
    """The model: entries in a list, each operation as its sentence says. Frames come at or behind the frontier."""

    def __init__(self) -> None:
        self.entries: list[tuple[Time, int]] = []
        self.stamp: Time = (0, 0, 0)
        self.passed = 0

    def call(self, t: int, key: int) -> bool:
        """Whether there was a right to it."""
        version, at, *rounds = self.stamp
        time = (version, t, *rounds)
        held = [one for one, _ in self.entries if all(mine <= its for mine, its in zip(one, time, strict=True))]
        if t < at and not held:
            return False
        if not any(one[1:] == time[1:] and other == key for one, other in self.entries):  # in whatever version
            self.entries.append((time, key))
        return True

    def ripe(self) -> list[tuple[Time, int]]:
        """What is due, in order."""
        due = [entry for entry in self.entries if entry[0][1] < self.passed]
        return sorted(due, key=lambda entry: (entry[0][1], entry[0]))


def played(steps: list[Any], make: Callable[[ChangeBatch], Agenda] = lambda changes: Agenda("W", changes)) -> int:
    """Play steps with an agenda and the model; returns how many entries have fired."""
    counts, model, fired = ChangeBatch(), ListOfEntries(), 0
    agenda = make(counts)
    agenda.begin(model.stamp)
    for step in steps:
        match step:
            case ("frame", version, t, round_):
                model.stamp = (version, max(t, model.passed), round_)
                agenda.begin(model.stamp)
            case ("call", t, key):
                assert (_refused(agenda, t, key)) is not model.call(t, key)
            case ("failing", calls):
                mark = agenda.mark()
                for t, key in calls:
                    _refused(agenda, t, key)
                agenda.undo(mark)
            case ("fire", t, limit):
                model.passed = max(t, model.passed)
                agenda.advance(Antichain.of([(0, model.passed, 0)]))
                fired += _fire(agenda, model, limit)
                agenda.begin(model.stamp)
            case ("restore",):
                saved, agenda = agenda.saved(), make(counts)
                agenda.load([entry for some in saved.entries.values() for entry in some], saved.fired)
                agenda.advance(Antichain.of([(0, model.passed, 0)]))
                agenda.begin(model.stamp)
        assert Counter({change.time: change.delta for change in counts}) == Counter({time for time, _ in model.entries})
        assert sorted(agenda.held) == sorted({time for time, _ in model.entries})
    return fired


def _refused(agenda: Agenda, t: int, key: int) -> bool:
    try:
        agenda.call(t, key)
    except TokenError:
        return True
    return False


def _fire(agenda: Agenda, model: ListOfEntries, limit: int) -> int:
    fired = 0
    model.stamp = (model.stamp[0], max(model.stamp[1], model.passed), *model.stamp[2:])
    while agenda.is_ripe:
        firing = agenda.take(limit)
        expected = model.ripe()
        assert 1 <= len(firing.keys) <= limit
        times = [(firing.time[0], t, *firing.time[2:]) for t in firing.moments]
        assert [time for time, _ in expected[: len(firing.keys)]] == times
        for time, key in zip(times, firing.keys, strict=True):
            model.entries.remove((time, key))
        assert firing.time in agenda.held  # the right to it lasts until its rows have left
        agenda.done(firing)
        fired += len(firing.keys)
    assert model.ripe() == []
    return fired


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_an_agenda_is_a_list_of_entries(steps: list[Any]) -> None:
    """Ripe ones come in order, each once; each time with an entry is counted once, after failures and restores too."""
    played(steps)


class NotUndone(Agenda):
    """Leaves the entries of a failing tuple."""

    def undo(self, mark: int) -> None:
        del self._journal[mark:]


class CountsKeys(Agenda):
    """Counts each key of a time."""

    def call(self, t: int, key: Any) -> None:
        super().call(t, key)
        self.changes.update(self._location, (self.stamp[0], t, *self.stamp[2:]), +1)


class KeepsRight(Agenda):
    """Does not give up the right to a time."""

    def done(self, firing: Firing) -> None:
        self._taken.pop(firing.time, None)


class TooEarly(Agenda):
    """Fires when the frontier has reached a time."""

    def advance(self, frontier: Antichain) -> None:
        super().advance(Antichain.of([(time[0], time[1] + 1, *time[2:]) for time in frontier]))


class AnyTime(Agenda):
    """Makes entries without a right to them."""

    def _is_held(self, t: int) -> bool:
        return True


@pytest.mark.parametrize("mutant", [NotUndone, CountsKeys, KeepsRight, TooEarly, AnyTime])
def test_the_model_sees(mutant: type[Agenda]) -> None:
    """The property fails with each mutant."""

    @given(STEPS)
    @settings(max_examples=300, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    def broken(steps: list[Any]) -> None:
        played(steps, lambda changes: mutant("W", changes))

    with pytest.raises((AssertionError, ProtocolError, ValueError, KeyError, ExceptionGroup)):
        broken()


def test_something_fires() -> None:
    """The property is not satisfied by nothing happening."""
    calls = [("call", 5, 1), ("call", 5, 2), ("call", 3, 1)]
    steps = [("frame", 0, 2, 0), *calls, ("fire", 5, 1), ("restore",), ("fire", 9, 1)]
    assert played(steps) == 3


def test_what_has_fired_is_saved() -> None:
    """A restored agenda makes no entry for it, also where the bins come from several workers."""
    agenda = Agenda("W", ChangeBatch())
    agenda.begin((0, 1))
    agenda.call(5, "a")
    agenda.call(5, "b")
    agenda.advance(Antichain.of([(0, 6)]))
    agenda.done(agenda.take(1))
    saved = agenda.saved()
    one, several = Agenda("W", ChangeBatch()), Agenda("W", ChangeBatch())
    entries = [entry for some in saved.entries.values() for entry in some]
    one.load(entries, saved.fired)
    several.load(entries, {}, {0: saved.fired})
    for restored in (agenda, one, several):
        restored.begin((0, 8))
        assert (restored.may_call(5, "a"), restored.may_call(7, "a"), restored.may_call(8, "a")) == (False, True, True)


def test_nothing_ripe_is_not_taken() -> None:
    """Nor is a firing finished that was not begun."""
    agenda = Agenda("W", ChangeBatch())
    with pytest.raises(ProtocolError, match="W was to fire, and has no entry whose time has passed"):
        agenda.take(1)
    with pytest.raises(ProtocolError, match="which it had not begun"):
        agenda.done(Firing((0, 5), (1,), (5,)))


def test_there_is_no_time_beyond_those_of_columns_and_frames():
    """An entry, and a token, of a time that no frame could be stamped with."""
    changes = ChangeBatch()
    agenda, book = Agenda("W", changes), TokenBook("W", changes)
    with pytest.raises(TokenError, match="W cannot call for time 9223372036854775808; expected one below 2"):
        agenda.call(2**63, "c7")
    assert len(agenda) == len(changes) == 0
    with book.bound(), pytest.raises(TokenError, match="W: a token came to time 9223372036854775808; expected one"):
        book.keep(0, (0, 5)).downgrade(2**63)


def bins_of(keys: Any) -> list[int]:
    """Keys are their bins."""
    return list(keys)


def test_a_bin_that_moves_takes_along_how_far_it_has_fired() -> None:
    """What is late for its keys stays late, though the new owner has not fired as far; for other keys it is not."""
    old, new = (Agenda("W", ChangeBatch(), bins_of) for _ in range(2))
    for time, key in ((3, 1), (8, 1), (8, 2)):
        old.call(time, key)
    old.advance(Antichain.of([(0, 6)]))
    old.done(old.take(9))
    found: dict[int, Any] = {}
    for _ in old.sort_out({1}, 1, found):
        pass
    assert found == {1: [((0, 8), 1)]}
    fired = old.release(1, found[1])
    assert (fired, [entry for _, entry in enumerate(old.saved().entries)]) == ({(): 3}, [2])
    new.call(2, 7)
    new.receive(1, found[1], fired)
    assert [new.may_call(time, key) for time, key in ((3, 1), (4, 1), (3, 7))] == [False, True, True]
    assert new.saved().entries == {7: [((0, 2), 7)], 1: [((0, 8), 1)]}
    total = Counter({(one.location, one.time): one.delta for one in old.changes})
    total.update({(one.location, one.time): one.delta for one in new.changes})
    assert {str(place): count for place, count in total.items() if count} == {
        "(GraphLocation(operator='W', to='', branch=0), (0, 8))": 2,
        "(GraphLocation(operator='W', to='', branch=0), (0, 2))": 1,
    }
    new.advance(Antichain.of([(0, 6)]))
    new.done(new.take(9))
    new.call(7, 7)
    new.advance(Antichain.of([(0, 8)]))
    new.done(new.take(9))
    assert (new.fired, new._fired_in) == ({(): 7}, {})


END_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("frame"), st.integers(0, 1), st.integers(0, 20)),
        st.tuples(st.just("call"), st.integers(0, 20), st.integers(0, 3)),
        st.tuples(st.just("failing"), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=3)),
        st.tuples(st.just("fire"), st.integers(0, 20), st.integers(1, 2)),
        st.tuples(st.just("restore")),
        st.tuples(st.just("move"), st.integers(0, 3), st.integers(1, 2)),
    ),
    max_size=30,
)


def ends_played(steps: list[Any], make: type[EndAgenda] = EndAgenda) -> int:
    """Play steps with ends and the model, a dict of keys to their last calls; returns how many have fired."""
    counts, model, fired, passed, stamp = ChangeBatch(), dict[int, int](), 0, 0, (0, 0)
    agenda = make("M", counts, bins_of)
    agenda.begin(stamp)
    for step in steps:
        match step:
            case ("frame", version, t):
                stamp = (version, max(t, passed))
                agenda.begin(stamp)
            case ("call", after, key):
                agenda.call(stamp[1] + after, key)
                model[key] = max(model.get(key, 0), stamp[1] + after)
            case ("failing", calls):
                mark = agenda.mark()
                for after, key in calls:
                    agenda.call(stamp[1] + after, key)
                agenda.undo(mark)
            case ("fire", t, limit):
                passed = max(t, passed)
                stamp = (stamp[0], max(stamp[1], passed))
                agenda.advance(Antichain.of([(0, passed)]))
                fired += _fire_ends(agenda, model, passed, limit)
                agenda.begin(stamp)
            case ("restore",):
                counts, saved = ChangeBatch(), agenda.saved()
                agenda = make("M", counts, bins_of)
                agenda.load([entry for some in saved.entries.values() for entry in some], saved.fired)
                for time in agenda.held:  # as whoever restores it does
                    counts.update(agenda._location, time, +1)
                agenda.advance(Antichain.of([(0, passed)]))
                agenda.begin(stamp)
            case ("move", bin, count):
                found: dict[int, Any] = {}
                for _ in agenda.sort_out({bin}, count, found):
                    pass
                entries = found.get(bin, [])
                assert [time[1] for time, _ in entries] == [model.get(bin)] * len(entries)
                agenda.receive(bin, entries, agenda.release(bin, entries))
        assert {key: agenda.end_of(key) for key in range(4) if agenda.end_of(key) is not None} == model
        assert {change.time: change.delta for change in counts} == dict.fromkeys(agenda.held, 1)
        assert all(any(held[1] <= end for held in agenda.held) for end in model.values())  # a right to each
        saved_ends = {key: time[1] for some in agenda.saved().entries.values() for time, key in some}
        assert saved_ends == model
    return fired


def _fire_ends(agenda: EndAgenda, model: dict[int, int], passed: int, limit: int) -> int:
    fired = 0
    while agenda.is_ripe:
        firing = agenda.take(limit)
        assert len(firing.keys) <= limit
        assert not firing.keys or firing.time in agenda.held
        for key, t in zip(firing.keys, firing.moments, strict=True):
            assert model.pop(key) == t < passed
            fired += 1
        agenda.done(firing)
    assert not any(end < passed for end in model.values())
    return fired


@given(END_STEPS)
@settings(max_examples=150, deadline=None)
def test_ends_are_the_last_calls_of_keys(steps: list[Any]) -> None:
    """Each fires once, when its time has passed; there is a right to it all the time, and few are counted."""
    ends_played(steps)


class EndsTooEarly(EndAgenda):
    """Fires keys where their entries stand."""

    def _take(self, time: Time, limit: int) -> list[Any]:
        for key in self._entries[time]:
            self._ends.pop(key, None)
        return super()._take(time, limit)


class EndsNotUndone(EndAgenda):
    """Keeps the ends of a failing tuple."""

    def undo(self, mark: int) -> None:
        del self._journal[mark:]


class EndsWithoutRight(EndAgenda):
    """Gives up the right to an end before there is another one."""

    def _bring(self, key: Any) -> None:
        self._take_back(self._at[key], key)


class EndsMovedTooEarly(EndAgenda):
    """Moves entries from where they stand."""

    def _bring(self, key: Any) -> None:
        del self._ends[key]


@pytest.mark.parametrize("mutant", [EndsTooEarly, EndsNotUndone, EndsWithoutRight, EndsMovedTooEarly])
def test_the_model_of_ends_sees(mutant: type[EndAgenda]) -> None:
    """The property fails with each mutant."""

    @given(END_STEPS)
    @example([("call", 2, 1), ("call", 9, 1), ("fire", 5, 1)])
    @settings(max_examples=300, deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
    def broken(steps: list[Any]) -> None:
        ends_played(steps, mutant)

    with pytest.raises((AssertionError, ProtocolError, ValueError, KeyError, ExceptionGroup)):
        broken()
