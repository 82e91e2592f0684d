"""The specification of a region for its hosts, equal for all of them and distributed by Spark."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from fries_nb.connectors.sink import RuntimeSink
from fries_nb.connectors.worker_reader import SourcePlan
from fries_nb.dataflow.arguments import is_duration
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.starts import SourceStart
from fries_nb.errors import DataflowError, OperatorError, exception_text
from fries_nb.operators.pickled_states import Definitions, note
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.progress_locations import progress_of
from fries_nb.protocol.topology import Topology
from fries_nb.protocol.trace import EarlierRecords
from fries_nb.storage.snapshot_files import SnapshotStore
from fries_nb.transport.sockets import HostKeys
from fries_nb.worker.snapshot import Redistribution

LEAST_STATE_BYTES = 1 << 20
"""The smallest limit of states in memory, in bytes."""


@dataclass(frozen=True)
class Options:
    """The options of ``Dataflow.run``, and those that only experiments set.

    Attributes:
        hosts: number of Spark tasks.
        budget: bytes that a host may buffer, in inboxes and in outboxes that wait for credit.
        audit: whether to record every data operation; by identities, so rows carry them.
        chaining: whether to run operators connected by forward edges in one thread.
        commit_interval_s: seconds between commits of the sinks; ``None`` commits once, at the end.
        silence_s: seconds without an answer on the network after which a machine counts as lost.
        port: TCP port of the controller; 0 for any free one.
        constraints: the latency constraints of the dataflow.
        buffer_bytes: size of output buffers, which are then sent only when they are full; 0 for buffers that are sent
            when a host would wait. Set by experiments only, as is the next.
        adapt: whether sizes of buffers, and chains, are adapted to keep constraints.
        fixed: the operators whose number of workers was declared, and which a rescale leaves as they are.
        recover: whether every commit is a checkpoint in the run's scratch directory, if it has no checkpoint directory;
            once one fails, the run goes on without.
        starts: where a new run begins to read sources, by name, if not at their beginnings.
        hide: the columns whose values are not to be shown.
        identities: whether every row carries the identity of its source tuple, and its cohort if a source names one.
        state_bytes: bytes of states that a host may have in memory, pickled; ``None`` for all of them.

    Raises:
        DataflowError: an option is not a number, or out of range.
    """

    hosts: int
    budget: int
    audit: bool
    chaining: bool
    commit_interval_s: float | None
    silence_s: float
    port: int
    constraints: tuple[LatencyConstraint, ...] = ()
    buffer_bytes: int = 0
    adapt: bool = True
    fixed: frozenset[str] = frozenset()
    recover: bool = False
    starts: Mapping[str, SourceStart] = field(default_factory=dict)
    hide: frozenset[str] = frozenset()
    identities: bool = False
    state_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "identities", self.identities or self.audit)
        if isinstance(self.budget, bool) or not isinstance(self.budget, int) or self.budget < 1:
            raise DataflowError(f"buffer_budget_bytes={self.budget!r}; expected a number of bytes, 1 or more")
        if self.commit_interval_s is not None and not is_duration(self.commit_interval_s):
            raise DataflowError(
                f"commit_interval_s={self.commit_interval_s!r}; expected seconds, more than 0 and at most a "
                "year, or None for the end only"
            )
        if self.state_bytes is not None and not _is_state_limit(self.state_bytes):
            raise DataflowError(
                f"state_bytes={self.state_bytes!r}; expected bytes of states in the memory of each host, at least "
                f"{LEAST_STATE_BYTES} (1 MiB), or None for all of them"
            )
        if not is_duration(self.silence_s):
            given = f"heartbeat_timeout_s={self.silence_s!r}"
            raise DataflowError(f"{given}; expected seconds, more than 0 and at most a year")
        if isinstance(self.port, bool) or not isinstance(self.port, int) or not 0 <= self.port <= 65535:
            raise DataflowError(f"port={self.port!r}; expected 1 to 65535, or 0 for any free one")
        if isinstance(self.buffer_bytes, bool) or not isinstance(self.buffer_bytes, int) or self.buffer_bytes < 0:
            raise DataflowError(f"buffer_bytes={self.buffer_bytes!r}; expected a number of bytes, or 0")


def _is_state_limit(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= LEAST_STATE_BYTES


@dataclass(frozen=True)
class Additions:
    """What hosts need for the operators that a change of the shape adds.

    Attributes:
        functions, sources, sinks: of these operators; see ``RegionSpec``.
        packed: the three, pickled with the user's own modules.
    """

    functions: Mapping[str, bytes] = field(repr=False)
    sources: Mapping[str, SourcePlan]
    sinks: Mapping[str, RuntimeSink]
    packed: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class RegionSpec:
    """The specification of one region for its hosts.

    Attributes:
        run: the run's id, used in names of files.
        incarnation: incarnation of the run when the stage was submitted.
        graph: the graph, without functions; see ``with_functions``.
        functions: operator to its pickled function.
        sources: source to what its readers need.
        sinks: sink, or operator with dead letters, to its target.
        controller: address of the control server.
        keys: the hosts' keys.
        interface: interface at which hosts listen for each other; empty for the address by which Spark knows their
            machine.
        options: the options of the run.
        snapshots: the location of snapshots.
        restoration: the state from which the workers start.
        earlier: worker to the records that the trace holds of earlier workers of its index, if there were any.
        needed: the user's definitions that restored state needs, pickled; empty if there are none.
        begun: operator to the number of workers with which it counts as begun, if that was in an earlier incarnation;
            see ``Topology``.
    """

    run: str
    incarnation: int
    graph: Graph
    functions: Mapping[str, bytes] = field(repr=False)
    sources: Mapping[str, SourcePlan]
    sinks: Mapping[str, RuntimeSink]
    controller: str
    keys: HostKeys
    interface: str
    options: Options
    snapshots: SnapshotStore = field(repr=False)
    restoration: Restoration = field(default=Restoration(None), repr=False)
    earlier: Mapping[WorkerId, EarlierRecords] = field(default_factory=dict)
    needed: bytes = field(default=b"", repr=False)
    begun: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def topology(self) -> Topology:
        """The initial topology: the workers dealt over the hosts in blocks."""
        tables = {name: RoutingTable(packed) for name, packed in self.restoration.tables.items()}
        return Topology.dealt(self.graph, self.options.hosts, self.options.chaining, tables, self.begun)

    @property
    def progress(self) -> ProgressGraph | None:
        """How workers learn what can still arrive; see ``progress_of``."""
        return progress_of(self.graph)

    @property
    def redistribution(self) -> Redistribution:
        """The assignment of the checkpoint's snapshots to workers."""
        return Redistribution.of(self.restoration, self.graph)

    def reshaped(self, graph: Graph, additions: Additions) -> RegionSpec:
        """The specification for a dataflow of another shape, with its numbers of workers and without functions."""

        def left(before: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
            return {name: one for name, one in {**before, **added}.items() if name in graph}

        return replace(
            self,
            graph=graph,
            functions=left(self.functions, additions.functions),
            sources=left(self.sources, additions.sources),
            sinks=left(self.sinks, additions.sinks),
        )

    def definitions(self) -> Definitions:
        """The definitions that restored state needs, unpickled on this host.

        Raises:
            OperatorError: one cannot be unpickled here.
        """
        try:
            definitions: Definitions = pickle.loads(self.needed) if self.needed else {}
            note(definitions, ())
        except (Exception, SystemExit) as error:
            words = f"the classes of restored state cannot be unpickled here: {exception_text(error)}"
            raise OperatorError(words, self.graph.operators[0].name) from error
        return definitions

    def with_functions(self, place: str) -> Graph:
        """The graph with a new copy of each function (chains depend on the functions), unpickled on this host.

        Raises:
            OperatorError: a function cannot be unpickled here.
        """
        operators = []
        for operator in self.graph.operators:
            payload = self.functions.get(operator.name)
            try:
                operators.append(operator if payload is None else replace(operator, function=pickle.loads(payload)))
            except (Exception, SystemExit) as error:
                raise OperatorError(
                    f"the function of {operator.name} cannot be unpickled on {place}: {exception_text(error)}; "
                    "is a module of yours missing there?",
                    operator.name,
                ) from error
        return replace(self.graph, operators=tuple(operators))


def without_functions(graph: Graph) -> Graph:
    """The graph as drivers and hosts are sent it; functions travel by themselves, pickled."""
    return replace(graph, operators=tuple(replace(operator, function=None) for operator in graph.operators))


class HostReport(msgspec.Struct, frozen=True):
    """The final report of a host, which is the output of its Spark task.

    Attributes:
        host: index of the host.
        pid: its process id.
        reason: why it has ended.
        error: the failure in one sentence; empty if the controller dismissed it.
        stuck: names of threads that did not end in time.
        processed: worker to the number of tuples that it has processed.
    """

    host: int
    pid: int
    reason: str
    error: str = ""
    stuck: tuple[str, ...] = ()
    processed: dict[str, int] = {}
