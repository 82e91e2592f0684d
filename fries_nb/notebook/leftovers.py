"""What the kernels that died have left: found and ended by the next kernel of the same user on the same machine.

Hosts end by themselves when their driver is silent; but a kernel that is killed cannot delete what its runs wrote for
themselves, and a host may be stuck in a user's function. So each run has a note in the user's cache directory for as
long as it goes on. A process is ended only if its number, its time of birth and its command are those of the note.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fries_nb.run import Run
from fries_nb.spark.java import cache_directory
from fries_nb.spark.staging import remove_scratch

_HOST_COMMAND = "pyspark"


class Process(msgspec.Struct, frozen=True):
    """A process that its number alone does not tell from a later one; ``born`` is empty where nobody knows."""

    pid: int
    born: str

    @property
    def alive(self) -> bool:
        """Whether this very process still goes on."""
        return bool(self.born) and self.born == born(self.pid)


class Note(msgspec.Struct, frozen=True):
    """What there is of a run beside its kernel. ``scratch`` is its own directory, or a URI of one."""

    machine: str
    kernel: Process
    flow: str
    scratch: str
    hosts: tuple[Process, ...] = ()


class Notes:
    """The notes in a directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or cache_directory(os.environ) / "runs"

    def keep(self, run: Run) -> None:
        """Note a run, and its hosts once they are there; delete the note when the run has ended. Blocks till then."""
        path = self._directory / f"{os.getpid()}-{id(run):x}.json"
        note = Note(socket.gethostname(), _process(os.getpid()), run.graph.name, run.scratch)
        self._directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(note))
        try:
            while run.state == "joining":
                with contextlib.suppress(TimeoutError):
                    run.wait(0.5)
                    return
            hosts = tuple(map(_process, run.host_processes.values()))
            path.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, hosts=hosts)))
            run.wait()
        finally:
            path.unlink(missing_ok=True)

    def clear(self) -> list[str]:
        """End what kernels of this machine left that are no more; a line for each run, in words."""
        return [_ended(note, path) for path, note in self._all() if _is_left(note)]

    def _all(self) -> Iterator[tuple[Path, Note]]:
        for path in sorted(self._directory.glob("*.json")):
            with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):  # being deleted, or written, just now
                yield path, msgspec.json.decode(path.read_bytes(), type=Note)


def born(pid: int) -> str:
    """When a process was born, in words that differ from those of any other with its number; empty if it is no more."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return "" if fields[0] in "ZX" else f"{boot} {fields[19]}"  # a zombie is no more
    return _asked(pid, "lstart=")


def _process(pid: int) -> Process:
    return Process(pid, born(pid))


def _is_left(note: Note) -> bool:
    return note.machine == socket.gethostname() and bool(note.kernel.born) and not note.kernel.alive


def _ended(note: Note, path: Path) -> str:
    hosts = [host for host in note.hosts if host.alive and _HOST_COMMAND in _command(host.pid)]
    for host in hosts:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.kill(host.pid, signal.SIGTERM)
    if os.path.basename(note.scratch).startswith("fries-"):
        remove_scratch(note.scratch)
    path.unlink(missing_ok=True)
    count = f"{len(hosts)} {'process' if len(hosts) == 1 else 'processes'}"
    return f"{note.flow!r} of a kernel that is no more (process {note.kernel.pid}): {count} ended, its files removed"


def _command(pid: int) -> str:
    file = Path(f"/proc/{pid}/cmdline")
    try:
        return file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return _asked(pid, "command=")


def _asked(pid: int, what: str) -> str:
    try:
        asked = subprocess.run(["ps", "-o", what, "-p", str(pid)], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()
