"""A dataflow on real Spark: real tasks, real frames between them, real markers; and the ways in which it ends."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S
from run_setting import until, wait_for_more

import fries_nb as fn
from fries_nb.controller.states import ChangeProgress, ChangeState
from fries_nb.errors import FriesError, PlanError, RunError
from fries_nb.planning.prediction import Prediction
from fries_nb.protocol.partitioning import cohorts_of
from fries_nb.run import Run
from fries_nb.workloads.fraud import fraud_change, fraud_flow, replay_fraud
from fries_nb.workloads.payments import payments


def processed(run: Run, operator: str) -> int:
    """Tuples that the operator has taken in, as last reported."""
    return run.metrics().operators[operator].processed


def counting(run_count: int | None = None, rate: float | None = 2_000) -> tuple[fn.Dataflow, fn.Stream]:
    """A flow with one source of numbers: run_count of them, or without end."""
    flow = fn.Dataflow("counting")
    return flow, flow.source("numbers", fn.rate(rate, count=run_count))


def first(row: dict[str, Any]) -> dict[str, Any]:
    """The old configuration."""
    return row | {"version": 1}


def second(row: dict[str, Any]) -> dict[str, Any]:
    """The new configuration."""
    return row | {"version": 2}


def test_the_changed_run_equals_a_plain_reference_that_switches_at_the_same_tuple(
    started: Callable[..., Run], tmp_path: Path
) -> None:
    """State is carried over and transformed: every payment scored after the change is as if by hand."""
    table = payments(12_000, seed=3, customers=300, terminals=200)
    run = started(fraud_flow(fn.replay(table, rate=400), fn.parquet(str(tmp_path / "out")), workers=1), audit=True)
    until(lambda: processed(run, "MC") > 200, run)
    result = run.reconfigure(fraud_change()).result(PATIENCE_S)
    assert result.outcome == "done", result.error
    run.set_rate("payments", 100_000)
    assert run.wait(PATIENCE_S) == "finished", run.error
    got = {row["TRANSACTION_ID"]: row.asDict() for row in run.output().collect()}
    new = {key for key, row in got.items() if row["p_m10"] is not None}
    assert 0 < len(new) < len(got) == table.num_rows
    for row in replay_fraud(table.to_pylist(), lambda row: row["TRANSACTION_ID"] in new):
        for column in ("p_c", "p_m5", "p", *(["p_m10"] if row["TRANSACTION_ID"] in new else [])):
            assert got[row["TRANSACTION_ID"]][column] == pytest.approx(row[column]), (column, row)
    assert run.audit().serializable


def test_a_rate_that_was_set_is_taken_back(started: Callable[..., Run]) -> None:
    """A source reads at its own rate again, or as fast as the dataflow takes its rows if it has none."""
    flow, numbers = counting()
    free = flow.source("free", fn.rate(None, count=20_000_000))
    for stream in (numbers, free):
        stream.sink(f"{stream.name}_out", fn.memory())
    run = started(flow)
    until(lambda: min(processed(run, name) for name in flow.graph().sources) > 0, run)
    for rate, known in ((0, [0.0, 0.0]), (None, [2_000.0, None])):
        for source in flow.graph().sources:
            run.set_rate(source, rate)
        assert [state.rate for state in run.explain().sources] == known
        before = {name: processed(run, name) for name in flow.graph().sources}
    until(lambda: all(processed(run, name) > count + 3_000 for name, count in before.items()), run)
    with pytest.raises(PlanError, match=r"or None for the source's own; got 'fast'"):
        run.set_rate("free", "fast")  # type: ignore[arg-type]


def test_a_change_across_hosts_mixes_no_versions(started: Callable[..., Run]) -> None:
    """Two hosts, hash exchange before each target: each source tuple is wholly old or wholly new."""
    flow, numbers = counting()
    seen = numbers.map("A", first, key="value").map("B", lambda row: row | {"after": row["version"]}, key="timestamp")
    seen.sink("out", fn.memory())
    run = started(flow, audit=True)
    until(lambda: processed(run, "B") > 500, run)
    change = {"A": second, "B": lambda row: row | {"after": row["version"], "new": True}}
    result = run.reconfigure(change).result(PATIENCE_S)
    assert result.outcome == "done", result.error
    assert {str(worker) for worker in result.per_worker} == {"A[0]", "A[1]", "B[0]", "B[1]"}
    until(lambda: processed(run, "B") > 2_000, run)
    now = run.functions().values()
    assert [(one.function, one.version) for one in now] == [("second", result.change), ("lambda", result.change)]
    assert {one.at_s for one in run.history.marks if one.kind == "done"} == {one.since_s for one in now}
    until(lambda: len(run.host_loads()) == 2, run)
    assert all(0 < one.cpu_share < 16 and one.rss_bytes > 1 << 24 for one in run.host_loads().values())
    [state] = run.explain().sources
    assert (state.reads, state.ended) == ("generated rows, 2,000 a second", False)
    assert sorted(state.places) == ["numbers[0]"]
    assert state.behind is not None
    run.stop()
    assert run.explain().sources[0].ended
    [row] = run.changes.to_pandas().to_dict("records")
    assert (row["targets"], row["outcome"], row["old_tuples"]) == ("A, B", "done", result.old_tuples)
    replay = run.changes[0].replay()
    assert [step.operators for step in replay.steps if step.kind == "switched"] == [("A",), ("B",)]
    assert repr(replay).count("; the trace has ") == 2
    assert run.metrics().to_pandas()["processed"].to_dict() == {name: processed(run, name) for name in run.graph}
    assert len(run.history.latency.to_pandas()) == len(run.history.latency) > 0
    assert set(run.history.queues.to_pandas()["operator"]) == set(run.graph)
    assert max(point.rate for point in run.history.queues if point.operator == "B") > 0
    rows = run.output().collect()
    assert sorted(row["value"] for row in rows) == list(range(len(rows)))
    assert all((row["version"] == 2) is bool(row["new"]) for row in rows)
    assert run.audit().serializable


def test_naive_mixes_versions_where_the_plan_says_it_may(started: Callable[..., Run]) -> None:
    """Data waits between the two targets, so the second switches in front of tuples that the first had processed."""
    flow, numbers = counting()
    slow = numbers.map("A", first, workers=1).map("B", Slow(2.0), workers=1)
    slow.sink("out", fn.memory(), workers=1)
    run = started(flow, hosts=1, audit=True, chaining=False, buffer_budget_bytes=1)
    until(lambda: run.metrics().operators["B"].queued > 200, run)
    run.set_rate("numbers", 20_000)
    until(lambda: run.metrics().operators["A"].blocked > 0.5, run)
    assert run.metrics().operators["B"].busy > 0.5 > run.metrics().operators["A"].busy
    assert run.metrics().operators["B"].blocked < 0.1
    run.set_rate("numbers", 2_000)
    assert not run.plan(["A", "B"]).covering.naive_safe
    result = run.reconfigure({"A": second, "B": Slow(0.0)}, scheduler="naive").result(PATIENCE_S)
    assert result.outcome == "done"
    until(lambda: run.metrics().operators["B"].queued == 0, run)
    run.cancel()
    verdict = run.audit()
    assert not verdict.serializable
    assert verdict.cycle_at == ("A", "B")
    bundle = verdict._repr_mimebundle_()
    picture = bundle["image/svg+xml"]
    assert re.search(r"Cycle: row ([\d,]+) of numbers \(value (\d+)\) → \(at A\) u1", bundle["text/plain"])
    for name, state in (("A", "old"), ("B", "new")):
        assert f'data-operator="{name}" data-state="{state}"' in picture


def test_a_plan_says_how_long_the_change_would_take(started: Callable[..., Run]) -> None:
    """Tuples wait in front of the target: markers from the source would wait with them, and a message passes them."""
    flow, numbers = counting()
    slow = numbers.map("A", first, workers=1).map("B", Slow(2.0), workers=1)
    slow.sink("out", fn.memory(), workers=1)
    run = started(flow, hosts=1, chaining=False)
    seen: list[Prediction | None] = []

    def measured() -> bool:
        """B lets A go on by fits and starts, so that at times A's pace is not known."""
        changes: tuple[Any, ...] = (["B"], {"A": second, "B": Slow(0.0)})
        seen[:] = [run.plan(change).prediction for change in changes]
        waiting = run.metrics().operators["B"].queued > 200
        return waiting and all(one is not None and one.commit_ms is not None for one in seen)

    until(measured, run)
    alone, both = seen
    assert alone is not None
    assert both is not None
    assert [way.operators for way in (*alone.ways, *both.ways)] == [("B",), ("A", "B")]
    for quicker, slower in ((alone.commit_ms, alone.epoch_ms), (alone.commit_ms, both.commit_ms)):
        assert quicker is not None
        assert slower is not None
        assert 0 < quicker < slower


class Cohort:
    """Adds a row's cohort, which functions do not see, and makes two rows of it."""

    def process(self, row: Any) -> list[dict[str, Any]]:
        batch, index = row.columns.batch, row.index
        return [row | {"cohort": batch.column("_fries_cohort")[index].as_py(), "copy": copy} for copy in (0, 1)]


def test_rows_carry_identities_and_cohorts_without_an_audit(started: Callable[..., Run]) -> None:
    """Over hosts, behind an operator that multiplies rows and one that has a key; a row's way is followed by them."""
    flow = fn.Dataflow("cohorts")
    numbers = flow.source("numbers", fn.rate(None, 400, lambda n: {"card": n % 7}), workers=None, cohort="card")
    doubled = numbers.flat_map("twice", Cohort()).map("keyed", lambda row: row, key="copy")
    doubled.sink("out", fn.memory())
    run = started(flow, identities=True)
    assert run.wait(PATIENCE_S) == "finished", run.error
    rows = run.output().collect()
    assert len(rows) == 800
    assert {(row.card, row.cohort) for row in rows} == {
        (card, int(cohorts_of([pa.array([card])])[0])) for card in range(7)
    }
    seen = run.rows("out", n=1)
    way = run.rows(source=seen["_source"][0])
    assert set(way["_operator"]) >= {"twice", "keyed", "out"}
    assert set(way["value"]) == set(seen["value"])
    with pytest.raises(RunError, match="start it with audit=True"):
        run.audit()


class Slow:
    """Waits for each tuple."""

    def __init__(self, milliseconds: float) -> None:
        self.milliseconds = milliseconds

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.milliseconds:
            threading.Event().wait(self.milliseconds / 1000)
        return row


class Busy:
    """Computes for each tuple, without ever waiting."""

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"sum": sum(range(20_000))}


def test_an_fcm_arrives_past_busy_operators(started: Callable[..., Run]) -> None:
    """Three busy threads hold the interpreter of the one host, and thousands of tuples wait in front of each."""
    flow, numbers = counting(rate=None, run_count=None)
    stream = numbers
    for name in ("A", "B", "C"):
        stream = stream.map(name, Busy(), workers=1)
    stream.sink("out", fn.memory(), workers=1)
    run = started(flow, hosts=1, chaining=False, buffer_budget_bytes=8 << 20)
    until(lambda: all(processed(run, name) for name in ("A", "B", "C")), run)
    until(lambda: run.metrics().operators["A"].queued > 5_000, run)
    waiting = run.metrics().operators["A"].queued
    result = run.reconfigure({"A": Busy()}).result(PATIENCE_S)
    assert result.outcome == "done", result.error
    assert result.old_tuples < waiting / 10


def test_a_killed_host_fails_the_run_in_one_sentence(started: Callable[..., Run], tmp_path: Path) -> None:
    """Spark starts the host again; without recovery that is the end, and what was committed stays readable."""
    flow, numbers = counting()
    numbers.map("A", first, key="value").sink("out", fn.parquet(str(tmp_path / "out")))
    run = started(flow, commit_interval_s=0.2)
    until(lambda: run.output().count() > 100, run)
    hosts = dict(run.host_processes)
    os.kill(hosts[1], signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "failed"
    assert run.error.startswith("host 1 was lost (")
    assert "\n" not in run.error
    assert run.output().count() > 100
    assert not os.path.exists(f"/proc/{hosts[1]}")
    with pytest.raises(RunError, match=r"has failed: host 1 was lost"):
        run.reconfigure({"A": second})


def test_an_operator_that_raises_fails_the_run_from_the_users_frame(started: Callable[..., Run]) -> None:
    """The message names the operator and the error; the traceback starts in the user's code."""

    def fails_at_100(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"x": 1 // (100 - row["value"])}

    flow, numbers = counting()
    numbers.map("A", fails_at_100).sink("out", fn.memory())
    run = started(flow)
    assert run.wait(PATIENCE_S) == "failed"
    assert run.error.startswith("A failed on a tuple: ZeroDivisionError")
    assert "fails_at_100" in run.details
    assert "fries_nb/worker" not in run.details


class Unopenable:
    """A model whose file is not there."""

    def open(self) -> None:
        raise FileNotFoundError("no model.bin here")

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


def raises_on_state(state: Any) -> Any:
    """A transformation that fails."""
    raise ValueError("cannot read this state")


class Counter:
    """Counts what it has seen of a key."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        state["n"] = state.get("n", 0) + 1
        return row | {"n": state["n"]}


UNPREPARED = (
    ({"A": Unopenable()}, r"new A failed in open\(\): FileNotFoundError"),
    ({"K": fn.Update(Counter(), state=raises_on_state)}, r"new K failed in the state transformation: ValueError"),
    ({"A": lambda row: row | {"x": row["no_such_column"]}}, r"new A failed in a rehearsal .*no_such_column"),
    ({"A": lambda row: {"timestamp": row["timestamp"]}}, r"K, .* as new A left it \('value' is missing"),
)
"""Changes, and what is said of each."""


def test_changes_that_cannot_be_prepared_are_aborted_and_nothing_changed(started: Callable[..., Run]) -> None:
    """The user gets the worker's error; the dataflow goes on by the old functions, and takes the next change."""
    flow, numbers = counting()
    numbers.map("A", first, workers=1).map("K", Counter(), key="value", workers=1).sink("out", fn.memory(), workers=1)
    run = started(flow, audit=True)
    until(lambda: processed(run, "K") > 100, run)
    until(lambda: "value" in run.reads("K"), run)
    for change, message in UNPREPARED:
        result = run.reconfigure(change).result(PATIENCE_S)
        assert result.outcome == "aborted"
        assert re.search(message, result.error), result.error
        wait_for_more(run, 100, "K")
    assert run.reconfigure({"A": second}).result(PATIENCE_S).outcome == "done"
    run.cancel()
    assert run.audit().updates == 1


class LoadsInTurn:
    """A model of which one worker opens its copy at once, and the other once the directory has a file ``go``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self) -> None:
        first = self.directory / "first"
        try:
            first.touch(exist_ok=False)
        except FileExistsError:
            while not (self.directory / "go").exists():
                threading.Event().wait(0.01)

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


def test_a_change_tells_how_many_workers_have_prepared_it(started: Callable[..., Run], tmp_path: Path) -> None:
    """While one of two still loads its model, rows go on; nothing is told of a change that is over."""
    flow, numbers = counting()
    numbers.map("A", first, workers=2).sink("out", fn.memory())
    run = started(flow)
    until(lambda: processed(run, "A") > 100, run)
    change = run.reconfigure({"A": LoadsInTurn(tmp_path)})
    one_of_two = ChangeProgress(ChangeState.PREPARING, workers=2, prepared=1)
    until(lambda: change.progress() == one_of_two, run)
    wait_for_more(run, 100, "A")
    assert change.progress() == one_of_two
    (tmp_path / "go").touch()
    assert change.result(PATIENCE_S).outcome == "done"
    assert change.progress() is None


class Locked:
    """Holds what cannot be shipped."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


def test_what_a_user_may_mistype_is_refused_at_once(started: Callable[..., Run]) -> None:
    """One sentence each, and the dataflow goes on."""
    flow, numbers = counting()
    numbers.map("FM", first).sink("out", fn.memory())
    run = started(flow)
    until(lambda: processed(run, "FM") > 10, run)
    for refused, message in [
        (lambda: run.reconfigure({"FN": second}), "did you mean 'FM'"),
        (lambda: run.reconfigure({}), "the change is empty"),
        (lambda: run.reconfigure({"numbers": second}), "'numbers'"),
        (lambda: run.reconfigure({"FM": 7}), "cannot be called"),
        (lambda: run.reconfigure({"FM": second}, scheduler="frise"), "did you mean 'fries'"),
        (lambda: run.reconfigure({"FM": Locked()}), "cannot be pickled"),
        (lambda: run.set_rate("number", 5), "did you mean 'numbers'"),
        (lambda: run.set_rate("numbers", -5), "0 or more"),
        (lambda: run.audit(), "audit=True"),
        (lambda: run.output("ouch"), "did you mean 'out'"),
        (lambda: started(flow, hosts=40), "hosts need 42 free slots"),  # the first run holds its own
    ]:
        with pytest.raises(FriesError) as caught:
            refused()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    wait_for_more(run, 1, "FM")
