"""Planning time on a large graph, and its dependence on the number of workers.

The graph is a chain of diamonds: ``Ai -> {Bi, Ci} -> Di -> A(i+1)``, between one source and one sink, with hash edges.
Every hundredth ``A`` is one-to-many, and the change is of the first and the last ``D``, so the minimal covering sub-DAG
is nearly the whole graph, with pruning decisions all along it.

>>> [(edge.source, edge.to) for edge in diamonds(6, workers=1).edges]
[('Src', 'A0'), ('A0', 'B0'), ('A0', 'C0'), ('B0', 'D0'), ('C0', 'D0'), ('D0', 'Sink')]
"""

from __future__ import annotations

import time

from fries_nb.dataflow.graph import Edge, Emits, Graph, Operator, Partitioning
from fries_nb.experiments.bench.pairs import Side, pairs
from fries_nb.experiments.bench.results import BenchReport, Target
from fries_nb.planning.schedulers import schedule
from fries_nb.topology.topology import channel_count

OPERATORS = 100_000
WORKERS = 40
MANY_EVERY = 100


def diamonds(operators: int, workers: int) -> Graph:
    """A chain of diamonds with at most ``operators`` operators, each with ``workers`` workers."""
    nodes, edges, before = [Operator("Src", workers=workers)], list[Edge](), "Src"
    for i in range((operators - 2) // 4):
        a, b, c, d = (f"{letter}{i}" for letter in "ABCD")
        emits = Emits.ONE_TO_MANY if i % MANY_EVERY == MANY_EVERY - 1 else Emits.ONE_TO_ONE
        nodes.append(Operator(a, emits, workers=workers))
        nodes += [Operator(name, workers=workers) for name in (b, c, d)]
        edges += [_hashed(*ends) for ends in ((before, a), (a, b), (a, c), (b, d), (c, d))]
        before = d
    nodes.append(Operator("Sink", workers=workers))
    edges.append(_hashed(before, "Sink"))
    return Graph("diamonds", tuple(nodes), tuple(edges))


def plan_seconds(operators: int, workers: int, scheduler: str = "fries") -> float:
    """Seconds to plan a change of the graph's ends and to count its channels; the graph is new, so nothing cached."""
    graph = diamonds(operators, workers)
    ends = [edge.to for edge in (graph.edges[4], graph.edges[-2])]
    started = time.perf_counter()
    schedule(scheduler, graph, ends)
    channel_count(graph, graph.edges)
    return time.perf_counter() - started


def planning(scale: float, runs: int) -> BenchReport:
    """Planning with 1 and with 40 workers for each operator, alternating."""
    operators = max(6, int(OPERATORS * scale))
    result = pairs(
        Side("1 worker", lambda: plan_seconds(operators, 1)),
        Side(f"{WORKERS} workers", lambda: plan_seconds(operators, WORKERS)),
        runs,
        unit="s",
    )
    targets = (Target("plan, many workers", result.b_median, 3.0, at_least=False, unit="s"),)
    return BenchReport("plan", scale, (result,), targets, {"operators": operators})


def _hashed(source: str, to: str) -> Edge:
    return Edge(source, to, Partitioning.HASH)
