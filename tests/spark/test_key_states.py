"""States are looked at and set while rows flow on Spark, through a rescale and a kill, and when the run is over."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError, RunError
from fries_nb.run import Run

KEYS = 300


class Twice:
    """Counts the rows of a key twice; a copy that was made in between would differ."""

    def initial_state(self) -> dict[str, int]:
        """None yet."""
        return {"first": 0, "second": 0}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with its number."""
        state["first"] += 1
        state["second"] += 1
        return {**row, "nth": state["first"]}


class Fails:
    """Counts the rows of a key, up to one."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Count it."""
        if row["value"] == 40:
            raise ValueError("no")
        state["count"] = state.get("count", 0) + 1


def declared() -> fn.Dataflow:
    """Rows are counted by key."""
    flow = fn.Dataflow("seen")
    rows = flow.source("S", fn.rate(2_000, row=lambda value: {"key": value % KEYS}), workers=2)
    rows.map("K", Twice(), key="key").map("M", lambda row: row).sink("out", fn.memory())
    return flow


def whole(run: Run, **asked: Any) -> Any:
    """The state of K, which has no torn copy and no key twice."""
    table = run.state("K", n=None, timeout=PATIENCE_S, **asked)
    assert list(table) == ["key", "first", "second", "_bytes", "_bin", "_worker"]
    assert (table["first"] == table["second"]).all()
    assert table["key"].is_unique
    return table


def test_states_are_seen_while_hosts_come_and_die(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """No key is missing at any time that was there before; what a killed host had comes back with it."""
    run = kept(declared().run(spark, hosts=2, workers=2, checkpoint=tmp_path / "c", commit_interval_s=0.3, audit=True))
    until(lambda: run.metrics().operators["out"].processed > 2 * KEYS, run)
    assert set(whole(run)["key"]) == set(range(KEYS))
    assert list(run.state("K", keys=[7, 7, 10_000, 3])["key"]) == [7, 3]
    assert len(run.state("K", n=5)) == 5
    rescale = run.rescale(3)
    while not rescale.outcome:
        assert set(whole(run)["key"]) == set(range(KEYS))
    assert rescale.result(PATIENCE_S).outcome == "done"
    assert set(whole(run)["_worker"]) == {0, 1, 2}
    [sizes] = run.state_sizes().to_dict("records")
    assert (sizes["operator"], sizes["keys"], sizes["largest_bytes"] > 20) == ("K", KEYS, True)

    for operator, sides in {"S": {"out"}, "K": {"in", "out"}, "M": {"in", "out"}, "out": {"in"}}.items():
        seen = run.rows(operator, 5, timeout=PATIENCE_S)
        assert set(seen["_side"]) == sides, operator
        assert set(seen.groupby("_side").size()) <= {1, 2, 3, 4, 5}
        if operator in ("K", "M"):
            assert (seen[seen["_side"] == "out"]["nth"] >= 1).all()
        assert {source for source in seen["_source"] if source is not None and source[0] != "S"} == set()
    for operator in ("S", "K", "M", "out"):
        tapped = run.rows(operator, where=lambda row: row["key"] < 100, n=30, timeout=PATIENCE_S)
        assert set(tapped["key"]) <= set(range(100))
        assert tapped.groupby("_side").size().max() == 30
        assert tapped.attrs["rows_seen"] >= tapped.attrs["rows_dropped"] + len(tapped)
    for ends in (("S", "K"), ("K", "M"), ("M", "out")):
        assert set(run.rows(fn.edge(*ends), 5, timeout=PATIENCE_S)["_side"]) == {"out"}
    assert set(run.rows(fn.edge("K", "M"), 5, where=lambda row: row["nth"] > 0)["_side"]) == {"out"}
    cut = run.state("K", n=None, at="marker", timeout=PATIENCE_S)
    assert (set(cut["key"]), (cut["first"] == cut["second"]).all()) == (set(range(KEYS)), True)
    assert run.state("K", to=tmp_path / "states.parquet", timeout=PATIENCE_S) == KEYS
    stored = spark.read.parquet(str(tmp_path / "states.parquet"))
    assert {row["key"] for row in stored.where("first = second").collect()} == set(range(KEYS))

    change = run.set_state("K", {5: {"first": 10**6, "second": 10**6}})
    assert change.settled(PATIENCE_S).outcome == "done"
    assert run.state("K", keys=[5])["first"][0] >= 10**6
    os.kill(run.host_processes[1], signal.SIGKILL)
    assert set(whole(run)["key"]) <= set(range(KEYS))  # asked before the hosts are there again
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    assert run.state("K", keys=[5])["first"][0] >= 10**6
    assert run.rollback().settled(PATIENCE_S).outcome == "done"
    assert run.state("K", keys=[5])["first"][0] < 10**6
    run.stop(timeout=PATIENCE_S)
    assert set(whole(run)["key"]) == set(range(KEYS))
    assert run.audit().serializable
    assert run.state == "finished"
    assert set(run.rows("K")["_side"]) == {"in", "out"}
    last = run.rows("out")
    for source in (last["_source"][0], last["_source"][0][1:]):
        way = run.rows(source=source)
        assert set(way["_source"]) == {last["_source"][0]}
        assert list(dict.fromkeys(way["_operator"]))[-1] == "out"
        assert set(way["_operator"]) <= {"S", "K", "M", "out"}
        assert set(way["value"]) == {last["value"][0]}
    assert set(run.rows(fn.edge("M", "out"), source=last["_source"][0])["_operator"]) <= {"M"}
    for wanted, words in ((7, "source=7; expected source, split and row, as in source=('S', 0, 2506) or (0, 2506)"),
                          ((0, -1), r"source=(0, -1); expected source, split and row"),
                          (("S", 0, 1.5), "expected source, split and row")):  # fmt: skip
        with pytest.raises(PlanError, match=re.escape(words)):
            run.rows(source=wanted)
    with pytest.raises(DataflowError, match="no source 'K'; expected one of S"):
        run.rows(source=("K", 0, 0))
    with pytest.raises(PlanError, match="source= follows one row, where= waits for others"):
        run.rows(source=(0, 0), where=bool)
    with pytest.raises(RunError, match="'seen' has finished; a state is set while the dataflow runs"):
        run.set_state("K", {5: {"first": 0, "second": 0}})
    with pytest.raises(RunError, match=r"expected run.state\('K'\), without at= and to=, for what its hosts have left"):
        run.state("K", at="marker")


def test_what_cannot_be_looked_at_is_refused(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """In a sentence, and rows go on; a paused operator is seen as well."""

    flow = fn.Dataflow("refusing")
    numbers = flow.source("S", fn.rate(500), workers=1)
    numbers.map("F", Fails(), key="value", workers=1, on_error="pause").sink("out", fn.memory(), workers=1)
    run = kept(flow.run(spark, hosts=1, workers=1))
    until(lambda: "F" in run.paused, run)
    assert sorted(run.state("F")["value"]) == list(range(40))
    for call, error, words in (
        (lambda: run.state("G"), DataflowError, "no operator 'G'"),
        (lambda: run.state("out"), DataflowError, "out keeps no state; those that do: F"),
        (lambda: run.state("F", n=0), PlanError, "n=0; expected a whole number above 0"),
        (lambda: run.rows("G"), DataflowError, "no operator 'G'"),
        (lambda: run.rows(fn.edge("S", "out")), DataflowError,
         "no edge 'S -> out'; expected one of S -> F, F -> out"),
        (lambda: run.rows("F", source=(0, 1)), PlanError,
         r"source=\(0, 1\): the rows of 'refusing' have no identities; expected flow"),
        (lambda: run.rows(), PlanError, "has no operator; expected one, as in run.rows..FM.., or source="),
        (lambda: run.rows("F", n=0), PlanError, "n=0; expected a whole number above 0"),
        (lambda: run.rows("F", where="value"), PlanError, "where='value'; expected a function of a row"),
        (lambda: run.rows("F", where=lambda row: row["price"], timeout=1), PlanError,
         "where raised KeyError: 'price' on a row that is in; it has the columns value, timestamp"),
        (lambda: run.rows("F", where=lambda row: 1 / (row["value"] - 39)), RunError,
         'where raised ZeroDivisionError: .* on a row that is in: {"value": 39'),
        (lambda: run.rows("F", where=bool, timeout=0), PlanError, "timeout=0; expected a number above 0"),
        (lambda: run.state("F", at="now"), PlanError, 'at=.now.; expected at="marker"'),
        (lambda: run.state("F", to="x", keys=[1]), PlanError, "to='x' writes all states; expected no keys="),
        (lambda: run.state("F", n=True), PlanError, "n=True"),
        (lambda: run.state("F", timeout=-1), PlanError, "timeout=-1"),
        (lambda: run.state("F", keys=3), DataflowError, r"keys=3; expected keys in a list, as in keys=\[3\]"),
        (lambda: run.set_state("F", {}), PlanError, "expected a mapping from keys to their states"),
        (lambda: run.set_state("F", {7: None}), PlanError, "7: None is no state"),
        (lambda: run.set_state("F", {7: 3}), PlanError, "7: "),
        (lambda: run.set_state("F", {999: {"count": 1}}), PlanError, "999 has no state at F"),
    ):
        with pytest.raises(error, match=words):
            call()
    run.cancel()


class Cards:
    """Counts the rows of a card, and remembers the last one."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        """It fails at one of them."""
        state["count"], state["last"] = state.get("count", 0) + 1, {"card": row["card"]}
        if row["value"] == 400:
            raise ValueError(f"no such card: {row['card']}")
        return row


def test_hidden_values_are_masked_in_all_that_is_shown(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """What methods return has them; also where the tuple is failed on anew by a change."""
    flow = fn.Dataflow("hiding")
    rows = flow.source("S", fn.rate(500, row=lambda value: {"card": 777_000_000 + value % 7}), workers=1)
    rows.map("F", Cards(), key="card", workers=1, on_error="pause").sink("out", fn.memory(), workers=1)
    run = kept(flow.run(spark, hosts=1, workers=1, hide=["card", "nowhere"], audit=True))
    until(lambda: "F" in run.paused, run)
    seen, states, sizes = run.rows("F", timeout=PATIENCE_S), run.state("F"), run.state_sizes()
    assert set(seen["card"]) <= set(states["card"]) == {777_000_000 + number for number in range(7)}
    assert states["last"][0] == {"card": states["card"][0]}
    with pytest.raises(RunError, match="division by zero") as raised:
        run.rows("S", where=lambda row: 1 / (row["card"] - row["card"]))
    refused = run.reconfigure({"F": Cards()}, guard=None).settled(PATIENCE_S)
    assert "no such card: •••" in refused.error
    [paused] = run.paused["F"]
    shown = [*map(repr, (seen, states, sizes, paused, run.audit())), str(raised.value)]
    shown += [table._repr_html_() for table in (seen, states, sizes)] + [refused.error, refused.details]
    assert "77700000" not in "".join(shown)  # a time may have the first three digits, too
    assert "•••" in paused.row
    assert "no such card: •••" in paused.error
    run.cancel()


def test_keys_and_columns_of_odd_kinds_are_told_apart(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """NaN and null are two keys, each of which is found and set; columns with names of ours keep their values."""
    keys = [None, float("nan"), 2.5]
    flow = fn.Dataflow("odd")
    rows = flow.source("S", fn.rate(300, row=lambda value: {"_worker": keys[value % 3], "_side": "mine"}))
    rows.map("K", Twice(), key="_worker").sink("out", fn.memory())
    run = kept(flow.run(spark, hosts=1, workers=1, hide=["_side"]))
    until(lambda: run.metrics().operators["out"].processed > 10, run)
    run.set_rate("S", 0)
    seen = run.rows("K", n=1)
    assert (set(seen["value__side"]), set(seen["_side"])) == ({"mine"}, {"in", "out"})
    assert "mine" not in repr(seen)
    table = run.state("K", keys=keys)
    assert [repr(key) for key in table["key_worker"]] == ["None", "nan", "2.5"]
    assert table["_worker"].tolist() == [0, 0, 0]
    assert run.set_state("K", {float("nan"): {"first": 7, "second": 7}}).result(PATIENCE_S).outcome == "done"
    assert run.state("K", keys=[float("nan")])["first"].tolist() == [7]
