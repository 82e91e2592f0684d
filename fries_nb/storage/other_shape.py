"""What a checkpoint holds for a dataflow of another shape: a run is resumed with operators or edges more, or less.

State belongs to operators by name, and a checkpoint holds no row that is on its way between two of them. So operators
that both shapes have go on with their states, added ones start empty, whatever the edges are. Refused is only what
could not be meant, or not be done:

    a removed operator that has a state       it would be lost, so it has to be named in ``drop``
    a new input into an ended operator        its state was not kept, since it was to get no more rows
    other edges at a loop in which rows were  these rows are in the checkpoint, and belong on an edge of the loop

Of the changes that were decided, those of removed operators count no more. If a later run has an operator of such a
name again, it is another one, to which earlier decisions do not apply (``FlowFingerprint.since``).

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.storage.flow_fingerprint import flow_of
>>> def chain(*names):
...     return Graph("w1", tuple(map(Operator, names)), tuple(map(Edge, names, names[1:])))
>>> flow, record = flow_of(chain("S", "Old", "out"), "r1"), Checkpoint("r1", 1, 1, {}, ended=("S[0]",))
>>> refused(flow, chain("S", "New", "out"), record, ["Old"], [])
"its operator Old, which this one has not, has a state that would be lost; expected drop=['Old'], if that is meant"
>>> refused(flow, chain("S", "New", "out"), record, ["Old"], ["Old"])
>>> refused(flow, Graph("w1", chain("T", "S").operators, (Edge("T", "S"),)), record, [], [])
'S has ended in it, so it can get no new input from T; expected another name for an operator that begins anew'
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

import networkx as nx
from msgspec.structs import replace

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import CheckpointError
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange
from fries_nb.storage.flow_fingerprint import FlowFingerprint, edges_of, flow_of, shape_of


def check_drop(drop: object, graph: Graph) -> tuple[str, ...]:
    """The names in ``drop=``, none of which the dataflow has.

    Raises:
        CheckpointError: not a list of names, or the dataflow has one of them.
    """
    if isinstance(drop, str) or not isinstance(drop, Iterable):
        example = [drop] if isinstance(drop, str) else ["FM"]
        raise CheckpointError(f"drop={drop!r}; expected the names of operators in a list, as in drop={example!r}")
    names = tuple(drop)
    for name in names:
        if name in graph:
            words = "which this dataflow has, so it keeps its state; expected names of operators that it lacks"
            raise CheckpointError(f"drop={list(names)!r} names {name}, {words}")
    return names


def refused(
    flow: FlowFingerprint, graph: Graph, checkpoint: Checkpoint | None, with_state: Collection[str],
    drop: Collection[str],
) -> str | None:  # fmt: skip
    """Why a dataflow of another shape cannot go on from a checkpoint, as the end of a sentence; ``None`` if it can.

    Args:
        flow: the fingerprint of the dataflow that wrote it.
        graph: the dataflow that is to go on.
        checkpoint: the checkpoint; ``None`` if there was none yet.
        with_state: the removed operators that have a state in it.
        drop: those whose state may be lost.
    """
    shape = shape_of(flow, graph)
    if not shape or checkpoint is None:
        return None
    if lost := [name for name in shape.removed if name in with_state and name not in drop]:
        listed = ", ".join(lost)
        what = f"operator {listed}, which this one has not, has" if len(lost) == 1 else f"operators {listed} have"
        named = [*drop, *lost]
        return f"its {what} a state that would be lost; expected drop={named!r}, if that is meant"
    for source, to in shape.edges_added:
        if to in flow.operators and any(_had_ended(checkpoint, to)) and not all(_had_ended(checkpoint, source)):
            fresh = "expected another name for an operator that begins anew"
            return f"{to} has ended in it, so it can get no new input from {source}; {fresh}"
    for head in checkpoint.logged:
        around = _circle(edges_of(flow), head) | _circle(edges_of(flow_of(graph, flow.run)), head)
        if changed := sorted({name for ends in (*shape.edges_added, *shape.edges_removed) for name in ends} & around):
            return f"rows were going round its loop {head}; expected the same edges at {', '.join(changed)}"
    return None


def _had_ended(checkpoint: Checkpoint, operator: str) -> list[bool]:
    """Of each worker of an operator whether it had ended."""
    return [f"{operator}[{index}]" in checkpoint.ended for index in range(checkpoint.workers.get(operator, 1))]


def _circle(edges: Iterable[tuple[str, str]], head: str) -> set[str]:
    """The operators on circles through a loop's head."""
    digraph: nx.DiGraph[str] = nx.DiGraph(edges)
    if head not in digraph:
        return {head}
    below: set[str] = nx.descendants(digraph, head)
    return {head} | below.intersection(nx.ancestors(digraph, head))


def known(flow: FlowFingerprint, checkpoint: Checkpoint | None) -> FlowFingerprint:
    """The fingerprint without removed operators of which the checkpoint, if there is one, holds nothing any more."""
    held = {} if checkpoint is None else checkpoint.workers
    gone = {name for name in flow.removed if name not in held}
    return replace(
        flow,
        operators={name: text for name, text in flow.operators.items() if name not in gone},
        workers={name: count for name, count in flow.workers.items() if name not in gone},
        since={name: number for name, number in flow.since.items() if name not in gone},
        removed=tuple(name for name in flow.removed if name in held),
    )


def next_flow(
    flow: FlowFingerprint, graph: Graph, checkpoint: Checkpoint | None, decisions: int
) -> FlowFingerprint:  # fmt: skip
    """The fingerprint of the dataflow that goes on from a checkpoint, after so many decisions."""
    return known(followed_by(flow, flow_of(graph, flow.run), decisions), checkpoint)


def followed_by(flow: FlowFingerprint, later: FlowFingerprint, decisions: int) -> FlowFingerprint:
    """The fingerprint of a dataflow that follows another one, after so many decisions.

    It has the removed operators, of which a checkpoint may hold a state. So as long as there is no newer checkpoint
    they may come back with it, and another attempt of the same dataflow has to name them again.
    """
    removed = tuple(name for name in flow.operators if name not in later.operators)
    since = flow.since | {name: decisions for name in later.operators if name not in flow.operators}
    return replace(
        later,
        operators=later.operators | {name: flow.operators[name] for name in removed},
        workers=later.workers | {name: flow.workers[name] for name in removed},
        since={name: since[name] for name in (*later.operators, *removed) if since.get(name)},
        removed=removed,
    )


def concerning(
    decided: Iterable[CommittedChange], operators: Container[str], since: Mapping[str, int]
) -> tuple[CommittedChange, ...]:
    """What of decided changes in effect concerns these operators; changes that concern none are left out.

    >>> first = CommittedChange("u1", "fries", (), {"FM": b"1", "Old": b"1"}, number=1)
    >>> back = CommittedChange("u1.back", "fries", (), {}, undoes="u1", number=2)
    >>> [change.change for change in concerning([first, back], ["FM"], {})]
    ['u1', 'u1.back']
    >>> concerning([first, back], ["FM"], {"FM": 2})
    ()
    """
    kept: dict[str, CommittedChange] = {}
    for change in decided:
        names = {name for name in change.targets if name in operators and change.number > since.get(name, -1)}
        if names or change.undoes in kept or change.shape:
            payloads = {name: payload for name, payload in change.payloads.items() if name in names}
            superseded = tuple(name for name in change.superseded if name in names)
            kept[change.change] = replace(change, payloads=payloads, superseded=superseded)
    return tuple(kept.values())
