"""Counter-examples to naive FCM: there is one exactly where the plan says so, it is possible, and the audit agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise

import pytest
from hypothesis import given
from loop_graphs import loop_changes
from planning_draws import seeded_change
from planning_graphs import FIGURE_8, FIGURE_9_III, W5, drawn
from planning_reference import is_unique, may_part

from fries_nb.audit import judge
from fries_nb.dataflow import DataflowBuilder, Emits, Graph, memory, rate
from fries_nb.dataflow.windowing import tumbling
from fries_nb.planning import counter_example as counter_examples
from fries_nb.planning import cover
from fries_nb.planning.counter_example import CounterExample, StepKind, counter_example, witnesses

GRAPHS = 4_000


def refuse_impossible(graph: Graph, targets: Collection[str], example: CounterExample) -> None:
    """Each tuple follows edges from a source, types allow two tuples, and single messages allow the order."""
    for way in example.ways:
        assert not graph.in_edges(way[0])
        assert all(to in graph.successors(name) for name, to in pairwise(way))
    if example.parts_at:
        one, other = example.ways
        place = one.index(example.parts_at)
        assert one[: place + 1] == other[: place + 1]
        assert may_part(graph, example.parts_at, one[place + 1], other[place + 1])
        both = set(one[place + 1 : -1]) & set(other[place + 1 : -1])
        assert not any(is_unique(graph, name) for name in both)
    refuse_disorder(targets, example)


def refuse_disorder(targets: Collection[str], example: CounterExample) -> None:
    """The steps are the ways, in their order; a target is old until its one switch, and new from then on."""
    switched: list[str] = []
    met: dict[int, list[str]] = {}
    for step in example.steps:
        if step.kind is StepKind.SWITCHED:
            switched.append(step.operator)
            continue
        met.setdefault(step.copy, []).append(step.operator)
        expected = StepKind.NEW if step.operator in switched else StepKind.OLD
        assert step.kind is (expected if step.operator in targets else StepKind.PASSED)
    assert len(set(switched)) == len(switched)
    shared = met.pop(0)
    assert example.ways == (tuple(tuple(shared + rest) for rest in met.values()) or (tuple(shared),))


def refuse_serializable(example: CounterExample) -> None:
    """The audit finds the very cycle that the counter-example names, and that the tuple mixed the change."""
    verdict = judge(example.records())
    assert not verdict.serializable
    assert (verdict.cycle, verdict.cycle_at) == (example.cycle, example.cycle_at)
    [mixed] = verdict.mixed
    assert ((mixed.transaction, mixed.update), mixed.old[0], mixed.new[0]) == (example.cycle, *example.cycle_at)


def refuse_wrong(seed: int) -> tuple[bool, bool, bool]:
    """The change of this seed has a right counter-example or, exactly if naive FCM is safe, none; returns its shape."""
    graph, targets = seeded_change(seed)
    example = counter_example(graph, targets)
    assert (example is None) is cover(graph, targets).naive_safe
    if example is None:
        return False, False, False
    refuse_impossible(graph, targets, example)
    refuse_serializable(example)
    return True, bool(example.parts_at), len(set(example.cycle_at)) == 1


def test_there_is_one_exactly_where_naive_is_unsafe():
    """On thousands of graphs; all shapes occur: safe, one tuple, two tuples at one target, and at two."""
    shapes = Counter(map(refuse_wrong, range(GRAPHS)))
    assert len(shapes) == 4
    assert min(shapes.values()) > GRAPHS / 100


def _all_edges_alike(graph, edge):
    """An edge of a Replicate carries several tuples."""
    return True


def _nothing_unique(graph, group, targets, leading):
    """Operators pass any number of tuples of a transaction."""
    network = _NETWORK(graph, group, targets, leading)
    for _, _, flow in network.edges(data=True):
        flow["capacity"] = 2
    return network


def _one_message(before, after, copy, other):
    """The second target is never switched."""
    steps = list(_STEPS(before, after, copy, other))
    return [step for step in steps if step.kind is not StepKind.SWITCHED or step.operator == before[-1]]


_NETWORK, _STEPS = counter_examples._network, counter_examples._steps


@pytest.mark.parametrize(
    ("room", "name", "mutant"),
    [
        (counter_examples, "carries_several", _all_edges_alike),
        (counter_examples, "_network", _nothing_unique),
        (counter_examples, "_steps", _one_message),
    ],
)
def test_mutants_are_noticed(monkeypatch, room, name, mutant):
    """Each leads to a counter-example that is refused."""
    monkeypatch.setattr(room, name, mutant)
    with pytest.raises(AssertionError):
        Counter(map(refuse_wrong, range(GRAPHS)))


@given(loop_changes())
def test_loops_have_one_unless_the_plan_is_cautious(change):
    """With a loop, one only where naive FCM is unsafe, and everywhere there, unless a loop gives one row for one."""
    graph, targets = change
    example = counter_example(graph, targets)
    if example is not None:
        assert not cover(graph, targets).naive_safe
        refuse_serializable(example)
        refuse_disorder(targets, example)
        assert all(to in graph.successors(name) for way in example.ways for name, to in pairwise(way))
    elif not cover(graph, targets).naive_safe:
        loops = {graph.operator(name).within.loops[0] for name in targets if graph.operator(name).within.level}
        assert any(graph.operator(loop).emits is Emits.ONE_TO_ONE for loop in loops)


def test_a_loop_is_met_in_two_rounds():
    """By one tuple, which comes back."""
    flow = DataflowBuilder("halving")
    rows = flow.source("S", rate(1)).iterate("L", lambda rows: rows.map("halve", dict).split("enough", bool))
    rows.sink("out", memory())
    example = counter_example(flow.graph(), ["halve"])
    assert example.ways == (("S", "L", "halve", "enough", "L", "halve"),)
    assert example.cycle_at == ("halve", "halve")


class Count:
    """Counts the rows of a window."""

    def process(self, row, state):
        return None

    def close(self, key, time, state):
        return {"value": 0}


def test_transactions_end_at_the_results_of_windows():
    """Targets on both sides have no tuple in common."""
    flow = DataflowBuilder("cut")
    rows = flow.source("S", rate(1), time="timestamp").map("A", dict)
    rows.window("W", Count(), tumbling(60), key="value").map("B", dict).sink("out", memory())
    graph = flow.graph()
    assert counter_example(graph, ["A", "B"]) is None
    assert counter_example(graph, ["A", "W"]).cycle_at == ("A", "W")


@pytest.mark.parametrize(
    ("graph", "change", "said"),
    [
        (W5, "FD4", "as on RE → F4 → FD4"),
        (W5, "E1", "as on RE → F4 → FD4 → SJ → E1"),
        (FIGURE_8, "FMX", "two tuples of one may both go J → SP → FMX"),
        (FIGURE_9_III, "X", "two tuples of one may go RE → C → X and RE → D → X"),
        (drawn("S > A > B > U > X, A > C > V > X", broadcast="A>B A>C", unique="U V"), "X", "as on A → B → U → X"),
    ],
)
def test_each_decision_has_a_witness(graph, change, said):
    """The way that the rule's edge or operator is on, or the ways of two tuples."""
    [witness] = witnesses(graph, change.split(), cover(graph, change.split()).pruning).values()
    assert witness.in_words == said
