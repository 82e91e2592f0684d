"""Functions of rows as users write them; some are unusual from some row on, or at some rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fries_nb.operators.executors import InterruptFlag

Row = dict[str, Any]
Function = Callable[[Row], Any]
RAISED = 13
"""The value of ``n`` at which functions of some styles raise the interrupt flag."""


class Keyed:
    """An operator with state, given by a function of row and state."""

    def __init__(self, process: Callable[[Row, Any], Any], initial: Callable[[], Any] = dict) -> None:
        self.process = process
        self.initial_state = initial


def adds(row: Row) -> Row:
    """A function that adds."""
    row["y"] = row["x"] * 2
    return row


def overwrites(row: Row) -> Row:
    """A function that overwrites."""
    row["x"] = row["x"] + 1
    return row


def overwrites_sometimes(row: Row) -> Row:
    """A function that overwrites sometimes."""
    if row["n"] % 7 == 3:
        row["x"] = row["n"]
    row["y"] = 1
    return row


def overwrites_a_key_sometimes(row: Row) -> Row:
    """A function that overwrites a key sometimes."""
    if row["n"] % 7 == 3:
        row["k"] = "other"
    row["y"] = 1
    return row


def overwrites_by_a_list(kept: list[int]) -> Function:
    """A function that overwrites by a list."""
    def function(row: Row) -> Row:
        kept.append(row["n"])
        if row["n"] == 33:
            row["x"] = kept
        row["y"] = 1
        return row

    return function


def adds_sometimes(row: Row) -> Row:
    """A function that adds sometimes."""
    row["y"] = row["x"]
    if row["n"] % 9 == 6:
        row["flag"] = True
    return row


def adds_one_of_two(row: Row) -> Row:
    """A function that adds one of two."""
    row["z" if row["n"] % 9 == 6 else "y"] = row["x"]
    return row


def writes_sometimes_a_column_it_does_not_read(row: Row) -> Row:
    """A function that writes sometimes a column it does not read."""
    name = row["n"]
    row["y"] = name
    if name % 9 == 6:
        row["s"] = "written"
    return row


def deletes_late(row: Row) -> Row:
    """A function that deletes late."""
    row["y"] = row["x"]
    if row["n"] > 30:
        del row["s"]
    return row


def removes_as_many_as_it_holds(row: Row) -> Row:
    """A function that removes as many as it holds."""
    row["y"] = row["x"]
    if row["n"] > 30:
        for name in ("s", "k", "t", "b", "d"):
            del row[name]
    return row


def renames(row: Row) -> Row:
    """A function that renames."""
    row["renamed"] = row.pop("x")
    return row


def renames_late(row: Row) -> Row:
    """A function that renames late."""
    row["y"] = row["x"]
    if row["n"] > 30:
        row["renamed"] = row.pop("x")
    return row


def drops_some(row: Row) -> Row | None:
    """A function that drops some."""
    row["y"] = row["x"]
    return None if row["n"] % 5 == 0 else row


def reads_more_from_some_row_on(row: Row) -> Row:
    """A function that reads more from some row on."""
    row["y"] = f"{row['n']}{row['s'] if row['n'] > 25 else ''}{row['t'] if row['n'] > 32 else ''}"
    return row


def reads_by_get(row: Row) -> Row:
    """A function that reads by get."""
    row["y"] = (row.get("x"), row.get("absent", 1), "x" in row, "absent" in row)[3 if row["n"] else 2]
    return row


def uses_other_methods(row: Row) -> Row:
    """A function that uses other methods."""
    row.setdefault("x", -1)
    row.setdefault("y", len(row.get("s")))
    row.update(z=row["n"])
    row |= {"w": 1.5}
    return row


def shows_all(row: Row) -> Row:
    """A function that shows all."""
    number = row["n"] % 7
    shown = [json.dumps, str, lambda r: f"{[*r.items()]}", lambda r: f"{[*r]}", len, lambda r: f"{[*r.values()]}"]
    row["y"] = str(shown[number](row)) if number < len(shown) else json.dumps((lambda **named: named)(**row))
    return row


def shows_all_late(row: Row) -> Row:
    """A function that shows all late."""
    row["y"] = json.dumps(row) if row["n"] > 30 else str(row["n"])
    return row


def copies(row: Row) -> Row:
    """A function that copies."""
    other = row.copy()
    other["y"] = row["x"]
    row["unseen"] = 0
    return other


def forgets_a_copy_late(row: Row) -> Row:
    """A function that forgets a copy late."""
    row["y"] = row["x"]
    if row["n"] > 30:
        other = row.copy()
        other["late"] = 1
        _ = row | {"later": 2}
    return row


def fails_late(row: Row) -> Row:
    """A function that fails late."""
    row["y"] = row["x"]
    if row["n"] == 37:
        row["partly"] = 1
        raise ValueError(f"no {row['n']}")
    return row


def asks_for_an_absent_column(row: Row) -> Row:
    """A function that asks for an absent column."""
    row["y"] = row["x"] if row["n"] != 37 else row["absent"]
    return row


def returns_a_list_late(row: Row) -> Any:
    """A function that returns a list late."""
    row["y"] = row["x"]
    return [row] if row["n"] == 37 else row


def writes_another_type_late(row: Row) -> Row:
    """A function that writes another type late."""
    row["y"] = row["x"] if row["n"] < 37 else [row["x"]]
    return row


def writes_no_column_late(row: Row) -> Row:
    """A function that writes no column late."""
    row["y"] = row["x"] if row["n"] < 37 else object()
    return row


def writes_nothing_sometimes(row: Row) -> Row:
    """A function that writes nothing sometimes."""
    if row["n"] % 9 != 6:
        row["y"] = row["x"]
    return row


def changes_a_key_that_it_reads(row: Row) -> Row:
    """A function that changes a key that it reads."""
    row["y"] = row["k"]
    if row["n"] % 9 == 6:
        row["k"] = "k1"
    return row


def doubles_by_update(row: Row) -> Row:
    """A function that doubles by update."""
    row.update(y=row["x"] * 2)
    return row


def writes_a_narrow_value_there_is(row: Row) -> Row:
    """A function that writes a narrow value there is."""
    value = row["f"]
    if row["n"] > 30:
        row["f"] = value
    row["y"] = row["x"]
    return row


def writes_the_value_there_is(row: Row) -> Row:
    """A function that writes the value there is."""
    if row["n"] > 30:
        row["x"], row["f"] = row["x"], row["f"]
    row["y"] = 1
    return row


def keeps_rows(kept: list[Any]) -> Function:
    """A function that keeps rows."""
    def function(row: Row) -> Row:
        row["y"] = len(kept)
        kept.append(row)
        if len(kept) > 1:
            kept[-2]["x"] = -1
        return row

    return function


def keeps_some(kept: list[Any], result: Callable[[Row], Any]) -> Function:
    """A function that keeps some."""
    def function(row: Row) -> Any:
        row["y"] = len(kept)
        if row["n"] % 11 == 5:
            kept.append(row)
        return result(row)

    return function


def gives_back_an_earlier_row(kept: list[Any]) -> Function:
    """A function that gives back an earlier row."""
    def function(row: Row) -> Row:
        row["y"] = row["x"]
        if row["n"] == 20:
            kept.append(row)
        return kept[0] if row["n"] == 35 else row

    return function


def interrupts(flag: InterruptFlag) -> Function:
    """A function that interrupts."""
    def function(row: Row) -> Row:
        row["y"] = row["x"]
        flag.raised = row["n"] % 20 == RAISED
        return row

    return function


def interrupts_and_drops(flag: InterruptFlag) -> Function:
    """A function that interrupts and drops."""
    def function(row: Row) -> bool:
        flag.raised = row["n"] % 20 == RAISED
        return row["n"] % 20 != RAISED

    return function


def interrupts_at(flag: InterruptFlag, row: Row, number: int) -> Row:
    """A function that interrupts at."""
    flag.raised = row["n"] == number
    return row


def puts_back(row: Row) -> Row:
    """A function that puts back."""
    row["x"] = row["n"] * 3 % 17 if row["x"] != row["n"] else 1000 + row["n"]
    return row


def aliases_in_place(row: Row, state: list[int]) -> Row:
    """A function that aliases in place."""
    state.append(row["n"])
    row["last"] = state
    return row


def odd(row: Row) -> Any:
    """A function that odd."""
    return row["n"] % 2


def scores(row: Row, state: list[int]) -> Row:
    """A function that scores."""
    state.append(row["x"])
    del state[:-3]
    row["sum"] = sum(state)
    return row


def aliases(row: Row, state: list[int]) -> Row:
    """A function that aliases."""
    state.append(row["n"])
    return row | {"last": state}


def aliases_late(row: Row, state: list[int]) -> Row:
    """A function that aliases late."""
    state.append(row["n"])
    row["y"] = 1
    if row["n"] > 30:
        row["last"] = state
    return row


def returns_the_state(row: Row, state: Row) -> Row:
    """A function that returns the state."""
    state["seen"] = state.get("seen", 0) + 1
    return state


def returns_the_state_late(row: Row, state: Row) -> Row:
    """A function that returns the state late."""
    state["y"] = row["y"] = row["n"]
    return state if row["n"] > 30 else row


def scales(row: Row) -> Row:
    """A function that scales."""
    row["y"] = row["y"] * 10 if isinstance(row["y"], int) else 0
    row["z"] = str(row["x"])
    return row


def appends(row: Row) -> Row:
    """A function that appends."""
    if isinstance(row["y"], list):
        row["y"].append(-1)
    row["z"] = 1
    return row


def puts_its_list_late(kept: list[int]) -> Function:
    """A function that puts its list late."""
    def function(row: Row) -> Row:
        kept.append(row["n"])
        row["y"] = kept if row["n"] > 30 else 0
        return row

    return function


def removes_the_list(row: Row) -> Row:
    """A function that removes the list."""
    row["y"] = 0 if not isinstance(row["y"], list) else len(row["y"])
    return row


def yields(row: Row) -> Any:
    """A function that yields."""
    row["y"] = 1
    yield row
    yield {"x": row["n"]}
