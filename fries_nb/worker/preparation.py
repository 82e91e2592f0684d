"""Preparation of a change at one worker: the input of dry runs, their start, and their results.

A dry run is concurrent with the worker, on copies of some keys' states and of a recent tuple. Copies can only be made
between two tuples, so a ``Prepare`` waits for the current tuple, and the fast control message (FCM) after it for the
next one, which matters if a function takes seconds for a tuple. So before a slice of a slow function the worker
*offers* the input of a dry run, and a shell that receives a ``Prepare`` within the slice uses the offer. Then only the
FCM waits for a tuple.

    Prepare arrives    the dry run uses            the worker receives
    between slices     the state at that moment    Directed(Prepare): it requests the dry run
    within a slice     the state at its beginning  Expected: the dry run has begun
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fries_nb.operators.dry_run import DryRun, DryRunResult, Offer, dry_run, offer_of, refused
from fries_nb.operators.instance import Instance
from fries_nb.operators.recent import Recent
from fries_nb.protocol.messages import Prepare, WorkerId
from fries_nb.worker.events import Instruction, TellController

SLOW_NS = 20_000_000
"""Duration of a tuple in nanoseconds above which a function is slow, and dry runs are offered."""
SHARE = 100
"""Maximum cost of copying an offer, relative to the preceding slice."""

RecentAt = Callable[[int], tuple[Recent, ...]]


class Preparation:
    """The input of dry runs at one worker.

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
        """Begin to prepare a change of an operator; returns a dry run for the shell, or a refusal."""
        instance = self._instances[position]
        instance.expect(order.change, order.tagged)
        try:
            offer = offer_of(instance, self._recent(position) if rehearses else (), order.before)
        except Exception as error:  # noqa: BLE001 (pickling runs the user's code; the error is the answer)
            what = f"the state of {instance.worker.operator} cannot be copied for a trial"
            return TellController(refused(order.change, instance.worker, what, error).answer)
        return dry_run(order, offer)

    def trial(self, worker: WorkerId, order: Prepare) -> DryRun | None:
        """The dry run of a change whose ``Prepare`` arrived within a slice, if the worker has offered the input.

        May be called from any thread. The worker must then be sent ``Expected``.
        """
        offer = self._offers.get(worker)
        return None if offer is None or order.before else dry_run(order, offer)

    def offer(self) -> None:
        """Called at the start of a slice: offer the input of dry runs if tuples are slow."""
        if self._took_ns <= max(SLOW_NS, SHARE * self._costs_ns):
            return
        began = self._clock()
        try:
            offers = {
                instance.worker: offer_of(instance, self._recent(position))
                for position, instance in enumerate(self._instances)
            }
        except Exception:  # noqa: BLE001 (a state that cannot be copied: a Prepare between slices answers the error)
            offers = {}
        self._offers = offers
        self._costs_ns = self._clock() - began

    def withdraw(self, took_ns: int, taken: int) -> None:
        """Called at the end of a slice: withdraw the offer, and measure the duration of a tuple."""
        self._offers = {}
        self._took_ns = took_ns // max(taken, 1)


def keep_ready(rehearsed: DryRunResult, instance: Instance) -> None:
    """Keep the prepared configuration until its marker arrives, unless the change was aborted meanwhile."""
    change = rehearsed.answer.change
    if rehearsed.ready is not None and instance.expects(change):
        instance.prepared[change] = rehearsed.ready
