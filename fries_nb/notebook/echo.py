"""What operators print, in the output of the cell that ran the flow: its last lines, a few times a second at most.

The lines come long after the cell has ended, from a thread, and may be a flood. So the cell has one output that is
updated in place: it stays short, whatever is printed, and it stays with its cell in every front end, while what a
thread writes to standard output lands in the cell that happens to run. Without a kernel nothing can be updated, and
lines from behind would garble a terminal's prompt: there ``run.printed()`` has them.

>>> tail([Line("FM[0]", "opened"), Line("FM[1]", "opened"), Line("", "more")], 5, 2, "run").splitlines()
['... 3 more lines: run.printed()', 'FM[1]: opened', 'more']
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Sequence

from IPython.core.interactiveshell import InteractiveShell

from fries_nb.run import Run
from fries_nb.transport.envelopes import Line

LONGEST = 300
"""Characters of a line that are shown; ``run.printed()`` has all."""
_CELL_FILE = re.compile(r'^  File "([^"]+)", (line \d+)', re.MULTILINE)


class CellEcho:
    """An output of the cell that is executed now, empty until there is something to show.

    Args:
        shell: whose cell.
        lines: shown at most; 0 for no output at all.
        period_s: asked after each update for the seconds until the next one.
    """

    def __init__(self, shell: InteractiveShell, lines: int, period_s: Callable[[], float]) -> None:
        self._shell = shell
        self._lines = lines if getattr(shell, "kernel", None) is not None else 0
        self._period_s = period_s
        self._id = f"fries-{uuid.uuid4().hex}"
        self._shown = ""
        if self._lines:
            self._publish("", update=False)

    def follow(self, run: Run, variable: str) -> None:
        """Show what the operators of a run print, and in the end why it failed, if it did.

        Args:
            run: the run whose output is shown.
            variable: the user's variable that holds the run, for messages.
        """
        if self._lines:
            threading.Thread(target=self._follow, args=[run, variable], name="fries-echo", daemon=True).start()

    def _follow(self, run: Run, variable: str) -> None:
        over = False
        while not over:
            try:
                run.wait(self._period_s())
                over = True
            except TimeoutError:
                pass
            self._show(run, variable)

    def _show(self, run: Run, variable: str) -> None:
        text = tail(run.printed(), run.lines_printed, self._lines, variable)
        if run.error:
            failure = f"{run.graph.name!r} has {run.state}: {run.error}"
            text = "\n".join(filter(None, [text, failure, in_cells(run.details, self._shell.compile.format_code_name)]))
        if text != self._shown:
            self._shown = text
            self._publish(text, update=True)

    def _publish(self, text: str, update: bool) -> None:
        self._shell.display_pub.publish({"text/plain": text}, transient={"display_id": self._id}, update=update)


def tail(lines: Sequence[Line], printed: int, most: int, variable: str) -> str:
    """The last lines, each with its worker.

    Args:
        lines: that are at hand.
        printed: how many there were in all.
        most: lines to show.
        variable: that holds the run, which has more of them.
    """
    last = [f"{line.worker}: {line.text}" if line.worker else line.text for line in lines[-most:]]
    shown = [line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in last]
    more = [f"... {printed - len(last):,} more lines: {variable}.printed()"] if printed > len(last) else []
    return "\n".join([*more, *shown])


def in_cells(traceback: str, name_of: Callable[[str], tuple[str, str] | None]) -> str:
    """A traceback in which files of cells have the names that the notebook shows.

    Args:
        traceback: text as Python formats it.
        name_of: maps a file name to the kind and name by which the shell shows it; ``None`` for files of no cell.

    >>> print(in_cells('  File "/tmp/1.py", line 2, in process', {"/tmp/1.py": ("Cell", "In[7]")}.get))
      Cell In[7], line 2, in process
    """

    def named(found: re.Match[str]) -> str:
        name = name_of(found[1])
        return f"  {' '.join(name)}, {found[2]}" if name else found[0]

    return _CELL_FILE.sub(named, traceback.rstrip())
