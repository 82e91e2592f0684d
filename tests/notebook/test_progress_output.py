"""A cell that waits says for what, in one line that goes away; its button cancels while the cell runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from notebook_shell import StandIn, told
from patience import PATIENCE_S

from fries_nb.changes.change import Change
from fries_nb.controller.events import Outcome
from fries_nb.displays import progress_of
from fries_nb.errors import ReconfigurationError
from fries_nb.notebook import waits
from fries_nb.notebook.known import Start
from fries_nb.notebook.waits import PROGRESS, Ending, ProgressOutput, change_progress
from fries_nb.run import Dataflow
from fries_nb.spark import session


class Recorded:
    """A line that keeps what it showed; ``reached`` is set when it shows something, ``removed`` when it is gone."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.reached, self.removed = threading.Event(), threading.Event()

    def show(self, words: str, time_passed: str) -> None:
        """Keep it."""
        assert time_passed.endswith(" s")
        self.words.append(words)
        self.reached.set()

    def remove(self) -> None:
        """Keep that as well."""
        self.removed.set()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The line of the next wait, which appears at once."""
    recorded = Recorded()
    monkeypatch.setattr(ProgressOutput, "_new_line", lambda self: recorded)
    monkeypatch.setattr(waits, "APPEARS_S", 0.0)
    return recorded


@pytest.mark.usefixtures("with_fraud")
def test_a_start_says_what_it_waits_for(
    shell: InteractiveShell, stand_ins: list[StandIn], line: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark, then hosts as they join; the line is gone with the wait, and a quick start has none."""
    launched = Dataflow.run

    def launch(flow: Dataflow, **options: Any) -> Any:
        assert line.reached.wait(PATIENCE_S)
        return launched(flow, **options)

    monkeypatch.setattr(Dataflow, "run", launch)
    monkeypatch.setattr(session, "is_active", lambda: False)
    told(shell, "%fries_run")
    assert line.words[0] == "starting 'fraud': Spark is starting"
    assert line.removed.is_set()
    start = Start("fraud", lambda: stand_ins[0], lambda run: None)  # type: ignore[arg-type,return-value]
    start.run()
    assert start.progress(2) == "starting 'fraud': 0 of 2 hosts have joined"
    stand_ins[0].host_processes = {0: 11, 1: 12}
    assert start.progress(2) == "starting 'fraud': all 2 hosts have joined, operators are opened"
    monkeypatch.setattr(waits, "APPEARS_S", PATIENCE_S)
    line.words.clear()
    told(shell, "%fries_run --replace")
    assert line.words == []


@pytest.mark.usefixtures("with_fraud")
def test_a_change_that_takes_long_is_cancelled_by_a_click(
    shell: InteractiveShell, stand_ins: list[StandIn], line: Recorded, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The cell ends as for any change that was aborted; nothing happens to a click when the wait is over."""
    outputs: list[ProgressOutput] = []
    monkeypatch.setattr(ProgressOutput, "_new_line", lambda self: (outputs.append(self), line)[1])

    def cancel(change: Change) -> None:
        change.resolve(Outcome(change.id, "fries", "aborted", "it was cancelled; nothing changed", components=()))

    monkeypatch.setattr(Change, "cancel", cancel)
    told(shell, "%fries_run")
    [run] = stand_ins
    run.outcome = None
    clicking = threading.Thread(target=lambda: (line.reached.wait(PATIENCE_S), outputs[-1].click()))
    line.reached.clear()
    monkeypatch.delenv(PROGRESS, raising=False)
    clicking.start()
    result = shell.run_cell("%fries_reconfigure FM=dict --wait 3600")
    clicking.join(PATIENCE_S)
    assert type(result.error_in_exec) is ReconfigurationError
    assert str(result.error_in_exec) == "FM aborted: it was cancelled; nothing changed"
    assert line.words[-1] == "changing FM: it waits for the first tuples, on which it is rehearsed"
    monkeypatch.setattr(outputs[-1], "_cancel", pytest.fail)
    outputs[-1].click()
    told(shell, "%fries_reconfigure FM=dict --wait 0")
    told(shell, "%fries_reconfigure MC=dict --wait 0")
    assert change_progress(run, run.changes[-1]).startswith("changing MC: ")  # type: ignore[arg-type]
    capsys.readouterr()


@pytest.mark.usefixtures("with_fraud")
def test_the_end_of_a_run_says_what_it_waits_for(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """Tuples that are processed first, a checkpoint, or nothing of the kind."""
    told(shell, "%fries_run")
    run: Any = stand_ins[0]
    run.suspend = lambda timeout: None
    assert Ending(run).progress == "stopping 'fraud': 0 tuples wait to be processed"
    assert Ending(run, now=True).progress == "stopping 'fraud': its hosts end"
    run.resumable = True
    assert Ending(run).progress == "stopping 'fraud': its sources are paused, and a last checkpoint is taken"


@pytest.mark.usefixtures("line")
def test_it_is_off_by_the_environment_and_short_waits_have_none(
    shell: InteractiveShell, line: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``FRIES_PROGRESS=0``."""
    monkeypatch.setenv(PROGRESS, "0")
    with ProgressOutput(shell, lambda: "waiting"), progress_of("comparing") as say:
        say("nothing is shown")
    assert not line.reached.is_set()
    monkeypatch.delenv(PROGRESS)
    monkeypatch.setattr(waits, "APPEARS_S", PATIENCE_S)
    with ProgressOutput(shell, lambda: "waiting"):
        pass
    assert not line.reached.is_set()


def test_a_terminal_rewrites_its_line_and_other_output_has_a_line_a_step(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of a terminal is erased in the end."""
    terminal, printed = waits._TerminalLine(), waits._PrintedLine()
    for words in ("one", "two"):
        terminal.show(words, "2 s")
    terminal.remove()
    assert capsys.readouterr().out == "\r\x1b[Kone, 2 s\r\x1b[Ktwo, 2 s\r\x1b[K"
    for words in ("one", "one", "two"):
        printed.show(words, "2 s")
    printed.remove()
    assert capsys.readouterr().out == "one\ntwo\n"
    with progress_of("comparing") as say:
        say("a step")
    assert capsys.readouterr().out == "a step\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert isinstance(ProgressOutput(shell, str)._new_line(), waits._TerminalLine)


def test_a_program_that_executes_a_notebook_gets_text_and_no_widget(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbclient would keep the state of a widget in the notebook, also when it is closed."""
    pages = CapturingDisplayPublisher()
    monkeypatch.setattr(shell, "display_pub", pages)
    monkeypatch.setattr(shell, "kernel", SimpleNamespace(_allow_stdin=False), raising=False)
    line = ProgressOutput(shell, str)._new_line()
    line.show("one", "1 s")
    line.show("two", "2 s")
    line.remove()
    assert [(page["data"], page["update"]) for page in pages.outputs] == [
        ({"text/plain": "one, 1 s"}, False), ({"text/plain": "two, 2 s"}, True), ({"text/plain": ""}, True),
    ]  # fmt: skip
    assert len({page["transient"]["display_id"] for page in pages.outputs}) == 1


WAITING = """
from fries_nb.displays import progress_of
from fries_nb.notebook import waits
import threading
get_ipython().run_line_magic("load_ext", "fries_nb")
waits.APPEARS_S, waits.PERIOD_S = 0, 0.01
with progress_of("comparing 2 schedulers") as say:
    say("[epoch] surge")
    threading.Event().wait()
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BlockingKernelClient]:
    """A kernel of its own."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def click(client: BlockingKernelClient, comm: str) -> None:
    """Click a widget while the main shell is busy, as front ends with subshells do."""
    client.control_channel.send(client.session.msg("create_subshell_request", {}))
    subshell = client.get_control_msg(timeout=PATIENCE_S)["content"]["subshell_id"]
    content = {"comm_id": comm, "data": {"method": "custom", "content": {"event": "click"}}}
    message = client.session.msg("comm_msg", content)
    message["header"]["subshell_id"] = subshell
    client.shell_channel.send(message)


def test_a_click_in_a_notebook_interrupts_the_cell_and_leaves_no_widget(client: BlockingKernelClient) -> None:
    """In a real kernel: the button is shown in the cell's output, and its click is handled while the cell runs."""
    asked = client.execute(WAITING)
    opened: dict[str, str] = {}
    shown = ""
    while True:
        message = client.get_iopub_msg(timeout=PATIENCE_S)
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_open":
            opened[content["comm_id"]] = content["data"]["state"].get("_model_name", "")
        elif kind == "comm_close":
            del opened[content["comm_id"]]
        elif kind == "display_data":
            assert message["parent_header"]["msg_id"] == asked
            assert content["data"]["text/plain"].startswith("comparing 2 schedulers")
            shown = content["transient"]["display_id"]
            click(client, next(comm for comm, model in opened.items() if model == "ButtonModel"))
        elif kind == "update_display_data":
            assert (content["transient"]["display_id"], content["data"]) == (shown, {"text/plain": ""})
        elif kind == "status" and content["execution_state"] == "idle" and message["parent_header"]["msg_id"] == asked:
            break
    assert shown
    assert opened == {}
    while (reply := client.get_shell_msg(timeout=PATIENCE_S))["parent_header"].get("msg_id") != asked:
        pass
    assert reply["content"]["ename"] == "KeyboardInterrupt"
