"""The versions of operators that each transaction met: the part of a trace on which the verdict depends.

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

>>> from fries_nb.trace import Ran, Updated
>>> sightings = Sightings()
>>> for record in (Ran("t1", "FM"), Ran("t2", "FM"), Updated("u1", "FM"), Ran("t3", "FM")):
...     sightings.add(record)
>>> [(sorted(version.applied), members) for (version,), members in sightings.groups().items()]
[([], ['t1', 't2']), (['u1'], ['t3'])]
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import NamedTuple

from fries_nb.errors import TraceError
from fries_nb.trace import Ran, RanMany, Record, TraceFlow, Updated

Id = str | int


class Version(NamedTuple):
    """An operator, at a worker that has applied these updates."""

    operator: str
    applied: frozenset[Id]


class Sightings:
    """The versions seen in a trace so far.

    Attributes:
        updates: operator to the updates recorded by any of its workers.
        orders: (earlier, later) to an operator of which one worker applied these updates in that order; they conflict,
            since both replace the same function.
    """

    def __init__(self) -> None:
        self.updates: defaultdict[str, set[Id]] = defaultdict(set)
        self.orders: dict[tuple[Id, Id], str] = {}
        self._groups = _Groups()
        self._group_of: dict[Id, int] = {}
        self._step_at: dict[tuple[str, int], _Step] = {}
        self._last_update: dict[tuple[str, int], Id] = {}
        self._skipped: defaultdict[tuple[str, Id], set[Id]] = defaultdict(set)
        self._before: set[tuple[str, Id]] = set()

    def add(self, record: Record) -> None:
        """Process the next record. Each worker's records must be in order; those of different workers may interleave.

        Raises:
            TraceError: a worker applies an update twice.
        """
        group_of = self._group_of
        match record:
            case Ran(transaction, operator, worker):
                group_of[transaction] = self._step(operator, worker)[group_of.get(transaction, 0)]
            case RanMany(transactions, operator, worker):
                step = self._step(operator, worker)
                for transaction in transactions:
                    group_of[transaction] = step[group_of.get(transaction, 0)]
            case TraceFlow():
                self._before.update(product(record.workers, record.before))
            case Updated(update, operator, worker, before) if (operator, update) not in self._before:
                self._switch(update, operator, worker)
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

    def _step(self, operator: str, worker: int) -> _Step:
        step = self._step_at.get((operator, worker))
        if step is None:
            step = self._step_at[operator, worker] = self._groups.step(Version(operator, frozenset()))
        return step

    def _switch(self, update: Id, operator: str, worker: int) -> None:
        applied = self._step(operator, worker).version.applied
        if update in applied:
            raise TraceError(
                f"update {update!r} is applied twice at {operator}[{worker}]; expected once a worker; "
                'records of several workers say which: "worker": 0, 1, ...'
            )
        self.updates[operator].add(update)
        if applied:
            self.orders[self._last_update[operator, worker], update] = operator
        self._last_update[operator, worker] = update
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
