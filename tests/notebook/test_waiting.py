"""What a notebook says of a run that waits: for new hosts, or for its user."""

from __future__ import annotations

import re
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, refused, replace_runs, told
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

from fries_nb.changes.change import Change
from fries_nb.errors import DoubtfulChangeError, ReconfigurationError, see
from fries_nb.notebook import waits
from fries_nb.notebook.statuses import status_line, troubles
from fries_nb.protocol.messages import Paused, WorkerId
from fries_nb.running.run_end import UncommittedCheck
from fries_nb.telemetry.telemetry import RecoveryTime

PAUSED = {"FM": (Paused(WorkerId("FM", 0), "FM[0] failed: KeyError: 'shop'"),)}
WHY = "FM is paused: FM[0] failed: KeyError: 'shop'; fix it alone, with %fries_reconfigure FM=..."

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.fixture
def run(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A stand-in that runs, whose changes do not end by themselves."""
    started = replace_runs(monkeypatch)
    told(shell, "%fries_run")
    started[0].outcome = None
    return started[0]


def test_status_says_what_a_run_waits_for(shell: InteractiveShell, run: StandIn) -> None:
    """An operator that is paused is named with its error and the magic that mends it; a recovery with its reason."""
    assert troubles(run) == []  # type: ignore[arg-type]
    run.paused = PAUSED
    assert told(shell, "%fries_status").splitlines()[2] == f"fraud: {WHY}"
    assert status_line(run, run.metrics()).endswith(f" · {WHY}")  # type: ignore[arg-type]
    run.state = "recovering"
    run.recoveries = (RecoveryTime("host 0 was lost", 1.0, 2, 0.5), RecoveryTime("host 1 was lost", 9.0, 4))
    lost = "hosts are started again: host 1 was lost"
    assert status_line(run, run.metrics()).startswith(f"fraud: recovering · 0 tuples/s · {lost}")  # type: ignore[arg-type]
    run.recoveries = (RecoveryTime("host 1 was lost", 9.0, 4, 1.5),)
    assert troubles(run) == [WHY]  # type: ignore[arg-type]
    run.state = "stopped"
    assert troubles(run) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("line", "target"), [("MC=dict", "MC"), ("FM=dict MC=dict", "FM, MC")])
def test_a_change_that_waits_for_a_fix_says_so(
    shell: InteractiveShell, run: StandIn, monkeypatch: pytest.MonkeyPatch, line: str, target: str
) -> None:
    """At once, however long the cell would wait: nobody can fix anything before it is over."""
    monkeypatch.setattr(waits, "GLANCE_S", 0.01)
    run.paused = PAUSED
    assert told(shell, f"%fries_reconfigure {line} --wait 3600").splitlines() == [
        f"{target}: waits, since {WHY}",
        "Next: %fries_reconfigure FM=new_function -o fix, change.result(timeout=60)",
    ]
    assert not shell.user_ns["change"].done


def test_a_fix_waits_for_no_fix(shell: InteractiveShell, run: StandIn) -> None:
    """It goes ahead of all others, also where two operators are paused."""
    run.paused = {"MC": (), **PAUSED}
    assert told(shell, "%fries_reconfigure FM=dict --wait 0").startswith("FM: under way by fries")


def test_a_change_that_an_operator_in_its_way_has_aborted_says_how_to_fix_it(
    shell: InteractiveShell, run: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator failed while the change prepared."""
    run.outcome, run.paused = "aborted", PAUSED
    run.why_aborted = said = "FM is paused on a tuple that it fails on (KeyError); nothing changed"
    error = refused(shell, "%fries_reconfigure MC=dict", capsys)
    assert type(error) is ReconfigurationError
    assert str(error) == f"MC aborted: {said}; fix it alone, with %fries_reconfigure FM=..."


def test_a_change_that_is_doubted_needs_an_option(
    shell: InteractiveShell, run: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has a class and a page of its own."""
    run.outcome, run.doubt = "done", "new FM drops every row; nothing changed, and force=True makes the change"
    error = refused(shell, "%fries_reconfigure FM=dict", capsys)
    assert type(error) is DoubtfulChangeError
    assert str(error) == f"FM aborted: {run.doubt}, as does --force on this line"
    assert see(error).endswith("howto/change-fails/#a-change-that-drops-every-tuple")
    assert told(shell, "%fries_reconfigure FM=dict --force").startswith("done by fries")


@pytest.mark.parametrize(
    ("cell", "waiting", "said"),
    [
        (
            "%fries_reconfigure FM=dict", (Change, "result"),
            "the change of FM is cancelled, unless it was decided before; change.result(timeout=60)",
        ),
        (
            "%fries_stop",
            (StandIn, "wait"),
            "'fraud' is still draining; %fries_stop --of fraud --now ends it at once, without what still waits",
        ),
        ("%fries_stop --now", (StandIn, "wait"), "'fraud' is still ending; %fries_status shows its state"),
        ("%fries_run --replace", (StandIn, "wait_flowing"), "'fraud' is not started; what has begun of it is stopped"),
    ],
)  # fmt: skip
def test_an_interrupt_of_a_wait_says_what_goes_on(
    shell: InteractiveShell, run: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    cell: str, waiting: tuple[type, str], said: str,
) -> None:  # fmt: skip
    """In one line, as an error that stops "Run All"; the variable has the change."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*waiting, interrupted)
        error = refused(shell, cell, capsys)
    assert isinstance(error, KeyboardInterrupt)
    assert str(error) == said
    if "reconfigure" in cell:
        assert shell.user_ns["change"] is run.changes[-1]


def test_stop_drains_unless_it_is_told_now(shell: InteractiveShell, run: StandIn) -> None:
    """And says what the output lacks; so does a run that takes the place of another."""
    assert told(shell, "%fries_stop").startswith("'fraud' has finished; what it has read is in its output\n")
    run.state, run.uncommitted = "running", UncommittedCheck(1204, 0.0, first=True)
    lacks = r"none of the 1,204 tuples read since it was started at \d\d:\d\d:\d\d is in the output"
    again = "; %fries_stop --of fraud without --now would have committed them\n"
    assert re.match(f"'fraud' has stopped, and {lacks}{again}", told(shell, "%fries_stop --now"))
    assert re.search(f"^fraud: {lacks}$", told(shell, "%fries_status"), re.MULTILINE)
    run.state = "running"
    assert re.search(f"^its old run was stopped: {lacks}$", told(shell, "%fries_run --replace"), re.MULTILINE)


def test_a_drain_that_waits_for_a_fix_or_for_long_says_how_to_end_it(
    shell: InteractiveShell, run: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can fix an operator before the cell is over, so that the cell does not wait."""
    run.drains = True
    now = "%fries_stop --of fraud --now ends it at once, without what still waits"
    error = refused(shell, "%fries_stop --wait 0.01", capsys)
    assert str(error) == f"'fraud' has not ended after 0.01 s and is still draining; {now}"
    run.paused = PAUSED
    error = refused(shell, "%fries_stop --wait 3600", capsys)
    assert str(error) == f"'fraud' cannot end yet: {WHY}; {now}"
    assert "one of them" in str(refused(shell, "%fries_stop --now --drain", capsys))


POISON = """%%fries_dataflow poison
def strict(row):
    if row["value"] == 100: raise KeyError("shop")
    return row | {"fixed": False}
strictly = flow.source("S", fn.rate(400)).map("FM", strict, on_error="pause")
strictly.map("MC", lambda row: row | {"version": 1}).sink("out", fn.memory())
"""


def test_a_change_in_front_of_an_operator_that_is_paused_on_spark(
    shell: InteractiveShell, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waits and says for what, the status shows it as well; the fix goes ahead, and the rest follows."""
    told(shell, POISON)
    told(shell, "%fries_run --hosts 1 --workers 1")
    run = shell.user_ns["run"]
    try:
        until(lambda: "FM" in run.paused, run)
        line = "%fries_reconfigure MC=lambda row: row | {'version': 2} --wait 900"
        why = "FM is paused: FM failed on a tuple: KeyError: 'shop'; fix it alone, with %fries_reconfigure FM=..."
        assert told(shell, line).splitlines()[0] == f"MC: waits, since {why}"
        assert f"poison: {why}" in told(shell, "%fries_status").splitlines()
        told(shell, "%fries_reconfigure MC=lambda row: row | {'version': 3} --wait 0 -o later")
        fix = f"%fries_reconfigure FM=lambda row: row | {{'fixed': True}} --merge -o fix --wait {PATIENCE_S}"
        assert told(shell, fix).startswith("done by fries in ")
        for waited in ("change", "later"):
            assert shell.user_ns[waited].result(PATIENCE_S).outcome == "done"
        until(lambda: not run.paused, run)
        seen = run.metrics().operators["S"].processed
        until(lambda: run.metrics().operators["out"].processed > seen, run)
    finally:
        told(shell, f"%fries_stop --wait {PATIENCE_S}")
    rows = {row["value"]: (row["fixed"], row["version"]) for row in run.output().collect()}
    assert sorted(rows) == list(range(len(rows)))
    assert rows[99] == (False, 1)
    assert rows[100][0]
    assert rows[len(rows) - 1] == (True, 3)
