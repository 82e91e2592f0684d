"""The rehearsal of a change: all of its new functions process recent tuples together, with all operators downstream.

It runs on one host, concurrently with the workers, when all functions of the change are prepared, and determines
whether the change fails where the current configuration does not. A tuple on which a new function fails is also tried
with the current functions; if they fail as well (as for a dead letter), it is ignored. A tuple on which an operator is
paused is never ignored, since a fix has to process it.

A change of which nothing fails may still be doubted (see ``doubts``); it is then made only if it is forced.

The schemas that arrive at sinks are reported to the controller, which knows what the sinks have accepted.

What speaks against a change of which nothing fails: that it loses every row, or that a function is far slower.

The current functions are run, for comparison, only if the new ones give reason to:

    reason                       new functions                      current functions, on the same tuples
    an operator drops all rows   it takes rows and gives none       it gives some
    nothing is left              no row comes to a sink             some do
    a function is far slower     at least ``FLOOR_NS`` for a row    at most 1 of ``TIMES_SLOWER`` of it

A few rows say little about operators that drop rows by their nature, such as filters and windows: they are judged from
``FEW`` rows on, of which ``FEW_KEPT`` were kept. The least time of several calls counts, since a first call may load a
module, and a busy machine delays some. A batched function is judged by what further rows of a batch add, as a call
costs the same for many rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakValueDictionary

import pyarrow as pa

from fries_nb.dataflow.masking import masked_text
from fries_nb.dataflow.operators import Shape, shape_of
from fries_nb.dataflow.traits import OperatorTraits, Returns
from fries_nb.errors import FriesError, exception_text
from fries_nb.operators.dry_run import DryRun, DryRunResult, Recent, prepare
from fries_nb.operators.instance import Ready, user_traceback
from fries_nb.operators.timed_calls import is_firing
from fries_nb.protocol.messages import Compared, Rehearse, Rehearsed, WorkerId
from fries_nb.worker.side_by_side import compared, held, in_turn
from fries_nb.worker.trial import NotCopied, Passage, Tally, Trial, TrialFailed, TrialLayout, difference
from fries_nb.worker.worker import Worker

TIMES_SLOWER = 100
"""A function that takes at least so many times as long as the current one is doubted."""
FLOOR_NS = 1_000_000
"""Nanoseconds for a row below which no function is doubted, however fast the current one is."""
FEW = 8
"""Number of rows from which on it is doubted that an operator drops all of them, if it drops rows by its nature."""
FEW_KEPT = 4
"""Number of them that the current function has to keep, then: of a window of many rows comes a single one."""
CONFIRMED = 8
"""Number of times that a function is called again, at most, before it is doubted for its time."""
_COPIES = 16
"""Number of times that a row is in the batch on which a batched function is measured."""


@dataclass(frozen=True)
class Tried:
    """A tuple of a rehearsal, and what the new functions made of it."""

    start: str
    recent: Recent
    after: Passage


@dataclass(frozen=True)
class _Both:
    """A tuple, and what the new and the current functions made of it."""

    tried: Tried
    before: Passage


class Doubts:
    """Compares a change, of which nothing fails, with the current configuration.

    Args:
        new: the trial of the new configuration, which has processed the tuples.
        clock: returns nanoseconds.
    """

    def __init__(
        self, layout: TrialLayout, new: Trial, tried: Sequence[Tried], finished: Passage, clock: Callable[[], int]
    ) -> None:
        self._layout = layout
        self._new = new
        self._present = Trial(layout, new=False, clock=clock)
        self._tried = [one for one in tried if not one.recent.facing]
        self._finished = finished
        self._clock = clock

    def first(self) -> str:
        """The first doubt in one sentence, those about rows first; empty if there is none."""
        targets = self._layout.ordered(self._layout.targets)
        after = _total([*(one.after for one in self._tried), self._finished])
        silent = [name for name in targets if after[name].taken and not after[name].given]
        slow = [name for name in targets if self._least_ns(name, [one.after for one in self._tried]) >= FLOOR_NS]
        slow_end = [name for name in targets if self._least_ns(name, [self._finished]) >= FLOOR_NS]
        left = sum(one.after.left for one in self._tried) + self._finished.left
        if not self._tried or not (silent or slow or slow_end or not left):
            return ""
        both, end = self._compared()
        if not both:
            return ""
        drops = [self._drops(name, both, end) for name in silent]
        gone = [] if left else [self._leaves_nothing(both, end)]
        slower = [self._slower(name, both) for name in slow]
        slower_end = [self._slower_at_the_end(name, end) for name in slow_end]
        return next(filter(None, [*drops, *gone, *slower, *slower_end]), "")

    def _compared(self) -> tuple[list[_Both], Passage]:
        """What the current functions make of the tuples that they do not fail on, and of the end of time."""
        both: list[_Both] = []
        for one in self._tried:
            try:
                both.append(_Both(one, self._present.run(one.start, one.recent)))
            except NotCopied:
                return [], Passage()
            except TrialFailed:
                self._present = Trial(self._layout, new=False, clock=self._clock)
        try:
            return both, self._present.finish()
        except TrialFailed:
            return both, Passage()

    # ---- rows

    def _drops(self, name: str, both: Sequence[_Both], end: Passage) -> str:
        after = _total([*(one.tried.after for one in both), self._finished])[name]
        before = _total([*(one.before for one in both), end])[name]
        selects = self._selects(name) or before.given < before.taken
        if after.given or _says_little(after.taken, before.given, selects):
            return ""
        return (
            f"new {name} drops every row in the rehearsal: of {_rows(after.taken)} it leaves none, the present one "
            f"leaves {before.given:,}"
        )

    def _leaves_nothing(self, both: Sequence[_Both], end: Passage) -> str:
        """The doubt if rows are lost below the targets, in operators that stay as they are."""
        after = _total([*(one.tried.after for one in both), self._finished])
        ends = sorted(name for name, tally in after.items() if tally.taken and not tally.given)
        kept = sum(one.before.left > 0 for one in both) + end.left
        selects = any(map(self._selects, ends)) or kept < len(both)
        if _says_little(len(both), kept, selects) or not ends or any(map(self._matches, ends)):
            return ""
        new = " and ".join(sorted(self._layout.targets))
        which = ", ".join(f"{name}{'' if name in self._layout.targets else ', which stays as it is,'}" for name in ends)
        return (
            f"with the new {new} no row is left in the rehearsal: {which} drops all that come of {_rows(len(both))}; "
            f"with the present {new}, {kept:,} come to an end"
        )

    def _selects(self, name: str) -> bool:
        """Whether the operator drops rows by its nature, as a filter."""
        traits = self._traits(name)
        return traits is not None and traits.returns is Returns.ANSWER and not traits.routes

    def _matches(self, name: str) -> bool:
        """Whether it matches rows of two sides: the few of a rehearsal may well find none."""
        traits = self._traits(name)
        return traits is not None and traits.two_sided

    def _traits(self, name: str) -> OperatorTraits | None:
        place = self._layout.place(name)
        return None if place is None else place[0].instances[place[1]].operator.traits

    # ---- time

    def _least_ns(self, name: str, passages: Iterable[Passage]) -> float:
        """The least time for a row, in nanoseconds; 0 if no row came to the operator."""
        tallies = [passage.tallies[name] for passage in passages if name in passage.tallies]
        return min((tally.ns / tally.taken for tally in tallies if tally.taken), default=0.0)

    def _slower(self, name: str, both: Sequence[_Both]) -> str:
        after = self._least_ns(name, [one.tried.after for one in both])
        before = self._least_ns(name, [one.before for one in both])
        if not _is_far(after, before):
            return ""
        one = next(one for one in both if name in one.tried.after.tallies and name in one.before.tallies)
        try:
            return self._confirmed(name, one, after, before)
        except TrialFailed:  # the tuple, processed once more, is another one to a function with state
            return ""

    def _confirmed(self, name: str, one: _Both, after: float, before: float) -> str:
        start, recent = one.tried.start, one.tried.recent
        if not self._is_batched(name):
            over_ns = self._clock() + AT_MOST_NS
            for _ in range(CONFIRMED):  # a busy machine delays a call now and then, but not so many in a row
                after = min(after, self._least_ns(name, [self._new.run(start, recent)]))
                if not _is_far(after, before) or self._clock() > over_ns:
                    break
            return _slower(name, after, before)
        many = replace(recent, batch=pa.concat_batches([recent.batch] * _COPIES))
        added = _added_ns(one.tried.after.tallies[name], self._new.run(start, many).tallies[name])
        return _slower(name, added, _added_ns(one.before.tallies[name], self._present.run(start, many).tallies[name]))

    def _slower_at_the_end(self, name: str, end: Passage) -> str:
        """The doubt about what a function does when time has passed, as that of a window."""
        before = self._least_ns(name, [end])
        if not _is_far(after := self._least_ns(name, [self._finished]), before):
            return ""
        again = Trial(self._layout, new=True, clock=self._clock)
        try:
            for one in self._tried:
                again.run(one.start, one.recent)
            return _slower(name, min(after, self._least_ns(name, [again.finish()])), before)
        except TrialFailed:
            return ""

    def _is_batched(self, name: str) -> bool:
        place = self._layout.place(name)
        instance = None if place is None else place[0].instances[place[1]]
        return instance is not None and instance.operator.traits.batched and shape_of(instance.function) is Shape.BATCH


def loses_rows(passages: Sequence[Passage], targets: Iterable[str]) -> bool:
    """Whether no row is left of these tuples, or a target has taken some and given none."""
    total = _total(passages)
    return not any(one.left for one in passages) or any(total[name].taken and not total[name].given for name in targets)


def _total(passages: Iterable[Passage]) -> defaultdict[str, Tally]:
    total = defaultdict[str, Tally](Tally)
    for passage in passages:
        for name, tally in passage.tallies.items():
            total[name].add(tally)
    return total


def _says_little(taken: int, kept: int, selects: bool) -> bool:
    """Whether so many rows, of which the current functions keep so many, are too few to doubt that none is kept."""
    return taken < (FEW if selects else 1) or kept < (FEW_KEPT if selects else 1)


def _rows(count: int) -> str:
    return "one recent row" if count == 1 else f"{count:,} recent rows"


def _is_far(after_ns: float, before_ns: float) -> bool:
    return after_ns >= max(FLOOR_NS, TIMES_SLOWER * before_ns) and before_ns > 0


def _added_ns(one: Tally, many: Tally) -> float:
    """What each further row of a batch adds, in nanoseconds; at least 1, and 0 if no further row came."""
    rows = many.taken - one.taken
    return max(1.0, (many.ns - one.ns) / rows) if rows > 0 else 0.0


def _slower(name: str, after_ns: float, before_ns: float) -> str:
    if not _is_far(after_ns, before_ns):
        return ""
    return (
        f"new {name} takes {after_ns / 1e6:,.1f} ms for a row in the rehearsal, {after_ns / before_ns:,.0f} times as "
        f"long as the present one ({before_ns / 1e6:,.4f} ms)"
    )


LASTS_NS = 10_000_000
"""Duration in nanoseconds after which only the first tuple of each operator is tried."""
AT_MOST_NS = 200_000_000
"""The same while rows seem to be lost, which a few tuples do not show (see ``doubts``)."""


class Rehearsals:
    """Prepares the new functions of changes on one host, then rehearses them, outside the workers' threads.

    A prepared function is referred to as long as its worker refers to it.

    Args:
        clock: returns nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._ready: WeakValueDictionary[tuple[str, WorkerId], Ready] = WeakValueDictionary()

    def prepare(self, order: DryRun) -> DryRunResult:
        """See :func:`reconfiguration.prepare`."""
        result = prepare(order)
        if result.ready is not None:
            self._ready[order.change, order.worker] = result.ready
        return result

    def rehearse(
        self, worker: WorkerId, order: Rehearse, workers: Iterable[Worker]
    ) -> tuple[Rehearsed, Callable[[], Compared] | None]:
        """Rehearse a change that was prepared here; returns the answer, and what compares the tuples, if that is asked.

        Never raises: a failure is the answer's ``error``. The change goes on with the answer.
        """
        there, began_ns = list(workers), self._clock()
        ready = {target: one for (change, target), one in self._ready.items() if change == order.change}
        layout = TrialLayout(there, held(ready), order.added) if order.examples else None
        try:
            answer = _Rehearsal(order, worker, TrialLayout(there, ready, order.added), self._clock).run()
        except BaseException as error:  # noqa: BLE001 (a tuple that cannot be loaded, say, runs the user's code)
            words = f"the rehearsal of change {order.change!r} failed: {exception_text(error)}"
            answer = Rehearsed(order.change, worker, words, user_traceback(error))
        took_ns = self._clock() - began_ns
        return answer, None if layout is None else partial(compared, order, worker, layout, took_ns, self._clock)


class _Rehearsal:
    def __init__(self, order: Rehearse, worker: WorkerId, layout: TrialLayout, clock: Callable[[], int]) -> None:
        self._order = order
        self._worker = worker
        self._layout = layout
        self._clock = clock
        self._new = self._trial(new=True)
        self._present: Trial | None = None
        self._tried: list[Tried] = []
        self._finished = Passage()

    def _trial(self, new: bool) -> Trial:
        return Trial(self._layout, new, self._clock)

    def run(self) -> Rehearsed:
        began, begun = self._clock(), set[str]()
        for start, recent in in_turn(self._order.samples):
            if start in begun and self._clock() - began >= (AT_MOST_NS if self._loses_rows else LASTS_NS):
                continue
            begun.add(start)
            try:
                self._tried.append(Tried(start, recent, self._new.run(start, recent)))
            except TrialFailed as failed:
                present = None if recent.facing else self._pass_with_current(start, recent)
                if recent.facing or present is not None:
                    return self._refusal(failed, start, present)
                self._new = self._trial(new=True)  # without the effects of a tuple that failed
        return self._finish() or self._unfound() or self._success()

    def _unfound(self) -> Rehearsed | None:
        """The refusal if states were given to keys that no row can have."""
        words = self._new.unfound()
        return Rehearsed(self._order.change, self._worker, words) if words else None

    def _finish(self) -> Rehearsed | None:
        """Let time pass; returns the refusal if what it brings out fails with the new functions, and only with them."""
        try:
            self._finished = self._new.finish()
        except TrialFailed as failed:
            samples = list(in_turn(self._order.samples))
            is_facing = any(recent.facing and is_firing(recent.batch) for _, recent in samples)
            if is_facing or self._finishes_with_current(samples):
                return self._refusal(failed, failed.operator, None)
        return None

    def _finishes_with_current(self, samples: Sequence[tuple[str, Recent]]) -> bool:
        """Whether the current functions do not fail when time has passed, given the same tuples."""
        present = self._trial(new=False)
        try:
            for start, recent in samples:
                present.run(start, recent)
            present.finish()
        except NotCopied:
            return True
        except TrialFailed:
            return False
        return True

    def _pass_with_current(self, start: str, recent: Recent) -> Passage | None:
        """The result of the current configuration for the tuple; ``None`` if it fails.

        It is empty if the current functions cannot be loaded a second time; the new ones are then judged alone.
        """
        self._present = self._present or self._trial(new=False)
        try:
            return self._present.run(start, recent)
        except NotCopied:
            return Passage()
        except TrialFailed:
            self._present = None  # discards the effects of a tuple that failed
            return None

    def _refusal(self, failed: TrialFailed, start: str, present: Passage | None) -> Rehearsed:
        name, targets = failed.operator, self._layout.targets
        in_front = sorted(one for one in targets - {name} if name in self._layout.below([one]))
        failing = f"new {name}" if name in targets else f"{name}, which stays as it is,"
        which = "a recent tuple"
        if in_front:
            which += f" as new {' and '.join(in_front)} left it"
            before = present.edges.get(failed.edge) if present is not None and failed.edge is not None else None
            after = failed.passage.edges.get(failed.edge) if failed.edge is not None else None
            if before is not None and after is not None and (words := difference(before, after)):
                which += f" ({words})"
        error = failed.reason
        reason = str(error) if isinstance(error, FriesError) else exception_text(error)
        told = f"{failing} failed in a rehearsal on {which}: {reason}"
        told, details = self._masked(told, failed), self._masked(user_traceback(error), failed)
        return Rehearsed(self._order.change, self._worker, told, details)

    def _masked(self, text: str, failed: TrialFailed) -> str:
        """The text without values of the failed tuple that are not to be shown."""
        hide = self._layout.hide
        values = dict(failed.reason.mentions) if isinstance(failed.reason, FriesError) else {}
        if hide and failed.came is not None:
            values |= failed.came.row()
        return masked_text(text, values, hide)

    def _success(self) -> Rehearsed:
        passages = [*(one.after for one in self._tried), self._finished]
        tried = frozenset(name for passage in passages for name in passage.tried)
        spared = frozenset(name for passage in passages for name in passage.spared) - tried
        arriving: dict[str, dict[bytes, None]] = {}
        writes: dict[str, dict[str, str]] = {}
        for passage in passages:
            for sink, schema in passage.arrived:
                arriving.setdefault(sink, {})[schema.serialize().to_pybytes()] = None
            for name, types in passage.writes.items():
                known = writes.setdefault(name, {})
                known.update({column: kind for column, kind in types.items() if known.get(column, "null") == "null"})
        behind_spared = self._layout.below(spared)
        unreached = self._layout.below(self._order.samples) - tried - behind_spared - arriving.keys()
        return Rehearsed(
            self._order.change, self._worker, doubt=self._doubt(), tried=tried, spared=spared,
            tuples=sum(bool(one.after.tried) for one in self._tried),
            unreached=frozenset(unreached), writes=writes,
            arriving={sink: tuple(schemas) for sink, schemas in arriving.items()},
            taken={sink: self._layout.taken(sink).serialize().to_pybytes() for sink in arriving},
        )  # fmt: skip

    @property
    def _loses_rows(self) -> bool:
        return self._order.compares and loses_rows([one.after for one in self._tried], self._layout.targets)

    def _doubt(self) -> str:
        if not self._order.compares:
            return ""
        return Doubts(self._layout, self._new, self._tried, self._finished, self._clock).first()
