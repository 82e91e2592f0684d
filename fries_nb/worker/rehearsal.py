"""The rehearsal of a change: all of its new functions process recent tuples together, with all operators downstream.

It runs on one host, concurrently with the workers, when all functions of the change are prepared, and determines
whether the change fails where the current configuration does not. A tuple on which a new function fails is also tried
with the current functions; if they fail as well (as for a dead letter), it is ignored. A tuple on which an operator is
paused is never ignored, since a fix has to process it.

A change of which nothing fails may still be doubted (see ``doubts``); it is then made only if it is forced.

The schemas that arrive at sinks are reported to the controller, which knows what the sinks have accepted.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from weakref import WeakValueDictionary

from fries_nb.errors import FriesError, exception_text
from fries_nb.messages import Rehearse, Rehearsed, WorkerId
from fries_nb.operators.dry_run import DryRun, DryRunResult, prepare
from fries_nb.operators.failures import user_traceback
from fries_nb.operators.firing import is_firing
from fries_nb.operators.instance import Ready
from fries_nb.operators.recent import Recent
from fries_nb.worker.doubts import Doubts, Tried, loses_rows
from fries_nb.worker.trial import NotCopied, Passage, Trial, TrialFailed, TrialLayout, difference
from fries_nb.worker.worker import Worker

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

    def rehearse(self, worker: WorkerId, order: Rehearse, workers: Iterable[Worker]) -> Rehearsed:
        """Rehearse a change that was prepared here. Never raises: a failure is the answer's ``error``.

        Args:
            worker: the worker that the answer names.
            order: the change and the recent tuples.
            workers: all workers of the host.
        """
        ready = {target: one for (change, target), one in self._ready.items() if change == order.change}
        try:
            return _Rehearsal(order, worker, TrialLayout(workers, ready), self._clock).run()
        except BaseException as error:  # noqa: BLE001 (a tuple that cannot be loaded, say, runs the user's code)
            words = f"the rehearsal of change {order.change!r} failed: {exception_text(error)}"
            return Rehearsed(order.change, worker, words, user_traceback(error))


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
        for start, pickled in in_turn(self._order.samples):
            if start in begun and self._clock() - began >= (AT_MOST_NS if self._loses_rows else LASTS_NS):
                continue
            begun.add(start)
            recent: Recent = pickle.loads(pickled)
            try:
                self._tried.append(Tried(start, recent, self._new.run(start, recent)))
            except TrialFailed as failed:
                present = None if recent.facing else self._pass_with_current(start, recent)
                if recent.facing or present is not None:
                    return self._refusal(failed, start, present)
                self._new = self._trial(new=True)  # without the effects of a tuple that failed
        return self._finish() or self._success()

    def _finish(self) -> Rehearsed | None:
        """Let time pass; returns the refusal if what it brings out fails with the new functions, and only with them."""
        try:
            self._finished = self._new.finish()
        except TrialFailed as failed:
            samples = [(start, pickle.loads(pickled)) for start, pickled in in_turn(self._order.samples)]
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
        return Rehearsed(self._order.change, self._worker, told, user_traceback(error))

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
            self._order.change, self._worker, doubt=self._doubt(), tuples=len(self._tried), tried=tried, spared=spared,
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


def in_turn(samples: Mapping[str, Iterable[bytes]]) -> Iterator[tuple[str, bytes]]:
    """The tuples with the operators that they arrived at, taking one of each operator in turn.

    >>> list(in_turn({"A": [b"1", b"2"], "B": [b"3"]}))
    [('A', b'1'), ('B', b'3'), ('A', b'2')]
    """
    for one in zip_longest(*samples.values()):
        yield from ((start, pickled) for start, pickled in zip(samples, one, strict=True) if pickled is not None)
