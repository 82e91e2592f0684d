"""Traces of runs that have changed their shape: who has met two of them, and what was lost where their edges differ."""

from __future__ import annotations

import itertools
from collections import Counter

from fries_nb.audit import Mixed, Verdict, judge
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.protocol.trace import Ran, RanMany, Record, Updated, Wrote, flow_of


def graph(*paths: str) -> Graph:
    """Operators of one letter, along paths."""
    edges = dict.fromkeys(ends for path in paths for ends in itertools.pairwise(path))
    return Graph("g", tuple(map(Operator, dict.fromkeys("".join(paths)))), tuple(Edge(*ends) for ends in edges))


def judged(shapes: dict[str, Graph], *records: Record) -> Verdict:
    """The verdict on records of workers that have all ended, in a run with these shapes."""
    flows = [flow_of(one, finished=True, shape=change) for change, one in shapes.items()]
    ran, updated = Counter[str](), Counter[str]()
    for record in records:
        match record:
            case Ran(_, operator):
                ran[operator] += 1
            case RanMany(transactions, operator):
                ran[operator] += len(transactions)
            case Updated(_, operator):
                updated[operator] += 1
    names = dict.fromkeys(name for one in shapes.values() for name in one.by_name)
    return judge([*flows, *records, *(Wrote(name, 0, ran[name], updated[name], ended=True) for name in names)])


def runs(transaction: str, path: str) -> list[Record]:
    """A tuple that goes along a path."""
    return [Ran(transaction, name) for name in path]


INSERTED = {"": graph("SABC"), "u": graph("SANBC")}
SWITCH = Updated("u", "A", edges=True)
ADDED = Updated("u", "N", edges=True)


def test_each_tuple_goes_along_the_edges_of_one_shape() -> None:
    """The old one, or the new one."""
    verdict = judged(INSERTED, *runs("t1", "SABC"), SWITCH, ADDED, *runs("t2", "SANBC"))
    assert (verdict.serializable, verdict.updates, verdict.transactions) == (True, 1, 2)


def test_a_tuple_that_met_two_shapes_is_named() -> None:
    """A sent it on before its switch, and B, which has switched by then, on its new edge."""
    shapes = {"": graph("SABCZ"), "u": graph("SANBDZ")}
    switches = [SWITCH, ADDED, Updated("u", "B", edges=True), Updated("u", "D", edges=True)]
    verdict = judged(shapes, *runs("t", "SA"), *switches, *runs("t", "BDZ"))
    assert verdict.mixed == (Mixed("t", "u", ("A",), ("B", "D")),)


def test_what_is_lost_or_doubled_on_edges_of_one_shape_is_named() -> None:
    """Behind its switch A sent a row on its old edge; or on both."""
    early = judged(INSERTED, SWITCH, ADDED, *runs("t", "SABC"))
    assert [one.account for one in early.lost] == ["A emitted 1 for N, which took 0"]
    assert [one.account for one in early.doubled] == ["A and N emitted 0 for B, which took 1"]
    both = judged(INSERTED, SWITCH, ADDED, *runs("t", "SANBC"), *runs("t", "BC"))
    assert [one.account for one in both.doubled] == ["A and N emitted 1 for B, which took 2"]


def test_an_operator_that_returns_sends_on_the_edges_of_its_last_shape() -> None:
    """N was there, was removed, and is there again with another edge; and what it sent before arrived where it did."""
    shapes = {"": graph("SANBC"), "u": graph("SABC"), "v": graph("SANC", "SABC")}
    first = [*runs("t1", "SANBC"), SWITCH, *runs("t2", "SABC")]
    again = [Updated("v", "A", edges=True), Updated("v", "N", edges=True)]
    assert judged(shapes, *first, *again, *runs("t3", "SANC"), *runs("t3", "BC")).serializable
    astray = judged(shapes, *first, *again, *runs("t3", "SANB"), *runs("t3", "BC"))
    assert not astray.serializable
    assert {one.receiver for one in (*astray.lost, *astray.doubled)} == {"B", "C"}


def test_a_function_that_stays_is_not_stale() -> None:
    """A switch of the edges only leaves the function that the last change has installed."""
    records: list[Record] = [Updated("f", "A"), Ran("t", "S"), SWITCH, RanMany(("t",), "A", 0, "f")]
    verdict = judged(INSERTED, *records, ADDED, *runs("t", "NBC"))
    assert verdict.serializable
    other = judged(INSERTED, *records[:-1], RanMany(("t",), "A", 0, ""), ADDED, *runs("t", "NBC"))
    assert [(one.operator, one.update, one.ran) for one in other.stale] == [("A", "f", "")]
