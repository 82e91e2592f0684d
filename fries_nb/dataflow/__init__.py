"""WHAT runs: operators, edges, streams and requests to change them, all as values. Nothing here executes."""
from __future__ import annotations

from fries_nb.dataflow.builder import Dataflow, Stream
from fries_nb.dataflow.endpoints import Memory, ParquetFiles, Rate, Replay, Sink, Source, memory, parquet, rate, replay
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, Partitioning
from fries_nb.dataflow.interchange import graph_from_json, graph_to_json
from fries_nb.dataflow.operators import Shape, batched, emits_of, shape_of, takes_state
from fries_nb.dataflow.runnable import check_runnable
from fries_nb.dataflow.updates import Update, as_updates, check_updates

__all__ = [
    "Dataflow", "Edge", "Emits", "Graph", "Kind", "Memory", "Operator", "ParquetFiles", "Partitioning", "Rate",
    "Replay", "Shape", "Sink", "Source", "Stream", "Update", "as_updates", "batched", "check_runnable",
    "check_updates", "emits_of", "graph_from_json", "graph_to_json", "memory", "parquet", "rate", "replay",
    "shape_of", "takes_state",
]
