"""Functions of rows as users write them, some of them unusual from some row on, or at some rows; and chains of them.

The chains are styles for the law that both paths of a tuple are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from operator_setting import instance

from fries_nb.dataflow.graph import Kind
from fries_nb.operators.executors import InterruptFlag
from fries_nb.operators.instance import Instance

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
        if row["n"] % 20 == RAISED:
            flag.set()
        return row

    return function


def interrupts_and_drops(flag: InterruptFlag) -> Function:
    """A function that interrupts and drops."""
    def function(row: Row) -> bool:
        if row["n"] % 20 == RAISED:
            flag.set()
        return row["n"] % 20 != RAISED

    return function


def interrupts_at(flag: InterruptFlag, row: Row, number: int) -> Row:
    """A function that interrupts at."""
    if row["n"] == number:
        flag.set()
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


def on_key(function: Any, *key: str) -> Instance:
    """A keyed map."""
    return instance("K", Kind.MAP, function, key=key or ("k",))


def mapped(function: Any, **more: Any) -> Instance:
    """A map."""
    return instance("M", Kind.MAP, function, **more)


def filtered(function: Any = odd) -> Instance:
    """A filter."""
    return instance("F", Kind.FILTER, function)


def divided(function: Any = lambda row: row["n"] % 3, branches: int = 3, **more: Any) -> Instance:
    """A split, into three branches unless told otherwise."""
    return instance("D", Kind.SPLIT, function, branches=branches, **more)


Chain = Callable[[InterruptFlag, list[Any]], list[Instance]]


def _alone(function: Function) -> Chain:
    return lambda flag, kept: [mapped(function)]


PLAIN = (
    adds, overwrites, overwrites_sometimes, adds_sometimes, adds_one_of_two,
    writes_sometimes_a_column_it_does_not_read, deletes_late, removes_as_many_as_it_holds, renames, renames_late,
    drops_some, reads_more_from_some_row_on, reads_by_get, uses_other_methods, shows_all, shows_all_late, copies,
    forgets_a_copy_late, fails_late, asks_for_an_absent_column, returns_a_list_late, writes_another_type_late,
    writes_no_column_late, writes_the_value_there_is, writes_a_narrow_value_there_is, writes_nothing_sometimes, yields,
)  # fmt: skip

STYLES: dict[str, Chain] = {
    **{function.__name__: _alone(function) for function in PLAIN},
    "returns it unchanged": lambda flag, kept: [mapped(lambda row: row)],
    "derives a row": lambda flag, kept: [mapped(lambda row: row | {"y": row["x"]})],
    "returns a new dict": lambda flag, kept: [mapped(lambda row: {"a": row["n"], "b": row["s"]})],
    "returns all and one more": lambda flag, kept: [mapped(lambda row: {**row, "y": row["n"]})],
    "returns nothing": lambda flag, kept: [mapped(lambda row: None)],
    "overwrites by a list": lambda flag, kept: [mapped(overwrites_by_a_list(kept))],
    "keeps rows": lambda flag, kept: [mapped(keeps_rows(kept))],
    "keeps some rows": lambda flag, kept: [mapped(keeps_some(kept, lambda row: row)), mapped(scales)],
    "keeps some rows at the end": lambda flag, kept: [mapped(keeps_some(kept, lambda row: row))],
    "a filter keeps some rows": lambda flag, kept: [filtered(keeps_some(kept, odd))],
    "gives back an earlier row": lambda flag, kept: [mapped(gives_back_an_earlier_row(kept))],
    "interrupts": lambda flag, kept: [mapped(interrupts(flag))],
    "interrupts a row that is dropped": lambda flag, kept: [filtered(interrupts_and_drops(flag)), mapped(adds)],
    "interrupts a row that is dropped at the end": lambda flag, kept: [
        mapped(adds), filtered(interrupts_and_drops(flag))],
    "interrupts in mid chain": lambda flag, kept: [mapped(interrupts(flag)), filtered(), mapped(scales)],
    "keyed": lambda flag, kept: [on_key(Keyed(scores, list))],
    "keyed by two columns": lambda flag, kept: [on_key(Keyed(scores, list), "k", "b")],
    "keyed by a float, with nan": lambda flag, kept: [on_key(Keyed(scores, list), "d")],
    "keyed, and reads its key": lambda flag, kept: [on_key(Keyed(lambda row, state: row | {"y": row["k"]}))],
    "aliases its state": lambda flag, kept: [on_key(Keyed(aliases, list))],
    "aliases its state late": lambda flag, kept: [on_key(Keyed(aliases_late, list))],
    "returns its state": lambda flag, kept: [on_key(Keyed(returns_the_state))],
    "returns its state late": lambda flag, kept: [on_key(Keyed(returns_the_state_late))],
    "keyed by what an earlier operator writes": lambda flag, kept: [mapped(adds), on_key(Keyed(scores, list), "y")],
    "keyed by what an earlier one changes at times": lambda flag, kept: [
        mapped(overwrites_a_key_sometimes), on_key(Keyed(scores, list))],
    "a filter": lambda flag, kept: [filtered()],
    "a filter that writes": lambda flag, kept: [filtered(lambda row: bool(row.update(y=1)) or row["n"] % 2)],
    "a filter that fails": lambda flag, kept: [filtered(lambda row: 1 / (row["n"] - 37) > 0)],
    "map filter map": lambda flag, kept: [mapped(adds), filtered(), mapped(scales)],
    "map filter keyed": lambda flag, kept: [mapped(adds), filtered(), on_key(Keyed(scores, list))],
    "three maps": lambda flag, kept: [mapped(adds), mapped(overwrites), mapped(scales)],
    "passes its list on late": lambda flag, kept: [mapped(puts_its_list_late(kept)), mapped(appends)],
    "passes its list on late, and a number at the end": lambda flag, kept: [
        mapped(puts_its_list_late(kept)), mapped(lambda row: [row["y"].append(-1) if row["n"] > 30 else 0] and row),
        mapped(removes_the_list)],
    "the second fails": lambda flag, kept: [mapped(adds), instance("N", Kind.MAP, fails_late)],
    "the second adds sometimes": lambda flag, kept: [mapped(lambda row: row), mapped(adds_sometimes), filtered()],
    "fails, and pauses": lambda flag, kept: [mapped(fails_late, on_error="pause")],
    "interrupts and is unexpected": lambda flag, kept: [
        mapped(lambda row: drops_some(interrupts_at(flag, row, 20)))],
    "overwrites and puts back": lambda flag, kept: [mapped(overwrites_sometimes), mapped(puts_back)],
    "changes a key that it reads": lambda flag, kept: [
        mapped(changes_a_key_that_it_reads), on_key(Keyed(scores, list))],
    "keeps some rows and returns others": lambda flag, kept: [
        mapped(keeps_some(kept, lambda row: {"y": -1} if row["n"] % 11 == 5 else row))],
    "doubles, by update, before a filter": lambda flag, kept: [mapped(doubles_by_update), filtered(), mapped(scales)],
    "keyed by an overwritten column": lambda flag, kept: [mapped(overwrites), on_key(Keyed(scores, list), "x")],
    "aliases in place": lambda flag, kept: [on_key(Keyed(aliases_in_place, list))],
    "a split": lambda flag, kept: [divided()],
    "a split with an answer": lambda flag, kept: [mapped(adds), divided(lambda row: row["n"] % 5 > 2, 2)],
    "a split into a branch that is not": lambda flag, kept: [divided(lambda row: row["n"] // 17)],
    "a split into the last branch from the end": lambda flag, kept: [divided(lambda row: -(row["n"] > 40))],
    "a split that fails": lambda flag, kept: [mapped(scales), divided(lambda row: 1 / (row["n"] - 37) > 0, 2)],
    "a split into a branch that has no rows yet": lambda flag, kept: [
        mapped(adds), divided(lambda row: row["n"] > 80, 2)],
    "a split into no number": lambda flag, kept: [divided(lambda row: "x" if row["n"] == 60 else row["n"] % 2)],
    "a split that writes": lambda flag, kept: [divided(lambda row: [row.update(y=row["n"])] and row["n"] % 3)],
    "a split with a column of two types": lambda flag, kept: [
        divided(lambda row: [kept.append(1), row.update(y=kept if row["n"] % 3 == 2 else 1)] and row["n"] % 3)],
    "a split with lists in a branch that has no rows yet": lambda flag, kept: [
        divided(lambda row: [kept.append(1), row.update(y=kept if row["n"] > 60 else 1)] and row["n"] // 61)],
    "a split that writes lists late": lambda flag, kept: [
        divided(lambda row: [row.update(y=[1] if row["n"] % 3 == 2 and row["n"] > 30 else 1)] and row["n"] % 3)],
    "a split that keeps some rows": lambda flag, kept: [divided(keeps_some(kept, odd), 2)],
    "a split that writes and keeps": lambda flag, kept: [
        divided(keeps_some(kept, lambda row: [row.update(x=row["x"] + 1)] and row["n"] % 2), 2)],
    "a split of what is interrupted": lambda flag, kept: [mapped(interrupts(flag)), filtered(), divided()],
    "a split that is keyed": lambda flag, kept: [
        divided(Keyed(lambda row, state: len(state.setdefault("n", []).append(1) or state["n"]) % 3), key=("k",))],
    "is audited": lambda flag, kept: [mapped(adds, audit=True), filtered()],
    "beside a flat map": lambda flag, kept: [mapped(adds), instance("E", Kind.FLAT_MAP, lambda row: [row, row])],
}  # fmt: skip
