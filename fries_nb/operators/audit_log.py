"""What one operator at one worker has done, for the audit: which tuples it ran, by which function, what it emitted.

A run of tuples names the function that really ran them: a log is handed out when a chain is compiled, for the function
that was compiled into it, so an executor that was not rebuilt at a switch keeps on writing under the old name. An
operator emits one tuple for each that it takes; where it does not, because its function said so, it logs by how many
it differs, so that a tuple that was lost or doubled on its way can be told from one that was dropped. What is handed
out ends with the number of all records so far. Where a log continues an earlier one it begins with the number reached
there, in front of the updates that a restored operator catches up with: if the driver was killed, the records up to
that number are not in the trace of the one that resumes the run.

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

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from fries_nb.dataflow.traits import Returns
from fries_nb.messages import TRANSACTION, WorkerId
from fries_nb.operators.rows import Row
from fries_nb.trace import Counts, Emitted, RanMany, Updated, WorkerRecord, Wrote

if TYPE_CHECKING:
    from fries_nb.operators.instance import Instance

Mark = dict[int, int]
Step = Callable[[Row], None]


class AuditLog:
    """The records of one operator at one worker.

    Attributes:
        function: the change that brought the function that the operator is to run; empty for its first one.
        spent: it had ended before the hosts were started: what it did is told already, and it does nothing more.
    """

    def __init__(self, worker: WorkerId) -> None:
        self.function = ""
        self.spent = False
        self._worker = worker
        self._runs: defaultdict[str | None, list[int]] = defaultdict(list)
        self._emitted: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # by branch and how many more
        self._last: list[int] | None = None
        self._records: list[WorkerRecord] = []
        self._base = Counts()
        self._counts = Counts()
        self._told: Wrote | None = None

    def begin_at(self, counts: Counts) -> None:
        """Go on from where another one stood that had written so many records."""
        self.rewind({})
        self._records.clear()
        self._base = self._counts = counts
        self._told = None

    def runs_by(self, function: str | None) -> list[int]:
        """Where to put the transactions of tuples that this function runs (``None``: there is none)."""
        return self._runs[function]

    @property
    def dropped(self) -> list[int]:
        """Where to put the transactions of tuples for which the function said that nothing is emitted."""
        return self._emitted[0, -1]

    def emitted(self, transaction: int, extra: int, branch: int = 0) -> None:
        """For a tuple of this transaction so many tuples more than one were emitted on the branch."""
        self._last = self._emitted[branch, extra]
        self._last.append(transaction)

    def begin_tuple(self) -> None:
        """A tuple is taken of which nothing is emitted if its operator fails."""
        self._last = None

    def take_back(self) -> None:
        """Nothing was emitted for the tuple after all."""
        if self._last is not None:
            self._last.pop()
            self._last = None

    def mark(self) -> Mark:
        """How much is logged by now, for ``rewind``; nothing is taken from the log in between."""
        return {id(logged): len(logged) for logged in self._open()}

    def rewind(self, mark: Mark) -> None:
        """What was logged since is not so."""
        for logged in self._open():
            del logged[mark.get(id(logged), 0) :]

    def _open(self) -> tuple[list[int], ...]:
        return *self._runs.values(), *self._emitted.values()

    def updated(self, change: str, before: str) -> None:
        """The operator has switched; what it has run so far is in front of that."""
        self._close()
        self._add(Updated(change, *self._worker, before))

    def merge(self, other: AuditLog) -> None:
        """What the other one has logged was done here."""
        self._close()
        other._close()
        for record in other._records:
            self._add(record)

    @property
    def counts(self) -> Counts:
        """Records so far, those of the one that it continues included."""
        self._close()
        return self._counts

    def take(self, ended: bool = False) -> list[WorkerRecord]:
        """What happened since the last call, and how much that is in all; nothing if that is no news."""
        told = Wrote(*self._worker, *self.counts, self.function, ended, self.spent)
        taken, self._records = self._records, []
        if self._told is None and self._base != Counts():
            self._told = Wrote(*self._worker, *self._base, self.function)
            taken = [self._told, *taken]
        if self._told is not None and (told == self._told or self._told.ended or self._told.spent):
            return taken
        self._told = told
        return [*taken, told]

    def _close(self) -> None:
        for function, ran in self._runs.items():
            if ran:
                self._add(RanMany(tuple(ran), *self._worker, function))
                ran.clear()
        for (branch, extra), transactions in self._emitted.items():
            if transactions:
                self._add(Emitted(tuple(transactions), extra, *self._worker, branch))
                transactions.clear()

    def _add(self, record: WorkerRecord) -> None:
        self._records.append(record)
        self._counts = self._counts.with_record(record)


def transaction_of(row: Row) -> int:
    """The source tuple that a row derives from."""
    return row.columns.transactions()[row.index]


def dropped_of(instance: Instance) -> Callable[[int], None] | None:
    """Under audit: logs that the function wants nothing emitted for a tuple of this transaction."""
    return instance.log.dropped.append if instance.audit else None


def made_of(instance: Instance) -> Callable[[Row, int], None] | None:
    """Under audit: logs how many rows the function wants emitted for a row."""
    if not instance.audit:
        return None
    log = instance.log.emitted

    def made(row: Row, count: int) -> None:
        if count != 1:
            log(transaction_of(row), count - 1)

    return made


def logged(instance: Instance, step: Step) -> Step:
    """The step, which logs each tuple under the function that is compiled into it."""
    log = instance.log.runs_by(instance.identity).append

    def logging(row: Row) -> None:
        columns = row.columns  # the row's own, unless the function keeps it
        step(row)
        log(columns.transactions()[row.index])  # afterwards: a tuple that is tried again has run once

    return logging


def log_batch(instance: Instance, ran: list[int], taken: pa.RecordBatch, emitted: pa.RecordBatch) -> None:
    """Under audit: the tuples of a batch, and how many were emitted for them where that is not one for each."""
    transactions = taken.column(TRANSACTION).to_pylist()
    ran.extend(transactions)
    if instance.operator.traits.returns is Returns.ROW and instance.operator.on_error == "fail":
        return
    extra = Counter(emitted.column(TRANSACTION).to_pylist())
    extra.subtract(transactions)
    for transaction, count in extra.items():
        if count:
            instance.log.emitted(transaction, count)
