"""How steps log what they do, for the audit: the tuples they took, and where they emit not one for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from fries_nb.dataflow.graph import Kind
from fries_nb.messages import TRANSACTION
from fries_nb.operators.error_policy import is_guarded
from fries_nb.operators.instance import Instance
from fries_nb.operators.rows import Row

Step = Callable[[Row], None]


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
    if instance.operator.kind is Kind.MAP and not is_guarded(instance.operator):
        return
    extra = Counter(emitted.column(TRANSACTION).to_pylist())
    extra.subtract(transactions)
    for transaction, count in extra.items():
        if count:
            instance.log.emitted(transaction, count)
