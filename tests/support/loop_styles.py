"""Styles of functions of rows, as chains, for the law that both paths of a tuple are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operator_setting import instance
from row_functions import (
    Function,
    Keyed,
    adds,
    adds_one_of_two,
    adds_sometimes,
    aliases,
    aliases_in_place,
    aliases_late,
    appends,
    asks_for_an_absent_column,
    changes_a_key_that_it_reads,
    copies,
    deletes_late,
    doubles_by_update,
    drops_some,
    fails_late,
    forgets_a_copy_late,
    gives_back_an_earlier_row,
    interrupts,
    interrupts_and_drops,
    interrupts_at,
    keeps_rows,
    keeps_some,
    odd,
    overwrites,
    overwrites_a_key_sometimes,
    overwrites_by_a_list,
    overwrites_sometimes,
    puts_back,
    puts_its_list_late,
    reads_by_get,
    reads_more_from_some_row_on,
    removes_as_many_as_it_holds,
    removes_the_list,
    renames,
    renames_late,
    returns_a_list_late,
    returns_the_state,
    returns_the_state_late,
    scales,
    scores,
    shows_all,
    shows_all_late,
    uses_other_methods,
    writes_a_narrow_value_there_is,
    writes_another_type_late,
    writes_no_column_late,
    writes_nothing_sometimes,
    writes_sometimes_a_column_it_does_not_read,
    writes_the_value_there_is,
    yields,
)

from fries_nb.dataflow.graph import Kind
from fries_nb.operators.executors import InterruptFlag
from fries_nb.operators.instance import Instance


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
