"""What several hosts find together is what one host would find with all measurements."""

from __future__ import annotations

import random
from math import inf

import pytest
from msgspec.structs import replace

from fries_nb.constraints.constraint_monitor import ConstraintMonitor
from fries_nb.constraints.judgements import combined_verdict
from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict
from fries_nb.dataflow import Edge, Graph, Kind, Operator, Partitioning, constraint_of
from fries_nb.planning.constraint_setup import constraint_setup
from fries_nb.protocol.messages import BufferMeasured, ChannelMeasured, Measurements, TaskMeasured
from fries_nb.protocol.topology import Topology

NOW = 1_700_000_000_000_000_000
MET, VIOLATED, UNJUDGED = ConstraintStatus.MET, ConstraintStatus.VIOLATED, ConstraintStatus.NOT_YET_JUDGED


def verdicts(hosts: int, seed: int) -> list[ConstraintVerdict]:
    """The verdicts of so many hosts on one sequence of three operators, of which each has three workers."""
    draws = random.Random(seed)
    operators = tuple(Operator(name, workers=3, kind=Kind.MAP) for name in ("S", "A", "B", "C"))
    edges = (
        Edge("S", "A"), Edge("A", "B", Partitioning.FORWARD), Edge("B", "C", Partitioning.HASH),
    )  # fmt: skip
    graph = Graph("flow", operators, edges)
    topology = Topology.dealt(graph, hosts, chaining=False)
    measured = [TaskMeasured(worker, draws.randint(1, 50), 7, 0.1) for worker in topology.workers]
    # Rows are conserved at B: each forward channel carries what its receiver sends on.
    sent = {channel: draws.randint(1, 90) for channel in topology.channels() if channel.receiver.operator == "C"}
    for channel in topology.channels():
        rows = sent.get(channel) or sum(count for one, count in sent.items() if one.sender == channel.receiver)
        measured.append(ChannelMeasured(channel, draws.randint(1, 200), 1))
        measured.append(BufferMeasured(channel, draws.randint(1, 9), rows or 1, 500, 0))
    found = []
    for allocations in constraint_setup(topology, [constraint_of(graph, ["A", "B", "C"], 300)]).values():
        monitor = ConstraintMonitor(topology, allocations[0])
        monitor.receive(Measurements(NOW, tuple(measured)))
        found.append(monitor.judge(NOW)[-1])
    return found


@pytest.mark.parametrize("seed", range(20))
def test_three_hosts_find_what_one_finds(seed):
    """Status, worst sequence, means of the whole and of each element."""
    (alone,), several = verdicts(1, seed), verdicts(3, seed)
    assert len(several) == 3
    together = combined_verdict(several)
    assert (together.status, together.worst_ms, together.worst) == (alone.status, alone.worst_ms, alone.worst)
    assert together.mean_ms == pytest.approx(alone.mean_ms)
    assert together.rows == alone.rows
    assert together.tasks_ms == alone.tasks_ms
    for one, two in zip(together.elements, alone.elements, strict=True):
        assert (one.element, one.worst_ms) == (two.element, two.worst_ms)
        assert one.mean_ms == pytest.approx(two.mean_ms)


def test_means_without_weights_are_caught():
    """A mutant that counts every host alike finds another mean."""
    several = [replace(one, rows=1.0) for one in verdicts(3, seed=1)]
    assert combined_verdict(several).mean_ms != pytest.approx(verdicts(1, seed=1)[0].mean_ms)


def verdict(host: int, status: ConstraintStatus, **given) -> ConstraintVerdict:
    """A verdict of a host."""
    return ConstraintVerdict("A", 300.0, 15.0, host, NOW + host, status, f"reason {host}", **given)


def test_the_status_of_all():
    """Violated if one is, met if one is and none is violated, else not yet judged."""
    for statuses, expected in (
        ((MET, VIOLATED, UNJUDGED), VIOLATED),
        ((MET, UNJUDGED), MET),
        ((UNJUDGED, UNJUDGED), UNJUDGED),
    ):
        whole = combined_verdict([verdict(host, status) for host, status in enumerate(statuses)])
        assert (whole.status, whole.time_ns) == (expected, NOW + len(statuses) - 1)


def test_the_mean_is_that_of_rows_that_move():
    """A host whose sequences are stalled has no rows: they make the worst infinite, and the mean no less known."""
    moving = verdict(0, MET, mean_ms=80.0, worst_ms=90.0, rows=30.0)
    stalled = verdict(1, VIOLATED, mean_ms=inf, worst_ms=inf, rows=0.0)
    whole = combined_verdict([moving, stalled])
    assert (whole.mean_ms, whole.worst_ms, whole.host, whole.rows) == (80.0, inf, 1, 30.0)


def test_it_is_exhausted_when_no_host_can_do_more():
    """Of those that find it violated; the longest violation counts."""
    first = verdict(0, VIOLATED, exhausted=True, violated_windows=1, worst_ms=900.0)
    assert combined_verdict([first, verdict(1, MET)]).exhausted
    whole = combined_verdict([first, verdict(1, VIOLATED, violated_windows=3), verdict(2, MET)])
    assert (whole.exhausted, whole.violated_windows, whole.reason) == (False, 3, "reason 0")
