"""Large functions on their way to hosts: in chunks, once for a host, and no fast control message waits for them."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from run_setting import ended_runs, until
from soak import SOAK

import fries_nb as fn
from fries_nb.errors import DataflowError, LinkError
from fries_nb.protocol.messages import Prepare, WorkerId
from fries_nb.run import Run
from fries_nb.spark import launch
from fries_nb.transport import envelopes
from fries_nb.transport.envelopes import CHUNK, WINDOW, Chunk, PayloadReceiver, PayloadSender, Shipped

PEERS = (b"host0", b"host1")


class Lines:
    """Sender, one receiver a host, and what is on its way between them."""

    def __init__(self) -> None:
        self.sender = PayloadSender(self._send)
        self.receivers = {peer: PayloadReceiver() for peer in PEERS}
        self.on_the_way: dict[bytes, list[Chunk | Shipped]] = defaultdict(list)
        self.shipped: dict[bytes, int] = defaultdict(int)
        self.came: dict[bytes, list[tuple[WorkerId, Prepare]]] = defaultdict(list)

    def _send(self, peer: bytes, message: Chunk | Shipped) -> None:
        self.on_the_way[peer].append(message)
        waiting = [one for one in self.on_the_way[peer] if isinstance(one, Chunk)]
        assert len(waiting) <= WINDOW
        assert all(len(one.data) <= CHUNK for one in waiting)

    def step(self, peer: bytes) -> bool:
        """One message arrives, and is answered; false where none is on its way."""
        if not self.on_the_way[peer]:
            return False
        message = self.on_the_way[peer].pop(0)
        if isinstance(message, Chunk):
            self.shipped[peer] += len(message.data)
            self.receivers[peer].take(message)
            self.sender.took(peer)
        else:
            self.came[peer] += self.receivers[peer].complete(message)
        return True

    def to_the_end(self) -> None:
        for peer in PEERS:
            while self.step(peer):
                pass


def order(change: str, payload: bytes) -> Prepare:
    """To get a function ready."""
    return Prepare(change, payload, rehearse=False)


def test_a_payload_goes_to_a_host_once() -> None:
    """For all of its workers; each gets the same bytes object, and what it was told besides."""
    lines, payload = Lines(), os.urandom(10 * CHUNK + 1)
    for index in range(4):
        lines.sender.prepare(PEERS[index % 2], WorkerId("FM", index), order("u1", payload))
    lines.to_the_end()
    for peer, indices in zip(PEERS, ((0, 2), (1, 3)), strict=True):
        assert lines.came[peer] == [(WorkerId("FM", index), order("u1", payload)) for index in indices]
        assert lines.came[peer][0][1].payload is lines.came[peer][1][1].payload
        assert lines.shipped[peer] == len(payload)


@pytest.mark.parametrize("seed", range(20 * SOAK))
def test_any_interleaving_with_aborts(seed: int) -> None:
    """Every order that was not aborted comes once, with its payload; one that was comes before its abort or never."""
    chance, lines = random.Random(seed), Lines()
    payloads = [chance.randbytes(chance.randint(1, 6 * CHUNK)) for _ in range(4)]
    sent: dict[bytes, list[tuple[WorkerId, Prepare]]] = defaultdict(list)
    aborted = set()
    for number in range(60):
        peer = chance.choice(PEERS)
        if chance.random() < 0.3:
            payload = chance.choice(payloads)
            sent[peer].append((WorkerId("FM", number), order(f"u{number}", payload)))
            lines.sender.prepare(peer, *sent[peer][-1])
        elif sent[peer] and chance.random() < 0.2:
            worker, prepare = chance.choice(sent[peer])
            lines.sender.abort(peer, worker, prepare.change)
            aborted.add(prepare.change)
        else:
            lines.step(peer)
    lines.to_the_end()
    for peer in PEERS:
        came = lines.came[peer]
        needed = [one for one in sent[peer] if one[1].change not in aborted]
        assert sorted(one for one in came if one[1].change not in aborted) == sorted(needed)
        assert len({change.change for _, change in came}) == len(came)


def test_a_lost_chunk_is_noticed() -> None:
    """Rather than a function that is cut short."""
    lines = Lines()
    lines.sender.prepare(PEERS[0], WorkerId("FM", 0), order("u1", os.urandom(3 * CHUNK)))
    lines.on_the_way[PEERS[0]].pop(1)
    with pytest.raises(LinkError, match=f"got {2 * CHUNK} bytes of a function that are not those sent"):
        lines.to_the_end()


# ---- on Spark


class Model:
    """An operator with so many bytes of weights."""

    def __init__(self, size: int) -> None:
        self.weights = bytes(size)

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, and how many weights there are."""
        return row | {"weights": len(self.weights)}


@pytest.fixture
def run(spark: SparkSession) -> Iterator[Run]:
    """Numbers without end through one small model."""
    with ended_runs() as runs:
        flow = fn.Dataflow("models")
        flow.source("numbers", fn.rate(500)).map("A", Model(1)).sink("out", fn.memory())
        size = 1 if SOAK > 1 else 2
        runs.append(flow.run(spark, hosts=size, workers=size, commit_interval_s=0.5))
        until(lambda: runs[0].metrics().operators["out"].processed > 100, runs[0])
        yield runs[0]


def test_a_function_larger_than_a_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is replaced like any other; in a soak its size is past the 1 GiB that no message may have."""
    monkeypatch.setattr(envelopes, "LIMIT", envelopes.LIMIT if SOAK > 1 else 8 << 20)
    size = envelopes.LIMIT + (16 << 20)
    assert run.reconfigure({"A": Model(size)}).result(timeout=900).outcome == "done"
    # A drain ends the source at once: on a busy machine, before the new function has met a row.
    until(lambda: size in {row.weights for row in run.output().select("weights").distinct().collect()}, run)
    monkeypatch.setattr(launch, "LARGEST", 1 << 20)
    with pytest.raises(DataflowError, match=r"the new function of A is 2\d{6} bytes long; expected at most 1048576"):
        run.reconfigure({"A": Model(2 << 20)})
    run.stop()
    assert (run.state, run.error) == ("finished", "")
    assert {row.weights for row in run.output().select("weights").distinct().collect()} == {1, size}
