"""States as a table: which columns there are, and that values are in them as they were."""

from __future__ import annotations

import datetime
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.operators.window_steps import OpenWindow
from fries_nb.running.state_table import (
    MOST_COLUMNS,
    StateRow,
    column_types,
    rows_of_key,
    state_table,
    states_of,
)

BEHIND = ["_bytes", "_bin", "_worker"]


def rows(*values: Any, keys: list[Any] | None = None) -> list[StateRow]:
    """A row for each value."""
    return [StateRow(keys[at] if keys else at, value, 10 + at, at, 0) for at, value in enumerate(values)]


def present(value: Any) -> Any:
    """A value in a frame; ``None`` for what is missing."""
    return None if value is pd.NA or (isinstance(value, float) and value != value) else value


@dataclass
class Total:
    """A state of a user's class."""

    count: int
    last: float | None = None


Pair = namedtuple("Pair", ["low", "high"])


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ([{"a": 1, "b": 2}, {"a": 3}], {"a": [1, 3], "b": [2, None]}),
        ([{}, {"a": 1}], {"a": [None, 1]}),
        ([Total(1, 2.5), Total(4)], {"count": [1, 4], "last": [2.5, None]}),
        ([Pair(1, 2), Pair(3, 4)], {"low": [1, 3], "high": [2, 4]}),
        ([[1, "x"], [2, "y"]], {"value_0": [1, 2], "value_1": ["x", "y"]}),
        ([(1, [2])], {"value_0": [1], "value_1": [[2]]}),
        ([[1], [2, 3]], {"value": [[1], [2, 3]]}),
        ([{"a": 1}, [1]], {"value": [{"a": 1}, [1]]}),
        ([{1: 2}], {"value": [{1: 2}]}),
        ([{}, {}], {"value": [{}, {}]}),
        ([[], []], {"value": [[], []]}),
        ([True, True], {"value": [True, True]}),
        ([{str(n): n for n in range(MOST_COLUMNS + 1)}], {"value": [{str(n): n for n in range(MOST_COLUMNS + 1)}]}),
    ],
)
def test_values_with_parts_become_columns(values: list[Any], columns: dict[str, list[Any]]) -> None:
    """If all are alike; otherwise they are one column."""
    frame = state_table(rows(*values), ["k"])
    assert list(frame) == ["k", *columns, *BEHIND]
    assert {name: [present(value) for value in frame[name]] for name in columns} == columns
    assert list(frame["k"]) == list(range(len(values)))


def test_a_key_has_the_columns_that_its_operator_names() -> None:
    """Several, one, or none; a key of another form is one column."""
    pairs = rows(1, 2, keys=[(1, "a"), (2, "b")])
    frame = state_table(pairs, ["terminal", "day"])
    assert list(zip(frame["terminal"], frame["day"], strict=True)) == [(1, "a"), (2, "b")]
    assert list(state_table(pairs, ["terminal", "day", "hour"])) == ["key", "value", *BEHIND]
    assert list(state_table(rows(1, keys=[None]), [])["key"]) == [None]


def test_no_column_hides_another_one() -> None:
    """Of a key, of a value, and those with an underscore may have the same names."""
    frame = state_table(rows({"k": 7, "value_k": 8, "_bin": 9, "_start": 1}), ["k"])
    assert list(frame) == ["k", "value_k", "value_value_k", "value__bin", "value__start", *BEHIND]
    assert frame.iloc[0].tolist() == [0, 7, 8, 9, 1, 10, 0, 0]


def test_numbers_stay_what_they_are_where_others_lack_one() -> None:
    """A count does not become a float, however large, and a missing one is missing."""
    frame = state_table(rows({"n": 2**60 + 1, "b": True, "f": 0.5, "big": 2**70}, {}), ["k"])
    assert [str(kind) for kind in frame.dtypes[["n", "b", "f", "big"]]] == ["Int64", "boolean", "float64", "object"]
    assert frame["n"].iloc[0] == 2**60 + 1
    assert frame["big"].iloc[0] == 2**70
    assert frame[["n", "b", "f", "big"]].iloc[1].isna().all()


def test_any_state_is_shown() -> None:
    """Arrays, times with several zones, lists of lists, objects, and no rows at all."""
    zone = datetime.timezone(datetime.timedelta(hours=2))
    times = {"t": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, {"t": datetime.datetime(9999, 1, 1, tzinfo=zone)}
    assert list(state_table(rows(*times), ["k"])["t"]) == [one["t"] for one in times]
    arrays = state_table(rows({"a": np.arange(3)}, {"a": np.arange(3)}), ["k"])["a"]
    assert [one.tolist() for one in arrays] == [[0, 1, 2], [0, 1, 2]]
    thing = object()
    assert state_table(rows(thing), ["k"])["value"].iloc[0] is thing
    assert list(state_table([], ["a", "b"])) == ["a", "b", *BEHIND]
    assert len(state_table([], [])) == 0


def test_open_windows_have_a_row_each() -> None:
    """With their beginnings and ends as users see times; a size each."""
    windows = {(60, 60, 60): OpenWindow({"sum": 1}), (80, 60, 20): OpenWindow({"sum": 22})}
    made = list(rows_of_key("c", windows, 5, 1, size=lambda state: state["sum"], shown=lambda time: f"at {time}"))
    frame = state_table(made, ["customer"])
    assert frame.to_dict("records") == [
        {"customer": "c", "sum": 1, "_start": "at 0", "_end": "at 60", "_bytes": 1, "_bin": 5, "_worker": 1},
        {"customer": "c", "sum": 22, "_start": "at 20", "_end": "at 80", "_bytes": 22, "_bin": 5, "_worker": 1},
    ]
    assert list(rows_of_key("c", {}, 5, 1, size=len, shown=str)) == [StateRow("c", {}, 0, 5, 1)]


def test_a_schema_has_all_types_of_a_column() -> None:
    """Sorted; what is missing, or None, is last."""
    assert column_types(rows({"a": 1}, {"a": 0.5}, {"a": None}, {})) == {"a": "float | int | NoneType | missing"}
    assert column_types(rows(Total(1), Total(2, 0.5))) == {"count": "int", "last": "float | NoneType"}
    assert column_types([]) == {}


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))


@given(st.lists(st.dictionaries(st.text(max_size=3), PLAIN, max_size=4), min_size=1, max_size=6))
def test_every_part_of_every_state_is_found(values: list[dict[str, Any]]) -> None:
    """Whatever the names and the values are: each is in its column, equal; and nothing else is."""
    frame = state_table(rows(*values), ["the key"])
    names = list({name: None for value in values for name in value})
    columns = list(frame)[1 : -len(BEHIND)]
    if not names:
        assert columns == ["value"]
        return
    for name, column in zip(names, columns, strict=True):
        assert [present(value) for value in frame[column]] == [value.get(name) for value in values]


def test_a_key_that_ends_has_its_end_alone() -> None:
    """Which is no part of its state, whatever that is made of."""
    state = {"n": 2, "_end": 3}
    frame = state_table([StateRow(1, state, 9, 3, 0, (60,)), StateRow(2, state, 9, 3, 0)], ["k"])
    assert [*frame] == ["k", "n", "value__end", "_end", *BEHIND]
    assert frame["_end"].tolist()[0] == 60
    plain = state_table([StateRow(1, {"n": 2}, 9, 3, 0, (60,))], ["k"])
    assert states_of(plain, ["k"]) == [{"n": 2}]
