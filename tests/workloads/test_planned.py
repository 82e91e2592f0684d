"""The graphs of W1 to W5 as declared: what a change of them synchronises is what the paper's tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

import fries_nb as fn
from fries_nb.planning import cover
from fries_nb.protocol.topology import channel_count
from fries_nb.workloads.scorer import Waits
from fries_nb.workloads.tpcds import Tables
from fries_nb.workloads.workflows import ADDED, w1_flow, w2_flow, w3_flow, w4_flow, w5_flow

NOWHERE = Tables(Path("nowhere"))
FLOWS = {
    "W1": w1_flow(fn.rate(1), fn.memory()),
    "W2": w2_flow(NOWHERE, fn.memory()),
    "W3": w3_flow(NOWHERE, fn.memory()),
    "W4": w4_flow(fn.rate(1), fn.memory(), Waits(0)),
    "W5": w5_flow(fn.rate(1), fn.memory(), Waits(0)),
}


def parts(name: str, change: str, pruning: bool = True) -> list[tuple[set[str], set[str]]]:
    """Operators and heads of each component, as the paper draws them."""
    covering = cover(FLOWS[name].graph(), change.split(), pruning)
    return sorted(((set(part.operators) - set(ADDED), set(part.heads)) for part in covering.components), key=str)


@pytest.mark.parametrize(
    ("flow", "change", "components", "heads"),
    [
        ("W1", "FD", ["FD"], ["FD"]),
        ("W2", "J1", ["J1"], ["J1"]),
        ("W2", "J2", ["J2"], ["J2"]),
        ("W2", "J1 J3", ["J1 J2 J3"], ["J1"]),
        ("W2", "J1 J4", ["J1 J2 J3 J4"], ["J1"]),
        ("W2", "J3 J4", ["J3 J4"], ["J3"]),
        ("W3", "J5", ["J5"], ["J5"]),
        ("W3", "J5 J6", ["J5", "J6"], ["J5", "J6"]),
        ("W3", "J5 J6 J7 J8", ["J5 J6 J7 U1 J8"], ["J5 J6 J7"]),
        ("W3", "J5 J6 J7 J9", ["J5 J6 J7 U1 J8 J9"], ["J5 J6 J7"]),
        ("W3", "J7 J8 J9", ["J7 U1 J8 J9"], ["J7"]),
        ("W4", "F1 U2", ["F1 U2"], ["F1"]),
        ("W4", "FD1", ["U2 FD1"], ["U2"]),
        ("W4", "F2", ["U2 FD1 FD2 F2"], ["U2"]),
        ("W5", "FD4", ["FD4"], ["FD4"]),
        ("W5", "F3", ["F3"], ["F3"]),
        ("W5", "F4", ["F4"], ["F4"]),
        ("W5", "FD3 FD4", ["RE FD3 F4 FD4"], ["RE"]),
        ("W5", "E1", ["E1"], ["E1"]),
    ],
)  # fmt: skip
def test_what_a_change_synchronises(flow, change, components, heads):
    """Tables 4 to 6 of the paper, with the operators that it does not draw left out."""
    expected = [(set(part.split()), set(head.split())) for part, head in zip(components, heads, strict=True)]
    assert parts(flow, change) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("change", "component"),
    [
        ("FD4", "RE F4 FD4"),
        ("F3", "RE FD3 S1 F3"),
        ("F4", "RE F4"),
        ("FD3 FD4", "RE FD3 F4 FD4"),
        ("E1", "RE FD3 S1 F3 F4 FD4 SJ E1"),
    ],
)
def test_without_pruning_w5_is_synchronised_from_re_on(change, component):
    """Table 6, second column."""
    assert parts("W5", change, pruning=False) == [(set(component.split()), {"RE"})]


@pytest.mark.parametrize("workers", [1, 4, 12, 20, 40])
def test_w2_has_as_many_channels_as_in_table_7(workers):
    """4p^2 + p in all, 3p^2 in the component of J1 and J4."""
    graph = w2_flow(NOWHERE, fn.memory(), workers=workers).graph()
    [component] = cover(graph, ["J1", "J4"]).components
    inside = [edge for edge in graph.edges if (edge.source, edge.to) in component.edges]
    assert channel_count(graph, graph.edges) == 4 * workers**2 + workers
    assert channel_count(graph, inside) == 3 * workers**2
