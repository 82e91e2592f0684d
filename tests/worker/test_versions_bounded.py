"""What multi-version sets aside is bounded in memory, and never locks up: the rest waits on disk, or at its sender."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from worker_bench import Bench, Sum, change

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.columns import DUE
from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.updates import Update
from fries_nb.protocol.messages import Data, WorkerId
from fries_nb.simulation import Cluster, stamp_functions
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.stamp_functions import Counter as Counting
from fries_nb.storage.spilled import spilled
from fries_nb.worker.events import Grant

TAG = change(1, "M", scope="AMNZ", tagged=True)
WINDOW = 1 << 20
FRAME = 1 << 18


def wide(number: int, version: int = 1) -> Data:
    """A frame of a quarter of a megabyte, one tuple for each 64 kB."""
    text = pa.array([chr(65 + number % 26) * (FRAME // 4)] * 4)
    columns = {"n": pa.array(np.full(4, number)), "text": text, DUE: pa.array(np.zeros(4, np.int64))}
    return Data(pa.RecordBatch.from_pydict(columns), size=FRAME, version=version)


def test_what_comes_in_front_of_the_marker_is_granted_back_and_kept_on_disk() -> None:
    """64 MiB of new tuples in front of a marker that is long in coming: memory holds less than the window."""
    bench = Bench(Operator("M", function=Sum(), key=("n",)), window=WINDOW, spill=spilled)
    bench.prepare("M", "u1", Update(Sum()), tagged=True)
    bench.take()
    bench.said.clear()
    before = pa.total_allocated_bytes()
    for number in range(256):
        bench.arrive(0, wide(number))
        bench.run()
        assert pa.total_allocated_bytes() - before <= 2 * WINDOW + FRAME, f"frame {number}"
    assert sum(size for one in bench.said if isinstance(one, Grant) for size in one.sizes.values()) == 256 * FRAME
    for index in (0, 1):
        bench.arrive(index, TAG)
    bench.run()
    assert [row["n"] for row in bench.sent if isinstance(row, dict)] == [n for n in range(256) for _ in range(4)]


def test_what_comes_behind_the_marker_waits_for_its_credit() -> None:
    """Behind the marker no old tuple follows, so that the sender may wait: nothing is granted before the switch."""
    bench = Bench(Operator("M", function=Sum(), key=("n",)), window=WINDOW)
    bench.prepare("M", "u1", Update(Sum()), tagged=True)
    bench.take()
    bench.said.clear()
    bench.arrive(0, TAG)
    for number in range(4):
        bench.arrive(0, wide(number))
    bench.run()
    assert not [one for one in bench.said if isinstance(one, Grant)]
    bench.arrive(1, TAG)
    bench.run()
    assert sum(size for one in bench.said if isinstance(one, Grant) for size in one.sizes.values()) == 4 * FRAME


@pytest.mark.parametrize("window", [1, 200, 2_000])
def test_it_never_locks_up(window: int) -> None:
    """Paths of unequal length from two sources into one operator with state, under windows down to a tuple."""
    met: Counter[str] = Counter()
    for seed in range(30):
        flow = fn.Dataflow("diamond")
        left, right = stamp_functions.source(flow), stamp_functions.source(flow, "S1")
        for name in ("A", "B", "C"):
            left = stamp_functions.mark(left, name)
        both = left.union("U", right)
        counted = both.map("K", Counting("K", 0), key="customer")
        stamp_functions.mark(counted, "X").sink("out", fn.memory())
        rows = {name: source_rows(name, 20) for name in ("S0", "S1")}
        cluster = Cluster(flow.graph(workers=2), rows, hosts=2, seed=seed, window=window, chaining=seed % 2 == 0)
        cluster.hold([WorkerId("S0", 0)])
        cluster.until(lambda cluster=cluster: cluster.supply.read >= 10)
        name = cluster.request({"K": Counting("K", 0, 1)}, "multiversion")
        cluster.steps(200)
        cluster.release()
        cluster.run()
        met[cluster.outcomes[name].outcome] += 1
        assert len(cluster.rows("out")) == 40, f"seed {seed}"
        assert judge(cluster.records()).serializable, f"seed {seed}"
    assert met["done"] > 20, met
