"""States of keys as a table, for reading: of a checkpoint, or of a run.

A row is the state of one key, one open window of a key, or one open row of a join of two streams. Values that have
parts become columns: dicts by their keys, dataclasses and named tuples by their fields, lists and tuples of one length
by number. All rows have to be alike in that; otherwise, or if there would be more than ``MOST_COLUMNS``, the column
``value`` has them as they are.

>>> rows = [StateRow("c7", {"count": 2, "last": 9.5}, 31, 511, 0), StateRow("c8", {"count": 1}, 17, 3, 1)]
>>> print(state_table(rows, ["customer"]).to_string(index=False))
customer  count  last  _bytes  _bin  _worker
      c7      2   9.5      31   511        0
      c8      1   NaN      17     3        1
>>> list(state_table([StateRow((1, "a"), [0.5, 2], 9, 3, 0)], ["terminal", "day"]))
['terminal', 'day', 'value_0', 'value_1', '_bytes', '_bin', '_worker']
>>> list(state_table([StateRow(None, {1: 2}, 9, 3, 0)], []))
['key', 'value', '_bytes', '_bin', '_worker']
>>> print(state_table([StateRow(7, {"_bytes": 1}, 9, 3, 0)], ["_worker"]).to_string(index=False))
 key_worker  value__bytes  _bytes  _bin  _worker
          7             1       9     3        0
>>> column_types(rows)
{'count': 'int', 'last': 'float | missing'}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from fries_nb.dataflow.keys import why_unchangeable
from fries_nb.operators.first_rows import PassedTimes
from fries_nb.operators.timed_joins import OpenRows
from fries_nb.operators.window_steps import OpenWindow, Span
from fries_nb.progress.times import EARLIEST, LATEST
from fries_nb.telemetry.metrics import MISSING, series

MOST_COLUMNS = 100
"""Beyond that, the keys of dicts are taken for data and not for names of columns."""
_STRINGS = {str}
_OURS = ("_start", "_end", "_bytes", "_bin", "_worker")
"""The columns that say something beside keys and values."""


class StateRow(NamedTuple):
    """The state of one key; a tuple, as there may be very many.

    Attributes:
        key: the key: a value, a tuple with a value for each column of the key, or ``None`` for no key.
        value: its state.
        bytes: size of the pickled state.
        bin: the bin of the key.
        worker: index of the worker that has it.
        window: beginning and end of the window that it belongs to; of a key that ends by itself its end alone; empty if
            there is neither.
    """

    key: Any
    value: Any
    bytes: int
    bin: int
    worker: int
    window: tuple[Any, ...] = ()


def state_table(rows: Iterable[StateRow], key_columns: Sequence[str]) -> Any:
    """States as a pandas DataFrame: columns of the key, of the value, of the window; ``_bytes``, ``_bin``, ``_worker``.

    Args:
        rows: the states.
        key_columns: the columns of the key; none if it has none, or they are not known.

    Returns:
        The DataFrame. It has all columns but those of values if there are no rows.
    """
    import numpy as np
    from pandas import DataFrame, Series  # takes longer to import than all of fries_nb's own modules

    held = list(rows)
    columns: dict[str, list[Any]] = _key_columns(held, [key_name(one) for one in key_columns])
    keys = [*columns]
    for name, values in _value_columns(held).items():
        columns[_free(name, columns)] = values
    if any(row.window for row in held):
        windows = [(None, None, *row.window)[-2:] for row in held]
        begins = any(len(row.window) > 1 for row in held)
        columns |= {"_start": [start for start, _ in windows]} if begins else {}
        columns["_end"] = [end for _, end in windows]
    known = {f"_{name}": map(attrgetter(name), held) for name in ("bytes", "bin", "worker")}
    made = {name: series(values) for name, values in columns.items()}
    for name in keys:  # a key of null and one of NaN are two, and pandas has one word for both
        if made[name].dtype == float and None in columns[name]:
            made[name] = Series(columns[name], dtype=object)
    return DataFrame(made | {name: np.fromiter(values, np.int64, len(held)) for name, values in known.items()})


def key_name(column: str) -> str:
    """The column of a table of states that has a column of the key: its name, if that says nothing else there."""
    return f"key{column}" if column in _OURS else column


def states_of(table: Any, key_columns: Sequence[str]) -> list[Any] | str:
    """The states of which ``state_table`` has made a table, by row; or why they cannot be made of it again."""
    keys = {*map(key_name, key_columns)}
    about = {*_OURS} - ({"_start", "_end"} if "_start" in table else set())  # when a key ends is no part of its state
    parts = [name for name in table if name not in keys and name not in about]
    # What is no dict of its own columns: lists, names that the key has as well, windows.
    renamed = [name for name in parts if str(name).startswith("value_") or name in ("_start", "_end")]
    if renamed:
        return f"{renamed[0]} is a part of something else"
    if parts == ["value"]:
        whole = table["value"].tolist()
        shown = _value_columns([StateRow(None, value, 0, 0, 0) for value in whole])
        is_part = [*shown] != ["value"] or any(map(why_unchangeable, whole))  # a table of such states has other columns
        return [{"value": value} for value in whole] if is_part else whole
    if not parts or table[parts].isna().any(axis=None):
        return "a row lacks a part"
    states: list[Any] = table[parts].to_dict("records")
    return states


def column_types(rows: Iterable[StateRow]) -> dict[str, str]:
    """The columns that ``state_table`` makes of the values of these rows, and the names of the types that they hold."""
    return {name: _types(values) for name, values in _value_columns(list(rows)).items()}


def rows_of_key(
    key: Any, value: Any, bin: int, worker: int, size: Callable[[Any], int], shown: Callable[[int], Any]
) -> Iterator[StateRow]:  # fmt: skip
    """The row of a key, or one for each open window if it is a key of an operator with windows.

    A key of a join of two streams has one for each of its open rows, with the column ``_side`` and, as ``_start`` and
    ``_end``, the first and the last time of rows that may be its partners; ``None`` for no limit. One of a dedup within
    a time has one for each row that has passed, with its time and the last time of rows for which it counts.

    Args:
        key: the key.
        value: its state.
        bin: the bin of the key.
        worker: index of the worker that has it.
        size: the size of a pickled state.
        shown: from a time as operators have it to what users see.
    """
    if isinstance(value, OpenRows):
        for side, some in (("left", value.left.rows), ("right", value.right.rows)):
            for row in some:
                limits = [None if t in (EARLIEST, LATEST) else shown(t) for t in (row.first, row.last)]
                yield StateRow(key, {**row.as_dict(), "_side": side}, size(row), bin, worker, tuple(limits))
        return
    if isinstance(value, PassedTimes):
        for first, last in value.items():
            yield StateRow(key, True, size(value) // len(value), bin, worker, (shown(first), shown(last)))
        return
    if not is_windows(value):
        yield StateRow(key, value, size(value), bin, worker)
        return
    for span, window in value.items():
        yield StateRow(key, window.state, size(window.state), bin, worker, bounds_of(span, shown))


def bounds_of(span: Span, shown: Callable[[int], Any]) -> tuple[Any, ...]:
    """Beginning and end of an open window, as users see them; empty for one by count, which has no times.

    >>> bounds_of((60, 60, 60), str), bounds_of((36, 11, 0), str), bounds_of((3, 10, -10), str)
    (('0', '60'), ('25', '35'), ())
    """
    end, size, every = span[:3]
    return () if every < 0 else (shown(end - size), shown(end if every else end - 1))


def is_windows(value: object) -> bool:
    """Whether it is the state of a key with open windows or rows, as timed kinds of operators keep it."""
    if isinstance(value, OpenRows | PassedTimes):
        return True
    return isinstance(value, dict) and bool(value) and all(isinstance(one, OpenWindow) for one in value.values())


def _key_columns(rows: Sequence[StateRow], names: Sequence[str]) -> dict[str, list[Any]]:
    if len(names) == 1:
        return {names[0]: [row.key for row in rows]}
    if len(names) > 1 and all(isinstance(row.key, tuple) and len(row.key) == len(names) for row in rows):
        return {name: [row.key[place] for row in rows] for place, name in enumerate(names)}
    return {"key": [row.key for row in rows]}


def _value_columns(rows: Sequence[StateRow]) -> dict[str, list[Any]]:
    """The columns of the values, in the order in which they occur first."""
    values = [row.value for row in rows]
    names, held = _names_of_dicts(values), values
    if names is None:
        parts = [*map(_parts, values)]
        alike = len({kind for kind, _ in parts}) == 1 and bool(parts[0][0])
        held = [part for _, part in parts]
        names = dict.fromkeys(chain.from_iterable(held)) if alike else {}
    if 0 < len(names) <= MOST_COLUMNS:
        return {name: [part.get(name, MISSING) for part in held] for name in names}
    return {"value": values} if values else {}


def _names_of_dicts(values: Sequence[Any]) -> Mapping[str, None] | None:
    """The columns of values that are all dicts; none if these have other keys, or too many; ``None`` for other values.

    There may be very many, and nearly all with the same keys.
    """
    if {*map(type, values)} != {dict}:
        return None
    names, last = dict[str, None](), ()
    for value in values:
        if (shape := tuple(value)) != last:
            last = shape
            names |= dict.fromkeys(shape)
            if len(names) > MOST_COLUMNS or not {*map(type, shape)} <= _STRINGS:
                return {}
    return names


def _parts(value: Any) -> tuple[str, Mapping[str, Any]]:
    """How a value is divided into columns, and the parts by name; values divided in other ways are not alike."""
    if isinstance(value, dict):
        return ("names", value) if {*map(type, value)} <= _STRINGS else ("", {})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return "names", {name: getattr(value, name, MISSING) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "names", dict(zip(value._fields, value, strict=False))
    if isinstance(value, list | tuple):
        return f"{len(value)} places", {f"value_{place}": part for place, part in enumerate(value)}
    return "", {}


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """A name for a column of the value that no column before or behind those of values has."""
    while name in taken or name in _OURS:
        name = f"value_{name}"
    return name


def _types(values: Iterable[Any]) -> str:
    names = {"missing" if value is MISSING else type(value).__name__ for value in values}
    return " | ".join(sorted(names, key=lambda name: (name in ("missing", "NoneType"), name)))
