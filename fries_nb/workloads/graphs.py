"""Connected components and PageRank as loops: edges enter, messages between vertices go round until none is left.

Both are incremental. A vertex is a key, its state has its neighbours and its value, and an edge may come at any time:
it costs the messages that it causes, nothing is computed again. Rows inside are messages to a vertex, from another one:

    components   a vertex adopts the least label that it is told, at first its own number, and tells its neighbours. At
                 the end every label is the least vertex of the component, in whatever order messages came
    pagerank     a vertex adds what it is told to its rank, and tells its neighbours by how much their shares changed,
                 once the sum of these changes is at least the tolerance. Many changes are told at once: a vertex that
                 has something to tell sends itself a message, and tells it when this has come round

Ranks solve ``rank = (1 - d) + d * sum of shares``, where a vertex's share is its rank over its number of neighbours.
Divided by their sum they are the usual PageRank, with vertices without out-edges treated as linked to all.

>>> vertex = LeastLabel()
>>> state = vertex.initial_state()
>>> list(vertex.process(message(5, 3, 3, is_edge=True), state))   # 5 adopts 3, and has no other neighbour
[{'vertex': 5, 'other': 5, 'label': 3, 'is_edge': False}]
>>> list(vertex.process(message(5, 9, 9, is_edge=True), state))
[{'vertex': 9, 'other': 5, 'label': 3, 'is_edge': False}]

Edge lists: two small real ones, and large ones that are generated from a seed.

The real ones come with networkx (3-clause BSD licence), on which this package depends, so none is copied here:

    karate       friendships among the members of a karate club: W. W. Zachary, "An information flow model for conflict
                 and fission in small groups", Journal of Anthropological Research 33 (1977)
    miserables   characters of Les Misérables that appear together: D. E. Knuth, The Stanford GraphBase (1993)

Vertices are integers. The columns are ``source`` and ``target``; an undirected edge is one row.

>>> karate().num_rows, karate().slice(0, 1).to_pylist()
(78, [{'source': 0, 'target': 1}])
>>> generated(10, 1_000, seed=1).equals(generated(10, 1_000, seed=1))
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa

import fries_nb as fn

SOURCE, TARGET = "source", "target"
QUADRANTS = (0.57, 0.19, 0.19, 0.05)
"""Probabilities of R-MAT, as in the Graph500 benchmark: few vertices have many neighbours, most have few."""


def karate() -> pa.Table:
    """The 78 friendships of Zachary's karate club, with 34 members."""
    return _table(nx.karate_club_graph())


def miserables() -> pa.Table:
    """The 254 pairs of characters of Les Misérables that appear together, of 77; numbered as networkx lists them."""
    return _table(nx.convert_node_labels_to_integers(nx.les_miserables_graph()))


def _table(graph: nx.Graph) -> pa.Table:
    source, target = zip(*graph.edges(), strict=True)
    return pa.table({SOURCE: pa.array(source, pa.int64()), TARGET: pa.array(target, pa.int64())})


def generated(levels: int, edges: int, seed: int = 0) -> pa.Table:
    """Edges among at most ``2 ** levels`` vertices, drawn by R-MAT; some are drawn repeatedly, and some are loops.

    Each edge picks a quadrant of the adjacency matrix, a quadrant of that, and so on. (D. Chakrabarti, Y. Zhan and
    C. Faloutsos, "R-MAT: A recursive model for graph mining", SDM 2004.)

    Args:
        levels: number of bits of a vertex.
        edges: number of rows.
        seed: the seed.

    Raises:
        ValueError: a number is below 1, or there are more than 62 levels.
    """
    if not 1 <= levels <= 62 or edges < 1:
        raise ValueError(f"generated({levels}, {edges}): expected 1 to 62 levels and at least one edge")
    chance = np.random.default_rng(seed)
    ends = np.zeros((2, edges), np.int64)
    for _ in range(levels):
        quadrant = chance.choice(4, size=edges, p=QUADRANTS)
        ends = ends * 2 + np.stack((quadrant // 2, quadrant % 2))
    names = chance.permutation(1 << levels) if levels <= 24 else None  # large vertices are as common as small ones
    source, target = ends if names is None else names[ends]
    return pa.table({SOURCE: source, TARGET: target})


Row = dict[str, Any]
State = dict[str, Any]

DAMPING = 0.85
TOLERANCE = 1e-6


def message(vertex: int, other: int, label: int, is_edge: bool = False) -> Row:
    """A message to a vertex from another one; one to itself is its new label, and leaves the loop."""
    return {"vertex": vertex, "other": other, "label": label, "is_edge": is_edge}


# ---- connected components


@dataclass(frozen=True)
class Directions:
    """An edge as messages to both of its vertices.

    >>> [(row["vertex"], row["other"]) for row in Directions()({"source": 1, "target": 2})]
    [(1, 2), (2, 1)]
    """

    def __call__(self, row: Row) -> Iterator[Row]:
        """The messages; one if the edge is a loop."""
        source, target = row[SOURCE], row[TARGET]
        yield message(source, target, target, is_edge=True)
        if source != target:
            yield message(target, source, source, is_edge=True)


class LeastLabel:
    """The function of a vertex that finds the label of its component; see the module."""

    def initial_state(self) -> State:
        """Of a vertex without edges."""
        return {"label": None, "others": set()}

    def process(self, row: Row, state: State) -> Iterator[Row]:
        """Messages to neighbours; and to itself, if its label has changed."""
        vertex, other, told = row["vertex"], row["other"], row["label"]
        was: int | None = state["label"]
        label = min(told, vertex if was is None else was)
        others = state["others"]
        if row["is_edge"] and other != vertex:
            others.add(other)
        if label != was:
            state["label"] = label
            yield message(vertex, vertex, label)
            for each in others:
                if each != other:
                    yield message(each, vertex, label)
        if label < told and other != vertex:
            yield message(other, vertex, label)


def leaves(row: Row) -> bool:
    """Whether a row leaves the loop of ``components_flow``."""
    return bool(row["vertex"] == row["other"])


def components_flow(source: Any, sink: Any, workers: int | None = None) -> fn.Dataflow:
    """The dataflow edges -> Components -> labels, whose rows are the changes of labels; see ``labels``.

    Args:
        source: description of the source, such as ``fn.replay(path)``; its rows have the columns source and target.
        sink: description of the sink, such as ``fn.memory()``.
        workers: parallel instances of each operator of the loop; the run's default if None.
    """

    def body(edges: Any, told: Any) -> Any:
        entered = edges.flat_map("Directions", Directions(), workers=workers)
        rows = entered.union("Messages", told, workers=workers)
        labels = rows.flat_map("Label", LeastLabel(), key="vertex", workers=workers)
        return labels.split("Leaves", leaves, workers=workers)

    flow = fn.Dataflow("components")
    found = flow.source("edges", source).iterate_with_feedback("Components", body, workers=workers)
    found.sink("labels", sink)
    return flow


def labels(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Vertex to its label, the least vertex of its component; from the rows of ``components_flow``.

    >>> labels([message(2, 2, 2), message(2, 2, 1)])
    {2: 1}
    """
    found: dict[int, int] = {}
    for row in rows:
        vertex, label = row["vertex"], row["label"]
        found[vertex] = min(label, found.get(vertex, label))
    return found


# ---- PageRank

EDGE, SHARE, TELL, RANK = range(4)
"""What a row of ``pagerank_flow`` is to its vertex: a new edge, a change of a share, a reminder, or its rank."""


def note(vertex: int, kind: int, other: int = 0, value: float = 0.0) -> Row:
    """A row of ``pagerank_flow``; of a rank, ``other`` counts the ranks that the vertex has had."""
    return {"vertex": vertex, "kind": kind, "other": other, "value": value}


@dataclass(frozen=True)
class Links:
    """An edge as rows to its vertices: both have the edge, or only ``source`` if edges are directed."""

    directed: bool = False

    def __call__(self, row: Row) -> Iterator[Row]:
        """The rows; an edge to the vertex itself says only that the vertex exists."""
        source, target = row[SOURCE], row[TARGET]
        yield note(source, EDGE, target)
        yield note(target, EDGE, target if self.directed else source)


@dataclass(frozen=True)
class Rank:
    """The function of a vertex that finds its rank; see the module.

    ``damping`` is the probability to follow an edge; changes of shares are told once their sum is ``tolerance``. Raises
    ValueError for a damping outside of 0 to 1, or a tolerance that is not positive, or not below a vertex's first rank.
    """

    damping: float = DAMPING
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if not 0 < self.damping < 1 or not 0 < self.tolerance < 1 - self.damping:
            raise ValueError(f"{self}: expected a damping between 0 and 1, and a tolerance above 0, below 1 - damping")

    def initial_state(self) -> State:
        """Of a vertex without edges, whose rank has not been sent."""
        return {"rank": 1 - self.damping, "shown": 0.0, "told": 0.0, "others": set(), "reminded": False, "count": 0}

    def process(self, row: Row, state: State) -> Iterator[Row]:
        """Rows to neighbours and to itself."""
        vertex, kind = row["vertex"], row["kind"]
        if kind == TELL:
            state["reminded"] = False
            yield from self._told(vertex, state)
            return
        if kind == SHARE:
            state["rank"] += self.damping * row["value"]
        elif row["other"] != vertex and row["other"] not in state["others"]:
            state["others"].add(row["other"])
            yield note(row["other"], SHARE, value=state["told"])
        if not state["reminded"] and self._change(state) >= self.tolerance:
            state["reminded"] = True
            yield note(vertex, TELL)

    def _change(self, state: State) -> float:
        """The change of the rank, or the sum of those of the shares, that has not been sent."""
        rank, count = state["rank"], len(state["others"])
        return float(max(abs(rank - state["shown"]), abs(rank - state["told"] * count) if count else 0.0))

    def _told(self, vertex: int, state: State) -> Iterator[Row]:
        others = state["others"]
        state["count"] += 1
        state["shown"] = state["rank"]
        yield note(vertex, RANK, state["count"], state["rank"])
        if others:
            share = state["rank"] / len(others)
            change, state["told"] = share - state["told"], share
            for other in others:
                yield note(other, SHARE, value=change)


def is_rank(row: Row) -> bool:
    """Whether a row leaves the loop of ``pagerank_flow``."""
    return bool(row["kind"] == RANK)


def pagerank_flow(
    source: Any,
    sink: Any,
    workers: int | None = None,
    directed: bool = False,
    damping: float = DAMPING,
    tolerance: float = TOLERANCE,
) -> fn.Dataflow:
    """The dataflow edges -> PageRank -> ranks, whose rows are the changes of ranks; see ``ranks``.

    Args:
        source: see ``components_flow``. Repeated edges count once, and edges of a vertex to itself do not count.
        sink: see ``components_flow``.
        workers: see ``components_flow``.
        directed: whether an edge leads from ``source`` to ``target`` only.
        damping: probability to follow an edge.
        tolerance: greatest change that a vertex keeps to itself. All ranks, whose mean is about 1, then lack at most
            ``tolerance * damping / (1 - damping)`` a vertex on average.
    """

    def body(edges: Any, told: Any) -> Any:
        entered = edges.flat_map("Links", Links(directed), workers=workers)
        rows = entered.union("Notes", told, workers=workers)
        ranked = rows.flat_map("Rank", Rank(damping, tolerance), key="vertex", workers=workers)
        return ranked.split("Leaves", is_rank, workers=workers)

    flow = fn.Dataflow("pagerank")
    flow.source("edges", source).iterate_with_feedback("PageRank", body, workers=workers).sink("ranks", sink)
    return flow


def ranks(rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Vertex to its PageRank, which are 1 in sum; from the rows of ``pagerank_flow``.

    >>> ranks([note(1, RANK, 1, 0.5), note(1, RANK, 2, 3.0), note(2, RANK, 1, 1.0)])
    {1: 0.75, 2: 0.25}
    """
    last: dict[int, tuple[int, float]] = {}
    for row in rows:
        last[row["vertex"]] = max(last.get(row["vertex"], (0, 0.0)), (row["other"], row["value"]))
    total = sum(rank for _, rank in last.values())
    return {vertex: rank / total for vertex, (_, rank) in last.items()}
