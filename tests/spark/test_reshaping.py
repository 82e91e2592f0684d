"""A run on Spark changes its shape: each edit alone and in pairs, with hosts that die, and resumed in the new shape."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S, looks
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import PlanError, RunError
from fries_nb.run import Run


class Numbered:
    """How many tuples of its key there have been."""

    def initial_state(self) -> list[int]:
        """None yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        """The row with its number."""
        state[0] += 1
        return row | {"number": state[0]}


def keyed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of one of seven keys, with the way that it has come."""
    return row | {"key": row["value"] % 7, "way": "K"}


def named(source: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row with the source that it is from."""
    return keyed(row) | {"source": source}


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """A row that has passed an operator more."""
    return row | {"way": row["way"] + "M"}


def last_keyed(row: dict[str, Any]) -> dict[str, Any]:
    """The same by another function."""
    return keyed(row) | {"way": "K2"}


def last(row: dict[str, Any]) -> dict[str, Any]:
    """A row at the last operator."""
    return row | {"way": row["way"] + "L"}


def last_anew(row: dict[str, Any]) -> dict[str, Any]:
    """The same by another version."""
    return row | {"way": row["way"] + "N"}


def declared(*parts: str, files: str = "", count: int | None = None) -> fn.Dataflow:
    """Numbers with a state for each key; and what the parts name: an operator, a branch, a source, another function."""
    flow = fn.Dataflow("shapes")
    rows = flow.source("S", fn.rate(1_500, count=count), workers=1).map("K", keyed)
    if "marked" in parts:
        rows = rows.map("M", marked)
    numbered = rows.map("C", Numbered(), key="key")
    if "behind" in parts:
        numbered = numbered.map("M", marked)
    numbered = numbered.map("L", last_anew if "anew" in parts else last)
    if "source" in parts:
        numbered = numbered.union("U", flow.source("T", fn.rate(500, count=100), workers=1).map("TK", keyed))
    numbered.sink("out", fn.memory())
    if "branch" in parts:
        target = fn.parquet(files) if files else fn.memory()
        numbered.filter("Even", lambda row: row["value"] % 2 == 0).sink("even", target)
    if "joined" in parts:
        table = pa.table({"key": list(range(7)), "name": [f"n{key}" for key in range(7)]})
        numbered.join("J", table, on="key").sink("named", fn.memory())
    return flow


def applied(run: Run, flow: fn.Dataflow, **options: Any) -> None:
    """Apply a dataflow, and see that the run is it then."""
    outcome = run.apply(flow, **options).settled(PATIENCE_S)
    assert outcome.outcome == "done", outcome.error
    assert 0 < outcome.prepare_ms < outcome.prepare_ms + outcome.commit_ms <= outcome.delay_ms
    assert not run.diff(flow)


def refuse_mixed(run: Run) -> None:
    """No source tuple has met two shapes, and none was lost on the way or doubled."""
    verdict = run.audit()
    assert (verdict.serializable, verdict.claim) == (True, "complete"), str(verdict)


def refuse_errors(run: Run) -> list[Any]:
    """Every number is there once, and each key was counted without a gap, by one shape; returns the rows."""
    refuse_mixed(run)
    rows = [row for row in run.output("out").collect() if row["number"] is not None]
    values = sorted(row["value"] for row in rows)
    assert values == list(range(len(values)))
    for key in range(7):
        counts = sorted(row["number"] for row in rows if row["key"] == key)
        assert counts == list(range(1, len(counts) + 1))
    return rows


def test_edits_one_after_the_other(spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path) -> None:
    """Insert, branch off into files, join a table, change a function beside, take all of it away; two change places."""
    files = str(tmp_path / "even")
    run = kept(declared().run(spark, hosts=2, workers=2, commit_interval_s=0.3, audit=True))
    until(lambda: run.metrics().operators["out"].processed > 100, run)
    shapes: list[tuple[str, ...]] = [
        ("marked",), ("marked", "branch"), ("branch", "anew"), ("branch", "anew", "joined"), (), ("marked", "source"),
        ("behind", "source"), ("marked", "source", "branch"),
    ]  # fmt: skip
    planned = run.diff(declared("marked"))
    assert planned.planned.reasons.keys() == {"K", "C"}
    assert planned.planned.plan.prediction.commit_ms >= planned.unordered.plan.prediction.commit_ms >= 0
    for parts in shapes:
        before = run.metrics().operators["out"].processed
        applied(run, declared(*parts, files=files))
        until(lambda before=before: run.metrics().operators["out"].processed > before + 100, run)
    assert run.functions()["M"].version == run.changes[-3].id
    back = run.diff(declared("marked", "source")).planned
    assert back is not None
    assert back.plan.prediction.prepare_ms > 0, "as in the changes before"
    run.stop()
    assert run.state == "finished", run.error
    ways = Counter(row["way"] for row in refuse_errors(run))
    assert ways.keys() == {"KL", "KML", "KN"}
    assert all(row["value"] % 2 == 0 for row in spark.read.parquet(files).collect())
    assert run.output("even").count() == spark.read.parquet(files).count() > 0
    assert {row["name"] for row in run.output("named").collect()} == {f"n{key}" for key in range(7)}
    assert 0 < sum(row["number"] is None for row in run.output("out").collect()) <= 100, "the added source was read"


def test_rows_of_each_source_are_known_by_it_whatever_sources_come_and_go(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """One comes in front of another, which goes; a third comes, and a host is lost: no two rows have one identity."""

    def made(*sources: str) -> fn.Dataflow:
        flow = fn.Dataflow("sources")
        # Rows of all of them have the same numbers, and reach the shared operator by ways of their own.
        first, *others = (
            flow.source(name, fn.rate(300), workers=1).map(f"{name}K", partial(named, name)) for name in sources
        )
        (first.union("U", *others) if others else first).map("C", Numbered(), key="key").sink("out", fn.memory())
        return flow

    def seen(run: Run, *sources: str) -> None:
        until(lambda: all(run.metrics().operators[name].processed > 100 for name in sources), run)
        until(lambda: set(run.rows("out", n=1_000).get("source", ())) >= set(sources), run)
        table = run.rows("out", n=1_000)
        assert [row["_source"][0] for _, row in table.iterrows()] == table["source"].tolist()

    kept_at = {"checkpoint": tmp_path, "commit_interval_s": 0.3}
    run = kept(made("S").run(spark, hosts=2, workers=2, audit=True, **kept_at))
    for sources in (("S",), ("T", "S"), ("S",), ("R", "S"), ("R",), ("Q", "R"), ("Q", "R", "S")):
        if run.diff(made(*sources)):
            applied(run, made(*sources))
        seen(run, *sources)
        if sources == ("R", "S"):
            run.set_rate("S", 0)  # which is forgotten when it is removed
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    seen(run, "Q", "R", "S")
    assert {one.rate for one in run.explain().sources} == {300.0}
    [[source, split, number]] = run.rows("out", n=1)["_source"]
    assert set(run.rows(source=(source, split, number))["_operator"]) <= {source, f"{source}K", "U", "C", "out"}
    run.stop(timeout=PATIENCE_S)
    refuse_mixed(run)


def test_what_has_the_name_of_a_removed_source_or_sink_is_another_one(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """It reads rows of its own, also when a host has died, or in a run that goes on; a sink elsewhere is refused."""

    def made(source: str = "", rows: int = 0, sink: str = "") -> fn.Dataflow:
        flow = fn.Dataflow("names")
        every = flow.source("S", fn.rate(300), workers=1)
        every.sink("out", fn.memory())
        if sink:
            every.sink("also", fn.parquet(str(tmp_path / sink)))
        if source:
            table = pa.table({"of": [source] * rows})
            flow.source("X", fn.replay(table)).map(f"X{source}", lambda row: row).sink(f"to{source}", fn.memory())
        return flow

    def read(run: Run, source: str) -> Counter[str]:
        run.checkpoint(PATIENCE_S)
        return Counter(row["of"] for row in run.output(f"to{source}").collect())

    options: dict[str, Any] = {"hosts": 2, "workers": 1, "commit_interval_s": 30, "audit": True}
    run = kept(made("A", 100).run(spark, checkpoint=tmp_path / "place", **options))
    until(lambda: run.metrics().operators["XA"].processed == 100, run)
    run.checkpoint(PATIENCE_S)
    applied(run, made(sink="one"), drop=["XA"])
    applied(run, made("B", 700))
    with pytest.raises(PlanError, match=r"also was removed from this run, and wrote into .*one, .*another name"):
        run.apply(made("B", 700, sink="two"))
    until(lambda: run.metrics().operators["XB"].processed == 700, run)
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    until(lambda: read(run, "B").total() >= 700, run)  # metrics may still be of before
    assert read(run, "B") == {"B": 700}
    run.suspend(PATIENCE_S)
    run = kept(made("B", 700).resume(tmp_path / "place", spark, **options))
    until(lambda: run.metrics().operators["out"].processed > 0, run)
    assert run.apply(made(), drop=["XB"]).settled(PATIENCE_S).outcome == "done"  # it has ended: nothing has to switch
    for _ in range(2):
        run.checkpoint(PATIENCE_S)
    run.suspend(PATIENCE_S)
    run = kept(made("C", 10).resume(tmp_path / "place", spark, **options))
    until(lambda: run.metrics().operators["XC"].processed == 10, run)
    assert read(run, "C") == {"C": 10}


def test_a_host_dies_and_the_run_goes_on_in_the_new_shape_also_resumed(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """The decision is in the checkpoint's directory: the new cell resumes it, whatever was declared at the start."""
    place = tmp_path / "place"
    run = kept(declared().run(spark, hosts=2, workers=2, checkpoint=place, commit_interval_s=0.3, audit=True))
    until(lambda: run.metrics().operators["out"].processed > 100, run)
    applied(run, declared("marked", "branch"))
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    until(lambda: run.metrics().operators["even"].processed > 100, run)
    run.suspend()
    again = kept(declared("marked", "branch").resume(place, spark, hosts=1, commit_interval_s=0.3, audit=True))
    until(lambda: again.metrics().operators["even"].processed > 100, again)
    applied(again, declared("branch"))
    again.stop()
    ways = [row["way"] for row in sorted(refuse_errors(again), key=lambda row: row["value"])]
    assert set(ways) == {"KL", "KML"}


def test_what_was_removed_comes_back_with_its_state(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """A rollback: the removed branch counts on, and the removed source reads on, also after a host has died."""

    def flow(*, whole: bool) -> fn.Dataflow:
        made = fn.Dataflow("back")
        rows = made.source("S", fn.rate(1_000), workers=1).map("K", keyed)
        rows.sink("out", fn.memory())
        if whole:
            counted = rows.map("C", Numbered(), key="key")
            counted.union("U", made.source("T", fn.rate(400), workers=1).map("TK", keyed)).sink(
                "counted", fn.memory()
            )
        return made

    options: dict[str, Any] = {"checkpoint": tmp_path / "place", "commit_interval_s": 0.3, "audit": True}
    run = kept(flow(whole=True).run(spark, hosts=2, workers=2, **options))
    until(lambda: run.metrics().operators["counted"].processed > 300, run)
    change = run.reconfigure({"TK": fn.Update(last_keyed)})
    assert change.result(PATIENCE_S).outcome == "done"
    applied(run, flow(whole=False), drop=["C"])
    before = run.metrics().operators["out"].processed
    until(lambda: run.metrics().operators["out"].processed > before + 300, run)
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    with pytest.raises(PlanError, match="TK, which change u1 has changed, was removed since"):
        run.rollback(change)
    assert run.rollback().settled(PATIENCE_S).outcome == "done"
    assert run.functions()["TK"].function == "last_keyed"
    until(lambda: run.metrics().operators["TK"].processed > 300, run)
    assert run.rollback().settled(PATIENCE_S).outcome == "done", "the change before it, of an operator that is back"
    run.stop()
    rows = run.output("counted").collect()
    numbers = sorted((row["key"], row["number"]) for row in rows if row["number"] is not None)
    for key in range(7):
        assert [n for k, n in numbers if k == key] == list(range(1, 1 + sum(k == key for k, _ in numbers)))
    others = sorted(row["value"] for row in rows if row["number"] is None)
    assert others == list(range(len(others)))
    values = sorted(row["value"] for row in run.output("out").collect())
    assert values == list(range(len(values)))
    assert len(numbers) < len(values), "some came while nothing was counted"
    refuse_mixed(run)


def small_only(row: dict[str, Any]) -> dict[str, Any]:
    """Fails on each row of a run: a rehearsal takes as many as it has time for, on a busy machine perhaps one."""
    raise ValueError(f"{row['value']} is no small value")


class FailsWhen:
    """Fails as soon as a file is there; no row of the rehearsal does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, as long as there is no file."""
        if self.path.exists():
            raise ValueError("too large")
        return row


def test_a_new_branch_that_fails_is_rolled_back_by_its_guard(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """The run goes on as it was before, and has lost and doubled nothing."""
    options: dict[str, Any] = {"checkpoint": tmp_path / "place", "commit_interval_s": 0.3, "audit": True}
    run = kept(declared().run(spark, hosts=2, workers=2, **options))
    until(lambda: run.metrics().operators["out"].processed > 100, run)
    flow = declared("marked")
    fails = tmp_path / "fails"
    flow.stream("L").map("X", FailsWhen(fails)).sink("x", fn.memory())
    change = run.apply(flow, guard=600)
    assert change.guard == "for 600 s, by going back to the last checkpoint"
    assert change.result(PATIENCE_S).outcome == "done"
    fails.touch()
    outcome = change.settled(PATIENCE_S)
    assert outcome.outcome == "rolled_back"
    assert "too large" in outcome.error
    assert not run.diff(declared())
    before = run.metrics().operators["out"].processed
    until(lambda: run.metrics().operators["out"].processed > before + 100, run)
    applied(run, declared("branch"), guard=0.01)
    run.stop()
    assert run.state == "finished", run.error
    refuse_errors(run)


def test_what_fails_on_recent_rows_is_not_applied(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """In what is added, or in the type of a column at a sink that stays; nothing has changed."""
    run = kept(declared().run(spark, hosts=2, workers=1, commit_interval_s=0.3, audit=True))
    until(lambda: run.metrics().operators["out"].processed > 100, run)
    failing = declared()
    failing.stream("L").map("X", small_only).sink("x", fn.memory())
    keyless = fn.Dataflow("shapes")
    rows = keyless.source("S", fn.rate(1_500), workers=1).map("K", keyed).map("D", lambda row: {"value": row["value"]})
    rows.map("C", Numbered(), key="value").map("L", last).sink("out", fn.memory())
    other_type = fn.Dataflow("shapes")
    rows = other_type.source("S", fn.rate(1_500), workers=1).map("K", keyed).map("C", Numbered(), key="key")
    rows.map("L", last).map("T", lambda row: row | {"number": str(row["number"])}).sink("out", fn.memory())
    empty = declared()
    empty.stream("L").filter("None", lambda row: row["value"] < 0).sink("none", fn.memory())
    for flow, words in (
        (failing, "new X failed in a rehearsal on a recent tuple: X failed on a tuple: ValueError: "),
        (other_type, "with the new L and T, 'number' would come to sink out as string, which has taken it as int64"),
    ):
        outcome = run.apply(flow).settled(PATIENCE_S)
        assert (outcome.outcome, words in outcome.error) == ("aborted", True), outcome.error
        assert not run.diff(declared())
    with pytest.raises(PlanError, match="C: key does not change while a dataflow runs"):
        run.apply(keyless)
    outcome = run.apply(empty).settled(PATIENCE_S)
    assert outcome.outcome == "done", outcome.error
    assert "rehearsed on" in outcome.rehearsal
    run.stop()
    refuse_errors(run)


class Opened:
    """Notes each time that it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """A line more."""
        with self.path.open("a") as file:
            file.write("opened\n")

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with a mark."""
        return row | {"model": 1}


def test_a_model_in_front_is_not_opened_for_a_rehearsal_of_another_shape(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """What it has made of recent rows is tried in the new branch, which is refused if it fails on that."""

    def made(branch: Callable[..., Any] | None = None) -> fn.Dataflow:
        flow = fn.Dataflow("model")
        scored = flow.source("S", fn.rate(500), workers=1).map("Model", Opened(tmp_path / "opened"))
        scored.sink("out", fn.memory())
        if branch is not None:
            scored.map("B", branch).sink("more", fn.memory())
        return flow

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"no {row['model']}")

    run = kept(made().run(spark, hosts=1, workers=1, commit_interval_s=0.3))
    until(lambda: run.metrics().operators["out"].processed > 100, run)
    refused = run.apply(made(fails)).settled(PATIENCE_S)
    assert (refused.outcome, "ValueError: no 1" in refused.error) == ("aborted", True), refused.error
    change = run.apply(made(lambda row: {"model": row["model"] + row["value"]}))
    done = change.settled(PATIENCE_S)
    assert (done.outcome, "through B, Model, " in done.rehearsal) == ("done", True), done.rehearsal
    for example in (examples := change.examples(5).rows):
        assert (example.operator, example.result, example.before) == ("B", "added", None)
        assert example.after == {"model": 1 + example.came["value"]}
    assert len({example.came["value"] for example in examples}) == len(examples) > 1
    assert (tmp_path / "opened").read_text() == "opened\n"


class OpensWhen:
    """Can be opened when a file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """Wait for the file."""
        assert any(self.path.exists() for _ in looks())

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row."""
        return row


def test_rows_flow_while_an_added_operator_is_opened(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """However long that takes: hosts do it apart."""
    run = kept(declared().run(spark, hosts=2, workers=1, commit_interval_s=0.3, audit=True))
    until(lambda: run.metrics().operators["out"].processed > 10, run)
    flow = declared()
    flow.stream("L").map("X", OpensWhen(tmp_path / "model")).sink("x", fn.memory())
    change = run.apply(flow)
    before = run.metrics().operators["out"].processed
    until(lambda: run.metrics().operators["out"].processed > before + 1_000, run)
    assert not change.done
    (tmp_path / "model").touch()
    assert change.settled(PATIENCE_S).outcome == "done"
    run.stop()
    refuse_errors(run)


class CannotOpen:
    """Fails on hosts."""

    def open(self) -> None:
        """There is no such model."""
        raise OSError("model.bin is not there")

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Never called."""
        return row


def test_what_cannot_be_applied_is_refused_in_a_sentence(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """And nothing has changed: the run goes on as it was, and takes the next change."""
    run = kept(declared("marked").run(spark, hosts=2, workers=1, commit_interval_s=0.3, audit=True))
    until(lambda: run.metrics().operators["out"].processed > 10, run)
    other = fn.Dataflow("shapes")
    rows = other.source("S", fn.rate(1_500), workers=1).map("K", keyed).map("M", marked)
    rows.map("L", last).sink("out", fn.memory())
    with pytest.raises(PlanError, match=r"C: its state is dropped; expected drop=\['C'\], if that is meant"):
        run.apply(other)
    with pytest.raises(PlanError, match="no removed operator 'Odd'"):
        run.apply(other, drop=["C", "Odd"])
    with pytest.raises(PlanError, match="changes functions only; the shape is changed by 'fries'"):
        run.apply(declared(), scheduler="epoch")
    with pytest.raises(PlanError, match="under a guard of some seconds; expected a number"):
        run.apply(declared(), guard=fn.tuples(5))
    with pytest.raises(PlanError, match="declares what runs already"):
        run.apply(declared("marked"))
    broken = declared("marked")
    broken.stream("L").map("X", CannotOpen()).sink("x", fn.memory())
    outcome = run.apply(broken).settled(PATIENCE_S)
    assert outcome.outcome == "aborted"
    assert "X failed in open()" in outcome.error
    assert "model.bin is not there" in outcome.error
    assert not run.diff(declared("marked"))
    applied(run, declared())
    applied(run, other, drop=["C"])
    with pytest.raises(PlanError, match="change u3 came after change u2 of the shape; roll that back first"):
        run.rollback("u2")
    assert run.rollback().settled(PATIENCE_S).outcome == "done"
    with pytest.raises(PlanError, match=r"change u2 is not the last one of the shape; expected run.apply\(\)"):
        run.rollback()
    run.stop()
    assert run.state == "finished", run.error
    with pytest.raises(RunError, match="a change needs a running dataflow"):
        run.apply(declared("branch"))
