"""Identity of processes, across restarts of a machine and across containers.

A process number is valid on one machine, since its last boot, within one container. Two machines may have the same host
name, and so may two containers.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """The scope in which process numbers are valid.

    Attributes:
        host: host name, for people.
        boot: id of the last boot; empty if the system has none.
        container: PID namespace; empty if the system has none.
    """

    host: str
    boot: str = ""
    container: str = ""


class Process(msgspec.Struct, frozen=True):
    """A process of this machine; its start time distinguishes it from later ones with the same number.

    Attributes:
        pid: process number.
        born: its start time as text; empty if unknown.
    """

    pid: int
    born: str

    @property
    def alive(self) -> bool:
        """Whether this process is alive."""
        return bool(self.born) and self.born == born(self.pid)


def this_machine() -> Machine:
    """The scope of this process."""
    return Machine(socket.gethostname(), _read("/proc/sys/kernel/random/boot_id"), _linked("/proc/self/ns/pid"))


def process(pid: int) -> Process:
    """The process that has this number now."""
    return Process(pid, born(pid))


def born(pid: int) -> str:
    """The start time of a process as text; empty if there is no such process."""
    if Path("/proc/self/stat").exists():
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if not fields or fields[0] in "ZX":  # a zombie has ended
            return ""
        return f"{_read('/proc/sys/kernel/random/boot_id')} {fields[19]}"
    return asked(pid, "lstart=")


def asked(pid: int, what: str) -> str:
    """The output of ``ps`` on a process, for systems without ``/proc``; empty if there is none."""
    try:
        said = subprocess.run(["ps", "-o", what, "-p", str(pid)], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()


def _read(file: str) -> str:
    try:
        return Path(file).read_text().strip()
    except OSError:
        return ""


def _linked(file: str) -> str:
    try:
        return os.readlink(file)
    except OSError:
        return ""
