"""Graphs in one line, for tests: ``drawn("RE > C > E, RE > D", many="RE")``."""

from __future__ import annotations

import itertools

from fries_nb.dataflow import Edge, Emits, Graph, Operator, Partitioning


def drawn(
    ways: str, many: str = "", edgewise: str = "", unique: str = "", broadcast: str = "", workers: int = 1,
    partitioning: Partitioning = Partitioning.FORWARD,
) -> Graph:
    """The graph of these ways; the other arguments name operators, or edges as ``A>B``, by blanks."""
    edges: dict[tuple[str, str], None] = {}
    names: dict[str, None] = {}
    for way in ways.split(","):
        steps = [step.strip() for step in way.split(">")]
        names.update(dict.fromkeys(steps))
        edges.update(dict.fromkeys(itertools.pairwise(steps)))
    operators = tuple(
        Operator(
            name,
            Emits.ONE_TO_MANY if name in (many + " " + edgewise).split() else Emits.ONE_TO_ONE,
            edgewise_one_to_one=name in edgewise.split(),
            unique_per_transaction=name in unique.split(),
            workers=workers,
        )
        for name in names
    )
    broadcast_edges = {tuple(edge.split(">")): Partitioning.BROADCAST for edge in broadcast.split()}
    return Graph("drawn", operators, tuple(Edge(*edge, broadcast_edges.get(edge, partitioning)) for edge in edges))


W1 = drawn("Src > FD > Sink")
W2 = drawn("Src > J1 > J2 > J3 > J4 > Sink", partitioning=Partitioning.HASH)
W3 = drawn("S5 > J5 > U1 > J8 > J9 > Sink, S6 > J6 > U1, S7 > J7 > U1")
W4 = drawn("Src > F1 > U2 > FD1 > F2 > Sink, U2 > FD2 > F2", many="U2")
W5 = drawn("Src > RE > FD3 > S1 > F3 > SJ > E1 > Sink, RE > F4 > FD4 > SJ", edgewise="RE", unique="SJ")
FIGURE_7 = drawn("A > C > D > F > H, C > E > F, B > G > H")
FIGURE_8 = drawn("Src > FC > J > SP > FMX > U, SP > FMY > U", many="J")
FIGURE_8_LATE = drawn("Src > FC > J > SP > FMX > U, SP > FMY > U", many="FMX FMY")
FIGURE_9_I = drawn("Src > RE > C > E, RE > D", edgewise="RE")
FIGURE_9_II = drawn("Src > RE > C > E, RE > D > F", edgewise="RE")
FIGURE_9_III = drawn("Src > RE > C > X, RE > D > X", edgewise="RE")
FIGURE_10 = drawn("Src > RE > C > SJ > E, RE > D > SJ", edgewise="RE", unique="SJ")
