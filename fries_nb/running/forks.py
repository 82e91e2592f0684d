"""A fork: a second run from a checkpoint of another run, with sinks of its own.

The two runs share nothing that either writes: the fork begins with a copy of the checkpoint (see
``storage.stored_checkpoint``), and every place at which rows leave the dataflow is another one. So each of them has to
be named, also those of dead letters and late rows, and none may be a target of the origin.

>>> from fries_nb.dataflow.endpoints import memory, parquet
>>> from fries_nb.dataflow.graph import Kind
>>> flow = Graph("w1", (Operator("FM", on_error=memory()), Operator("out", kind=Kind.SINK, function=parquet("/a"))), ())
>>> list(outlets(flow))
['FM', 'out']
>>> with_sinks(flow, {"FM": memory(), "out": parquet("/b")}, "/origin").operator("out").function
ParquetFiles(path='/b')
>>> with_sinks(flow, {"FM": memory(), "out": parquet("/x/../a")}, "/origin")
Traceback (most recent call last):
fries_nb.errors.DataflowError: sinks= has 'out': ParquetFiles(path='/x/../a'), to which 'out' of the origin writes; ...
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.endpoints import CatalogTable, DeltaTable, Memory, ParquetFiles, Sink, checked_sink, described
from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.dataflow.regions import regions
from fries_nb.dataflow.stream_endpoints import Kafka
from fries_nb.dataflow.updates import Lighter
from fries_nb.errors import CheckpointError, DataflowError, unknown
from fries_nb.host.region_spec import Options
from fries_nb.running.handle import Run
from fries_nb.spark.launch import Begun
from fries_nb.spark.session import start_or_find
from fries_nb.spark.staging import make_scratch, remove_scratch
from fries_nb.storage.checkpoint_store import Location
from fries_nb.storage.durable import absolute, join, resolved
from fries_nb.storage.stored_checkpoint import ForkOrigin, fork_checkpoint


def outlets(graph: Graph) -> dict[str, Sink]:
    """The targets at which rows leave a dataflow: those of sinks by name, and of dead letters by their operator."""
    ends = {one.name: one.function if one.traits.is_sink else one.on_error for one in graph.operators}
    return {name: end for name, end in ends.items() if not isinstance(end, str)}


def with_sinks(graph: Graph, sinks: object, origin: str) -> Graph:
    """The dataflow with other targets.

    Args:
        graph: the dataflow with those of the origin.
        sinks: outlet to its target in the fork.
        origin: the checkpoint directory of the origin.

    Raises:
        DataflowError: an outlet is missing or unknown, its target is none, or one of the origin, or in its directory.
    """
    theirs = outlets(graph)
    if not isinstance(sinks, Mapping):
        raise DataflowError(f"sinks={sinks!r}; expected {_example(theirs)}")
    if strange := [name for name in sinks if name not in theirs]:
        raise DataflowError(f"sinks= is wrong: {unknown('sink', str(strange[0]), theirs)}")
    if missing := [_named(graph, name) for name in theirs if name not in sinks]:
        raise DataflowError(
            f"sinks= lacks {', '.join(missing)}; a fork has targets of its own for all rows, so that nothing is "
            f"written twice: expected {_example(theirs)}"
        )
    own = {name: checked_sink(f"sinks= has {name!r}: ", sinks[name]) for name in theirs}
    for name, target in own.items():
        _check_apart(name, target, theirs, origin)
    return replace(graph, operators=tuple(_with_target(one, own) for one in graph.operators))


def _with_target(operator: Operator, targets: Mapping[str, Sink]) -> Operator:
    if operator.name not in targets:
        return operator
    target = targets[operator.name]
    return replace(operator, function=target) if operator.traits.is_sink else replace(operator, on_error=target)


def _named(graph: Graph, name: str) -> str:
    return repr(name) if graph.operator(name).traits.is_sink else f"{name!r} (its dead letters)"


def _example(names: Collection[str]) -> str:
    """What to write, as an example."""
    return f"sinks={{{', '.join(f'{name!r}: fn.memory()' for name in names)}}} or the like"


def _check_apart(name: str, target: Sink, theirs: Mapping[str, Sink], origin: str) -> None:
    """Refuse a target to which the origin writes, or which is in its directory."""
    for other, one in theirs.items():
        if _is_same(target, one):
            raise DataflowError(
                f"sinks= has {name!r}: {described(target)}, to which {other!r} of the origin writes; expected another "
                "target, so that nothing is written twice"
            )
    if isinstance(target, ParquetFiles | DeltaTable) and is_within(target.path, origin):
        where = f"in the directory of the origin, {origin}, {_ITS}"
        raise DataflowError(f"sinks= has {name!r}: {described(target)}, {where}")


def _is_same(one: Sink, other: Sink) -> bool:
    """Whether two targets are one; rows in memory are of a run, and user sinks are told apart by their ``repr``."""
    match one, other:
        case (Memory(), _) | (_, Memory()):
            return False
        case (ParquetFiles() | DeltaTable()), (ParquetFiles() | DeltaTable()):
            return resolved(absolute(one.path)) == resolved(absolute(other.path))
        case Kafka(), Kafka():
            shared = _servers(one) & _servers(other)
            return one.topic == other.topic and bool(shared)
        case CatalogTable(), CatalogTable():
            return one.name.casefold() == other.name.casefold()
    return type(one) is type(other) and described(one) == described(other)


def _servers(topic: Kafka) -> set[str]:
    return {server.strip().casefold() for server in topic.servers.split(",")}


def is_within(place: str, directory: str) -> bool:
    """Whether a place is a directory, or in it.

    >>> is_within("/a/b/../c/d", "/a/c/"), is_within("/a/cd", "/a/c")
    (True, False)
    """
    inner, outer = (resolved(absolute(one)).rstrip("/") for one in (place, directory))
    return inner == outer or inner.startswith(f"{outer}/")


def start_fork(
    origin: ForkOrigin, declared: Graph, graph: Graph, spark: Any, options: Options, checkpoint: str, key: bytes,
    lighters: Mapping[LatencyConstraint, Lighter], drop: Collection[str],
) -> Run:  # fmt: skip
    """Start a run from a checkpoint of another one.

    Args:
        origin: the checkpoint.
        declared: the dataflow with the sinks of the origin.
        graph: the dataflow with those of the fork.
        spark: see ``launch``.
        options: those of the run.
        checkpoint: its own checkpoint directory; empty for none.
        key: the key that signs its checkpoints.
        lighters: the lighter functions of latency constraints.
        drop: the operators that the dataflow lacks, and whose state may be lost.

    Raises:
        CheckpointError: see ``fork_checkpoint``; or the directory is in that of the origin, or the dataflow has
            aggregates or sorts.
        FriesError: see ``launch``.
    """
    if checkpoint and is_within(checkpoint, origin.path):
        raise CheckpointError(f"checkpoint={checkpoint!r} is in the directory of the origin, {origin.path}, {_ITS}")
    if len(regions(graph)) > 1:
        raise CheckpointError(f"flow {graph.name!r} has aggregates or sorts, and is not forked in this version")
    session, run = start_or_find(options.hosts, spark), uuid.uuid4().hex[:8]  # Spark first: an origin that runs goes on
    with ExitStack() as leased, ExitStack() as undo:
        leased.callback(session.release)  # the run has its own lease
        scratch = make_scratch(session.spark, run)
        undo.callback(remove_scratch, scratch)
        path = absolute(checkpoint) if checkpoint else join(scratch, "checkpoint")
        to = replace(Location.of(path, key), lasts=checkpoint != "")
        place = fork_checkpoint(origin, declared, to, graph, run, drop)
        undo.callback(place.withdraw)
        begun = Begun(place, scratch)
        started = Run(graph, session.spark, options, checkpoint, key=key, lighters=lighters, drop=drop, begun=begun)
        undo.pop_all()
        return started


_ITS = "which stays as it is; expected a place of the fork's own"
