"""Live sources on real Spark, under a hot replacement and a killed host: each row once, by one configuration wholly."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from file_setting import write_rows
from pyspark.sql import SparkSession
from recovery_setting import KEYS, Count, Mark, check_counted, trial

import fries_nb as fn
from fries_nb.dataflow.graph import Graph
from fries_nb.workloads.connector_examples import FeedSource, SqliteSink


class Peer(socketserver.ThreadingTCPServer):
    """Row n is ``row(n)``; rows up to ``published`` have happened, and ``count`` are all.

    Attributes:
        asked: the numbers from which rows were asked for, in order.
        published: number of rows that have happened.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, row: Callable[[int], dict[str, Any]], count: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.row, self.count, self.published = row, count, 0
        self.asked: list[int] = []
        self.changed = threading.Condition()

    def publish(self, number: int) -> None:
        """Let rows happen, up to this number."""
        with self.changed:
            self.published = min(number, self.count)
            self.changed.notify_all()

    def published_after(self, number: int) -> int:
        """Wait until more rows than this have happened; returns how many."""
        with self.changed:
            self.changed.wait_for(lambda: self.published > number)
            return self.published

    @property
    def feed(self) -> Callable[[int], Generator[dict[str, Any] | None]]:
        """The generator for a ``FeedSource``."""
        address = self.server_address

        def rows(since: int) -> Generator[dict[str, Any] | None]:
            with socket.create_connection(address) as peer:
                peer.sendall(f"{since}\n".encode())
                peer.setblocking(False)
                rest = b""
                while True:
                    try:
                        data = peer.recv(65536)
                    except BlockingIOError:
                        yield None
                        continue
                    if not data:
                        return
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        yield json.loads(line)

        return rows


class _Connection(socketserver.StreamRequestHandler):
    """Sends rows from the number that the other side has asked for."""

    server: Peer

    def handle(self) -> None:
        peer, number = self.server, int(self.rfile.readline())
        peer.asked.append(number)
        with contextlib.suppress(ConnectionError):
            while number < peer.count:
                last = peer.published_after(number)
                self.wfile.write(b"".join(json.dumps(peer.row(n)).encode() + b"\n" for n in range(number, last)))
                number = last


@contextmanager
def serving(row: Callable[[int], dict[str, Any]], count: int) -> Iterator[Peer]:
    """A peer that serves in threads of its own."""
    with Peer(row, count) as peer:
        thread = threading.Thread(target=peer.serve_forever, args=[0.01], daemon=True)
        thread.start()
        try:
            yield peer
        finally:
            peer.publish(count)
            peer.shutdown()
            thread.join()


# ---- the tests


ROWS = 6_000


def row(number: int) -> dict[str, int]:
    """A row of twenty keys."""
    return {"value": number, "key": number % KEYS}


def counted(source: Any, sink: Any) -> Graph:
    """Rows of a source, marked by A and numbered within each key by C; the graph that ``check_counted`` judges."""
    flow = fn.Dataflow("counting")
    rows = flow.source("numbers", source, workers=1)
    rows.map("A", Mark()).map("C", Count(), key="key").sink("out", sink)
    graph: Graph = flow.graph(2)
    return graph


def test_a_feed_of_ones_own_and_a_table_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    """The host of the feed's reader is killed, too: the peer repeats rows, and none is twice in the table."""
    table = SqliteSink(str(tmp_path / "out.db"), "counted", ("value", "key", "seen", "marked_by", "counted_by"))
    with serving(row, ROWS) as peer:
        peer.publish(1_000)
        with trial(counted(FeedSource(peer.feed), table), spark, str(tmp_path / "c")) as run:
            run.wait_for("out", 500)
            run.watch.until_said("checkpoint")
            peer.publish(3_000)
            outcome = run.outcome(run.change({"A": Mark(2), "C": Count(2)}))
            assert (outcome.outcome, outcome.error) == ("done", "")
            peer.publish(4_000)
            run.kill(0, 1)
            run.watch.until_said("recovered")
            peer.publish(ROWS)
            assert run.end(drain=False) == ("finished", "")
            assert run.audit().serializable
    rows = table.rows()
    check_counted(rows, ROWS)
    assert {row["marked_by"] for row in rows} == {1, 2}
    assert all(number is not None for number in replace(table, run=run.launched.run).parts().values())
    assert len(peer.asked) == 2
    assert 0 < peer.asked[1] < ROWS


def test_a_directory_that_grows(spark: SparkSession, tmp_path: Path) -> None:
    """Empty at first; files come before and after a change and the loss of both hosts; one is renamed.

    Formats and several workers are tried by the contract of sources, and by seeds (``test_growing_files``).
    """
    place = tmp_path / "in"
    place.mkdir()

    def add(first: int, last: int) -> None:
        for start in range(first, last, 100):
            write_rows(place / f"{start:05}.csv", [row(number) for number in range(start, start + 100)])

    graph = counted(fn.files(place, "csv", until="_END"), fn.memory())
    with trial(graph, spark, str(tmp_path / "c")) as run:
        run.watch.until_said("report", 4)  # of workers that run, and have nothing to read
        add(0, 1_500)
        run.wait_for("out", 1_000)
        run.watch.until_said("checkpoint", len(run.watch.heard_of("checkpoint")) + 2)  # begun after these rows
        (place / "00000.csv").rename(place / "renamed.csv")
        add(1_500, 3_000)
        outcome = run.outcome(run.change({"A": Mark(2), "C": Count(2)}))
        assert (outcome.outcome, outcome.error) == ("done", "")
        add(3_000, 4_500)
        run.kill(0, 1)
        add(4_500, ROWS)
        run.watch.until_said("recovered")
        (place / "_END").touch()
        assert run.end(drain=False) == ("finished", "")
        rows = run.rows()
        check_counted(rows, ROWS)
        assert {row["marked_by"] for row in rows} == {1, 2}
        assert run.audit().serializable
