"""What users ask the workers of an operator, and the answers as far as they have come.

    asked        every worker of the operator is asked, in the topology of now
    seen         a part of a worker's answer; with the last part of all workers the round is over
    moves        state begins to move: a key may be on its way, so another round follows, of at most three
    arrived      some of it has come; the next round begins when all has
    again        workers have begun, come or gone, so that some may never answer: the round begins anew
    lost         the hosts are gone: questions wait for others
    close        the region has ended, and no worker answers any more

Questions for the next rows of an operator are taps, and meet the same events (see below).

Hosts that end with the run leave copies of small states behind, unasked: ``last``.

Each round asks under a number of its own, so that answers to earlier rounds, which may come later, are not mixed in.
Parts of all rounds are kept in order: what a later round has of a key counts, and what was on its way in one round was
not in the other.

The open taps of a run: questions for the next rows of an operator, which its workers answer whenever they find some.

    ask          every worker of the operator is asked, in the topology of now
    seen         rows that a worker has found, or its end; with enough rows, or an error, the tap ends
    withdraw     the asker waits no longer: the tap ends, and its workers tell what is left
    again        workers have begun, come or gone: those are asked that have not ended; one that has the tap goes on. If
                 there is none, since the operator or the edge was removed, the tap ends
    lost         the hosts are gone, with all that they did not tell: questions wait for others
    close        the region has ended, and no worker answers any more

A tap has one number for all of its time, by which a worker knows that it has it. So no row that a worker has tried is
tried again because others come or go; after a recovery rows pass anew, and may be found anew.

>>> from fries_nb.protocol.messages import TapCounts
>>> asked, told, worker = [], [], WorkerId("FM", 0)
>>> taps = Taps(lambda _: [worker], lambda to, control: asked.append(control), lambda *answer: told.append(answer))
>>> taps.ask(7, Asked("FM", LookAtRows(1, most=2, where=b"...")))
>>> taps.again()                                    # the hosts have begun
>>> taps.seen(RowsSeen(7, worker, counts=TapCounts(went=2), is_last=False))
>>> [type(one).__name__ for one in asked], told
(['LookAtRows', 'EndTap'], [])
>>> taps.seen(RowsSeen(7, worker))
>>> [(number, len(parts), error) for number, parts, error in told]
[(1, 2, '')]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from fries_nb.protocol.messages import (
    UNASKED,
    ArmsSeen,
    Control,
    EndTap,
    LookAtArms,
    LookAtRows,
    LookAtState,
    RowsSeen,
    StateSeen,
    WorkerId,
)

Tell = Callable[[int, tuple[RowsSeen, ...], str], None]
"""Receives the number of a question, all parts of its answer in order, and why it is not complete."""


@dataclass(frozen=True)
class Asked:
    """A question for the states, rows or arms of an operator, or for the rows along its edge ``to`` another one.

    Its number is that of ``look``.
    """

    operator: str
    look: LookAtState | LookAtRows | LookAtArms
    to: str = ""


GONE = "no worker of it is there any more"
Workers = Callable[[Asked], Iterable[WorkerId]]
"""The workers that can answer a question, in the topology of now: none if its operator, or edge, is not there."""


@dataclass
class _Tap:
    number: int  # that the asker knows
    asked: Asked
    look: LookAtRows
    parts: list[RowsSeen] = field(default_factory=list)
    found: tuple[int, int] = (0, 0)  # rows that came in, and that went out
    awaited: set[WorkerId] = field(default_factory=set)  # that have it, or will
    ended: set[WorkerId] = field(default_factory=set)
    error: str = ""
    ends: bool = False

    @property
    def has_enough(self) -> bool:
        """Whether all rows of a side are found that were asked for."""
        return max(self.found) >= self.look.most


class Taps:
    """The open taps of a run.

    Args:
        workers: the workers that a question is for.
        direct: sends a control message to a worker.
        tell: receives the answers.
    """

    def __init__(
        self,
        workers: Workers,
        direct: Callable[[WorkerId, Control], None],
        tell: Tell,
    ) -> None:
        self._workers = workers
        self._direct = direct
        self._tell = tell
        self._open: dict[int, _Tap] = {}
        self._answers = False  # whether there are hosts

    def ask(self, number: int, asked: Asked) -> None:
        """Ask the workers of an operator, under this number."""
        look = asked.look
        assert isinstance(look, LookAtRows), "there are no taps of states"
        self._open[number] = tap = _Tap(look.number, asked, replace(look, number=number))
        if self._answers:
            self._reach(number, tap)

    def withdraw(self, asked: int) -> None:
        """End a tap by the number that its asker knows; the second time what has come is told at once."""
        for number, tap in list(self._open.items()):
            if tap.number == asked:
                if tap.ends or not self._answers:
                    self._settle(number)
                else:
                    self._end(number, tap)

    def seen(self, part: RowsSeen) -> None:
        """A worker has found rows, or has ended; nothing happens if the tap is over."""
        tap = self._open.get(part.number)
        if tap is None:
            return
        tap.parts.append(part)
        tap.error = tap.error or part.error
        tap.found = tap.found[0] + part.counts.came, tap.found[1] + part.counts.went
        if part.is_last:
            tap.awaited.discard(part.worker)
            tap.ended.add(part.worker)
        if tap.error or tap.has_enough or not tap.awaited:
            self._end(part.number, tap)

    def lost(self) -> None:
        """The hosts are gone; others begin."""
        self._answers = False
        for number, tap in list(self._open.items()):
            tap.awaited.clear()
            tap.ended.clear()
            if tap.ends:
                self._settle(number)

    def again(self) -> None:
        """Workers have begun, come or gone."""
        self._answers = True
        for number, tap in list(self._open.items()):
            if tap.ends:
                tap.awaited &= self._stay(tap)
                self._settle_if_told(number, tap)
            else:
                self._reach(number, tap)

    def close(self, error: str) -> None:
        """The region has ended."""
        self.lost()
        for number in list(self._open):
            self._settle(number, error)

    def _reach(self, number: int, tap: _Tap) -> None:
        """Ask the workers of now that have not ended; the tap ends if there is none, with what those that stay tell."""
        now = set(self._workers(tap.asked))
        if not now:
            tap.error = tap.error or GONE
            self._end(number, tap)
            return
        tap.ended &= now
        tap.awaited = now - tap.ended
        for worker in sorted(tap.awaited):
            self._direct(worker, tap.look)

    def _stay(self, tap: _Tap) -> set[WorkerId]:
        """The workers of its operator that are there, though its edge may not be."""
        return set(self._workers(Asked(tap.asked.operator, tap.look)))

    def _end(self, number: int, tap: _Tap) -> None:
        """Have the workers end it, those that have told their end as well, since they remember it until then."""
        if not tap.ends:
            tap.ends = True
            now = self._stay(tap)
            tap.awaited &= now
            for worker in sorted(now & (tap.awaited | tap.ended)):
                self._direct(worker, EndTap(number))
        self._settle_if_told(number, tap)

    def _settle_if_told(self, number: int, tap: _Tap) -> None:
        if not tap.awaited:
            self._settle(number)

    def _settle(self, number: int, error: str = "") -> None:
        tap = self._open.pop(number)
        self._tell(tap.number, tuple(tap.parts), tap.error or error)


MOST_ROUNDS = 3
"""Number of rounds after which an answer is given as it is, though state has moved again."""
OVER = "the run is over"

Seen = StateSeen | RowsSeen | ArmsSeen
"""A part of a worker's answer."""


@dataclass(frozen=True)
class Withdrawn:
    """The asker of a tap waits no longer; said a second time, it does not wait for the workers either."""

    number: int


@dataclass(frozen=True)
class Looked:
    """The answer to a question, with the parts of all rounds in order; ``error`` says why it is not complete."""

    number: int
    parts: tuple[Seen, ...]
    error: str = ""


@dataclass
class _Open:
    asked: Asked
    awaited: set[WorkerId] = field(default_factory=set)
    parts: list[Seen] = field(default_factory=list)
    rounds: int = 0  # that are over, with an answer of each worker
    is_partial: bool = False  # whether state was on its way during the round


class Looks:
    """The open questions of a run.

    Args:
        workers: the workers that a question is for.
        direct: sends a control message to a worker.
        tell: receives the answers.

    Attributes:
        last: what the hosts have left behind of each worker's state and rows, in parts.
    """

    def __init__(
        self,
        workers: Workers,
        direct: Callable[[WorkerId, Control], None],
        tell: Callable[[Looked], None],
    ) -> None:
        self._workers = workers
        self._direct = direct
        self._tell = tell
        self._open: dict[int, _Open] = {}  # by the number of its round
        self._waiting: list[_Open] = []
        self._answers = self._is_over = False
        self._moving: dict[int, set[WorkerId]] = {}  # marker to the workers to which it moves state
        self._resting: list[_Open] = []  # those whose next round begins when no state is on its way
        self._rounds = 0
        self._taps = Taps(workers, direct, lambda number, parts, error: tell(Looked(number, parts, error)))
        self.last: dict[WorkerId, list[Seen]] = {}

    def ask(self, asked: Asked) -> None:
        """Ask the workers of an operator."""
        if isinstance(asked.look, LookAtRows) and asked.look.where:
            self._rounds += 1
            self._taps.ask(self._rounds, asked)
            if self._is_over:
                self._taps.close(OVER)
        elif self._answers:
            self._begin(_Open(asked))
        else:
            self._waiting.append(_Open(asked))
            if self._is_over:
                self.close()

    def withdraw(self, withdrawn: Withdrawn) -> None:
        """The asker of a tap waits no longer."""
        self._taps.withdraw(withdrawn.number)

    def seen(self, part: Seen) -> None:
        """A part of the answer of a worker has come."""
        if part.number == UNASKED:
            self.last.setdefault(part.worker, []).append(part)
            return
        question = self._open.get(part.number)
        if question is None:  # of an earlier round, or a tap
            if isinstance(part, RowsSeen):
                self._taps.seen(part)
            return
        question.parts.append(part)
        if part.is_last:
            question.awaited.discard(part.worker)
            self._go_on(part.number, question)

    def moves(self, marker: int, workers: Collection[WorkerId]) -> None:
        """State of keys begins to move to these workers."""
        self._moving.setdefault(marker, set(workers))
        for question in self._open.values():
            question.is_partial = True

    def arrived(self, marker: int, worker: WorkerId | None = None) -> None:
        """What a marker moves to a worker has come; or, without one, it moves nothing any more."""
        left = self._moving.get(marker, set[WorkerId]())
        left.discard(worker) if worker is not None else left.clear()
        if not left:
            self._moving.pop(marker, None)
        self._go_on_if_settled()

    def lost(self) -> None:
        """The hosts are gone; others begin."""
        self._rest()
        self._taps.lost()

    def _rest(self) -> None:
        """Have all questions wait, but for taps."""
        self._answers = False
        self._waiting += [*self._open.values(), *self._resting]
        self._open, self._resting = {}, []
        self._moving.clear()

    def again(self) -> None:
        """Workers have begun, come or gone."""
        self._rest()
        self._taps.again()
        self._answers, opened, self._waiting = True, self._waiting, []
        for question in opened:
            self._begin(question)

    def close(self) -> None:
        """The region has ended."""
        self.lost()
        self._is_over, opened, self._waiting = True, self._waiting, []
        for question in opened:
            self._tell(Looked(question.asked.look.number, (), OVER))
        self._taps.close(OVER)

    def _go_on_if_settled(self) -> None:
        """Begin the next rounds, unless state is on its way."""
        if not self._moving:
            rested, self._resting = self._resting, []
            for question in rested:
                self._begin(question)

    def _begin(self, question: _Open) -> None:
        self._rounds += 1
        question.is_partial = bool(self._moving)
        if not isinstance(question.asked.look, LookAtState):
            question.parts.clear()  # the last round has what is newest, and all counts
        question.awaited = set(self._workers(question.asked))
        self._open[self._rounds] = question
        look = replace(question.asked.look, number=self._rounds)
        for worker in sorted(question.awaited):
            self._direct(worker, look)
        self._go_on(self._rounds, question)

    def _go_on(self, number: int, question: _Open) -> None:
        if question.awaited:
            return
        del self._open[number]
        question.rounds += 1
        if question.is_partial and question.rounds < MOST_ROUNDS and isinstance(question.asked.look, LookAtState):
            self._resting.append(question)
            self._go_on_if_settled()
        else:
            error = next((one.error for one in question.parts if one.error), "")
            self._tell(Looked(question.asked.look.number, tuple(question.parts), error))
