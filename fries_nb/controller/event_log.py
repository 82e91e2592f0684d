"""What has happened in a run, step by step and in words: ``run.story()`` and ``change.story()``.

Each controller keeps a log of its last events and instructions, as sentences; a story is made of the logs of a run.

What is kept are words and not values, since these hold the code of functions. Ticks and reports of measurements are
left out: they come four times a second, and say nothing that a change waits for.

>>> from fries_nb.protocol.messages import Abort, Prepared, WorkerId
>>> log = EventLog()
>>> log.note(5_000_000, events.HostLost(1, "its process died"))
>>> log.note(7_000_000, events.Tell(WorkerId("FM", 0), Abort("u1")))
>>> log.note(9_000_000, events.Answered(Prepared("u1", WorkerId("FM", 0), "no model")))
>>> log.note(9_000_000, events.Tick())
>>> for noted in log.noted():
...     print(noted.at_ns // 1_000_000, noted.change or "-", noted.words)
5 - host 1 is gone: its process died
7 u1 FM[0] is told to forget change u1
9 u1 FM[0] could not prepare change u1: no model
>>> Timeline(tuple(log.noted())).about("u1")
     +0 ms  FM[0] is told to forget change u1
     +2 ms  FM[0] could not prepare change u1: no model
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from operator import attrgetter
from typing import NamedTuple

from fries_nb.controller import events
from fries_nb.protocol.messages import (
    Abort,
    Answer,
    Commit,
    Control,
    Done,
    Failed,
    Fcm,
    Marker,
    Prepare,
    Prepared,
    Reconfigure,
    Rehearse,
    Rehearsed,
    Report,
    Saved,
    Unguard,
)
from fries_nb.words import duration

MOST = 1_000
"""Number of entries that are kept: so many of changes, and so many of all else."""


class Noted(NamedTuple):
    """One thing that has happened.

    Attributes:
        at_ns: when, by the controller's clock in nanoseconds.
        change: id of the change that it is about; empty if of none.
        words: what, in words.
    """

    at_ns: int
    change: str
    words: str


@dataclass(frozen=True, repr=False)
class Timeline:
    """What has happened, in order; shown as text, a line for each entry.

    Attributes:
        entries: the entries: of a run the last 1,000 of changes and of all else, without those that only measure.
        began_s: the time at which the controller's clock was 0, in seconds since the Unix epoch.
        since_ns: the time from which lines count, by the controller's clock; ``None`` for the time of day.

    >>> Timeline(())
    nothing of it is among the last 1,000 entries, of changes or of all else
    """

    entries: tuple[Noted, ...]
    began_s: float = 0.0
    since_ns: int | None = None

    def about(self, change: str) -> Timeline:
        """What is about this change, with the time since its first entry."""
        entries = tuple(entry for entry in self.entries if entry.change == change)
        return Timeline(entries, self.began_s, entries[0].at_ns if entries else None)

    def __str__(self) -> str:
        if not self.entries:
            return f"nothing of it is among the last {MOST:,} entries, of changes or of all else"
        return "\n".join(f"{self._at(entry.at_ns):>10}  {entry.words}" for entry in self.entries)

    __repr__ = __str__

    def _at(self, at_ns: int) -> str:
        if self.since_ns is not None:
            return f"+{duration((at_ns - self.since_ns) / 1e9)}"
        return f"{datetime.fromtimestamp(self.began_s + at_ns / 1e9).astimezone():%H:%M:%S.%f}"[:-3]


class EventLog:
    """The last events and instructions, in order."""

    def __init__(self) -> None:
        # Apart, since each commit has an entry of each worker, so that within a minute no change would be left.
        self._of_changes, self._others = (deque[Noted](maxlen=MOST) for _ in range(2))
        self._changes: dict[int, str] = {}  # marker to the change that it carries

    def noted(self) -> tuple[Noted, ...]:
        """What is kept; may be called from any thread (a deque is copied in one step of the interpreter)."""
        return tuple(merge(self._of_changes.copy(), self._others.copy(), key=attrgetter("at_ns")))

    def note(self, at_ns: int, what: events.Event | events.Instruction) -> None:
        """Note an event that the controller was given, or an instruction that it has given."""
        match what:
            case events.Tick() | events.Answered(answer=Report()):
                return
            case events.Answered():
                change, words = self._answer(what.answer)
            case events.Tell():
                change, words = self._control(what.control)
                words = f"{what.worker} {words}"
            case events.ChangeRequested() | events.Resolved() | events.Journal() | events.Journaled():
                change, words = _of_change(what)
            case events.ChangeCancelled() | events.GuardFired() | events.GuardEnded():
                change, words = _of_guard(what)
            case _:
                change, words = "", _of_run(what)
        (self._of_changes if change else self._others).append(Noted(at_ns, change, words))

    def _control(self, control: Control) -> tuple[str, str]:
        """What a worker is told, as the end of a sentence that begins with its name."""
        match control:
            case Prepare():
                return control.change, f"is told to prepare change {control.change}"
            case Rehearse():
                return control.change, f"is told to rehearse change {control.change} with its host"
            case Abort():
                return control.change, f"is told to forget change {control.change}"
            case Unguard():
                return control.change, f"is told that the guard of change {control.change} has ended"
            case Fcm():
                change = self._carried(control.marker)
                return change, f"gets the fast control message of {_marker(control.marker)}"
        return "", f"is told: {_name(control)}"

    def _carried(self, marker: Marker) -> str:
        """The change that a marker carries; its acknowledgements are about that change as well."""
        change = marker.action.change if isinstance(marker.action, Reconfigure) else ""
        self._changes[marker.id] = change
        if len(self._changes) > MOST:  # markers are issued in order, so the first one is the oldest
            del self._changes[next(iter(self._changes))]
        return change

    def _answer(self, answer: Answer) -> tuple[str, str]:
        """What a worker answers."""
        match answer:
            case Prepared():
                failed = f"could not prepare change {answer.change}: {answer.error}"
                return answer.change, f"{answer.worker} {failed if answer.error else f'has prepared {answer.change}'}"
            case Rehearsed():
                found = answer.error or answer.doubt or f"{answer.tuples} tuples went through"
                return answer.change, f"change {answer.change} was rehearsed beside {answer.worker}: {found}"
            case Done():
                change = self._changes.get(answer.marker, "")
                has = "has ended before" if answer.ended else "has switched at" if answer.switched else "has passed on"
                return change, f"{answer.worker} {has} marker {answer.marker}"
            case Failed():
                return "", f"{answer.worker} has failed: {answer.error}"
            case Saved():
                kept = f"could not be kept: {answer.error}" if answer.error else "is kept"
                return "", f"the state of {answer.worker} for checkpoint {answer.epoch} {kept}"
        worker = getattr(answer, "worker", None)
        return "", f"{f'{worker} answers' if worker else 'answer'}: {_name(answer)}"


def _of_change(
    what: events.ChangeRequested | events.Resolved | events.Journal | events.Journaled
) -> tuple[str, str]:
    match what:
        case events.ChangeRequested():
            targets, undoes = ", ".join(sorted(what.plan.targets)), f", which undoes {what.undoes}" * bool(what.undoes)
            kind, only = ("trial", ", which is only rehearsed") if what.is_trial else ("change", undoes)
            return what.change, f"{kind} {what.change} of {targets} is requested by {what.plan.scheduler}{only}"
        case events.Journal():
            return what.decided.change, f"change {what.decided.change} is decided; the decision is written"
        case events.Journaled():
            return what.change, f"the decision of change {what.change} is on disk"
        case events.Resolved():
            outcome = what.outcome
            end = f"{outcome.outcome}: {outcome.error}" if outcome.error else outcome.outcome
            return outcome.change, f"change {outcome.change} is {end}"


def _of_guard(what: events.ChangeCancelled | events.GuardFired | events.GuardEnded) -> tuple[str, str]:
    match what:
        case events.ChangeCancelled():
            return what.change, f"change {what.change} is cancelled by the user"
        case events.GuardFired():
            return what.change, f"the guard of change {what.change} rolls it back: {what.error}"
        case events.GuardEnded():
            return what.change, f"the guard of change {what.change} has ended: {what.reason}"


def _of_run(what: events.Event | events.Instruction) -> str:
    match what:
        case events.HostJoined():
            return f"host {what.host} says hello, of incarnation {what.incarnation}"
        case events.HostLost():
            return f"host {what.host} is gone: {what.reason}"
        case events.HostLeft():
            return f"host {what.host} has left"
        case events.Admit():
            return f"the dataflow starts on {len(what.peers)} hosts"
        case events.Recover():
            return f"{what.hosts} hosts are started again: {what.reason}"
        case events.CommitFiles():
            return f"the files of commit {what.epoch} become output"
        case events.KeepCheckpoint():
            return f"the record of checkpoint {what.record.epoch} is written"
        case events.CheckpointKept():
            return f"checkpoint {what.epoch} " + (f"was not kept: {what.reason}" if what.reason else "is kept")
        case events.RequeueRequested():
            return f"{len(what.rows)} rows of dead letters are to go back to {what.operator} ({what.requeue})"
        case events.RequeueEnded():
            return f"{what.requeue} " + (f"has failed: {what.error}" if what.error else "has given its rows back")
        case events.CommitsHeld():
            return f"nothing is committed: {what.reason}" if what.reason else "output is committed again"
        case events.OperatorPaused():
            return f"{what.operator} " + ("is paused on a tuple" if what.paused else "goes on")
        case events.RunEnded():
            return f"the run has {what.state}" + (f": {what.error}" if what.error else "")
    reason = getattr(what, "reason", "")
    return f"{_name(what)}{f': {reason}' if reason else ''}"


def _marker(marker: Marker) -> str:
    """A marker, with what it does and where."""
    action = marker.action
    does = f"of change {action.change}" if isinstance(action, Reconfigure) else _name(action)
    if isinstance(action, Commit):
        does = f"of {'checkpoint' if action.checkpoint else 'commit'} {action.epoch}"
    return f"marker {marker.id} {does} for {', '.join(sorted(marker.scope))}"


def _name(what: object) -> str:
    """The name of a message's type, in words."""
    name = type(what).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
