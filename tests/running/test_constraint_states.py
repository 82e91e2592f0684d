"""The state of constraints over time: verdicts of several hosts, stalls, and what is kept for plots."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import SimpleNamespace

import msgspec
import pytest

from fries_nb.constraints.judgements import ConstraintPoint, state_of
from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency
from fries_nb.controller.events import RescaleEnded
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.protocol.running_chains import ChainedOperators
from fries_nb.protocol.topology import Topology
from fries_nb.running.run_monitor import RunMonitor
from fries_nb.telemetry import run_states
from fries_nb.telemetry.metrics import Recorded
from fries_nb.telemetry.run_states import ConstraintStates
from fries_nb.telemetry.telemetry import Telemetry

CONSTRAINT = LatencyConstraint(("FC", "FM"), latency_ms=300)
ELEMENTS = (ElementLatency("FC", 4.0, 9.0), ElementLatency("FC -> FM", 100.0, 130.0, 90.0), ElementLatency("FM", 2, 3))
MET = ConstraintVerdict(
    CONSTRAINT.sequence, 300, 15, 0, 0, ConstraintStatus.MET, "", 106.0, 142.0, elements=ELEMENTS, rows=10
)


def judged(at_s: float, host: int = 0, mean_ms: float | None = 100.0, worst_ms: float | None = 150.0,
           sequence: str = CONSTRAINT.sequence) -> ConstraintVerdict:  # fmt: skip
    """A verdict of a host at this time."""
    return msgspec.structs.replace(
        MET, time_ns=round(at_s * 1e9), host=host, mean_ms=mean_ms, worst_ms=worst_ms, sequence=sequence
    )


def test_the_parts_of_each_element_add_up_to_its_mean() -> None:
    """An operator has a task latency only; of an edge, what is not buffered is transport."""
    parts = state_of(CONSTRAINT, [MET]).parts
    assert [(one.element, one.task_ms, one.buffer_ms, one.transport_ms) for one in parts] == [
        ("FC", 4.0, 0.0, 0.0),
        ("FC -> FM", 0.0, 90.0, 10.0),
        ("FM", 2.0, 0.0, 0.0),
    ]
    assert [one.mean_ms for one in parts] == [one.mean_ms for one in ELEMENTS]


def test_a_buffer_never_takes_longer_than_its_edge() -> None:
    """Both are means of different samples; no part is negative."""
    odd = msgspec.structs.replace(MET, elements=(ElementLatency("FC -> FM", 10.0, 11.0, 12.0),))
    [part] = state_of(CONSTRAINT, [odd]).parts
    assert (part.buffer_ms, part.transport_ms) == (10.0, 0.0)


def test_a_host_without_rows_that_is_stalled_leaves_the_mean_a_number() -> None:
    """Infinity times no rows would be no number at all."""
    stalled = msgspec.structs.replace(MET, host=1, mean_ms=inf, worst_ms=inf, rows=0)
    state = state_of(CONSTRAINT, [MET, stalled])
    assert (state.mean_ms, state.worst_ms) == (106.0, inf)


def test_verdicts_of_several_hosts_become_one_point() -> None:
    """Of those at about the same time the last has all hosts in it; later ones are points of their own."""
    states = ConstraintStates([CONSTRAINT])
    states.judge([judged(100.0, host=0, mean_ms=100.0), judged(100.1, host=1, mean_ms=200.0, worst_ms=310.0)])
    states.judge([judged(101.0, host=0, mean_ms=100.0)])
    assert [(one.at_s, one.mean_ms, one.worst_ms) for one in states.points()] == [
        (100.0, 150.0, 310.0),
        (101.0, 150.0, 310.0),
    ]


def test_points_of_several_constraints_are_kept_apart() -> None:
    """They alternate, however close they are."""
    other = LatencyConstraint(("FM", "MC"), latency_ms=20)
    states = ConstraintStates([CONSTRAINT, other])
    for at_s in (100.0, 101.0):
        states.judge([judged(at_s), judged(at_s + 0.01, sequence=other.sequence)])
    assert [one.sequence for one in states.points()] == [CONSTRAINT.sequence, other.sequence] * 2
    assert [one.limit_ms for one in states.points()] == [300, 20] * 2


def test_hosts_that_start_again_are_not_mixed_with_those_before() -> None:
    """Points stay, the verdicts that they were made of do not count any more."""
    states = ConstraintStates([CONSTRAINT])
    states.judge([judged(100.0, host=1, mean_ms=900.0, worst_ms=900.0)])
    states.forget()
    states.judge([judged(103.0, host=0)])
    assert [one.worst_ms for one in states.points()] == [900.0, 150.0]


def test_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first."""
    monkeypatch.setattr(run_states, "POINTS_KEPT", 5)
    states = ConstraintStates([CONSTRAINT])
    for second in range(9):
        states.judge([judged(100.0 + second)])
    assert [one.at_s for one in states.points()] == [104.0, 105.0, 106.0, 107.0, 108.0]


def sized(at_s: float, smallest: int, largest: int, host: int = 0) -> ConstraintVerdict:
    """A verdict with these sizes of buffers."""
    edge = msgspec.structs.replace(ELEMENTS[1], smallest_bytes=smallest, largest_bytes=largest)
    return msgspec.structs.replace(judged(at_s, host), elements=(ELEMENTS[0], edge, ELEMENTS[2]))


def test_sizes_of_buffers_are_kept_when_they_change() -> None:
    """Over all hosts; 0 once all workers of the edge are chained, and nothing before they are known."""
    states = ConstraintStates([CONSTRAINT])
    states.judge([judged(99.0)])
    states.judge([sized(100.0, 11_933, 32_768)])
    states.judge([sized(101.0, 11_933, 32_768)])
    states.judge([sized(101.5, 200, 500, host=1)])
    states.judge([sized(102.0, 0, 0), sized(102.0, 0, 0, host=1)])
    edge = "FC -> FM"
    assert [(one.at_s, one.edge, one.smallest_bytes, one.largest_bytes) for one in states.sizes()] == [
        (100.0, edge, 11_933, 32_768), (101.5, edge, 200, 32_768), (102.0, edge, 200, 500), (102.0, edge, 0, 0),
    ]  # fmt: skip


def test_elements_say_in_which_chain_they_run() -> None:
    """The edge between two chained operators as well, and not one that leaves the chain."""
    chain = ChainedOperators(("FC", "FM", "MC"), (0,), 2)
    state = replace(state_of(CONSTRAINT, [MET]), chains=(chain,))
    assert [one.chain for one in state.parts] == ["FC + FM + MC (worker 0 of 2)"] * 3
    other = replace(state, chains=(ChainedOperators(("X", "FC"), (0, 1), 2),))
    assert [one.chain for one in other.parts] == ["X + FC", "", ""]


def test_data_frames_of_a_run() -> None:
    """The elements as rows, and the points as pandas takes them."""
    states = ConstraintStates([CONSTRAINT])
    run = RunMonitor()
    run._runner = SimpleNamespace(remedies=SimpleNamespace(states=states.states))  # type: ignore[assignment]
    columns = ["sequence", "limit_ms", "status", "element", "task_ms", "buffer_ms", "transport_ms", "worst_ms"]
    columns += ["smallest_bytes", "largest_bytes", "chain"]
    assert list(run.constraints().to_pandas().columns) == columns
    states.judge([judged(100.0)])
    frame = run.constraints().to_pandas()
    assert list(frame["element"]) == ["FC", "FC -> FM", "FM"]
    assert frame["buffer_ms"].sum() == 90.0
    assert set(frame["status"]) == {"met"}
    over_time = Recorded.of(ConstraintPoint, states.points()).to_pandas()
    assert list(over_time.columns) == list(ConstraintPoint.__slots__)[1:]
    assert over_time["mean_ms"].tolist() == [100.0]


def test_verdicts_of_before_a_rescale_do_not_count() -> None:
    """A host that has no worker of the sequence any more, or has left, would never take back that it is violated."""
    graph = Graph("pair", (Operator("FC", workers=2), Operator("FM", workers=2)), (Edge("FC", "FM"),))
    telemetry = Telemetry(graph, constraints=[CONSTRAINT])
    late = msgspec.structs.replace(judged(100.0, host=1), status=ConstraintStatus.VIOLATED)
    telemetry.constraints.judge([judged(100.0), late])
    status = TopologyStatus.of(Topology.dealt(graph, hosts=1), (0,))
    telemetry.rescale_ended(RescaleEnded("r1", "done", 1), "to 1 worker of FC", status)
    assert telemetry.constraints.states()[0].status is ConstraintStatus.NOT_YET_JUDGED
    telemetry.constraints.judge([judged(101.0)])
    assert telemetry.constraints.states()[0].status is ConstraintStatus.MET
