"""What a change makes of real rows is seen before it is made, when it is refused, and when it is only planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError, ReconfigurationError
from fries_nb.run import Run


class Counting:
    """Counts the rows of a key."""

    def initial_state(self) -> dict[str, int]:
        """None yet."""
        return {"count": 0}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with its number."""
        state["count"] += 1
        return row | {"nth": state["count"]}


class ByTen(Counting):
    """The same, by tens, and no row of half of the keys."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with ten times its number."""
        if row["key"] >= 5:
            raise ValueError("high")
        return super().process(row, state) | {"nth": 10 * state["count"]}


class Failing(Counting):
    """Fails on each row, and so on those that a worker has kept, however few they are."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """Never returns."""
        raise ValueError("any")


class Unopened:
    """Cannot be opened."""

    def open(self) -> None:
        """Fails."""
        raise OSError("no model")

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Never called."""
        return row


def declared() -> fn.Dataflow:
    """Rows are counted by key, then scored."""
    flow = fn.Dataflow("seen")
    rows = flow.source("S", fn.rate(2_000, row=lambda value: {"key": value % 10, "value": value}), workers=2)
    rows.map("K", Counting(), key="key", workers=2).map("M", lambda row: row | {"p": row["value"] * 2}).sink(
        "out", fn.memory()
    )
    return flow


def test_examples_of_changes_that_are_made_refused_or_only_planned(
    spark: SparkSession, kept: Callable[[Run], Run]
) -> None:
    """A trial leaves no change behind, and states as they are; two changes at once are seen at each operator."""
    run = kept(declared().run(spark, hosts=2, audit=True))
    until(lambda: run.metrics().operators["out"].processed > 500, run)

    planned = run.examples({"M": lambda row: row | {"p": row["value"] * 3, "q": "x"}}, n=12, timeout=PATIENCE_S)
    table = planned.table
    assert (len(planned.rows) > 0, planned.refusal, set(table["_result"])) == (True, "", {"differs"})
    assert (table["p (before)"] == table["value"] * 2).all()
    assert (table["p (after)"] == table["value"] * 3).all()
    assert (list(run.changes), set(table["_worker"]) <= {0, 1}) == ([], True)

    both = {"K": ByTen(), "M": lambda row: row if row["key"] % 2 else None}
    table = run.examples(both, n=20, timeout=PATIENCE_S).table  # refused, if the rehearsal had time for such a key
    by_operator = {name: table[table["_operator"] == name] for name in ("K", "M")}
    assert set(by_operator["K"]["_result"]) == {"differs", "failed"}
    assert set(by_operator["M"]["_result"]) <= {"differs", "dropped", "same"}
    good = by_operator["K"][by_operator["K"]["_result"] == "differs"]
    assert (good["nth (after)"] == 10 * good["nth (before)"]).all()

    assert "ValueError: any" in run.examples({"K": Failing()}, timeout=PATIENCE_S).refusal
    change = run.reconfigure({"K": Failing()})
    assert change.result(PATIENCE_S).outcome == "aborted"
    assert "failed" in set(change.examples(timeout=PATIENCE_S).table["_result"])
    change = run.reconfigure({"M": lambda row: row | {"p": 0}})
    assert set(change.examples(timeout=PATIENCE_S).table["p (after)"]) == {0}
    assert change.result(PATIENCE_S).outcome == "done"
    assert [one.id for one in run.changes] == ["u1", "u2"]

    unrehearsed = run.reconfigure({"M": lambda row: row | {"p": 1}}, rehearse=False)
    with pytest.raises(PlanError, match="not rehearsed, as requested"):
        unrehearsed.examples(timeout=PATIENCE_S)
    with pytest.raises(ReconfigurationError, match="no model"):
        run.examples({"M": Unopened()}, timeout=PATIENCE_S)
    with pytest.raises(DataflowError, match="no operator 'N'"):
        run.examples({"N": len})
    with pytest.raises(PlanError, match="expected a whole number from 1 to 50"):
        run.examples({"M": len}, n=51)
    assert (run.state("K", n=None, timeout=PATIENCE_S)["count"] > 0).all()
    run.cancel()
    assert run.audit().serializable


def test_the_effect_of_a_change_is_told_at_its_operators_and_the_sinks(
    spark: SparkSession, kept: Callable[[Run], Run]
) -> None:
    """Rows that fail, rows that are dropped, and other values; of a change that is not made there is none."""
    flow = fn.Dataflow("effect")
    rows = flow.source("S", fn.rate(1_000, row=lambda value: {"value": value % 10}), workers=2)
    scored = rows.map("M", lambda row: row | {"p": 1.0, "shop": "a"}, workers=2, on_error=fn.memory())
    scored.sink("out", fn.memory())
    run = kept(flow.run(spark, hosts=2))
    until(lambda: run.metrics().operators["out"].processed > 4_000, run)

    def other(row: dict[str, Any]) -> dict[str, Any] | None:
        """Drops half, fails on a tenth, and has twice as much of the rest, with some missing."""
        if row["value"] == 9:
            raise ValueError("nine")
        return None if row["value"] < 5 else row | {"p": 2.0 if row["value"] < 8 else None, "shop": "b"}

    change = run.reconfigure({"M": other}, rehearse=False)
    assert change.result(PATIENCE_S).outcome == "done"
    until(lambda: run.metrics().operators["M"].failed > 100, run)
    found: dict[tuple[str, str, str], tuple[Any, Any]] = {}
    words = ""

    def has_both() -> bool:
        """Whether rows with a value and rows without are among the newest ones, of which workers keep few."""
        nonlocal found, words
        effect = change.effect(timeout=PATIENCE_S)
        found = {(one.operator, one.column, one.name): (one.before, one.after) for one in effect.measures}
        words = effect.words
        return all(0 < found[name, "p", "nulls"][1] < 1 for name in ("M", "out"))

    until(has_both, run)
    before, after = found["M", "", "selectivity"]
    assert before == 1
    assert 0.38 < after < 0.42
    assert (found["M", "", "failures"][0], found["M", "", "failures"][1] > 0) == (0, True)
    for name in ("M", "out"):
        assert (found[name, "p", "mean"], found[name, "shop", "top values"]) == ((1.0, 2.0), ("a 100 %", "b 100 %"))
        assert found[name, "p", "nulls"][0] == 0
    assert "columns are of the newest rows then and now: M " in words
    refused = run.reconfigure({"M": Unopened()})
    assert refused.result(PATIENCE_S).outcome == "aborted"
    with pytest.raises(PlanError, match="is aborted, so it has no effect"):
        refused.effect()
    run.cancel()


def test_the_effect_of_a_new_shape_is_told_of_what_stays_comes_and_goes(
    spark: SparkSession, kept: Callable[[Run], Run]
) -> None:
    """What is added has figures after the change only, a removed sink before it, and the others on both sides."""

    def shaped(is_new: bool) -> fn.Dataflow:
        flow = fn.Dataflow("shaped")
        rows = flow.source("S", fn.rate(1_000, row=lambda value: {"value": value % 10})).map("M", dict)
        if is_new:
            rows.filter("F", lambda row: row["value"] < 5).sink("out", fn.memory())
        else:
            rows.sink("out", fn.memory())
            rows.sink("gone", fn.memory())
        return flow

    run = kept(shaped(is_new=False).run(spark, hosts=2))
    until(lambda: run.metrics().operators["out"].processed > 4_000, run)
    change = run.apply(shaped(is_new=True), drop=["gone"])
    assert change.result(PATIENCE_S).outcome == "done"
    until(lambda: run.metrics().operators["F"].processed > 4_000, run)
    effect = change.effect(timeout=PATIENCE_S)
    found = {(one.operator, one.column, one.name): (one.before, one.after) for one in effect.measures}
    sides = {name: tuple(side is not None for side in found[name, "", "rows/s"]) for name in ("M", "F", "out", "gone")}
    assert sides == {"M": (True, True), "F": (False, True), "out": (True, True), "gone": (True, False)}
    assert 0.45 < found["F", "", "selectivity"][1] < 0.55
    assert found["out", "value", "p90"][1] < 5, "there may be few rows, but all of them have passed F"
    assert not any("Replicate" in name for name, _, _ in found)
    run.cancel()
