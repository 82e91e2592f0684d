"""Latency constraints when a dataflow changes its shape: what holds behind it, and what becomes of the remedies."""

from __future__ import annotations

from itertools import pairwise

import pytest
from remedy_setting import WINDOW_S, ConstrainedDesk

import fries_nb as fn
from fries_nb.dataflow import Graph, constraint_of
from fries_nb.dataflow.constraints import continued
from fries_nb.dataflow.graph import Edge, Operator
from fries_nb.dataflow.updates import NONE_LIGHTER
from fries_nb.errors import DataflowError

NAMES = ("S", "A", "B", "G", "C", "Out")


def desk(policy="tell"):
    """One with a constraint on A -> B that is declared, and one on B that was added."""
    made = ConstrainedDesk(policy)
    made.remedies._cases.clear()
    made.telemetry.constraints.become(())
    made.remedies.expect(made.graph, {made.constraint: NONE_LIGHTER if policy == "tell" else made.light})
    made.remedies.go_on(made.graph)
    made.remedies.add(constraint_of(made.graph, ["B"], 50), NONE_LIGHTER)
    return made


def shaped(of, *names):
    """The desk's dataflow in another shape: a chain of these."""
    known = {one.name: one for one in of.graph.operators}
    operators = tuple(known.get(name) or Operator(name) for name in names)
    return Graph("desk", operators, tuple(Edge(*ends) for ends in pairwise(names)))


def told(of):
    """What hosts judge, as text."""
    assert [one.constraint for one in of.remedies.states()] == list(of.judged)
    return [one.sequence for one in of.judged]


def test_what_the_new_dataflow_declares_holds_behind_the_change_and_what_was_added_stays(caplog):
    """The one on A -> B has no path any more; a rollback of the shape brings it back."""
    one = desk()
    after = shaped(one, "S", "A", "N", "B", "G", "C", "Out")
    assert one.remedies.limits(after, []) == [f"- {one.constraint}"]
    through = constraint_of(after, ["A", "N", "B"], 400)
    assert one.remedies.limits(after, [through]) == [f"+ {through}", f"- {one.constraint}"]
    one.remedies.expect(after, {through: NONE_LIGHTER})
    assert told(one) == ["A -> B", "B"]  # until it is made
    one.remedies.go_on(after)
    assert told(one) == ["A -> N -> B", "B"]
    assert caplog.messages == [f"{one.constraint}: does not hold in the dataflow of now"]
    one.remedies.go_on(one.graph)
    assert told(one) == ["A -> B", "B"]


def test_one_that_was_added_ends_with_its_operator():
    """Which is said in the difference."""
    one = desk()
    after = shaped(one, "S", "A", "G", "C", "Out")
    assert one.remedies.limits(after, []) == [f"- {one.constraint}", "- B: at most 50 ms over 15 s"]
    one.remedies.expect(after, {})
    one.remedies.go_on(after)
    assert (told(one), one.judged) == ([], ())


def test_a_remedy_goes_on_where_only_a_replicate_comes_between():
    """The lighter function runs, and returns by itself as before."""
    one = desk("apply")
    one.judge(3 * WINDOW_S, 900)
    one.later.make()
    change = one.queue.changes[-1]
    one.end(0, change.id)
    assert one.said == f"lighter functions of A run by change {change.id}"
    after = shaped(one, "S", "A", "Replicate(A)", "B", "G", "C", "Out")
    there = continued(one.constraint, after)
    assert there is not None
    assert one.remedies.limits(after, [there]) == []
    one.remedies.expect(after, {there: one.light})
    one.remedies.go_on(after)
    assert one.said == f"lighter functions of A run by change {change.id}"
    assert told(one) == ["A -> Replicate(A) -> B", "B"]


def test_what_is_declared_for_the_shape_of_now_replaces_what_was():
    """As when an edited cell changes a limit and a function."""
    one = desk()
    other = constraint_of(one.graph, ["A", "B"], 100)
    one.remedies.expect(one.graph, {other: NONE_LIGHTER})
    one.remedies.go_on(one.graph)
    assert [str(each) for each in one.judged] == ["A -> B: at most 100 ms over 15 s", "B: at most 50 ms over 15 s"]


def test_a_contradiction_to_one_that_was_added_is_refused():
    """And nothing changes."""
    one = desk()
    with pytest.raises(DataflowError, match="two constraints on B contradict"):
        one.remedies.expect(one.graph, {constraint_of(one.graph, ["B"], 60): NONE_LIGHTER})
    one.remedies.go_on(one.graph)
    assert told(one) == ["A -> B", "B"]


@pytest.mark.parametrize("ends", [("first",), ("last",), ("first", "last")])
def test_a_constraint_that_begins_or_ends_with_an_edge_is_continued(ends):
    """Its outer operators are ends of edges all the same."""
    names = ("S", "A", "B", "Out")

    def chain(*of):
        return Graph("g", tuple(map(Operator, of)), tuple(Edge(*pair) for pair in pairwise(of)))

    sequence = [*([fn.edge("S", "A")] if "first" in ends else []), "A", "B"]
    sequence += [fn.edge("B", "Out")] if "last" in ends else []
    one = constraint_of(chain(*names), sequence, 100)
    there = continued(one, chain("S", "A", "Replicate(A)", "B", "Out"))
    assert there == constraint_of(chain("S", "A", "Replicate(A)", "B", "Out"), sequence, 100)
    assert continued(there, chain(*names)) == one
    assert continued(one, chain("S", "A", "Out")) is None
