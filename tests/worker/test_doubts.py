"""A change of which nothing fails is doubted if it loses every recent row, or takes 100 times as long; else never."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from worker_bench import Bench, data

from fries_nb.dataflow.graph import Emits, Kind, Operator
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import Update
from fries_nb.protocol.messages import Rehearsed
from fries_nb.worker.rehearsal import FEW, Rehearsals

Function = Callable[[dict[str, Any]], Any]
NS = {"now": 0}
"""The time that the functions below take, without waiting for it."""
US, MS = 1_000, 1_000_000


def spend(ns: int) -> None:
    """Let time pass; a function of this module is known by name in a rehearsal as well."""
    NS["now"] += ns


class Takes:
    """A map that takes so many nanoseconds for a row, and ``first`` more for its first one."""

    def __init__(self, ns: int, first: int = 0) -> None:
        self.ns, self.first = ns, first

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        spend(self.ns + self.first)
        self.first = 0
        return row


def doubt(
    present: Operator, function: Any, *below: Operator, rows: int = FEW, above: tuple[Operator, ...] = ()
) -> str:
    """What speaks against another function of an operator, after so many rows."""
    bench = Bench(*above, present, *below)
    bench.rehearsals = Rehearsals(lambda: NS["now"])
    bench.arrive(0, data(*range(rows)))
    bench.run()
    bench.prepare(present.name, "u1", Update(function))
    [answer] = bench.answers(Rehearsed)
    assert answer.error == ""
    return str(answer.doubt)


def same(row: dict[str, Any]) -> dict[str, Any]:
    """What came."""
    return row


def nothing(row: dict[str, Any]) -> None:
    """Drops the row."""


def each(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row, by a generator."""
    yield row


def none_of_them(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """No row, by a generator."""
    yield from ()


def masked(value: bool) -> Any:
    """A vectorised filter."""
    return batched(lambda batch: pc.equal(pc.is_valid(batch.column(0)), value))


def opened(table: pa.Table) -> JoinTable:
    """The table of a join, as a worker has it."""
    made = JoinTable("M", table, {"n": "n"})
    made.open()
    return made


TABLE = pa.table({"n": list(range(40)), "shop": ["a"] * 40})
M = Operator("M", function=same)
DROPPING = {
    "map": (M, nothing),
    "filter": (Operator("M", kind=Kind.FILTER, function=lambda row: True), lambda row: False),
    "flat_map": (Operator("M", Emits.ONE_TO_MANY, kind=Kind.FLAT_MAP, function=each), none_of_them),
    "generator": (Operator("M", Emits.ONE_TO_MANY, function=each), none_of_them),
    "batched": (Operator("M", kind=Kind.FILTER, function=masked(True)), masked(False)),
    "table": (
        Operator("M", kind=Kind.JOIN, key=("n",), function=opened(TABLE)),
        opened(TABLE.slice(39)),
    ),
    "split": (Operator("M", kind=Kind.SPLIT, function=lambda row: 0, branches=2), lambda row: 1),
}
"""Operators that keep rows, and functions that lose them all; branch 1 of the split leads nowhere."""


@pytest.mark.parametrize("kind", DROPPING)
def test_one_that_drops_every_row_is_doubted(kind: str) -> None:
    """Of every kind, and with what is left of how many."""
    present, function = DROPPING[kind]
    assert doubt(present, function) == (
        f"new M drops every row in the rehearsal: of {FEW} recent rows it leaves none, the present one leaves {FEW}"
    )


@pytest.mark.parametrize("kind", DROPPING)
def test_one_that_did_so_before_is_not(kind: str) -> None:
    """A change that changes nothing about that is none to be doubted; nor is the way back."""
    present, function = DROPPING[kind]
    dropping = replace(present, function=function)
    assert doubt(dropping, function) == ""
    assert doubt(dropping, present.function) == ""


def test_one_row_of_many_that_is_left_is_enough() -> None:
    """It may be the point of the change."""
    assert doubt(M, lambda row: row if row["n"] == FEW - 1 else None) == ""


def test_few_rows_say_little_about_an_operator_that_drops_some() -> None:
    """A filter, or a map of which some rows were dropped before; to a map that kept them one row says enough."""
    present, function = DROPPING["filter"]
    assert doubt(present, function, rows=FEW - 1) == ""
    assert "leaves none" in doubt(M, nothing, rows=1)
    assert "of one recent row" in doubt(M, nothing, rows=1)
    some = Operator("M", function=lambda row: row if row["n"] % 2 else None)
    assert doubt(some, nothing, rows=FEW - 1) == ""
    assert "the present one leaves 4" in doubt(some, nothing)
    one = Operator("M", function=lambda row: row if row["n"] == 1 else None)
    assert doubt(one, nothing, rows=FEW + 1) == ""


def test_inside_of_a_chain_there_are_as_many_rows() -> None:
    """Between the functions of a chain a row of each slice is kept, of several slices."""
    above = (Operator("A1", function=same),)
    bench_rows = 3 * FEW
    present, function = DROPPING["filter"]
    bench = Bench(*above, present)
    bench.arrive(0, data(*range(bench_rows)))
    while bench.worker.run(1):
        bench.take()
    bench.prepare("M", "u1", Update(function))
    [answer] = bench.answers(Rehearsed)
    assert f"of {FEW} recent rows it leaves none" in answer.doubt


def test_a_single_row_that_is_lost_below_says_little() -> None:
    """Of all that come to a filter that drops most by its nature."""
    first = Operator("F", kind=Kind.FILTER, function=lambda row: row["n"] == 0)
    assert doubt(M, lambda row: row | {"n": -1}, first) == ""


def test_rows_that_are_lost_below_count_as_well() -> None:
    """An operator that stays as it is drops all that the new one makes of them."""
    large = Operator("F", kind=Kind.FILTER, function=lambda row: row["n"] >= 0)
    assert doubt(M, lambda row: row | {"n": -1}, large) == (
        f"with the new M no row is left in the rehearsal: F, which stays as it is, drops all that come of {FEW} recent "
        f"rows; with the present M, {FEW} come to an end"
    )
    assert doubt(M, lambda row: row | {"n": -1}, large, rows=FEW - 1) == ""
    assert doubt(M, lambda row: row | {"m": 1}, large) == ""


def test_a_function_that_cannot_be_loaded_twice_is_compared_with_nothing() -> None:
    """The present one may refuse to be opened a second time; then there is nothing to say."""

    class Once:
        opened = 0

        def open(self) -> None:
            Once.opened += 1
            if Once.opened > 0:
                raise RuntimeError("a second time")

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return row

    assert doubt(Operator("M", function=Once()), nothing) == ""


@pytest.mark.parametrize(
    ("before", "after", "times"),
    [(20 * US, 2 * MS, "100"), (US, MS, "1,000"), (US, 5_000 * MS, "5,000,000")],
)
def test_one_that_takes_100_times_as_long_is_doubted(before: int, after: int, times: str) -> None:
    """From a millisecond for a row on."""
    found = doubt(Operator("M", function=Takes(before)), Takes(after))
    assert found.startswith(f"new M takes {after / MS:,.1f} ms for a row in the rehearsal, {times} times as long")


@pytest.mark.parametrize(
    ("before", "after"),
    [(US, 999 * US), (20 * US, 1_990 * US), (50 * MS, 900 * MS), (5 * MS, US)],
)
def test_one_that_does_not_or_takes_less_than_a_millisecond_is_not(before: int, after: int) -> None:
    """1 us against 100 us is noise."""
    assert doubt(Operator("M", function=Takes(before)), Takes(after)) == ""


def test_a_first_call_that_loads_something_is_no_measure() -> None:
    """Even if it takes so long that no second tuple is tried."""
    assert doubt(Operator("M", function=Takes(US)), Takes(US, first=900 * MS)) == ""


def test_time_counts_for_the_operator_that_takes_it() -> None:
    """Slow operators below the one that is replaced do not count for it, nor those that stay as they are."""
    slow = Operator("S", function=Takes(50 * MS))
    assert doubt(Operator("M", function=Takes(US)), Takes(2 * US), slow) == ""
    assert "new M takes 3.0 ms" in doubt(Operator("M", function=Takes(US)), Takes(3 * MS), slow)


@pytest.mark.parametrize(("call", "row", "is_doubted"), [(50 * MS, 0, False), (0, 2 * MS, True), (9 * MS, US, False)])
def test_a_vectorised_function_is_measured_by_what_further_rows_take(call: int, row: int, is_doubted: bool) -> None:
    """A call costs the same for many rows as for the single one of a rehearsal."""

    def slower(batch: pa.RecordBatch) -> pa.RecordBatch:
        spend(call + row * batch.num_rows)
        return batch

    def quick(batch: pa.RecordBatch) -> pa.RecordBatch:
        spend(10 * US + batch.num_rows)
        return batch

    found = doubt(Operator("M", function=batched(quick)), batched(slower))
    assert bool(found) is is_doubted, found
