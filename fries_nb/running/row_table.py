"""The newest rows of an operator as a table: those that came in and those that went out, each with its origin.

>>> import pyarrow as pa
>>> from fries_nb.protocol.messages import WorkerId
>>> batch = pa.RecordBatch.from_pydict({"amount": [7, 9], "_fries_due": [0, 0]})
>>> seen = RowsSeen(1, WorkerId("FM", 0), pickle.dumps([batch]), pickle.dumps([{"amount": 9, "score": 0.5}]), "u1")
>>> rows = newest(seen_rows([seen], int, lambda identity: None), 2)
>>> print(row_table(rows)[["amount", "score", "_side", "_version", "_worker"]].to_string(index=False))
 amount  score _side _version  _worker
      7    NaN    in       u1        0
      9    NaN    in       u1        0
      9    0.5   out       u1        0
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import DUE, HIDDEN, TIME, TRANSACTION
from fries_nb.errors import PlanError, exception_text
from fries_nb.protocol.messages import RowsSeen
from fries_nb.telemetry.metrics import MISSING, series


@dataclass(frozen=True)
class SeenRow:
    """A row as it was seen at an operator.

    Attributes:
        values: the user's columns.
        side: ``in`` or ``out``.
        version: the change that its worker had switched to last; empty if to none.
        worker: index of the worker.
        time: its own time, if the dataflow has times, else when its source's row was due; ``None`` if it is not known.
        source: the source, split and row that it is or derives from, under an audit; else ``None``.
    """

    values: Mapping[str, Any]
    side: str
    version: str
    worker: int
    time: Any = None
    source: tuple[str, int, int] | None = None


def seen_rows(
    seen: Iterable[RowsSeen], shown: Callable[[int], Any], source_of: Callable[[int], tuple[str, int, int] | None]
) -> Iterator[SeenRow]:  # fmt: skip
    """The rows in the answers of workers, of each worker and side the newest first.

    Args:
        seen: the answers.
        shown: from a time as operators have it to what users see.
        source_of: the source, split and row that the identity of a source tuple stands for.
    """
    for one in seen:
        for side, pickled in (("in", one.came), ("out", one.went)):
            for part in pickle.loads(pickled) if pickled else ():
                rows = part.to_pylist() if isinstance(part, pa.RecordBatch) else [part]
                for row in rows:
                    yield _seen(row, side, one, shown, source_of)


def _seen(
    row: Mapping[str, Any], side: str, seen: RowsSeen, shown: Callable[[int], Any],
    source_of: Callable[[int], tuple[str, int, int] | None],
) -> SeenRow:  # fmt: skip
    time, identity = row.get(TIME), row.get(TRANSACTION)
    if time is not None:
        time = shown(time) if isinstance(time, int) else time
    elif (due_ns := row.get(DUE)) is not None:
        time = datetime.fromtimestamp(due_ns / 1e9, UTC)
    source = None if identity is None else source_of(identity)
    values = {name: value for name, value in row.items() if name not in HIDDEN}
    return SeenRow(values, side, seen.version, seen.worker.index, time, source)


def row_table(rows: Iterable[SeenRow], columns_of: Iterable[SeenRow] = ()) -> Any:
    """Rows as a pandas DataFrame, in their order: their columns, and ``_side``, ``_version``, ``_worker`` and so on.

    It has the columns of further rows as well, so that they are there if no row is.
    """
    from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

    held = list(rows)
    names = dict.fromkeys(name for row in itertools.chain(held, columns_of) for name in row.values)
    columns = {name: series([row.values.get(name, MISSING) for row in held]) for name in names}
    about = ("side", "version", "worker", "time", "source")
    return DataFrame(columns | {f"_{name}": series([getattr(row, name) for row in held]) for name in about})


def newest(rows: Iterable[SeenRow], count: int) -> list[SeenRow]:
    """At most so many of each side, from all workers in turn."""
    of: dict[tuple[str, int], list[SeenRow]] = {}
    for row in rows:
        of.setdefault((row.side, row.worker), []).append(row)
    found = list[SeenRow]()
    for side in ("in", "out"):
        turns: Sequence[list[SeenRow]] = [held for (one, _), held in sorted(of.items()) if one == side]
        mixed = (row for turn in itertools.zip_longest(*turns) for row in turn if row is not None)
        found += itertools.islice(mixed, count)
    return found


def chosen(rows: Iterable[SeenRow], where: Callable[[Mapping[str, Any]], Any]) -> Iterator[SeenRow]:
    """The rows that satisfy a condition; raises a PlanError with the row for which it raises."""
    for row in rows:
        try:
            holds = where(dict(row.values))
        except Exception as error:
            columns = ", ".join(row.values)
            words = f"where raised {exception_text(error)} on a row that is {row.side}; it has the columns {columns}"
            raise PlanError(words) from error
        if holds:
            yield row
