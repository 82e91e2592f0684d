"""What a run answers as plain values, with what is needed to show them: plans, verdicts, its trace, a report's data.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.planning.schedulers import schedule
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> shown = DataflowPlan.of(graph, schedule("fries", graph, ["FM", "MC"]))._repr_mimebundle_()
>>> list(shown), shown["text/plain"].splitlines()[0]
(['text/plain', 'text/html', 'image/svg+xml'],
 'FM, MC change together: the message goes to the head FM, and a marker travels from there along FM → MC.')
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import msgspec

from fries_nb.audit import Verdict
from fries_nb.changes.change import Change
from fries_nb.changes.change_examples import Examples
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState
from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.regions import Region
from fries_nb.displays import Displayed
from fries_nb.errors import TraceError
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.running_chains import ChainChange
from fries_nb.protocol.trace import (
    Emitted,
    Ran,
    RanMany,
    Record,
    Requeued,
    SourceRow,
    TraceFlow,
    WorkerRecord,
    flow_of,
    traced_of,
)
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier
from fries_nb.telemetry.history import PlotMark, Point
from fries_nb.telemetry.metrics import MetricsSnapshot
from fries_nb.transport.envelopes import Packed, unpack

if TYPE_CHECKING:
    from fries_nb.running.shadows import Shadow


@dataclass(frozen=True)
class Part:
    """The trace of one region.

    Attributes:
        region: the region.
        packed: the records of its workers, packed.
        resumed: whether it was resumed from a checkpoint of an earlier run, whose trace is not included.
        before: the changes that this checkpoint includes.
        finished: whether all of its workers have ended.
        workers: operator to the number of its workers that are there, or have left records.
        shapes: the first dataflow, and each that a change of the shape, which comes first, has made of it.
    """

    region: Region
    packed: Iterable[Packed]
    resumed: bool
    before: tuple[str, ...]
    finished: bool
    workers: Mapping[str, int]
    shapes: Sequence[tuple[str, Graph]]

    def flows(self) -> Iterator[TraceFlow]:
        """The description of each of these dataflows."""
        for number, (change, graph) in enumerate(self.shapes):
            flow = flow_of(graph, self.resumed and not number, self.finished, self.before, change)
            yield msgspec.structs.replace(flow, workers=traced_of(flow, self.workers))


@dataclass(frozen=True)
class RunTrace:
    """The records of a run at one moment; can be iterated repeatedly.

    Attributes:
        parts: the trace of each region so far.
    """

    parts: tuple[Part, ...]

    def __iter__(self) -> Iterator[Record]:
        for number, part in enumerate(self.parts):
            named = _namer(number, part.region)
            yield from (_flow(named, flow) for flow in part.flows())
            for packed in part.packed:
                yield in_region(number, named, unpack(packed))


def _namer(number: int, region: Region) -> Callable[[str], str]:
    """A function from a region's operators to their names in the trace.

    Inputs and sinks at which the dataflow was cut may occur in several regions; their names are prefixed by the
    region's number.
    """
    own = frozenset(region.own)
    return lambda name: name if name in own or not number else f"{number + 1}/{name}"


def _flow(named: Callable[[str], str], flow: TraceFlow) -> TraceFlow:
    links = tuple(msgspec.structs.replace(link, source=named(link.source), to=named(link.to)) for link in flow.links)
    workers = {named(operator): workers for operator, workers in flow.workers.items()}
    return msgspec.structs.replace(flow, workers=workers, links=links)


def in_region(number: int, named: Callable[[str], str], record: WorkerRecord) -> WorkerRecord:
    """A record with names that are unique over regions: source tuples of later regions get the region's number.

    >>> in_region(1, str.lower, RanMany((7, 8), "FM"))
    RanMany(transactions=('2/7', '2/8'), operator='fm', worker=0, function=None)
    """
    if not number:
        return record
    changes: dict[str, Any] = {"operator": named(record.operator)}
    if isinstance(record, (RanMany, Emitted, Requeued)):
        changes["transactions"] = tuple(f"{number + 1}/{transaction}" for transaction in record.transactions)
    elif isinstance(record, Ran):
        changes["transaction"] = f"{number + 1}/{record.transaction}"
    return msgspec.structs.replace(record, **changes)


MOST_REPLAYS = 8
"""Number of changes, the newest ones, of which a story has the replay."""
MOST_EXAMPLES = 12
"""Number of places where tuples mixed versions, and of tuples lost or duplicated, that the text of a verdict names."""


@dataclass(frozen=True)
class Place:
    """The setting of a run: start time, size and software.

    Attributes:
        began_s: start time in seconds since the Unix epoch.
        hosts: number of Spark tasks.
        budget: bytes of credit of each host.
    """

    began_s: float
    hosts: int
    budget: int


@dataclass(frozen=True)
class Story:
    """The data of a run so far. ``verdict`` is ``None`` without a trace, and an error if the trace cannot be judged.

    ``constraints`` are the latency constraints as last judged, ``judged`` their states over time; ``sizes`` are those
    of output buffers over time, ``chains`` the changes of chains; ``frontiers`` and ``loops`` as last reported;
    ``topology`` has the hosts, ``topologies`` those before the first rescale and after each one; ``replays`` those of
    the newest changes that have ended, ``examples`` by their ids what they made of recent rows, as far as that is kept;
    ``shadows`` those that were requested.
    """

    graph: Graph
    place: Place
    state: str
    error: str
    details: str
    points: Sequence[Point]
    marks: Sequence[PlotMark]
    changes: Sequence[Change]
    snapshot: MetricsSnapshot
    verdict: Verdict | TraceError | None
    constraints: Sequence[ConstraintState] = ()
    judged: Sequence[ConstraintPoint] = ()
    sizes: Sequence[BufferSize] = ()
    chains: Sequence[ChainChange] = ()
    frontiers: Sequence[OperatorFrontier] = ()
    loops: Sequence[LoopState] = ()
    topology: TopologyStatus | None = None
    topologies: Sequence[HostCount] = ()
    replays: Sequence[ChangeReplay] = ()
    examples: Mapping[str, Examples] = field(default_factory=dict)
    shadows: Sequence[Shadow] = ()


@dataclass(frozen=True, kw_only=True)
class DataflowPlan(Displayed, Plan):
    """A plan with its dataflow. A notebook shows it as words and picture.

    Attributes:
        graph: the dataflow.
    """

    graph: Graph = field(repr=False, compare=False)

    @staticmethod
    def of(graph: Graph, plan: Plan) -> DataflowPlan:
        """The plan with its dataflow."""
        return DataflowPlan(**_values(plan, Plan), graph=graph)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict(Displayed, Verdict):
    """The verdict on a run, with its dataflow. A notebook shows what a mixed source tuple met, and the cycle.

    Attributes:
        graph: the dataflow.
        labels: change id to a description of the change.
        naive: the changes that were made by naive FCM, with their targets.
    """

    graph: Graph = field(repr=False, compare=False)
    labels: Mapping[str, str] = field(repr=False, compare=False)
    naive: Mapping[str, Collection[str]] = field(repr=False, compare=False)

    @staticmethod
    def of(
        verdict: Verdict, graph: Graph, changes: Iterable[Change], row_of: Callable[[int], SourceRow | None]
    ) -> RunVerdict:
        """The verdict on a run of a dataflow with these changes; ``row_of`` finds the row of a source tuple."""
        asked = list(changes)
        labels = {change.id: change.label for change in asked}
        found = {identity: row_of(identity) for identity in mentioned(verdict)}
        rows = {identity: row for identity, row in found.items() if row is not None}
        known = _values(replace(verdict, rows=rows), Verdict)
        return RunVerdict(**known, graph=graph, labels=labels, naive=naive_targets(asked))


def mentioned(verdict: Verdict) -> list[int]:
    """The identities of the source tuples that these texts name.

    >>> from fries_nb.audit import Mixed
    >>> mentioned(Verdict(False, (Mixed(9, "u1", ("FM",), ("MC",)),), ("7", "u1"), ("FM", "MC"), 9, 1))
    [7, 9]
    """
    groups: dict[tuple[object, ...], str | int] = {}
    for entry in verdict.mixed:
        groups.setdefault((entry.update, entry.old, entry.new), entry.transaction)
    astray = [one.transaction for one in (*verdict.lost, *verdict.doubled)[:MOST_EXAMPLES]]
    names = map(str, (*verdict.cycle, *groups.values(), *astray))
    return list(dict.fromkeys(int(name) for name in names if name.isdigit()))


def naive_targets(changes: Iterable[Change]) -> dict[str, frozenset[str]]:
    """The changes that were made by naive FCM, with their targets."""
    return {change.id: change.plan.targets for change in changes if change.plan.scheduler == "naive"}


def _values(given: Any, kind: type) -> dict[str, Any]:
    """The fields of a dataclass, of a value that may have more."""
    return {one.name: getattr(given, one.name) for one in fields(kind)}
