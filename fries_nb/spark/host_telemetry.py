"""What a host tells of itself, beside the reports of its workers: printed lines, and its use of processor and memory.

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

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fries_nb.spark.printing import Printer
from fries_nb.transport.envelopes import HostMessage, Printed, ProcessUsage

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
