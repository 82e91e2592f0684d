"""Coroutines on real Spark: a service of 50 ms behind an asyncio server in the test's process, called by one worker."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from run_setting import until

import fries_nb as fn
from fries_nb.run import Run

LATENCY_S = 0.05
SILENT = 37
"""The service never answers for these values, and multiples of them."""


class Service:
    """Answers each line of JSON on a connection with its double, in the order in which they become ready."""

    def __init__(self) -> None:
        self.port, self.most, self._open = 0, 0, 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        self._open += 1
        self.most = max(self.most, self._open)
        await asyncio.sleep(3_600 if asked["value"] % SILENT == 1 and asked["quiet"] else LATENCY_S)
        self._open -= 1
        writer.write(json.dumps({"double": 2 * asked["value"]}).encode() + b"\n")
        await writer.drain()
        writer.close()

    def close(self) -> None:
        """End its thread, with what it has not answered."""

        def end() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    """The service."""
    made = Service()
    yield made
    made.close()


class Ask:
    """Asks the service about a row; what is opened belongs to the event loop in which it is used."""

    def __init__(self, port: int, version: int = 1, quiet: bool = False) -> None:
        self.port, self.version, self.quiet = port, version, quiet

    async def open(self) -> None:
        """Remember the loop of the calls."""
        self.loop = asyncio.get_running_loop()

    async def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row, with the answer, and how many there were of its key."""
        assert self.loop is asyncio.get_running_loop(), "it was opened in another loop"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(json.dumps({"value": row["value"], "quiet": self.quiet}).encode() + b"\n")
        answer = json.loads(await reader.readline())
        writer.close()
        state["n"] = state.get("n", 0) + 1
        return row | answer | {"n": state["n"], "version": self.version}


def asking(function: Any, count: int, **options: Any) -> fn.Dataflow:
    """Numbers, of 500 keys, and the answers to them."""
    flow = fn.Dataflow("asking")
    numbers = flow.source("numbers", fn.rate(None, count=count))
    keyed = numbers.map("K", lambda row: row | {"k": row["value"] % 500}, workers=1)
    keyed.map("ASK", function, key="k", workers=1, **options).sink("out", fn.memory())
    return flow


def test_calls_overlap_through_a_change_and_nothing_is_lost(
    started: Callable[..., Run], service: Service
) -> None:
    """A change while hundreds of rows wait: each row is wholly old or new, counted once for its key, and in order."""
    flow = asking(Ask(service.port), 3_000, concurrency=100)
    run = started(flow, hosts=1, audit=True)
    until(lambda: service.most > 20, run)
    change = run.reconfigure({"ASK": Ask(service.port, 2)}).result(timeout=30)
    assert change.outcome == "done"
    run.wait(timeout=60)
    rows = [row.asDict() for row in run.output().collect()]
    assert sorted(row["value"] for row in rows) == list(range(3_000))
    assert all(row["double"] == 2 * row["value"] and row["n"] == row["value"] // 500 + 1 for row in rows)
    assert {row["version"] for row in rows} == {1, 2}
    first_new = min(row["value"] for row in rows if row["version"] == 2)
    assert all((row["version"] == 2) is (row["value"] >= first_new) for row in rows)
    assert run.audit().serializable
    assert not [one.name for one in threading.enumerate() if one.name.startswith("fries-calls")]


def test_a_service_that_never_answers(started: Callable[..., Run], service: Service) -> None:
    """A timeout fails the run in a sentence, or makes a dead letter; without one the run still stops."""
    letters = asking(Ask(service.port, quiet=True), 100, timeout=0.5, ordered=False, on_error=fn.memory())
    run = started(letters, hosts=1)
    run.wait(timeout=60)
    assert run.output().count() == 97
    [*failed] = run.dead_letters("ASK").collect()
    assert len(failed) == 3
    assert all("gave no answer within 0.5 s, which is its timeout=" in row["error"] for row in failed)

    run = started(asking(Ask(service.port, quiet=True), 100, timeout=0.5), hosts=1)
    assert run.wait(timeout=60) == "failed"
    assert "ASK failed on a tuple: its call gave no answer within 0.5 s, which is its timeout=; expected" in run.error

    run = started(asking(Ask(service.port, quiet=True), 100), hosts=1)
    until(lambda: service.most > 3, run)
    run.cancel()
    assert run.state == "stopped"
