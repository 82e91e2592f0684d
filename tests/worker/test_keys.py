"""A row without the column that its receiver is keyed by is the failure of the operator that made it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pause_setting import fix
from worker_bench import Bench, Port, data

from fries_nb.dataflow import Edge, Graph, Kind, Operator, Partitioning, batched
from fries_nb.protocol.messages import Data, Failed, Paused
from fries_nb.protocol.topology import Topology, wire
from fries_nb.worker.outbox import SendFrame


def lost(row: dict[str, Any]) -> dict[str, Any]:
    """Some rows without their key."""
    return {"v": 1} if row["n"] == 2 else {"n": row["n"], "v": 1}


@batched
def lost_in_batches(batch: Any) -> Any:
    """Likewise: a batch without its key."""
    return batch.rename_columns(["m"]) if 2 in batch["n"].to_pylist() else batch


def bench(operator: Operator, port: Port | None = None) -> Bench:
    """The operator between A and Z, which has two workers and is keyed by n."""
    bench = Bench(operator, receivers=2, key=("n",))
    if port is not None:
        bench.keep_letters(0, port)
    return bench


def numbers(bench: Bench) -> list[int]:
    """The numbers of the rows that went to Z, in order."""
    bench.take()
    frames = [one.frame for one in bench.said if isinstance(one, SendFrame)]
    return sorted(number for one in frames if isinstance(one, Data) for number in one.batch["n"].to_pylist())


@pytest.mark.parametrize("function", [lost, lost_in_batches])
def test_a_row_without_its_key_is_a_dead_letter(function: Any) -> None:
    """The others leave, whatever slice they come in."""
    port = Port()
    one = bench(Operator("M", function=function, on_error="dead"), port)
    one.arrive(0, data(1, 2, 3))
    one.run()
    assert numbers(one) == [1, 3]
    [letter] = port.rows
    assert json.loads(letter["tuple"]) == {"n": 2}
    assert letter["error"].startswith("M failed on a tuple: its row has ")
    assert letter["error"].endswith(", and Z is keyed by n")
    assert one.answers(Failed) == []


def test_an_operator_that_pauses_stands_in_front_of_a_row_without_its_key() -> None:
    """A fix gets past it; by default the run fails, and says so of the operator."""
    one = bench(Operator("M", function=lost, on_error="pause"))
    one.arrive(0, data(1, 2, 3))
    one.run()
    [paused] = one.answers(Paused)
    assert paused.error == "M failed on a tuple: its row has v, and Z is keyed by n"
    fix(one, 1, lambda row: row | {"v": 2})
    assert numbers(one) == [1, 2, 3]
    assert one.answers(Failed) == []
    one = bench(Operator("M", function=lambda row: {"v": 1}))
    one.arrive(0, data(2))
    one.run()
    [failed] = one.answers(Failed)
    assert failed.error == "M failed on a tuple: its row has v, and Z is keyed by n"


def test_what_operators_below_are_keyed_by_is_asked_of_the_one_that_makes_the_rows() -> None:
    """Through a filter and a union; not through an operator that makes rows of its own."""
    operators = [Operator(name, kind=kind) for name, kind in
                 {"M": Kind.MAP, "F": Kind.FILTER, "U": Kind.UNION, "K": Kind.MAP, "L": Kind.MAP}.items()]  # fmt: skip
    edges = (
        Edge("M", "F"), Edge("F", "U"), Edge("U", "K", Partitioning.HASH, ("k", "j")),
        Edge("K", "L", Partitioning.HASH, ("l",)),
    )  # fmt: skip
    graph = Graph("g", tuple(operators), edges)
    assert wire(Topology.dealt(graph, 1), ("M", "F"), 0).needed == (({"k": "K", "j": "K"},), ({"k": "K", "j": "K"},))
    assert wire(Topology.dealt(graph, 1), ("K",), 0).needed == (({"l": "L"},),)
