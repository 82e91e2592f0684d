"""How runs end on real Spark, and what is said of the tuples that their output lacks; the tour of a hurried reader."""

from __future__ import annotations

import datetime
import decimal
import functools
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import ipython, told
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import DataflowError
from fries_nb.run import Run


def processed(run: Run, operator: str) -> int:
    """Tuples that the operator has taken in, as last reported."""
    return run.metrics().operators[operator].processed


def typed(row: dict[str, Any]) -> dict[str, Any]:
    """Columns of many types."""
    return row | {
        "amount": decimal.Decimal("1.25"),
        "day": datetime.date(2026, 1, 1),
        "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        "local": datetime.datetime(2026, 1, 1),
        "parts": [{"x": 1.5, "name": "a"}],
        "nothing": None,
    }


def test_the_stop_of_a_run_that_failed_says_so(started: Callable[..., Run], tmp_path: Path) -> None:
    """A script that copies the tour with a broken function is left with a word beside its empty frame, once a look."""
    go = tmp_path / "go"

    def broken(row: dict[str, Any]) -> dict[str, Any]:
        while not go.exists():
            threading.Event().wait(0.02)
        return row | {"x": 1 / (10 - row["value"])}

    flow = fn.Dataflow("broken")
    rows = flow.source("S", fn.rate(1_000)).map("D", lambda row: row, on_error=fn.memory())
    rows.map("A", broken).sink("out", fn.memory())
    run = started(flow, hosts=1, workers=1)
    until(lambda: processed(run, "S") > 20, run)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fn.UncommittedWarning)
        run.output()
        run.dead_letters("D")
    go.touch()
    stop = functools.partial(run.stop, drain=True)
    for look in (stop, stop, run.output, functools.partial(run.dead_letters, "D")):
        with pytest.warns(fn.UncommittedWarning, match="'broken' failed: A failed .*none of") as said:
            look()
        assert [(one.filename, len(said)) for one in said] == [(__file__, 1)]
    assert run.state == "failed"


def test_two_sinks_need_two_directories_whatever_these_are_called(
    started: Callable[..., Run], tmp_path: Path
) -> None:
    """A link, or a URI, is no other directory."""
    (tmp_path / "link").symlink_to(tmp_path)
    for second in (tmp_path / "out", tmp_path / "link" / "out", (tmp_path / "out").as_uri()):
        flow = fn.Dataflow("twice")
        rows = flow.source("S", fn.rate(100))
        rows.sink("one", fn.parquet(str(tmp_path / "out")))
        rows.sink("two", fn.parquet(str(second)))
        with pytest.raises(DataflowError, match=r"two sinks write to .*; each needs a directory of its own"):
            started(flow, hosts=1)


def test_a_stop_says_what_is_lost_and_the_output_keeps_its_columns(
    started: Callable[..., Run], tmp_path: Path
) -> None:
    """Every tuple that was read is counted; the columns are those that a commit would have brought."""
    numbers = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"value": pa.array(range(5_000)), "small": pa.array([1] * 5_000, pa.uint8())}), numbers)
    flow = fn.Dataflow("typed")
    flow.source("S", fn.replay(numbers, rate=100)).map("A", typed).sink("out", fn.memory())
    run = started(flow, hosts=1, workers=2, commit_interval_s=None)
    until(lambda: processed(run, "out") > 50, run)
    with pytest.warns(fn.UncommittedWarning, match=r"'typed' was stopped, and none of the .* is in the output; stop"):
        run.cancel()
    assert run.uncommitted is not None
    assert run.uncommitted.first
    assert run.uncommitted.tuples == processed(run, "S") > 50
    assert run.output().count() == 0
    whole = started(flow, hosts=1, workers=2, commit_interval_s=None)
    until(lambda: processed(whole, "out") > 50, whole)
    whole.stop()
    assert whole.uncommitted is None
    assert whole.output().count() == processed(whole, "S")
    assert whole.output().schema == run.output().schema
    assert set(run.output().columns) == {"value", "small", "amount", "day", "at", "local", "parts", "nothing"}


def test_what_follows_the_last_commit_is_counted(started: Callable[..., Run]) -> None:
    """Of a flow without end: rows of the output and tuples that it lacks are all that was read."""
    flow = fn.Dataflow("endless")
    flow.source("S", fn.rate(2_000)).map("A", lambda row: row).sink("out", fn.memory())
    run = started(flow, hosts=2, workers=2, commit_interval_s=0.5)
    until(lambda: run.output().count() > 0, run)
    run.request_stop(drain=False)
    assert run.wait(PATIENCE_S) == "stopped"
    missing = 0 if run.uncommitted is None else run.uncommitted.tuples
    assert run.output().count() + missing == processed(run, "S")
    assert run.uncommitted is None or not run.uncommitted.first


def test_a_change_asked_for_with_the_start_is_timed_from_when_tuples_flow(started: Callable[..., Run]) -> None:
    """Hosts that join are no delay of it, and it finds tuples to be rehearsed on: one that fails there is aborted."""
    flow = fn.Dataflow("hurried")
    flow.source("S", fn.rate(1_000)).map("A", lambda row: row).sink("out", fn.memory())
    run = started(flow, hosts=1, workers=1)
    change = run.reconfigure({"A": lambda row: row | {"missing": row["no such column"]}})
    later = run.reconfigure({"A": lambda row: row | {"version": 2}})
    assert run.state == "joining"
    assert change.result(PATIENCE_S).outcome == "aborted"
    assert "no such column" in change.result(0).error
    result = later.result(PATIENCE_S)
    assert result.outcome == "done"
    assert result.waited_ms > 0
    done = next(mark for mark in run.history.marks if (mark.change, mark.kind) == (later.id, "done"))
    total_ms = (done.at_s - later.requested_s) * 1000
    assert result.delay_ms + result.waited_ms == pytest.approx(total_ms, abs=0.01)  # a float of seconds since 1970
    until(lambda: "version" in run.output().columns, run)  # a tuple that was read after the switch
    run.stop()
    assert run.output().where("version = 2").count() > 0


def test_an_interrupted_drain_goes_on_and_says_how_to_end_it(started: Callable[..., Run]) -> None:
    """The queue takes many minutes; cancel() ends it at once."""
    flow = fn.Dataflow("slow")
    flow.source("S", fn.rate(100_000)).map("A", slowly).sink("out", fn.memory())
    run = started(flow, hosts=1, workers=1)
    until(lambda: run.metrics().operators["A"].queued > 50_000, run)
    timer = threading.Thread(target=_interrupt_the_stop, args=[run])
    timer.start()
    with pytest.raises(KeyboardInterrupt, match=r"'slow' goes on draining; cancel\(\) ends it at once"):
        run.stop(timeout=None)
    timer.join()
    assert run.state == "draining"
    with pytest.raises(TimeoutError, match=r"has not ended after 0.01 s and goes on draining; cancel\(\) ends it"):
        run.stop(timeout=0.01)
    with pytest.warns(fn.UncommittedWarning):
        run.cancel()
    assert run.state == "stopped"


def slowly(row: dict[str, Any]) -> dict[str, Any]:
    """Takes its time."""
    threading.Event().wait(0.02)
    return row


def _interrupt_the_stop(run: Run) -> None:
    """What Ctrl-C does, once the main thread waits for the end of a drain: before, nothing says that it goes on."""
    main = threading.main_thread().ident
    assert main is not None

    def waits() -> bool:
        callers = [frame.f_code for frame, _ in traceback.walk_stack(sys._current_frames()[main])][:4]
        return threading.Condition.wait.__code__ in callers and Run.stop.__code__ in callers

    until(lambda: run.state == "draining" and waits(), run)
    os.kill(os.getpid(), signal.SIGINT)


NUMBERS = """%%fries_dataflow numbers
flow.source("S", fn.rate(1_000)).map("A", lambda row: row).sink("out", fn.memory())
"""


@pytest.fixture
def shell(spark: SparkSession, tmp_path: Path) -> Iterator[InteractiveShell]:
    """A fresh shell with the extension, over a session."""
    with ipython(tmp_path / "ipython") as shell:
        yield shell


def test_the_magic_drains_an_endless_source_and_suspends_what_can_be_resumed(
    shell: InteractiveShell, tmp_path: Path
) -> None:
    """All that was read comes out, or is read again: what keeps checkpoints goes on where it was."""
    told(shell, NUMBERS)
    told(shell, "%fries_run --hosts 1 --workers 1 --commit-interval 3600")
    run = shell.user_ns["run"]
    until(lambda: processed(run, "out") > 0, run)
    assert told(shell, f"%fries_stop --wait {PATIENCE_S}").startswith("'numbers' has finished; what it has read is in")
    assert run.output().count() == processed(run, "S") > 0
    begin = f"%fries_run --hosts 1 --workers 1 --commit-interval 3600 --checkpoint {tmp_path / 'place'}"
    told(shell, begin)
    run = shell.user_ns["run"]
    until(lambda: processed(run, "out") > 0, run)
    said = told(shell, f"%fries_stop --wait {PATIENCE_S}")
    missing = 0 if run.uncommitted is None else run.uncommitted.tuples  # of the batch that the source had in hand
    assert said.startswith("'numbers' has stopped")
    assert ("resume reads them again" in said) == (missing > 0)
    read = processed(run, "S")
    assert run.output().count() == read - missing > 0
    told(shell, f"{begin} --resume")
    again = shell.user_ns["run"]
    until(lambda: processed(again, "out") > read, again)
    assert "resume reads them again" in told(shell, "%fries_stop --now")
