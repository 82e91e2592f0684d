"""The audit log of one operator at one worker: the tuples that it processed, with which function, and what it emitted.

A tuple is logged under the function that processed it, whichever should have: each step keeps the log of the function
that was compiled into it, so an executor that was not rebuilt at a switch keeps logging under the old name.
An operator emits one tuple for each that it takes. If its function emits more or fewer, it logs the difference, so that
a tuple that was lost or duplicated in transit can be distinguished from a dropped one. The records that ``take``
returns end with the counts of all records so far. A log that continues an earlier one begins with the earlier counts,
before the updates that a restored operator applies: if the driver was killed, the records up to those counts are not in
the trace of the driver that resumes the run.

>>> log = AuditLog(WorkerId("FM", 0))
>>> log.runs_by("").extend([7, 8])
>>> log.dropped.append(8)
>>> for record in log.take():
...     print(record)
RanMany(transactions=(7, 8), operator='FM', worker=0, function='')
Emitted(transactions=(8,), extra=-1, operator='FM', worker=0, branch=0)
Wrote(operator='FM', worker=0, ran=2, updated=0, emitted=1, function='', ended=False, spent=False)
>>> log.take()
[]
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.dataflow.traits import Returns
from fries_nb.operators.row_versions import Earlier, chooser, side_by_side
from fries_nb.operators.rows import Row
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.rollout import RolloutStep
from fries_nb.protocol.trace import (
    Began,
    Choices,
    Counts,
    Emitted,
    Matched,
    RanMany,
    Requeued,
    Updated,
    WorkerRecord,
    Wrote,
)

if TYPE_CHECKING:
    from fries_nb.operators.instance import Instance

Mark = dict[int, int]
Step = Callable[[Row], None]
NONE_GONE: Mapping[str, tuple[RolloutStep, ...]] = {}


class AuditLog:
    """The records of one operator at one worker."""

    def __init__(self, worker: WorkerId) -> None:
        self.function = ""  # the change that installed the current function; empty for the initial one
        # the changes whose updates the trace holds already; they are not logged again
        self.known: frozenset[str | int] = frozenset()
        # whether the operator had ended before the run was resumed; all of its records are then in the trace
        self.spent = False
        self._worker = worker
        self._runs: defaultdict[str | None, list[int]] = defaultdict(list)
        self._emitted: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # by branch and extra tuples
        self._begun: defaultdict[str | None, list[int]] = defaultdict(list)
        self._matched: defaultdict[tuple[str, bool], list[tuple[int, str]]] = defaultdict(list)  # by side, emitted
        self._of_tuple: list[list[Any]] | None = None
        self._records: list[WorkerRecord] = []
        self._base = Counts()
        self._counts = Counts()
        self._last_counts: Wrote | None = None

    def begin_at(self, counts: Counts) -> None:
        """Continue from the record counts of an earlier log."""
        self.rewind({})
        self._records.clear()
        self._base = self._counts = counts
        self._last_counts = None

    def runs_by(self, function: str | None) -> list[int]:
        """The list for transactions of tuples that this function processes (``None`` without audit)."""
        return self._runs[function]

    def begun_by(self, function: str | None) -> list[int]:
        """The list for transactions that begin with a row that time brings out of this function."""
        return self._begun[function]

    def begin(self, logged: list[int], transaction: int) -> None:
        """Log that a transaction begins here."""
        logged.append(transaction)
        if self._of_tuple is not None:
            self._of_tuple.append(logged)

    @property
    def dropped(self) -> list[int]:
        """The list for transactions of tuples that the function dropped."""
        return self._emitted[0, -1]

    def requeued(self, transactions: Iterable[int]) -> None:
        """Log that transactions begin here with rows of dead letters, between two tuples."""
        self._add(Requeued(tuple(transactions), *self._worker))

    def emitted(self, transaction: int, extra: int, branch: int = 0) -> None:
        """Log that the function emitted more or fewer than one tuple for a tuple."""
        logged = self._emitted[branch, extra]
        logged.append(transaction)
        if self._of_tuple is not None:
            self._of_tuple.append(logged)

    def matched(self, transaction: int, key: Any, side: str, emitted: bool) -> None:
        """Log a tuple that was compared with others by its key; see ``trace.Matched``."""
        logged = self._matched[side, emitted]
        logged.append((transaction, key_text(key)))
        if self._of_tuple is not None:
            self._of_tuple.append(logged)

    def begin_tuple(self) -> None:
        """Begin a tuple; ``take_back`` removes what is logged as emitted from now on."""
        self._of_tuple = []

    def take_back(self) -> None:
        """Remove the entries of what was emitted for the tuple that ``begin_tuple`` began."""
        for logged in self._of_tuple or ():
            logged.pop()
        self._of_tuple = None

    def mark(self) -> Mark:
        """The current position for ``rewind``; records must not be taken in between."""
        return {id(logged): len(logged) for logged in self._open()}

    def rewind(self, mark: Mark) -> None:
        """Remove the records since a position."""
        for logged in self._open():
            del logged[mark.get(id(logged), 0) :]

    def _open(self) -> tuple[list[Any], ...]:
        return *self._runs.values(), *self._emitted.values(), *self._begun.values(), *self._matched.values()

    def updated(
        self, change: str, before: str, edges: bool = False, steps: tuple[RolloutStep, ...] = ()
    ) -> None:
        """Log a switch, of the out-edges only if ``edges``, after the records so far; ``steps``: see ``Updated``."""
        if change in self.known or self.spent:  # it processes no tuple any more, and has said how many it wrote
            return
        self._close()
        self._add(Updated(change, *self._worker, before, edges, _as_traced(steps)))

    def chooses(
        self, earlier: Sequence[Earlier], last: str, gone: Mapping[str, tuple[RolloutStep, ...]] = NONE_GONE
    ) -> None:
        """Log among which functions rows choose from now on; ``gone``: the steps of changes that were rolled back."""
        if self.spent:
            return
        found = {one.change: (_as_traced(one.steps), one.identity) for one in earlier}
        oldest = earlier[0].identity if earlier else last
        ended = {change: (_as_traced(steps), oldest) for change, steps in gone.items() if change not in found}
        choices = [(change, *rest) for change, rest in (ended | found).items()]
        self._close()
        self._records.append(Choices(tuple(choices), *self._worker, last))

    def began_with(self, changes: Iterable[str], rerouted: Collection[str]) -> None:
        """Log switches in front of all records so far: the worker has made them before its first tuple.

        Those in ``rerouted`` are switches of the out-edges only.
        """
        later, self._records = self._records, []
        for change in changes:
            self.updated(change, before="", edges=change in rerouted)
        self._records += later

    def merge(self, other: AuditLog) -> None:
        """Append the records of another log."""
        self._close()
        other._close()
        for record in other._records:
            self._add(record)

    @property
    def counts(self) -> Counts:
        """Record counts so far, including those of the log that this one continues."""
        self._close()
        return self._counts

    def take(self, ended: bool = False) -> list[WorkerRecord]:
        """The records since the last call, followed by the total counts; empty if there is nothing new."""
        counts = Wrote(*self._worker, *self.counts, self.function, ended, self.spent)
        taken, self._records = self._records, []
        if self._last_counts is None and self._base != Counts():
            self._last_counts = Wrote(*self._worker, *self._base, self.function)
            taken = [self._last_counts, *taken]
        if self._last_counts is not None and (
            counts == self._last_counts or self._last_counts.ended or self._last_counts.spent
        ):
            return taken
        self._last_counts = counts
        return [*taken, counts]

    def _close(self) -> None:
        for function, ran in self._runs.items():
            if ran:
                self._add(RanMany(tuple(ran), *self._worker, function))
                ran.clear()
        for (branch, extra), transactions in self._emitted.items():
            if transactions:
                self._add(Emitted(tuple(transactions), extra, *self._worker, branch))
                transactions.clear()
        for (side, emitted), matched in self._matched.items():
            if matched:
                ids, keys = zip(*matched, strict=True)
                self._add(Matched(ids, keys, *self._worker, side, emitted))
                matched.clear()
        for function, transactions in self._begun.items():
            if transactions:
                self._add(Began(tuple(transactions), *self._worker, function))
                transactions.clear()

    def _add(self, record: WorkerRecord) -> None:
        self._records.append(record)
        self._counts = self._counts.with_record(record)


def _as_traced(steps: Iterable[RolloutStep]) -> tuple[tuple[dict[int, int], float], ...]:
    return tuple([(one.cut, one.share) for one in steps])


def transaction_of(row: Row) -> int:
    """The source tuple from which a row derives."""
    return row.columns.transactions()[row.index]


def dropped_of(instance: Instance) -> Callable[[int], None] | None:
    """A function that logs that the user function dropped a tuple; without audit it does nothing."""
    return instance.log.dropped.append if instance.audit else None


def matched_of(instance: Instance) -> Callable[[Row, Any, str, bool], None] | None:
    """A function that logs a row with its key, its side, and whether a row left for it; ``None`` without audit."""
    if not instance.audit:
        return None
    log = instance.log.matched
    return lambda row, key, side, emitted: log(transaction_of(row), key, side, emitted)


LONGEST_KEY = 60
"""Length from which on the text of a key is cut, and ends with a hash of the whole."""


def key_text(key: Any) -> str:
    """The key as text, the same on every host: of equal keys equal, of others different.

    >>> key_text(1), key_text(1.0), key_text("1"), key_text(("a", None)), key_text("x" * 100)[-20:]
    ('1', '1', "'1'", "('a', None)", 'xxx…59cc7df241e439fc')
    """
    if isinstance(key, tuple):
        return f"({', '.join(map(key_text, key))})"
    if isinstance(key, int | float | Decimal) and key == key and abs(key) != float("inf"):
        key = int(key) if key == int(key) else key
        return str(key.normalize() if isinstance(key, Decimal) else key)
    if isinstance(key, datetime) and key.tzinfo is not None:
        key = key.astimezone(UTC)
    text = repr(key)
    if len(text) <= LONGEST_KEY:
        return text
    whole = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return f"{text[: LONGEST_KEY - 20]}…{whole.hexdigest()}"


def made_of(instance: Instance) -> Callable[[Row, int], None] | None:
    """A function that logs how many rows the user function makes of a row."""
    if not instance.audit:
        return None
    log = instance.log.emitted

    def made(row: Row, count: int) -> None:
        if count != 1:
            log(transaction_of(row), count - 1)

    return made


def logged(instance: Instance, step: Step) -> Step:
    """The step, extended to log each tuple under the function that is compiled into it."""
    if instance.earlier:
        return logged_by_version(instance, step)
    log = instance.log.runs_by(instance.identity).append

    def logging(row: Row) -> None:
        columns = row.columns  # the row's own, unless the function keeps it
        step(row)
        log(columns.transactions()[row.index])  # after the step, so that a tuple that is retried is logged once

    return logging


def logged_by_version(instance: Instance, step: Step) -> Step:
    """The step, extended to log each tuple under the function of its version."""
    choose, logs = chooser(instance), [instance.log.runs_by(one.identity).append for one in side_by_side(instance)]

    def logging(row: Row) -> None:
        columns = row.columns
        step(row)
        logs[choose(row)](columns.transactions()[row.index])

    return logging


def log_batch(instance: Instance, ran: list[int], taken: pa.RecordBatch, emitted: pa.RecordBatch) -> None:
    """Log the tuples of a batch, and the number emitted for each where it differs from one."""
    transactions = taken.column(TRANSACTION).to_pylist()
    ran.extend(transactions)
    if instance.operator.traits.returns is Returns.ROW and instance.operator.on_error == "fail":
        return
    extra = Counter(emitted.column(TRANSACTION).to_pylist())
    extra.subtract(transactions)
    for transaction, count in extra.items():
        if count:
            instance.log.emitted(transaction, count)
