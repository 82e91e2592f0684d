"""Taps of a run: which workers are asked as they come and go, when a tap ends, and what its asker is told."""

from __future__ import annotations

from fries_nb.driver.open_questions import GONE, OVER, Asked, Looked, Looks, Withdrawn
from fries_nb.protocol.messages import Control, EndTap, LookAtRows, RowsSeen, TapCounts, WorkerId

ASKED = Asked("M", LookAtRows(7, most=3, where=b"...", lasts_ns=9))
FIRST, SECOND = WorkerId("M", 0), WorkerId("M", 1)


class Tapped:
    """The looks of a run with workers of M, one open tap, and what was sent and told."""

    def __init__(self, *workers: WorkerId) -> None:
        self.workers = [*workers]
        self.sent: list[tuple[WorkerId, Control]] = []
        self.told: list[Looked] = []
        self.looks = Looks(lambda _: [*self.workers], lambda *sent: self.sent.append(sent), self.told.append)

    def take_sent(self) -> list[tuple[int, bool]]:
        """The index of each worker that was told something since the last call, and whether that was the end."""
        taken, self.sent = self.sent, []
        return [(worker.index, isinstance(control, EndTap)) for worker, control in taken]

    def found(self, worker: WorkerId, went: int = 0, *, is_last: bool = False, error: str = "") -> None:
        """A worker has found so many rows."""
        self.looks.seen(RowsSeen(1, worker, error=error, is_last=is_last, counts=TapCounts(went=went)))


def test_a_tap_ends_with_the_rows_that_all_workers_have_found() -> None:
    """Each is told so, and tells what it has found last."""
    run = Tapped(FIRST, SECOND)
    run.looks.ask(ASKED)
    assert run.take_sent() == []  # no host has begun
    run.looks.again()
    assert run.take_sent() == [(0, False), (1, False)]
    run.found(FIRST, 2)
    assert run.take_sent() == []
    run.found(SECOND, 1)
    assert run.take_sent() == [(0, True), (1, True)]
    run.found(FIRST, 1)
    run.found(FIRST, is_last=True)
    assert run.told == []
    run.found(SECOND, is_last=True)
    [answer] = run.told
    counts = [part.counts for part in answer.parts if isinstance(part, RowsSeen)]
    assert (answer.number, answer.error, sum(one.went for one in counts)) == (7, "", 4)
    run.found(SECOND, 5)
    assert len(run.told) == 1


def test_an_error_of_one_worker_ends_the_tap() -> None:
    """The others are told to end it."""
    run = Tapped(FIRST, SECOND)
    run.looks.again()
    run.looks.ask(ASKED)
    run.take_sent()
    run.found(FIRST, is_last=True, error="where raised")
    assert run.take_sent() == [(0, True), (1, True)]
    run.found(SECOND, is_last=True)
    assert run.told[0].error == "where raised"


def test_an_asker_that_waits_no_longer_gets_what_there_is() -> None:
    """Once the workers have answered; at once, if it says so again."""
    run = Tapped(FIRST, SECOND)
    run.looks.again()
    run.looks.ask(ASKED)
    run.take_sent()
    run.found(FIRST, 1)
    run.looks.withdraw(Withdrawn(7))
    assert (run.take_sent(), run.told) == ([(0, True), (1, True)], [])
    run.looks.withdraw(Withdrawn(7))
    assert [len(answer.parts) for answer in run.told] == [1]
    run.looks.withdraw(Withdrawn(7))
    assert len(run.told) == 1


def test_those_that_come_are_asked_and_those_that_are_gone_are_not_awaited() -> None:
    """One that has ended is not asked again, and one that comes when the tap ends is not asked at all."""
    run = Tapped(FIRST)
    run.looks.again()
    run.looks.ask(ASKED)
    run.take_sent()
    run.workers.append(SECOND)
    run.looks.again()
    assert run.take_sent() == [(0, False), (1, False)]  # the first one has it, and goes on
    run.found(FIRST, is_last=True)
    run.looks.again()
    assert run.take_sent() == [(1, False)]
    run.looks.withdraw(Withdrawn(7))
    assert run.take_sent() == [(0, True), (1, True)]
    run.workers = [FIRST, WorkerId("M", 2)]
    run.looks.again()
    assert run.take_sent() == []
    assert len(run.told) == 1


def test_after_a_recovery_all_workers_are_asked_anew() -> None:
    """Also those that had ended; a tap that was about to end does not wait for hosts that are gone."""
    run = Tapped(FIRST, SECOND)
    run.looks.again()
    run.looks.ask(ASKED)
    run.found(FIRST, 1, is_last=True)
    run.looks.lost()
    run.take_sent()
    run.looks.again()
    assert run.take_sent() == [(0, False), (1, False)]
    run.looks.withdraw(Withdrawn(7))
    assert run.told == []
    run.looks.lost()
    assert [len(answer.parts) for answer in run.told] == [1]


def test_a_tap_ends_with_the_last_worker_of_its_operator() -> None:
    """With what was found; and at once if there was none. One that goes on as another worker is not affected."""
    run = Tapped(FIRST, SECOND)
    run.looks.again()
    run.looks.ask(ASKED)
    run.found(FIRST, 1)
    run.workers = [SECOND]
    run.looks.again()
    assert run.told == []
    run.workers = []
    run.looks.again()
    run.looks.ask(Asked("M", LookAtRows(8, most=3, where=b"...", lasts_ns=9), to="out"))
    assert [(answer.number, len(answer.parts), answer.error) for answer in run.told] == [(7, 1, GONE), (8, 0, GONE)]


def test_a_tap_ends_with_its_edge_and_with_what_the_workers_tell_that_stay() -> None:
    """Those are told to end it, since their operator goes on."""
    run = Tapped(FIRST, SECOND)
    edges = [Asked("M", ASKED.look, "out")]
    run.looks = Looks(
        lambda asked: run.workers if not asked.to or asked in edges else [], lambda *sent: run.sent.append(sent),
        run.told.append,
    )  # fmt: skip
    run.looks.again()
    run.looks.ask(edges[0])
    run.found(FIRST, 1, is_last=True)
    run.take_sent()
    edges.clear()
    run.looks.again()
    assert (run.take_sent(), run.told) == ([(0, True), (1, True)], [])
    run.found(SECOND, is_last=True)
    assert [(answer.number, len(answer.parts), answer.error) for answer in run.told] == [(7, 2, GONE)]


def test_a_tap_ends_with_the_run() -> None:
    """With what was found; one that is opened later is told at once that the run is over."""
    run = Tapped(FIRST)
    run.looks.again()
    run.looks.ask(ASKED)
    run.found(FIRST, 1)
    run.looks.close()
    run.looks.ask(ASKED)
    assert [(len(answer.parts), answer.error) for answer in run.told] == [(1, OVER), (0, OVER)]
