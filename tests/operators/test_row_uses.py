"""Only functions that cannot remove a column, nor let their row out, count as using it by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from fries_nb.operators.rows import ItemUse, item_use
from fries_nb.workloads.workflows import FraudDetector

Row = dict[str, Any]
AMOUNT = "amount"


def _conditional(row: Row) -> Row | None:
    if row[AMOUNT] > 3 and row["shop"] != "row":
        row["high"] = True
        return row
    return None


def _in_a_loop(row: Row) -> Row:
    for name in ("a", "b"):
        row[name] = row[AMOUNT] * 2
    return row


def _deletes(row: Row) -> Row:
    del row[AMOUNT]
    return row


def _renames_it(row: Row) -> Row:
    other = row
    del other[AMOUNT]
    return row


def _passes_it_on(row: Row) -> Row:
    _deletes(row)
    return row


def _in_a_closure(row: Row) -> Row:
    def delete() -> None:
        del row[AMOUNT]

    delete()
    return row


def _in_a_list(row: Row) -> Row:
    for one in [row]:
        del one[AMOUNT]
    return row


def _all_variables(row: Row) -> Row:
    del locals()["row"][AMOUNT]
    return row


def _its_frame(row: Row) -> Row:
    del sys._getframe().f_locals["row"][AMOUNT]
    return row


def _its_method(row: Row) -> Row:
    row.pop(AMOUNT)
    return row


def _replaces_it(row: Row) -> Row:
    row = row | {"x": 1}
    row.clear()
    return row


def _any_arguments(*row: Row) -> Row:
    del row[0][AMOUNT]
    return row[0]


def _one_of_two(row: Row) -> Row:
    other = {} if row[AMOUNT] else row
    other.clear()
    return row


class Process:
    def __call__(self, row: Row) -> Row:
        return row


@pytest.mark.parametrize(
    "function", [_conditional, _in_a_loop, lambda row: row["x"] > 1, lambda row: row, FraudDetector().process]
)
def test_functions_that_use_items_by_name(function: Callable[..., Any]) -> None:
    """Reads, writes, and the row as the result."""
    assert item_use(function) is not None


@pytest.mark.parametrize(
    "function",
    [
        _deletes, _renames_it, _passes_it_on, _in_a_closure, _in_a_list, _all_variables, _its_frame,
        _its_method, _replaces_it,
        _any_arguments, _one_of_two, Process(), dict, len, lambda row: {**row}, lambda row: [row],
    ],
)  # fmt: skip
def test_functions_that_may_do_something_else(function: Callable[..., Any]) -> None:
    """Whether they really remove a column, or only might."""
    assert item_use(function) is None


def _of_some_column(row: Row) -> Row:
    row["x"] = row["y"]
    row[AMOUNT] = row["x"]
    return row


def test_the_columns_that_a_function_names() -> None:
    """A name in a variable may be any."""
    named = {"x", "y", AMOUNT}
    assert item_use(lambda row: row["x"] > 1) == ItemUse(frozenset("x"), frozenset(), are_all=True)
    use = item_use(_of_some_column)
    assert use is not None
    assert not use.are_all
    assert (use.reads & named, use.stores & named) == ({"x", "y"}, {"x"})
