"""Random small graphs of random operator types, and changes of them."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from fries_nb.dataflow import Edge, Emits, Graph, Operator, Partitioning


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to seven operators, any edges forward, any types; three broadcast edges at most."""
    size = draw(st.integers(2, 7))
    operators = tuple(
        Operator(
            f"n{number}",
            draw(st.sampled_from([Emits.ONE_TO_ONE, Emits.ONE_TO_ONE, Emits.ONE_TO_MANY])),
            edgewise_one_to_one=draw(st.integers(0, 2)) == 0,
            unique_per_transaction=draw(st.booleans()),
        )
        for number in range(size)
    )
    pairs = [(tail, head) for tail in range(size) for head in range(tail + 1, size)]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    copied = draw(st.lists(st.sampled_from(chosen), max_size=3))
    edges = tuple(
        Edge(f"n{tail}", f"n{head}", Partitioning.BROADCAST if (tail, head) in copied else Partitioning.HASH)
        for tail, head in sorted(chosen)
    )
    return Graph("random", operators, edges)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Graph, frozenset[str]]:
    """A graph, and some of its operators that are no sources."""
    graph = draw(graphs())
    options = [name for name in graph if graph.in_edges(name)]
    return graph, draw(st.frozensets(st.sampled_from(options), min_size=1))


def seeded_change(seed: int) -> tuple[Graph, list[str]]:
    """As ``changes``, with a quarter of the edges broadcast; quicker, for thousands of them."""
    chance = Random(seed)
    size = chance.randint(2, 8)
    operators = tuple(
        Operator(
            f"n{number}",
            chance.choice([Emits.ONE_TO_ONE, Emits.ONE_TO_ONE, Emits.ONE_TO_MANY]),
            edgewise_one_to_one=chance.random() < 0.3,
            unique_per_transaction=chance.random() < 0.4,
        )
        for number in range(size)
    )
    pairs = [(tail, head) for tail in range(size) for head in range(tail + 1, size)]
    edges = tuple(
        Edge(f"n{tail}", f"n{head}", Partitioning.BROADCAST if chance.random() < 0.25 else Partitioning.HASH)
        for tail, head in sorted(chance.sample(pairs, chance.randint(1, min(len(pairs), 2 * size))))
    )
    graph = Graph("seeded", operators, edges)
    options = [name for name in graph if graph.in_edges(name)]
    return graph, chance.sample(options, chance.randint(1, min(2, len(options))))
