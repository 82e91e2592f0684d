"""Every look into a run answers rightly, or says by name why it cannot and what to do, whatever state the run is in."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from notebook_shell import ipython
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.changes.change import Change
from fries_nb.errors import CheckpointError, DataflowError, PlanError, RunError
from fries_nb.run import Run

BAD = 600
KEYS = 7


class Counts:
    """Counts the rows of a key, up to one that it cannot take; a later version can."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with its number."""
        if row["value"] == BAD and self.version < 2:
            raise ValueError("no")
        state["count"] = state.get("count", 0) + 1
        return {**row, "nth": state["count"], "version": self.version}


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """A row that has passed an operator more."""
    return row | {"mark": True}


@dataclass
class Seen:
    """A run of S, FM and out, that has had one change before the row that is bad, and where it keeps checkpoints."""

    flow: fn.Dataflow
    run: Run
    place: Path
    change: Change | None = None

    @property
    def view(self) -> Any:
        """The newest checkpoint."""
        return fn.checkpoint(self.place)


def declared(on_error: Any, middle: bool = False) -> fn.Dataflow:
    """Rows are counted by key, and perhaps marked."""
    flow = fn.Dataflow("my sight")
    counted = flow.source("S", fn.rate(100, row=lambda value: {"key": value % KEYS})).map(
        "FM", Counts(), key="key", on_error=on_error
    )  # fmt: skip
    (counted.map("M", marked, on_error=on_error) if middle else counted).sink("out", fn.memory())
    return flow


@contextmanager
def begun(spark: SparkSession, on_error: Any, place: Path, checkpoints: bool = True, **more: Any) -> Iterator[Seen]:
    """A run that has had its change, and reads on to the bad row."""
    flow = declared(on_error)
    with ended_runs() as runs:
        options = {"checkpoint": place, "commit_interval_s": 0.5} if checkpoints else {}
        run = flow.run(spark, hosts=1, workers=1, audit=True, **options, **more)
        runs.append(run)
        until(lambda: bool(run.metrics().operators["out"].processed), run)
        until(lambda: bool(run.checkpoints) or not checkpoints, run)
        change = run.reconfigure({"FM": Counts(1)})
        assert change.result(PATIENCE_S).outcome == "done"
        run.set_rate("S", 2_000)
        yield Seen(flow, run, place, change)


def sides(table: Any) -> set[str]:
    """The sides that a table has rows of."""
    return set(table["_side"])


def ways(of: Seen) -> set[str]:
    """The operators at which a row that was just seen is kept; while others pass, perhaps none."""
    return set(of.run.rows(source=of.run.rows("out")["_source"].dropna().iloc[0])["_operator"])


CALLS: Mapping[str, Callable[[Seen], Any]] = {
    "rows": lambda of: sides(of.run.rows("FM", n=5)) == {"in", "out"},
    "edge": lambda of: sides(of.run.rows(fn.edge("FM", "out"))) == {"out"},
    "tap": lambda of: len(of.run.rows("FM", where=lambda row: row["value"] >= 0, n=2, timeout=PATIENCE_S)) >= 2,
    "way": lambda of: ways(of) >= {"out"} if of.run.state != "running" else ways(of) <= {"S", "FM", "out"},
    "state": lambda of: len(of.run.state("FM")) == len(of.run.state("FM", keys=range(10))) == KEYS,
    "marker": lambda of: len(of.run.state("FM", at="marker", timeout=of_a_moment(of.run))) == KEYS,
    "file": lambda of: of.run.state("FM", to=of.place.with_suffix(".parquet"), timeout=of_a_moment(of.run)) == KEYS,
    "sizes": lambda of: of.run.state_sizes()[["operator", "keys"]].to_numpy().tolist() == [["FM", KEYS]],
    "stored": lambda of: len(of.view.state("FM")) == KEYS and len(of.view.schema("FM")) == 1,
    "stored positions": lambda of: set(of.view.positions()["source"]) == {"S"},
    "stored operators": lambda of: of.view.operators()["name"].tolist() == ["S", "FM", "out"],
    "compared": lambda of: of.view.compare(of.place)["changed"].sum() == 0,
    "examples": lambda of: bool(of.run.examples({"FM": Counts(2)}).rows),
    "story": lambda of: bool(of.run.story().entries),
    "effect": lambda of: of.change is None or {one.operator for one in of.change.effect().measures} == {"FM", "out"},
    "change's examples": lambda of: of.change is None or bool(of.change.examples().rows),
    "change's story": lambda of: of.change is None or bool(of.change.story()),
    "letters": lambda of: "u1" in {one["version"] for one in of.run.dead_letters("FM").collect()},
    "set": lambda of: of.run.set_state("FM", {3: {"count": 10**6}}).result(PATIENCE_S).outcome == "done",
    "requeue": lambda of: of.run.requeue("FM", limit=1).result(PATIENCE_S).error == "",
}
"""The calls, each with what is right of its answer."""

NO_LETTERS = dict.fromkeys(("letters", "requeue"), (DataflowError, "keeps no dead letters"))
OVER = {
    "marker": (RunError, r"expected run.state\('FM'\), without at= and to=, for what its hosts have left"),
    "file": (RunError, r"expected run.state\('FM'\), without at= and to=, for what its hosts have left"),
    "examples": (RunError, "a change needs a running dataflow"),
    "set": (RunError, "a state is set while the dataflow runs"),
    "requeue": (RunError, "rows go back to a dataflow that runs"),
}
RESUMED = {name: (kind, rf"{words}; flow\.resume\('.*'\) lets it go on") for name, (kind, words) in OVER.items()}
WAITS = (TimeoutError, "no marker passes FM, which is paused on a tuple until it is changed")
GONE = (RunError, "no worker of FM is there to answer")
NOT_KEPT = (CheckpointError, r"FM had ended before .*; expected run.state\('FM'\) of its run")
Refusals = Mapping[str, tuple[type[Exception], str]]


def of_a_moment(run: Run) -> float:
    """How long a checkpoint may take: of a paused run, there is none to wait for."""
    return 0.5 if run.paused else PATIENCE_S


def check(of: Seen, refusals: Refusals) -> None:
    """Each call answers, unless it is refused so."""
    for name, call in CALLS.items():
        if name in refusals:
            kind, words = refusals[name]
            with pytest.raises(kind, match=words):
                call(of)
        else:
            assert call(of), name


def test_a_run_with_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """It runs, reads nothing, is suspended, goes on, and drains; the magics ask the same; a fork begins beside it."""
    with (
        begun(spark, fn.memory(), tmp_path / "kept", hide=["key"]) as of,
        ended_runs() as runs,
        ipython(tmp_path) as shell,
    ):
        run = of.run
        until(lambda: run.metrics().operators["FM"].failed == 1, run)
        seen = len(run.checkpoints)
        until(lambda: len(run.checkpoints) > seen + 1, run)  # the letter is committed
        with pytest.raises(PlanError, match=r'KeyError: .price. on .* "key": "•••"}; the row has the columns value'):
            run.requeue("FM", where=lambda row: row["price"] > 1)
        check(of, {})
        run.set_rate("S", 0)
        check(of, {})
        shell.user_ns |= {"run": run, "Counts": Counts}
        for line in ('rows FM -n 2 --where "row[\'value\'] >= 0"', "rows FM->out", "state", "state FM --keys 3",
                     "examples FM=Counts(2)", "requeue FM --wait 60"):  # fmt: skip
            assert shell.run_line_magic(*f"fries_{line}".split(maxsplit=1)) is not None if " " in line else (
                shell.run_line_magic(f"fries_{line}", "") is not None)  # fmt: skip
        run.set_rate("S", 2_000)
        before = run.metrics().operators["out"].processed
        until(lambda: run.metrics().operators["out"].processed > before, run)
        run.suspend(PATIENCE_S)
        check(of, RESUMED)
        with pytest.raises(DataflowError, match=r"sinks= lacks 'FM' \(its dead letters\), 'out'"):
            of.flow.fork(of.place, {}, spark)
        later = of.flow.resume(of.place, spark, hosts=1, commit_interval_s=0.5, audit=True)
        fork = of.flow.fork(of.view, {"FM": fn.memory(), "out": fn.memory()}, spark, hosts=1, audit=True)
        runs += [later, fork]
        for one in (later, fork):
            until(lambda one=one: bool(one.metrics().operators["out"].processed), one)
        check(Seen(of.flow, later, of.place), {})
        assert sides(fork.rows("FM")) == {"in", "out"}
        assert fork.state("FM", keys=[3])["count"][0] > 10**6, "it was set before"
        later.stop(timeout=PATIENCE_S)
        ends = {"stored": NOT_KEPT, "compared": NOT_KEPT} | OVER
        del ends["compared"]
        check(Seen(of.flow, later, of.place), ends)


def test_a_run_that_is_paused_on_a_tuple(spark: SparkSession, tmp_path: Path) -> None:
    """Examples of its fix are there before it is made: those of the row on which it is paused."""
    with begun(spark, "pause", tmp_path / "kept") as of:
        until(lambda: bool(of.run.paused), of.run)
        check(of, {"marker": WAITS, "file": WAITS} | NO_LETTERS)
        [example] = of.run.examples({"FM": Counts(2)}).rows
        assert (example.result, example.came["value"]) == ("mended", BAD)
        assert of.run.reconfigure({"FM": Counts(2)}).result(PATIENCE_S).outcome == "done"
        until(lambda: not of.run.paused, of.run)


def test_a_run_that_has_failed(spark: SparkSession, tmp_path: Path) -> None:
    """By its function, and its last moments are there; or with its only host, and nothing is."""
    with begun(spark, "fail", tmp_path / "kept") as of:
        assert of.run.wait(PATIENCE_S) == "failed"
        check(of, RESUMED | NO_LETTERS)
        for call, kind, words in (
            (lambda: of.run.rows("FM", n=0), PlanError, "n=0"),
            (lambda: of.run.rows(["FM"]), DataflowError, "no operator ..FM..; expected one of S, FM, out"),
            (lambda: of.run.state(None), DataflowError, "no operator None"),
            (lambda: of.run.rows("FM", where=lambda row: row["price"]), PlanError, "it has the columns value"),
            (lambda: of.view.state("FM", keys=[[]]), CheckpointError, "keys= has"),
        ):
            with pytest.raises(kind, match=words):
                call()
    with begun(spark, fn.memory(), tmp_path, checkpoints=False) as of:
        os.kill(of.run.host_processes[0], signal.SIGKILL)
        assert of.run.wait(PATIENCE_S) == "failed"
        asked = ("rows", "tap", "state", "sizes", "marker", "file", "set", "examples", "requeue")
        for name in asked:
            kind, words = OVER.get(name, GONE)
            with pytest.raises(kind, match=words):
                CALLS[name](of)


class Tap(threading.Thread):
    """A tap that is open while something happens, and what it has found."""

    def __init__(self, run: Run, of: Any, most: int, where: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__()
        self._ask = lambda: run.rows(of, most, where=where, timeout=PATIENCE_S)
        self.found: Any = None
        self.start()

    def run(self) -> None:
        """Wait for rows."""
        self.found = self._ask()

    def end(self) -> Any:
        """What it has found in the end."""
        self.join(PATIENCE_S)
        table = self.found
        assert table.attrs["rows_seen"] >= table.attrs["rows_dropped"] + len(table)
        return table


def test_taps_and_looks_while_a_run_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Hosts come, one dies, an operator goes, the run ends: each tap goes on, or ends with it."""
    flow = declared(fn.memory(), middle=True)
    with ended_runs() as runs:
        run = flow.run(spark, hosts=2, workers=2, checkpoint=tmp_path / "kept", commit_interval_s=0.5, audit=True)
        runs.append(run)
        until(lambda: bool(run.checkpoints), run)

        def looked() -> None:
            seen, states = run.rows("FM", timeout=PATIENCE_S), run.state("FM", n=None, timeout=PATIENCE_S)
            assert set(states["key"]) == set(range(KEYS))
            assert sides(seen) <= {"in", "out"}
            assert len(run.state("FM", at="marker", timeout=PATIENCE_S)) == KEYS
            assert run.state_sizes(timeout=PATIENCE_S)["keys"].tolist() == [KEYS]

        until(lambda: len(run.state("FM")) == KEYS, run)
        changed = run.reconfigure({"M": lambda row: row | {"mark": False}})
        run.reconfigure({"FM": Counts(1)})
        with suppress(PlanError):  # unless that has ended; it would undo it
            run.set_state("FM", {3: {"count": 10}})
        assert [one.result(PATIENCE_S).outcome for one in run.changes] == ["done"] * len(run.changes)
        until(lambda: set(run.rows("out", 1).get("version", ())) == {1}, run)
        goes_on = Tap(run, "FM", 10**30, lambda row: row["value"] % 500 == 3)
        rescale = run.rescale(3)
        while not rescale.outcome:
            looked()
        assert rescale.result(PATIENCE_S).outcome == "done"
        finds = Tap(run, "FM", 1, lambda row: row["value"] > 100_000_000 or row.get("nth", 0) > 20)
        assert sides(finds.end()) == {"out"}
        os.kill(run.host_processes[1], signal.SIGKILL)
        looked()
        until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
        looked()
        removed, along = (Tap(run, of, 5, lambda row: False) for of in ("M", fn.edge("FM", "M")))
        shape = run.apply(declared(fn.memory()))
        while not shape.done:
            looked()
        assert shape.settled(PATIENCE_S).outcome == "done", shape.result(0).error
        assert len(removed.end()) == len(along.end()) == 0, "they end, since there is nothing to wait for"
        looked()
        for call in (lambda: run.rows("M"), lambda: run.state("M"), lambda: run.requeue("M")):
            with pytest.raises(DataflowError, match="'M' has been removed by a change of the shape; expected one of S"):
                call()
        assert run.dead_letters("M").count() == 0
        with pytest.raises(PlanError, match="u1 has no effect any more: M was removed since"):
            changed.effect()
        assert goes_on.is_alive()
        run.stop(timeout=PATIENCE_S)
        found = goes_on.end()  # few rows are tried, so perhaps none that it looks for
        assert {row["value"] % 500 for _, row in found.iterrows()} <= {3}
        assert found.attrs["rows_seen"] > 0
        assert run.audit().serializable
        looked_over = run.rows("FM", where=lambda row: True, n=2)
        assert sides(looked_over) == {"in", "out"}
