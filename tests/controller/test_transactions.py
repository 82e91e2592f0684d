"""A change as a transaction: its times, and whose answers count."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, MS

from fries_nb.controller.events import ChangeRequested, WorkerOutcome
from fries_nb.controller.states import ChangeState
from fries_nb.controller.transactions import Transaction
from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import Done, Prepared, WorkerId

FM = [WorkerId("FM", 0), WorkerId("FM", 1)]


def transaction() -> Transaction:
    """A change of FM, just requested."""
    return Transaction(ChangeRequested("u1", FM_ALONE, {"FM": b"code"}), FM, (("FM",),), now_ns=0)


def test_the_times_of_a_change_add_up():
    """Waiting, preparing and committing are told apart; the delay is from request to last target's Done."""
    change = transaction()
    change.prepare(10 * MS)
    for at, worker in ((12, FM[0]), (15, FM[1])):
        change.prepared(Prepared("u1", worker), at * MS)
    change.next_stage(FM, 20 * MS)
    change.acknowledged(FM[1], Done(1, FM[1], switched=True, old_tuples=7), 21 * MS)
    change.acknowledged(FM[0], None, 24 * MS)
    outcome = change.resolve(ChangeState.DONE, 24 * MS)
    assert (outcome.prepare_ms, outcome.commit_ms, outcome.delay_ms) == (5.0, 4.0, 24.0)
    assert outcome.per_worker == {FM[1]: WorkerOutcome(21.0, 7), FM[0]: WorkerOutcome(24.0, 0, ended=True)}
    assert (outcome.outcome, outcome.components, outcome.scheduler) == ("done", (("FM",),), "fries")


def test_an_ended_change_lets_go_of_the_functions():
    """A run may see many changes of large models; only the one in flight is kept in memory."""
    change = transaction()
    change.resolve(ChangeState.ABORTED, 1)
    assert change.request.payloads == {}
    assert not change.open


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Prepared("u1", WorkerId("MC", 0)), "does not concern it"),
        (Prepared("u1", FM[0]), "for the second time"),
    ],
)
def test_answers_that_nobody_asked_for_are_refused(answer, message):
    """Only a target prepares, and once."""
    change = transaction()
    change.prepare(0)
    change.prepared(Prepared("u1", FM[0]), 1)
    with pytest.raises(ProtocolError, match=message):
        change.prepared(answer, 1)
