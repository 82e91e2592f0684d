"""Times and loops in the notebook: the panel, the titles of loops in the picture, and two magics."""

from __future__ import annotations

import threading
from datetime import datetime

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, refused, show_tab, told
from patience import PATIENCE_S, until

from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import TypedFunctions
from fries_nb.notebook.panels import WIDTHS, ProgressPanel
from fries_nb.report.runs import run_svg
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier, TimeHolder

CHECKS = """%%fries_dataflow checks
rows = flow.source("numbers", fn.rate(2_000))
looped = rows.iterate("Checks", lambda rows: rows.map("Check", dict).split("Decided", lambda row: row["value"] < 3))
looped.sink("out", fn.memory())
"""
NOON = datetime(2018, 4, 1, 12, 30)
FRONTIERS = (
    OperatorFrontier("FM", NOON, (TimeHolder("numbers", NOON, 2, "FM"), TimeHolder("numbers", NOON, 1))),
    OperatorFrontier("MC", None),
)
LOOP = LoopState("Checks", "asking", attempts=2, round=7, frames=4, rows=1_200, waiting=5, spilled=3 << 20)


def test_the_panel_is_empty_without_times_and_loops_and_sent_only_when_it_changes() -> None:
    """The view looks several times a second."""
    panel, sent = ProgressPanel(), list[str]()
    panel.observe(lambda change: sent.append(change["name"]), names="drawings")
    panel.show((), ())
    assert (sent, panel.drawings) == ([], {})
    panel.show(FRONTIERS, (LOOP,))
    panel.show(tuple(FRONTIERS), (LOOP,))
    assert sent == ["drawings"]
    assert list(panel.drawings) == [f"{width:g}" for width in WIDTHS]
    for frontiers, loops in panel.drawings.values():
        assert "numbers → FM: 2 frames; and 1 more" in frontiers
        assert "rounds: 7, rows back: 1,200" in loops
    data, _ = panel._repr_mimebundle_()
    assert "nothing" in data["image/svg+xml"]
    assert data["text/plain"] == (
        "ProgressPanel(FM from 2018-04-01 12:30:00 on; MC nothing; Checks asking, 7 rounds)"
    )


def test_a_view_follows_times_and_loops(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """The rounds are in the title of the loop's box, and in the picture without a kernel."""
    told(shell, CHECKS)
    told(shell, "%fries_run")
    [run] = stand_ins
    view = RunView(run, TypedFunctions(run.graph, {}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    show_tab(view, "Details")
    assert (view.progress.drawings, view.dag.loops) == ({}, {})
    run.gone_round = (LOOP,)
    until(lambda: view.dag.loops == {"Checks": "loop Checks: 7 rounds"})
    until(lambda: "asking" in str(view.progress.drawings))
    assert "loop Checks: 7 rounds" in view.dag._repr_mimebundle_()[0]["image/svg+xml"]
    assert "loop Checks: 7 rounds" in run_svg(run)  # type: ignore[arg-type]
    view.close()
    for thread in threading.enumerate():
        if thread.name == "fries-view":
            thread.join(PATIENCE_S)


def test_the_picture_of_a_run_has_its_times(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """And nothing of them if there are none."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    [run] = stand_ins
    assert "fries-rows-svg" not in run_svg(run)  # type: ignore[arg-type]
    run.reached = FRONTIERS
    assert "2018-04-01 12:30:00" in run_svg(run)  # type: ignore[arg-type]


def test_magics_show_times_and_what_holds_them_back(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """All operators, or one of them with all its holders."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    assert told(shell, "%fries_frontier").startswith("times of 'fraud' are not known: its sources have no time=")
    stand_ins[0].reached = FRONTIERS
    lines = told(shell, "%fries_frontier").splitlines()
    assert lines[0].split() == ["operator", "can", "still", "arrive", "held", "back", "by"]
    assert lines[1].startswith("FM        from 2018-04-01 12:30:00 on  numbers → FM: 2 frames")
    assert lines[-1] == "Next: %fries_frontier FM"
    lines = told(shell, "%fries_frontier FM --of fraud").splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["numbers", "FM"], ["numbers", "1"]]
    assert lines[-1] == "Next: run.holding('FM')"
    assert told(shell, "%fries_frontier MC") == "nothing can arrive at MC any more"


def test_a_magic_shows_loops(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """In figures; a dataflow without any says how to declare one."""
    told(shell, CHECKS)
    told(shell, "%fries_run")
    assert told(shell, "%fries_loops").startswith("'checks' has no loops")
    stand_ins[0].gone_round = (LOOP,)
    lines = told(shell, "%fries_loops --of checks").splitlines()
    assert lines[1].split() == ["Checks", "asking", "7", "1,200", "4", "5", "3.0", "MiB", "2"]
    assert lines[-1] == "Next: run.loops()"


def test_misuse_is_one_line(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator that there is not, and a run that there is not."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    assert "no operator 'XX'" in str(refused(shell, "%fries_frontier XX", capsys))
    assert "no run 'XX'" in str(refused(shell, "%fries_loops --of XX", capsys))
    assert "%fries_loops? shows its help" in str(refused(shell, "%fries_loops --of fraud --all", capsys))


def test_states_are_shown_by_a_magic(shell: InteractiveShell, stand_ins: list[StandIn], capsys) -> None:  # type: ignore[no-untyped-def]
    """As a DataFrame that a cell can keep; keys are typed as in Python, or as text."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    [run] = stand_ins
    asked: list[tuple[object, ...]] = []

    class Looks:
        def table(self, *question: object) -> str:
            asked.append(question)
            return "the table"

    run.looks = Looks()  # type: ignore[assignment]
    run.state_sizes = lambda: "the sizes"  # type: ignore[assignment, method-assign, return-value]
    for line, answer in (
        ("%fries_state", "the sizes"),
        ("%fries_state FM", "the table"),
        ("%fries_state FM -n 5", "the table"),
        ("%fries_state FM --keys 7 c7 \"('a', 3)\" --of fraud", "the table"),
    ):
        assert shell.run_cell(line).result == answer
    assert asked == [("FM", None, 100, 30.0), ("FM", None, 5, 30.0), ("FM", [7, "c7", ("a", 3)], 100, 30.0)]
    some = shell.run_cell("%fries_rows FM -n 5 --where \"row['TX_AMOUNT'] > 200\"").result
    assert some["operator"].tolist() == ["FM"]
    assert len(shell.run_cell("%fries_rows FM --where row['TX_AMOUNT']>300").result) == 0
    [edge] = shell.run_cell("%fries_rows FC->FM --where \"'->' not in row\" --timeout 3").result["operator"]
    assert (edge.source, edge.to) == ("FC", "FM")
    assert "expected one operator, or one edge, as in FC->FM" in str(refused(shell, "%fries_rows FC FM", capsys))
    assert "expected an operator before" in str(refused(shell, "%fries_state --keys 7", capsys))


def test_dead_letters_are_requeued(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """With what has become of them so far, and what is likely next."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    for line, words in (
        ("%fries_requeue FM", "2 of 2 rows of dead letters have gone back to FM"),
        ("%fries_requeue FM --where \"row['TX_AMOUNT'] > 200\"", "1 of 1 rows of dead letters have gone back to FM"),
        ("%fries_requeue FM --limit 1", "1 of 1 rows of dead letters have gone back to FM"),
        ("%fries_requeue FM --per-second 1 --wait 0", "gone back to FM; the others follow"),
        ("%fries_requeue MC", "no open dead letter of MC was chosen; nothing goes back"),
    ):
        shown = told(shell, line)
        assert words in shown
        assert ".dead_letters('" in shown
