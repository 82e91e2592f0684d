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
>>> print(row_table([SeenRow({"_side": 3}, "in", "", 0)], about=["side"], hide={"_side"}))
  value__side _side
0         •••    in
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import DUE, HIDDEN, TIME, TRANSACTION
from fries_nb.dataflow.masking import masked_text
from fries_nb.errors import PlanError, RunError
from fries_nb.operators.instance import row_as_json
from fries_nb.protocol.messages import RowsSeen
from fries_nb.telemetry.metrics import MISSING, series
from fries_nb.worker.row_taps import Condition

SourceOf = Callable[[int, str], tuple[str, int, int] | None]
"""From the identity of a tuple and the operator that has it to its source, split and row."""


@dataclass(frozen=True)
class SeenRow:
    """A row as it was seen at an operator.

    Attributes:
        values: the user's columns.
        side: ``in`` or ``out``.
        version: the change that its worker had switched to last; empty if to none.
        worker: index of the worker.
        time: its own time, if the dataflow has times, else when its source's row was due; ``None`` if it is not known.
        source: the source, split and row that it is or derives from, if rows have identities; else ``None``.
        operator: the operator.
    """

    values: Mapping[str, Any]
    side: str
    version: str
    worker: int
    time: Any = None
    source: tuple[str, int, int] | None = None
    operator: str = ""


def seen_rows(
    seen: Iterable[RowsSeen], shown: Callable[[int], Any], source_of: SourceOf, branch: int | None = None
) -> Iterator[SeenRow]:
    """The rows in the answers of workers, of each worker and side the newest first.

    Args:
        seen: the answers.
        shown: from a time as operators have it to what users see.
        source_of: the source, split and row that the identity of a tuple at an operator stands for.
        branch: the output on which rows went out that are meant; ``None`` for all rows, those that came in as well.
    """
    for one in seen:
        for side, part in _parts(one, branch):
            rows = part.to_pylist() if isinstance(part, pa.RecordBatch) else [part]
            for row in rows:
                yield _seen(row, side, one, shown, source_of)


def _parts(seen: RowsSeen, branch: int | None) -> Iterator[tuple[str, Any]]:
    """The batches and rows of an answer, with their sides."""
    if branch is None and seen.came:
        yield from (("in", part) for part in pickle.loads(seen.came))
    for place, part in enumerate(pickle.loads(seen.went) if seen.went else ()):
        if branch is None or not seen.branches or seen.branches[place] == branch:
            yield "out", part


def _seen(
    row: Mapping[str, Any], side: str, seen: RowsSeen, shown: Callable[[int], Any], source_of: SourceOf
) -> SeenRow:
    time, identity = row.get(TIME), row.get(TRANSACTION)
    if time is not None:
        time = shown(time) if isinstance(time, int) else time
    elif (due_ns := row.get(DUE)) is not None:
        time = datetime.fromtimestamp(due_ns / 1e9, UTC)
    source = None if identity is None else source_of(identity, seen.worker.operator)
    values = {name: value for name, value in row.items() if name not in HIDDEN}
    return SeenRow(values, side, seen.version, seen.worker.index, time, source, seen.worker.operator)


ABOUT = ("side", "version", "worker", "time", "source")
"""What is said of a row beside its values."""


def row_table(
    rows: Iterable[SeenRow], columns: Iterable[str] = (), about: Iterable[str] = ABOUT, hide: Collection[str] = ()
) -> Any:  # fmt: skip
    """Rows as a pandas DataFrame, in their order: their columns, and ``_side``, ``_version``, ``_worker`` and so on.

    It has further columns as well, so that they are there if no row is. Those of ``hide`` are masked where it is shown.
    """
    from fries_nb.dataflow.shown_table import shown_table  # imports pandas, which takes long

    held = list(rows)
    names = dict.fromkeys(itertools.chain((name for row in held for name in row.values), columns))
    ours = {f"_{name}": series([getattr(row, name) for row in held]) for name in about}
    values = dict[str, Any]()
    for name in names:
        values[_free(name, ours, names)] = series([row.values.get(name, MISSING) for row in held])
    return shown_table(values | ours, {*hide, *renamed(values, hide)} - ours.keys())


def _free(name: str, ours: Collection[str], names: Collection[str]) -> str:
    """The name under which a column of the user is shown: another one if it would say something of the row."""
    if name not in ours:
        return name
    while name in ours or name in names:
        name = f"value_{name}"
    return name


def renamed(columns: Iterable[str], hide: Collection[str]) -> list[str]:
    """The columns of a table whose values are of hidden columns, and which have other names there."""
    return [
        name for name in columns for one in hide
        if name == f"key{one}" or (str(name).startswith("value_") and str(name).endswith(f"value_{one}"))
    ]  # fmt: skip


def columns_of(rows: Iterable[SeenRow]) -> Iterator[str]:
    """The columns of rows, some of them repeatedly."""
    return (name for row in rows for name in row.values)


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


def chosen(
    rows: Iterable[SeenRow], where: Callable[[Mapping[str, Any]], Any], hide: Collection[str] = ()
) -> list[SeenRow]:  # fmt: skip
    """The rows that satisfy a condition; raises as ``refuse_failed`` does."""
    condition = Condition(where)
    found = [row for row in rows if condition.holds(dict(row.values), row.side)]
    if condition.error:
        raise raised(condition.error, condition.row, hide)
    if condition.lacked_by_all:
        raise PlanError(condition.lacked_by_all)
    return found


def raised(error: str, row: Mapping[str, Any], hide: Collection[str]) -> RunError:
    """The error of a condition that has raised on a row, which it names; values of columns ``hide`` are masked."""
    return RunError(f"{masked_text(error, row, hide)}: {row_as_json(dict(row), hide)}")


def refuse_failed(parts: Iterable[RowsSeen], hide: Collection[str] = ()) -> None:
    """Refuse the answer to a tap if its condition has raised, or reads a column that no row has.

    Values of the columns ``hide`` are masked.

    Raises:
        PlanError: no row has had the column; names those that are there.
        RunError: the condition has raised otherwise, with the row; or rows could not be read or copied.
    """
    held = list(parts)
    for part in held:
        if part.row:
            raise raised(part.error, pickle.loads(part.row), hide)
        if part.error and not part.lacked:
            raise RunError(part.error)
    lacked = next((part.lacked for part in held if part.lacked), "")
    if lacked and not any(part.counts.judged for part in held):
        raise PlanError(lacked)


def tapped(
    rows: Sequence[SeenRow], count: int, parts: Iterable[RowsSeen], left: Sequence[SeenRow] = (),
    hide: Collection[str] = (),
) -> Any:  # fmt: skip
    """The rows that a tap has found, at most so many of each side, as a DataFrame that says what it has seen.

    Its ``attrs`` have ``rows_seen``, the number of rows that have passed, and ``rows_dropped``, of those that were not
    tried. ``left`` are rows that a run which is over has left, all of which were tried: the last of those that passed.
    """
    held = list(parts)
    counts, names = [part.counts for part in held], [name for part in held for name in part.columns]
    table = row_table(newest(rows, count), [*names, *columns_of(left)], hide=hide)
    seen = max(sum(one.seen for one in counts), len(left))
    table.attrs |= {"rows_seen": seen, "rows_dropped": min(sum(one.dropped for one in counts), seen - len(left))}
    return table
