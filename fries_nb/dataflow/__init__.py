"""The dataflow as immutable values: operators, edges, streams and updates. Nothing here executes."""
from __future__ import annotations

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.constraints import (
    EdgeElement,
    LatencyConstraint,
    OnViolation,
    check_agreement,
    constraint_of,
    edge,
)
from fries_nb.dataflow.endpoints import (
    DeltaTable,
    Memory,
    OnError,
    ParquetFiles,
    Rate,
    Replay,
    Sink,
    Source,
    delta,
    memory,
    parquet,
    rate,
    replay,
)
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, Partitioning, check_runnable
from fries_nb.dataflow.interchange import graph_from_json, graph_to_json
from fries_nb.dataflow.operators import Shape, batched, emits_of, shape_of, takes_state
from fries_nb.dataflow.regions import Aggregation, Ordering
from fries_nb.dataflow.streams import Stream
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import Update, as_updates, check_updates, new_table

__all__ = [
    "Aggregation", "DataflowBuilder", "DeltaTable", "Edge", "EdgeElement", "Emits", "Graph", "JoinTable", "Kind",
    "LatencyConstraint", "Memory", "OnError", "OnViolation", "Operator", "Ordering", "ParquetFiles", "Partitioning",
    "Rate", "Replay", "Shape", "Sink", "Source", "Stream", "Update", "as_updates", "batched", "check_agreement",
    "check_runnable", "check_updates", "constraint_of", "delta", "edge", "emits_of", "graph_from_json",
    "graph_to_json", "memory", "new_table", "parquet", "rate", "replay", "shape_of", "takes_state",
]
