"""Random small graphs of random operator types, and changes of them."""

from __future__ import annotations

from hypothesis import strategies as st

from fries_nb.dataflow import Edge, Emits, Graph, Operator, Partitioning


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to seven operators, any edges forward, any types; one broadcast edge at most."""
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
    copied = draw(st.sampled_from([None, None, *chosen]))
    edges = tuple(
        Edge(f"n{tail}", f"n{head}", Partitioning.BROADCAST if (tail, head) == copied else Partitioning.HASH)
        for tail, head in sorted(chosen)
    )
    return Graph("random", operators, edges)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Graph, frozenset[str]]:
    """A graph, and some of its operators that are no sources."""
    graph = draw(graphs())
    options = [name for name in graph if graph.in_edges(name)]
    return graph, draw(st.frozensets(st.sampled_from(options), min_size=1))
