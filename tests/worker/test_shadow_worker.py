"""What a shadow leaves out: rows that a commit would wait for, and rows beyond the budget of an edge into it."""

from __future__ import annotations

import pyarrow as pa
import pytest
import worker_bench
from worker_bench import Bench, checkpoint, data, version

from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.dataflow.graph import Operator, Partitioning, ShadowRole
from fries_nb.protocol.messages import ChannelId, Data, End, WorkerId
from fries_nb.protocol.topology import OutEdge
from fries_nb.worker import shadow_worker
from fries_nb.worker.events import Grant
from fries_nb.worker.outbox import Outbox, shared


@pytest.mark.parametrize("waits", [False, True])
def test_a_commit_waits_for_rows_in_front_of_it_for_a_while(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then they are left out, those in hand as well, and counted; those behind it are processed."""
    monkeypatch.setattr(worker_bench, "Worker", shadow_worker.ShadowWorker)
    monkeypatch.setattr(shadow_worker, "COMMIT_WAITS_NS", 1 << 62 if waits else 0)
    bench = Bench(Operator("M", function=version(1), shadow=ShadowRole("K")))
    for index, rows in ((0, data(1, 2, 3, 4)), (0, data(5, 6)), (1, data(7))):
        bench.arrive(index, rows)
    bench.worker.run(limit=1)
    marker = checkpoint(1)
    for index in (0, 1):
        bench.arrive(index, marker)
    bench.arrive(0, data(8))
    bench.run()
    assert bench.sent == [*([1] * 7 if waits else [1]), marker, 1]
    assert bench.worker.left_out == (0 if waits else 6)
    granted = [one for one in bench.said if isinstance(one, Grant)][1:]  # behind the first credit
    assert sum(size for one in granted for size in one.sizes.values()) == 400


def test_rows_beyond_the_budget_of_an_edge_are_left_out_and_markers_are_not() -> None:
    """What waits for credit as well when a commit's marker comes; no row fills the channel, so its sender goes on."""
    channel = ChannelId(WorkerId("A", 0), WorkerId("B", 0))
    rows = pa.RecordBatch.from_pydict({"x": list(range(100))})
    size = rows.get_total_buffer_size()
    edge = OutEdge("B", Partitioning.FORWARD, (), 0, (channel,), lossy=ShadowRole("K", bytes=3 * size))
    outbox = Outbox([edge])
    outbox.credit(channel, size)
    for _ in range(5):  # one is in transit, two wait
        outbox.add(0, rows)
        outbox.empty()
    assert (outbox.left_out, outbox.full) == (200, False)
    outbox.mark(checkpoint(1, scope="AB"))
    outbox.end()
    frames = [send.frame for send in outbox.sends()]
    assert [type(frame) for frame in frames if isinstance(frame, Data | End)] == [Data, End]
    assert len(frames) == 3
    assert outbox.left_out == 400


def test_a_shadow_gets_the_rows_of_its_share_of_the_cohorts() -> None:
    """The same rows on each edge into it, since it depends on their identities alone."""
    rows = pa.RecordBatch.from_pydict({TRANSACTION: list(range(1_000))})
    some = shared(rows, ShadowRole(share=0.3))
    assert 200 < some.num_rows < 400
    assert some.equals(shared(rows, ShadowRole("K", share=0.3)))
    assert shared(rows, ShadowRole()) is rows
