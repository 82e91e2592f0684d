"""A cell that is edited and run again: the difference to the run, and what applies it."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, refused, told
from patience import PATIENCE_S, until
from pyspark.sql import SparkSession

from fries_nb.notebook.magics import of_difference

CELL = """%%fries_dataflow numbers
numbers = flow.source("S", fn.rate(2_000))
numbers.map("A", lambda row: row | {"version": VERSION}).sink("out", fn.memory())
"""


def test_a_cell_that_is_run_again_shows_what_differs_and_leaves_the_run(
    shell: InteractiveShell, stand_ins: list[StandIn]
) -> None:
    """An unchanged cell is no change; an edited one names the magic that applies it."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    assert told(shell, FRAUD) == "'fraud' runs as it is declared\nNext: %fries_status"
    shown = told(shell, FRAUD.replace("Score(1)", "Score(3)")).splitlines()
    assert shown[0] == "fraud: 1 operator changed"
    assert shown[1].startswith("~ FM: function: version: 1 -> 3")
    assert shown[2:-1] == ["Plan: 1 operator takes part", "  FM at the message: its function changes"]
    assert shown[-1] == "Next: %fries_apply --of fraud"
    assert told(shell, "%fries_diff").splitlines() == shown
    assert stand_ins[0].state == "running"
    assert stand_ins[0].asked == {}
    assert told(shell, "%fries_apply --wait 0").splitlines()[0].startswith("done by fries in ")
    assert set(stand_ins[0].asked) == {"FM"}


def test_a_new_shape_is_shown_with_the_magic_that_applies_it(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn]
) -> None:
    """Or with the reason why it cannot be, and the way to a new run; nothing changes before."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    branch = FRAUD + '\nscored.filter("Rule", lambda row: True).sink("alerts", fn.memory())'
    shown = told(shell, branch).splitlines()
    assert shown[0] == "fraud: 2 operators added, 2 edges added"
    meet = "rows of MC that come directly and by way of Replicate(MC) meet there, and keep their order"
    assert shown[4:-1] == [
        "Plan: 2 operators take part",
        "  MC at the message: its out-edges change",
        f"  out at the marker of MC: {meet}",
        "Plan with order=False, which lets rows of a key change places: 2 operators take part",
        "  MC at the message: its out-edges change",
        "  out at the message: it gets a new edge, which it reads from then on",
    ]
    assert shown[-1] == "Next: %fries_apply --of fraud"
    shown = told(shell, FRAUD.replace('Score(1), key="value"', 'Score(1), key="value", chain=False')).splitlines()
    assert shown[-2].startswith("FM: chain does not change while a dataflow runs; expected another name")
    assert shown[-1] == "Next: %fries_run fraud --replace"
    assert stand_ins[0].asked == {}
    told(shell, branch)
    shell.user_ns["counts"] = {7: {"n": 3}}
    for given, words in (("Rule=nothing", "expected a variable; there is no 'nothing', as in --state New=counts"),
                         ("counts", "--state counts: expected OPERATOR=VARIABLE")):  # fmt: skip
        assert words in str(refused(shell, f"%fries_apply --state {given}", capsys))
    assert told(shell, "%fries_apply --state Rule=counts --wait 0").startswith("done by fries in ")
    assert stand_ins[0].asked["state"] == {"Rule": {7: {"n": 3}}}


def test_what_does_not_run_has_no_difference(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn]
) -> None:
    """And a cell that raises has declared nothing."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    before = shell.user_ns["flow"]
    with pytest.raises(ZeroDivisionError):
        shell.run_cell(FRAUD + "\n1 / 0").raise_error()
    assert shell.user_ns["flow"] is before
    assert "declares what runs already" in str(refused(shell, "%fries_apply", capsys))
    told(shell, "%fries_stop")
    error = refused(shell, "%fries_diff", capsys)
    assert type(error) is UsageError
    assert str(error) == "'fraud' has finished; a difference is that to a dataflow that runs"


def test_the_difference_is_a_picture_as_well(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """With what is added and removed in it, and the words below."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    shell.run_cell(FRAUD.replace('"FM"', '"FN"'))
    bundle = of_difference(stand_ins[0].diff(shell.user_ns["flow"]))._repr_mimebundle_()
    for part in ("text/html", "image/svg+xml"):
        assert 'data-operator="FN" data-state="added"' in bundle[part]
        assert 'data-operator="FM" data-state="removed mcs"' in bundle[part]
        assert 'data-operator="numbers" data-state="target head mcs"' in bundle[part]
    assert "- FM (map)" in bundle["text/html"]
    assert "MC at the marker of FM: rows of numbers that come by way of FM and by way of FN" in bundle["text/html"]


def test_a_global_that_was_changed_in_another_cell_is_told_and_applied(
    shell: InteractiveShell, spark: SparkSession
) -> None:
    """On Spark: hosts have the value of when the function was shipped, so the same cell is a change now."""
    told(shell, "VERSION = 1; VERSION")
    told(shell, CELL)
    told(shell, "%fries_run numbers --hosts 1 --workers 1")
    run = shell.user_ns["run"]
    try:
        until(lambda: run.metrics().operators["out"].processed > 0, run)
        assert told(shell, CELL).startswith("'numbers' runs as it is declared")
        told(shell, "VERSION = 2; VERSION")
        assert "~ A: function: global VERSION: 1 -> 2" in told(shell, CELL)
        assert told(shell, f"%fries_apply --wait {PATIENCE_S}").startswith("done by fries in ")
        assert told(shell, "%fries_diff").startswith("'numbers' runs as it is declared")
        known = run.metrics().operators["out"].processed
        until(lambda: run.metrics().operators["out"].processed > known + 10, run)
        branch = 'flow.stream("A").filter("E", lambda row: row["value"] % 2 == 0).sink("even", fn.memory())'
        told(shell, f"{CELL}\n{branch}")
        assert told(shell, f"%fries_apply --wait {PATIENCE_S}").startswith("done by fries in ")
        assert told(shell, "%fries_diff").startswith("'numbers' runs as it is declared")
        until(lambda: run.metrics().operators["even"].processed > 0, run)
    finally:
        run.stop()
    assert {row["version"] for row in run.output("out").collect()} == {1, 2}
