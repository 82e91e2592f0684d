"""The open taps of a run: questions for the next rows of an operator, which its workers answer whenever they find some.

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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from fries_nb.protocol.messages import Control, EndTap, LookAtRows, LookAtState, RowsSeen, WorkerId

Tell = Callable[[int, tuple[RowsSeen, ...], str], None]
"""Receives the number of a question, all parts of its answer in order, and why it is not complete."""


@dataclass(frozen=True)
class Asked:
    """A question for the states or rows of an operator, or for those along its edge ``to`` another one.

    Its number is that of ``look``.
    """

    operator: str
    look: LookAtState | LookAtRows
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
