"""From a graph to a running region: session, scratch space, sources and sinks, keys, controller, hosts."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fries_nb.controller.controller import Controller
from fries_nb.controller.events import HostLost
from fries_nb.dataflow.endpoints import ParquetFiles
from fries_nb.dataflow.graph import Graph, Kind
from fries_nb.errors import DataflowError
from fries_nb.spark import interrupt, manifest
from fries_nb.spark.control import ControlServer
from fries_nb.spark.driver import Driver, Listener
from fries_nb.spark.keys import make_keys
from fries_nb.spark.reading import plan_source
from fries_nb.spark.region import Options, Region
from fries_nb.spark.session import Session, start_or_find
from fries_nb.spark.shipping import dumped
from fries_nb.spark.stage import HostStage
from fries_nb.spark.staging import make_scratch, remove_scratch
from fries_nb.spark.storage import is_local, join

RELEASE_S = 4.0
INCARNATION = 1
"""Of a run's first, and so far only, attempt."""


@dataclass(frozen=True)
class Launched:
    """A region under way.

    Attributes:
        session: the lease on Spark.
        driver: the controller's thread.
        stage: the hosts.
        sinks: sink operator to the directory that holds its output.
        scratch: a directory, or URI of one, of this run alone; whoever holds this removes it.
        journal: a directory on the driver's disk that holds the decisions; removed likewise.
        run: the run's id.
    """

    session: Session
    driver: Driver
    stage: HostStage
    sinks: dict[str, str]
    scratch: str
    journal: str
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
    run = uuid.uuid4().hex[:8]
    with contextlib.ExitStack() as undo:
        session = start_or_find(options.hosts, spark)
        undo.callback(session.release)
        interrupt.take_over(session.spark.sparkContext)
        scratch = make_scratch(session.spark, run)
        undo.callback(remove_scratch, scratch)
        sources = {
            name: plan_source(operator.function, session.spark, scratch, name, operator.workers)
            for name, operator in graph.by_name.items()
            if operator.kind is Kind.SOURCE
        }
        sinks = _sink_directories(graph, scratch)
        keys = make_keys()
        interface = "127.0.0.1" if (session.spark.sparkContext.master or "").startswith("local[") else "0.0.0.0"
        advertised = "" if interface == "127.0.0.1" else session.address  # Spark may have another address
        server = ControlServer(keys, interface, options.port, advertised)
        server.incarnation = INCARNATION
        region = Region(
            run, INCARNATION, _bare(graph), functions, sources, sinks, server.address, keys.hosts, interface, options
        )
        launched = _start(graph, region, session, server, listener, scratch)
        undo.pop_all()
        return launched


def _start(
    graph: Graph, region: Region, session: Session, server: ControlServer, listener: Listener, scratch: str
) -> Launched:
    options = region.options
    interval = None if options.commit_interval_s is None else int(options.commit_interval_s * 1e9)
    controller = Controller(graph, options.hosts, INCARNATION, interval, int(options.silence_s * 1e9))
    journal = Path(tempfile.mkdtemp(prefix=f"fries-journal-{region.run}-"))
    driver: Driver
    stage = HostStage(session.spark, region, lambda reason: driver.post(HostLost(0, f"Spark gave up: {reason}")))
    driver = Driver(controller, server, region, journal / "decisions.jsonl", listener, lambda: stage.release(RELEASE_S))
    driver.start()
    stage.start()
    return Launched(session, driver, stage, dict(region.sinks), scratch, str(journal), region.run)


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
    """A user's object as bytes, with the user's own modules.

    Raises:
        DataflowError: it cannot be pickled; names the operator.
    """
    try:
        return dumped(value)
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
        given = operator.function
        path = given.path if isinstance(given, ParquetFiles) else join(scratch, "sinks", name)
        if is_local(path) and "://" not in path:
            path = os.path.abspath(path)  # hosts have other working directories
        if path in directories.values():
            raise DataflowError(f"two sinks write to {path}; each needs a directory of its own")
        manifest.claim(path, graph.name)
        directories[name] = path
    return directories
