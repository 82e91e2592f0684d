"""How long a change would take: small graphs by hand, and random ones, on which epoch is never the quickest."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_draws import changes
from planning_graphs import FIGURE_8, drawn

from fries_nb.changes.queue_entries import planned, predicted
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.dataflow.regions import regions
from fries_nb.planning import CriticalPath, Prediction
from fries_nb.planning.schedulers import Plan, foretold, schedule
from fries_nb.planning.shape import shape_plan
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.running.region_runner import RegionRunner
from fries_nb.telemetry.metrics import OperatorMetrics
from fries_nb.telemetry.telemetry import Telemetry

Measured = dict[str, OperatorMetrics]

CHAIN = drawn("Src > A > B > C > Sink", workers=2)
DIAMOND = drawn("Src > H > L > E > Sink, H > R > E", many="H")
APART = drawn("Src > A > B > Out, Src > C > D > Rest, Src > Idle")


def measured(graph: Graph, waiting: dict[str, int], rate: float = 100.0) -> Measured:
    """So many tuples wait, and each operator takes so many a second."""
    return {name: OperatorMetrics(processed=1_000, rate=rate, queued=waiting.get(name, 0)) for name in graph}


def prediction(graph: Graph, targets: set[str], scheduler: str, operators: Measured) -> Prediction:
    """As a run makes it."""
    cut = regions(graph)
    shares: dict[int, list[str]] = {}
    for name in sorted(targets):
        shares.setdefault(next(number for number, region in enumerate(cut) if name in region.own), []).append(name)
    return predicted(cut, planned(cut, shares, scheduler, True), operators, None)


def deciding(found: Prediction) -> list[str]:
    """The ways, as they are drawn."""
    return [" > ".join(way.operators) for way in found.ways]


def test_a_message_passes_what_waits_in_front_of_a_head() -> None:
    """Of the head only a tuple in hand for each worker counts; of those below all that waits."""
    queues = measured(CHAIN, {"Src": 5_000, "A": 300, "B": 400, "C": 50, "Sink": 700})
    alone = prediction(CHAIN, {"B"}, "fries", queues)
    assert (deciding(alone), alone.commit_ms, alone.epoch_ms) == (["B"], pytest.approx(20), pytest.approx(7_000))
    both = prediction(CHAIN, {"A", "C"}, "fries", queues)
    assert deciding(both) == ["A > B > C"]
    assert (both.commit_ms, both.epoch_ms) == (pytest.approx(4_520), pytest.approx(7_500))
    epoch = prediction(CHAIN, {"A", "C"}, "epoch", queues)
    assert (deciding(epoch), epoch.commit_ms) == (["Src > A > B > C"], epoch.epoch_ms)


def test_naive_waits_for_tuples_in_hand_only() -> None:
    """One message for each target, and none waits for the other."""
    found = prediction(CHAIN, {"A", "C"}, "naive", measured(CHAIN, {"A": 1, "B": 400, "C": 50}))
    assert (deciding(found), found.commit_ms) == (["A", "C"], pytest.approx(20))
    assert [way.delay_ms for way in found.ways] == [pytest.approx(10), pytest.approx(20)]


def test_the_slower_way_decides() -> None:
    """A marker is aligned where ways meet: it is through when it has come on both."""
    for slow, quick in (("L", "R"), ("R", "L")):
        found = prediction(DIAMOND, {"E"}, "fries", measured(DIAMOND, {slow: 30, quick: 20, "E": 5}))
        assert (deciding(found), found.commit_ms) == ([f"H > {slow} > E"], pytest.approx(350))


def test_the_way_ends_in_the_last_target() -> None:
    """Neither in the first one, nor behind it."""
    found = prediction(CHAIN, {"A", "B"}, "fries", measured(CHAIN, {"B": 10, "C": 1_000}))
    assert (deciding(found), found.commit_ms) == (["A > B"], pytest.approx(100))
    assert deciding(prediction(CHAIN, {"A", "B"}, "fries", measured(CHAIN, {}))) == ["A > B"]


def test_components_go_at_once() -> None:
    """The slowest of them decides, and not their sum."""
    found = prediction(APART, {"A", "B", "C", "D"}, "fries", measured(APART, {"B": 20, "D": 70}))
    assert sorted(deciding(found)) == ["A > B", "C > D"]
    assert found.commit_ms == pytest.approx(700)
    assert prediction(APART, {"A", "B", "C", "D"}, "epoch", measured(APART, {"A": 9, "B": 20, "D": 70})).ways[
        0
    ].operators == ("Src", "C", "D")


@pytest.mark.parametrize(
    "pace", [OperatorMetrics(), OperatorMetrics(queued=40), OperatorMetrics(processed=1_000, queued=40)]
)
def test_a_pace_that_is_not_known_is_not_made_up(pace: OperatorMetrics) -> None:
    """No tuple yet, or none taken now while some wait; where it is not on the way it does not matter."""
    queues = measured(CHAIN, {"C": 30}) | {"B": pace}
    found = prediction(CHAIN, {"A", "C"}, "fries", queues)
    assert (found.commit_ms, found.epoch_ms, found.ways[0].unmeasured) == (None, None, ("B",))
    below = prediction(CHAIN, {"C"}, "fries", queues)
    assert (below.commit_ms, below.epoch_ms) == (pytest.approx(20), None)
    above = prediction(CHAIN, {"A"}, "epoch", queues)
    assert above.commit_ms == above.epoch_ms == 0
    one_of_two = prediction(APART, {"A", "B", "C", "D"}, "fries", measured(APART, {"D": 5}) | {"B": pace})
    assert [way.delay_ms for way in one_of_two.ways] == [None, pytest.approx(50)]
    assert one_of_two.commit_ms is None


def test_nothing_waits_where_nothing_comes() -> None:
    """A source that pauses leaves rates of zero, and empty queues take no time; of a source nothing need be known."""
    queues = measured(CHAIN, {}, rate=0.0)
    del queues["Src"]
    assert prediction(CHAIN, {"A", "C"}, "epoch", queues).commit_ms == 0


@pytest.mark.parametrize("scheduler", ["multiversion", "minibatch", "restart"])
def test_what_does_more_than_to_switch_is_not_predicted(scheduler: str) -> None:
    """It waits for other things than markers; the comparison stands."""
    found = prediction(CHAIN, {"A", "C"}, scheduler, measured(CHAIN, {"A": 100}))
    assert (found.ways, found.commit_ms, found.epoch_ms) == ((), None, pytest.approx(1_000))


def test_a_change_that_reaches_into_a_later_region_is_as_late() -> None:
    """Each region has its own markers; one that has not begun has taken nothing in."""
    names = (Operator("Src"), Operator("A"), Operator("Sum", blocking=True), Operator("B"), Operator("Out"))
    ends = (("Src", "A"), ("A", "Sum"), ("Sum", "B"), ("B", "Out"))
    graph = Graph("two", names, tuple(Edge(*each) for each in ends))
    queues = measured(graph, {"A": 30, "B": 60})
    for scheduler, ways in (("fries", ["A", "B"]), ("epoch", ["Src > A", "Sum > B"])):
        assert deciding(prediction(graph, {"A", "B"}, scheduler, queues)) == ways
    assert prediction(graph, {"A", "B"}, "epoch", queues).commit_ms == pytest.approx(600)
    early = prediction(graph, {"A", "B"}, "epoch", queues | {"B": OperatorMetrics()})
    assert (early.commit_ms, early.ways[0].delay_ms) == (None, pytest.approx(300))


def test_a_one_to_many_operator_makes_it_longer() -> None:
    """Figure 8: the markers start at the join, and pass what waits in front of the split and of the target."""
    found = prediction(FIGURE_8, {"FMX"}, "fries", measured(FIGURE_8, {"J": 1_000, "SP": 10, "FMX": 20, "FMY": 900}))
    assert (deciding(found), found.commit_ms) == (["J > SP > FMX"], pytest.approx(310))


@pytest.mark.parametrize("state", ["joining", "running", "draining", "recovering"])
def test_a_run_predicts_while_tuples_flow(state: str) -> None:
    """From what its workers report; what was measured before hosts were lost says nothing."""
    cut = regions(CHAIN)
    now_s = [0.0]
    telemetry = Telemetry(CHAIN, clock=lambda: now_s[0])
    unused: Any = SimpleNamespace(identities=False)
    runner = RegionRunner(CHAIN, cut, unused, unused, telemetry, lambda: None)
    runner._state = state
    runner.ended.set()  # so that this is the state that it tells
    for at_s in (1, 2):
        now_s[0] = float(at_s)
        for name, index in itertools.product(CHAIN, (0, 1)):
            queued = 200 if name == "B" else 0
            telemetry.report(cut[0], Report(WorkerId(name, index), 100 * at_s, 0, queued_tuples=queued))
    plan = runner.plan(["B"], "fries", True)
    assert plan == schedule("fries", CHAIN, ["B"])
    expected = Prediction((CriticalPath(("B",), 10.0),), 2_000.0) if state in ("running", "draining") else None
    assert plan.prediction == expected
    assert schedule("fries", CHAIN, ["B"]).prediction is None


@given(changes(), st.data())
def test_epoch_is_never_predicted_to_be_quicker(change, data):
    """Nor Fries than naive; and where epoch's delay is known, so is that of the others."""
    graph, targets = change
    paces = st.tuples(st.sampled_from([0, 0, 1, 5, 400]), st.sampled_from([0.0, 0.3, 7.0, 100.0]), st.integers(0, 9))
    queues = {
        name: OperatorMetrics(queued=waiting, rate=rate, processed=processed)
        for name, (waiting, rate, processed) in ((name, data.draw(paces)) for name in graph)
    }
    naive, fries, epoch = (prediction(graph, targets, each, queues) for each in ("naive", "fries", "epoch"))
    assert naive.epoch_ms == fries.epoch_ms == epoch.commit_ms
    for quicker, slower in ((naive, fries), (fries, epoch)):
        if slower.commit_ms is not None:
            assert quicker.commit_ms is not None
            assert quicker.commit_ms <= slower.commit_ms


def test_a_delay_is_from_the_request_on_as_that_of_a_result() -> None:
    """It has the same parts; before a change was made the time to prepare is not known, and so is the delay."""
    ways = (CriticalPath(("B",), 11.0),)
    assert (Prediction(ways, None).commit_ms, Prediction(ways, None).delay_ms) == (11.0, None)
    assert (Prediction(ways, None, 159.0).commit_ms, Prediction(ways, None, 159.0).delay_ms) == (11.0, 170.0)
    assert Prediction((), None, 159.0).delay_ms is None


def of_shape(before: Graph, after: Graph, waiting: dict[str, int], order: bool = True) -> tuple[Plan, Prediction]:
    """A change of the shape, and what a run foretells of it; the run knows nothing of the added operators."""
    plan = shape_plan(before, after, order=order).plan
    return plan, predicted(regions(before), {0: plan}, measured(before, waiting), 30.0)


def test_a_change_of_the_shape_takes_as_long_as_the_longest_old_queue_below_a_head() -> None:
    """Every member gets the message, but the one at which old and new rows meet waits for the marker on the old way."""
    before = drawn("Src > A > B > Sink", workers=2)
    after = drawn("Src > A > N > B > Sink", workers=2)
    waiting = {"Src": 5_000, "A": 300, "B": 400, "Sink": 700}
    _, ordered = of_shape(before, after, waiting)
    assert deciding(ordered) == ["A > B"]
    assert (ordered.commit_ms, ordered.delay_ms) == (pytest.approx(4_020), pytest.approx(4_050))
    assert ordered.epoch_ms == pytest.approx(7_000)
    _, unordered = of_shape(before, after, waiting, order=False)
    assert deciding(unordered) == ["A", "B"]
    assert unordered.commit_ms == pytest.approx(20)


def test_what_waits_in_front_of_a_removed_operator_is_passed_before_its_end() -> None:
    """It is a member if its rows meet those of the new way; a branch that is dropped is none."""
    before, after = drawn("Src > A > R > B > Sink", workers=2), drawn("Src > A > B > Sink", workers=2)
    _, found = of_shape(before, after, {"R": 800, "B": 100})
    assert (deciding(found), found.commit_ms) == (["A > R > B"], pytest.approx(9_000))
    before, after = drawn("Src > A > Sink, A > R > Rest", many="A"), drawn("Src > A > Sink", many="A")
    _, found = of_shape(before, after, {"R": 800, "A": 7})
    assert (deciding(found), found.commit_ms) == (["A"], pytest.approx(10))


def test_an_added_source_alone_waits_for_nothing() -> None:
    """What is left is the time to prepare."""
    before = drawn("Src > A > Sink")
    plan, found = of_shape(before, drawn("Src > A > Sink, More > Rest"), {"A": 500})
    assert (found.commit_ms, found.delay_ms, found.epoch_ms) == (0.0, 30.0, None)
    assert foretold(replace(plan, prediction=found)) == [
        "predicted delay 30 ms: prepare 30 ms, as in changes before, then commit 0 ms"
    ]
