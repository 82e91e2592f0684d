"""What the sources of a run read, where they are, and how far they are behind: ``run.explain()``.

>>> from fries_nb.dataflow.builder import DataflowBuilder
>>> from fries_nb.dataflow.endpoints import memory, rate
>>> flow = DataflowBuilder("numbers")
>>> out = flow.source("S", rate(1_000)).sink("out", memory())
>>> reading = Reading(("row 7", "row 23"), behind=1_204, behind_ns=2_500_000_000)
>>> report = Report(WorkerId("S", 0), processed=30, queued=0, reading=reading)
>>> Explanation(source_states(flow.graph(workers=1), [report], over=False))
S reads generated rows, 1,000 a second: 30 read, 1,204 behind for 2.5 s
   S[0]: row 7; row 23
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fries_nb.dataflow.graph import Graph
from fries_nb.protocol.checkpoints import Reading
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.words import counted, duration


@dataclass(frozen=True)
class SourceState:
    """How far a source is.

    Attributes:
        source: name of the source.
        reads: what it reads, as declared.
        read: number of rows that were read since the start or the last recovery.
        places: worker to where the next rows of its splits are.
        behind: number of rows that are due, or known to be there, and have not been read; ``None`` if unknown.
        behind_s: seconds for which the oldest of them has waited; ``None`` if unknown.
        ended: whether all of it has been read, or the run is over.
        skipped: number of lines that were left out, since they are no rows.
        last_skipped: the last of them, and why it is none.
    """

    source: str
    reads: str
    read: int
    places: dict[str, tuple[str, ...]]
    behind: int | None
    behind_s: float | None
    ended: bool
    skipped: int = 0
    last_skipped: str = ""

    def __str__(self) -> str:
        facts = [f"{self.read:,} read"]
        if self.ended:
            facts.append("at its end")
        elif self.behind is not None:
            facts.append(f"{self.behind:,} behind{self._since}" if self.behind else "not behind")
        if self.skipped:
            facts.append(f"{counted(self.skipped, 'line')} skipped (the last: {self.last_skipped})")
        lines = [f"{self.source} reads {self.reads}: {', '.join(facts)}"]
        lines += [f"   {worker}: {'; '.join(places) or 'nothing yet'}" for worker, places in self.places.items()]
        return "\n".join(lines)

    @property
    def _since(self) -> str:
        return f" for {duration(self.behind_s)}" if self.behind_s is not None else ""


class Explanation:
    """The sources of a run at a moment, and what is wrong with it; printed as text.

    Attributes:
        sources: the state of each source, in the order of their declaration.
        error: what is wrong, as in ``Run.error``; empty if nothing is.
    """

    def __init__(self, sources: Iterable[SourceState], error: str = "") -> None:
        self.sources = tuple(sources)
        self.error = error

    def __repr__(self) -> str:
        return "\n".join([*map(str, self.sources), *filter(None, [self.error])])


def source_states(graph: Graph, reports: Iterable[Report], over: bool) -> tuple[SourceState, ...]:
    """The states of a dataflow's sources."""
    found: dict[str, list[Report]] = {name: [] for name in graph.sources}
    for report in reports:
        if report.worker.operator in found:
            found[report.worker.operator].append(report)
    by_worker = {name: sorted(some, key=lambda one: one.worker) for name, some in found.items()}
    return tuple(_state(graph, name, known, over) for name, known in by_worker.items())


def lag(state: SourceState, least_s: float) -> str:
    """How far a source is behind, if that is ``least_s`` seconds or more; else empty.

    >>> lag(SourceState("S", "a log", 9, {}, behind=3, behind_s=2.0, ended=False), 1.0)
    'S is 3 rows and 2 s behind'
    """
    if state.ended or state.behind is None or state.behind_s is None or state.behind_s < least_s:
        return ""
    return f"{state.source} is {counted(state.behind, 'row')} and {duration(state.behind_s)} behind"


def _state(graph: Graph, source: str, reports: list[Report], over: bool) -> SourceState:
    readings: dict[WorkerId, Reading] = {one.worker: one.reading for one in reports if one.reading is not None}
    reading = {worker: one for worker, one in readings.items() if not one.ended}
    rows = [one.behind for one in readings.values() if one.behind is not None]
    waited = [one.behind_ns for one in readings.values() if one.behind_ns is not None]
    return SourceState(
        source,
        _described(graph.operator(source).function),
        sum(report.processed for report in reports),
        {str(worker): one.places for worker, one in reading.items()},
        sum(rows) if rows else None,
        max(waited) / 1e9 if waited else None,
        over or bool(reports and not reading),
        sum(one.skipped for one in readings.values()),
        next((one.last_skipped for one in readings.values() if one.last_skipped), ""),
    )


def _described(what: object) -> str:
    """A source as text: what it says of itself, or else the name of its class."""
    return str(what) if type(what).__str__ is not object.__str__ else type(what).__name__
