"""Room for open files, without which no connection can be made.

Many systems let a process open 1,024 files unless it asks for more, and allow it far more where it asks.
"""

from __future__ import annotations

import contextlib
import os

from fries_nb.errors import LinkError

MOST = 1 << 16
"""What is asked for, where the system allows so much."""
SPARE = 256
"""Files for Spark, for the user's functions and for strangers that have not been turned away yet."""
PER_HOST = 8
"""Sockets and what belongs to them, for each other host."""


def make_room(hosts: int) -> None:
    """Raise this process's limit of open files as far as it may, and see that the links of so many hosts fit.

    Raises:
        LinkError: they do not; says what is allowed, open and needed.
    """
    if os.name != "posix":
        return
    import resource  # there is none elsewhere

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with contextlib.suppress(ValueError, OSError):  # a Mac's own limit may be lower than what it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            soft = allowed
    is_open, needed = len(os.listdir("/dev/fd")), SPARE + PER_HOST * hosts
    if soft != resource.RLIM_INFINITY and soft - is_open < needed:
        raise LinkError(
            f"this process may open {soft} files and has {is_open} open; a run of {hosts} hosts needs {needed} more; "
            "raise the limit (ulimit -n) before Python is started"
        )
