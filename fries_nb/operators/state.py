"""Keyed state, in bins, transformed key by key.

The key space is divided into ``BINS`` bins by the same stable hash that partitions tuples (``protocol.partitioning``),
so the state of a bin and its tuples move together. Within a worker the states are in flat dicts; a bin is the set of
keys that hash to it, and :meth:`KeyedState.bins` groups them on demand.

A change with a state transformation T (Fries, section 2.2) does not iterate over the state when it commits: states are
in dicts by their *form*, from which T leads to the form after the change. A key is transformed, and moves to another
dict, when it is first accessed, or by :meth:`KeyedState.settle`. If changes follow each other, a key goes through all
forms that it has missed, in order.

Versions that run side by side have forms between which T leads, and its inverse back (:meth:`KeyedState.beside`); each
key is in the form of the version that has touched it last.

>>> state = KeyedState(list)
>>> state.touch("c7").append(12.5)
>>> state.transform(lambda amounts: [*amounts, None])
>>> state.waiting, state.touch("c7"), state.waiting
(1, [12.5, None], 0)
>>> newer = state.beside(lambda amounts: {"amounts": amounts}, lambda state: state["amounts"])
>>> newer.get("c7"), state.get("c7"), len(newer.live)
({'amounts': [12.5, None]}, [12.5, None], 0)
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.keys import canonical_key, why_unchangeable
from fries_nb.dataflow.operators import takes_state
from fries_nb.dataflow.updates import Edits
from fries_nb.errors import FriesError, OperatorError, RunError
from fries_nb.operators.cold_states import ColdStates, LogFile, StateSizes, length_of
from fries_nb.operators.pickled_states import Name, Renewed, copied
from fries_nb.operators.states_to_save import NotPickled, StatesToSave
from fries_nb.protocol.partitioning import bins_of_keys

Transform = Callable[[Any], Any]
_UNTOLD = object()
"""In place of the key of a copy, which is not kept with it."""
MANY = 1_000
"""Number of keys beyond which everything is saved again if most keys have been touched."""
_SORTED = 200
"""Number of keys that are sorted into bins at once."""
_AT_ONCE = 4_096
"""Number of keys that are listed at once to be moved out."""
_MEASURED, _MEASURED_BYTES = 16, 1_000_000
"""Numbers of states, and of their bytes, by which the size of all is estimated."""
_CALLS = 1_000
"""Number of looks at the sizes after which some are measured again, though there are no other keys."""
_SPREAD = 2_654_435_761
"""A prime number whose multiples are spread evenly."""
_NOTED = 1_000
"""Number of new keys, beyond that of all keys, that are noted before those that have gone are forgotten."""


def keeps_state(operator: Operator, function: Any) -> bool:
    """Whether the operator keeps state per key with this function."""
    return operator.traits.keeps_state or (operator.traits.runs_user_code and takes_state(function))


def has_state(operator: Operator, function: Any) -> bool:
    """Whether the operator has states to look at: of windows, its own, or with this function, if it has one."""
    traits = operator.traits
    return traits.timed or traits.keeps_state or (function is not None and keeps_state(operator, function))


@dataclass(frozen=True, slots=True)
class StateCopy:
    """A pickled copy of one key's state, and the transformations that the key has missed so far."""

    pickled: bytes
    missed: tuple[Transform, ...]

    def revive(self, key: Any = _UNTOLD) -> Any:
        """The state as the current function would see it."""
        return transformed(pickle.loads(self.pickled), self.missed, key)


def key_reader(key: Sequence[str]) -> Callable[[Mapping[str, Any]], Any]:
    """The function that reads a row's key: a value, a tuple of values, or ``None`` without any column."""
    return itemgetter(*key) if key else _no_key


def _no_key(row: Mapping[str, Any]) -> None:
    return None


def transformed(state: Any, transforms: tuple[Transform, ...], key: Any = _UNTOLD) -> Any:
    """The state of a key after these transformations, in order."""
    for transform in transforms:
        state = _applied(transform, key, state)
        if state is None:
            raise OperatorError("the state transformation returned None; it must return the new state")
        if why := why_unchangeable(state):
            raise OperatorError(f"the state transformation returned {why}")
    return state


def _applied(transform: Transform, key: Any, state: Any) -> Any:
    """The state of a key after a transformation; only edits of single keys depend on the key."""
    if isinstance(transform, Renewed) and isinstance(transform.then, Edits):
        return transform.then.of(key, Renewed(transform.definitions, None)(state))
    return transform.of(key, state) if isinstance(transform, Edits) else transform(state)


@dataclass(slots=True, eq=False)
class _Form:
    """States in one form, and the transformations that lead to others; ``None`` for one that changes nothing."""

    states: dict[Any, Any] = field(default_factory=dict)
    ways: dict[_Form, Transform | None] = field(default_factory=dict)
    cold: dict[Any, int] = field(default_factory=dict)  # key to the place of its state, if that is not in memory
    oldest: list[Any] = field(default_factory=list)  # the next keys whose states are moved out, the last one first

    @property
    def count(self) -> int:
        """Number of keys."""
        return len(self.states) + len(self.cold)

    def way_to(self, other: _Form) -> list[tuple[_Form, Transform | None]] | None:
        """The forms that a state goes through, each with what leads to it; ``None`` if there is no way."""
        came: dict[_Form, tuple[_Form, Transform | None]] = {self: (self, None)}
        ahead = [self]
        for form in ahead:
            for to, transform in form.ways.items():
                if to not in came:
                    came[to] = form, transform
                    ahead.append(to)
        if other not in came:
            return None
        way: list[tuple[_Form, Transform | None]] = []
        while other is not self:
            before, transform = came[other]
            way.append((other, transform))
            other = before
        return way[::-1]


@dataclass(slots=True)
class _Sampled:
    """The sizes of some states."""

    keys: int = 0  # number of states in memory then
    size: float = 0.0  # mean number of bytes, pickled
    number: int = 0  # number of times that some were measured
    calls: int = 0  # number of times that it was asked for since


@dataclass(slots=True)
class _Kept:
    """What all versions of an operator share of its states: the forms, the oldest first, and the order by bin."""

    forms: list[_Form]
    unsorted: list[Any] | None = None
    sorted: dict[int, list[Any]] = field(default_factory=dict)
    unread: _Unread | None = None
    stored: _Stored = field(default_factory=lambda: _Stored())
    log: ColdStates | None = None  # where the states are that are not in memory
    sampled: _Sampled = field(default_factory=lambda: _Sampled())


class MovedOut(NamedTuple):
    """What was moved out of memory.

    Attributes:
        moved: number of states.
        failure: why the next one could not be moved, if so.
        largest: the key of the largest of them, and its bytes.
    """

    moved: int = 0
    failure: NotPickled | None = None
    largest: tuple[Any, int] = (None, 0)


Reading = Callable[[], Iterator[tuple[Any, Any]]]
"""Reads a bin from where it is stored: its keys, each with its state; raises a FriesError if that fails."""


class UnreadableState(BaseException):
    """A state cannot be read from where it is stored.

    It is no ``Exception``, so that the error policy of an operator does not take it for a failure of its function.
    """

    def __init__(self, error: FriesError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass
class _Unread:
    """Bins that have not been read since the restart, or only in part; of others no key is in memory."""

    form: _Form  # the form of their states
    left: dict[int, Reading]
    keys: int  # number of keys that have not been read
    begun: dict[int, Iterator[tuple[Any, Any]]] = field(default_factory=dict)

    def read(self, bin: int, count: int | None = None) -> list[Any]:
        """Read so many keys of a bin, or the rest of it; returns them."""
        try:
            if bin not in self.begun:
                self.begun[bin] = self.left[bin]()
            states = dict(islice(self.begun[bin], count))
        except FriesError as error:
            raise UnreadableState(error) from error
        self.form.states.update(states)
        self.keys -= len(states)
        if count is None or len(states) < count:
            del self.left[bin], self.begun[bin]
        return [*states]


@dataclass(slots=True)
class _Stored:
    """What all versions share of what has been saved of the states, and of the attempt that is under way."""

    number: int = 0  # that of the last attempt whose states were given away; 0 if the next one must have everything
    names: set[Name] = field(default_factory=set)  # the definitions that the states need which were given away
    same: _Form | None = None  # the states that are as they were then
    gone_keys: dict[Any, None] = field(default_factory=dict)
    gone_bins: set[int] = field(default_factory=set)
    fixed: _Form | None = None  # the states at the last marker that are not pickled yet
    under_way: StatesToSave | None = None
    is_lost: bool = False  # whether nothing can build on what was given away, or is under way

    @property
    def counts(self) -> bool:
        """Whether what goes from now on is, or may become, part of what is stored."""
        return not self.is_lost and (self.number != 0 or self.under_way is not None)


class KeyedState:
    """The state per key of one worker; operators read and write it by these methods only.

    Moves of bins and checkpoints rest on what is noted here of each key that comes and goes, so the dicts are never
    given away. ``None`` is not a state: such a key counts as never seen.

    What is saved at a marker is a form of its own, and so is what has not been touched since. Both have a way to the
    present form that changes nothing. A key goes it when it is touched, and is pickled when it leaves the former.
    """

    def __init__(self, initial: Callable[[], Any]) -> None:
        self.initial = initial  # makes the initial state of a key
        self._form = _Form()
        self._kept = _Kept([self._form])

    def beside(self, transform: Transform | None, back: Transform | None) -> KeyedState:
        """The same states as another version has them: a key is transformed when a row of that touches it, and back."""
        if transform is None and back is None:
            return self
        other = copy.copy(self)
        other._form = _Form({}, {self._form: back})
        self._form.ways[other._form] = transform
        self._kept.forms.append(other._form)
        return other

    def hold(self, other: KeyedState) -> None:
        """Have all states, which are taken to be in this form, while another version seemed to have them."""
        own, others = self._form, other._form
        own.states, others.states, own.cold, others.cold = others.states, own.states, others.cold, own.cold
        same = self._kept.stored.same
        if same is not None and other._form in same.ways:
            same.ways = {self._form: None}

    def close(self, versions: Iterable[KeyedState]) -> None:
        """Go on with the forms of these versions alone: no state gets into another one from now on."""
        used = {one._form for one in versions}
        for form in used:
            form.ways = {to: transform for to, transform in form.ways.items() if to in used}
        self._forget_unused()

    def begun_with(self, initial: Callable[[], Any]) -> KeyedState:
        """The same states, with what makes the initial ones."""
        other = copy.copy(self)
        other.initial = initial
        return other

    def _forget_unused(self) -> None:
        forms, count = self._kept.forms, 0
        while len(forms) != count:
            led, count = {to for form in forms for to in form.ways}, len(forms)
            used = {self._form, self._kept.stored.same, self._kept.stored.fixed}
            used |= set() if self._kept.unread is None else {self._kept.unread.form}
            forms = [one for one in forms if one.count or one in led or one in used]
        self._kept.forms = forms

    @property
    def find(self) -> Callable[[Any], Any]:
        """A function that returns a key's state if it needs neither transformation nor creation, otherwise ``None``."""
        # It costs no more than a dict, and takes a key as it is, canonical or not (see ``dataflow.keys``). On ``None``,
        # or a TypeError since the key is not hashable, call ``touch`` or ``get``. It is valid until the configuration
        # changes, when a chain is compiled anew.
        return self._form.states.get

    @property
    def live(self) -> Mapping[Any, Any]:
        """Key to state, of those in the form of the current configuration; to be read only. It is all in memory."""
        self.read_all()
        self._warm_all()
        ways = ((form, form.way_to(self._form)) for form in self._kept.forms)
        alike = (form for form, way in ways if way is not None and not any(transform for _, transform in way))
        return MappingProxyType({key: state for form in alike for key, state in form.states.items()})

    def get(self, key: Any) -> Any:
        """The state of ``key``, transformed if needed; ``None`` if it was never seen."""
        # If a transformation raises, the state is kept as it was before that one, for a later attempt.
        key = canonical_key(key)
        found = self._form.states.get(key)
        same = self._kept.stored.same
        if found is None and same is not None and key in same.states and self._form in same.ways:
            found = self._form.states[key] = same.states.pop(key)  # the first row of a key behind a checkpoint
            return found
        if found is None and (form := self._holder(key)) is not None:
            found = self._bring(key, form, self._form)
        return found

    def _bring(self, key: Any, form: _Form, to: _Form) -> Any:
        """Bring the state of a key from one form to another; returns it as it is there, ``None`` if there is no way."""
        way, stored = form.way_to(to), self._kept.stored
        if way is None:
            return None
        found = form.states[key]
        for following, transform in way:
            if form is stored.fixed and stored.under_way is not None:
                stored.under_way.save(key, found)
            found = found if transform is None else transformed(found, (transform,), key)
            following.states[key] = found
            del form.states[key]
            form = following
        return found

    def peek(self, key: Any) -> Any:
        """The state of ``key`` as ``get`` has it; of one that is in the form of another version, a copy."""
        key = canonical_key(key)
        form = self._holder(key)
        if form is None or form is self._form:
            return self.get(key)
        if not any(transform for _, transform in form.way_to(self._form) or ()):
            return form.states[key]
        if self._form.way_to(form) is None:
            return self.get(key)
        return self._copy(form, form.states[key]).revive(key)

    def copy_of(self, key: Any) -> StateCopy | None:
        """A copy of the state of ``key``, which stays in the form that it is in; ``None`` if it was never seen."""
        form = self._holder(canonical_key(key))
        return None if form is None else self._copy(form, form.states[canonical_key(key)])

    def as_held(self, key: Any) -> KeyedState:
        """The same states in the form that the state of ``key`` is in; this one if it was never seen."""
        key = canonical_key(key)
        if key in self._form.states:
            return self
        other = copy.copy(self)
        other._form = self._holder(key) or self._form
        return other

    def _holder(self, key: Any) -> _Form | None:
        """The form that has the state of a key, which is in memory then; ``None`` if it was never seen."""
        found = next((form for form in self._kept.forms if key in form.states), None)
        if found is None and self._kept.log:
            found = next((form for form in self._kept.forms if key in form.cold), None)
            if found is not None:
                self._warm(key, found)
        if found is None and self._kept.unread is not None:
            (bin,) = bins_of_keys([key]).tolist()
            if bin in self._kept.unread.left:
                self._read(bin)
                return self._holder(key)
        return found

    # ---- states that are not in memory

    @contextmanager
    def _reading(self) -> Iterator[ColdStates]:
        """A block in which states are read from the log; raises an ``UnreadableState`` if that fails."""
        assert self._kept.log is not None, "some state is there"
        try:
            yield self._kept.log
        except OSError as error:
            raise UnreadableState(RunError(f"a state that was moved to disk cannot be read: {error}")) from error

    def _warm(self, key: Any, form: _Form) -> None:
        with self._reading() as log:
            form.states[key] = log.take(form.cold[key])
        del form.cold[key]

    def _warm_all(self) -> None:
        for form in self._kept.forms:
            for key in [*form.cold]:
                self._warm(key, form)

    def move_out(self, count: int, file: Callable[[], LogFile]) -> MovedOut:
        """Move the states of so many keys to files out of memory, those first that were not touched for longest."""
        log = self._kept.log = ColdStates(file) if self._kept.log is None else self._kept.log
        form = next((one for one in self._kept.forms if one.states and one is not self._kept.stored.fixed), None)
        if form is None:
            return MovedOut()
        some = self._oldest(form, count)
        places, error = log.put(some)
        largest: tuple[Any, int] = (None, 0)
        for (key, _), place in zip(some, places, strict=False):
            form.cold[key] = place
            del form.states[key]
            largest = max(largest, (key, length_of(place)), key=itemgetter(1))
        if error is None:
            return MovedOut(len(places), self._fill_gaps(log, count), largest)
        key = some[len(places)][0] if some else None
        if some and not isinstance(error, OSError):
            form.states[key] = form.states.pop(key)  # so that others are tried before it is again
        return MovedOut(len(places), NotPickled(key, error), largest)

    def _oldest(self, form: _Form, count: int) -> list[tuple[Any, Any]]:
        """Some of the states of a form that came first, with their keys."""
        found: list[tuple[Any, Any]] = []
        while not found and form.states:
            if not form.oldest:  # many at once, since the front of a dict soon consists of gaps
                form.oldest = [*islice(form.states, _AT_ONCE)][::-1]
            some, form.oldest[-count:] = form.oldest[: -count - 1 : -1], []
            found = [(key, form.states[key]) for key in some if key in form.states]
        return found

    def _fill_gaps(self, log: ColdStates, count: int) -> NotPickled | None:
        """Move some states to the end of the log, if it has too many gaps."""
        for key, place in log.sparse_entries(count):
            form = next((one for one in self._kept.forms if one.cold.get(key) == place), None)
            if form is not None:
                try:
                    form.cold[key] = log.move(key, place)
                except OSError as error:
                    return NotPickled(key, error)
        return None

    @property
    def on_disk(self) -> tuple[int, int]:
        """The number of keys whose states are not in memory, and of the bytes of these."""
        return (0, 0) if self._kept.log is None else (len(self._kept.log), self._kept.log.bytes)

    def sizes(self) -> StateSizes:
        """How many states are in memory, and their mean size, which is measured again now and then."""
        keys, places = sum(len(form.states) for form in self._kept.forms), len(self._kept.log or ())
        sampled = self._kept.sampled
        sampled.calls += 1
        if abs(keys - sampled.keys) > sampled.keys // 8 or sampled.calls >= _CALLS:
            self._kept.sampled = _Sampled(keys, self._measured(keys, sampled), sampled.number + 1)
        return StateSizes(keys, self._kept.sampled.size, places)

    def _measured(self, keys: int, before: _Sampled) -> float:
        """The mean size of some states, from another place each time."""
        start = before.number * _SPREAD % max(1, keys)
        sizes: list[int] = []
        for state in islice(chain.from_iterable(form.states.values() for form in self._kept.forms), start, None):
            with suppress(Exception):  # it is named when it is to be moved out, or saved
                sizes.append(len(copied(state)))
            if len(sizes) == _MEASURED or sum(sizes) > _MEASURED_BYTES:
                break
        return sum(sizes) / len(sizes) if sizes else before.size

    # ---- bins that are not read yet

    def _read(self, bin: int, count: int | None = None) -> None:
        unread = self._kept.unread
        assert unread is not None, "some bin is unread"
        keys = unread.read(bin, count)
        if self._kept.unsorted is not None:
            self._kept.unsorted += keys
        if not unread.left:
            self._kept.unread = None

    @property
    def is_unread(self) -> bool:
        """Whether some states have not been read since the restart."""
        return self._kept.unread is not None

    def read_some(self, count: int) -> bool:
        """Read the states of so many keys of a bin; returns whether more are unread.

        Raises:
            UnreadableState: a bin cannot be read.
        """
        if (unread := self._kept.unread) is not None:
            self._read(next(iter(unread.begun), None) or next(iter(unread.left)), count)
        return self._kept.unread is not None

    def read_all(self, count: int | None = None) -> None:
        """Read all bins, or until so many keys are in memory; raises as ``read_some`` does."""
        while (unread := self._kept.unread) is not None and (count is None or len(self) - unread.keys < count):
            self._read(next(iter(unread.left)))

    def touch(self, key: Any) -> Any:
        """The state of ``key``, transformed or created if needed; raises as ``get`` does."""
        found = self.get(key)
        if found is None:
            found = self.initial()
            self.put(key, found)
        return found

    def put(self, key: Any, state: Any) -> None:
        """Set the state of ``key``, in the form of the current configuration."""
        key = canonical_key(key)
        if self._kept.stored.under_way is not None:
            self.get(key)  # what it replaces may have to be saved
        held = self._holder(key)
        if held is not None and held is not self._form:
            del held.states[key]
        self._form.states[key] = state
        if held is None:
            self._kept.stored.gone_keys.pop(key, None)
            if self._kept.unsorted is not None:
                self._note(key)

    def drop(self, key: Any) -> None:
        """Remove the state of ``key``, which counts as never seen from then on; idempotent."""
        key = canonical_key(key)
        if self._kept.stored.under_way is not None or self._kept.unread is not None or self._kept.log is not None:
            self.get(key)  # it may have to be saved, and is to go from what is stored
        if sum(states.pop(key, None) is not None for states in self._all()) and self._kept.stored.counts:
            self._kept.stored.gone_keys[key] = None
            if len(self._kept.stored.gone_keys) > len(self) + _NOTED:  # to save everything again takes less
                self.save_all_again()

    def _all(self) -> list[dict[Any, Any]]:
        """The oldest states first, as far as that is known."""
        forms = [form for form in self._kept.forms if form is not self._form]
        return [states for form in (*forms, self._form) for states in (form.cold, form.states)]

    def transform(self, transform: Transform | None) -> None:
        """Begin a new configuration; ``None`` keeps the states unchanged."""
        if transform is not None:
            before, self._form = self._form, _Form()
            before.ways[self._form] = transform
            self._kept.forms.append(self._form)
            self._forget_unused()

    def undo(self, transform: Transform | None, back: Transform | None) -> None:
        """Return to the configuration before the last ``transform``, by applying ``back`` key by key."""
        # Keys that were not accessed since have not been transformed, and keep their state.
        if transform is None:
            return
        undone = self._form
        self._form = _Form()
        undone.ways[self._form] = back
        for spared in (one for one in self._kept.forms if one.ways.get(undone) is transform):
            spared.ways = {self._form: None}
        self._kept.forms.append(self._form)
        self._forget_unused()

    @property
    def waiting(self) -> int:
        """Number of keys that have not been transformed yet."""
        ways = ((form, form.way_to(self._form) or ()) for form in self._kept.forms)
        waiting = [form for form, way in ways if any(transform for _, transform in way)]
        unread = self._kept.unread
        return sum(form.count for form in waiting) + (unread.keys if unread and unread.form in waiting else 0)

    def load(self, states: dict[Any, Any], stored_as: int = 0, names: Iterable[Name] = ()) -> None:
        """Replace all states, which are in the form of the current configuration.

        Args:
            states: key to its state.
            stored_as: number of the attempt to save states on which the next one builds; 0 if they are stored nowhere.
            names: the definitions that stored states need.
        """
        self._form.states = {canonical_key(key): state for key, state in states.items()}
        self._form.ways.clear()
        self._kept = _Kept([self._form])
        if stored_as:
            same = _Form(self._form.states, {self._form: None})
            self._form.states = {}
            self._kept = _Kept([same, self._form], stored=_Stored(stored_as, set(names), same))

    def load_later(self, bins: Mapping[int, Reading], keys: int, stored_as: int, names: Iterable[Name]) -> None:
        """Have the states of these bins, each of which is read when a key of it is asked for, or by ``read_some``.

        Args:
            bins: bin to what reads its states, in the form of the current configuration.
            keys: number of keys that they have together.
            stored_as: see ``load``.
            names: see ``load``.
        """
        self.load({}, stored_as, names)
        form = self._kept.stored.same or self._form
        if bins:
            self._kept.unread = _Unread(form, dict(bins), keys)

    def settle(self) -> None:
        """Transform all remaining keys; idempotent."""
        self.read_all()
        self._warm_all()
        self._settle([form for form in self._kept.forms if form is not self._form])

    def _settle(self, forms: Iterable[_Form]) -> None:
        for form in forms:
            for key in [*form.states, *form.cold]:
                self.touch(key)
        self._forget_unused()

    # ---- what is saved at a marker

    def begin_saving(self) -> StatesToSave:
        """Begin to save the states as they are now; ``save_some`` goes on. An attempt under way is given up."""
        stored, own = self._kept.stored, self._form
        earlier, stored.under_way = stored.under_way, None
        since = stored.number if earlier is None else earlier.since
        builds = bool(since or earlier) and stored.same is not None and stored.same.ways == {own: None}
        builds = builds and not stored.is_lost and not self._is_mostly_touched()
        if own.ways:  # another version has the states in a form of its own
            if not builds:
                self.read_all()
            spared = (own, stored.same) if builds else (own,)
            self._settle([form for form in self._kept.forms if form not in spared])
        fixed = _Form(dict(own.states), {own: None}, own.cold)
        own.states.clear()  # and not another dict, since ``find`` has been given away
        own.cold, own.oldest = {}, []
        for form in () if own.ways else self._kept.forms:
            if form is not stored.same or not builds:
                form.ways = {fixed if to is own else to: transform for to, transform in form.ways.items()}
        attempt = StatesToSave()
        if builds:
            attempt = StatesToSave(since, stored.gone_keys, stored.gone_bins, stored.names, earlier)
        same = stored.same if builds else _Form({}, {own: None})
        assert same is not None, "see builds"
        self._kept.forms = [same, *(form for form in self._kept.forms if form not in (same, own)), fixed, own]
        self._kept.stored = _Stored(stored.number, stored.names, same, fixed=fixed, under_way=attempt)
        return attempt

    def _is_mostly_touched(self) -> bool:
        """Whether most of many keys have been touched: with the rest of them, nothing stored is read and merged."""
        same, unread = self._kept.stored.same, self._kept.unread
        untouched = (same.count if same is not None else 0) + (unread.keys if unread is not None else 0)
        return len(self) > max(MANY, 2 * untouched)

    def save_some(self, count: int) -> bool:
        """Pickle the states of so many keys, or encode a bin; returns whether anything is left to do.

        Raises:
            OperatorError: the transformation of a state has failed.
        """
        stored = self._kept.stored
        attempt, fixed, same, unread = stored.under_way, stored.fixed, stored.same, self._kept.unread
        if attempt is None or fixed is None or same is None or attempt.failure is not None:
            return False
        if unread is not None and unread.form is not same and unread.form.way_to(fixed) is not None:
            return self.read_some(count) or True  # what is stored has another form, or cannot be built on
        for form in self._kept.forms:
            if form is not fixed and form.count and form.way_to(fixed) is not None:
                some = chain(reversed(form.states), reversed(form.cold))  # the front of a dict soon consists of gaps
                for key in [*islice(some, max(0, count))]:
                    self._holder(key)
                    self._bring(key, form, fixed)
                    count -= 1
        while count > 0 and fixed.states:
            key, state = fixed.states.popitem()
            attempt.save(key, state)
            same.states[key] = state
            count -= 1
        while count > 0 and fixed.cold:
            key, place = fixed.cold.popitem()
            with self._reading() as log:
                attempt.add(key, *log.pickled(place))
            same.cold[key] = place
            count -= 1
        attempt.sort(_SORTED)
        return bool(count <= 0 or attempt.encode())

    def end_saving(self, number: int) -> None:
        """End an attempt: all states have been given away, to be stored as this number, or it has failed (0)."""
        stored = self._kept.stored
        assert stored.under_way is not None, "it was begun"
        stored.number, stored.names = number, stored.under_way.names
        stored.is_lost = stored.is_lost or not number
        stored.under_way = stored.fixed = None
        self._forget_unused()

    def save_all_again(self) -> None:
        """Let the next attempt save everything, since nothing can build on what was to be stored."""
        self._kept.stored.is_lost = True
        self._kept.stored.gone_keys.clear()

    def sort_keys(self, count: int) -> bool:
        """Sort further keys by bin, for ``keys_of``; returns whether keys are left."""
        if self._kept.unread is not None:
            return self.read_some(count) or True
        if self._kept.unsorted is None:
            self._kept.unsorted, self._kept.sorted = self.keys(), {}
        some = self._kept.unsorted[-count:]
        del self._kept.unsorted[-count:]
        for key, bin_ in zip(some, bins_of_keys(some).tolist(), strict=True):
            self._kept.sorted.setdefault(bin_, []).append(key)
        return bool(self._kept.unsorted)

    def leave(self, bin_: int) -> None:
        """Record that all keys of a bin have been taken, to go on elsewhere."""
        if self._kept.stored.counts:
            self._kept.stored.gone_bins.add(bin_)

    def keys_of(self, bin_: int) -> list[Any]:
        """The keys of a bin, all keys being sorted; it is not asked for the same bin again, since they are taken."""
        return self._present(self._kept.sorted.pop(bin_, []))

    def _note(self, key: Any) -> None:
        """Note a new key for ``sort_keys``; keys that have gone are forgotten, when many have been noted."""
        assert self._kept.unsorted is not None, "keys have been sorted"
        self._kept.unsorted.append(key)
        if len(self._kept.unsorted) > len(self) + _NOTED:
            self._kept.unsorted = self._present(self._kept.unsorted)
            present = ((bin_, self._present(keys)) for bin_, keys in self._kept.sorted.items())
            self._kept.sorted = {bin_: left for bin_, left in present if left}

    def _present(self, keys: Iterable[Any]) -> list[Any]:
        """Those of these keys that have a state, each once: one may have gone, and come again."""
        return [key for key in dict.fromkeys(keys) if any(key in states for states in self._all())]

    def keys(self) -> list[Any]:
        """All keys, those that came last last, also of states that have not been transformed yet."""
        self.read_all()
        return list(chain.from_iterable(self._all()))

    def newest(self, count: int) -> list[Any]:
        """At most so many keys, those that came last first, also of states that have not been transformed yet."""
        self.read_all(count)
        return list(islice(chain.from_iterable(map(reversed, reversed(self._all()))), count))

    def spread(self, count: int) -> list[Any]:
        """At most so many keys from everywhere, evenly."""
        self.read_all(count)
        step = max(1, -(-sum(map(len, self._all())) // max(1, count)))
        return list(islice(chain.from_iterable(self._all()), 0, None, step))

    def take(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Remove the states of these keys, which must be there; returns them as the configuration has them."""
        taken = {key: self.touch(key) for key in keys}
        for key in taken:
            del self._form.states[key]
        return taken

    def add(self, states: Mapping[Any, Any], missed: tuple[Transform, ...] = ()) -> None:
        """Add the states of keys that it has none of."""
        same = {canonical_key(key): state for key, state in states.items()}
        for key in same:
            self._kept.stored.gone_keys.pop(key, None)
        if self._kept.unsorted is not None:
            self._kept.unsorted += same
        if not missed:
            self._form.states.update(same)
            return
        form = self._form
        for transform in reversed(missed):
            form = _Form({}, {form: transform})
            self._kept.forms.insert(0, form)
        form.states = same

    def sample(self, count: int) -> tuple[StateCopy, ...]:
        """Copies of the states of at most ``count`` keys. Missed transformations are applied when they are revived."""
        self.read_all(count)
        copies: list[StateCopy] = []
        for form in (self._form, *(one for one in self._kept.forms if one is not self._form)):
            some = islice(form.states.values(), count - len(copies))
            copies.extend([self._copy(form, state) for state in some])
            for place in islice(form.cold.values(), count - len(copies)):
                with self._reading() as log:
                    copies.append(self._copy(form, log.copy(place)))
        return tuple(copies)

    def _copy(self, form: _Form, state: Any) -> StateCopy:
        way = form.way_to(self._form) or ()
        return StateCopy(copied(state), tuple([transform for _, transform in way if transform is not None]))

    def bins(self) -> dict[int, dict[Any, Any]]:
        """The settled state by bin: the bins of ``partition``, so that a key's tuples and its state go together."""
        self.settle()
        live = self._form.states
        keys = list(live)
        grouped: dict[int, dict[Any, Any]] = {}
        for key, bin_ in zip(keys, bins_of_keys(keys).tolist(), strict=True):
            grouped.setdefault(bin_, {})[key] = live[key]
        return grouped

    def __len__(self) -> int:
        return sum(map(len, self._all())) + (self._kept.unread.keys if self._kept.unread is not None else 0)
