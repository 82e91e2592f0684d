"""What was seen of operators before changes, for what is told about their effect later.

Nothing of that is on the way of a change. When it begins, what operators have counted in the last minute is kept, and
the workers of the sinks below are asked for their newest rows. Workers of its operators keep their last results by
reference when they switch, and are asked for these when the change is done. Answers are kept as they come, and nothing
waits for them. All of it is kept of the last ``KEPT`` changes, in the process of the run's handle.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import networkx as nx
import pyarrow as pa

from fries_nb.changes.change import Change
from fries_nb.changes.change_effect import LEAST_S, ChangeEffect, CountedSpan, Seen, measures_of, span_of
from fries_nb.controller.events import ChangeRequested, Outcome
from fries_nb.dataflow.columns import DUE, HIDDEN
from fries_nb.dataflow.graph import Graph
from fries_nb.driver.driver import Driver
from fries_nb.driver.open_questions import Looked
from fries_nb.errors import PlanError
from fries_nb.protocol.messages import LookAtRows, RowsSeen
from fries_nb.telemetry.history import COUNTED_S, CountSample
from fries_nb.telemetry.telemetry import Telemetry

KEPT = 16
"""Number of changes, the newest ones, of which this is kept."""
ROWS = 100
"""Number of the newest rows of each worker that are asked for."""
REPORTED_S = 1.0
"""Seconds after which workers have reported what they had done before: counts begin so long after a switch."""
_LOOK_S = 0.1


class RecordedRun(Protocol):
    """What the records need of a run."""

    @property
    def graph(self) -> Graph:
        """The dataflow, as it is now."""

    @property
    def ended(self) -> threading.Event:
        """Set when all resources of the run are released."""

    @property
    def telemetry(self) -> Telemetry:
        """Its telemetry."""

    @property
    def hide(self) -> frozenset[str]:
        """The columns that are masked in what is shown."""

    def driver_of(self, operator: str) -> Driver | None:
        """The driver of the operator's region; ``None`` if that has not begun."""


class RowQuestions(Protocol):
    """What asks the workers of an operator for rows."""

    def ask_later(self, driver: Driver, operator: str, look: LookAtRows, then: Callable[[Looked], None]) -> None:
        """Ask, and pass the answer on when it comes."""

    def newest_rows(self, operator: str, look: LookAtRows, timeout: float) -> list[RowsSeen]:
        """Ask, and wait for the answer."""


@dataclass
class _Before:
    """What was seen before a change."""

    at_s: float
    samples: tuple[CountSample, ...]
    graph: Graph
    is_of_shape: bool = False
    rows: dict[str, Sequence[RowsSeen]] = field(default_factory=dict)
    drivers: dict[str, Driver] = field(default_factory=dict)  # of the operators that it replaces


class ChangeRecords:
    """What was seen before the changes of a run."""

    def __init__(self, run: RecordedRun, questions: RowQuestions) -> None:
        self._run = run
        self._questions = questions
        self._before: dict[str, _Before] = {}

    def begins(self, asked: ChangeRequested, driver: Driver) -> None:
        """A change begins in a region, whose driver has its request: ask the sinks for the rows of now."""
        if asked.is_trial:
            return
        graph = self._run.graph  # still that from before a change of the shape
        names = watched(graph, asked.plan.targets)
        is_of_shape, samples = asked.shape is not None, self._run.telemetry.counts(names)
        before = self._before.setdefault(asked.change, _Before(time.time(), samples, graph, is_of_shape))
        while len(self._before) > KEPT:
            del self._before[next(iter(self._before))]
        # Workers that send on other edges, or end, keep no results for later: they are asked at once, as sinks are.
        replaced = frozenset[str]() if is_of_shape else asked.plan.targets
        before.drivers |= dict.fromkeys(replaced, driver)
        for name in driver.core.region.graph.by_name.keys() & set(names) - replaced:
            look = LookAtRows(0, ROWS, side=_side(graph, name))
            self._questions.ask_later(driver, name, look, partial(_keep, before, name))

    def ends(self, outcome: Outcome) -> None:
        """A change has ended in a region: if it is done, ask its workers for the rows that they gave before."""
        before = self._before.get(outcome.change)
        if before is None or outcome.outcome != "done":
            return
        for name in {worker.operator for worker in outcome.per_worker} & before.drivers.keys():
            look = LookAtRows(0, ROWS, side="out", before=outcome.change)
            self._questions.ask_later(before.drivers[name], name, look, partial(_keep, before, name))

    def effect(
        self, change: Change, carried_out: str, window: float, timeout: float, since: Sequence[str]
    ) -> ChangeEffect:  # fmt: skip
        """What a change that is done has altered; see ``Change.effect``.

        Args:
            change: the change.
            carried_out: the id under which it was carried out.
            window: seconds at most.
            timeout: seconds to wait for the workers of each operator.
            since: ids of later changes of the same operators.
        """
        before = self._before.get(carried_out)
        if before is None:
            why = f"it was made before the first row came, or is none of the last {KEPT}"
            raise PlanError(f"of change {change.id} nothing was seen when it began: {why}")
        ended_s = change.ended_s(change.result(0), time.time())
        while time.time() - ended_s < LEAST_S + REPORTED_S + 2 * COUNTED_S and not self._run.ended.wait(_LOOK_S):
            pass  # until there are samples of a window
        graph, targets = self._run.graph, change.plan.targets
        if before.is_of_shape:
            targets |= {name for name in graph if name not in before.graph}
        elif gone := sorted(name for name in targets if name not in graph):
            raise PlanError(f"change {change.id} has no effect any more: {gone[0]} was removed since")
        was, names = watched(before.graph, change.plan.targets), watched(graph, targets)
        later = [one for one in self._run.telemetry.counts(names) if one.at_s >= ended_s + REPORTED_S]
        spans = same_spans([one for one in before.samples if one.at_s <= before.at_s], later, window)
        looks = {name: LookAtRows(0, ROWS, side=_side(graph, name)) for name in names}
        # Those of a region that has not begun give no rows yet.
        seen = {name: self._questions.newest_rows(name, look, timeout) for name, look in looks.items()
                if self._run.driver_of(name)}  # fmt: skip
        rows = _rows_of_each(before.graph, was, before.rows, 0.0), _rows_of_each(graph, names, seen, ended_s)
        sides = [Seen(span.counts, span.seconds, each) for span, each in zip(spans, rows, strict=True)]
        names = list(dict.fromkeys((*names, *was)))
        words = told_of(names, sides, since)
        return ChangeEffect(change.id, tuple(measures_of(names, *sides)), words, self._run.hide)


def watched(graph: Graph, targets: Iterable[str]) -> list[str]:
    """The operators that a change concerns, as far as they are there, and the sinks below, in the order of the flow.

    Without what copies rows for several consumers, and leaves them as they are.
    """
    there = {name for name in targets if name in graph}
    below = {name for one in there for name in nx.descendants(graph.digraph, one)}
    told = {name for name in there if not graph.operator(name).traits.copies}
    return [name for name in graph.order if name in told or (name in below and graph.operator(name).traits.is_sink)]


def same_spans(
    before: Sequence[CountSample], after: Sequence[CountSample], window: float
) -> tuple[CountedSpan, CountedSpan]:  # fmt: skip
    """What was counted before and after in windows of the same length; none if one of them is too short."""
    lengths = [one[-1].at_s - one[0].at_s if one else 0.0 for one in (before, after)]
    seconds = min(window, *lengths)
    if seconds < LEAST_S:
        return CountedSpan({}, 0.0), CountedSpan({}, 0.0)
    return span_of(before, seconds), span_of(after, seconds)


def told_of(names: Sequence[str], sides: Sequence[Seen], since: Sequence[str]) -> str:
    """Of which windows and how many rows figures are, in words."""
    before, after = sides
    rates = f"counts are of {before.seconds:.1f} s before the change began and of the last {after.seconds:.1f} s"
    if not before.seconds or not after.seconds:
        rates = f"there are no rates, since less than {LEAST_S:g} s was seen before the change or since"
    rows = [f"{name} {len(before.rows.get(name, ())):,} and {len(after.rows.get(name, ())):,}" for name in names]
    words = f"{rates}; columns are of the newest rows then and now: {', '.join(rows)}"
    return f"{words}; {', '.join(since)} changed the same since" if since else words


def _keep(before: _Before, operator: str, told: Looked) -> None:
    """The workers of an operator have told what they had before a change."""
    before.rows[operator] = [part for part in told.parts if isinstance(part, RowsSeen) and not part.error]


def _rows_of_each(
    graph: Graph, names: Iterable[str], seen: Mapping[str, Iterable[RowsSeen]], from_s: float
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    return {name: list(_rows(graph, name, seen.get(name, ()), from_s)) for name in names}


def _rows(graph: Graph, operator: str, seen: Iterable[RowsSeen], from_s: float) -> Iterator[dict[str, Any]]:
    """The newest rows that an operator gave; those that a sink took, which were due from some time on.

    What was due after a change is certainly of it. Results of a changed operator from before are not kept by workers.
    """
    is_sink = _side(graph, operator) == "in"
    for one in seen:
        for part in pickle.loads((one.came if is_sink else one.went) or _NONE):
            for row in part.to_pylist() if isinstance(part, pa.RecordBatch) else [part]:
                if not is_sink or row.get(DUE, 0) / 1e9 >= from_s:
                    yield {name: value for name, value in row.items() if name not in HIDDEN}


def _side(graph: Graph, operator: str) -> str:
    """The rows of an operator that are told of: those that a sink takes, and those that others give."""
    return "in" if graph.operator(operator).traits.is_sink else "out"


_NONE = pickle.dumps([])
