"""Cell outputs that are updated after their cell has ended: what operators print, and the rollback of a guarded change.

Such text arrives from a thread, long after the cell has ended, and may be a lot. Each cell therefore has one output
that is updated in place: it stays short, and it stays with its cell in every front end, whereas text that a thread
writes to standard output appears in whichever cell is running. Without a kernel no output can be updated, and nothing
is shown; ``run.printed``, ``%fries_status`` and ``change.settled()`` have the same information.

>>> tail([Line("FM[0]", "opened"), Line("FM[1]", "opened"), Line("", "more")], 5, 2, "run").splitlines()
['... 3 more lines: run.printed', 'FM[1]: opened', 'more']
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from fries_nb.changes.change import Change
from fries_nb.run import Run
from fries_nb.transport.envelopes import Line

DEFAULT_S = 5.0
"""Duration of a change's guard in seconds, unless the user specifies one."""
LONGEST = 300
"""Characters of a line that are shown; ``run.printed`` has the whole line."""
_CELL_FILE = re.compile(r'^  File "([^"]+)", (line \d+)', re.MULTILINE)


class CellOutput:
    """An output of the cell that is being executed, which can be replaced after the cell has ended.

    Attributes:
        updatable: whether the shell has a kernel, without which outputs cannot be updated.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self.updatable = getattr(shell, "kernel", None) is not None
        self._shell = shell
        self._id = f"fries-{uuid.uuid4().hex}"
        self._data: Mapping[str, Any] = {}

    def create(self, data: Mapping[str, Any]) -> None:
        """Add the output, content by MIME type, to the cell that is being executed."""
        self._publish(data, update=False)

    def replace(self, data: Mapping[str, Any]) -> None:
        """Replace the output's content; may be called from any thread.

        It is published twice: now, and when the cell that is executed next has ended, since programs that execute
        notebooks (nbconvert, papermill) drop what arrives between two cells.
        """
        self._data = data
        self._shell.events.register("post_run_cell", self._publish_again)
        self._publish(data, update=True)

    def _publish_again(self, _: object) -> None:
        self._shell.events.unregister("post_run_cell", self._publish_again)
        self._publish(self._data, update=True)

    def _publish(self, data: Mapping[str, Any], update: bool) -> None:
        self._shell.display_pub.publish(data, transient={"display_id": self._id}, update=update)


class CellEcho:
    """Shows the last ``lines`` that a run's operators printed, in the output of the cell that started the run.

    They are the last output of the cell, so that a live view in the same cell stays where it is however much is
    printed. ``period_s`` is called after each update.
    """

    def __init__(self, shell: InteractiveShell, lines: int, period_s: Callable[[], float]) -> None:
        self._shell = shell
        self._output = CellOutput(shell)
        self._name_of = shell.compile.format_code_name
        self._lines = lines if self._output.updatable else 0
        self._period_s = period_s
        self._shown = ""
        self._begun = False
        self._one_at_a_time = threading.Lock()
        if self._lines:
            shell.events.register("post_run_cell", self._begin)

    def follow(self, run: Run, variable: str) -> None:
        """Show what the operators of a run print until it ends, then its error if it failed; returns at once."""
        if self._lines:
            threading.Thread(target=self._follow, args=[run, variable], name="fries-echo", daemon=True).start()

    def _begin(self, _: object) -> None:
        """Add the output, behind all others of the cell."""
        self._shell.events.unregister("post_run_cell", self._begin)
        with self._one_at_a_time:
            self._begun = True
            self._output.create({"text/plain": self._shown})

    def _follow(self, run: Run, variable: str) -> None:
        over = False
        while not over:
            try:
                run.wait(self._period_s())
                over = True
            except TimeoutError:
                pass
            self._show(run, variable, over)

    def _show(self, run: Run, variable: str, over: bool) -> None:
        text = tail(run.printed, run.lines_printed, self._lines, variable)
        if run.error:
            failure = f"{run.graph.name!r} {'has' if over else 'is'} {run.state}: {run.error}"
            text = "\n".join(filter(None, [text, failure, in_cells(run.details, self._name_of)]))
        with self._one_at_a_time:
            if text != self._shown:
                self._shown = text
                if self._begun:
                    self._output.replace({"text/plain": text})


class GuardNotice:
    """Reports in the cell that requested a guarded change that the guard rolled the change back."""

    def __init__(self, shell: InteractiveShell, change: Change) -> None:
        self._change = change
        self._output = CellOutput(shell)
        if change.guard and self._output.updatable:
            self._output.create({"text/plain": ""})
            threading.Thread(target=self._follow, name="fries-guard", daemon=True).start()

    def _follow(self) -> None:
        result = self._change.settled()
        if result.outcome == "rolled_back":
            self._output.replace({"text/plain": f"{self._change.label}: {result.error}"})


def tail(lines: Sequence[Line], printed: int, most: int, variable: str) -> str:
    """The last lines, each prefixed with its worker, and where further ones are."""
    last = [f"{line.worker}: {line.text}" if line.worker else line.text for line in lines[-most:]]
    shown = [line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in last]
    more = [f"... {printed - len(last):,} more lines: {variable}.printed"] if printed > len(last) else []
    return "\n".join([*more, *shown])


def in_cells(traceback: str, name_of: Callable[[str], tuple[str, str] | None]) -> str:
    """A traceback in which the files of cells have the names that the notebook shows, by ``name_of``.

    >>> print(in_cells('  File "/tmp/1.py", line 2, in process', {"/tmp/1.py": ("Cell", "In[7]")}.get))
      Cell In[7], line 2, in process
    """

    def named(found: re.Match[str]) -> str:
        name = name_of(found[1])
        return f"  {' '.join(name)}, {found[2]}" if name else found[0]

    return _CELL_FILE.sub(named, traceback.rstrip())
