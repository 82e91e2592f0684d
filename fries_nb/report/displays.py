"""Results of the API that notebooks show in words and pictures: the plan of a change, and the verdict on a run.

Both are the plain values, with the dataflow that pictures need. IPython calls ``_repr_mimebundle_``; nothing here
depends on it.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.scheduling import schedule
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> shown = DataflowPlan.of(graph, schedule("fries", graph, ["FM", "MC"]))._repr_mimebundle_()
>>> list(shown), shown["text/plain"].splitlines()[0]
(['text/plain', 'text/html', 'image/svg+xml'],
 'FM, MC change together: the message goes to the head FM, and a marker travels from there along FM → MC.')
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fries_nb.audit import Verdict
from fries_nb.changes import Change
from fries_nb.dataflow.graph import Graph
from fries_nb.planning.counter_example import counter_example
from fries_nb.report.audit_section import cycle, mentioned, sentence, verdict_parts, verdict_svgs
from fries_nb.report.example_section import example_lines
from fries_nb.report.markup import stacked, tag
from fries_nb.report.plan_section import in_words, plan_drawing, plan_parts
from fries_nb.scheduling import Plan
from fries_nb.trace import SourceRow


@dataclass(frozen=True, kw_only=True)
class DataflowPlan(Plan):
    """A plan with its dataflow. A notebook shows it as words and picture.

    Attributes:
        graph: the dataflow.
    """

    graph: Graph = field(repr=False, compare=False)

    @staticmethod
    def of(graph: Graph, plan: Plan) -> DataflowPlan:
        """The plan with its dataflow."""
        return DataflowPlan(**_values(plan, Plan), graph=graph)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        example = counter_example(self.graph, self.targets)
        steps = [] if example is None else example_lines(example)
        return {
            "text/plain": "\n".join([*in_words(self.graph, self), *steps]),
            "text/html": tag("div", plan_parts(self.graph, self)),
            "image/svg+xml": plan_drawing(self.graph, self),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict(Verdict):
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

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        words = [sentence(self), *([f"Cycle: {cycle(self)}"] if self.cycle else [])]
        parts = tag("div", verdict_parts(self, self.labels, self.graph, self.naive))
        bundle: dict[str, str] = {"text/plain": "\n".join(words), "text/html": parts}
        if self.cycle:
            drawings = [drawing for drawing, _ in verdict_svgs(self, self.labels, self.graph)]
            bundle["image/svg+xml"] = stacked(*drawings)
        return bundle


def naive_targets(changes: Iterable[Change]) -> dict[str, frozenset[str]]:
    """The changes that were made by naive FCM, with their targets."""
    return {change.id: change.plan.targets for change in changes if change.plan.scheduler == "naive"}


def _values(given: Any, kind: type) -> dict[str, Any]:
    """The fields of a dataclass, of a value that may have more."""
    return {one.name: getattr(given, one.name) for one in fields(kind)}
