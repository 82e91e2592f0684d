"""Mutual exclusion of writers of a checkpoint directory: claims on numbered attempts. Needs no lock and no rename.

An object store has neither, so a contender writes a claim, a file with a unique name, and lists the claims:

    listing                                    action
    no other claim on its number, nor a higher it holds the attempt
    a higher number, or its own number began   it withdraws: another contender holds the directory
    a claim with a lower token                 it withdraws
    only claims with higher tokens             it lists again: they are about to withdraw

Safety: at most one contender holds an attempt. Suppose two did: each listed the claims after writing its own and did
not see the other's. So each listed before the other wrote, and wrote before it listed: a cycle. (This requires a store
whose listings show earlier writes: S3 since 2020, GCS, Azure, HDFS, a local disk.) Liveness: of the remaining
contenders the one with the lowest token never withdraws, and sees all others withdraw. A contender that died before it
withdrew is polled ``PATIENCE`` times; then its number is abandoned and the next one claimed.

Claims are never removed by others. The holder of an attempt looks for a higher number *after* each of its writes; the
next contender reads the directory *after* its claim. So a write that its author relies on is seen by the next
contender, and one that its author gave up may be ignored: see ``checkpoint_store``.

Identity of processes, across restarts of a machine and across containers.

A process number is valid on one machine, since its last boot, within one container. Two machines may have the same host
name, and so may two containers.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
from pyarrow import fs

from fries_nb.errors import PlaceHeldError
from fries_nb.storage.durable import entries, read_file, write_file


class Machine(msgspec.Struct, frozen=True):
    """The scope in which process numbers are valid."""

    host: str  # host name, for people
    boot: str = ""  # id of the last boot; empty if the system has none
    container: str = ""  # PID namespace; empty if the system has none


class Process(msgspec.Struct, frozen=True):
    """A process of this machine; its start time distinguishes it from later ones with the same number."""

    pid: int  # process number
    born: str  # its start time as text; empty if unknown

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
        printed = subprocess.run(["ps", "-o", what, "-p", str(pid)], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return printed.stdout.strip()


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


CLAIMS = "claims"
ATTEMPTS = "attempts"
PATIENCE = 100
PAUSE_S = 0.05
_CLAIM = re.compile(r"(\d+)-([0-9a-f]+)\.json")
_HELD: set[str] = set()  # tokens of attempts that runs of this process hold
"""Claims of live runs of this process; a run that has ended holds none, though its process lives."""


class Claim(NamedTuple):
    """A claim on an attempt, with a unique token."""

    number: int
    token: str

    @property
    def file(self) -> str:
        """The name of the claim's file."""
        return f"{self.number:06d}-{self.token}.json"


class Holder(msgspec.Struct, frozen=True):
    """The content of a claim: the process that wrote it."""

    machine: Machine
    process: Process
    since: str  # time of the claim, in UTC
    released: bool = False  # whether its run has ended, so that the process need not be checked

    def __str__(self) -> str:
        return f"process {self.process.pid} on {self.machine.host}, since {self.since}"


class Step(StrEnum):
    """The next action of a contender."""

    WRITE = "write"
    LIST = "list"
    WAIT = "wait"
    WITHDRAW = "withdraw"


@dataclass(frozen=True)
class Listing:
    """The claims in a directory, and the numbers of the attempts that have begun."""

    claims: frozenset[Claim] = frozenset()
    begun: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ClaimVerdict:
    """The result of contending. ``rival`` holds the attempt or may get it; ``None`` if this contender won.

    ``silent``: the rival neither withdrew nor began within the patience.
    """

    rival: Claim | None = None
    silent: bool = False


def contend(own: Claim, patience: int = PATIENCE) -> Generator[Step, Listing, ClaimVerdict]:
    """The protocol as a generator without I/O: yields steps, receives listings, and returns the verdict."""
    yield Step.WRITE
    verdict = ClaimVerdict()
    for _ in range(patience):
        seen = yield Step.LIST
        rivals = {claim for claim in seen.claims if claim.number >= own.number and claim != own}
        if not rivals and not any(number >= own.number for number in seen.begun):
            return ClaimVerdict()
        highest = max((claim.number for claim in rivals), default=own.number)
        first = min((claim for claim in rivals if claim.number == highest), default=own)
        verdict = ClaimVerdict(first)
        if highest > own.number or first < own or any(number >= own.number for number in seen.begun):
            break
        yield Step.WAIT
    else:
        verdict = ClaimVerdict(verdict.rival, silent=True)
    yield Step.WITHDRAW
    return verdict


class Claims:
    """The claims in a directory, and that of this run."""

    def __init__(self, filesystem: fs.FileSystem, root: str, place: str) -> None:
        self._filesystem = filesystem
        self._root = root
        self._place = place  # the directory as the user specified it, for messages
        self._own: Claim | None = None

    @property
    def number(self) -> int:
        """The number of the attempt that is held; 0 for none."""
        return self._own.number if self._own is not None else 0

    def acquire(self) -> int:
        """Acquire the next attempt and return its number."""
        while True:
            seen = self.listed()
            number = max([0, *seen.begun, *(claim.number for claim in seen.claims)])
            for claim in seen.claims:
                holder = self._read(claim) if claim.number == number else None
                if _is_alive(claim, holder):
                    raise self._held_by(claim, holder)
            verdict = self._contend(number + 1)
            if verdict.rival is None:
                return self.number
            rival, holder = self._prevailing(verdict.rival)
            if rival is not None and (not verdict.silent or _is_alive(rival, holder)):
                raise self._held_by(rival, holder)

    def advance(self, number: int) -> None:
        """Acquire the attempt with this number, which is higher than the one held."""
        before = self._own
        verdict = self._contend(number)
        if verdict.rival is not None:
            raise self._held_by(verdict.rival, self._read(verdict.rival))
        if before is not None:
            _HELD.discard(before.token)

    def check(self) -> None:
        """Check for a newer attempt; called after each write."""
        seen = self.listed()
        newer = [claim for claim in seen.claims if claim.number > self.number]
        begun = [number for number in seen.begun if number > self.number]
        if newer or begun:
            newest = max(newer, default=Claim(max(begun, default=0), ""))
            raise self._held_by(newest, self._read(newest))
        if self._own is not None and self._own not in seen.claims:
            raise FileNotFoundError("it was deleted or moved while the run used it")

    def release(self) -> None:
        """Record that the run has ended, so that its process need not be checked."""
        if self._own is None:
            return
        own, self._own = self._own, None
        _HELD.discard(own.token)
        if own in self.listed().claims:  # unless a newer attempt has deleted the claim
            self._write(own, released=True)

    def forget_older(self) -> None:
        """Delete the claims on earlier attempts, whose numbers are not reused; raises an OSError."""
        for claim in self.listed().claims:
            if claim.number < self.number:
                self._filesystem.delete_file(self._path(claim))

    def listed(self) -> Listing:
        """All claims, and the attempts that have begun; raises an OSError if they cannot be listed."""
        found = [_CLAIM.fullmatch(name) for name in self._names(CLAIMS)]
        begun = [name.removesuffix(".json") for name in self._names(ATTEMPTS) if name.endswith(".json")]
        return Listing(
            frozenset(Claim(int(each[1]), each[2]) for each in found if each is not None),
            frozenset(int(name) for name in begun if name.isdigit()),
        )

    def _prevailing(self, rival: Claim) -> tuple[Claim | None, Holder | None]:
        """The claim, and its holder, that prevails after this run has withdrawn; ``None`` if all have withdrawn."""
        seen = self.listed()
        for claim in sorted(seen.claims, key=lambda claim: (-claim.number, claim.token)):
            if claim.number >= rival.number and (holder := self._read(claim)) is not None:
                return claim, holder
        return (rival if any(number >= rival.number for number in seen.begun) else None), None

    def _held_by(self, claim: Claim, holder: Holder | None) -> PlaceHeldError:
        by = f" by {holder}" if holder is not None else ""
        hint = (
            "that run is alive, so stop it or end its process first"
            if _is_alive(claim, holder)
            else "likely the run was resumed there"
        )
        return PlaceHeldError(f"{self._place} is held{by} (attempt {claim.number}); {hint}")

    def _contend(self, number: int) -> ClaimVerdict:
        own = Claim(number, uuid.uuid4().hex)
        steps = contend(own)
        step = next(steps)
        try:
            while True:
                if step is Step.WRITE:
                    _HELD.add(own.token)
                    self._write(own)
                elif step is Step.WAIT:
                    time.sleep(PAUSE_S)
                elif step is Step.WITHDRAW:
                    self._filesystem.delete_file(self._path(own))
                step = steps.send(self.listed() if step is Step.LIST else Listing())
        except StopIteration as ended:
            verdict: ClaimVerdict = ended.value
        except BaseException:
            _HELD.discard(own.token)
            raise
        if verdict.rival is None:
            self._own = own
        else:
            _HELD.discard(own.token)
        return verdict

    def _names(self, directory: str) -> list[str]:
        return [entry.base_name for entry in entries(self._filesystem, f"{self._root}/{directory}")]

    def _path(self, claim: Claim) -> str:
        return f"{self._root}/{CLAIMS}/{claim.file}"

    def _write(self, claim: Claim, released: bool = False) -> None:
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        holder = Holder(this_machine(), process(os.getpid()), since, released)
        write_file(self._filesystem, self._path(claim), msgspec.json.encode(holder))

    def _read(self, claim: Claim) -> Holder | None:
        """The holder of a claim; ``None`` if the claim was withdrawn meanwhile, or is damaged."""
        try:
            return msgspec.json.decode(read_file(self._filesystem, self._path(claim)), type=Holder)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
            return None


def _is_alive(claim: Claim, holder: Holder | None) -> bool:
    """Whether a run is known to be alive; this cannot be known across machines and containers."""
    if holder is None or holder.released or holder.machine != this_machine():
        return False
    if holder.process == process(os.getpid()):
        return claim.token in _HELD
    return holder.process.alive
