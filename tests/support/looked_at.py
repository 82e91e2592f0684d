"""A checkpoint with real states to look into, made without a run: as workers would have taken it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.keys import canonical_key
from fries_nb.operators.instance import Instance
from fries_nb.protocol.checkpoints import Checkpoint, Position
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import bins_of_keys, routing_table
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.durable import NO_KEY
from fries_nb.storage.snapshot_files import SnapshotStore, write_snapshots
from fries_nb.worker.saving import saved


class Counting:
    """A function with state."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        return row


OPERATORS = (
    Operator("S", kind=Kind.SOURCE, workers=2),
    Operator("FM", function=Counting(), workers=3, key=("customer",)),
    Operator("Pairs", function=Counting(), workers=2, key=("terminal", "day")),
    Operator("All", function=Counting(), workers=2),
    Operator("Plain", function=dict),
    Operator("out", kind=Kind.SINK),
)
NAMES = tuple(operator.name for operator in OPERATORS)


def declared(name: str = "w1", *operators: Operator) -> Graph:
    """The dataflow, one operator behind the other."""
    names = [one.name for one in operators or OPERATORS]
    return Graph(name, operators or OPERATORS, tuple(map(Edge, names, names[1:])))


def instance_of(operator: Operator, index: int, states: Mapping[Any, Any]) -> Instance:
    """One worker of an operator with its share of these states; without a key, the states are those of workers.

    A state that needs the worker, such as one with a token, is a function that makes it.
    """
    made = Instance(WorkerId(operator.name, index), operator, operator.function, audit=False)
    made.processed = 10 * (index + 1)
    if not operator.key and index in states:
        made.state.put(None, states[index])
    owners = routing_table(operator.workers)
    for key, state in states.items() if operator.key else ():
        if owners[bins_of_keys([canonical_key(key)])[0]] == index:
            with made.bound():
                made.state.put(key, state(made) if callable(state) else state)
    if operator.traits.is_source:
        made.positions = {2 * index: Position(5 + index, "a.csv"), 2 * index + 1: None}
    if operator.traits.timed:
        made.came = pa.schema([(TIME, pa.timestamp("us"))])
    return made


def held(
    path: str, states: Mapping[str, Mapping[Any, Any]], epoch: int = 1, graph: Graph | None = None,
    key: bytes = NO_KEY, ended: tuple[str, ...] = (), place: CheckpointStore | None = None,
) -> CheckpointStore:  # fmt: skip
    """A directory with a checkpoint in which operators have these states by key; its run goes on."""
    graph = graph or declared()
    place = place or CheckpointStore.claim(path, graph, "r1", key)
    store, names, needs = SnapshotStore(path, "r1", key), {}, {}
    for operator in graph.operators:
        for index in range(operator.workers):
            if f"{operator.name}[{index}]" in ended:
                continue
            snapshot = saved(instance_of(operator, index, states.get(operator.name, {})))
            name, _ = write_snapshots(store, str(epoch), place.incarnation, [snapshot])
            names[f"{operator.name}[{index}]"] = name
            needs[operator.name] = snapshot.needs
    workers = {operator.name: operator.workers for operator in graph.operators}
    place.keep(Checkpoint("r1", epoch, place.incarnation, names, ended, workers=workers, needs=needs))
    place.tidy()
    return place
