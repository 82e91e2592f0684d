"""The driver's ear: whose words reach the controller while the run starts again."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_setting import Watch, counting

from fries_nb.controller import events
from fries_nb.driver import driver_core as driving
from fries_nb.driver.committer import Committer
from fries_nb.driver.driver import Driver
from fries_nb.errors import SessionError
from fries_nb.host.region_spec import Options, RegionSpec
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Restoration
from fries_nb.protocol.messages import Failed, WorkerId
from fries_nb.transport.control import Gone, Heard
from fries_nb.transport.envelopes import Goodbye, Hello, Line, Printed, ProcessUsage, Records, Said
from fries_nb.transport.sockets import make_keys

WORKER = WorkerId("A", 0)


class Script:
    """Server, controller, place and stage in one: hears what is written, the last of it when the run has ended."""

    runs = True

    def __init__(self, polls: list[list[Heard]]) -> None:
        self.incarnation = 1
        self.state = "running"
        self.is_own = False
        self.taken: list[events.Event] = []
        self.restarted: list[int] = []
        self._polls = polls

    def poll(self, timeout_ms: int) -> list[Heard]:
        """The next words."""
        return self._polls.pop(0)

    def handle(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        """Start again at the first answer; end when the last words are left."""
        if isinstance(event, events.Tick):
            return [] if self._polls[1:] else [events.RunEnded("stopped", "")]
        self.taken.append(event)
        first = isinstance(event, events.Answered) and not self.restarted
        return [events.Recover(2, Restoration(None), "host 1 was lost", 2)] if first else []

    def restart(self, region: RegionSpec) -> None:
        """Other hosts."""
        self.restarted.append(region.incarnation)

    def is_running(self) -> bool:
        """Whether Spark has started what was restarted."""
        return self.runs

    def ignored(self, *what: object, **more: object) -> None:
        """Nothing to see in this test."""

    send = close = release = begin = ignored


class Deciding(Script):
    """Keeps a checkpoint, then decides, commits and decides again; notes what it hears and what is carried out."""

    def __init__(self, polls: list[list[Heard]]) -> None:
        super().__init__(polls)
        self.notes: list[str] = []

    def handle(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        """What follows from each event."""
        self.notes += [] if isinstance(event, events.Tick) else [type(event).__name__]
        match event:
            case events.HostJoined():
                return [events.KeepCheckpoint(Checkpoint("r1", 1, 1, {}))]
            case events.CheckpointKept():
                decision = events.Journal(CommittedChange("u1", "fries", (), {}, 1))
                return [decision, events.CommitFiles(2, {}), decision]
            case events.StopRequested():
                return [events.RunEnded("stopped")]
        return []

    def keep(self, record: Checkpoint) -> None:
        """The record is on disk."""
        self.notes.append("keep")

    def decide(self, decided: CommittedChange) -> None:
        """The decision is on disk."""
        self.notes.append("decide")

    def tidy(self) -> None:
        """Old checkpoints go."""
        self.notes.append("tidy")


def driven(
    polls: list[list[Heard]], by: type[Script] = Script, watch: Watch | None = None
) -> tuple[Any, Driver, Watch]:
    """Let a driver hear these words, to its end."""
    graph = counting(10)
    options = Options(2, 1 << 20, True, True, None, 10.0, 0)
    heads = {name: name for name in graph.by_name}
    keys = make_keys().hosts
    region = RegionSpec("r1", 1, graph, {}, {}, {}, "tcp://here:1", keys, "127.0.0.1", options, heads)
    script, watch = by(polls), watch or Watch()
    parts: Any = script
    driver = Driver(parts, parts, region, parts, watch, parts)
    driver.run()
    return script, driver, watch


def hello(peer: bytes, host: int, incarnation: int) -> Heard:
    """A host's first word."""
    return Heard(peer, host, 0, Hello(f"tcp://{peer.decode()}:1", 7, "here", incarnation))


def joined(peer: str, host: int, incarnation: int) -> events.HostJoined:
    """What the controller hears of it."""
    return events.HostJoined(host, f"tcp://{peer}:1", incarnation)


def test_an_attempt_that_is_over_is_heard_no_more() -> None:
    """Neither the rest of the very message that ended it, nor what came with it, nor that its hosts go."""
    first, late, new = (Failed(WORKER, words) for words in ("first", "late", "new"))
    script, driver, watch = driven(
        [
            [hello(b"a0", 0, 1), hello(b"a1", 1, 1)],
            [
                Heard(b"a0", 0, 1, Said((first, late))),
                Heard(b"a1", 1, 1, Said((late,))),
                Heard(b"a1", 1, 1, Records(WORKER, (b"record",))),
                Heard(b"a1", 1, 1, Printed((Line("A[0]", "late"),))),
                Heard(b"a1", 1, 1, ProcessUsage(9.0, 9)),
                Heard(b"a0", 0, 2, Gone()),
            ],
            [Heard(b"a1", 1, 0, Goodbye("the run starts again"))],
            [hello(b"b0", 0, 2), hello(b"b1", 1, 2)],
            [Heard(b"a1", 1, 2, Gone()), Heard(b"b1", 1, 2, ProcessUsage(0.5, 7)), Heard(b"b0", 0, 2, Said((new,)))],
            [Heard(b"b0", 0, 2, Goodbye()), Heard(b"b1", 1, 2, Goodbye())],
        ]
    )
    assert watch.heard_of("over") == [("stopped", "", "")]
    assert script.restarted == [2]
    assert script.taken == [
        joined("a0", 0, 1), joined("a1", 1, 1), events.Answered(first),
        joined("b0", 0, 2), joined("b1", 1, 2), events.Answered(new),
        events.HostLeft(0), events.HostLeft(1),
    ]  # fmt: skip
    assert list(driver.records) == []
    assert watch.heard_of("printed") == []
    assert watch.heard_of("used") == [(1, ProcessUsage(0.5, 7))]


@pytest.mark.parametrize("runs", [True, False])
def test_hosts_that_are_started_again_may_take_their_time(runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once Spark runs their tasks, however long they take to open; that Spark does not start them is a loss."""
    monkeypatch.setattr(driving, "RESTART_NS", -1)
    monkeypatch.setattr(Script, "runs", runs)
    polls = [
        [hello(b"a0", 0, 1), hello(b"a1", 1, 1)], [Heard(b"a0", 0, 1, Said((Failed(WORKER, "first"),)))], [], [],
    ]  # fmt: skip
    script, _, _ = driven(polls)
    lost = [event for event in script.taken if isinstance(event, events.HostLost)]
    assert bool(lost) is not runs
    assert all("too few slots" in event.reason for event in lost)


def test_what_is_carried_out_is_heard_behind_it_and_nothing_is_decided_behind_output_that_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller is not re-entered; old checkpoints go when nothing else waits."""

    def full(committer: Committer, epoch: int, files: dict[str, tuple[str, ...]]) -> list[events.Event]:
        committer.failure = "no space left on device"
        return [events.StopRequested()]

    monkeypatch.setattr(Committer, "commit", full)
    script, _, watch = driven([[hello(b"a0", 0, 1)], [Heard(b"a0", 0, 1, Goodbye())]], Deciding)
    assert script.notes == [
        "HostJoined", "keep", "CheckpointKept", "decide", "Journaled", "StopRequested", "tidy", "HostLeft",
    ]  # fmt: skip
    assert watch.heard_of("over") == [("failed", "no space left on device", "")]


def test_a_run_ends_although_spark_has_gone() -> None:
    """Its tasks cannot be cancelled; the listener learns nevertheless that all is closed, and the error is not lost."""

    class Unreleased(Script):
        """A stage whose Spark was stopped."""

        def release(self, grace_s: float | None = None) -> None:
            """As a stopped session does it."""
            raise SessionError("Spark was stopped")

    watch = Watch()
    with pytest.raises(SessionError, match="Spark was stopped"):
        driven([[]], Unreleased, watch)
    assert watch.said[-1] == ("closed", None)
