"""The calls of coroutine functions in a seeded run: they go on, and end, in a drawn order.

A function waits by ``await Pause()``, as often as it likes, and for ever by ``await Silence()``: that ends only by a
timeout.

>>> async def doubled(row):
...     await Pause()
...     return row | {"n": 2 * row["n"]}
>>> SeededCalls(None, WorkerId("FM", 0), random.Random(1)).wait(lambda: doubled({"n": 4}), None)
{'n': 8}
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

from fries_nb.operators.awaited_calls import Call
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.network import Draws


class Pause:
    """Waits until the call is drawn again."""

    def __await__(self) -> Generator[Any, None, None]:
        yield self


class Silence(Pause):
    """Waits for an answer that does not come."""

    def __await__(self) -> Generator[Any, None, None]:
        while True:
            yield self


class SeededCalls:
    """The calls of one worker; see ``CallLoop``.

    Attributes:
        begun: number of calls so far.
        cancelled: number of those that were given up.
        most: the most that have been in flight at a time.
    """

    def __init__(self, draws: Draws | None, worker: WorkerId, chance: random.Random) -> None:
        self.wake: Callable[[], None] = lambda: None
        self.begun = self.cancelled = self.most = 0
        self._draws = draws  # the possible events, ("call", worker) among them while it has any; ``None`` for a trial
        self._worker = worker
        self._chance = chance  # draws which call goes on
        self._running: dict[Call, Any] = {}  # each with its coroutine, once it has begun

    def begin(self, call: Call) -> None:
        """Let a call go on in a later event; see ``CallLoop``."""
        self._running[call] = None
        self.begun += 1
        self.most = max(self.most, len(self._running))
        self._look()

    def cancel(self, call: Call) -> None:
        """Give up a call; see ``CallLoop``."""
        if call in self._running:
            self.cancelled += 1
            if (coroutine := self._running.pop(call)) is not None:
                coroutine.close()
        self._look()

    def wait(self, make: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a coroutine to its end, without any other event; see ``CallLoop``."""
        coroutine = make()
        try:
            while True:
                if isinstance(coroutine.send(None), Silence):
                    raise TimeoutError
        except StopIteration as end:
            return end.value

    def close(self) -> None:
        """Cancel all calls; see ``CallLoop``."""
        for call in list(self._running):
            self.cancel(call)

    def go_on(self) -> None:
        """Let a call go on, drawn from those in flight."""
        call = self._chance.choice(list(self._running))
        coroutine = self._running[call] = self._running[call] or call.coroutine()
        try:
            waits = coroutine.send(None)
        except StopIteration as end:
            self._end(call)
            call.succeed(end.value)
        except Exception as error:  # noqa: BLE001 (the user's code; it is the call's failure)
            self._end(call)
            call.fail(error)
        else:
            if not isinstance(waits, Silence) or call.timeout_s is None:
                return
            self.cancel(call)
            call.time_out()
        self.wake()

    def _end(self, call: Call) -> None:
        del self._running[call]
        self._look()

    def _look(self) -> None:
        if self._draws is not None:
            (self._draws.add if self._running else self._draws.discard)(("call", self._worker))
