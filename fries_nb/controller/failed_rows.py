"""Rows on which operators have failed: the workers that pause on one, and dead letters that go back.

Operators whose workers are paused on a tuple on which they failed (``on_error="pause"``).

A paused worker processes no further tuples or markers until a *fix* arrives, which is a change of its operator alone
and bypasses its queue. Then it retries the tuple, and resumes or pauses again.

While a change of several operators is being committed, the tuple belongs to the version that the worker runs. A worker
that has not switched yet is fixed in the old version: the fix is ordered *before* that change, and workers that have
applied the change skip it. A worker that has switched is fixed after the change, which it does not delay. A worker
that receives the change's own FCM, as a head, needs no fix: its tuple is the first of the new version.

>>> paused = PausedOperators()
>>> paused.pause(Paused(WorkerId("FM", 0), "FM: KeyError: 'x'")).operator, "FM" in paused.operators
('FM', True)
>>> paused.resume(WorkerId("FM", 0)), paused.operators
(OperatorPaused(operator='FM', paused=()), frozenset())

Rows of dead letters that go back to their operator, exactly once each.

The rows of a request are decided as a change is: the decision, with the rows, is on disk before the first message of it
is sent. So there is one moment at which they have gone back, and a restart from an earlier checkpoint gives them again,
together with all that was read behind it.

    a request comes                  it waits
    no marker is in flight, and      journal the decision, send the FCMs of its marker with the rows
    no change is being committed
    all workers have acknowledged    answered, with the number of rows whose worker had ended
    the hosts are lost               one that waits goes on waiting; a decided one is answered with the restart
    the run ends                     answered, with the error

The marker passes no channel: its scope is the operator. It excludes other actions, moves of bins among them, so each
worker knows which rows are its own. The rows themselves may take longer than the acknowledgement; they precede whatever
comes to the worker behind (see ``worker.retries``).

>>> from fries_nb.controller.commits import Recovery
>>> from fries_nb.controller.coordinator import alone
>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.protocol.messages import RequeuedRow
>>> workers = Workers(Graph("pair", (Operator("S"), Operator("FM")), (Edge("S", "FM"),)))
>>> lane, recovery = MarkerCoordinator(workers), Recovery(1)
>>> requeues = Requeues(workers, lane, recovery, alone, lambda worker: False)
>>> requeues.take(RequeueRequested("requeue-1", "FM", (RequeuedRow("a", 7, 1, b"row"),)), now_ns=0)
[]
>>> journal, tell = requeues.advance(now_ns=0, is_tick=False)
>>> journal.decided.requeued == tell.control.marker.action.rows, tell.control.marker.action.owners
(True, (0,))
>>> action = lane.acknowledge(1, WorkerId("FM", 0))
>>> requeues.acknowledged(action, WorkerId("FM", 0), Done(1, WorkerId("FM", 0)), now_ns=0)
[RequeueEnded(requeue='requeue-1', left=0, error='')]
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from fries_nb.controller.commits import Recovery
from fries_nb.controller.coordinator import Coordinator, MayBegin, Taken
from fries_nb.controller.events import Instruction, Journal, OperatorPaused, RequeueEnded, RequeueRequested
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.errors import ProtocolError
from fries_nb.planning.schedulers import Send
from fries_nb.protocol.messages import Action, Done, Paused, Resumed, ReturnRows, WorkerId


class PausedOperators(Coordinator):
    """The paused workers, each with its last message."""

    takes = (Resumed,)

    def __init__(self) -> None:
        self._paused: dict[WorkerId, Paused] = {}

    @property
    def operators(self) -> frozenset[str]:
        """The operators with at least one paused worker."""
        return frozenset(worker.operator for worker in self._paused)

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """The paused workers, sorted."""
        return tuple(sorted(self._paused))

    def before(self, operator: str, changes: Iterable[str]) -> str:
        """The first of these changes for which a tuple is old on which an operator is paused; empty for none."""
        old_for = {answer.before for worker, answer in self._paused.items() if worker.operator == operator}
        return next((change for change in changes if change in old_for), "")

    def pause(self, answer: Paused) -> OperatorPaused:
        """Record that a worker is paused, possibly again after an ineffective fix."""
        self._paused[answer.worker] = answer
        return self._of(answer.worker.operator)

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """See ``resume``."""
        return [self.resume(event.worker)] if isinstance(event, Resumed) else []

    def resume(self, worker: WorkerId) -> OperatorPaused:
        """Record that a worker has processed its tuple."""
        if worker not in self._paused:
            raise ProtocolError(f"{worker} resumed without having been paused")
        del self._paused[worker]
        return self._of(worker.operator)

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Remove all paused workers; returns the event for each operator."""
        operators = sorted(self.operators)
        self._paused = {}
        return [OperatorPaused(operator) for operator in operators]

    def _of(self, operator: str) -> OperatorPaused:
        paused = sorted(self._paused.items())
        return OperatorPaused(operator, tuple(answer for worker, answer in paused if worker.operator == operator))


class Requeues(Coordinator):
    """The requests for rows of dead letters, one under way at a time.

    Args:
        may_begin: whether nothing that excludes a requeue is under way.
        had_ended: whether a worker was restored as ended.
    """

    takes = (RequeueRequested,)
    actions = (ReturnRows,)

    def __init__(
        self,
        workers: Workers,
        lane: MarkerCoordinator,
        recovery: Recovery,
        may_begin: MayBegin,
        had_ended: Callable[[WorkerId], bool],
    ) -> None:
        self._workers = workers
        self._lane = lane
        self._recovery = recovery
        self._may_begin = may_begin
        self._had_ended = had_ended
        self._queue = deque[RequeueRequested]()
        self._sent: ReturnRows | None = None
        self._awaited = set[WorkerId]()
        self._left = 0

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Process a request."""
        if not isinstance(event, RequeueRequested) or not event.rows:
            raise ProtocolError(f"{event} came to the requeues; expected a request for some rows")
        self._queue.append(event)
        return []

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Begin the next request, if nothing excludes it."""
        if not self._queue or self._sent is not None or not self._may_begin(now_ns):
            return []
        request = self._queue.popleft()
        operator, rows = request.operator, request.rows
        if why := self._refusal(operator):
            return [RequeueEnded(request.requeue, len(rows), why)]
        owners = self._workers.table(operator).owners
        self._sent = ReturnRows(request.requeue, operator, rows, tuple(int(owners[row.bin]) for row in rows))
        self._awaited, self._left = set(self._workers.live((operator,))), 0
        self._left = sum(self._rows_of(index) for index in self._ended())
        decided = self._recovery.requeue(request.requeue, operator, rows)
        return [Journal(decided), *self._lane.start((Send(operator, frozenset((operator,))),), self._sent)]

    def _refusal(self, operator: str) -> str:
        """Why a request cannot be carried out."""
        if operator not in self._workers.graph:
            return f"{operator} was removed meanwhile; its dead letters stay"
        if not self._workers.live((operator,)):
            return f"all workers of {operator} have ended; its dead letters stay"
        return ""

    def _ended(self) -> set[int]:
        """The indices of the workers that have ended."""
        assert self._sent is not None, "one is under way"
        everyone = self._workers.of((self._sent.operator,))
        return {worker.index for worker in everyone if worker not in self._awaited}

    def _rows_of(self, index: int) -> int:
        """The number of rows for a worker."""
        assert self._sent is not None, "one is under way"
        return Counter(self._sent.owners)[index]

    def acknowledged(self, action: Action, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """Record that a worker has its rows, or has ended without them."""
        if self._sent is None or action is not self._sent or worker not in self._awaited:
            return []
        self._awaited.discard(worker)
        if done is None or done.ended:
            self._left += self._rows_of(worker.index)
        return self._answer() if not self._awaited else []

    def started(self, now_ns: int) -> list[Instruction]:
        """All workers have the rows of a decided request, since they were restored with it."""
        if self._sent is None:
            return []
        gone = (worker.index for worker in self._workers.of((self._sent.operator,)) if self._had_ended(worker))
        self._left = sum(map(self._rows_of, gone))
        return self._answer()

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Forget which workers are awaited; see ``started``."""
        self._awaited.clear()
        return []

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """Answer all requests, since the run has ended."""
        words = f"{error or why}; what was not committed of it is in no output, and these letters stay"
        begun = [] if self._sent is None else [RequeueEnded(self._sent.requeue, 0, words)]
        self._sent = None
        return [*begun, *self._refused(error or why)]

    def refuse(self, event: Taken, state: str, now_ns: int) -> list[Instruction]:
        """Answer a request that came after the end of the run."""
        self.take(event, now_ns)
        return self._refused(f"the run was over ({state})")

    def _refused(self, why: str) -> list[Instruction]:
        queue = [*self._queue]
        self._queue.clear()
        return [RequeueEnded(one.requeue, len(one.rows), f"{why}; the dead letters stay") for one in queue]

    def _answer(self) -> list[Instruction]:
        sent, self._sent = self._sent, None
        assert sent is not None, "one is under way"
        return [RequeueEnded(sent.requeue, self._left)]
