"""Graphs and payments that go round: every answer is that of networkx, or of plain Python."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payment_checks import Check, checks_flow, entered

import fries_nb as fn
from fries_nb.dataflow.columns import HIDDEN
from fries_nb.simulation.cluster import Cluster
from fries_nb.workloads.graphs import (
    DAMPING,
    Directions,
    LeastLabel,
    Links,
    Rank,
    components_flow,
    generated,
    is_rank,
    karate,
    labels,
    leaves,
    miserables,
    pagerank_flow,
    ranks,
)

Edge = tuple[int, int]
Row = dict[str, Any]

EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20)


def rows_of(edges: Iterable[Edge]) -> list[Row]:
    """The rows of a source."""
    return [{"source": source, "target": target} for source, target in edges]


def components(edges: Iterable[Edge]) -> dict[int, int]:
    """Vertex to the least vertex of its component, by networkx."""
    return {vertex: min(part) for part in nx.connected_components(nx.Graph(edges)) for vertex in part}


def difference(found: dict[int, float], graph: nx.Graph) -> float:
    """The sum of the differences to the ranks of networkx."""
    wanted = nx.pagerank(graph, DAMPING, tol=1e-14, max_iter=10_000, weight=None)
    assert found.keys() == wanted.keys()
    return sum(abs(found[vertex] - wanted[vertex]) for vertex in wanted)


class Rounds:
    """A loop in plain Python: one edge after the other, each until no message is left."""

    def __init__(self, enter: Callable[[Row], Iterator[Row]], vertex: Any, out: Callable[[Row], bool]) -> None:
        self.rows: list[Row] = []
        self.messages = 0
        self._enter, self._vertex, self._out = enter, vertex, out
        self._states: dict[int, Any] = {}

    def add(self, edge: Row) -> None:
        """Process an edge, and all messages that follow."""
        todo = deque(self._enter(edge))
        while todo:
            row = todo.popleft()
            self.messages += 1
            state = self._states.setdefault(row["vertex"], None) or self._vertex.initial_state()
            self._states[row["vertex"]] = state
            made = list(self._vertex.process(row, state))
            self.rows += filter(self._out, made)
            todo += [each for each in made if not self._out(each)]


@given(edges=EDGES)
def test_after_every_edge_the_labels_are_those_of_the_graph_so_far(edges: list[Edge]) -> None:
    """Nothing is computed again: an edge that joins no components costs four messages at most."""
    rounds = Rounds(Directions(), LeastLabel(), leaves)
    for count, edge in enumerate(rows_of(edges), start=1):
        before, had = rounds.messages, labels(rounds.rows)
        rounds.add(edge)
        assert labels(rounds.rows) == components(edges[:count])
        if had == labels(rounds.rows):
            assert rounds.messages - before <= 4


@given(edges=EDGES, directed=st.booleans())
def test_after_every_edge_the_ranks_are_those_of_the_graph_so_far(edges: list[Edge], directed: bool) -> None:
    """Within the tolerance, with vertices that lead nowhere; networkx counts edges of a vertex to itself, we do not."""
    edges = [(source, target) for source, target in edges if source != target]
    rounds = Rounds(Links(directed), Rank(tolerance=1e-7), is_rank)
    graph: nx.Graph = nx.DiGraph() if directed else nx.Graph()
    for edge, row in zip(edges, rows_of(edges), strict=True):
        rounds.add(row)
        graph.add_edge(*edge)
    if edges:
        assert difference(ranks(rounds.rows), graph) < 1e-5


def played(flow: fn.Dataflow, rows: list[Row], seed: int, **options: Any) -> list[Row]:
    """What comes out of a seeded run."""
    chance = random.Random(seed)
    workers, hosts = chance.randint(1, 3), chance.randint(1, 3)
    [source] = flow.graph().sources
    [sink] = flow.graph().sinks
    window = chance.choice((300, 5_000, 50_000))
    run = Cluster(flow.graph(workers), {source: rows}, seed=seed, hosts=hosts, window=window, **options)
    run.run()
    run.settle()
    assert run.state == "finished", run.error
    return [{name: row[name] for name in row if name not in HIDDEN} for row in run.rows(sink)]


@pytest.mark.parametrize("seed", range(5))
def test_components_of_generated_graphs(seed: int) -> None:
    """Over seeds that draw edges, workers, hosts and all that happens; with repeated edges and loops."""
    edges = [(row["source"], row["target"]) for row in generated(6, 60, seed).to_pylist()]
    found = played(components_flow(fn.rate(None), fn.memory()), rows_of(edges), seed)
    assert labels(found) == components(edges)


@pytest.mark.parametrize("table", [karate(), miserables()], ids=["karate", "miserables"])
def test_components_and_ranks_of_real_graphs(table: Any) -> None:
    """Exactly, and within the tolerance."""
    rows = table.to_pylist()
    edges = [(row["source"], row["target"]) for row in rows]
    assert labels(played(components_flow(fn.rate(None), fn.memory()), rows, 1)) == components(edges)
    found = played(pagerank_flow(fn.rate(None), fn.memory(), tolerance=5e-3), rows, 2)
    assert difference(ranks(found), nx.Graph(edges)) < 0.02


def test_payments_go_round_until_they_are_decided() -> None:
    """Each comes out once, after as many rounds as plain Python says, and never more than the most."""
    payments = [{"TRANSACTION_ID": number, "TX_AMOUNT": float(number % 300)} for number in range(100)]
    wanted = []
    for payment in payments:
        row = entered(dict(payment))
        while not row["decided"]:
            row = Check()(row)
        wanted.append(row)
    found = played(checks_flow(fn.rate(None), fn.memory()), payments, 3)
    assert sorted(found, key=lambda row: row["TRANSACTION_ID"]) == wanted
    assert {row["round"] for row in wanted} >= {2, 4, 8}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Rank(damping=1.0), "expected a damping between 0 and 1"),
        (lambda: Rank(tolerance=0.0), "a tolerance above 0"),
        (lambda: Check(most=0), "at least one round"),
        (lambda: generated(0, 10), "expected 1 to 62 levels"),
    ],
)
def test_wrong_values_are_refused(wrong: Callable[[], object], words: str) -> None:
    """In a sentence."""
    with pytest.raises(ValueError, match=words):
        wrong()
