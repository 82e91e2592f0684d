"""Changes under guard in a notebook: on where nothing is said, switched by an option, said where they fire."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from changes_asked import ChangesAsked
from IPython.core.events import EventManager, available_events
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, refused, replace_runs, told
from patience import PATIENCE_S

from fries_nb.changes.change import Change
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.notebook.cells import GuardNotice
from fries_nb.planning.schedulers import schedule


def test_the_magic_puts_changes_under_guard_unless_told_otherwise(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five seconds by default; an option or ``%config`` sets others, and 0 none."""
    runs: list[StandIn] = replace_runs(monkeypatch)
    told(shell, FRAUD)
    told(shell, "%fries_run")
    asked = []
    for line in ("", " --guard 0", " --guard 2.5"):
        told(shell, f"%fries_reconfigure FM=Score(2){line}")
        asked.append(runs[0].guard)
    told(shell, "%config FriesMagics.guard = 0")
    told(shell, "%fries_reconfigure FM=Score(2)")
    assert [*asked, runs[0].guard] == [5.0, None, 2.5, None]
    error = refused(shell, "%fries_reconfigure FM=Score(2) --guard -1", capsys)
    assert str(error) == "--guard -1: expected a number of seconds, 0 or more"


def test_the_cell_says_so_when_its_change_is_rolled_back() -> None:
    """In an output of its own, empty until then and of a change that does not fail; again behind the next cell."""
    graph = Graph("pair", (Operator("S"), Operator("FM")), (Edge("S", "FM"),))
    for outcome, words in (("done", []), ("rolled_back", ["FM by fries: rolled back by its guard: no"])):
        published: list[str] = []

        def publish(data: dict[str, str], transient: object, update: bool, to: list[str] = published) -> None:
            assert update == bool(to)
            to.append(data["text/plain"])

        shell = SimpleNamespace(kernel=object(), display_pub=SimpleNamespace(publish=publish))
        shell.events = EventManager(shell, available_events)
        change = Change("u1", schedule("fries", graph, {"FM"}), {}, 1.0, guard="for 5 s", run=ChangesAsked())
        GuardNotice(shell, change)  # type: ignore[arg-type]
        change.resolve(Outcome("u1", "fries", "done"))
        if outcome == "rolled_back":
            change.resolve(Outcome("u1", "fries", "rolled_back", "rolled back by its guard: no"))
        change.end_guard()
        for thread in threading.enumerate():
            if thread.name == "fries-guard":
                thread.join(PATIENCE_S)
        assert published == ["", *words]
        for _ in range(2):
            shell.events.trigger("post_run_cell", None)
        assert published == ["", *words, *words]
