"""Checks that every emitted tuple was processed exactly once by each receiving operator.

An operator emits one tuple for each that it takes, unless its function emitted more or fewer (``Emitted``), and all of
them arrive at the operators below it. So for each source tuple, the number that an operator takes equals the number
that those above it emit. One pass over the trace compares fingerprints, a sum of hashes for each operator; only if one
differs, a second pass finds the source tuples. The check applies to complete traces, since in others some tuples are
still in transit.

>>> from fries_nb.trace import Link, Ran
>>> flow = TraceFlow({"A": 1, "B": 1}, (Link("A", "B"),), finished=True)
>>> records = [Ran("t1", "A"), Ran("t2", "A"), Ran("t1", "B")]
>>> balance = Balance()
>>> for record in records:
...     balance.add(record)
>>> [astray] = balance.astray([flow], records)
>>> astray
Astray(transaction='t2', sender='A', receiver='B', sent=1, received=0)
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fries_nb.trace import Began, Emitted, Link, Ran, RanMany, Record, TraceFlow

Id = str | int
_Hashes = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Astray:
    """A transaction of which tuples were lost or duplicated between two operators.

    Attributes:
        transaction: the source tuple.
        sender: the operators above ``receiver``; empty if a source read a tuple twice.
        receiver: the operator that took a wrong number of tuples.
        sent: number of its tuples that were emitted for ``receiver``.
        received: number of its tuples that ``receiver`` took.
    """

    transaction: Id
    sender: str
    receiver: str
    sent: int
    received: int


@dataclass
class _Sum:
    """Count and fingerprint of a set of tuples."""

    count: int = 0
    print: int = 0

    def add(self, other: _Sum, times: int = 1) -> None:
        self.count += times * other.count
        self.print = (self.print + times * other.print) & _MASK


class Balance:
    """Counts and fingerprints of the tuples that each operator took and emitted."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, _Sum] = defaultdict(_Sum)
        self._extra: defaultdict[tuple[str, int], _Sum] = defaultdict(_Sum)
        self._begun = 0

    def add(self, record: Record) -> None:
        """Account for the next record."""
        match record:
            case Ran(transaction, operator):
                self._taken[operator].add(_sum_of((transaction,)))
            case RanMany(transactions, operator):
                self._taken[operator].add(_sum_of(transactions))
            case Emitted(transactions, extra, operator, _, branch):
                self._extra[operator, branch].add(_sum_of(transactions), extra)
            case Began(transactions, operator):
                self._extra[operator, 0].add(_sum_of(transactions))
                self._begun += len(transactions)

    def astray(
        self, flows: Iterable[TraceFlow], records: Iterable[Record], distinct: int | None = None
    ) -> list[Astray]:
        """The transactions of which tuples were lost or duplicated.

        Args:
            flows: the descriptions of what ran, to its end.
            records: the trace; read again only if a fingerprint differs.
            distinct: number of transactions in the trace, which shows whether sources read tuples twice.
        """
        into: defaultdict[str, list[Link]] = defaultdict(list)
        operators: list[str] = []
        for flow in flows:
            operators += flow.workers
            for link in flow.links:
                into[link.to].append(link)
        wrong = [name for name in operators if name in into and self._taken[name] != self._sent(into[name])]
        sources = [name for name in operators if name not in into]
        begun = sum(self._taken[name].count for name in sources) + self._begun
        if distinct is not None and begun != distinct:
            wrong += sources
        return list(_found(wrong, into, records)) if wrong else []

    def _sent(self, links: Iterable[Link]) -> _Sum:
        sent = _Sum()
        for link in links:
            if link.branch == 0:
                sent.add(self._taken[link.source], link.copies)
            sent.add(self._extra[link.source, link.branch], link.copies)
        return sent


def _found(wrong: Sequence[str], into: dict[str, list[Link]], records: Iterable[Record]) -> Iterator[Astray]:
    """Count the tuples of these operators by transaction."""
    wanted = {*wrong, *(link.source for name in wrong for link in into.get(name, ()))}
    taken: defaultdict[str, Counter[Id]] = defaultdict(Counter)
    extra: defaultdict[tuple[str, int], Counter[Id]] = defaultdict(Counter)
    for record in records:
        if isinstance(record, (Ran, RanMany)) and record.operator in wanted:
            taken[record.operator].update((record.transaction,) if isinstance(record, Ran) else record.transactions)
        elif isinstance(record, Emitted) and record.operator in wanted:
            for transaction, count in Counter(record.transactions).items():
                extra[record.operator, record.branch][transaction] += count * record.extra
        elif isinstance(record, Began) and record.operator in wanted:
            extra[record.operator, 0].update(record.transactions)
    for name in wrong:
        sent: Counter[Id] = Counter()
        for link in into.get(name, ()):
            for emitted in (*([taken[link.source]] if link.branch == 0 else []), extra[link.source, link.branch]):
                for transaction, count in emitted.items():
                    sent[transaction] += count * link.copies
        if name not in into:
            sent = Counter(dict.fromkeys(taken[name], 1))
        senders = " and ".join(link.source for link in into.get(name, ()))
        for transaction in dict.fromkeys((*sent, *taken[name])):
            if sent[transaction] != taken[name][transaction]:
                yield Astray(transaction, senders, name, sent[transaction], taken[name][transaction])


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
        return np.array([_number(one) for one in transactions], np.uint64)
    return np.frombuffer(numbers, np.uint64)


def _number(transaction: Id) -> int:
    """An identity as a 64-bit integer; a string of digits differs from the integer that it spells."""
    if isinstance(transaction, int) and _FIRST <= transaction <= _LAST:
        return transaction & _MASK
    return hash(repr(transaction)) & _MASK  # of the repr, since hash("") is 0 and hash(2**64) is 8
