"""``%fries_rescale`` and the panel of hosts: what they show while hosts come and go, and at the end."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, refused, show_tab, told
from patience import PATIENCE_S, until

from fries_nb.controller.topology_status import HostCount
from fries_nb.errors import PlanError, ReconfigurationError, unknown
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import TypedFunctions
from fries_nb.notebook.panels import WIDTHS
from fries_nb.notebook.remedy_panels import HostPanel, HostProposalRow, RescaleView
from fries_nb.report.runs import run_svg
from fries_nb.running.remedies import HostProposal

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.fixture
def run(shell: InteractiveShell, stand_ins: list[StandIn]) -> StandIn:
    """A stand-in that runs."""
    told(shell, "%fries_run")
    return stand_ins[0]


def joined(*names: str) -> None:
    """Wait for our threads of these names."""
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_rescale_is_requested_and_its_outcome_shown(shell: InteractiveShell, run: StandIn) -> None:
    """As text where there is no kernel; the variable holds the handle."""
    assert told(shell, "%fries_rescale 3 --at-once 64").splitlines() == [
        "3 hosts after 1.2 s: 7 workers",
        "Next: %fries_rescale",
    ]
    assert run.asked == {"hosts": 3, "at_once": 64}
    assert shell.user_ns["rescale"] is run.rescaling
    told(shell, "%fries_rescale 1 --of fraud -o shrunk")
    assert run.asked == {"hosts": 1, "at_once": None}
    assert shell.user_ns["shrunk"].hosts == 1


def test_one_that_takes_long_is_said_to_be_under_way(shell: InteractiveShell, run: StandIn) -> None:
    """With what it does at the moment."""
    run.outcome = None
    run.placed = replace(run.topology(), wanted=3, phase="balancing", bins_left=700, moved_bytes=5_000, request="r3")
    assert told(shell, "%fries_rescale 3 --wait 0").splitlines() == [
        "to 3 hosts: bins move to the new workers, 700 bins left, 5 KiB moved",
        "Next: rescale.result(timeout=60), rescale.cancel()",
    ]
    told_of_another = told(shell, "%fries_rescale 5 --wait 0")
    assert told_of_another.startswith("to 5 hosts: it waits for the rescale before it")


def test_without_a_number_the_hosts_are_shown(shell: InteractiveShell, run: StandIn) -> None:
    """As a table and as a drawing."""
    summary = shell.run_cell("%fries_rescale").result
    assert repr(summary).splitlines() == [
        "2 hosts",
        "host  workers                       tuples/s",
        "0     numbers 1, FM 1, MC 1, out 1         0",
        "1     FM 1, MC 1, out 1                    0",
        "bins of FM: 512 at host 0, 512 at host 1",
        "bins of MC: 512 at host 0, 512 at host 1",
        "Next: %fries_rescale 3, run.workers().to_pandas()",
    ]
    assert "fries-hosts-svg" in summary._repr_mimebundle_()["text/html"]
    assert not hasattr(run, "rescaling")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("three", "three: expected a number of hosts, 1 or more, as in %fries_rescale 3"),
        ("0", "0: expected a number of hosts"),
        ("3 --at-once 0", "--at-once 0: expected a number of bins, 1 or more"),
        ("--at-once 3", "--at-once belongs to a number of hosts, as in %fries_rescale 3 --at-once 1"),
        ("3 --of XX", "no run 'XX'"),
        ("3 --at-one 5 --wat", "%fries_rescale? shows its help"),
    ],
)
def test_misuse_is_one_line(
    shell: InteractiveShell, run: StandIn, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    """And nothing is requested."""
    assert words in str(refused(shell, f"%fries_rescale {line}", capsys))
    assert not hasattr(run, "rescaling")


def test_operators_get_other_numbers_of_workers(shell: InteractiveShell, run: StandIn) -> None:
    """One or several, whose names may have spaces; the variable holds the handle."""
    assert told(shell, "%fries_rescale FM=4").splitlines() == ["2 hosts after 1.2 s: 7 workers", "Next: %fries_rescale"]
    assert run.asked == {"hosts": None, "at_once": None, "workers": {"FM": 4}}
    assert shell.user_ns["rescale"] is run.rescaling
    told(shell, "%fries_rescale FM=1 'my op=3' --at-once 64 -o shrunk")
    assert run.asked == {"hosts": None, "at_once": 64, "workers": {"FM": 1, "my op": 3}}
    assert shell.user_ns["shrunk"].aim == "to 1 worker of FM and 3 of my op"
    run.outcome = None
    assert told(shell, "%fries_rescale FM=4 --wait 0").startswith("to 4 workers of FM: it waits for its turn")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("FM=0", "FM=0: expected OPERATOR=WORKERS, as in %fries_rescale FM=4 FD=2"),
        ("FM=x", "FM=x: expected OPERATOR=WORKERS"),
        ("FM=-1", "FM=-1: expected OPERATOR=WORKERS"),
        ("FM=2.0", "FM=2.0: expected OPERATOR=WORKERS"),
        ("FM=", "FM=: expected OPERATOR=WORKERS"),
        ("=3", "=3: expected OPERATOR=WORKERS"),
        ("3 FM=2", "3: expected OPERATOR=WORKERS"),
        ("FM=2 MC", "MC: expected OPERATOR=WORKERS"),
        ("FM=2 FM=3", "FM=2 FM=3: expected one number of workers for each operator"),
        ("FM 4", "FM 4: expected a number of hosts, 1 or more, as in %fries_rescale 3"),
        ("FM=4 --of XX", "no run 'XX'"),
        ("FM=4 --at-once 0", "--at-once 0: expected a number of bins, 1 or more"),
    ],
)
def test_misuse_of_numbers_of_workers_is_one_line(
    shell: InteractiveShell, run: StandIn, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    """And nothing is requested."""
    assert words in str(refused(shell, f"%fries_rescale {line}", capsys))
    assert not hasattr(run, "rescaling")


def test_what_the_run_refuses_is_one_line(
    shell: InteractiveShell, run: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an operator that it does not have."""
    refusal = PlanError(unknown("operator", "fm", run.graph))
    monkeypatch.setattr(run, "rescale", MagicMock(side_effect=refusal))
    assert "no operator 'fm'" in str(refused(shell, "%fries_rescale fm=4", capsys))


def test_an_aborted_rescale_stops_the_notebook(
    shell: InteractiveShell, run: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an error with the reason, so that "Run All" does not go on."""
    run.outcome = "aborted"
    error = refused(shell, "%fries_rescale 3", capsys)
    assert type(error) is ReconfigurationError
    assert str(error) == "the rescale to 3 hosts was aborted: host 2 was lost (its process died); nothing changed"


def shown_in(shell: InteractiveShell) -> CapturingDisplayPublisher:
    """Pretend that there is a kernel, and capture what is displayed."""
    shell.kernel = SimpleNamespace()  # type: ignore[attr-defined]
    shell.display_pub = CapturingDisplayPublisher()
    return shell.display_pub


def test_in_a_kernel_a_cell_has_a_button_until_the_rescale_has_ended(
    shell: InteractiveShell, run: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The click cancels it; then the output is the outcome as text, which a saved notebook keeps."""
    views: list[RescaleView] = []
    follow = RescaleView._follow
    monkeypatch.setattr(RescaleView, "_follow", lambda view: (views.append(view), follow(view)))
    display, run.outcome = shown_in(shell), None
    assert shell.run_cell("%fries_rescale 3 --wait 0").result is None
    until(lambda: bool(views))
    [first] = display.outputs
    assert first["data"]["text/plain"] == "to 3 hosts: it waits for its turn"
    assert "application/vnd.jupyter.widget-view+json" in first["data"]
    run.placed = replace(run.topology(), wanted=3, phase="starting")
    until(lambda: "Spark starts the new hosts" in views[0]._line.value)
    views[0].cancel.click()
    joined("fries-rescale")
    last = display.outputs[-1]
    assert last["data"] == {"text/plain": "aborted: it was cancelled; nothing changed (2 hosts)"}
    assert last["transient"] == first["transient"]
    assert last["update"]


def test_the_outcome_is_in_a_notebook_that_a_program_executes(shell: InteractiveShell, run: StandIn) -> None:
    """Which drops what arrives between two cells: the next cell publishes it again, once, and so does its own."""
    display, run.outcome = shown_in(shell), None
    shell.run_cell("%fries_rescale 3 --wait 0")
    shell.user_ns["rescale"].cancel()
    joined("fries-rescale")
    outcome = display.outputs[-1]
    assert "aborted" in outcome["data"]["text/plain"]
    display.outputs.clear()
    shell.run_cell("1 + 1")
    assert outcome in display.outputs
    display.outputs.clear()
    shell.run_cell("1 + 1")
    assert outcome not in display.outputs
    run.outcome = "done"
    shell.run_cell("%fries_rescale 3 --wait 9")
    assert "3 hosts after" in display.outputs[-1]["data"]["text/plain"]


def test_the_panel_is_drawn_anew_only_when_something_has_changed(run: StandIn) -> None:
    """Rates by two digits, since they are never the same."""
    panel, sent = HostPanel(), list[str]()
    panel.observe(lambda change: sent.append(change["name"]), names="drawings")
    for rate in (1_204.0, 1_211.0, 1_420.0):
        panel.show(run.topology(), {0: rate, 1: 0.0})
    assert sent == ["drawings"] * 2
    assert list(panel.drawings) == [f"{width:g}" for width in WIDTHS]
    assert "1,400 tuples/s" in panel._repr_mimebundle_()[0]["image/svg+xml"]
    assert repr(panel).startswith("HostPanel(Hosts: 2 hosts; host 0: 4 workers, 1,400 tuples/s")


def test_a_view_follows_hosts_and_bins(run: StandIn) -> None:
    """And the picture without a kernel has them, with the strips of before."""
    drawn: list[Any] = []
    view = RunView(  # type: ignore[arg-type]
        run, TypedFunctions(run.graph, {}), renew=lambda run: drawn.append(run_svg(run)), period_s=lambda: 0.01
    )
    before = run.topology()
    run.placed = replace(before, hosts=(0,), wanted=2, phase="balancing", bins_left=9)
    show_tab(view, "Details")
    until(lambda: "from 1 to 2 hosts: balancing, 9 bins left" in str(view.hosts.drawings))
    run.placed = before
    run.topologies = (HostCount.of(100.0, replace(before, hosts=(0,))), HostCount.of(103.0, before))
    until(lambda: bool(drawn) and ">1 host<" in drawn[-1])
    until(lambda: ">1 host<" in str(view.hosts.drawings))
    view.close()
    joined("fries-view")


def test_a_proposed_number_of_hosts_has_a_button(run: StandIn) -> None:
    """The outcome is told below; without a proposal there is nothing."""
    row = HostProposalRow(run)  # type: ignore[arg-type]
    row.show(None)
    assert row.children == ()
    row.show(HostProposal(3, 1.9, 4_000.0, 2, lambda proposal: run.rescale(proposal.hosts)))
    assert "Proposed: 3 hosts instead of 2, since the operators need 1.90 cores at 4,000 tuples/s" in row._words.value
    assert row.accept.description == "Rescale to 3 hosts"
    row.accept.click()
    joined("fries-accept")
    assert "3 hosts after 1.2 s" in row.result.value
    row.show(None)
    assert row.children == (row.result,)
