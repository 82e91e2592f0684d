"""Edge lists: two small real ones, and large ones that are generated from a seed.

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

import networkx as nx
import numpy as np
import pyarrow as pa

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
