"""A change that drains a loop, at a controller that takes checkpoints: none begins meanwhile; how the wait ends."""

from __future__ import annotations

from controller_setting import Desk, markers, only

from fries_nb.controller.events import (
    ChangeCancelled,
    ChangeRequested,
    CheckpointKept,
    HostLost,
    Journal,
    KeepCheckpoint,
    Recover,
    Resolved,
    Tell,
    Tick,
)
from fries_nb.dataflow.graph import ROOT, Edge, Graph, Kind, Operator
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import (
    Abort,
    ApplyDeferred,
    Attempt,
    BlockEntries,
    Cancel,
    Commit,
    Done,
    OpenEntries,
    Prepared,
    Settled,
    WorkerId,
)

LOOP = Graph(
    "loop",
    (
        Operator("S", kind=Kind.SOURCE),
        Operator("L", kind=Kind.LOOP, within=ROOT.nest("L")),
        Operator("B", within=ROOT.nest("L")),
        Operator("Z", kind=Kind.SINK),
    ),
    (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Z", branch=1)),
)
S, L, B, Z = (WorkerId(name, 0) for name in "SLBZ")


def desk() -> Desk:
    """With one host, and a checkpoint due every 100 ms."""
    return Desk(LOOP, 1, commit_ms=100, checkpoints=True, run="r7")


def drained(one: Desk, timeout_s: float | None = None, first: int = 1) -> int:
    """Request a change of B, up to the first attempt; returns the attempt's marker."""
    one.hear(ChangeRequested("u1", schedule("fries", LOOP, {"B"}), {"B": b"code"}, timeout_s=timeout_s))
    blocks = markers(one.answer(Prepared("u1", B)))
    assert {block.action for block in blocks} == {BlockEntries(frozenset("LB"))}
    said = [*one.answer(Done(first, L)), *one.answer(Done(first + 1, B))]
    assert [marker.action for marker in markers(said)] == [Attempt("u1", 1)]
    return first + 2


def kept(one: Desk, marker: int, observed: int) -> None:
    """A checkpoint at whose marker the head has taken so many frames."""
    assert isinstance(markers(one.hear(Tick(), after_ms=100))[0].action, Commit)
    for worker in (S, B, Z):
        one.answer(Done(marker, worker))
    one.answer(Done(marker, L, observed=observed))
    assert only(one.saved(1, "S", "L", "B", "Z"), KeepCheckpoint)
    one.hear(CheckpointKept(1))


def test_no_checkpoint_begins_while_a_loop_is_drained() -> None:
    """Not even while nothing is in flight, since a worker has a frame in hand; it is due as soon as rows may enter."""
    one = desk()
    attempt = drained(one)
    one.answer(Done(attempt, L))
    assert one.answer(Done(attempt, B, busy=True)) == []
    assert one.hear(Tick(), after_ms=500) == []
    assert [marker.action for marker in markers(one.answer(Settled(B, attempt)))] == [Attempt("u1", 2)]
    one.answer(Done(attempt + 1, L))
    said = one.answer(Done(attempt + 1, B))
    assert len(only(said, Journal)) == 1
    done = one.answer(Done(attempt + 2, B, switched=True))
    assert [told.control for told in only(done, Tell)][:2] == [OpenEntries(), OpenEntries()]
    assert isinstance(markers(one.hear(Tick()))[-1].action, Commit)


def test_a_wait_that_is_cancelled_opens_the_entries() -> None:
    """The attempt on its way is cancelled as well; a second cancellation, or one of an unknown change, does nothing."""
    one = desk()
    attempt = drained(one)
    said = one.hear(ChangeCancelled("u1"))
    controls = [told.control for told in only(said, Tell)]
    assert set(controls) == {Cancel(attempt), OpenEntries(), Abort("u1")}
    assert [each.outcome.error for each in only(said, Resolved)] == ["it was cancelled; nothing changed"]
    assert one.hear(ChangeCancelled("u1")) == one.hear(ChangeCancelled("u9")) == []


def test_a_wait_ends_in_time() -> None:
    """Counted from the block of the entries."""
    one = desk()
    drained(one, timeout_s=2.0)
    assert not only(one.hear(Tick(), after_ms=1_999), Resolved)
    [resolved] = only(one.hear(Tick(), after_ms=2), Resolved)
    assert (resolved.outcome.outcome, resolved.outcome.error) == (
        "aborted", "L did not empty within 2 s; nothing changed"
    )  # fmt: skip


def test_a_decided_change_waits_after_a_loss_and_cannot_be_cancelled() -> None:
    """It has not ended before its deferred switch; while it waits no checkpoint begins, and none is asked for it."""
    one = desk()
    kept(one, 1, observed=2)
    attempt = drained(one, first=2)
    one.answer(Done(attempt, L))
    assert only(one.answer(Done(attempt, B)), Journal)
    [recover] = only(one.hear(HostLost(0, "its process died")), Recover)
    assert (recover.restoration.deferred, recover.restoration.closed) == (("u1",), ("B", "L"))
    [first] = markers(one.join(4))
    assert first.action == Attempt("u1", 1)
    assert one.hear(ChangeCancelled("u1")) == []
    one.answer(Done(first.id, L))
    assert one.answer(Done(first.id, B, busy=True)) == []
    assert one.hear(Tick(), after_ms=500) == []
    assert one.controller.loops["L"].name == "u1"
    [again] = markers(one.answer(Settled(B, first.id)))
    one.answer(Done(again.id, L))
    [switch] = markers(one.answer(Done(again.id, B)))
    assert switch.action == ApplyDeferred(("u1",))
    said = one.answer(Done(switch.id, B, switched=True))
    assert [each.outcome.outcome for each in only(said, Resolved)] == ["done"]
    assert [told.control for told in only(said, Tell)][:2] == [OpenEntries(), OpenEntries()]
