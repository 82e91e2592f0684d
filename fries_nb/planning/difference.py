"""The difference of two dataflows: what was added, removed, changed and rewired, and what becomes of each state.

Operators are matched by name. A cell that is run again declares new objects, so functions are compared by what they do
(see ``dataflow.sameness``). What stands behind a stream that is consumed twice was not declared, and is left out.

>>> from fries_nb.dataflow.graph import Edge, Kind, Operator
>>> def chain(*operators):
...     names = [operator.name for operator in operators]
...     return Graph("fraud", operators, tuple(map(Edge, names, names[1:])))
>>> s, out = Operator("S", kind=Kind.SOURCE), Operator("out", kind=Kind.SINK)
>>> before = chain(s, Operator("FM", function=lambda row: row | {"p": 1}), Operator("Old"), out)
>>> after = chain(s, Operator("FM", function=lambda row: row | {"p": 2}), Operator("Rule"), out)
>>> difference = Difference.of(before, after)
>>> difference
fraud: 1 operator added, 1 removed, 1 changed, 2 edges added, 2 removed
+ Rule (map)
- Old (map)
~ FM: function: its code
+ FM -> Rule, Rule -> out
- FM -> Old, Old -> out
>>> difference.has_new_shape, Difference.of(before, before)
(True, fraud: no difference)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from fries_nb.dataflow.builder import is_copy
from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.dataflow.join_bounds import StreamJoin
from fries_nb.dataflow.operators import takes_state
from fries_nb.dataflow.sameness import unlike
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import returning
from fries_nb.dataflow.windowing import ConfiguredFunction, WindowFunction
from fries_nb.displays import Displayed
from fries_nb.words import counted

Ends = tuple[str, str]

NOTHING: Mapping[str, Any] = MappingProxyType({})
KEPT, EMPTY, DROPPED = "its state is kept", "it starts with an empty state", "its state is dropped"


@dataclass(frozen=True, slots=True)
class OperatorDifference:
    """An operator that both dataflows have, and that differs.

    Attributes:
        name: its name.
        aspects: what differs (``function``, ``workers``, ``key``, ...), and how, in words.
    """

    name: str
    aspects: Mapping[str, str]

    @property
    def words(self) -> str:
        """The differences in a line."""
        return "; ".join(f"{aspect}: {words}" for aspect, words in self.aspects.items())


@dataclass(frozen=True, repr=False)
class Difference(Displayed):
    """What tells one dataflow from another of the same name; as text a line for each operator.

    A notebook shows it as a picture as well: of both dataflows in one, what is added, removed, changed.

    Attributes:
        before: the earlier dataflow.
        after: the later one.
        added: names of the operators that only the later one has, in order of declaration.
        removed: names of those that only the earlier one has.
        changed: those that both have and that differ.
        edges_added: the ends of edges that only the later one has.
        edges_removed: the ends of edges that only the earlier one has.
        edges_changed: edges that both have, and how they differ, in words.
        states: operator with state to what becomes of it, in words.
    """

    before: Graph
    after: Graph
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[OperatorDifference, ...]
    edges_added: tuple[Ends, ...]
    edges_removed: tuple[Ends, ...]
    edges_changed: Mapping[Ends, str]
    states: Mapping[str, str]

    @staticmethod
    def of(
        before: Graph, after: Graph, running: Mapping[str, Any] = NOTHING, shipped: Mapping[str, Any] = NOTHING
    ) -> Difference:
        """The difference of two dataflows.

        Args:
            before: the earlier one.
            after: the later one.
            running: operator to what it runs now, where that is not what the earlier dataflow declares.
            shipped: operator to a copy of its later function as hosts would have it, where that tells more than the
                function itself: objects and globals of a notebook may have been changed in place.
        """
        ran = {name: operator.function for name, operator in before.by_name.items()} | dict(running)
        runs = {name: operator.function for name, operator in after.by_name.items()} | dict(shipped)
        both = [name for name in after if name in before and not _is_copy(after, name)]
        found = ((name, _aspects(before.operator(name), after.operator(name), ran[name], runs[name])) for name in both)
        changed = tuple(OperatorDifference(name, aspects) for name, aspects in found if aspects)
        added = tuple(name for name in after if name not in before and not _is_copy(after, name))
        removed = tuple(name for name in before if name not in after and not _is_copy(before, name))
        was, now = _edges(before), _edges(after)
        rewired = {ends: words for ends, edge in now.items() if ends in was and (words := _edge_words(was[ends], edge))}
        return Difference(
            before,
            after,
            added,
            removed,
            changed,
            tuple(ends for ends in now if ends not in was),
            tuple(ends for ends in was if ends not in now),
            rewired,
            _states(before, after, ran),
        )

    @property
    def functions(self) -> dict[str, Any]:
        """Operator to its later function, for those whose function or table differs: a change for ``reconfigure``.

        That of a window or reduce is an ``Update`` of its function and windows, and that of an operator with ``ttl=``
        one of its function and this.
        """
        names = [operator.name for operator in self.changed if "function" in operator.aspects]
        later = {name: self.after.operator(name).function for name in names if _is_changeable(self.after, name)}
        return later | {
            name: returning(ran, None, None) for name, ran in later.items() if isinstance(ran, ConfiguredFunction)
        }

    @property
    def workers(self) -> dict[str, int]:
        """Operator to its later number of workers, for those whose number differs: a rescale, beside a change."""
        return {one.name: self.after.operator(one.name).workers for one in self.changed if "workers" in one.aspects}

    def giving(self, states: Mapping[str, Sized]) -> Self:
        """The same, in which added operators begin with these states."""
        words = {
            name: f"it begins with {counted(len(given), 'key')} that {'is' if len(given) == 1 else 'are'} given"
            for name, given in states.items()
        }
        return replace(self, states={**self.states, **words})

    @property
    def lost(self) -> list[str]:
        """The removed operators whose state would be lost."""
        return [name for name in self.removed if name in self.states]

    @property
    def has_new_shape(self) -> bool:
        """Whether more than functions, tables and numbers of workers of operators differ."""
        edges = self.edges_added or self.edges_removed or self.edges_changed
        others = {operator.name: operator.aspects.keys() - {"workers"} for operator in self.changed}
        return bool(self.added or self.removed or edges) or any(
            aspects and (aspects != {"function"} or not _is_changeable(self.after, name))
            for name, aspects in others.items()
        )

    def __bool__(self) -> bool:
        """Whether they differ at all."""
        return self.has_new_shape or bool(self.changed)

    @property
    def summary(self) -> str:
        """The numbers of differences, in a line."""
        operators = {"added": self.added, "removed": self.removed, "changed": self.changed}
        edges = {"added": self.edges_added, "removed": self.edges_removed, "changed": self.edges_changed}
        words = [*_counts("operator", operators), *_counts("edge", edges)]
        return f"{self.after.name}: {', '.join(words) or 'no difference'}"

    @property
    def lines(self) -> list[str]:
        """A line for each operator that differs, then the edges and hints."""
        lines = [f"+ {name} ({self.after.operator(name).kind}){self._state(name)}" for name in self.added]
        lines += [f"- {name} ({self.before.operator(name).kind}){self._state(name)}" for name in self.removed]
        lines += [f"~ {operator.name}: {operator.words}{self._state(operator.name)}" for operator in self.changed]
        lines += [f"~ {_arrow(ends)}: {words}" for ends, words in self.edges_changed.items()]
        lines += [f"+ {', '.join(map(_arrow, self.edges_added))}"] if self.edges_added else []
        lines += [f"- {', '.join(map(_arrow, self.edges_removed))}"] if self.edges_removed else []
        return [*lines, *self.hints]

    def __repr__(self) -> str:
        return "\n".join([self.summary, *self.lines])

    @property
    def hints(self) -> list[str]:
        """What was perhaps not meant: names that differ in their letters' case only."""
        added = {name.casefold(): name for name in self.added}
        pairs = ((name, added[name.casefold()]) for name in self.removed if name.casefold() in added)
        return [f"operators are matched by name: {was} and {now} are two; did you mean {was}?" for was, now in pairs]

    def _state(self, name: str) -> str:
        return f"; {self.states[name]}" if name in self.states else ""


def _is_copy(graph: Graph, name: str) -> bool:
    return is_copy(graph.operator(name))


def _is_changeable(graph: Graph, name: str) -> bool:
    return graph.operator(name).traits.is_changeable


def _counts(noun: str, found: Mapping[str, Sized]) -> list[str]:
    """The numbers of what was found, of which the first has the noun."""
    numbers = [(len(those), did) for did, those in found.items() if those]
    return [f"{number if place else counted(number, noun)} {did}" for place, (number, did) in enumerate(numbers)]


def _arrow(ends: Ends) -> str:
    return " -> ".join(ends)


def _edges(graph: Graph) -> dict[Ends, Edge]:
    """The edges by their ends, through replicates, which are declared by consuming a stream twice."""
    found: dict[Ends, Edge] = {}
    for edge in graph.edges:
        if _is_copy(graph, edge.to):
            continue
        source, branch = edge.source, edge.branch
        while _is_copy(graph, source):
            [into] = graph.in_edges(source)
            source, branch = into.source, into.branch
        found[source, edge.to] = replace(edge, branch=branch)
    return found


def _edge_words(was: Edge, now: Edge) -> str:
    """How an edge differs, in words; empty if it does not."""
    parts = {
        "partitioning": (was.partitioning.value, now.partitioning.value),
        "key": (", ".join(was.key) or "none", ", ".join(now.key) or "none"),
        "branch": (was.branch, now.branch),
        "feedback": (was.feedback, now.feedback),
    }
    return "; ".join(f"{name}: {a} -> {b}" for name, (a, b) in parts.items() if a != b)


def _aspects(was: Operator, now: Operator, ran: Any, runs: Any) -> dict[str, str]:
    """What differs of an operator, and how; functions as given."""
    plain = {
        "kind": (was.kind.value, now.kind.value),
        "key": (", ".join(was.key) or "none", ", ".join(now.key) or "none"),
        "workers": (was.workers, now.workers),
        "branches": (was.branches, now.branches),
        "loop": (str(was.within), str(now.within)),
        "chain": (was.chain, now.chain),
        "awaiting": (was.awaiting or "none", now.awaiting or "none"),
        "cohort": (_cohort_words(was.cohort), _cohort_words(now.cohort)),
        "ttl": tuple("some" if isinstance(one, Expiring) else "none" for one in (ran, runs)),
        "unique_per_transaction": (was.unique_per_transaction, now.unique_per_transaction),
    }
    kept = _kept_by_changes(runs)
    plain |= {name: (value, kept[name]) for name, value in _kept_by_changes(ran).items() if name in kept}
    ran, runs = _replaced_by_changes(ran), _replaced_by_changes(runs)
    aspects = {name: f"{a} -> {b}" for name, (a, b) in plain.items() if a != b}
    for name, (a, b) in {
        "function": (ran, runs), "on_error": (was.on_error, now.on_error), "time": (was.time, now.time)
    }.items():  # fmt: skip
        if (words := unlike(a, b)) is not None:
            aspects[name] = words
    return aspects


def _cohort_words(cohort: str | None) -> str:
    return "none" if cohort is None else cohort or "by identity"


def _kept_by_changes(function: Any) -> dict[str, Any]:
    """What an operator's function has besides that is declared with the operator, so no ``Update`` replaces it."""
    if isinstance(function, StreamJoin):
        return {"how": function.how, "suffixes": function.suffixes}
    if isinstance(function, WindowFunction):
        return {"lateness": function.lateness, "early": function.early}
    if isinstance(function, JoinTable):
        return {"on": function.on, "how": function.how, "one_to_many": function.one_to_many, "suffix": function.suffix}
    return {}


def _replaced_by_changes(function: Any) -> Any:
    """The rest of a function, which an ``Update`` replaces."""
    if isinstance(function, StreamJoin):
        return WindowFunction(function.function, function.windowing)
    if isinstance(function, WindowFunction):
        return replace(function, lateness=0, early=False)
    return function.data if isinstance(function, JoinTable) else function


def _states(before: Graph, after: Graph, ran: Mapping[str, Any]) -> dict[str, str]:
    """What becomes of the state of each operator that keeps one in either dataflow."""
    states = {}
    for name in _keeping(before, ran):
        states[name] = KEPT if name in after else DROPPED
    for name in _keeping(after, {name: operator.function for name, operator in after.by_name.items()}):
        if name not in before:
            states[name] = EMPTY
    return states


def _keeping(graph: Graph, ran: Mapping[str, Any]) -> Iterable[str]:
    return [name for name, operator in graph.by_name.items() if _keeps_state(operator, ran.get(name))]


def _keeps_state(operator: Operator, function: Any) -> bool:
    traits = operator.traits
    by_function = function is not None and traits.runs_user_code and takes_state(function)
    return traits.keeps_state or traits.timed or by_function
