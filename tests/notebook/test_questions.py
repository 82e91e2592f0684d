"""Magics that ask, changes from the body of a cell, starts that take long, and what dead kernels left."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, refused, told
from patience import PATIENCE_S
from report_page import Page

from fries_nb.errors import DataflowError, PlanError, RunError, SessionError
from fries_nb.notebook import magics
from fries_nb.notebook.waits import Note, Notes
from fries_nb.run import Dataflow
from fries_nb.storage.claims import Machine, Process, born, this_machine

pytestmark = pytest.mark.usefixtures("with_fraud")


# ---- plans


@pytest.mark.parametrize("runs", [False, True])
def test_a_plan_needs_no_run(shell: InteractiveShell, stand_ins: list[StandIn], runs: bool) -> None:
    """Components, heads, edges, channels and messages; the number of workers is the run's, if there is one."""
    if runs:
        told(shell, "%fries_run --workers 3")
    shown = told(shell, "%fries_plan FM MC").splitlines()
    workers = 3 if runs else 2
    assert shown == [
        "change of FM, MC in dataflow 'fraud'",
        "component 1: FM, MC",
        "  heads: FM; targets: FM, MC",
        "  edges: FM -> MC; longest path: 1",
        "longest path: 1",
        f"channels: all {workers * workers + 2 * workers}, component {workers * workers}",
        "naive FCM: not safe, it may mix versions within a transaction",
        "1. t1 passes numbers.",
        "2. FM processes t1 with its old function.",
        "3. The message reaches FM, which switches to its new function.",
        "4. The message reaches MC, which switches to its new function.",
        "5. MC processes t1 with its new function.",
        "So t1 precedes the change at FM, and the change precedes t1 at MC: no serial order has this result.",
        f"fries sends (to so many workers): FCM to FM ({workers})",
        "Next: %fries_reconfigure FM=new_function MC=new_function",
    ]


def test_a_plan_is_a_picture_as_well(shell: InteractiveShell) -> None:
    """The dataflow with what the plan does to each operator, and what a tuple may meet; as ``flow.plan`` shows it."""
    rich = shell.run_line_magic("fries_plan", "FM MC").rich
    picture = rich["image/svg+xml"]
    assert 'data-operator="FM" data-state="target head mcs"' in picture
    assert 'data-operator="out" data-state=""' in picture
    assert 'data-operator="MC" data-state="new"' in picture
    assert "t1 precedes u1 at FM, u1 precedes t1 at MC" in picture
    shown = shell.user_ns["flow"].plan({"FM": dict, "MC": dict})._repr_mimebundle_()
    assert shown["image/svg+xml"] == picture
    assert "5. MC processes t1 with its new function." in shown["text/plain"].splitlines()
    page = Page(shown["text/html"])
    assert page.tags.count("svg") == 1 + 6 + 1
    assert [said for said in page.texts if said.startswith("Step ")] == [f"Step {step} of 6" for step in range(1, 7)]
    assert "counter-example" not in shell.run_line_magic("fries_plan", "FM").rich["text/html"]


def test_a_plan_of_expressions_by_another_scheduler(shell: InteractiveShell) -> None:
    """Functions may be given, are checked, and options go in between."""
    shown = told(shell, "%fries_plan FM=Score(2) --scheduler epoch MC=dict")
    assert "epoch sends (to so many workers): FCM to numbers (1)" in shown
    assert shown.endswith("%fries_reconfigure FM=new_function MC=new_function --scheduler epoch")
    assert "change of FM, MC" in told(shell, "%fries_plan 'FM' --scheduler naive --no-pruning --of fraud MC=dict")


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("", PlanError, "the change is empty"),
        ("FN", PlanError, "no operator 'FN'"),
        ("FM --of frod", UsageError, "no dataflow 'frod'; expected one of fraud; did you mean 'fraud'?"),
        ("FM --scheduler fires", PlanError, "did you mean 'fries'?"),
        ("FM --no-prunning", UsageError, "did you mean '--no-pruning'?"),
        ("numbers", PlanError, "is a source"),
        ("FM=lambda a, b: a", DataflowError, "its function takes 2 parameters"),
        ("MC=Score(2", UsageError, "is not closed"),
    ],
)
def test_a_wrong_plan_is_one_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], line: str, kind: type, said: str
) -> None:
    """What a change would refuse, its plan refuses."""
    error = refused(shell, f"%fries_plan {line}", capsys)
    assert type(error) is kind
    assert said in str(error)


# ---- changes from cells


def test_a_cell_gives_operators_their_functions(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """Assignments and definitions named as operators are new; other names are the user's; the line may add some."""
    told(shell, "%fries_run")
    shown = told(
        shell,
        """%%fries_reconfigure --of fraud --scheduler epoch -o mine
version = 4
FM = Score(version)
def MC(row):
    return row | {"after": version}""",
    )
    assert shown.startswith("done by epoch in ")
    asked = stand_ins[0].asked
    assert set(asked) == {"FM", "MC"}
    assert asked["FM"].version == 4
    assert asked["MC"]({}) == {"after": 4}
    assert shell.user_ns["mine"].plan.scheduler == "epoch"
    told(shell, "%%fries_reconfigure MC=dict\nFM = Score(5)")
    assert stand_ins[0].asked["MC"] is dict
    assert stand_ins[0].asked["FM"].version == 5


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%fries_reconfigure\nFN = 1", "the cell assigns no operator; give operators their new functions in it"),
        ("%%fries_reconfigure\nFN = 1", "did you mean 'FM'?"),
        ("%%fries_reconfigure\n# FM = 1", "the cell is empty; give operators"),
        ("%%fries_reconfigure\nFM = = 1", "line 2 of the cell: invalid syntax\n    FM = = 1\n         ^"),
        ("%%fries_reconfigure --of frod\nFM = dict", "did you mean 'fraud'?"),
        ("%%fries_reconfigure --shceduler\nFM = dict", "did you mean '--scheduler'?"),
    ],
)
def test_a_cell_that_changes_nothing_gets_one_line(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str], cell: str, said: str
) -> None:
    """No operator among its names, nothing in it, not Python, misuse of the line."""
    told(shell, "%fries_run")
    error = refused(shell, cell, capsys)
    assert type(error) is UsageError
    assert said in str(error)
    assert stand_ins[0].changes == ()


def test_rollback_changes_back(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    """The run's own rollback, shown as any change."""
    told(shell, "%fries_run")
    told(shell, "%fries_reconfigure FM=Score(2)")
    assert told(shell, "%fries_rollback --scheduler naive -o back").startswith("done by naive in ")
    assert stand_ins[0].asked["FM"].version == 1
    assert shell.user_ns["back"] is stand_ins[0].changes[-1]
    assert "'fraud'" in str(refused(shell, "%fries_rollback --of frod", capsys))


# ---- how it goes


def test_status_is_one_table(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """Flows that run, ran, or are declared, each in a row; the same as HTML."""
    assert told(shell, "%fries_status").splitlines()[1].split() == ["fraud", "declared"]
    told(shell, "%fries_run")
    for at_s, processed in ((1.0, 0), (2.0, 1_500)):
        stand_ins[0].hear("out", processed, 4.0, at_s)
    told(shell, "%fries_reconfigure FM=Score(2)")
    stand_ins[0].outcome = None
    told(shell, "%fries_reconfigure FM=Score(3) --wait 0")
    head, row, *rest = told(shell, "%fries_status").splitlines()
    assert head.split() == ["dataflow", "state", "tuples/s", "p50", "p99", "changes"]
    assert row.split()[:3] == ["fraud", "running", "1,500"]
    assert row.endswith("1 done, 1 under way")
    assert rest == ["Next: %fries_reconfigure, %fries_plan, %fries_stop --of fraud"]
    stand_ins[0].state, stand_ins[0].error = "failed", "FM[0] failed: <KeyError>"
    summary = shell.run_line_magic("fries_status", "")
    assert "fraud: FM[0] failed: <KeyError>" in summary.text
    assert "&lt;KeyError&gt;" in summary.rich["text/html"]


def test_audit_is_asked_of_a_run(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict in words; a run without a trace says so."""
    told(shell, "%fries_run")
    assert type(refused(shell, "%fries_audit", capsys)) is RunError
    told(shell, "%fries_run --audit --replace")
    assert told(shell, "%fries_audit --of fraud").startswith("'fraud' is serializable (1 transaction, 0 updates)")


def test_a_report_is_written_where_told(
    shell: InteractiveShell, stand_ins: list[StandIn], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quotes around the path are no part of it; a path is needed, and a run."""
    assert "no dataflow has been started" in str(refused(shell, "%fries_report a.html", capsys))
    told(shell, "%fries_run")
    path = tmp_path / "of fraud.html"
    assert told(shell, f'%fries_report "{path}" --of fraud') == f"report of 'fraud' written to {path}"
    assert path.exists()
    assert "required: path" in str(refused(shell, "%fries_report", capsys))


# ---- starts that take long


class SlowSpark:
    """A start that takes until it is let go, and then ends in a run or an error."""

    def __init__(self, patch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.go = threading.Event()
        self.started: list[StandIn] = []
        self.error = error
        patch.setattr(Dataflow, "run", lambda flow, **options: self._start(flow, **options))

    def _start(self, flow: Dataflow, **options: Any) -> StandIn:
        assert self.go.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.started.append(StandIn(flow.graph(), **options))
        return self.started[-1]


def joined(name: str) -> None:
    """Wait for our threads of that name."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE_S)


def test_noblock_returns_before_spark_is_there(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start is in the status; what needs the run says that it is starting; then the run is there."""
    spark = SlowSpark(monkeypatch)
    told(shell, "%fries_run --noblock")
    assert told(shell, "%fries_status").splitlines()[1].split() == ["fraud", "starting"]
    for line in ("%fries_reconfigure FM=Score(2)", "%fries_run", "%fries_stop --of fraud"):
        assert "'fraud' is starting" in str(refused(shell, line, capsys))
    assert "run" not in shell.user_ns
    spark.go.set()
    joined("fries-start")
    assert shell.user_ns["run"] is spark.started[0]
    assert told(shell, "%fries_status").splitlines()[1].split()[:2] == ["fraud", "running"]


def test_a_start_that_fails_is_told_in_the_cell_or_by_status(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell that waits raises; one that does not leaves the error to the status, until the next start."""
    spark = SlowSpark(monkeypatch, SessionError("Spark needs Java 17"))
    told(shell, "%fries_run --noblock")
    spark.go.set()
    joined("fries-start")
    table = told(shell, "%fries_status").splitlines()
    assert table[1].split() == ["fraud", "failed"]
    assert table[2] == "fraud: Spark needs Java 17"
    assert "did not start: Spark needs Java 17" in str(refused(shell, "%fries_reconfigure FM=Score(2)", capsys))
    assert type(refused(shell, "%fries_run", capsys)) is SessionError
    spark.error = None
    told(shell, "%fries_run")
    assert "Java" not in told(shell, "%fries_status")


def test_a_start_that_failed_hides_no_run_that_was_started_after_it(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is over is asked for by no name, too: it is the newest."""
    spark = SlowSpark(monkeypatch, SessionError("Spark needs Java 17"))
    spark.go.set()
    shell.run_cell("%fries_run")
    spark.error = None
    told(shell, "%%fries_dataflow good\nflow.source('s', fn.rate(1)).sink('o', fn.memory())")
    told(shell, "%fries_run good")
    spark.started[-1].state = "finished"
    assert told(shell, "%fries_stop").startswith("'good' has finished")


def test_the_cell_prepares_for_interrupts_where_handlers_can_be_set(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start goes on beside it, and would leave PySpark's handler, which ends the hosts in a session by hand."""
    prepared: list[threading.Thread] = []
    monkeypatch.setattr(magics.interrupt, "take_over_active", lambda: prepared.append(threading.current_thread()))
    SlowSpark(monkeypatch).go.set()
    told(shell, "%fries_run")
    assert prepared == [threading.main_thread()]


def test_an_interrupt_cancels_the_start(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cell has waited for is stopped when it comes; nobody finds it."""
    spark = SlowSpark(monkeypatch)

    def interrupted(start: Any, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(magics.Start, "run", interrupted)
    assert isinstance(shell.run_cell("%fries_run").error_in_exec, KeyboardInterrupt)
    spark.go.set()
    joined("fries-start")
    assert spark.started[0].state == "stopped"
    assert "run" not in shell.user_ns
    assert told(shell, "%fries_status").splitlines()[1].split() == ["fraud", "declared"]


# ---- what dead kernels left


@pytest.fixture
def host() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, with a command like a host's."""
    process = subprocess.Popen([sys.executable, "-c", "input()", "pyspark.daemon"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def noted(directory: Path, kernel: Process, host: Process, machine: Machine) -> Path:
    """A note on a run with one host; returns the run's own directory."""
    scratch = directory / "fries-abc"
    scratch.mkdir(parents=True)
    note = Note(machine, kernel, "fraud", str(scratch), (host,))
    (directory / "1-a.json").write_bytes(msgspec.json.encode(note))
    return scratch


class Joining(StandIn):
    """Its second host joins a moment after the first; then it runs until it is waited for."""

    def __init__(self, directory: Path) -> None:
        super().__init__(Dataflow("fraud").graph())
        self.state, self.scratch, self.directory = "joining", "fries-abc", directory
        self.host_processes = {0: os.getpid()}
        self.noted: list[Note] = []

    def wait(self, timeout: float | None = None) -> str:
        """Two hosts are there after the first wait; the second is till the end."""
        [path] = self.directory.glob("*.json")
        self.noted.append(msgspec.json.decode(path.read_bytes(), type=Note))
        if self.state == "joining":
            self.state, self.host_processes = "running", {0: os.getpid(), 1: os.getppid()}
            raise TimeoutError
        return self.state


def test_a_run_is_noted_with_all_its_hosts_until_it_ends(tmp_path: Path) -> None:
    """From its start on, without the hosts that have not joined; then with all; in the end there is no note."""
    run = Joining(tmp_path)
    Notes(tmp_path).keep(run)  # type: ignore[arg-type]
    assert [[host.pid for host in note.hosts] for note in run.noted] == [[], [os.getpid(), os.getppid()]]
    assert all(note.kernel.alive for note in run.noted)
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_kernel_left_is_ended(tmp_path: Path, host: subprocess.Popen[bytes]) -> None:
    """The host is told to end, the run's directory is removed, and a line says so, once."""
    dead = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    kernel = Process(dead.pid, born(dead.pid))
    scratch = noted(tmp_path, kernel, Process(host.pid, born(host.pid)), this_machine())
    notes = Notes(tmp_path)
    assert notes.clear() == []
    assert scratch.exists()
    dead.communicate()
    [line] = notes.clear()
    assert "'fraud' of a kernel that has died" in line
    assert "1 process ended" in line
    assert host.wait(PATIENCE_S) != 0
    assert not scratch.exists()
    assert notes.clear() == []


@pytest.mark.parametrize("doubt", ["host", "boot", "container", "birth", "command"])
def test_nothing_is_ended_that_is_not_surely_ours(tmp_path: Path, host: subprocess.Popen[bytes], doubt: str) -> None:
    """Another machine's or container's note, a later process of the same number, and one that is no host are left."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pid = other.pid if doubt == "command" else host.pid
    gone = Process(1 << 30, "long ago")
    process = Process(pid, "another day" if doubt == "birth" else born(pid))
    elsewhere = {doubt: "another"} if doubt in Machine.__struct_fields__ else {}
    scratch = noted(tmp_path, gone, process, msgspec.structs.replace(this_machine(), **elsewhere))
    told_of = Notes(tmp_path).clear()
    assert host.poll() is None
    assert other.poll() is None
    assert scratch.exists() == bool(elsewhere)
    assert (told_of == []) == bool(elsewhere)
    other.communicate()
