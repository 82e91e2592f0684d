"""The event loop of an operator that awaits: a thread of its own for each worker, in which its calls run.

It is started for the first call, so that a worker without rows has no thread. What a coroutine opens, such as the
session of an HTTP client, belongs to this loop, also what is opened in a trial of a new function.

>>> async def double(row):
...     return row | {"n": 2 * row["n"]}
>>> loop = AsyncioCalls("fries-calls")
>>> loop.wait(lambda: double({"n": 4}), timeout_s=1.0)
{'n': 8}
>>> loop.close()
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from fries_nb.errors import OperatorError
from fries_nb.operators.awaited_calls import Call

CLOSING_S = 1.0
"""Most seconds for which cancelled calls may still run when the loop is closed."""


class AsyncioCalls:
    """Runs the calls of one worker in an event loop of asyncio; see ``CallLoop``.

    Args:
        name: name of its thread.

    Attributes:
        wake: called in its thread when a call has ended.
    """

    def __init__(self, name: str) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._name = name
        self._lock = threading.Lock()  # workers and the thread of trials may both need the loop first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._tasks: dict[Call, asyncio.Task[None]] = {}

    def begin(self, call: Call) -> None:
        """Run a call; see ``CallLoop``."""
        self._started().call_soon_threadsafe(self._begin, call)

    def cancel(self, call: Call) -> None:
        """Give up a call; see ``CallLoop``."""
        self._started().call_soon_threadsafe(self._cancel, call)

    def wait(self, make: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a coroutine to its end; see ``CallLoop``."""

        async def made() -> Any:
            async with asyncio.timeout(timeout_s):
                return await make()

        return asyncio.run_coroutine_threadsafe(made(), self._started()).result()

    def close(self) -> None:
        """Cancel all calls, and end the thread; see ``CallLoop``."""
        with self._lock:
            self._closed, loop, thread = True, self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), loop)
            thread.join(2 * CLOSING_S)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise OperatorError(f"{self._name} is closed, since its run has ended; expected no further call")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=[self._loop], name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    # ---- in its thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _begin(self, call: Call) -> None:
        assert self._loop is not None, "it runs in its thread"
        self._tasks[call] = task = self._loop.create_task(self._made(call))
        task.add_done_callback(lambda _: self._tasks.pop(call, None))

    def _cancel(self, call: Call) -> None:
        if (task := self._tasks.get(call)) is not None:
            task.cancel()

    async def _made(self, call: Call) -> None:
        limit = asyncio.timeout(call.timeout_s)
        try:
            async with limit:
                made = await call.coroutine()
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 (the user's: it is the result)
            if limit.expired():
                call.time_out()
            elif isinstance(error, asyncio.CancelledError):
                call.fail(OperatorError("its call was cancelled"))
            else:
                call.fail(error)
        else:
            call.succeed(made)
        self.wake()

    async def _end(self) -> None:
        assert self._loop is not None, "it runs in its thread"
        me = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not me]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CLOSING_S)
        self._loop.stop()
