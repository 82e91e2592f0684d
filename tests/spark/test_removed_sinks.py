"""What a checkpoint owes to a sink that the dataflow has not any more."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from fries_nb.connectors.parquet_sink import ParquetSink
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.driver.committer import complete
from fries_nb.errors import SinkError
from fries_nb.protocol.checkpoints import Checkpoint
from fries_nb.protocol.messages import WorkerId
from fries_nb.spark.launch import removed_sinks
from fries_nb.storage.checkpoint_store import CheckpointStore


def graph(sink: str) -> Graph:
    """A source and a sink."""
    return Graph("w1", (Operator("S", kind=Kind.SOURCE), Operator(sink, kind=Kind.SINK)), (Edge("S", sink),))


def test_a_removed_sink_gets_what_the_checkpoint_owes_it(tmp_path: Path) -> None:
    """The driver died behind the record and before the commit; the next attempt, of another shape, commits."""
    sink = ParquetSink(str(tmp_path / "rows"))
    sink.claim("w1", "r1")
    writer = sink.open(WorkerId("out", 0), 1)
    writer.write(pa.RecordBatch.from_pydict({"value": [1, 2, 3]}))
    place = CheckpointStore.claim(str(tmp_path / "place"), graph("out"), "r1")
    place.keep_target("out", cloudpickle.dumps(sink))
    parts = writer.close_part()
    place.keep(Checkpoint("r1", 1, 1, {}, sinks={"out": parts}, workers={"S": 1, "out": 1}))
    place.release()
    other = graph("new")
    again = CheckpointStore.resume(place.path, other)
    owed = removed_sinks(other, again)
    complete(again.restoration.checkpoint, owed)
    assert list(owed) == ["out"]
    assert ds.dataset([str(path) for path in (tmp_path / "rows").glob("*.parquet")]).count_rows() == 3
    assert removed_sinks(graph("out"), again) == {}


def test_a_sink_that_cannot_be_had_again_is_named(tmp_path: Path) -> None:
    """Rather no run than rows that are silently missing."""
    place = CheckpointStore.claim(str(tmp_path / "place"), graph("out"), "r1")
    place.keep(Checkpoint("r1", 1, 1, {}, sinks={"out": ("part-1",)}, workers={"S": 1, "out": 1}))
    place.release()
    place = CheckpointStore.resume(place.path, graph("new"))
    with pytest.raises(SinkError, match="holds rows of sink out, which this dataflow has not, and not where to"):
        removed_sinks(graph("new"), place)
    place.keep_target("out", b"damaged")
    with pytest.raises(SinkError, match="sink out, which is removed, cannot be unpickled"):
        removed_sinks(graph("new"), place)
