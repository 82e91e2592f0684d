"""Plans of large graphs: what is looked at grows with the graph, and not with the number of workers."""

from __future__ import annotations

from collections import Counter

import pytest

from fries_nb.dataflow import Edge, Emits, Graph, Operator, Partitioning
from fries_nb.planning import chains, channel_count, cover


def diamonds(count: int, workers: int = 1) -> Graph:
    """``count`` times a Replicate, two ways and a self-join, one after the other: four operators each."""
    operators, edges, last = [Operator("Src", workers=workers)], [], "Src"
    for number in range(count):
        copy, left, right, join = (f"{kind}{number}" for kind in ("RE", "L", "R", "SJ"))
        operators += [
            Operator(copy, Emits.ONE_TO_MANY, edgewise_one_to_one=True, workers=workers),
            Operator(left, workers=workers),
            Operator(right, workers=workers),
            Operator(join, unique_per_transaction=number % 2 == 0, workers=workers),
        ]
        pairs = ((last, copy), (copy, left), (copy, right), (left, join), (right, join))
        edges += [Edge(*pair, Partitioning.HASH) for pair in pairs]
        last = join
    return Graph("diamonds", tuple(operators), tuple(edges))


class Watched(Graph):
    """A graph that counts how often it is asked for an operator's edges."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.name, graph.operators, graph.edges)
        object.__setattr__(self, "asked", Counter())

    def out_edges(self, name):
        self.asked["out"] += 1
        return super().out_edges(name)

    def successors(self, name):
        self.asked["out"] += 1
        return super().successors(name)

    def predecessors(self, name):
        self.asked["in"] += 1
        return super().predecessors(name)


def questions(graph: Graph, targets: list[str]) -> int:
    """How often a plan asks for the edges of an operator."""
    watched = Watched(graph)
    cover(watched, targets)
    return sum(watched.asked.values())


@pytest.mark.parametrize("targets", [["SJ3", "L{last}"], None], ids=["two targets", "a quarter of all operators"])
def test_planning_looks_at_each_operator_a_bounded_number_of_times(targets):
    """Algorithms 1 to 4 in O(V + E), for few targets and for many."""
    for count in (25, 250, 2_500):
        last = count - 1
        names = [name.format(last=last) for name in targets] if targets else [f"L{number}" for number in range(count)]
        graph = diamonds(count)
        assert questions(graph, names) <= 10 * len(graph.operators)


def test_planning_does_not_look_at_workers():
    """The plan and the work for it are the same for one worker an operator and for a million."""
    few, many = diamonds(50), diamonds(50, workers=1_000_000)
    assert questions(few, ["L7", "R30"]) == questions(many, ["L7", "R30"])
    assert cover(few, ["L7", "R30"]) == cover(many, ["L7", "R30"])
    assert channel_count(many, many.edges) == len(many.edges) * 10**12


def test_a_hundred_thousand_operators():
    """A long chain of diamonds is planned without recursion and without an ancestor set for each target."""
    graph = diamonds(25_000)
    covering = cover(graph, [f"L{number}" for number in range(0, 25_000, 2)])
    assert len(graph.operators) == 100_001
    assert len(covering.components) == 1
    # From the first Replicate, both of whose ways lead to targets, three edges a diamond, and one more into the last.
    assert covering.longest_path == 3 * 24_998 + 1
    assert sum(map(len, chains(graph))) == 100_001
