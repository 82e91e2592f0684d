"""Declaring loops (FLIP-15): a body is called once, at declaration, and what it declares belongs to the loop.

A loop adds one operator, its **head**, at which rows enter and come back. ``iterate`` gives the body one stream of
both. ``iterate_with_feedback`` gives it two, so the head has two branches: branch 0 has the rows of its forward edges,
branch 1 those of its feedback edge. The output leaves the loop without an operator of its own: the stream that is
returned is that of an operator inside, to be consumed outside.

>>> from fries_nb.dataflow.builder import DataflowBuilder
>>> from fries_nb.dataflow.endpoints import memory, rate
>>> flow = DataflowBuilder("checks")
>>> def body(payments):
...     again, decided = payments.map("Check", lambda row: row).split("Decided", lambda row: row["decided"])
...     return again, decided
>>> flow.source("payments", rate(10)).iterate("Loop", body).sink("out", memory())
Stream('out')
>>> for edge in flow.graph().edges:
...     print(edge.source, "->", edge.to, "(feedback)" if edge.feedback else "")
payments -> Loop
Decided -> Loop (feedback)
Loop -> Check
Check -> Decided
Decided -> out
>>> flow.graph().operator("Check").within, flow.graph().operator("out").within.level
(StreamScope(loops=('Loop',)), 0)

Every operator of a body derives from the head, since a body can use no other stream: streams are consumed in the scope
that they belong to. So all rows of a loop entered at its head, and planning may treat the loop as one operator
(``contracted``).

Loops as one operator each: the graph without cycles on which planning and regions work.

Each outermost loop is contracted to one operator with the name of its head; loops inside of it disappear with it. Rows
go round a loop any number of times, and a row that enters may leave as several, so the operator is one-to-many, unless
the loop is declared ``one_to_one``. Rows enter a loop at its head only and derive from it there, so the result has no
cycle.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> from fries_nb.dataflow.graph import ROOT
>>> loop = ROOT.nest("L")
>>> graph = Graph("round", (Operator("S"), Operator("L", Emits.ONE_TO_MANY, kind=Kind.LOOP, within=loop),
...     Operator("B", within=loop), Operator("Out")),
...     (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Out")))
>>> contraction = contracted(graph)
>>> [(edge.source, edge.to) for edge in contraction.graph.edges], contraction.node("B")
([('S', 'L'), ('L', 'Out')], 'L')
>>> sorted(contraction.expanded({"L", "Out"}))
['B', 'L', 'Out']
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, Partitioning, StreamScope
from fries_nb.errors import DataflowError

if TYPE_CHECKING:
    from fries_nb.dataflow.streams import Stream

LoopBody = Callable[["Stream"], tuple["Stream", "Stream"]]
"""The body of a loop: the stream of all rows to ``(feedback, out)``."""
CoLoopBody = Callable[["Stream", "Stream"], tuple["Stream", "Stream"]]
"""The body of a loop that distinguishes rows: those that enter and those that come back, to ``(feedback, out)``."""


class LoopDeclarations:
    """The methods of a stream that declare loops."""

    def iterate(self, name: str, body: LoopBody, workers: int | None = None, one_to_one: bool = False) -> Stream:
        """Declare a loop: rows go through its body, and those that the body feeds back go through it again.

        Its operators are declared by the body, on the stream that it is given, and belong to the loop. They use no
        other stream (what they need enters with the input), and rows leave the loop by its output only.

        Args:
            name: name of the loop's head, the operator at which rows enter and come back; unique in the dataflow.
            body: function of the stream of all rows, those that enter and those that come back, to two streams:
                ``(feedback, out)``.
            workers: number of parallel instances of the head; ``None`` for the run's default.
            one_to_one: declares that one row leaves the loop for each row that enters it. The plan of a change trusts
                it, and may then synchronise less. ``run.audit()`` checks it when the run has finished: it shows rows
                that have left more or less than once, and versions that a change has mixed.

        Returns:
            The output ``out``, outside of the loop; ``flow.stream(name)`` as well.

        Raises:
            DataflowError: ``body`` is no function, or returns other streams than it may; a stream from outside is used
                inside, or one from inside outside; a source, sink, aggregate or sort inside, or an operator that pauses
                on errors; see ``map``. What the body had declared is then taken back.
        """
        return _declare_loop(cast("Stream", self), name, body, workers, one_to_one, inputs=1)

    def iterate_with_feedback(
        self, name: str, body: CoLoopBody, workers: int | None = None, one_to_one: bool = False
    ) -> Stream:
        """Declare a loop whose body is given the rows that enter, and those that come back, as two streams.

        Args:
            name: see ``iterate``.
            body: function of the streams ``input`` and ``feedback`` to the streams ``(feedback, out)``.
            workers: see ``iterate``.
            one_to_one: see ``iterate``.

        Returns:
            See ``iterate``.

        Raises:
            DataflowError: see ``iterate``.
        """
        return _declare_loop(cast("Stream", self), name, body, workers, one_to_one, inputs=2)


def _declare_loop(
    stream: Stream, name: str, body: LoopBody | CoLoopBody, workers: int | None, one_to_one: bool, inputs: int
) -> Stream:
    """Declare a loop's head, call its body with ``inputs`` streams, and close the loop with what it feeds back."""
    flow = stream.flow
    if not callable(body):
        expected = "function of a stream" if inputs == 1 else "function of the streams input and feedback"
        raise DataflowError(f"loop {name!r} got {body!r} as its body; expected a {expected} to (feedback, out)")
    _check_streams_given(name, body, inputs)
    if not isinstance(one_to_one, bool):
        raise DataflowError(f"loop {name!r} has one_to_one={one_to_one!r}; expected True or False")
    emits = Emits.ONE_TO_ONE if one_to_one else Emits.ONE_TO_MANY
    with flow._taking_back():
        head = flow._add(Operator(name, emits, kind=Kind.LOOP, branches=inputs), (stream,), workers, None)
        given = [replace(head, branch=branch) for branch in range(inputs)]
        with flow._inside(head.within):
            returned: Any = body(*given)
        feedback, out = _checked(name, head, returned)
        identity = stream.identity if one_to_one else None
        return flow._close(name, feedback, replace(out, within=head.within.unnest(), identity=identity))


def _check_streams_given(name: str, body: Callable[..., Any], inputs: int) -> None:
    """Refuse a body that cannot be called with this number of streams.

    Raises:
        DataflowError: it cannot; suggests the other way to declare a loop if that is meant.
    """
    try:
        parameters = inspect.signature(body)
    except (TypeError, ValueError):  # one written in C may have none
        return
    for given in (inputs, 3 - inputs):
        try:
            parameters.bind(*range(given))
        except TypeError:
            continue
        if given == inputs:
            return
        what, other = (("a stream", "iterate"), ("two streams", "iterate_with_feedback"))[given - 1]
        raise DataflowError(f"the body of loop {name!r} takes {what}; expected {other}({name!r}, ...)")
    expected = "1 stream, of all rows" if inputs == 1 else "2 streams, input and feedback"
    raise DataflowError(f"the body of loop {name!r} has the parameters {parameters}; expected it to take {expected}")


def _checked(name: str, head: Stream, returned: Any) -> tuple[Stream, Stream]:
    """The two streams that a body returned.

    Raises:
        DataflowError: it is no pair of streams of this loop, or the feedback is the head's own output.
    """
    # A stream is recognised by the class of the head's, since ``streams`` imports this module.
    is_pair = isinstance(returned, tuple | list) and len(returned) == 2
    if not is_pair or not all(isinstance(one, type(head)) for one in returned):
        raise DataflowError(
            f"the body of loop {name!r} returned {_shown(returned)}; expected two streams, (feedback, out)"
        )
    feedback, out = returned
    for role, one in (("feedback", feedback), ("out", out)):
        _check_returned(name, head, role, one)
    if feedback.operator == name:
        raise DataflowError(
            f"the body of loop {name!r} feeds back the head's own stream {feedback.name!r}, so rows would go round "
            "with nothing done to them; expected an operator in between"
        )
    return feedback, out


def _check_returned(name: str, head: Stream, role: str, stream: Stream) -> None:
    if stream.flow is not head.flow:
        raise DataflowError(
            f"the body of loop {name!r} returned as {role} the stream {stream.name!r} of another dataflow, "
            f"{stream.flow.name!r}; expected one of {head.flow.name!r}"
        )
    if stream.within != head.within:
        raise DataflowError(
            f"the body of loop {name!r} returned as {role} the stream {stream.name!r}, which is in "
            f"{stream.within.described}; expected a stream of its own scope, {head.within.described}, made from what "
            "the body was given"
        )


def check_consumed_inside(operator: Operator, inputs: tuple[Stream, ...], scope: StreamScope) -> None:
    """Refuse an operator that may not be where it is declared, or that consumes streams of another scope.

    Raises:
        DataflowError: two inputs have different scopes, or one has another scope than the operator; a source, sink or
            blocking operator is in a loop, or one that pauses on errors.
    """
    scopes = list(dict.fromkeys(stream.within for stream in inputs))
    if len(scopes) > 1:
        one, other = (next(stream.name for stream in inputs if stream.within == each) for each in scopes[:2])
        raise DataflowError(
            f"{operator.kind.replace('_', ' ')} {operator.name!r} combines {one!r} of {scopes[0].described} with "
            f"{other!r} of {scopes[1].described}; expected streams of one scope"
        )
    if scopes and scopes[0] != scope:
        raise DataflowError(_out_of_scope(operator.name, inputs[0], scope))
    if scope.level:
        _check_in_loop(operator, scope)


def _out_of_scope(operator: str, stream: Stream, scope: StreamScope) -> str:
    """Why an operator of this scope cannot consume a stream of another one."""
    used = f"operator {operator!r} of {scope.described} uses stream {stream.name!r} of {stream.within.described}"
    if stream.within.is_outer_of(scope):
        return f"{used}, from outside of the loop; expected it to enter the loop with the input"
    loop = next(
        name for depth, name in enumerate(stream.within.loops) if scope.loops[depth : depth + 1] != (name,)
    )  # fmt: skip
    return f"{used}; rows leave a loop by its output only: expected flow.stream({loop!r}), what declaring it returned"


def _check_in_loop(operator: Operator, scope: StreamScope) -> None:
    traits = operator.traits
    for is_refused, why in (
        (traits.is_source, "rows enter a loop at its head only; expected the source outside"),
        (traits.is_sink, "rows leave a loop by its output only; expected the sink behind it"),
        (operator.blocking, "it needs all of its input first, and more comes back; expected it behind the loop"),
        (operator.on_error == "pause", "rows that come back would wait for it; expected on_error='fail' or a sink"),
    ):
        if is_refused:
            what = f"operator {operator.name!r} with on_error='pause'" if operator.on_error == "pause" else (
                f"{operator.kind} {operator.name!r}"
            )  # fmt: skip
            raise DataflowError(f"{what} is inside of {scope.described}: {why}")


def _shown(value: object) -> str:
    text = "None" if value is None else repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Contraction:
    """A graph with each outermost loop as one operator."""

    graph: Graph  # the contracted graph, without cycles
    members: Mapping[str, tuple[str, ...]]  # loop to all operators inside of it, in order of declaration
    _nodes: Mapping[str, str]

    def node(self, operator: str) -> str:
        """The operator's loop, the outermost one; the operator itself if it is in none."""
        return self._nodes.get(operator, operator)

    def expanded(self, nodes: Iterable[str]) -> set[str]:
        """The operators of these nodes: a loop stands for all of its operators."""
        return {name for node in nodes for name in self.members.get(node, (node,))}

    def loops(self, nodes: Set[str]) -> tuple[str, ...]:
        """The loops among these nodes, in order of declaration."""
        return tuple(loop for loop in self.members if loop in nodes)


def contracted(graph: Graph) -> Contraction:
    """Contract each outermost loop to one operator, in O(V + E); a graph without loops stays as it is."""
    nodes = {operator.name: operator.within.loops[0] for operator in graph.operators if operator.within.level}
    if not nodes:
        return Contraction(graph, {}, {})
    inside: dict[str, list[str]] = {}
    for name, loop in nodes.items():
        inside.setdefault(loop, []).append(name)
    members = {loop: tuple(names) for loop, names in inside.items()}
    copying = {nodes[name] for name in nodes if _copies_outside(graph, nodes, name)}
    operators = tuple(
        _as_operator(one, one.name in copying) for one in graph.operators if nodes.get(one.name, one.name) == one.name
    )
    return Contraction(replace(graph, operators=operators, edges=tuple(_edges(graph, nodes))), members, nodes)


def loops_in(graph: Graph, scope: frozenset[str]) -> tuple[str, ...]:
    """The outermost loops of which all operators are among these, in order of declaration."""
    return tuple(loop for loop, members in contracted(graph).members.items() if scope.issuperset(members))


def _copies_outside(graph: Graph, nodes: Mapping[str, str], name: str) -> bool:
    """Whether an operator copies a row to several operators outside of its loop."""
    leaving = [edge for edge in graph.out_edges(name) if nodes.get(edge.to) != nodes[name]]
    return len(leaving) > 1 and graph.by_name[name].edgewise_one_to_one


def _as_operator(operator: Operator, is_copying: bool) -> Operator:
    """A loop's head in place of the loop; any other operator as it is."""
    # A loop that gives one row for each has copied it if several operators outside get it, as a Replicate would.
    if not operator.traits.heads_loop:
        return operator
    if is_copying and operator.emits is Emits.ONE_TO_ONE:
        return replace(operator, branches=1, emits=Emits.ONE_TO_MANY, edgewise_one_to_one=True)
    return replace(operator, branches=1)


def _edges(graph: Graph, nodes: Mapping[str, str]) -> Iterator[Edge]:
    """The edges between different nodes, one for each pair; a broadcast among several edges prevails."""
    found: dict[tuple[str, str], Edge] = {}
    for edge in graph.edges:
        ends = nodes.get(edge.source, edge.source), nodes.get(edge.to, edge.to)
        if ends[0] == ends[1]:
            continue
        if ends not in found or edge.partitioning is Partitioning.BROADCAST:
            found[ends] = Edge(*ends, edge.partitioning, edge.key)
    yield from found.values()
