"""What cells wait for: the start and the end of a run, the end of a change. Each wait can be cancelled.

The progress is one line in the running cell that says what the cell waits for, and for how long already. It appears
when the wait has lasted more than a second, is updated in place, and is gone when the wait is over. In a notebook it
has a button that cancels: where the front end has subshells, clicks are answered beside the running cell; elsewhere
there is the kernel's interrupt. Programs that execute notebooks get plain text, since they keep the state of each
widget, also of closed ones. In a terminal the line is rewritten; in other output, as in that of a program whose output
is a file, each step is a line of its own.

Ending a run from a notebook: drained or suspended by default, so that its output is complete.

Cleanup after kernels that were killed, by the next kernel of the same user on the same machine.

Hosts end by themselves when their driver falls silent. But a killed kernel cannot delete the scratch files of its runs,
and a host may be stuck in a user function. Each run therefore has a note in the user's cache directory while it lives.
A process is ended only if its number, its start time and its command match the note.

The directory of notes may be shared by machines and containers, several of which may have the same name. A kernel is
judged only where its process number is valid: in the same container, since the same boot.
"""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import html
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from IPython.core.interactiveshell import InteractiveShell

from fries_nb.changes.change import Change
from fries_nb.controller.events import Outcome
from fries_nb.displays import Say
from fries_nb.errors import DoubtfulChangeError, FriesError, ReconfigurationError, RunError
from fries_nb.notebook import summaries
from fries_nb.notebook.cells import CellOutput, told_when_interrupted
from fries_nb.notebook.change_panel import why_waits
from fries_nb.notebook.known import Start
from fries_nb.notebook.panels import RunMoment
from fries_nb.notebook.statuses import in_the_way
from fries_nb.notebook.summaries import Summary, quoted
from fries_nb.run import Run
from fries_nb.spark.session import cache_directory
from fries_nb.spark.staging import remove_scratch
from fries_nb.storage.claims import Machine, Process, asked, process, this_machine
from fries_nb.words import counted

if TYPE_CHECKING:
    import ipywidgets


PROGRESS = "FRIES_PROGRESS"
"""Environment variable: with ``0`` cells that wait show no progress."""
APPEARS_S = 1.5
"""Seconds of a wait after which its line appears."""
PERIOD_S = 0.5
"""Seconds between two updates of the line."""
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ERASE = "\r\x1b[K"


class _Line(Protocol):
    """One line of output: shown, replaced, removed."""

    def show(self, words: str, time_passed: str) -> None:
        """Show the words, and how long it takes already."""

    def remove(self) -> None:
        """Remove the line; called once, after at least one ``show``."""


class ProgressOutput:
    """The line of one wait, with a button that cancels it. Used in a ``with`` statement around the wait.

    ``tell`` is called in a thread, whenever the line is updated. ``cancel`` is called in a thread by a click, at most
    once and never after the wait; by default it interrupts the cell, as the kernel's interrupt does.
    """

    def __init__(
        self,
        shell: InteractiveShell,
        tell: Callable[[], str],
        cancel: Callable[[], object] | None = None,
        button: str = "Cancel",
    ) -> None:
        self._shell = shell
        self._tell = tell
        self._cancel = cancel or _interrupt
        self._button = button if cancel or threading.current_thread() is threading.main_thread() else ""
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._began_s = time.monotonic()
        # In the context of the cell, so that the line appears in its output.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=[self._follow], name="fries-progress", daemon=True)

    def __enter__(self) -> ProgressOutput:
        if os.environ.get(PROGRESS) != "0":
            self._began_s = time.monotonic()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:  # no click that is being answered interrupts what comes after
            self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def click(self) -> None:
        """Cancel what the cell waits for, as a click of the button does."""
        with self._lock:
            if not self._over.is_set():
                self._cancel()

    def _follow(self) -> None:
        if self._over.wait(APPEARS_S):
            return
        line = self._new_line()
        try:
            while True:
                line.show(self._tell(), f"{time.monotonic() - self._began_s:.0f} s")
                if self._over.wait(PERIOD_S):
                    return
        finally:
            line.remove()

    def _new_line(self) -> _Line:
        if _has_kernel(self._shell):
            output = CellOutput(self._shell)
            return _NotebookLine(output, self._button, self.click) if has_user(self._shell) else _ExecutedLine(output)
        return _TerminalLine() if sys.stdout.isatty() else _PrintedLine()


class _NotebookLine:
    """The line as a widget with a button; it leaves an empty text behind, and no widget."""

    def __init__(self, output: CellOutput, button: str, click: Callable[[], None]) -> None:
        import ipywidgets

        from fries_nb.notebook.widgets import answer_in_subshell

        self._output = output
        self._created = False
        self._html = ipywidgets.HTML()
        parts: list[ipywidgets.Widget] = [self._html]
        if button:
            clickable = ipywidgets.Button(description=button, tooltip="Like an interrupt of the kernel")
            clickable.layout.width = "auto"
            clickable.on_click(lambda _: self._clicked(clickable, click))
            parts.append(clickable)
        self._box = ipywidgets.HBox(parts)
        self._box.add_class("fries-progress")
        answer_in_subshell(self._box)

    def show(self, words: str, time_passed: str) -> None:
        text = f"{words}, {time_passed}"
        self._html.value = f'<div role="timer" style="line-height: 1.8">{html.escape(text)}</div>'
        if not self._created:
            self._created = True
            self._output.create({_WIDGET: self._box.get_view_spec(), "text/plain": text})

    def remove(self) -> None:
        self._output.replace({"text/plain": ""})
        for widget in (*self._box.children, self._box):
            for part in (widget, widget.layout, *filter(None, [getattr(widget, "style", None)])):
                part.close()

    @staticmethod
    def _clicked(button: ipywidgets.Button, click: Callable[[], None]) -> None:
        button.disabled = True
        click()


class _ExecutedLine:
    """The line as text in the output of a cell that no user looks at."""

    def __init__(self, output: CellOutput) -> None:
        self._output = output
        self._created = False

    def show(self, words: str, time_passed: str) -> None:
        put = self._output.replace if self._created else self._output.create
        self._created = True
        put({"text/plain": f"{words}, {time_passed}"})

    def remove(self) -> None:
        self._output.replace({"text/plain": ""})


class _TerminalLine:
    """The line of a terminal, which is rewritten and erased."""

    def show(self, words: str, time_passed: str) -> None:
        sys.stdout.write(f"{_ERASE}{words}, {time_passed}")
        sys.stdout.flush()

    def remove(self) -> None:
        sys.stdout.write(_ERASE)
        sys.stdout.flush()


class _PrintedLine:
    """A line for each step, since nothing can be rewritten."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, words: str, time_passed: str) -> None:
        if words != self._last:
            self._last = words
            sys.stdout.write(f"{words}\n")

    def remove(self) -> None:
        """What is printed stays."""


@contextmanager
def shown_call(shell: InteractiveShell, what: str) -> Iterator[Say]:
    """The line of a long call of the library: its name and its last step. See ``fries_nb.displays``."""
    if os.environ.get(PROGRESS) != "0" and not (_has_kernel(shell) or sys.stdout.isatty()):
        yield lambda step: sys.stdout.write(f"{step}\n")
        return
    steps = [what]
    with ProgressOutput(shell, lambda: steps[-1]):
        yield lambda step: steps.append(f"{what}: {step}")


def _has_kernel(shell: InteractiveShell) -> bool:
    return getattr(shell, "kernel", None) is not None


def has_user(shell: InteractiveShell) -> bool:
    """Whether a front end that can ask its user for input sent the cell; nbclient does not."""
    return bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", False))


def _interrupt() -> None:
    """Interrupt the running cell: deliver SIGINT to the main thread, also if that waits for a lock."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:  # Windows
        _thread.interrupt_main()


GLANCE_S = 2.0
"""Seconds to wait for a change before its cell ends; the change continues in the background."""
PATIENCE_S = 30.0
"""Seconds to wait for the hosts of a run to join before its cell ends; they may still join later."""
_LOOK_S = 0.2
"""Seconds between two checks for a paused operator while waiting for a change."""


def wait_for_start(shell: InteractiveShell, start: Start, hosts: int) -> Run:
    """Wait until a run's data flows, at most ``PATIENCE_S``. An interrupt cancels the start."""
    try:
        with (
            told_when_interrupted(f"{start.flow!r} is not started; what has begun of it is stopped"),
            ProgressOutput(shell, lambda: start.progress(hosts)),
        ):
            run = start.run()
            with contextlib.suppress(RunError):  # a run that has failed at once is shown as one that failed later
                run.wait_flowing(PATIENCE_S)
    except KeyboardInterrupt:
        start.cancel()
        raise
    return run


def change_summary(shell: InteractiveShell, run: Run, change: Change, wait_s: float, variable: str) -> Summary:
    """The summary of a change after waiting for its end. An interrupt cancels the change."""
    # A wait of a glance shows no progress, since the cell ends soon.
    targets = sorted(change.plan.targets)
    cancelled = f"the change of {', '.join(targets)} is cancelled, unless it was decided before"
    try:
        with told_when_interrupted(f"{cancelled}; {variable}.result(timeout=60)"):
            if wait_s <= GLANCE_S:
                result = _result(run, change, wait_s)
            else:
                with ProgressOutput(shell, lambda: change_progress(run, change), change.cancel):
                    result = _result(run, change, wait_s)
    except TimeoutError:
        if blocked_by := in_the_way(run, targets):
            return summaries.of_change_that_waits(change, blocked_by, variable)
        return summaries.of_change_under_way(change, wait_s, variable)
    except KeyboardInterrupt:
        change.cancel()
        raise
    if result.outcome == "done":
        return summaries.of_change(result)
    more = f" (traceback: print({variable}.result().details))" if result.details else ""
    paused = [name for name in in_the_way(run, targets) if result.error.startswith(f"{name} is paused")]
    fix = f"; fix it alone, with %fries_reconfigure {quoted(paused[0])}=..." if paused else ""
    message = f"{', '.join(targets)} {result.outcome}: {result.error}"
    if result.needs_force:
        raise DoubtfulChangeError(f"{message}, as does --force on this line")
    raise ReconfigurationError(f"{message}{fix}{more}")


def change_progress(run: Run, change: Change) -> str:
    """What a change under way waits for, as far as the driver knows: "changing FM: prepared 3 of 8 workers"."""
    return f"changing {', '.join(sorted(change.plan.targets))}: {why_waits(RunMoment(run), change)}"


def _result(run: Run, change: Change, wait_s: float) -> Outcome:
    """Wait for the end of a change, unless an operator is paused, which can only be fixed in another cell."""
    until_s, patience_s = time.monotonic() + wait_s, min(wait_s, GLANCE_S)
    while True:
        try:
            return change.result(timeout=patience_s)
        except TimeoutError:
            patience_s = min(until_s - time.monotonic(), _LOOK_S)
            if patience_s <= 0 or in_the_way(run, change.plan.targets):
                raise


"""Seconds between two checks for a paused operator while waiting for the end of a run."""


class Ending:
    """Requests the end of a run; the constructor returns at once.

    By default the run is drained or, if it keeps checkpoints, suspended at a last checkpoint, unless ``drain``. With
    ``now``, tuples that were read and not committed are not in the output.
    """

    def __init__(self, run: Run, now: bool = False, drain: bool = False) -> None:
        self._run = run
        self._now = now
        self._refused: Exception | None = None
        self._suspends = run.resumable and not now and not drain
        if self._suspends:
            threading.Thread(target=self._suspend, name="fries-suspend", daemon=True).start()
        else:
            run.request_stop(drain=not now)

    @property
    def trouble(self) -> str:
        """Why the run cannot be suspended; empty if it can. Its sources are paused meanwhile."""
        return f"{self._refused}; its sources are paused" if self._refused is not None else ""

    @property
    def progress(self) -> str:
        """What the end of the run waits for, in a few words."""
        what = f"stopping {self._run.graph.name!r}"
        if self._now:
            return f"{what}: its hosts end"
        if self._suspends:
            return f"{what}: its sources are paused, and a last checkpoint is taken"
        waiting = sum(operator.queued for operator in self._run.metrics().operators.values())
        return f"{what}: {counted(waiting, 'tuple')} {'waits' if waiting == 1 else 'wait'} to be processed"

    def wait(self, wait_s: float) -> None:
        """Wait until the run has ended; an interrupt ends the wait only."""
        name = self._run.graph.name
        now = f"%fries_stop --of {quoted(name)} --now ends it at once, without what still waits"
        on = "is still ending; %fries_status shows its state" if self._now else f"is still draining; {now}"
        until_s = time.monotonic() + wait_s
        with told_when_interrupted(f"{name!r} {on}"):
            while not self._has_ended(until_s):
                why = self.trouble or next(iter({} if self._now else in_the_way(self._run, ()).values()), "")
                if why:
                    raise RunError(f"{name!r} cannot end yet: {why}; {now}")
                if time.monotonic() >= until_s:
                    raise RunError(f"{name!r} has not ended after {wait_s:g} s and {on}")

    def _has_ended(self, until_s: float) -> bool:
        try:
            self._run.wait(max(0.0, min(_LOOK_S, until_s - time.monotonic())))
        except TimeoutError:
            return False
        return True

    def _suspend(self) -> None:
        try:
            self._run.suspend(timeout=threading.TIMEOUT_MAX)
        except FriesError as error:
            self._refused = error


_HOST_COMMAND = "pyspark"


class Note(msgspec.Struct, frozen=True):
    """The processes and files of a run. ``scratch`` is its scratch directory or the URI of one."""

    machine: Machine
    kernel: Process
    flow: str
    scratch: str
    hosts: tuple[Process, ...] = ()


class Notes:
    """The notes in a directory, by default ``runs`` in the user's cache directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or cache_directory(os.environ) / "runs"

    def keep(self, run: Run) -> None:
        """Keep a note of a run, with its hosts once they have joined, until the run has ended; blocks until then."""
        path = self._directory / f"{os.getpid()}-{id(run):x}.json"
        note = Note(this_machine(), process(os.getpid()), run.graph.name, run.scratch)
        self._directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(note))
        try:
            while run.state == "joining":
                with contextlib.suppress(TimeoutError):
                    run.wait(0.5)
                    return
            hosts = tuple(map(process, run.host_processes.values()))
            path.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, hosts=hosts)))
            run.wait()
        finally:
            path.unlink(missing_ok=True)

    def clear(self) -> list[str]:
        """Clean up after dead kernels of this machine; returns one line of text for each run."""
        return [_ended(note, path) for path, note in self._all() if _is_left(note)]

    def _all(self) -> Iterator[tuple[Path, Note]]:
        for path in sorted(self._directory.glob("*.json")):
            with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):  # being deleted or written at this moment
                yield path, msgspec.json.decode(path.read_bytes(), type=Note)


def _is_left(note: Note) -> bool:
    """Whether the note's kernel is known to be dead: it ran on this machine, in this container, since the last boot."""
    return note.machine == this_machine() and bool(note.kernel.born) and not note.kernel.alive


def _ended(note: Note, path: Path) -> str:
    hosts = [host for host in note.hosts if host.alive and _HOST_COMMAND in _command(host.pid)]
    for host in hosts:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.kill(host.pid, signal.SIGTERM)
    if os.path.basename(note.scratch).startswith("fries-"):
        remove_scratch(note.scratch)
    path.unlink(missing_ok=True)
    count = f"{len(hosts)} {'process' if len(hosts) == 1 else 'processes'}"
    return f"{note.flow!r} of a kernel that has died (process {note.kernel.pid}): {count} ended, its files removed"


def _command(pid: int) -> str:
    file = Path(f"/proc/{pid}/cmdline")
    try:
        return file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return asked(pid, "command=")
