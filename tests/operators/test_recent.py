"""What a new function is rehearsed on: a tuple that came to that operator, and that its present function passed."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from operator_setting import batch, execution, guarded, instance, outcome
from worker_bench import Bench, data

from fries_nb.dataflow import Kind, Operator, batched
from fries_nb.dataflow.endpoints import memory
from fries_nb.dataflow.updates import Update
from fries_nb.protocol.messages import Prepared, Rehearsed, Report, WorkerId
from fries_nb.worker.events import WorkerTick


def chain_of(first: Any, second: Any = lambda row: row) -> Bench:
    """A bench with a chain of two, which has processed three tuples."""
    bench = Bench(Operator("M", function=first), Operator("N", function=second))
    bench.arrive(0, data(1, 2, 3))
    bench.run()
    return bench


def prepared(bench: Bench, function: Any, operator: str = "N") -> Rehearsed:
    """The answer to the rehearsal of a change of an operator."""
    bench.prepare(operator, "u1", Update(function))
    [answer] = bench.answers(Rehearsed)
    assert answer.worker == WorkerId(operator, 0)
    return answer  # type: ignore[no-any-return]


def sampled(running: Any, position: int) -> dict[str, Any] | None:
    """The values of the last tuple that an operator got past."""
    recent = running.samples(position)
    return dict(recent[0].row()) if recent else None


# ---- inside of a chain


def test_an_operator_behind_another_is_rehearsed_on_what_comes_to_it() -> None:
    """With what the one in front has written; the types are those of the columns that came."""
    bench = Bench(Operator("M", function=lambda row: row | {"v": 2.5}), Operator("N", function=lambda row: row))
    bench.arrive(0, data(1))
    bench.run()
    answer = prepared(bench, lambda row: row | {"w": row["v"] > row["n"]})
    assert (answer.error, answer.writes) == ("", {"N": {"n": "int64", "v": "double", "w": "bool"}})
    answer = prepared(chain_of(lambda row: row | {"v": 1}), lambda row: {"w": row["gone"]})
    assert "new N failed in a rehearsal on a recent tuple: N failed on a tuple: KeyError" in answer.error


def test_a_whole_row_is_that_row() -> None:
    """Columns that it lost are not there; values have the form that a column gives them."""
    first = {"a": (1, 2), "s": frozenset([1])}
    bench = chain_of(lambda row: dict(first), lambda row: {"n": 1})
    answer = prepared(bench, lambda row: {"n": len(row["a"] + row["s"]), "names": ",".join(row)})
    assert (answer.error, answer.writes) == ("", {"N": {"n": "int64", "names": "string"}})
    answer = prepared(chain_of(lambda row: dict(first), lambda row: {"n": 1}), lambda row: {"n": row["n"]})
    assert "no column 'n'; this row has a, s" in answer.error


def test_what_its_present_function_does_to_the_row_does_not_show() -> None:
    """Nor does it count as a look at all columns."""

    def spoils(row: dict[str, Any]) -> dict[str, Any]:
        row["v"] = "spoilt"
        del row["n"]
        return row

    bench = chain_of(lambda row: row | {"v": 1}, spoils)
    bench.worker.handle(WorkerTick())
    before = [report.reads for report in bench.answers(Report)]
    answer = prepared(bench, lambda row: {"sum": row["n"] + row["v"]})
    assert (answer.error, answer.writes) == ("", {"N": {"sum": "int64"}})
    quiet = chain_of(lambda row: row | {"v": 1})
    prepared(quiet, lambda row: {"sum": sum(row.values())})
    quiet.worker.handle(WorkerTick())
    assert [report.reads for report in quiet.answers(Report)] == [(), ()]
    assert before[0] == ("n",)


def test_without_a_copy_or_a_tuple_there_is_no_rehearsal() -> None:
    """A lock cannot be copied; a filter lets nothing through; a switched neighbour would send other tuples."""
    fails = Update(lambda row: row["gone"])
    for bench in (chain_of(lambda row: row | {"lock": threading.Lock()}, lambda row: {}), chain_of(lambda row: None)):
        bench.prepare("N", "u1", fails)
        assert [(answer.error, answer.samples) for answer in bench.answers(Prepared)] == [("", ())]
    first, second = instance("A", Kind.MAP, lambda row: row | {"v": 1}), instance("B", Kind.MAP, lambda row: row)
    running = execution(first, second)
    outcome(running, batch(n=[1]))
    assert sampled(running, 1) == {"n": 1, "v": 1}
    first.function = lambda row: row | {"v": "x"}
    running.rebuild()
    assert sampled(running, 1) is None
    assert sampled(running, 0) == {"n": 1}


@pytest.mark.parametrize("quota", [1, 2, 100])
def test_each_operator_has_its_own(quota: int) -> None:
    """Of each slice one tuple is noted; all are counted once."""
    chain = [
        instance("A", Kind.MAP, lambda row: row | {"a": row["n"] + 1}),
        instance("B", Kind.FLAT_MAP, lambda row: [row | {"b": 1}, row | {"b": 2}]),
        instance("C", Kind.FILTER, lambda row: row["b"] == 1),
        instance("D", Kind.MAP, lambda row: row),
    ]
    running = execution(*chain)
    assert [sampled(running, position) for position in range(4)] == [None] * 4
    outcome(running, batch(n=[1, 2, 3]), quota=quota)
    n = {1: 3, 2: 3, 100: 1}[quota]
    assert [sampled(running, position) for position in range(4)] == [
        {"n": 3}, {"n": n, "a": n + 1}, {"n": n, "a": n + 1, "b": 2}, {"n": n, "a": n + 1, "b": 1}
    ]  # fmt: skip
    assert [one.processed for one in chain] == [3, 3, 6, 3]


def test_a_vectorised_function_behind_another_is_rehearsed_too() -> None:
    """On a row of the batch that came to it."""
    double = batched(lambda rows: rows.append_column("d", pc.multiply(rows["n"], 2)))
    bench = chain_of(double, batched(lambda rows: rows))
    answer = prepared(bench, batched(lambda rows: rows.append_column("e", pc.divide(rows["d"], pa.scalar(2.0)))))
    assert (answer.error, answer.writes) == ("", {"N": {"n": "int64", "d": "int64", "e": "double"}})
    assert "gone" in prepared(chain_of(double, batched(lambda rows: rows)), batched(lambda rows: rows["gone"])).error


# ---- poison


def picky(row: dict[str, Any]) -> dict[str, Any]:
    """Fails on what is below zero."""
    if row["n"] < 0:
        raise ValueError(f"not {row['n']}")
    return row


picky_of_many = batched(lambda rows: rows if pc.min(rows["n"]).as_py() >= 0 else picky({"n": -1}))


@pytest.mark.parametrize("function", [picky, picky_of_many])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("quota", [1, 100])
def test_a_tuple_that_was_set_aside_is_no_sample(function: Any, behind: bool, quota: int) -> None:
    """But the last one that passed, if in an earlier frame; none if none has."""
    operator, _ = guarded(Kind.MAP, function)
    front = [instance("F", Kind.MAP, batched(lambda rows: rows) if function is picky_of_many else lambda row: row)]
    running = execution(*front * behind, operator)
    position, found = int(behind), []
    for frame in ([-1, -2], [1, -3], [-4], [2], [-5, -6]):
        outcome(running, batch(n=frame), quota=quota)
        found.append(sampled(running, position))
    assert found == [None, {"n": 1}, {"n": 1}, {"n": 2}, {"n": 2}]


def test_a_change_about_something_else_is_not_held_up_by_a_dead_letter() -> None:
    """The new function fails on that tuple as the present one does, and goes on being replaced."""
    bench = Bench(Operator("N", function=picky, on_error=memory()))
    bench.keep_letters(0)
    bench.arrive(0, data(1, -1))
    bench.run()
    answer = prepared(bench, lambda row: picky(row) | {"v": 2})
    assert (answer.error, answer.writes) == ("", {"N": {"n": "int64", "v": "int64"}})
