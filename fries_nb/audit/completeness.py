"""What a trace holds: the records of its file, and whether they are all that its workers wrote.

Checks that a trace contains all records that its workers wrote, by the counts that each worker states.

A trace that begins with a ``TraceFlow`` claims to be complete: every worker must be present and its stated counts must
match. A trace without one claims nothing. While a run goes on, its records are complete up to some moment.

>>> from fries_nb.protocol.trace import Ran
>>> completeness = Completeness()
>>> for record in (TraceFlow({"FM": 1}, ()), Wrote("FM"), Ran("t1", "FM"), Wrote("FM", ran=2)):
...     completeness.add(record)
Traceback (most recent call last):
fries_nb.errors.TraceError: the trace is incomplete: FM[0] wrote 2 records up to a point at which it holds 1 of them

Checks that each worker ran the function that its last switch installed.

>>> from fries_nb.protocol.trace import Ran
>>> executed = Executed()
>>> for record in (Ran("t1", "FM", 0, ""), Updated("u1", "FM"), Ran("t2", "FM", 0, ""), Ran("t3", "FM", 0, "")):
...     executed.add(record)
>>> executed.stale
[Stale(operator='FM', worker=0, update='u1', ran='', tuples=2)]

Checks that a dedup emitted one tuple of each key, and a self-join each pair, whichever of its workers took them.

How many tuples such an operator emits depends on tuples of other transactions, so conservation alone takes its word for
it. Here the keys of all tuples that it took are counted over all of its workers:

    operator     of a key were taken      must have left
    dedup        one or more              one
    self-join    l left, r right          the lesser of both

A resumed run had taken tuples that its trace lacks. Then a dedup may have emitted the one before; and the tuples of one
side may pair with earlier ones, so between the lesser and the greater number of pairs must have left.

>>> from fries_nb.protocol.trace import Matched
>>> matching = Matching()
>>> matching.add(Matched(("t1",), ("7",), "D", worker=0, emitted=True))
>>> matching.add(Matched(("t2", "t3"), ("7", "8"), "D", worker=1, emitted=True))
>>> [one.account for one in matching.astray([TraceFlow({"D": 2}, (), finished=True)])]
['tuples with key 7 make 1 at D, which emitted 2']

Trace files: one JSON object per line; ``fries_nb.protocol.trace`` defines the format.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike

from fries_nb.audit.conservation import Astray
from fries_nb.errors import TraceError
from fries_nb.protocol.trace import (
    ROW_BITS,
    Began,
    Choices,
    Counts,
    Matched,
    Ran,
    RanMany,
    Record,
    TraceFlow,
    Updated,
    Wrote,
    from_line,
)


@dataclass(frozen=True)
class TraceFile:
    """The records of a trace file in the order of its lines; each iteration reads the file. Blank lines are skipped.

    Iteration raises ``TraceError``, with the file and the line number, if the file cannot be read or a line is no
    record.
    """

    path: str | PathLike[str]

    def __iter__(self) -> Iterator[Record]:
        try:
            with open(self.path, "rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if not line.isspace():
                        yield _record(self.path, number, line)
        except OSError as error:
            raise TraceError(f"cannot read trace {str(self.path)!r}: {error.strerror or error}") from None


def read_trace(path: str | PathLike[str]) -> TraceFile:
    """The records of a trace file; see ``TraceFile``."""
    return TraceFile(path)


def _record(path: str | PathLike[str], number: int, line: bytes) -> Record:
    try:
        return from_line(line)
    except TraceError as error:
        raise TraceError(f"{path}, line {number}: {error}") from None
    except (RecursionError, UnicodeDecodeError) as error:
        # The JSON decoder also raises RecursionError for deeply nested brackets, and UnicodeDecodeError.
        raise TraceError(f"{path}, line {number}: not a trace record: {error}") from None


Worker = tuple[str, int]


class StatedCounts(StrEnum):
    """The extent of a trace.

    - ``COMPLETE``: all records up to the end of the run.
    - ``SO_FAR``: all records that each worker had reported at some moment.
    - ``NONE``: the trace makes no claim, such as a schedule written by hand.
    """

    COMPLETE = "complete"
    SO_FAR = "so far"
    NONE = "not claimed"


class Completeness:
    """Record counts of a trace so far."""

    def __init__(self) -> None:
        self.flows: list[TraceFlow] = []  # the descriptions of what ran
        self._found: defaultdict[Worker, Counts] = defaultdict(Counts)
        self._said: dict[Worker, Wrote] = {}
        self._vouched: dict[Worker, Counts] = {}
        self._base: dict[Worker, Counts] = {}
        self._operations = 0

    def add(self, record: Record) -> None:
        """Count the next record."""
        if isinstance(record, TraceFlow):
            self.flows.append(record)
            return
        worker = record.operator, record.worker
        if not isinstance(record, Wrote):
            self._found[worker] = self._found[worker].with_record(record)
            self._operations += 1
        elif not record.spent:
            self._check(worker, record)
        else:
            self._said.setdefault(worker, record)

    def _check(self, worker: Worker, record: Wrote) -> None:
        stated, found = Counts(record.ran, record.updated, record.emitted), self._found[worker]
        if worker not in self._base:
            resumed = any(flow.resumed and record.operator in flow.workers for flow in self.flows)
            self._base[worker] = stated if resumed and found == Counts() else Counts()
        expected = Counts(*(one - base for one, base in zip(stated, self._base[worker], strict=True)))
        if found != expected:
            raise TraceError(
                f"the trace is incomplete: {_name(worker)} wrote {sum(expected):,} records up to a point at which it "
                f"holds {sum(found):,} of them"
            )
        self._said[worker], self._vouched[worker] = record, found

    def claim(self) -> StatedCounts:
        """The extent of the trace; called when all of it has been read."""
        if not self._operations:
            raise TraceError("the trace is empty: it holds no operation, so it proves nothing")
        for worker in self._vouched:
            if (found := self._found[worker]) != (said := self._vouched[worker]):
                raise TraceError(
                    f"the trace is damaged: it holds {sum(found):,} records of {_name(worker)}, which wrote "
                    f"{sum(said):,}, as far as it says"
                )
        for flow in self.flows:
            self._all_there(flow)
        if not self.flows:
            return StatedCounts.NONE
        return StatedCounts.COMPLETE if all(flow.finished for flow in self.flows) else StatedCounts.SO_FAR

    def _all_there(self, flow: TraceFlow) -> None:
        heard = Counter(operator for operator, _ in self._said)
        ended = Counter(operator for (operator, _), said in self._said.items() if said.ended or said.spent)
        for operator, workers in flow.workers.items():
            if heard[operator] != workers:
                raise TraceError(
                    f"the trace is incomplete: {operator} has {_counted(workers)}, of which {heard[operator]} said "
                    "how much they wrote"
                )
            if flow.finished and ended[operator] != workers:
                raise TraceError(
                    f"the trace is incomplete: the run has finished, and of {operator}'s {_counted(workers)} "
                    f"{ended[operator]} said so; the last records of the others are missing"
                )


def _name(worker: Worker) -> str:
    return f"{worker[0]}[{worker[1]}]"


def _counted(workers: int) -> str:
    return f"{workers} worker{'' if workers == 1 else 's'}"


Id = str | int
Steps = tuple[tuple[dict[int, int], float], ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """A worker that recorded a switch and continued with another function."""

    operator: str
    worker: int
    update: Id  # the change that it recorded last; empty if there is none
    ran: Id  # the change whose function it really ran; empty for the initial function
    tuples: int  # number of tuples that it ran with that function


class _Choice:
    """The functions between which the identities of tuples choose at a worker, by the steps of changes in order.

    A tuple is new for a change if its cohort is below the share of the last step whose cut is below its position; the
    last change for which it is new has installed its function.
    """

    def __init__(self) -> None:
        self._steps: dict[Id, Steps] = {}
        self._earlier: dict[Id, Id] = {}  # change to the one whose function its old tuples get

    def add(self, update: Id, steps: Steps, before: Id) -> bool:
        """Take the steps of a change; ``before`` has installed the function that ran until then.

        Returns:
            Whether it is new.
        """
        is_new = update not in self._steps
        self._earlier.setdefault(update, before)
        self._steps[update] = steps
        return is_new

    def fixes(self, update: Id, before: Id) -> bool:
        """Give another function to the tuples that are old for a change; returns whether there are some."""
        if before in self._earlier:
            self._earlier[before] = update
        return before in self._earlier

    def divides(self, transaction: Id) -> bool:
        """Whether a share of the tuples is new for a change, of those at this position."""
        shares = [_share(steps, _identity(transaction)) for steps in self._steps.values()]
        return any(0 < share < 1 for share in shares)

    def of(self, transaction: Id, last: Id) -> Id:
        """The change whose function is to process a tuple; that of ``last`` if it is new for all."""
        functions = [*self._earlier.values(), last]
        identity = _identity(transaction)
        new = [place for place, steps in enumerate(self._steps.values(), 1) if _is_new(steps, identity)]
        return functions[new[-1] if new else 0]


def _identity(transaction: Id) -> int:
    return int(str(transaction).rpartition("/")[2])  # of a later region it has the number of that in front


def _share(steps: Steps, identity: int) -> float:
    origin, position = identity >> ROW_BITS, identity & ((1 << ROW_BITS) - 1)
    shares = [share for cut, share in steps if position > cut.get(origin, -1)]
    return shares[-1] if shares else 0.0


def _is_new(steps: Steps, identity: int) -> bool:
    return _cohort(identity) < _share(steps, identity) * (1 << 16)


def _cohort(transaction: int) -> int:
    mixed = transaction & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _MASK
    return ((mixed ^ (mixed >> 31)) >> 48) ^ 0xA5C3


_MASK = (1 << 64) - 1


class Executed:
    """Compares recorded switches with the functions that ran."""

    def __init__(self) -> None:
        self._resumed: set[str] = set()
        self._by_column = False
        self._due: dict[tuple[str, int], Id] = {}
        self._applied: defaultdict[tuple[str, int], set[Id]] = defaultdict(set)
        self._stale: Counter[tuple[str, int, Id, Id]] = Counter()
        self._choices: defaultdict[tuple[str, int], _Choice] = defaultdict(_Choice)

    def add(self, record: Record) -> None:
        """Process the next record."""
        match record:
            case Updated(update, operator, worker, steps=steps) if steps:
                due = self._due.get((operator, worker), "")
                if self._choices[operator, worker].add(update, steps, due):
                    self._due[operator, worker] = update
            case Choices(choices, operator, worker, last):
                self._choices[operator, worker] = left = _Choice()
                for update, steps, function in choices:
                    left.add(update, steps, function)
                self._due[operator, worker] = last
            case Updated(update, operator, worker, before, edges=False) if (operator, worker) in self._choices:
                if not self._choices[operator, worker].fixes(update, before):
                    self._due[operator, worker] = update
            case Updated(update, operator, worker, before, edges=False):
                applied = self._applied[operator, worker]
                applied.add(update)
                if before not in applied:
                    self._due[operator, worker] = update
            case Ran(transaction, operator, worker, function):
                self._ran(operator, worker, function, (transaction,))
            case RanMany(transactions, operator, worker, function) | Began(transactions, operator, worker, function):
                self._ran(operator, worker, function, transactions)
            case TraceFlow():
                self._by_column |= record.cohorts
                self._resumed.update(record.workers if record.resumed else ())
            case Wrote(operator, worker) if operator in self._resumed:
                self._due.setdefault((operator, worker), record.function)

    def _ran(self, operator: str, worker: int, function: str | None, transactions: Sequence[Id]) -> None:
        due, choice = self._due.get((operator, worker), ""), self._choices.get((operator, worker))
        if function is not None and choice is not None:
            for transaction in transactions:
                if self._by_column and choice.divides(transaction):
                    continue  # its cohort is not in the trace; whether all operators decide alike is judged elsewhere
                if (chosen := choice.of(transaction, due)) != function:
                    self._stale[operator, worker, chosen, function] += 1
        elif function is not None and function != due:
            self._stale[operator, worker, due, function] += len(transactions)

    @property
    def stale(self) -> list[Stale]:
        """The switches without effect so far."""
        return [Stale(*what, tuples) for what, tuples in self._stale.items()]


@dataclass(slots=True)
class _Taken:
    """The tuples of one key: how many of each side, for how many of them one left, and the last such transaction."""

    last: Id
    left: int = 0
    right: int = 0
    alone: int = 0
    emitted: int = 0

    def bounds(self, resumed: bool) -> tuple[int, int]:
        """The least and the greatest number of tuples that may have left."""
        if self.alone:
            return (0 if resumed else 1), 1
        least, most = sorted((self.left, self.right))
        return least, (most if resumed else least)


class Matching:
    """Counts of the tuples that dedups and self-joins took and emitted, by key."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, dict[str, _Taken]] = defaultdict(dict)

    def add(self, record: Record) -> None:
        """Account for the next record."""
        if not isinstance(record, Matched):
            return
        of_keys = self._taken[record.operator]
        for transaction, key in zip(record.transactions, record.keys, strict=True):
            taken = of_keys.get(key)
            if taken is None:
                taken = of_keys[key] = _Taken(transaction)
            taken.left += record.side == "left"
            taken.right += record.side == "right"
            taken.alone += not record.side
            if record.emitted:
                taken.emitted += 1
                taken.last = transaction

    def astray(self, flows: Iterable[TraceFlow]) -> Iterator[Astray]:
        """The keys of which too few or too many tuples left, each with a transaction."""
        resumed = {name: flow.resumed for flow in flows for name in flow.workers}
        for operator in sorted(resumed.keys() & self._taken.keys()):
            for key, taken in self._taken[operator].items():
                least, most = taken.bounds(resumed[operator])
                if not least <= taken.emitted <= most:
                    expected = least if taken.emitted < least else most
                    yield Astray(taken.last, "", operator, expected, taken.emitted, key=key)
