"""Ending a run from a notebook: drained or suspended by default, so that its output is complete.

Cleanup after kernels that were killed, by the next kernel of the same user on the same machine.

Hosts end by themselves when their driver falls silent. But a killed kernel cannot delete the scratch files of its runs,
and a host may be stuck in a user function. Each run therefore has a note in the user's cache directory while it lives.
A process is ended only if its number, its start time and its command match the note.

The directory of notes may be shared by machines and containers, several of which may have the same name. A kernel is
judged only where its process number is valid: in the same container, since the same boot.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fries_nb.errors import FriesError, RunError
from fries_nb.notebook.cells import told_when_interrupted
from fries_nb.notebook.statuses import in_the_way
from fries_nb.notebook.summaries import quoted
from fries_nb.run import Run
from fries_nb.spark.session import cache_directory
from fries_nb.spark.staging import remove_scratch
from fries_nb.storage.claims import Machine, Process, asked, process, this_machine
from fries_nb.words import counted

_LOOK_S = 0.2
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
