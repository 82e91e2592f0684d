"""States that are saved while they change: what is stored is what was there at each marker, whatever comes between."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

from fries_nb.operators import cold_states
from fries_nb.operators.cold_states import ColdStates, MemoryFile
from fries_nb.operators.pickled_states import loaded_states
from fries_nb.operators.state import KeyedState, UnreadableState
from fries_nb.operators.states_to_save import StatesToSave
from fries_nb.protocol.partitioning import bins_of_keys

KEYS = 12
BIN_OF = dict(zip(range(KEYS), bins_of_keys([*range(KEYS)]).tolist(), strict=True))


class Stored:
    """What a storage makes of attempts: parts behind parts, bin by bin."""

    def __init__(self) -> None:
        self.number = 0
        self.parts: dict[int, tuple[bytes, ...]] = {}

    def take(self, number: int, attempt: StatesToSave) -> bool:
        """Store an attempt, if it can build on what is there."""
        if attempt.since not in (0, self.number):
            return False
        kept = {} if not attempt.since else {bin: held for bin, held in self.parts.items() if bin not in attempt.gone}
        self.parts = {bin: kept.get(bin, ()) + attempt.parts.get(bin, ()) for bin in {*kept, *attempt.parts}}
        self.number = number
        return True

    def states(self) -> dict[Any, Any]:
        """All states."""
        return loaded_states([part for parts in self.parts.values() for part in parts], {})


def grown(state: Any) -> Any:
    """Another form of a state."""
    return {"n": state["n"], "form": state.get("form", 0) + 1}


def shrunk(state: Any) -> Any:
    """Back."""
    return {"n": state["n"], "form": state["form"] - 1}


class DiskFile(MemoryFile):
    """A file on it."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def write(self, content: bytes, start: int) -> None:
        """Write, perhaps a part of it only."""
        part = content if self._disk.has_room() else content[: self._disk.chance.randint(0, len(content))]
        super().write(part, start)
        if len(part) < len(content):
            raise OSError("no space left on the disk")


class Disk:
    """A disk that is full now and then."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def has_room(self) -> bool:
        """Whether the next write has a place."""
        return self.chance.random() < 0.9

    def file(self) -> DiskFile:
        """An empty file."""
        if not self.has_room():
            raise OSError("no space left for a file")
        return DiskFile(self)


class Run:
    """A state under one seed, what it must hold, and what is stored of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.state, self.expected, self.stored = KeyedState(lambda: {"n": 0, "form": self.form}), {}, Stored()
        self.form = self.number = 0
        self.attempt: StatesToSave | None = None
        self.at_marker: dict[Any, Any] = {}
        self.saved = self.given_up = self.lost = 0
        self.elsewhere: dict[int, dict[Any, Any]] = {}
        self.disk, self.moved, self.refused = Disk(self.chance), 0, 0

    def key(self) -> int:
        """A key whose bin is here."""
        return self.chance.choice([key for key, bin in BIN_OF.items() if bin not in self.elsewhere])

    def touch(self) -> None:
        """A row."""
        key = self.key()
        state = self.state.find(key) or self.state.touch(key)
        state["n"] += 1
        self.expected[key] = {"n": self.expected.get(key, {"n": 0})["n"] + 1, "form": self.form}

    def drop(self) -> None:
        """A key goes."""
        key = self.key()
        self.state.drop(key)
        self.expected.pop(key, None)

    def put(self) -> None:
        """A state is replaced, as by the result of a call."""
        key = self.key()
        self.state.put(key, {"n": 100, "form": self.form})
        self.expected[key] = {"n": 100, "form": self.form}

    def look(self) -> None:
        """A state is looked at, and nothing changes."""
        key = self.key()
        assert self.state.peek(key) == self.expected.get(key)

    def change(self) -> None:
        """A change with a transformation, or its rollback."""
        if self.chance.random() < 0.3:
            self.state.transform(grown)
            self.form += 1
        elif self.form and self.chance.random() < 0.3:
            self.state.transform(shrunk)
            self.form -= 1
        self.expected = {key: state | {"form": self.form} for key, state in self.expected.items()}

    def move(self) -> None:
        """A bin leaves, or comes back."""
        if self.elsewhere and self.chance.random() < 0.5:
            bin, states = self.elsewhere.popitem()
            self.state.add({key: dict(state) | {"form": self.form} for key, state in states.items()})
            self.expected |= {key: dict(state) | {"form": self.form} for key, state in states.items()}
            return
        bin = BIN_OF[self.key()]
        keys = [key for key in self.expected if BIN_OF[key] == bin]
        if not keys or len(self.elsewhere) > KEYS // 2:
            return
        while self.state.sort_keys(3):
            pass
        self.elsewhere[bin] = self.state.take(self.state.keys_of(bin))
        self.state.leave(bin)
        for key in keys:
            del self.expected[key]

    def mark(self) -> None:
        """A marker: everything is to be stored as it is now."""
        self.given_up += self.attempt is not None
        self.attempt = self.state.begin_saving()
        self.at_marker = {key: dict(state) for key, state in self.expected.items()}
        self.number += 1

    def save(self) -> None:
        """A slice; at the end the storage takes it, unless it is full."""
        if self.attempt is None or self.state.save_some(self.chance.randint(1, 4)):
            return
        attempt, self.attempt = self.attempt, None
        assert attempt.failure is None
        self.state.end_saving(self.number)
        if self.chance.random() < 0.2:
            self.lost += 1
            self.stored.number = -1
            self.state.save_all_again()
            return
        assert self.stored.take(self.number, attempt)
        self.saved += 1
        assert self.stored.states() == self.at_marker
        if self.chance.random() < 0.2:  # a restart
            self.state = KeyedState(self.state.initial)
            self.load_later()
            self.expected = {key: dict(state) | {"form": self.form} for key, state in self.at_marker.items()}
            if any(state["form"] != self.form for state in self.at_marker.values()):
                self.state.load({key: dict(state) for key, state in self.expected.items()})
            self.elsewhere.clear()


    def load_later(self) -> None:
        """Begin with what is stored, which is read bin by bin."""

        def reading(parts: tuple[bytes, ...]) -> Any:
            return lambda: iter(loaded_states(parts, {}).items())

        bins = {bin: reading(parts) for bin, parts in self.stored.parts.items()}
        self.state.load_later(bins, len(self.at_marker), self.stored.number, ())

    def read(self) -> None:
        """Some of what is unread."""
        self.state.read_some(self.chance.randint(1, 3))

    def move_out(self) -> None:
        """Some states leave memory, unless the disk is full."""
        moved, failure, _ = self.state.move_out(self.chance.randint(1, 4), self.disk.file)
        assert failure is None or isinstance(failure.error, OSError)
        self.moved += moved
        self.refused += failure is not None

    def check_log(self) -> None:
        """The log has what the forms say, and little more than twice as much."""
        log, forms = self.state._kept.log, self.state._kept.forms
        if log is not None:
            places = [place for form in forms for place in form.cold.values()]
            assert len(log) == len(places)
            assert log.bytes == sum(len(log.pickled(place)[0]) for place in places)
            assert sum(map(len, (form.states for form in forms))) == self.state.sizes().keys


def play(seed: int, steps: int = 120, beyond_memory: bool = False) -> Run:
    """Play a seed; what is stored and what is there are compared all the time."""
    run = Run(seed)
    acts: list[Callable[[], None]] = [run.touch] * 6 + [run.drop, run.put, run.look, run.change, run.move]
    acts += [run.mark, run.read]
    acts += [run.move_out] * 5 if beyond_memory else []
    for _ in range(steps):
        run.chance.choice([*acts, *[run.save] * 5])()
        run.check_log()
    assert len(run.state) == len(run.expected)
    assert {key: run.state.get(key) for key in [*run.expected, *run.state.keys()]} == run.expected
    return run


def test_what_is_stored_is_what_was_there_at_the_marker() -> None:
    """With rows, keys that go, transformations, bins that move, attempts given up or lost, and restarts."""
    runs = [play(seed) for seed in range(400)]
    assert min(sum(run.saved for run in runs), sum(run.given_up for run in runs), sum(run.lost for run in runs)) > 50


def play_beyond_memory(seed: int) -> Run:
    """Play a seed with states that leave memory."""
    return play(seed, 200, beyond_memory=True)


def test_the_same_holds_of_states_that_are_not_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """In segments of a few states each, on a disk that is full now and then."""
    monkeypatch.setattr(cold_states, "SEGMENT_BYTES", 100)
    runs = [play_beyond_memory(seed) for seed in range(400)]
    assert min(sum(run.saved for run in runs), sum(run.given_up for run in runs), sum(run.lost for run in runs)) > 50
    assert (sum(run.moved for run in runs) > 5_000, sum(run.refused for run in runs) > 500) == (True, True)


def _saves_later(self: KeyedState, key: Any, form: Any, to: Any) -> Any:
    """The state is moved on, and pickled with the others: after the touch."""
    found = form.states[key]
    for following, transform in form.way_to(to) or ():
        found = found if transform is None else transform(found)
        following.states[key] = found
        del form.states[key]
        form = following
    return found


def _forgets(self: KeyedState, key: Any) -> None:
    for states in self._all():
        states.pop(key, None)


def _leaves_the_unread_behind(self: KeyedState, count: int, sort: Any = KeyedState.sort_keys) -> bool:
    unread, self._kept.unread = self._kept.unread, None
    left: bool = sort(self, count)
    self._kept.unread = unread
    return left


BROKEN = {
    "a bin that is unread misses a move": (KeyedState, "sort_keys", _leaves_the_unread_behind),
    "a state is not saved before it is touched": (KeyedState, "_bring", _saves_later),
    "a key that has gone is not told": (KeyedState, "drop", _forgets),
    "a bin that has left is not told": (KeyedState, "leave", lambda self, bin_: None),
    "what was lost is not saved again": (KeyedState, "save_all_again", lambda self: None),
    "what was given up is forgotten": (StatesToSave, "_take_over", lambda self, earlier: None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_storage_that_is_told_too_little_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule, undone."""
    monkeypatch.setattr(*BROKEN[name])
    with pytest.raises((AssertionError, KeyError)):
        _ = [play(seed) for seed in range(400)]


def _moves_in_vain(self: ColdStates, key: Any, place: int, move: Any = ColdStates.move) -> int:
    move(self, key, place)
    return place


def _believes_the_disk(self: ColdStates, segment: Any, states: Any, pickled: Any) -> Any:
    put = append(self, segment, states, pickled)
    if not isinstance(put.error, OSError):
        return put
    write, segment.file.write = segment.file.write, lambda content, start: None
    put = append(self, segment, states, pickled)
    segment.file.write = write
    return put


def _counts_on(self: ColdStates, place: int) -> None:
    self._count -= 1


def _looks_in_memory_only(self: KeyedState, key: Any, holder: Any = KeyedState._holder) -> Any:
    log, self._kept.log = self._kept.log, None
    found = holder(self, key)
    self._kept.log = log
    return found


append = ColdStates._append
BROKEN_COLD = {
    "a state that was moved in the log is looked for where it was": (ColdStates, "move", _moves_in_vain),
    "a write that failed is believed": (ColdStates, "_append", _believes_the_disk),
    "a gap is not noticed": (ColdStates, "drop", _counts_on),
    "a key is looked for in memory only": (KeyedState, "_holder", _looks_in_memory_only),
    "only what is in memory is saved": (StatesToSave, "add", lambda self, key, state, names: None),
    "what is on disk is left behind as bins move": (KeyedState, "keys", lambda self: [*self._form.states]),
}


@pytest.mark.parametrize("name", BROKEN_COLD)
def test_a_state_that_is_lost_on_disk_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule of states that are not in memory, undone."""
    monkeypatch.setattr(cold_states, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(*BROKEN_COLD[name])
    with pytest.raises((AssertionError, KeyError, UnreadableState, OSError, pickle.UnpicklingError, EOFError)):
        _ = [play_beyond_memory(seed) for seed in range(400)]


def test_what_has_not_been_touched_is_not_written_again() -> None:
    """Of a thousand keys the ten that a row has met, and those that a person has looked at are not among them."""
    state = KeyedState(dict)
    for key in range(1_000):
        state.touch(key)["n"] = 0
    first = state.begin_saving()
    while state.save_some(100):
        pass
    state.end_saving(1)
    found = loaded_states([part for parts in first.parts.values() for part in parts], {})
    assert (first.since, len(found)) == (0, 1_000)
    for key in range(1_000):
        state.peek(key)
    for key in range(10):
        state.get(key)["n"] += 1
    second = state.begin_saving()
    while state.save_some(100):
        pass
    found = loaded_states([part for parts in second.parts.values() for part in parts], {})
    assert (second.since, found) == (1, {key: {"n": 1} for key in range(10)})


def test_a_state_that_cannot_be_pickled_is_named_and_costs_no_row() -> None:
    """Also when it is touched, which comes first here."""
    state = KeyedState(dict)
    state.touch("c7")["lock"] = (one for one in ())
    attempt = state.begin_saving()
    assert state.get("c7") is not None
    assert attempt.failure is not None
    assert attempt.failure.key == "c7"
    assert not state.save_some(1)
    state.end_saving(0)
    del state.get("c7")["lock"]
    again = state.begin_saving()
    while state.save_some(1):
        pass
    assert (again.failure, again.since, [*again.parts]) == (None, 0, bins_of_keys(["c7"]).tolist())


def test_keys_that_go_for_ever_are_not_all_remembered() -> None:
    """Of a run whose checkpoints have failed, or come seldom; then the next one has everything."""
    state = KeyedState(dict)
    for key in range(10):
        state.touch(key)["n"] = key
    state.begin_saving()
    while state.save_some(100):
        pass
    state.end_saving(1)
    for key in range(100, 50_000):
        state.touch(key)
        state.drop(key)
    assert len(state._kept.stored.gone_keys) < 5_000
    again = state.begin_saving()
    while state.save_some(100):
        pass
    found = loaded_states([part for parts in again.parts.values() for part in parts], {})
    assert (again.since, sorted(found)) == (0, [*range(10)])


def test_of_many_keys_that_are_mostly_touched_everything_is_saved() -> None:
    """What is stored would be replaced anyway; of half of them only these are."""
    state = KeyedState(dict)
    for number, touched, since in ((1, 2_000, 0), (2, 1_001, 0), (3, 1_000, 2), (4, 2_000, 0)):
        for key in range(touched):
            state.touch(key)["n"] = number
        attempt = state.begin_saving()
        while state.save_some(500):
            pass
        state.end_saving(number)
        found = loaded_states([part for parts in attempt.parts.values() for part in parts], {})
        assert (attempt.since, len(found)) == (since, 2_000 if not since else touched)
