"""A tuple on which an operator failed is kept, until a fix of the operator gets past it.

An operator whose ``on_error`` is "pause" runs alone in its chain. When its function fails, the tuples in front have
been taken and the failed one has not: its rows did not leave, its state is as before, no count includes it (see
``guarding`` and ``chaining``). The worker is *paused*: it takes no tuple, but still processes control; markers that
came behind the tuple wait behind it. So a marker that switches the operator meanwhile came as an FCM, in front of the
tuple, and is a fix: the worker *retries* that one tuple; past it, it goes on with the rest of the frame.

A change under *guard* is rolled back if its configuration fails soon. Until the guard is over a worker whose chain has
such a change waits likewise, whatever its ``on_error`` is, with the tuple as it came to the chain. The FCM of the
rollback comes in front of it; or ``Unguard``, and then the operator's own policy says what becomes of the tuple.

    state      the tuple passes      the tuple fails      a fix
    running    -> running            -> paused: Paused    -> running
    paused     -                     -                    -> retries (also behind ``Unguard``)
    retries    -> running: Resumed   -> paused: Paused    -> retries

>>> import pyarrow as pa
>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.messages import WorkerId
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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fries_nb.errors import OperatorError
from fries_nb.messages import Paused, Resumed
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.failures import row_as_json
from fries_nb.operators.instance import Instance
from fries_nb.operators.retry import NotUndoneError, is_retried


class PauseState:
    """Whether a worker is paused on a tuple.

    Attributes:
        paused: it takes no tuple until there is a fix.
    """

    def __init__(self, instances: Sequence[Instance], tell: Callable[[Paused | Resumed], None]) -> None:
        self.paused = False
        self._instances = instances
        self._worker = instances[0].worker
        self._pauses: bool = instances[0].operator.on_error == "pause"
        self._tell = tell
        self._retries = False
        self._guard = ""
        self._told = False  # the controller considers the worker paused until it is told otherwise

    def advance(self, execution: ChainExecutor, quota: int) -> int:
        """Have it process at most so many tuples; returns how many were taken from the frame.

        Raises:
            OperatorError: a function failed, its operator does not pause, and no guard is concerned.
        """
        if not (self._pauses or self._retries or is_retried(self._instances)):
            return execution.advance(quota)
        left = execution.remaining
        try:
            taken = execution.advance(1 if self._retries else quota)
        except OperatorError as error:
            failed = self._failed(error)
            if isinstance(error, NotUndoneError) or not (failed.guarded or self._pauses):
                raise
            self._stand(error, failed, execution)
            return left - execution.remaining
        if self._retries and taken:
            self._retries = False
            if self._told:
                self._told = False
                self._tell(Resumed(self._worker))
        return taken

    def _failed(self, error: OperatorError) -> Instance:
        """The operator that failed; or, if its change is under no guard, the nearest in front of it whose is."""
        names = [instance.worker.operator for instance in self._instances]
        position = names.index(error.operator) if error.operator in names else 0
        ahead = reversed(self._instances[: position + 1])
        return next((instance for instance in ahead if instance.guarded), self._instances[position])

    def _stand(self, error: OperatorError, failed: Instance, execution: ChainExecutor) -> None:
        self.paused, self._retries, self._guard = True, False, failed.guarded
        self._told = self._told or not self._guard
        row = execution.facing()
        shown = row_as_json(row.to_pylist()[0]) if row is not None else ""
        self._tell(Paused(failed.worker, str(error), error.details, shown, self._guard))

    def fixed(self) -> None:
        """The operator was switched in front of the tuple, which is tried again by what it runs now."""
        if self.paused:
            self.paused, self._retries = False, True

    def unguarded(self, change: str) -> None:
        """The guard of this change is over: a tuple that waited for a rollback is tried again without it."""
        if self._guard == change:
            self.fixed()
