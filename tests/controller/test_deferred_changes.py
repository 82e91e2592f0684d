"""Which decided changes a restart defers, and which operators it closes."""

from __future__ import annotations

import pytest

from fries_nb.controller.events import Tell
from fries_nb.controller.known_changes import DeferredChanges, with_deferred
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.dataflow.graph import ROOT, Edge, Graph, Kind, Operator
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Restoration
from fries_nb.protocol.messages import ApplyDeferred, Attempt, Done, Fcm, OpenEntries, WorkerId

ONE, OTHER = ROOT.nest("L"), ROOT.nest("M")
FLOW = Graph(
    "loops",
    (
        Operator("S", kind=Kind.SOURCE),
        Operator("A"),
        Operator("L", kind=Kind.LOOP, within=ONE),
        Operator("B", within=ONE),
        Operator("D"),
        Operator("M", kind=Kind.LOOP, within=OTHER),
        Operator("C", within=OTHER),
        Operator("Z", kind=Kind.SINK),
    ),
    (
        Edge("S", "A"), Edge("A", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "D", branch=1),
        Edge("D", "M"), Edge("M", "C"), Edge("C", "M", feedback=True), Edge("C", "Z", branch=1),
    ),
)  # fmt: skip


def decided(change: str, targets: str, parts: str, **more: object) -> CommittedChange:
    """A decision on these targets, with the operators of its components."""
    components = tuple(tuple(part) for part in parts.split())
    return CommittedChange(change, "fries", components, dict.fromkeys(targets, b"code"), **more)  # type: ignore[arg-type]


IN_LOOP = decided("u1", "B", "LB")
OUTSIDE = decided("u2", "A", "A")
FIX = {"aside": True}


def restored(*changes: CommittedChange, logged: str = "L", applied: str = "") -> Restoration:
    """From a checkpoint that these heads have logged frames in, and that includes some changes."""
    record = Checkpoint("a1", 3, 1, {}, decided=tuple(applied.split()), logged=tuple(logged))
    return with_deferred(FLOW, Restoration(record, changes))


@pytest.mark.parametrize(
    ("restoration", "deferred", "closed"),
    [
        (with_deferred(FLOW, Restoration(None, (IN_LOOP,))), "", ""),
        (restored(IN_LOOP, logged=""), "", ""),
        (restored(IN_LOOP, logged="M"), "", ""),
        (restored(IN_LOOP, applied="u1"), "", ""),
        (restored(OUTSIDE), "", ""),
        (restored(IN_LOOP), "u1", "BL"),
        (restored(OUTSIDE, IN_LOOP), "u1", "BL"),
        (restored(decided("u1", "AB", "ALB")), "u1", "ABL"),
        (restored(IN_LOOP, OUTSIDE), "u1 u2", "ABL"),
        (restored(IN_LOOP, decided("u2", "C", "MC")), "u1 u2", "BCDLM"),
        (restored(decided("u2", "C", "MC"), IN_LOOP), "u1", "BL"),
        (restored(decided("u2", "C", "MC"), IN_LOOP, logged="LM"), "u2 u1", "BCDLM"),
        (restored(IN_LOOP, decided("u2", "D", "D", **FIX)), "u1", "BL"),
        (restored(decided("u1", "BD", "LBD"), decided("u2", "D", "D", **FIX)), "u1 u2", "BDL"),
        (restored(decided("u1", "D", "LBD", **FIX)), "", ""),
        (restored(decided("u0", "D", "D"), IN_LOOP, CommittedChange("u3", "fries", (("D",),), {}, undoes="u0")),
         "u1", "BL"),
        (restored(IN_LOOP, OUTSIDE, CommittedChange("u3", "fries", (("A",),), {}, undoes="u2")), "u1 u2 u3", "ABL"),
    ],
)  # fmt: skip
def test_what_is_deferred(restoration: Restoration, deferred: str, closed: str) -> None:
    """From the first one on whose loop has logged frames; a fix only if an earlier one of its operator is."""
    assert restoration.deferred == tuple(deferred.split())
    assert "".join(restoration.closed) == closed


def test_deferred_changes_are_switched_when_the_loops_are_empty() -> None:
    """All at once, without a block, since the operators were started closed; then rows may enter."""
    workers = Workers(FLOW)
    lane = MarkerCoordinator(workers)
    later = DeferredChanges(restored(IN_LOOP, OUTSIDE), workers, lane)
    inside = [WorkerId(name, 0) for name in "ALB"]
    assert list(later.asked) == ["L"]
    assert later.asked["L"].name == "u1, u2"
    for number, observed in enumerate((1, 0), 1):
        [tell] = later.advance() or []
        assert isinstance(tell.control, Fcm)
        assert tell.control.marker.action == Attempt("u1, u2", number)
        for worker in inside:
            done = Done(number, worker, observed=observed if worker.operator == "L" else 0)
            lane.acknowledge(number, worker)
            later.acknowledged(worker, done)
    switches = later.advance() or []
    assert [str(tell.worker) for tell in switches] == ["A[0]", "B[0]"]
    assert {tell.control.marker.action for tell in switches if isinstance(tell.control, Fcm)} == {
        ApplyDeferred(("u1", "u2"))
    }
    assert later.advance() is None
    for marker, worker in enumerate((WorkerId("A", 0), WorkerId("B", 0)), 3):
        assert not later.have_switched([worker])
        lane.acknowledge(marker, worker)
        later.switched(worker, Done(marker, worker, ended=worker.operator == "A"))
    assert later.have_switched([WorkerId("A", 0), WorkerId("B", 0)])
    assert later.ended == {WorkerId("A", 0)}
    assert later.advance() == []
    assert {(str(tell.worker), type(tell.control)) for tell in later.open() if isinstance(tell, Tell)} == {
        (f"{name}[0]", OpenEntries) for name in "ABL"
    }
    assert [later.first_of(name) for name in "ABD"] == ["u2", "u1", ""]
