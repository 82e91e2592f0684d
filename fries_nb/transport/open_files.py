"""The limit on open files, which bounds the number of connections.

Many systems limit a process to 1,024 open files by default and allow it to raise the limit far above that.
"""

from __future__ import annotations

import contextlib
import os

from fries_nb.errors import LinkError

MOST = 1 << 16
"""Highest limit to request."""
SPARE = 256
"""Files reserved for Spark, user functions and connections that are not authenticated yet."""
PER_HOST = 8
"""Files needed for each other host."""


def make_room(hosts: int) -> None:
    """Raise this process's limit on open files as far as allowed, and check that the links of these hosts fit.

    Raises:
        LinkError: they do not fit; names the limit, the open files and the need.
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
