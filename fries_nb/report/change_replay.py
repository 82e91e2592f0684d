"""The replay of a change as a value that notebooks and reports show: pictures of its steps, one at a time.

A picture has the targets with the version that they run, the operators where the step happens in a ring, and as wide
lines the edges that the marker has travelled; those of this step are labelled.

>>> from fries_nb.controller.events import WorkerOutcome
>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.messages import WorkerId
>>> from fries_nb.scheduling import schedule
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> workers = {WorkerId(name, 0): WorkerOutcome(1.5) for name in ("FM", "MC")}
>>> result = ChangeResult("u1", "fries", "done", "", "", 0.0, 1.0, 0.9, 1.5, 0.0, (("FM", "MC"),), workers)
>>> replay = ChangeReplay.of(graph, schedule("fries", graph, ["FM", "MC"]), result)
>>> replay
1. The message leaves the controller for FM, past all queued tuples.
2. FM takes it between two tuples; FM switches 1.5 ms after the request, 0 tuples with the old function meanwhile.
3. The marker from FM reaches MC; MC switches 1.5 ms after the request, 0 tuples with the old function meanwhile.
4. Done 1.5 ms after the request.
>>> replay._repr_html_().count("<svg")
4
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fries_nb.changes import ChangeResult
from fries_nb.dataflow.graph import Graph
from fries_nb.report.dag import STATES, draw
from fries_nb.report.layout import layout
from fries_nb.report.markup import Html, inline, joined, tag
from fries_nb.report.replay_steps import NO_COUNTS, Counts, ReplayStep, replay_steps
from fries_nb.report.stepper import stepper
from fries_nb.scheduling import Plan
from fries_nb.trace import Ran, RanMany, Record, Updated

MOST_BOXES = 2_000
"""Boxes of operators over all pictures of a replay; one with more is shown in words."""
_WHOLE = 30
"""Operators up to which the whole dataflow is drawn, and not only the part in which something happens."""
_WIDTH = 900.0
_STYLE = re.compile("<style>.*?</style>", re.DOTALL)


@dataclass(frozen=True, repr=False)
class ChangeReplay:
    """The replay of a change. A notebook shows it as pictures to step through.

    Attributes:
        change: id of the change.
        graph: the dataflow.
        steps: the steps in order.
    """

    change: str
    graph: Graph
    steps: tuple[ReplayStep, ...]

    @staticmethod
    def of(graph: Graph, plan: Plan, result: ChangeResult, counts: Counts = NO_COUNTS) -> ChangeReplay:
        """The replay of a change; see ``replay_steps``."""
        return ChangeReplay(result.change, graph, replay_steps(graph, plan, result, counts))

    def __repr__(self) -> str:
        return "\n".join(f"{number}. {step.words}" for number, step in enumerate(self.steps, start=1))

    def _repr_html_(self) -> Html:
        return tag("div", frames_html(self.graph, f"Steps of change {self.change}", self.steps))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def frames_html(graph: Graph, name: str, steps: Sequence[ReplayStep]) -> Html:
    """The steps as frames to step through.

    Args:
        graph: the dataflow.
        name: name of the frames, for screen readers.
        steps: the steps.
    """
    is_whole = len(graph.operators) <= _WHOLE or graph.heads  # loops are drawn as a whole
    part = graph if is_whole else _part(graph, steps)
    words = [tag("p", step.words) for step in steps]
    if len(part.operators) * len(steps) > MOST_BOXES:
        return tag("ol", *(tag("li", step.words) for step in steps))
    pictures = [step_svg(part, step) for step in steps]
    pictures[1:] = [_STYLE.sub("", drawing) for drawing in pictures[1:]]  # the style of the first one applies to all
    frames = [joined([inline(drawing), said]) for drawing, said in zip(pictures, words, strict=True)]
    return stepper(name, frames)


def step_svg(graph: Graph, step: ReplayStep) -> str:
    """The dataflow in one step.

    Args:
        graph: the dataflow, or the part of it in which something happens.
        step: the step.

    Returns:
        An ``<svg>`` element.
    """
    states = {name: words for name, words in step.states.items() if name in graph}
    found = {word for words in states.values() for word in words.split()}
    legend = {state: words for state, words in STATES.items() if state in found}
    labels = dict.fromkeys(step.edges, "marker")
    placed = layout(graph, _WIDTH, labelled=True)
    return draw(graph, placed, states, labels, {}, step.travelled, legend, {}, step.versions)


def _part(graph: Graph, steps: Iterable[ReplayStep]) -> Graph:
    """The operators at which something happens, and the edges between them."""
    names = {name for step in steps for name in [*step.states, *(end for ends in step.edges for end in ends)]}
    operators = tuple(one for one in graph.operators if one.name in names)
    return Graph(graph.name, operators, tuple(edge for edge in graph.edges if {edge.source, edge.to} <= names))


def operations_around(records: Iterable[Record], change: str) -> Counts:
    """The data operations of a trace before and after the switch to a change.

    Args:
        records: the records, those of each worker in order.
        change: id of the change.

    Returns:
        Operator to the number of operations of its workers that switched, before and after their switch. Operators with
        a worker that switched to it twice, as after a recovery, are omitted.
    """
    counts: dict[tuple[str, int], list[int]] = {}
    switches: dict[tuple[str, int], int] = {}
    for record in records:
        if isinstance(record, (Ran, RanMany)):
            worker = (record.operator, record.worker)
            number = len(record.transactions) if isinstance(record, RanMany) else 1
            counts.setdefault(worker, [0, 0])[worker in switches] += number
        elif isinstance(record, Updated) and record.id == change:
            worker = (record.operator, record.worker)
            switches[worker] = switches.get(worker, 0) + 1
    twice = {operator for (operator, _), times in switches.items() if times > 1}
    found: dict[str, tuple[int, int]] = {}
    for worker in (worker for worker in switches if worker[0] not in twice):
        before, after = counts.get(worker, [0, 0])
        was = found.get(worker[0], (0, 0))
        found[worker[0]] = (was[0] + before, was[1] + after)
    return found
