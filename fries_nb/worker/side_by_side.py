"""Recent tuples through the present and the new functions of a change, side by side, for users to look at.

The host that rehearses a change does this a while after its answer, so the change does not wait for it; by then workers
have switched, mostly, and what they ran is known from before (see ``TrialLayout.present``). Both sides get the same
tuples in the same order, and all keys begin with a copy of one state. A tuple that fails on one side ends the trial of
both: the next one finds them as they were in the beginning, so that what differs is due to the functions only.

What is told is bounded: by the number of tuples that was asked for, by a duration, and by ``LARGEST`` bytes.

>>> from fries_nb.protocol.messages import WorkerId
>>> one = ComparedTuple("FM", 0, {"n": 1}, Made(({"n": 1, "p": 0.5},)), Made((), "no"))
>>> told(Rehearse("u1", {}, examples=10), WorkerId("FM", 0), [one] * 2, limit=400).cut
1
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from typing import Any

from fries_nb.errors import FriesError, exception_text
from fries_nb.operators.dry_run import Recent, shown_tuple
from fries_nb.operators.instance import Ready
from fries_nb.operators.shown_states import plainly_pickled
from fries_nb.operators.timed_calls import is_firing
from fries_nb.protocol.messages import Compared, Rehearse, WorkerId
from fries_nb.worker.trial import NotCopied, Passage, Trial, TrialFailed, TrialLayout, shown_rows

LARGEST = 256 << 10
"""Maximum size in bytes of what is told of one change."""
LASTS_NS, ASKED_NS = 50_000_000, 2_000_000_000
"""Nanoseconds after which no further tuple is tried: of a change, and where only this was asked for."""
MOST_LINES = 16
"""Maximum number of calls that are told of a failure."""
_LINE = re.compile(r'^  File "([^"]+)", line (\d+)', re.MULTILINE)
TOO_LONG_NS = 1_000_000_000
"""Duration in nanoseconds of a rehearsal, as of one that loads a model, that is done again only if asked."""


@dataclass(frozen=True)
class Made:
    """What an operator made of a tuple.

    Attributes:
        rows: the rows that it gave.
        error: why it failed, in a sentence; empty if it has not.
        lines: file and line of each of the user's calls that led to the failure, the innermost last.
        ns: nanoseconds that it took; 0 if it was not reached.
    """

    rows: tuple[dict[str, Any], ...] = ()
    error: str = ""
    lines: tuple[tuple[str, int], ...] = ()
    ns: int = 0


@dataclass(frozen=True)
class ComparedTuple:
    """What an operator made of a tuple before and after a change.

    Attributes:
        operator: the operator.
        worker: index of the worker that has taken the tuple.
        came: the tuple, as it came to the first operator that changes; empty for what the end of time brings.
        before: what it made of it as it is.
        after: what it makes of it with the change.
    """

    operator: str
    worker: int
    came: Mapping[str, Any]
    before: Made
    after: Made


def held(ready: Mapping[WorkerId, Ready]) -> dict[WorkerId, Ready]:
    """Prepared configurations, each with the state of a single key, with which all keys begin on both sides."""
    return {worker: replace(one, states=one.states[:1]) for worker, one in ready.items()}


def compared(
    order: Rehearse, worker: WorkerId, layout: TrialLayout, took_ns: int, clock: Callable[[], int]
) -> Compared:  # fmt: skip
    """Compare a change that was rehearsed with what ran before. Never raises: a failure is the answer's ``error``.

    Args:
        order: the rehearsal.
        worker: the worker on whose host it was.
        layout: the operators, as they were before the change.
        took_ns: how long the rehearsal took.
        clock: returns nanoseconds.
    """
    if took_ns > TOO_LONG_NS and not order.only:
        words = f"its rehearsal took {took_ns / 1e9:.1f} s, and is not done again; run.examples({{...}}) does that"
        return Compared(order.change, worker, error=words)
    if not layout.stands:
        words = "the chains of its operators have changed since; run.examples({...}) compares recent rows anew"
        return Compared(order.change, worker, error=words)
    both = _Both(layout, clock)
    try:
        found = both.run(order, clock() + (ASKED_NS if order.only else LASTS_NS))
    except NotCopied as failed:
        words = f"the functions of {failed.operator} cannot be loaded again: {_words(failed.reason)}"
        return Compared(order.change, worker, error=words)
    except BaseException as error:  # noqa: BLE001 (a tuple that cannot be loaded, say, runs the user's code)
        return Compared(order.change, worker, error=exception_text(error))
    return told(order, worker, found)


def told(order: Rehearse, worker: WorkerId, found: Sequence[ComparedTuple], limit: int = LARGEST) -> Compared:
    """What the driver is told of these tuples, of which some may be too large or cannot be pickled."""
    packed, size, cut, uncopied = list[bytes](), 0, 0, 0
    for one in found:
        try:
            pickled = plainly_pickled(one)
        except Exception:  # noqa: BLE001 - pickling a user's value may raise anything; it is counted
            uncopied += 1
            continue
        if size + len(pickled) > limit:
            cut += 1
            continue
        size += len(pickled)
        packed.append(pickled)
    return Compared(order.change, worker, tuple(packed), cut, uncopied)


class _Both:
    """A trial of the present functions and one of the new ones, which go on together."""

    def __init__(self, layout: TrialLayout, clock: Callable[[], int]) -> None:
        self._layout = layout
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._before, self._after = (
            Trial(self._layout, new=new, clock=self._clock, keeps_rows=True) for new in (False, True)
        )

    def run(self, order: Rehearse, over_ns: int) -> list[ComparedTuple]:
        found = list[ComparedTuple]()
        # Each side gets tuples of its own, as a function may change what it gets, and what is shown is another.
        sides = (islice(in_turn(order.samples), order.examples) for _ in range(3))
        for (start, mine), (_, other), (_, shown) in zip(*sides, strict=True):
            if found and self._clock() >= over_ns:
                break
            before = self._passed(partial(self._before.run, start, mine))
            after = self._passed(partial(self._after.run, start, other))
            made = after.passage.came  # in place of the tuple: what an operator that stays has made of another one
            found += self._pairs(before, after, mine.worker, _came(shown) if made is None else made)
            if before.failed or after.failed:
                self._begin()
        before, after = self._passed(self._before.finish), self._passed(self._after.finish)
        return [*found, *self._pairs(before, after, 0, {})]

    def _passed(self, process: Callable[[], Passage]) -> _Passed:
        try:
            return _Passed(process())
        except NotCopied:
            raise
        except TrialFailed as failed:
            details = getattr(failed.reason, "details", "")  # from the user's first call on
            lines = tuple((file, int(line)) for file, line in _LINE.findall(details)[-MOST_LINES:])
            return _Passed(failed.passage, failed.operator, _words(failed.reason), lines)

    def _pairs(
        self, before: _Passed, after: _Passed, worker: int, came: Mapping[str, Any]
    ) -> Iterator[ComparedTuple]:  # fmt: skip
        """What each changed operator made of a tuple, and those that failed on it, in the order of the flow."""
        shown = self._layout.targets.union(filter(None, (before.failed, after.failed)))
        for name in self._layout.ordered(shown):
            made = before.made(name), after.made(name)
            reached = any(name in one.passage.tallies for one in (before, after))
            # What works by time gives its rows when time has passed, and not for a tuple; few others are not reached.
            if any(one.rows or one.error for one in made) or (reached and came and not self._layout.is_timed(name)):
                yield ComparedTuple(name, worker, came, *made)


@dataclass(frozen=True)
class _Passed:
    """The results of a tuple on one side, and the operator that failed on it; empty if none has."""

    passage: Passage
    failed: str = ""
    error: str = ""
    lines: tuple[tuple[str, int], ...] = ()

    def made(self, operator: str) -> Made:
        rows = tuple(self.passage.made.get(operator, ()))
        why = (self.error, self.lines) if operator == self.failed else ("", ())
        return Made(rows, *why, ns=self.passage.tallies[operator].ns if operator in self.passage.tallies else 0)


def in_turn(samples: Mapping[str, Iterable[bytes]]) -> Iterator[tuple[str, Recent]]:
    """The tuples with the operators that they arrived at, taking one of each operator in turn.

    >>> import pyarrow as pa
    >>> one = pickle.dumps(Recent(pa.RecordBatch.from_pylist([{"n": 1}])))
    >>> [(start, recent.place) for start, recent in in_turn({"A": [one, one], "B": [one]})]
    [('A', 0), ('B', 0), ('A', 1)]
    """
    for place, one in enumerate(zip_longest(*samples.values())):
        for start, pickled in zip(samples, one, strict=True):
            if pickled is not None:
                yield start, replace(pickle.loads(pickled), place=place)


def _came(recent: Recent) -> dict[str, Any]:
    """A tuple as it came to an operator."""
    if is_firing(recent.batch):
        return shown_tuple(recent.batch)
    [row] = shown_rows(recent.batch)
    return dict(recent.written) if recent.whole else row | recent.written


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, FriesError) else exception_text(error)
