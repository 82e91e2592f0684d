"""A peer in the test's process that serves a live feed: rows by number, over any number of connections."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any


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
