"""A worker's part of preparing a change: what its trials need, when they begin, and what comes back.

A trial runs beside the worker, on copies of some keys' states and of a recent tuple. Both can be taken only between two
tuples, so a ``Prepare`` has to wait for the tuple in hand; and the fast control message behind it has to wait for the
next one. That is nothing unless the function takes seconds for a tuple. So in front of a slice of a slow function the
worker *offers* what a trial would need, and a shell that gets a ``Prepare`` in the middle of the slice takes it from
the offer: of such a change only the fast control message waits for a tuple.

    Prepare comes      the trial is on             the worker hears
    between slices     the state of that moment    Directed(Prepare): it asks for the trial
    within a slice     the state at its beginning  Expected: the trial has begun
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fries_nb.messages import Prepare, WorkerId
from fries_nb.operators.dry_run import DryRun, DryRunResult, Offer, dry_run, offer_of, refused
from fries_nb.operators.instance import Instance
from fries_nb.operators.recent import Recent
from fries_nb.worker.events import Instruction, TellController

SLOW_NS = 20_000_000
"""A tuple that takes longer than this makes a function slow: a change should not wait for it twice."""
SHARE = 100
"""An offer is made if to copy what it holds takes at most this part of the slice in front of it."""

RecentAt = Callable[[int], tuple[Recent, ...]]


class Preparation:
    """What one worker has ready for trials of its next functions.

    Args:
        instances: the worker's operators, in the chain's order.
        recent: finds tuples for a rehearsal of the operator at a position of the chain; called between two tuples.
        clock: returns nanoseconds.
    """

    def __init__(self, instances: Sequence[Instance], recent: RecentAt, clock: Callable[[], int]) -> None:
        self._instances = tuple(instances)
        self._recent = recent
        self._clock = clock
        self._offers: Mapping[WorkerId, Offer] = {}
        self._costs_ns = 0
        self._took_ns = 0

    def begin(self, order: Prepare, position: int, rehearses: bool) -> Instruction:
        """Begin to prepare a change of the operator at this position: a trial for the shell, or a refusal at once."""
        instance = self._instances[position]
        instance.expect(order.change, order.tagged)
        try:
            offer = offer_of(instance, self._recent(position) if rehearses else (), order.before)
        except Exception as error:  # noqa: BLE001 (pickling runs the user's code; the error is the answer)
            what = f"the state of {instance.worker.operator} cannot be copied for a trial"
            return TellController(refused(order.change, instance.worker, what, error).answer)
        return dry_run(order, offer)

    def trial(self, worker: WorkerId, order: Prepare) -> DryRun | None:
        """The trial of a change whose ``Prepare`` comes in the middle of a slice, if the worker offers what it needs.

        May be called from any thread. The worker is to be told by ``Expected``.
        """
        offer = self._offers.get(worker)
        return None if offer is None or order.before else dry_run(order, offer)

    def offer(self) -> None:
        """A slice begins: offer what trials need if the last one shows that tuples take long."""
        if self._took_ns <= max(SLOW_NS, SHARE * self._costs_ns):
            return
        began = self._clock()
        try:
            offers = {
                instance.worker: offer_of(instance, self._recent(position))
                for position, instance in enumerate(self._instances)
            }
        except Exception:  # noqa: BLE001 (a state that cannot be copied: a Prepare between slices is told so)
            offers = {}
        self._offers = offers
        self._costs_ns = self._clock() - began

    def withdraw(self, took_ns: int, taken: int) -> None:
        """The slice is over: what was offered is old, and this is how long its tuples took."""
        self._offers = {}
        self._took_ns = took_ns // max(taken, 1)


def keep_ready(rehearsed: DryRunResult, instance: Instance) -> None:
    """What was prepared waits for its marker, unless the change was aborted meanwhile."""
    change = rehearsed.answer.change
    if rehearsed.ready is not None and instance.expects(change):
        instance.prepared[change] = rehearsed.ready
