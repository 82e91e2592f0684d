"""From a graph to a running region: session, scratch space, sources and sinks, keys, controller, hosts."""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle

from fries_nb.controller.controller import Controller
from fries_nb.controller.events import HostLost
from fries_nb.dataflow.endpoints import ParquetFiles
from fries_nb.dataflow.graph import Graph, Kind
from fries_nb.errors import DataflowError
from fries_nb.spark import manifest
from fries_nb.spark.control import ControlServer
from fries_nb.spark.driver import Driver, Listener
from fries_nb.spark.host import Region
from fries_nb.spark.keys import make_keys
from fries_nb.spark.reading import SourcePlan, plan_source
from fries_nb.spark.session import Session, start_or_find
from fries_nb.spark.stage import HostStage
from fries_nb.spark.staging import make_scratch, remove_scratch
from fries_nb.spark.storage import join

RELEASE_S = 4.0


@dataclass(frozen=True)
class Options:
    """How to run a graph; see ``fries_nb.Dataflow.run``."""

    hosts: int
    budget: int
    audit: bool
    chaining: bool
    commit_interval_s: float | None
    silence_s: float
    port: int


@dataclass(frozen=True)
class Launched:
    """A region under way.

    Attributes:
        session: the lease on Spark.
        driver: the controller's thread.
        stage: the hosts.
        sinks: sink operator to the directory that holds its output.
        scratch: a directory, or URI of one, of this run alone; whoever holds this removes it.
        run: the run's id.
    """

    session: Session
    driver: Driver
    stage: HostStage
    sinks: dict[str, str]
    scratch: str
    run: str


def launch(graph: Graph, spark: Any, options: Options, listener: Listener) -> Launched:
    """Start the region and return at once; the hosts join within a second or two.

    Raises:
        SessionError: no Java, or a session that cannot serve.
        SourceError, SinkError: an end of the flow that cannot be read or written.
        DataflowError: a function that cannot be pickled.
        LinkError: the port is taken.
    """
    functions = pickled_functions(graph)
    session = start_or_find(options.hosts, spark)
    run = uuid.uuid4().hex[:8]
    try:
        scratch = make_scratch(session.spark, run)
        try:
            sources = {
                name: plan_source(operator.function, session.spark, scratch, name, operator.workers)
                for name, operator in graph.by_name.items()
                if operator.kind is Kind.SOURCE
            }
            sinks = _sink_directories(graph, scratch)
            return _start(graph, functions, sources, sinks, session, scratch, run, options, listener)
        except BaseException:
            remove_scratch(scratch)
            raise
    except BaseException:
        session.release()
        raise


def _start(
    graph: Graph,
    functions: dict[str, bytes],
    sources: dict[str, SourcePlan],
    sinks: dict[str, str],
    session: Session,
    scratch: str,
    run: str,
    options: Options,
    listener: Listener,
) -> Launched:
    keys = make_keys()
    local = session.spark.sparkContext.master.startswith("local")
    interface = "127.0.0.1" if local else "0.0.0.0"
    server = ControlServer(keys, interface, options.port, session.address)
    server.incarnation = 1
    region = Region(
        run=run,
        hosts=options.hosts,
        incarnation=1,
        graph=_bare(graph),
        functions=functions,
        sources=sources,
        sinks=sinks,
        controller=server.address,
        keys=keys.hosts,
        interface=interface,
        advertised="",
        budget=options.budget,
        audit=options.audit,
        chaining=options.chaining,
        silence_s=options.silence_s,
    )
    interval = None if options.commit_interval_s is None else int(options.commit_interval_s * 1e9)
    controller = Controller(graph, options.hosts, 1, interval, int(options.silence_s * 1e9))
    driver: Driver
    stage = HostStage(session.spark, region, lambda reason: driver.post(HostLost(0, f"Spark gave up: {reason}")))
    journal = Path(tempfile.mkdtemp(prefix=f"fries-journal-{run}-")) / "journal.jsonl"
    driver = Driver(
        controller, server, options.hosts, sinks, journal, listener, lambda: stage.release(RELEASE_S)
    )
    driver.start()
    stage.start()
    return Launched(session, driver, stage, sinks, scratch, run)


def pickled_functions(graph: Graph) -> dict[str, bytes]:
    """Each operator's function, as it is shipped.

    Raises:
        DataflowError: one cannot be pickled; names the operator.
    """
    return {
        name: pickled(name, operator.function)
        for name, operator in graph.by_name.items()
        if operator.function is not None and operator.kind not in (Kind.SOURCE, Kind.SINK)
    }


def pickled(operator: str, value: Any) -> bytes:
    """A user's object as bytes.

    Raises:
        DataflowError: it cannot be pickled; names the operator.
    """
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise DataflowError(
            f"the function of {operator} cannot be pickled: {type(error).__name__}: {error}; "
            "open files, sockets and locks belong into open(), which runs on the host"
        ) from error


def _bare(graph: Graph) -> Graph:
    return Graph(graph.name, tuple(replace(operator, function=None) for operator in graph.operators), graph.edges)


def _sink_directories(graph: Graph, scratch: str) -> dict[str, str]:
    directories: dict[str, str] = {}
    for name, operator in graph.by_name.items():
        if operator.kind is not Kind.SINK:
            continue
        to_files = isinstance(operator.function, ParquetFiles)
        path = operator.function.path if to_files else join(scratch, "sinks", name)
        if path in directories.values():
            raise DataflowError(f"two sinks write to {path}; each needs a directory of its own")
        manifest.claim(path, graph.name)
        directories[name] = path
    return directories
