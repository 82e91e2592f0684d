"""The driver's trace: bounded in memory, whole on disk, cut back to checkpoints wherever its records lie."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from fries_nb.driver.tracing import Trace
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import Emitted, Ran, RanMany, Wrote
from fries_nb.transport.envelopes import pack, unpack

BOUND = 1 << 20


def test_what_is_past_the_bound_lies_on_disk():
    """8 MiB of records of eight workers; the driver holds one or two, and gives all back in each worker's order."""
    trace, each = Trace(bound=BOUND), 8_192
    tracemalloc.start()
    for number in range(128):
        worker = WorkerId("FM", number % 8)
        run = RanMany(tuple(range(number * each, (number + 1) * each)), "FM", number % 8, "u1")
        trace.add(worker, [pack(run)])
        assert trace.bytes_in_memory <= BOUND
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 4 * BOUND
    firsts = [record.transactions[0] for record in map(unpack, trace.records())]
    assert firsts == [number * each for worker in range(8) for number in range(worker, 128, 8)]


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_keeps_what_a_trace_in_memory_keeps(seed):
    """Random records, notes and cuts, with everything on disk, something, or nothing."""
    chance = random.Random(seed)
    traces = [Trace(bound) for bound in (0, 2_000, 1 << 30)]
    workers = [WorkerId(name, index) for name in ("A", "B") for index in (0, 1)]
    number = epoch = 0
    for _ in range(200):
        worker, deed = chance.choice(workers), chance.random()
        if deed < 0.8:
            number += 1
            count = chance.randint(1, 3)
            records = [Ran(number, *worker), Wrote(*worker, ran=number), Emitted((number, 5), -1, *worker)]
            for trace in traces:
                trace.add(worker, [pack(record) for record in records[:count]])
        elif deed < 0.9:
            epoch += 1
            for trace in traces:
                for each in workers:
                    trace.note(each, epoch)
        else:
            to, ended = chance.randint(max(0, epoch - 1), epoch), chance.choice(workers)
            before = [list(trace.records()) for trace in traces]
            readers = [trace.records() for trace in traces]
            for trace in traces:
                trace.cut(to, lambda one, ended=ended: one == ended)
            assert [list(reader) for reader in readers] == before  # who reads from before still can
        on_disk, mixed, in_memory = (list(map(unpack, trace.records())) for trace in traces)
        assert on_disk == mixed == in_memory


@pytest.mark.parametrize("bound", [0, 1 << 30])
def test_the_records_of_a_worker_that_has_left_end_where_they_are_cut(bound):
    """A checkpoint from before it left, and a recovery from it after: another worker of its index does not come."""
    trace, gone = Trace(bound), WorkerId("A", 1)
    trace.add(gone, [pack(record) for record in (Ran(1, *gone), Wrote(*gone, ran=1))])
    trace.note(gone, 1)
    trace.add(gone, [pack(record) for record in (Ran(2, *gone), Wrote(*gone, ran=2, ended=True))])
    trace.leave([gone])
    for _ in range(2):
        trace.cut(1, lambda worker: False)
        assert [unpack(record) for record in trace.records()] == [
            Ran(1, *gone), Wrote(*gone, ran=1), Wrote(*gone, ran=1, ended=True)
        ]  # fmt: skip
