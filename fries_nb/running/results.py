"""What a run answers as plain values, with what is needed to show them: plans, verdicts, and the data of a report.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.planning.schedulers import schedule
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> shown = DataflowPlan.of(graph, schedule("fries", graph, ["FM", "MC"]))._repr_mimebundle_()
>>> list(shown), shown["text/plain"].splitlines()[0]
(['text/plain', 'text/html', 'image/svg+xml'],
 'FM, MC change together: the message goes to the head FM, and a marker travels from there along FM → MC.')
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fries_nb.audit import Verdict
from fries_nb.changes.change import Change
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState
from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.dataflow.graph import Graph
from fries_nb.displays import Displayed
from fries_nb.errors import TraceError
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.running_chains import ChainChange
from fries_nb.protocol.trace import SourceRow
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier
from fries_nb.telemetry.history import PlotMark, Point
from fries_nb.telemetry.metrics import MetricsSnapshot

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
    the newest changes that have ended.
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
