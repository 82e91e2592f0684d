"""Launches a region of a graph: session, scratch directory, sources and sinks, keys, controller, hosts."""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import SparkSession

from fries_nb.connectors.kafka_sink import KafkaSink
from fries_nb.connectors.kafka_source import KafkaCluster
from fries_nb.connectors.own_connectors import OwnSinkCopy
from fries_nb.connectors.parquet_sink import DeltaSink, ParquetSink
from fries_nb.connectors.sink import RuntimeSink
from fries_nb.connectors.source import Split
from fries_nb.connectors.worker_reader import SourcePlan
from fries_nb.controller.controller import Controller
from fries_nb.controller.events import HostLost, HostsUnfit, ShapeChange
from fries_nb.controller.known_changes import with_deferred
from fries_nb.dataflow.endpoints import CatalogTable, DeltaTable, Memory, OwnSink, ParquetFiles
from fries_nb.dataflow.graph import ROOT, Graph, Operator
from fries_nb.dataflow.masking import masked
from fries_nb.dataflow.starts import NO_STARTS, SourceStart
from fries_nb.dataflow.stream_endpoints import Kafka
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update
from fries_nb.driver.committer import complete
from fries_nb.driver.driver import Driver
from fries_nb.driver.driver_core import Told
from fries_nb.errors import CheckpointError, DataflowError, SinkError, exception_text
from fries_nb.host.region_spec import Additions, Options, RegionSpec, without_functions
from fries_nb.operators.pickled_states import Name, gone, imported
from fries_nb.protocol.trace import SourceRow, place_of
from fries_nb.spark import interrupt
from fries_nb.spark.catalog import sink_of
from fries_nb.spark.session import LOOPBACK, Session, driver_interface, start_or_find
from fries_nb.spark.shipping import pickled
from fries_nb.spark.stage import HostStage, JobFailure
from fries_nb.spark.staging import make_scratch, plan_source, remove_scratch, stage_table, stage_update
from fries_nb.storage.checkpoint_store import SINKS, CheckpointStore
from fries_nb.storage.durable import NO_KEY, absolute, encoded, join, resolved
from fries_nb.storage.flow_shape import flow_of
from fries_nb.storage.snapshot_files import SnapshotStore
from fries_nb.transport.control import ControlServer
from fries_nb.transport.envelopes import LARGEST
from fries_nb.transport.sockets import RunKeys, make_keys, make_room

MOST_GIVEN = 1 << 28
"""Maximum size of the states that a change of the shape gives to operators, in bytes."""
NO_STATES: Mapping[str, Mapping[Any, Any]] = {}


@dataclass(frozen=True)
class Launched:
    """A launched region.

    Attributes:
        session: the lease on the Spark session.
        driver: the driver thread.
        sinks: sink operator to the directory of its output, except for the user's own sinks.
        scratch: directory or URI of the run's temporary files.
        root: the directory in which the rows of sinks without a target of their own are kept.
        place: the checkpoint store, within ``scratch`` if the run has no checkpoint directory.
        run: the run's id.
        sources: every source that the region ever had, in the order of their numbers.
    """

    session: Session
    driver: Driver
    sinks: dict[str, str]
    scratch: str
    root: str
    place: CheckpointStore
    run: str
    sources: list[tuple[str, SourcePlan]]

    @property
    def resumed(self) -> bool:
        """Whether it was resumed from a checkpoint of an earlier run."""
        return self.place.restoration.checkpoint is not None

    @property
    def before(self) -> tuple[str, ...]:
        """The changes that this checkpoint includes; empty without one."""
        checkpoint = self.place.restoration.checkpoint
        return () if checkpoint is None else checkpoint.decided

    def source_row(self, identity: int) -> SourceRow | None:
        """The row of a source tuple of this region, to be shown; ``None`` if there is no such."""
        source, split, row = place_of(identity)
        if not 0 <= source < len(self.sources):
            return None
        name, plan = self.sources[source]
        found, hide = plan.row(name, split, row), self.driver.core.region.options.hide
        return None if found is None else replace(found, values=masked(found.values, hide))

    def payload(self, operator: Operator, update: Update) -> bytes:
        """Pickle an update for the operator's workers; a join's new table is staged.

        Raises:
            DataflowError: the update cannot be pickled or is too large, or a join's table lacks the columns to join on.
            SourceError: a join's new table cannot be read or computed.
        """
        staged = stage_update(operator, update, self.session.spark, self.place.staging)
        payload = pickled(operator.name, staged)
        if len(payload) > LARGEST:
            raise DataflowError(
                f"the new function of {operator.name} is {len(payload)} bytes long; expected at most {LARGEST}; "
                "let it load its model from a file in open()"
            )
        return payload

    def shape_change(
        self, before: Graph, after: Graph, functions: Mapping[str, bytes], returns: bool = False,
        states: Mapping[str, Mapping[Any, Any]] = NO_STATES,
    ) -> ShapeChange:  # fmt: skip
        """What makes the dataflow another one: the functions, sources and sinks of added operators, which are claimed.

        Args:
            before: the dataflow of now.
            after: what it is to become.
            functions: operator to its pickled function, for all that are added and have one.
            returns: whether added operators are those that the last change of the shape has removed.
            states: added operator to the states by key with which it begins.

        Raises:
            SourceError: an added source cannot be read.
            SinkError: an added sink cannot be written.
            DataflowError: a source, a sink or a state cannot be pickled, states are too large, or two sinks write to
                one place.
        """
        given = {name: pickled(name, states[name], "given state") for name in states}
        if (size := sum(map(len, given.values()))) > MOST_GIVEN:
            words = "they are part of the decision on disk; let the function load larger ones from a file in open()"
            raise DataflowError(f"state= is {size:,} bytes long, pickled; expected at most {MOST_GIVEN:,}: {words}")
        graph, spark = added_to(before, after), self.session.spark
        shipped = {name: functions[name] for name in graph if name in functions}
        shipped |= _tables(graph, self.session, self.place)
        # Never a number again: rows of a source that was removed, and comes back, would be told from no others.
        sources = _sources(graph, self.session, self.place, first=len(self.sources), returns=returns)
        self.sources.extend(sources.items())
        planned = {} if returns else {name: plan.number for name, plan in sources.items()}
        # A sink that was removed and comes back goes on where it was; another one is not to write there.
        taken = {resolved(path) for name, path in self.sinks.items() if name not in graph}
        sinks = _sinks(graph, spark, self.root, self.run, taken)
        for name, sink in sinks.items():
            self.place.keep_target(name, pickled(name, sink, "sink"))
        self.sinks.update({name: sink.path for name, sink in sinks.items() if isinstance(sink, ParquetSink)})
        additions = Additions(shipped, sources, sinks)
        packed = pickled("the added operators", additions, "functions and places")
        fingerprint = _fingerprint(after, self.run, graph if returns else (), self.place.plans(after.sources, planned))
        gone = [name for name in before if name not in after]
        back = _fingerprint(before, self.run, gone, self.place.plans(before.sources, {}))
        return ShapeChange(after, replace(additions, packed=packed), fingerprint, back, returns, given)


class Begun(NamedTuple):
    """What a run begins with, if that was made before its launch."""

    place: CheckpointStore  # its checkpoint store, which is held
    scratch: str  # its directory of temporary files


def added_to(before: Graph, after: Graph) -> Graph:
    """The operators that only the later one of two dataflows has, without their edges, and the loops around them."""
    added = (replace(operator, within=ROOT) for operator in after.operators if operator.name not in before)
    return Graph(after.name, tuple(added), ())


def _fingerprint(graph: Graph, run: str, returning: Iterable[str], plans: dict[str, str]) -> bytes:
    """The fingerprint of a dataflow, in which earlier decisions concern these operators as well."""
    since = dict.fromkeys(returning, 0)
    return msgspec.msgpack.encode(msgspec.structs.replace(flow_of(graph, run), since=since, plans=plans))


def launch(
    graph: Graph,
    spark: Any,
    options: Options,
    tell: Callable[[Told], None],
    checkpoint: str = "",
    resumed: bool = False,
    key: bytes = NO_KEY,
    drop: Collection[str] = (),
    begun: Begun | None = None,
) -> Launched:
    """Start the region and return at once; the hosts join within a second or two.

    Args:
        graph: the graph of the region.
        spark: the session; ``None`` for the active or an embedded one.
        options: the options of the run.
        tell: receives what the driver tells its run.
        checkpoint: the checkpoint directory; with it the run recovers from lost hosts. Empty for none.
        resumed: whether to resume from the last checkpoint in the directory.
        key: the key that signs checkpoints, and verifies existing ones.
        drop: the operators that are not there any more, and whose state in the checkpoint may be lost.
        begun: what was made for it before; it stays if this raises.

    Raises:
        SessionError: there is no Java, or the session is not suitable.
        CheckpointError: the checkpoint directory is taken, damaged, of another dataflow, or cannot be written.
        SourceError: a source cannot be read.
        SinkError: a sink cannot be written.
        DataflowError: a function cannot be pickled.
        LinkError: the port is taken, the address is not this machine's, or too few files may be opened.
    """
    functions = pickled_functions(graph)
    run = uuid.uuid4().hex[:8]  # of a new run; one that is resumed, and a fork, have theirs
    with contextlib.ExitStack() as undo:
        session = start_or_find(options.hosts, spark)
        undo.callback(session.release)
        interrupt.take_over(session.spark.sparkContext)
        if begun is None:
            scratch = make_scratch(session.spark, run)
            undo.callback(remove_scratch, scratch)
            begun = Begun(_taken(checkpoint, scratch, graph, run, resumed, key, drop), scratch)
            undo.callback(begun.place.release if resumed else begun.place.withdraw)  # it stays usable after a failure
        place, scratch = begun
        path, root = place.path, place.path if checkpoint else scratch
        sources, functions = _sources(graph, session, place, options.starts), functions | _tables(graph, session, place)
        sinks = _claimed_sinks(graph, session.spark, root, place)
        keys = make_keys()
        server, interface = _listen(session, keys, options)
        server.incarnation = place.incarnation
        region = RegionSpec(
            place.flow.run, place.incarnation, without_functions(graph), functions, sources, sinks, server.address,
            keys.hosts, interface, options, SnapshotStore(path, place.flow.run, key),
            with_deferred(graph, place.restoration), needed=_needed(place, path),
        )  # fmt: skip
        driver = _start(graph, region, session, server, tell, place, checkpoint != "")
        undo.pop_all()
        paths = {name: sink.path for name, sink in sinks.items() if isinstance(sink, ParquetSink)}
        return Launched(session, driver, paths, scratch, root, place, place.flow.run, [*sources.items()])


def _taken(
    checkpoint: str, scratch: str, graph: Graph, run: str, resumed: bool, key: bytes, drop: Collection[str]
) -> CheckpointStore:
    """The checkpoint directory, as the next attempt of an earlier run or for a new one."""
    path = absolute(checkpoint) if checkpoint else join(scratch, "checkpoint")
    if resumed:
        return CheckpointStore.resume(path, graph, key, drop)
    return CheckpointStore.claim(path, graph, run, key, lasts=checkpoint != "")


def _listen(session: Session, keys: RunKeys, options: Options) -> tuple[ControlServer, str]:
    """The control server, and the interface for hosts (see ``RegionSpec.interface``)."""
    make_room(options.hosts)
    interface = driver_interface(session.spark)
    is_local = interface == LOOPBACK
    advertised = "" if is_local else session.address
    server = ControlServer(keys, interface, options.port, advertised, options.silence_s, options.hosts)
    return server, interface if is_local else ""


def _start(
    graph: Graph,
    region: RegionSpec,
    session: Session,
    server: ControlServer,
    tell: Callable[[Told], None],
    place: CheckpointStore,
    has_place: bool,
) -> Driver:
    options = region.options
    controller = Controller(
        graph,
        options.hosts,
        region.incarnation,
        None if options.commit_interval_s is None else int(options.commit_interval_s * 1e9),
        checkpoints=has_place or options.recover,
        optional=not has_place,
        restored=region.restoration,
        run=region.run,
        chaining=options.chaining,
        splits={name: [split.number for split in plan.splits] for name, plan in region.sources.items()},
    )
    driver: Driver

    def died(incarnation: int, failure: JobFailure) -> None:
        if failure.lasting:
            driver.post(HostsUnfit(failure.reason, failure.details))
        else:
            driver.post(HostLost(failure.host, f"Spark gave up: {failure.reason}", incarnation))

    stage = HostStage(session.spark, region, died)
    driver = Driver(controller, server, region, place, tell, stage)
    driver.start()
    stage.start()
    return driver


def _sources(
    graph: Graph, session: Session, place: CheckpointStore, starts: Mapping[str, SourceStart] = NO_STARTS,
    first: int | None = None, returns: bool = False,
) -> dict[str, SourcePlan]:  # fmt: skip
    """Source to the plan of its readers, numbered in order; its splits are computed once and kept for resumed runs.

    A source that a change adds, with a first number, is planned anew whatever had its name, unless it returns.
    """
    plans: dict[str, SourcePlan] = {}
    for name, operator in graph.by_name.items():
        if not operator.traits.is_source:
            continue
        number, fresh = (first or 0) + len(plans), first is not None and not returns
        kept = None if fresh else place.source(name, tuple[Split, ...])
        staging = join(place.staging, str(number)) if fresh else place.staging
        description, workers = operator.function, operator.workers
        time, start = operator.time, starts.get(name)
        plan = plan_source(description, session.spark, staging, name, workers, kept, time, start)
        plans[name] = replace(plan, number=number, cohort=operator.cohort)
        if kept is None:
            place.keep_source(name, plan.splits, number if fresh else None)
    return plans


def _tables(graph: Graph, session: Session, place: CheckpointStore) -> dict[str, bytes]:
    """Join to its staged table, pickled."""
    return {
        name: pickled(name, stage_table(operator.function, session.spark, place.staging))
        for name, operator in graph.by_name.items()
        if operator.traits.holds is Holds.TABLE
    }


def pickled_functions(graph: Graph) -> dict[str, bytes]:
    """Operator to its pickled function, except for sources, sinks and joins.

    Raises:
        DataflowError: a function cannot be pickled; names the operator.
    """
    return {
        name: pickled(name, operator.function)
        for name, operator in graph.by_name.items()
        if operator.function is not None and operator.traits.holds not in (Holds.ENDPOINT, Holds.TABLE)
    }


def _needed(place: CheckpointStore, path: str) -> bytes:
    """The user's definitions that the state of a checkpoint needs, pickled.

    Raises:
        CheckpointError: one is not there any more, and no change that was decided before has brought it.
        DataflowError: they cannot be pickled.
    """
    checkpoint, found = place.restoration.checkpoint, dict[Name, Any]()
    changed = {name for change in place.restoration.decided for name in change.targets}
    for operator, names in ({} if checkpoint is None else checkpoint.needs).items():
        for name in names:
            if (definition := imported(name)) is not None:
                found[name] = definition
            elif operator not in changed:
                raise CheckpointError(f"the state of {operator} in the checkpoint at {path} holds {gone(name)}")
    return pickled("the checkpoint", found, "classes of state") if found else b""


def _sinks(
    graph: Graph, spark: SparkSession, root: str, run: str, taken: Collection[str] = ()
) -> dict[str, RuntimeSink]:
    """Sink, or operator with dead letters, to its claimed target; none of these directories is one any more."""
    sinks: dict[str, RuntimeSink] = {}
    taken = set(taken)
    for name, operator in graph.by_name.items():
        given = _target(operator)
        if isinstance(given, str):
            continue
        if isinstance(given, Kafka):
            sinks[name] = _topic(name, given, join(root, SINKS, encoded(name)))
            sinks[name].claim(graph.name, run)
            continue
        if not isinstance(given, Memory | ParquetFiles | DeltaTable | CatalogTable):
            sinks[name] = _own_sink(name, given, graph.name, run)
            continue
        files = _files_of(given, spark, join(root, SINKS, encoded(name)))
        if resolved(files.path) in taken:
            raise DataflowError(f"two sinks write to {files.path}; each needs a directory of its own")
        files.claim(graph.name, run)
        sinks[name] = files
        taken.add(resolved(files.path))
    return sinks


def _claimed_sinks(graph: Graph, spark: SparkSession, root: str, place: CheckpointStore) -> dict[str, RuntimeSink]:
    """The sinks, with the output of the checkpoint that is resumed, if there is one, and stored there."""
    sinks = _sinks(graph, spark, root, place.flow.run)
    complete(place.restoration.checkpoint, sinks | removed_sinks(graph, place))
    for name, sink in sinks.items():
        place.keep_target(name, pickled(name, sink, "sink"))
    return sinks


def removed_sinks(graph: Graph, place: CheckpointStore) -> dict[str, RuntimeSink]:
    """The sinks of an earlier shape of the dataflow in which the checkpoint has parts, perhaps not committed yet.

    Raises:
        SinkError: one cannot be unpickled any more, or be written.
    """
    checkpoint, sinks = place.restoration.checkpoint, dict[str, RuntimeSink]()
    for name in () if checkpoint is None else checkpoint.sinks:
        if name in graph and _writes(graph.operator(name)):
            continue
        if (stored := place.target(name)) is None:
            raise SinkError(f"{place.path} holds rows of sink {name}, which this dataflow has not, and not where to")
        try:
            sinks[name] = pickle.loads(stored)
        except Exception as error:
            raise SinkError(f"sink {name}, which is removed, cannot be unpickled: {exception_text(error)}") from error
        sinks[name].claim(graph.name, place.flow.run)
    return sinks


def _writes(operator: Operator) -> bool:
    return not isinstance(_target(operator), str)


def _files_of(given: Memory | ParquetFiles | DeltaTable | CatalogTable, spark: SparkSession, kept: str) -> ParquetSink:
    """The sink of a target; ``kept`` is the directory of one that lasts as long as its run."""
    match given:
        case Memory():
            return ParquetSink(kept)
        case CatalogTable():
            return sink_of(given, spark)
        case DeltaTable():
            return DeltaSink(absolute(given.path), given.partition_by)
    return ParquetSink(absolute(given.path))


def _topic(name: str, given: Kafka, place: str) -> KafkaSink:
    """A topic, whose messages wait in a directory."""
    return KafkaSink(name, KafkaCluster(given.servers, given.config), given.topic, place, given.key, given.encode)


def _own_sink(name: str, given: OwnSink, flow: str, run: str) -> OwnSinkCopy:
    """A copy of the user's sink that has claimed its target, pickled with the user's own modules for the hosts."""
    copied = OwnSinkCopy(name, pickled(name, given, "sink"))
    copied.claim(flow, run)
    return OwnSinkCopy(name, pickled(name, copied.sink, "sink"))


def _target(operator: Operator) -> Any:
    """The target of a sink or of an operator's dead letters; the name of the error policy if there is no target."""
    return operator.function if operator.traits.is_sink else operator.on_error
