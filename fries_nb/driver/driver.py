"""The driver of a region on Spark: a background thread that polls the control server and runs the core of a driver.

Other threads only ``post`` events, or read.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from fries_nb.controller import events
from fries_nb.controller.controller import Controller
from fries_nb.controller.event_log import Noted
from fries_nb.controller.states import RunState
from fries_nb.dataflow.graph import Graph
from fries_nb.driver.committer import Committer
from fries_nb.driver.driver_core import (
    Closed,
    DriverCore,
    HostJob,
    Request,
    Told,
)
from fries_nb.driver.tracing import Trace
from fries_nb.errors import CheckpointError, SessionError, exception_text
from fries_nb.host.region_spec import RegionSpec
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.transport.control import ControlServer
from fries_nb.transport.envelopes import ControllerMessage, Line, Packed, Printed

POLL_MS = 50
"""Maximum duration of one poll of the control server in milliseconds."""
FAREWELL_S = 10.0
"""Seconds that dismissed hosts have to send their final messages before their tasks are cancelled."""
RELEASE_S = 4.0
"""Seconds that the tasks of hosts have to end before and after they are cancelled."""


class SparkJob(HostJob, Protocol):
    """The Spark job of the hosts; see ``stage``."""

    def release(self, grace_s: float) -> None:
        """Wait for the tasks to end for ``grace_s`` seconds, then cancel them."""


class Driver(threading.Thread):
    """Runs a controller until its run has ended and its hosts are gone; the environment of its core.

    Args:
        controller: the controller, called from this thread only.
        server: the control server, which this thread polls and closes.
        region: the specification of the region.
        place: the store of decisions and checkpoints.
        tell: receives what the driver tells its run; called in the driver's thread.
        stage: restarts hosts, and finally waits for their end.

    Attributes:
        core: the core, called from this thread only.
        controller: the controller.
        hosts: the hello of each admitted host.
    """

    now_ns = staticmethod(time.monotonic_ns)

    def __init__(
        self,
        controller: Controller,
        server: ControlServer,
        region: RegionSpec,
        place: CheckpointStore,
        tell: Callable[[Told], None],
        stage: SparkJob,
    ) -> None:
        super().__init__(name="fries-driver", daemon=True)
        self._server = server
        self._tell = tell
        self._stage = stage
        self._committer = Committer(place, region.sinks, lambda words: tell(Printed((Line("", words),))))
        self.core = DriverCore(self, controller, region, self._committer, tell, stage, Trace())
        self.controller = controller
        self.hosts = self.core.hosts
        self._events: deque[events.Event | Request] = deque()
        self._closing = threading.Lock()
        self._closed = False

    # ---- called by any thread

    def post(self, event: events.Event | Request) -> None:
        """Queue an event; thread-safe. Events after the driver has closed are discarded."""
        with self._closing:
            if not self._closed:
                self._events.append(event)
                self._server.wake()

    @property
    def is_closed(self) -> bool:
        """Whether it processes nothing more."""
        return self._closed

    @property
    def records(self) -> Iterable[Packed]:
        """The trace so far, packed; without operations that a recovery has undone."""
        return self.core.trace.records()

    @property
    def noted(self) -> tuple[Noted, ...]:
        """The last events and instructions of the controller, in words."""
        return self.core.queue.log.noted()

    @property
    def shapes(self) -> Sequence[tuple[str, Graph]]:
        """The first dataflow, and each that a change of the shape, which comes first, has made of it."""
        return self.core.shapes

    @property
    def workers(self) -> dict[str, int]:
        """Operator to the number of its workers in the trace."""
        return self.core.topology.traced

    @property
    def has_finished(self) -> bool:
        """Whether all workers have ended, so that the trace is complete."""
        return self.controller.state is RunState.FINISHED

    # ---- the environment of the core

    def send(self, peer: bytes, message: ControllerMessage) -> None:
        """Send a message to a host; see ``DriverEnvironment``."""
        self._server.send(peer, message)

    def begin(self, incarnation: int) -> None:
        """Begin an incarnation; see ``DriverEnvironment``."""
        self._server.incarnation = incarnation

    def apart(self, call: Callable[[], list[events.Event]]) -> list[events.Event]:
        """Write to disk, in this thread: see ``DriverEnvironment``."""
        return call()

    # ---- the thread

    def run(self) -> None:
        """The thread's body: processes events until the region has ended."""
        try:
            while self.core.over is None:
                self._poll_once()
            self._await_goodbyes()
        except (CheckpointError, SessionError) as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - an internal error must fail the run, not leave it hanging
            details = "".join(traceback.format_exception(error))
            self._fail(f"the controller failed: {exception_text(error)}", details)
        finally:
            self.core.dismiss("the driver ends")
            with self._closing:
                self._closed = True
            with contextlib.ExitStack() as ending:  # whatever fails, the run is told in the end
                ending.callback(self._tell, Closed())
                ending.callback(self._committer.end)
                ending.callback(self._stage.release, RELEASE_S)
                self._server.close(linger_ms=500)

    def _fail(self, error: str, details: str = "") -> None:
        """End the run for a failure of the driver; the controller says how far each open change is, if it still can."""
        with contextlib.suppress(Exception):  # it may be what has failed, and that is told
            self.core.close_changes(error, details)
        self.core.fail(error, details)

    def _poll_once(self) -> None:
        """Poll the control server once, and process all events."""
        for heard in self._server.poll(POLL_MS):
            self.core.hear(heard)
        self.core.step()
        while self._events:
            self.core.take(self._events.popleft())
        self.core.tidy()

    def _await_goodbyes(self) -> None:
        """Receive the final messages of the hosts, which include their traces and what they leave behind."""
        deadline = time.monotonic() + FAREWELL_S
        while self.core.awaits_goodbyes and time.monotonic() < deadline:
            self.core.probe()
            for heard in self._server.poll(POLL_MS):
                self.core.hear_last(heard)
                deadline = time.monotonic() + FAREWELL_S  # a busy host takes long for all that it has
