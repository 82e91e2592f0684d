"""Which process on which machine: told apart after a restart of the machine, and from those of other containers.

A process's number means something only where it was given: on one machine, since its last start, within one container.
Two machines may have the same name, and so may two containers.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """Where process numbers are given.

    Attributes:
        host: its name, for people.
        boot: id of its last start; empty where the system has none.
        container: the namespace of its process numbers; empty where the system has none.
    """

    host: str
    boot: str = ""
    container: str = ""


class Process(msgspec.Struct, frozen=True):
    """A process of this machine; its number alone does not tell it from a later one.

    Attributes:
        pid: its number.
        born: when it began, in words that no other process with its number has; empty where nobody knows.
    """

    pid: int
    born: str

    @property
    def alive(self) -> bool:
        """Whether this very process still goes on."""
        return bool(self.born) and self.born == born(self.pid)


def this_machine() -> Machine:
    """Where this process runs."""
    return Machine(socket.gethostname(), _read("/proc/sys/kernel/random/boot_id"), _linked("/proc/self/ns/pid"))


def process(pid: int) -> Process:
    """The process that has this number now."""
    return Process(pid, born(pid))


def born(pid: int) -> str:
    """When a process was born, in words that differ from those of any other with its number; empty if it is no more."""
    if Path("/proc/self/stat").exists():
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if not fields or fields[0] in "ZX":  # a zombie is no more
            return ""
        return f"{_read('/proc/sys/kernel/random/boot_id')} {fields[19]}"
    return asked(pid, "lstart=")


def asked(pid: int, what: str) -> str:
    """What ``ps`` says of a process, where there is no ``/proc``; empty if it says nothing."""
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
