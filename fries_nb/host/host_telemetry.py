r"""Captures what user functions print or log on a host, line by line, to show it in the notebook.

It replaces the host's standard output and error while the host serves. The number of lines per second is limited;
further lines are only counted, so that a print for every tuple delays neither tuples nor messages.

>>> printer = Printer(allowed=2)
>>> print("loading ...", end="", file=printer); print(" done", file=printer)
>>> printer.take(passed_s=1.0)
(Line(worker='MainThread', text='loading ... done'),)
>>> print("first\nsecond\nthird\nfourth", file=printer)
>>> [line.text for line in printer.take(passed_s=1.0)]
['first', 'second', '... and 2 lines more: above 2 a second they are not kept']

What a host tells of itself, beside the reports of its workers: printed lines, and its use of processor and memory.

>>> told, now_s, used_s = [], [10.0], [3.0]
>>> telemetry = HostTelemetry(Printer(), told.append, lambda: now_s[0], lambda: used_s[0], lambda: 1 << 20)
>>> telemetry.tell(0.25); told                          # at most once a second
[]
>>> now_s[0], used_s[0] = 12.0, 4.0
>>> telemetry.tell(0.25); told
[ProcessUsage(cpu_share=0.5, rss_bytes=1048576)]
>>> now_s[0], used_s[0] = 13.0, 5.5
>>> telemetry.tell(0.25); told[-1].cpu_share
1.5
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from fries_nb.operators.dry_run import DryRun
from fries_nb.operators.instance import Instance
from fries_nb.transport.envelopes import HostMessage, Line, Printed, ProcessUsage

ALLOWED = 100
"""Maximum number of lines per second of one host."""
LONGEST = 2_000
"""Maximum length of a line in characters; longer lines are split."""
OWN = "fries-"
"""Prefix of the names of our threads, followed by the worker."""
_NOTHING = Line("", "")


class Printer(io.TextIOBase):
    """A text stream that keeps complete lines, each with the worker whose thread wrote it.

    Args:
        allowed: maximum number of lines per second.
    """

    def __init__(self, allowed: int = ALLOWED) -> None:
        self._allowed = allowed
        self._left = float(allowed)
        self._lines: list[Line] = []
        self._dropped = 0
        self._begun: dict[int, Line] = {}  # thread to the line that it has not ended yet
        self._lock = threading.Lock()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute in the stubs
        """The encoding, which some libraries query; any text can be printed."""
        return "utf-8"

    def writable(self) -> bool:
        """True, as of any output stream."""
        return True

    def write(self, text: str) -> int:
        """Keep the lines that are complete; an incomplete line is buffered for its thread."""
        thread, frame = threading.get_ident(), sys._getframe(1)
        with self._lock:
            *whole, begun = (self._begun.pop(thread, _NOTHING).text + text).split("\n")
            while len(begun) > LONGEST:
                whole.append(begun[:LONGEST])
                begun = begun[LONGEST:]
            if begun:
                self._begun[thread] = Line(_worker(frame), _visible(begun))
            for line in whole:
                self._keep(line, frame)
        return len(text)

    def end_lines(self) -> None:
        """Complete all buffered lines, since nothing more is printed."""
        with self._lock:
            self._lines += [Line(worker, text.rstrip("\r")) for worker, text in self._begun.values()]
            self._begun.clear()

    def take(self, passed_s: float) -> tuple[Line, ...]:
        """The lines since the last call, which was this many seconds ago."""
        with self._lock:
            lines, self._lines = self._lines, []
            self._left = min(self._left + passed_s * self._allowed, float(self._allowed))
            if self._dropped:
                more = f"... and {self._dropped:,} lines more: above {self._allowed:,} a second they are not kept"
                lines.append(Line("", more))
                self._dropped = 0
        return tuple(lines)

    def _keep(self, line: str, frame: FrameType) -> None:
        if self._left < 1:
            self._dropped += 1
            return
        self._left -= 1
        self._lines.append(Line(_worker(frame), _visible(line).rstrip("\r")))


def _visible(line: str) -> str:
    """What a terminal would show of a line with carriage returns, as of progress bars."""
    return line[line.rstrip("\r").rfind("\r") + 1 :]


def _worker(frame: FrameType | None) -> str:
    """The worker whose function is on the stack, since workers of a chain share a thread; else the thread's name."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("fries_nb."):
            for name in ("instance", "order"):
                called_for = frame.f_locals.get(name)
                if isinstance(called_for, (Instance, DryRun)):
                    return str(called_for.worker)
        frame = frame.f_back
    return threading.current_thread().name.removeprefix(OWN)


_PRINTER = Printer()
# One for each process: a logging handler that a user function created in an earlier run still writes to it.


@contextlib.contextmanager
def printing() -> Iterator[Printer]:
    """Installs the printer as standard output and error within the block."""
    _PRINTER.take(1.0)  # discards output from after the last run
    with contextlib.redirect_stdout(_PRINTER), contextlib.redirect_stderr(_PRINTER):
        yield _PRINTER


USAGE_S = 1.0
"""Minimum time between two messages about the process, in seconds."""
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """The resident memory of this process in bytes; where the system does not tell it, its maximum so far."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


class HostTelemetry:
    """The messages of one host about itself.

    Args:
        printer: collects the output of user functions.
        say: sends a message to the driver.
        clock: a monotonic clock in seconds.
        used: returns the processor time that this process has used, in seconds.
        resident: returns its resident memory in bytes.
    """

    def __init__(
        self,
        printer: Printer,
        say: Callable[[HostMessage], None],
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        resident: Callable[[], int] = resident_bytes,
    ) -> None:
        self._printer = printer
        self._say = say
        self._clock = clock
        self._used = used
        self._resident = resident
        self._since = clock(), used()

    def tell(self, passed_s: float) -> None:
        """Send what is new; the last call was this many seconds ago."""
        self.tell_lines(passed_s)
        now_s, used_s = self._clock(), self._used()
        since_s, before_s = self._since
        if now_s - since_s >= USAGE_S:
            self._since = now_s, used_s
            self._say(ProcessUsage((used_s - before_s) / (now_s - since_s), self._resident()))

    def tell_lines(self, passed_s: float) -> None:
        """Send the lines that were printed; the last call was this many seconds ago."""
        if lines := self._printer.take(passed_s):
            self._say(Printed(lines))

    def end(self, passed_s: float) -> None:
        """Send all lines, also those that are not complete, since nothing more is printed."""
        self._printer.end_lines()
        self.tell_lines(passed_s)
