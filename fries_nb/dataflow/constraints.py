"""Latency constraints: an upper limit on the mean latency of a sequence of tasks and channels, over a window.

A sequence is a path of the dataflow (Nephele Streaming, section 3.2). Its elements are operators, whose latency is that
of their user code, and edges, whose latency includes output buffers, the network and input queues. An edge between two
adjacent operators is implied; a sequence may begin or end with an edge, in which case the operator at the outer end of
that edge does not count. Sources and sinks have no latency of their own, since they lack incoming or outgoing channels:
named as the first or last operator of a sequence they are an end of their edge only.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> names = ("payments", "FC", "FM", "scored")
>>> graph = Graph("fraud", tuple(map(Operator, names)), tuple(map(Edge, names, names[1:])))
>>> print(constraint_of(graph, ["FC", "FM"], latency_ms=300))
FC -> FM: at most 300 ms over 15 s
>>> print(constraint_of(graph, [edge("payments", "FC"), "FC", edge("FC", "FM")], 80, window_s=5))
(payments) -> FC -> (FM): at most 80 ms over 5 s
>>> constraint_of(graph, ["payments", "FC"], 80).elements
(EdgeElement(source='payments', to='FC'), 'FC')
>>> constraint_of(graph, ["FC", "scored"], 80)
Traceback (most recent call last):
...
fries_nb.errors.DataflowError: no edge FC -> scored; ... did you mean ['FC', 'FM', 'scored']?
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import networkx as nx

from fries_nb.dataflow.graph import Graph, ends_of
from fries_nb.dataflow.regions import pipelined
from fries_nb.errors import DataflowError, close_match, unknown

WINDOW_S = 15.0
"""Default window in seconds."""
_COPY = "Replicate("
"""How the names begin of operators that the builder inserts."""


class OnViolation(StrEnum):
    """What happens when neither buffers nor chains can keep a constraint."""

    TELL = "tell"
    """The violation is reported, with its cause."""
    PROPOSE = "propose"
    """A change to lighter functions is planned and proposed."""
    APPLY = "apply"
    """That change is made."""


@dataclass(frozen=True, slots=True)
class EdgeElement:
    """An edge as an element of a sequence."""

    source: str  # the sending operator
    to: str  # the receiving operator

    def __str__(self) -> str:
        return f"{self.source} -> {self.to}"


Element = str | EdgeElement
"""An element of a sequence: the name of an operator, or an edge."""


def edge(source: str, to: str) -> EdgeElement:
    """The edge between two operators, as an element of a constrained sequence.

    Args:
        source: name of the sending operator.
        to: name of the receiving operator.

    Returns:
        The element, for ``flow.constrain([fn.edge("payments", "FC"), "FC"], latency_ms=300)``.

    Raises:
        DataflowError: one of them is not the name of an operator.
    """
    for end in (source, to):
        if not isinstance(end, str) or not end:
            raise DataflowError(f"fn.edge({source!r}, {to!r}): expected the names of two operators")
    return EdgeElement(source, to)


@dataclass(frozen=True, slots=True)
class LatencyConstraint:
    """An upper limit on the mean latency of each runtime sequence of a path, over any window."""

    path: tuple[str, ...]  # operator names, including the outer ends of edges with which the sequence begins or ends
    latency_ms: float  # the limit in milliseconds
    window_s: float = WINDOW_S  # the window in seconds
    on_violation: OnViolation = OnViolation.TELL  # what happens when neither buffers nor chains can keep it
    begins_with_edge: bool = False  # whether the first element is an edge, so that the first operator does not count
    ends_with_edge: bool = False  # whether the last element is an edge, so that the last operator does not count

    @property
    def tasks(self) -> tuple[str, ...]:
        """The operators whose own latency counts."""
        return self.path[self.begins_with_edge : len(self.path) - self.ends_with_edge]

    @property
    def edges(self) -> tuple[EdgeElement, ...]:
        """The edges of the path, all of which count."""
        return tuple(EdgeElement(*pair) for pair in pairwise(self.path))

    @property
    def elements(self) -> tuple[Element, ...]:
        """All elements in order: operators that count, and edges."""
        found: list[Element] = []
        for index, name in enumerate(self.path):
            if index:
                found.append(EdgeElement(self.path[index - 1], name))
            if name in self.tasks:
                found.append(name)
        return tuple(found)

    @property
    def sequence(self) -> str:
        """The sequence as text; operators that do not count are in parentheses."""
        return " -> ".join(name if name in self.tasks else f"({name})" for name in self.path)

    def __str__(self) -> str:
        return f"{self.sequence}: at most {self.latency_ms:g} ms over {self.window_s:g} s"


def constraint_of(
    graph: Graph,
    sequence: Sequence[Element],
    latency_ms: float,
    window_s: float = WINDOW_S,
    on_violation: str = OnViolation.TELL,
) -> LatencyConstraint:
    """The constraint on a sequence of this graph.

    Where the builder has put a Replicate between two adjacent operators, the sequence passes it.

    Raises:
        DataflowError: the sequence is empty or no path, names an unknown operator, a blocking one or one in a loop, or
            is only a source or sink; the limit or the window is not a finite number above zero; ``on_violation`` is
            none of the three.
    """
    path, begins, ends = _path_of(_checked_sequence(sequence))
    for name in path:
        if name not in graph:
            raise DataflowError(unknown("operator", name, graph.by_name))
        if graph.operator(name).blocking:
            raise DataflowError(
                f"{name!r} is blocking: it emits after its last input row, so no latency across it can be limited"
            )
        if (within := graph.operator(name).within).level:
            raise DataflowError(
                f"{name!r} is in {within.described}, which a row may go round any number of times, so no latency "
                "through it can be limited; expected a sequence outside of loops"
            )
    whole = _completed(graph, path)
    begins = begins or not graph.in_edges(whole[0])
    ends = ends or graph.operator(whole[-1]).traits.is_sink
    if len(whole) == 1 and (begins or ends):
        raise DataflowError(
            f"{path[0]!r} is a {'source' if begins else 'sink'}, which has no latency of its own; expected an edge as "
            "well, as in " + _example(graph, path[0], begins)
        )
    limit, window = _positive("latency_ms", latency_ms, "milliseconds"), _positive("window_s", window_s, "seconds")
    return LatencyConstraint(whole, limit, window, _checked_policy(on_violation), begins, ends)


def continued(constraint: LatencyConstraint, graph: Graph) -> LatencyConstraint | None:
    """The same constraint in a dataflow of another shape, where other Replicates may be between its operators.

    Returns:
        The constraint; ``None`` if the dataflow does not have its path.

    >>> from fries_nb.dataflow.graph import Edge, Operator
    >>> def graph(*names):
    ...     return Graph("fraud", tuple(map(Operator, names)), tuple(map(Edge, names, names[1:])))
    >>> limit = constraint_of(graph("S", "FC", "FM", "out"), ["FC", "FM"], latency_ms=300)
    >>> print(continued(limit, graph("S", "FC", "Replicate(FC)", "FM", "out")))
    FC -> Replicate(FC) -> FM: at most 300 ms over 15 s
    >>> continued(limit, graph("S", "FC", "Rule", "FM", "out"))
    """
    ends = constraint.path[0], constraint.path[-1]
    names = [name for name in constraint.path if name in ends or not name.startswith(_COPY)]
    if not graph.by_name.keys() >= set(names):
        return None
    flowing, whole = pipelined(graph), names[:1]
    for before, after in pairwise(names):
        if (way := _way(flowing, before, after)) is None:
            return None
        whole += way
    return replace(constraint, path=tuple(whole))


def on_paths(graph: Graph, constraints: Iterable[LatencyConstraint]) -> tuple[LatencyConstraint, ...]:
    """Those of the constraints whose paths a dataflow has."""
    ends = ends_of(graph)
    return tuple(one for one in constraints if one.path[0] in graph and ends.issuperset(pairwise(one.path)))


def check_agreement(constraints: Iterable[LatencyConstraint]) -> tuple[LatencyConstraint, ...]:
    """The constraints, of equal ones only the first; refuses those that contradict each other.

    Two constraints contradict if they are on the same sequence and differ in anything: one sequence has one limit, over
    one window, with one policy, or it would be unclear which is meant. All others agree, since limits are upper ones
    and a lower latency keeps them all: a part of a sequence may have a larger limit than the whole, which then has no
    effect, and limits of parts may add up to more or less than that of the whole.

    Raises:
        DataflowError: two of them contradict; names both.
    """
    known: dict[tuple[object, ...], LatencyConstraint] = {}
    for constraint in constraints:
        before = known.setdefault((constraint.path, constraint.elements), constraint)
        if before != constraint:
            differing = _differing(before, constraint)
            raise DataflowError(
                f"two constraints on {constraint.sequence} contradict: {differing}; expected one for each sequence"
            )
    return tuple(known.values())


def _checked_sequence(sequence: object) -> Sequence[Element]:
    if isinstance(sequence, EdgeElement):
        raise DataflowError(f"a sequence is a list; got the edge {sequence}; expected [fn.edge(...)]")
    if isinstance(sequence, str) or not isinstance(sequence, Sequence):
        raise DataflowError(f"a sequence is a list of operator names and edges; got {sequence!r}")
    if not sequence:
        raise DataflowError("the sequence is empty; expected at least one operator or fn.edge(a, b)")
    for element in sequence:
        if not isinstance(element, str | EdgeElement):
            raise DataflowError(f"a sequence has operator names and edges; got {element!r} among them")
    return sequence


def _path_of(sequence: Sequence[Element]) -> tuple[list[str], bool, bool]:
    """The operators that a sequence names, and whether it begins and ends with an edge."""
    path: list[str] = []
    after_edge = False
    for element in sequence:
        ends = (element,) if isinstance(element, str) else (element.source, element.to)
        # An element continues from the operator before it, if it names it: after an edge, or as the start of one.
        continues = bool(path) and path[-1] == ends[0] and (after_edge or len(ends) == 2)
        path += ends[continues:]
        after_edge = len(ends) == 2
    return path, isinstance(sequence[0], EdgeElement), after_edge


def _completed(graph: Graph, path: Sequence[str]) -> tuple[str, ...]:
    """The path with the Replicates that the builder has inserted.

    Raises:
        DataflowError: it is no path, or leads through rows that are kept between two regions.
    """
    flowing = pipelined(graph)
    whole = [path[0]]
    for before, after in pairwise(path):
        if (way := _way(flowing, before, after)) is None:
            raise DataflowError(_no_path(graph, path, before, after))
        whole += way
    return tuple(whole)


def _way(flowing: Graph, before: str, after: str) -> tuple[str, ...] | None:
    """What comes behind an operator up to a later one, at most a Replicate between; ``None`` if none leads there."""
    if after in flowing.successors(before):
        return (after,)
    copies = (name for name in flowing.successors(before) if name.startswith(_COPY))
    return next(((name, after) for name in copies if after in flowing.successors(name)), None)


def _no_path(graph: Graph, path: Sequence[str], before: str, after: str) -> str:
    if before == after:
        return f"{before!r} follows itself in the sequence {list(path)}; expected each operator once"
    followers = graph.successors(before)
    if after in followers:
        return f"the rows of {before} -> {after} are kept between two regions, so their latency cannot be limited"
    shown = f"{before} is followed by {', '.join(followers)}" if followers else f"nothing follows {before}"
    message = f"no edge {before} -> {after}; {shown}"
    if nx.has_path(graph.digraph, before, after):
        return f"{message}; did you mean {nx.shortest_path(graph.digraph, before, after)}?"
    if nx.has_path(graph.digraph, after, before):
        return f"{message}; {before} is downstream of {after}: was the order meant to be reversed?"
    return f"{message}, and no path leads there"


def _example(graph: Graph, name: str, is_source: bool) -> str:
    near = graph.successors(name) if is_source else graph.predecessors(name)
    other = near[0] if near else "FC"
    return f"fn.edge({name!r}, {other!r})" if is_source else f"fn.edge({other!r}, {name!r})"


def _positive(argument: str, given: object, unit: str) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given <= sys.float_info.max:
        return float(given)
    raise DataflowError(f"{argument}={given!r}: expected {unit}, a finite number more than 0")


def _checked_policy(given: object) -> OnViolation:
    known = [policy.value for policy in OnViolation]
    if isinstance(given, str) and given in known:
        return OnViolation(given)
    hint = close_match(given, known) if isinstance(given, str) else ""
    raise DataflowError(f"on_violation={given!r}: expected one of {', '.join(known)}{hint}")


def _differing(first: LatencyConstraint, second: LatencyConstraint) -> str:
    shown = []
    for name in ("latency_ms", "window_s", "on_violation"):
        was, now = getattr(first, name), getattr(second, name)
        if was != now:
            shown.append(f"{name}={was} and {name}={now}")
    return ", ".join(shown)
