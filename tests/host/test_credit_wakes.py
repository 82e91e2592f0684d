"""Credit wakes a worker only if frames wait for it; no frame waits for credit that is in its worker's mailbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from worker_bench import Bench, checkpoint, data, version

from fries_nb.connectors.sink import OpenSinks
from fries_nb.dataflow.graph import Operator
from fries_nb.host.environment import Threads, run
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.protocol.frames import deliveries
from fries_nb.protocol.messages import ChannelId, Data, Fcm, WorkerId
from fries_nb.worker.events import Arrived, Directed, Granted
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.worker import Worker


class Blocked:
    """A worker whose only channel has no credit left, in a loop that does not run.

    Attributes:
        sent: the data frames that it has sent.
    """

    def __init__(self) -> None:
        self.worker: Worker = Bench(Operator("M", function=version(1)), window=1000, credit=1).worker
        self.sent: list[Data] = []
        self.hosted = HostedWorker(self.worker, Threads(), self._carry_out, OpenSinks({}))
        self.loop = HostLoop(Threads(), 0, "loop", [self.hosted], tickets=1)
        [edge] = self.worker.wiring.edges
        self.channel: ChannelId = edge.channels[0]
        self.add()
        self.hosted.flush()
        assert len(self.sent) == 1

    def _carry_out(self, instruction: Any) -> None:
        if isinstance(instruction, SendFrame):
            frames = [frame for _, frame in deliveries(instruction.channels, instruction.frame)]
            self.sent += [frame for frame in frames if isinstance(frame, Data)]

    def add(self) -> None:
        """Process a tuple, whose result is buffered."""
        self.worker.handle(Arrived(self.worker.wiring.incoming[0], data(1)))
        run(self.hosted.turn())

    def post_credit(self) -> None:
        """Return the credit of the first frame."""
        self.loop.post_credit(self.hosted, Granted(self.channel, self.sent[0].size))


def test_credit_wakes_a_worker_whose_frames_wait_and_no_other() -> None:
    """Between hundreds of workers most credit returns to channels on which nothing waits."""
    blocked = Blocked()
    blocked.post_credit()
    assert not blocked.hosted.awake
    blocked = Blocked()
    blocked.add()
    blocked.hosted.flush()
    assert blocked.hosted.is_blocked
    blocked.post_credit()
    assert blocked.hosted.awake
    blocked.hosted.process()
    assert len(blocked.sent) == 2


def test_credit_for_a_worker_whose_chain_has_changed_is_passed_on() -> None:
    """It was looked up before the change; no other event may come for a worker whose operators another one runs."""
    blocked, passed = Blocked(), []
    blocked.hosted.rerouted = lambda worker, event: not passed.append(event)
    blocked.post_credit()
    assert blocked.hosted.awake
    blocked.hosted.process()
    assert [event.channel for event in passed] == [blocked.channel]


def flush(blocked: Blocked) -> None:
    """The loop would wait, so it flushes."""
    blocked.hosted.flush()


def fcm(blocked: Blocked) -> None:
    """A fast control message: the marker follows the buffered tuple, which is framed."""
    blocked.hosted.post(Directed(WorkerId("M", 0), Fcm(checkpoint(1, scope="MZ"))))
    blocked.hosted.process()


def turn(blocked: Blocked) -> None:
    """A turn, in which the fast control message is found."""
    blocked.hosted.post(Directed(WorkerId("M", 0), Fcm(checkpoint(1, scope="MZ"))))
    run(blocked.hosted.turn())


STEPS = [flush, fcm, turn]


@pytest.mark.parametrize("step", STEPS)
def test_a_frame_that_begins_to_wait_finds_credit_that_came_before(step: Callable[[Blocked], None]) -> None:
    """The credit woke nothing, since no frame waited; then nothing else may come for this worker."""
    blocked = Blocked()
    blocked.add()
    blocked.worker.handle = posting_first(blocked)  # type: ignore[method-assign]
    if step is flush:
        blocked.post_credit()
    step(blocked)
    assert len(blocked.sent) == 2
    assert not blocked.hosted.is_blocked


def posting_first(blocked: Blocked) -> Callable[[Any], None]:
    """Events are processed; credit is posted during the first one, when no frame waits yet."""
    handle, posted = blocked.worker.handle, []

    def handled(event: Any) -> None:
        if isinstance(event, Directed) and not posted:
            posted.append(event)
            blocked.post_credit()
        handle(event)

    return handled


def test_a_worker_that_does_not_look_again_leaves_the_frame_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the look at the mailbox after the frames began to wait is what the law depends on."""
    monkeypatch.setattr(HostedWorker, "_settle", HostedWorker._carry_out_all)
    blocked = Blocked()
    blocked.add()
    blocked.post_credit()
    flush(blocked)
    assert len(blocked.sent) == 1
