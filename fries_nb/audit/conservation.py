"""Checks that every emitted tuple was processed exactly once by each receiving operator.

An operator emits one tuple for each that it takes, unless its function emitted more or fewer (``Emitted``), and all of
them arrive at the operators below it. So for each source tuple, the number that an operator takes equals the number
that those above it emit. One pass over the trace compares fingerprints, a sum of hashes for each operator; only if one
differs, a second pass finds the source tuples. Likewise as many tuples leave a loop that is declared ``one_to_one`` as
enter it. The check applies to complete traces, since in others some tuples are
still in transit. Where a run has changed its shape, each tuple goes along the edges of the dataflow that its operator
had switched to at this worker.

>>> from fries_nb.protocol.trace import Link, Ran
>>> flow = TraceFlow({"A": 1, "B": 1}, (Link("A", "B"),), finished=True)
>>> records = [Ran("t1", "A"), Ran("t2", "A"), Ran("t1", "B")]
>>> balance = Balance()
>>> for record in records:
...     balance.add(record)
>>> [astray] = balance.astray([flow], records)
>>> astray
Astray(transaction='t2', sender='A', receiver='B', sent=1, received=0, loop='', key='')

The versions of operators that each transaction met: the part of a trace on which the verdict depends.

Where a change is decided row by row, the recorded function of a tuple says which of those it follows.

A worker's *version* is the set of updates that it has applied so far. A data operation on operator O precedes update u
at its worker if u updates O and is not in the worker's version; it follows u if u is in it. So only (operator, version)
of an operation is significant, not the worker: few distinct values, whatever the parallelism.

This rests on one decision. If u updates O at some worker, it updates O at *every* worker: one without a record of u
ended before u, or has not applied it yet, and its switch comes after all of its records. Otherwise a tuple that an
ended FM[0] had processed with the old configuration could meet the new one at MC and go unnoticed.

An update may be ordered *ahead* of another one of the same operator; a worker that has applied the other then skips it
(Thomas write rule: its effect is overwritten already). A version that contains the other update therefore contains the
skipped one as well.

The changes *before* the trace of a resumed run, which its first checkpoint includes, are left out: all tuples of the
trace follow them, but only workers that the earlier run did not have record them.

Transactions that met the same versions are equivalent, so they are grouped while reading: a group is a state of a
finite automaton, with one dictionary look-up for each operation.

>>> from fries_nb.protocol.trace import Ran, Updated
>>> sightings = Sightings()
>>> for record in (Ran("t1", "FM"), Ran("t2", "FM"), Updated("u1", "FM"), Ran("t3", "FM")):
...     sightings.add(record)
>>> [(sorted(version.applied), members) for (version,), members in sightings.groups().items()]
[([], ['t1', 't2']), (['u1'], ['t3'])]
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fries_nb.errors import TraceError
from fries_nb.protocol.trace import (
    Began,
    Choices,
    Emitted,
    Link,
    OneToOne,
    Ran,
    RanMany,
    Record,
    Requeued,
    TraceFlow,
    Updated,
)

Id = str | int
_Sender = tuple[str, Id]
"""An operator, and the change of the shape whose links its tuples go along."""
_Hashes = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Astray:
    """A transaction of which tuples were lost or duplicated between two operators, or in a loop."""

    transaction: Id  # the source tuple
    sender: str  # the operators above ``receiver``; empty if a source read a tuple twice, and for a loop
    receiver: str  # the operator that took a wrong number of tuples; empty for a loop
    sent: int  # number of its tuples that were emitted for ``receiver``, or that entered the loop
    received: int  # number of its tuples that ``receiver`` took, or that left the loop
    loop: str = ""  # the loop, declared ``one_to_one``, that fewer or more of its tuples left than entered
    # the key, as text, of which ``receiver``, a dedup or a self-join, emitted more or fewer tuples (``received``) than
    # those it took make (``sent``)
    key: str = ""

    @property
    def account(self) -> str:
        """The numbers in words.

        >>> Astray("t7", "FM", "MC", 1, 0).account
        'FM emitted 1 for MC, which took 0'
        >>> Astray("t7", "", "", 1, 2, loop="L").account
        '1 entered loop L, which is declared one_to_one, and 2 left it'
        >>> Astray("t7", "", "D", 1, 2, key="'a'").account
        "tuples with key 'a' make 1 at D, which emitted 2"
        """
        if self.loop:
            declared = f"loop {self.loop}, which is declared one_to_one"
            return f"{self.sent:,} entered {declared}, and {self.received:,} left it"
        if self.key:
            return f"tuples with key {self.key} make {self.sent:,} at {self.receiver}, which emitted {self.received:,}"
        sender = self.sender or "no operator"
        return f"{sender} emitted {self.sent:,} for {self.receiver}, which took {self.received:,}"


@dataclass
class _Sum:
    """Count and fingerprint of a set of tuples."""

    count: int = 0
    print: int = 0

    def add(self, other: _Sum, times: int = 1) -> None:
        self.count += times * other.count
        self.print = (self.print + times * other.print) & _MASK


@dataclass(frozen=True)
class _Way:
    """An edge, and the dataflow that has it: by the change that has made it, and empty for the first one."""

    link: Link
    shape: str


@dataclass(frozen=True)
class _Loop:
    """A loop that lets one tuple out for each that enters, and its edges of both in all dataflows."""

    name: str
    entries: list[_Way] = field(default_factory=list)
    exits: list[_Way] = field(default_factory=list)

    def add(self, declared: OneToOne, shape: str) -> None:
        self.entries.extend(_ways(declared.entries, shape))
        self.exits.extend(_ways(declared.exits, shape))


class _Shapes:
    """The dataflow whose edges the tuples of each worker go along: the last one that it has switched to."""

    def __init__(self) -> None:
        self._known: set[Id] = set()
        self._now: dict[tuple[str, int], Id] = {}

    def add(self, record: Record) -> None:
        """Follow the next record."""
        match record:
            case TraceFlow():
                self._known.add(record.shape)
            case Updated(update, operator, worker) if update in self._known:
                self._now[operator, worker] = update

    def of(self, operator: str, worker: int) -> _Sender:
        """The operator, with the dataflow in which this worker of it is."""
        return operator, self._now.get((operator, worker), "")


class Balance:
    """Counts and fingerprints of the tuples that each operator took and emitted.

    Of a run that has changed its shape, tuples go along the edges of the dataflow that their operator had switched to.
    """

    def __init__(self) -> None:
        self._taken: defaultdict[_Sender, _Sum] = defaultdict(_Sum)
        self._extra: defaultdict[tuple[_Sender, int], _Sum] = defaultdict(_Sum)
        self._requeued: defaultdict[str, _Sum] = defaultdict(_Sum)
        self._begun = 0
        self._shapes = _Shapes()

    def add(self, record: Record) -> None:
        """Account for the next record."""
        self._shapes.add(record)
        of = self._shapes.of
        match record:
            case Ran(transaction, operator, worker):
                self._taken[of(operator, worker)].add(_sum_of((transaction,)))
            case RanMany(transactions, operator, worker):
                self._taken[of(operator, worker)].add(_sum_of(transactions))
            case Emitted(transactions, extra, operator, worker, branch):
                self._extra[of(operator, worker), branch].add(_sum_of(transactions), extra)
            case Began(transactions, operator, worker):
                self._extra[of(operator, worker), 0].add(_sum_of(transactions))
                self._begun += len(transactions)
            case Requeued(transactions, operator):
                self._requeued[operator].add(_sum_of(transactions))
                self._begun += len(transactions)

    def astray(
        self, flows: Iterable[TraceFlow], records: Iterable[Record], distinct: int | None = None
    ) -> list[Astray]:
        """The transactions of which tuples were lost or duplicated."""
        into: defaultdict[str, list[_Way]] = defaultdict(list)
        operators: dict[str, None] = {}
        declared: dict[str, _Loop] = {}
        for flow in flows:
            for one in flow.one_to_one:
                declared.setdefault(one.loop, _Loop(one.loop)).add(one, flow.shape)
            operators |= dict.fromkeys(flow.workers)
            for way in _ways(flow.links, flow.shape):
                into[way.link.to].append(way)
        loops = [loop for loop in declared.values() if self._sent(loop.entries) != self._sent(loop.exits)]
        taken = self._taken_by()
        wrong = [name for name in operators if name in into and taken[name] != self._given(name, into[name])]
        sources = [name for name in operators if name not in into]
        begun = sum(taken[name].count for name in sources) + self._begun
        if distinct is not None and begun != distinct:
            wrong += sources
        return list(_found(wrong, into, loops, records)) if wrong or loops else []

    def _taken_by(self) -> defaultdict[str, _Sum]:
        taken: defaultdict[str, _Sum] = defaultdict(_Sum)
        for (operator, _), some in self._taken.items():
            taken[operator].add(some)
        return taken

    def _given(self, operator: str, ways: Iterable[_Way]) -> _Sum:
        """What an operator got by these edges, or again from its dead letters."""
        given = self._sent(ways)
        given.add(self._requeued[operator])
        return given

    def _sent(self, ways: Iterable[_Way]) -> _Sum:
        sent = _Sum()
        for way in ways:
            link, sender = way.link, (way.link.source, way.shape)
            if link.branch == 0:
                sent.add(self._taken[sender], link.copies)
            sent.add(self._extra[sender, link.branch], link.copies)
        return sent


def _ways(links: Iterable[Link], shape: str) -> list[_Way]:
    return [_Way(link, shape) for link in links]


def _found(
    wrong: Sequence[str], into: Mapping[str, Sequence[_Way]], loops: Sequence[_Loop], records: Iterable[Record]
) -> Iterator[Astray]:
    """Count the tuples that these operators took, and that entered and left these loops, by transaction."""
    ways = [way for name in wrong for way in into.get(name, ())]
    ways += [way for loop in loops for way in (*loop.entries, *loop.exits)]
    tuples = _Tuples({*wrong, *(way.link.source for way in ways)}, records)
    for name in wrong:
        taken = tuples.taken(name)
        sent = tuples.given(name, into[name]) if name in into else Counter(dict.fromkeys(taken, 1))
        senders = " and ".join(dict.fromkeys(way.link.source for way in into.get(name, ())))
        for transaction in _unequal(sent, taken):
            yield Astray(transaction, senders, name, sent[transaction], taken[transaction])
    for loop in loops:
        entered, left = tuples.sent(loop.entries), tuples.sent(loop.exits)
        for transaction in _unequal(entered, left):
            yield Astray(transaction, "", "", entered[transaction], left[transaction], loop.name)


def _unequal(sent: Counter[Id], taken: Counter[Id]) -> Iterator[Id]:
    return (tuple_ for tuple_ in dict.fromkeys((*sent, *taken)) if sent[tuple_] != taken[tuple_])


class _Tuples:
    """The tuples that some operators took and emitted, by transaction."""

    def __init__(self, operators: Set[str], records: Iterable[Record]) -> None:
        self._taken: defaultdict[_Sender, Counter[Id]] = defaultdict(Counter)
        self._extra: defaultdict[tuple[_Sender, int], Counter[Id]] = defaultdict(Counter)
        self._requeued: defaultdict[str, Counter[Id]] = defaultdict(Counter)
        shapes = _Shapes()
        for record in records:
            shapes.add(record)
            match record:
                case Ran(transaction, operator, worker) if operator in operators:
                    self._taken[shapes.of(operator, worker)].update((transaction,))
                case RanMany(transactions, operator, worker) if operator in operators:
                    self._taken[shapes.of(operator, worker)].update(transactions)
                case Emitted(transactions, extra, operator, worker, branch) if operator in operators:
                    for transaction, count in Counter(transactions).items():
                        self._extra[shapes.of(operator, worker), branch][transaction] += count * extra
                case Began(transactions, operator, worker) if operator in operators:
                    self._extra[shapes.of(operator, worker), 0].update(transactions)
                case Requeued(transactions, operator):
                    self._requeued[operator].update(transactions)

    def taken(self, operator: str) -> Counter[Id]:
        """The tuples that an operator took."""
        found = (taken for (name, _), taken in self._taken.items() if name == operator)
        return sum(found, Counter[Id]())

    def given(self, operator: str, ways: Iterable[_Way]) -> Counter[Id]:
        """The tuples that an operator got by these edges, or again from its dead letters."""
        return self.sent(ways) + self._requeued[operator]

    def sent(self, ways: Iterable[_Way]) -> Counter[Id]:
        """The tuples that arrived by these edges."""
        sent: Counter[Id] = Counter()
        for way in ways:
            link, sender = way.link, (way.link.source, way.shape)
            for emitted in (*([self._taken[sender]] if link.branch == 0 else []), self._extra[sender, link.branch]):
                for transaction, count in emitted.items():
                    sent[transaction] += count * link.copies
        return sent


def _sum_of(transactions: Sequence[Id]) -> _Sum:
    return _Sum(len(transactions), int(_hashes(transactions).sum(dtype=np.uint64)))


def _hashes(transactions: Sequence[Id]) -> _Hashes:
    """64-bit hashes (``splitmix64``): consecutive identities must not have related hashes."""
    mixed = _numbers(transactions) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _numbers(transactions: Sequence[Id]) -> _Hashes:
    try:
        numbers = array("q", transactions)  # type: ignore[type-var]
    except (TypeError, OverflowError):  # some are strings; numpy would read "01" as 1
        return np.array([_number(transaction) for transaction in transactions], np.uint64)
    return np.frombuffer(numbers, np.uint64)


def _number(transaction: Id) -> int:
    """An identity as a 64-bit integer; a string of digits differs from the integer that it spells."""
    if isinstance(transaction, int) and _FIRST <= transaction <= _LAST:
        return transaction & _MASK
    return hash(repr(transaction)) & _MASK  # of the repr, since hash("") is 0 and hash(2**64) is 8


class Version(NamedTuple):
    """An operator, at a worker that has applied these updates."""

    operator: str
    applied: frozenset[Id]


class Sightings:
    """The versions seen in a trace so far."""

    def __init__(self) -> None:
        # operator to the updates recorded by any of its workers
        self.updates: defaultdict[str, set[Id]] = defaultdict(set)
        # (earlier, later) to an operator of which one worker applied these updates in that order; they conflict, since
        # both replace the same function
        self.orders: dict[tuple[Id, Id], str] = {}
        self._groups = _Groups()
        self._group_of: dict[Id, int] = {}
        self._step_at: dict[tuple[str, int], _Step] = {}
        self._updates_at: defaultdict[tuple[str, int], list[Id]] = defaultdict(list)
        self.withdrawn: set[Id] = set()  # canaries that were rolled back
        self._skipped: defaultdict[tuple[str, Id], set[Id]] = defaultdict(set)
        self._before: set[tuple[str, Id]] = set()
        # of each worker the updates of its function in order; and those with some that are decided row by row
        self._order: defaultdict[tuple[str, int], list[Id]] = defaultdict(list)
        self._by_row: set[tuple[str, int]] = set()

    def add(self, record: Record) -> None:
        """Process the next record: each worker's in order; those of different workers may interleave."""
        group_of = self._group_of
        match record:
            case Ran(transaction, operator, worker, function):
                group_of[transaction] = self._step(operator, worker, function)[group_of.get(transaction, 0)]
            case RanMany(transactions, operator, worker, function):
                step = self._step(operator, worker, function)
                for transaction in transactions:
                    group_of[transaction] = step[group_of.get(transaction, 0)]
            case Choices(choices):
                self.withdrawn.update(update for update, steps, _ in choices if not steps[-1][1])
            case TraceFlow():
                self._before.update(product(record.workers, record.before))
            case Updated(update, operator, worker, steps=steps) if steps and self._has(update, operator, worker):
                self.withdrawn.update([] if steps[-1][1] else [update])
            case Updated(update, operator, worker, before, edges, steps) if (operator, update) not in self._before:
                self._switch(update, operator, worker, before)
                order = self._order[operator, worker]
                if not edges:
                    order.insert(order.index(before) if before in order else len(order), update)
                if steps:
                    self._by_row.add((operator, worker))
                    self.withdrawn.update([] if steps[-1][1] else [update])
                if before:
                    self._skipped[operator, before].add(update)

    def groups(self) -> dict[frozenset[Version], list[Id]]:
        """Transactions by the versions that they met, in the order of their first operations."""
        members: dict[int, list[Id]] = {}
        for transaction, group in self._group_of.items():
            members.setdefault(group, []).append(transaction)
        groups: defaultdict[frozenset[Version], list[Id]] = defaultdict(list)
        for group, transactions in members.items():
            groups[frozenset(map(self._with_skipped, self._groups.versions[group]))] += transactions
        return dict(groups)

    def _with_skipped(self, version: Version) -> Version:
        """The version, extended by the updates that are ordered ahead of those that the worker has applied."""
        operator, applied = version
        skipped = [self._skipped[operator, update] for update in applied if (operator, update) in self._skipped]
        return Version(operator, applied.union(*skipped)) if skipped else version

    def _step(self, operator: str, worker: int, function: Id | None = None) -> _Step:
        step = self._step_at.get((operator, worker))
        if step is not None and function is not None and (operator, worker) in self._by_row:
            return self._step_of(step.version, self._order[operator, worker], function)
        if step is None:
            step = self._step_at[operator, worker] = self._groups.step(Version(operator, frozenset()))
        return step

    def _step_of(self, version: Version, order: Sequence[Id], function: Id) -> _Step:
        """The step of a tuple whose identity has chosen the function: updates behind that do not concern it."""
        place = order.index(function) if function in order else -1
        others = {*order[place + 1 :], *self.withdrawn.intersection(order[: max(0, place)])}
        return self._groups.step(version._replace(applied=version.applied - others))

    def _has(self, update: Id, operator: str, worker: int) -> bool:
        """Whether a worker has applied an update; one that is restored begins with all steps at once."""
        return update in self._step(operator, worker).version.applied

    def _switch(self, update: Id, operator: str, worker: int, before: Id) -> None:
        applied = self._step(operator, worker).version.applied
        if update in applied:
            raise TraceError(
                f"update {update!r} is applied twice at {operator}[{worker}]; expected once a worker; "
                'records of several workers say which: "worker": 0, 1, ...'
            )
        self.updates[operator].add(update)
        if before in applied:
            self.orders[update, before] = operator
        else:
            if earlier := [one for one in self._updates_at[operator, worker] if one not in self.withdrawn]:
                self.orders[earlier[-1], update] = operator
            self._updates_at[operator, worker].append(update)
        self._step_at[operator, worker] = self._groups.step(Version(operator, applied | {update}))


class _Groups:
    """The states of the automaton: sets of versions, numbered as they occur; 0 is the empty set."""

    def __init__(self) -> None:
        self.versions: list[frozenset[Version]] = [frozenset()]
        self._number: dict[frozenset[Version], int] = {frozenset(): 0}
        self._steps: dict[Version, _Step] = {}

    def step(self, version: Version) -> _Step:
        """The transitions for an operation on this version; one object for each version, shared by workers."""
        if version not in self._steps:
            self._steps[version] = _Step(version, self)
        return self._steps[version]

    def number(self, versions: frozenset[Version]) -> int:
        """The number of a set of versions; a new set gets the next one."""
        if versions not in self._number:
            self._number[versions] = len(self.versions)
            self.versions.append(versions)
        return self._number[versions]


class _Step(dict[int, int]):
    """Transitions for an operation on ``version``: group before to group after, computed on first use."""

    def __init__(self, version: Version, groups: _Groups) -> None:
        super().__init__()
        self.version = version
        self._groups = groups

    def __missing__(self, group: int) -> int:
        self[group] = after = self._groups.number(self._groups.versions[group] | {self.version})
        return after
