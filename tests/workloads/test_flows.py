"""The workloads as declared through the public names: their operators, keys and workers, and the change."""

from __future__ import annotations

import fries_nb as fn
from fries_nb.workloads.fraud import Combine, MerchantModel, fraud_change, fraud_flow, keep_five, pad_to_ten
from fries_nb.workloads.workflows import w1_flow


def edges(graph):
    """The edges as (from, to, partitioning, key)."""
    return [(edge.source, edge.to, str(edge.partitioning), edge.key) for edge in graph.edges]


def test_the_fraud_flow():
    """payments -> FC -> FM -> MC -> scored, FC keyed by customer and FM by terminal."""
    graph = fraud_flow(fn.rate(10), fn.memory(), workers=3).graph()
    assert [(operator.name, operator.workers) for operator in graph.operators[:4]] == [
        ("payments", 1),
        ("FC", 3),
        ("FM", 3),
        ("MC", 3),
    ]
    assert edges(graph)[:3] == [
        ("payments", "FC", "hash", ("CUSTOMER_ID",)),
        ("FC", "FM", "hash", ("TERMINAL_ID",)),
        ("FM", "MC", "forward", ()),
    ]
    assert edges(graph)[3][:2] == ("MC", "scored")


def test_the_change():
    """The one of the acceptance page, with the way back."""
    change = fraud_change()
    assert change["FM"] == fn.Update(MerchantModel(window=10), state=pad_to_ten, back=keep_five)
    assert change["MC"] == Combine([0.4, 0.4, 0.2])
    assert fraud_change(strict=False)["MC"] == Combine([0.4, 0.4, 0.2], strict=False)


def test_w1():
    """Src(1) -> FD(p) -> Sink(1), FD keyed by customer (ACCEPTANCE, W1)."""
    graph = w1_flow(fn.rate(10), fn.memory(), workers=40, cost_ms=25).graph()
    assert [(operator.name, operator.workers) for operator in graph.operators] == [("Src", 1), ("FD", 40), ("Sink", 1)]
    assert edges(graph)[0] == ("Src", "FD", "hash", ("CUSTOMER_ID",))
    assert graph.operator("FD").function.cost_ms == 25
