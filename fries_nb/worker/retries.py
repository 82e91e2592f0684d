"""Rows that a worker tries again: the one on which its operator paused, and dead letters that come back.

Pauses: a tuple on which an operator failed is kept until a fix of the operator processes it.

An operator whose ``on_error`` is "pause" is alone in its chain. When its function fails on a tuple, earlier tuples have
been processed, and the failed one has had no effect on output, state or counts (see ``error_policy``). The worker is
*paused*: it takes no tuple, but still processes control messages; markers that arrive after the tuple wait in the
inbox. A marker that switches the operator meanwhile arrived as an FCM, ahead of the tuple, and is therefore a fix: the
worker *retries* that one tuple, and then continues with the rest of the frame.

A change under *guard* is rolled back if the new function fails within the guard's duration. Until the guard ends, a
worker whose chain has such a change also pauses, whatever its ``on_error`` is, on the tuple as it arrived at the chain.
Either the FCM of the rollback arrives ahead of the tuple; or ``Unguard``, and then the operator's error policy applies.

    state      the tuple passes      the tuple fails      a fix
    running    -> running            -> paused: Paused    -> running
    paused     -                     -                    -> retries (also behind ``Unguard``)
    retries    -> running: Resumed   -> paused: Paused    -> retries

>>> import pyarrow as pa
>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.protocol.messages import WorkerId
>>> from fries_nb.operators.executors import InterruptFlag, executor_of
>>> instance = Instance(WorkerId("R", 0), Operator("R", on_error="pause"), lambda row: {"y": 1 / row["x"]}, audit=False)
>>> execution = executor_of([instance], InterruptFlag(), 1, "")
>>> execution.load("S", pa.RecordBatch.from_pydict({"x": [2, 0, 4]}))
>>> pause = PauseState([instance], lambda told: print(type(told).__name__, getattr(told, "row", "")))
>>> pause.advance(execution, 100), pause.paused, execution.remaining
Paused {"x": 0}
(1, True, 2)
>>> instance.function = lambda row: {"y": 1.0}
>>> execution.rebuild()
>>> pause.fixed()
>>> pause.advance(execution, 100), pause.advance(execution, 100), pause.paused
Resumed
(1, 1, False)

The rows of dead letters that come back to an operator, at the worker that runs it.

They precede everything in the worker's inbox. So no marker passes them: a checkpoint that has the requeue in its
decisions has the rows behind it, in output and state, and there is nothing of them to save. A marker that is in flight
excludes others until every worker of its scope has acknowledged it (see ``controller.markers``), so none is passed by
them either, no state of their keys is on its way between workers, and each row has one owner.

In a chain they enter at their operator and not at the first one. The chain from there on is compiled for them, and
forgotten with them; whenever the chain itself is composed anew, rows in hand are given back first.

>>> import pyarrow as pa
>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.operators.dead_letters import ReturnedRows
>>> from fries_nb.operators.executors import InterruptFlag, executor_of
>>> from fries_nb.protocol.messages import WorkerId
>>> first, second = (Instance(WorkerId(name, 0), Operator(name), dict, audit=False) for name in "AB")
>>> compiled = lambda instances: executor_of(instances, InterruptFlag(), 1, "")
>>> second.failing.returned.append(ReturnedRows(pa.RecordBatch.from_pydict({"x": [1, 2]}), ("a", "b"), tries=1))
>>> returning = Returning([first, second], compiled, lambda: 0)
>>> executor = returning.begin(compiled([first, second]))
>>> executor.advance(1), second.processed, first.processed, second.failing.tries, returning.waits
(1, 1, 0, 1, False)
>>> returning.give_back(executor)
True
>>> second.failing.returned[0].rows.to_pydict(), second.failing.tries, returning.waits
({'x': [2]}, 0, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fries_nb.dataflow.masking import masked_text
from fries_nb.errors import OperatorError
from fries_nb.operators.dead_letters import ReturnedRows
from fries_nb.operators.dry_run import shown_tuple
from fries_nb.operators.error_policy import NotUndoneError, is_retried
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.instance import Instance, row_as_json
from fries_nb.operators.row_versions import old_for
from fries_nb.protocol.messages import Paused, Resumed


class PauseState:
    """Whether a worker is paused on a tuple.

    Attributes:
        paused: whether the worker waits for a fix or a rollback, and takes no tuple.
    """

    def __init__(self, instances: Sequence[Instance], tell: Callable[[Paused | Resumed], None]) -> None:
        self.paused = False
        self._instances = instances
        self._worker = instances[0].worker
        self._pauses: bool = instances[0].operator.on_error == "pause"
        self._tell = tell
        self._retries = False
        self._guard = ""
        self._reported = False  # whether ``Paused`` was sent and ``Resumed`` was not

    def advance(self, execution: ChainExecutor, quota: int) -> int:
        """Process tuples until the quota is reached or the worker pauses; returns how many were taken."""
        if not (self._pauses or self._retries or is_retried(self._instances)):
            return execution.advance(quota)
        left = execution.remaining
        try:
            taken = execution.advance(1 if self._retries else quota)
        except OperatorError as error:
            failed = self._failed(error)
            if isinstance(error, NotUndoneError) or not (failed.guarded or self._pauses):
                raise
            self._pause_on(error, failed, execution)
            return left - execution.remaining
        if self._retries and taken:
            self._retries = False
            if self._reported:
                self._reported = False
                self._tell(Resumed(self._worker))
        return taken

    def _failed(self, error: OperatorError) -> Instance:
        """The operator that failed, or if it is not under guard the nearest operator before it that is."""
        names = [instance.worker.operator for instance in self._instances]
        position = names.index(error.operator) if error.operator in names else 0
        ahead = reversed(self._instances[: position + 1])
        return next((instance for instance in ahead if instance.guarded), self._instances[position])

    def _pause_on(self, error: OperatorError, failed: Instance, execution: ChainExecutor) -> None:
        self.paused, self._retries, self._guard = True, False, failed.guarded
        self._reported = self._reported or not self._guard
        row = execution.facing()
        values, hide = shown_tuple(row) if row is not None else {}, failed.hide
        known = values | dict(error.mentions)
        words, details = (masked_text(text, known, hide) for text in (str(error), error.details))
        shown = row_as_json(values, hide) if row is not None else ""
        chain = tuple([instance.worker.operator for instance in self._instances])
        before = "" if row is None else old_for(failed.earlier, execution.unread)
        self._tell(Paused(failed.worker, words, details, shown, self._guard, chain, before))

    @property
    def under_way(self) -> bool:
        """Whether a tuple is paused on, or retried and not yet reported as processed."""
        return self.paused or self._retries or self._reported

    def fixed(self) -> None:
        """Retry the tuple, since the operator was switched ahead of it."""
        if self.paused:
            self.paused, self._retries = False, True

    def unguarded(self, change: str) -> None:
        """Record that the guard of this change has ended; a tuple that waits for its rollback is retried."""
        if self._guard == change:
            self.fixed()


class Returning:
    """The rows that come back to the operators of a chain.

    Args:
        instances: the operators, in the chain's order.
        compiled: compiles a chain.
        clock: returns nanoseconds since the Unix epoch.

    Attributes:
        waits: whether there are rows that are not in hand.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        compiled: Callable[[Sequence[Instance]], ChainExecutor],
        clock: Callable[[], int],
    ) -> None:
        self.waits = False
        self._instances = tuple(instances)
        self._compiled = compiled
        self._clock = clock
        self._taken: tuple[Instance, ReturnedRows] | None = None
        self.look()

    def look(self) -> None:
        """Look for rows, after some may have come back."""
        self.waits = any(instance.failing.returned for instance in self._instances)

    def begin(self, chain: ChainExecutor) -> ChainExecutor:
        """Take the next rows in hand; returns what processes them, loaded: the chain, or what follows of it."""
        position, instance = next((at, one) for at, one in enumerate(self._instances) if one.failing.returned)
        rows = instance.failing.returned.popleft()
        self._taken = instance, rows
        instance.failing.tries = rows.tries
        self.look()
        executor = self._from(position, chain) if position else chain
        executor.load("", rows.with_hidden(self._clock(), instance.identities))
        return executor

    def _from(self, position: int, chain: ChainExecutor) -> ChainExecutor:
        """What processes the chain from a position on; what its operators have learnt of their columns is kept."""
        instances = self._instances[position:]
        learnt = [(one.written, one.written.mark(), dict(one.written.emitted)) for one in instances]
        executor = self._compiled(instances)
        for written, mark, emitted in learnt:
            written.rewind(mark)
            written.emitted.update(emitted)
        executor.keep_types(chain)
        return executor

    def end(self) -> None:
        """The rows in hand are processed."""
        if self._taken is not None:
            self._taken[0].failing.tries = 0
            self._taken = None

    def give_back(self, executor: ChainExecutor) -> bool:
        """Let what the executor has left of the rows in hand wait again, ahead of the others; false if none are."""
        if self._taken is None:
            return False
        (instance, rows), left = self._taken, executor.remaining
        if left:
            instance.failing.returned.appendleft(rows.behind(rows.rows.num_rows - left))
        self.end()
        self.look()
        return True
