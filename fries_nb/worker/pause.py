"""Pauses: a tuple on which an operator failed is kept until a fix of the operator processes it.

An operator whose ``on_error`` is "pause" is alone in its chain. When its function fails, earlier tuples have been
processed and the failed one has not: its rows did not leave, its state is unchanged, no count includes it (see
``error_policy``). The worker is *paused*: it takes no tuple, but still processes control; markers that arrive after the
tuple wait behind it. So a marker that switches the operator meanwhile came as an FCM, ahead of the tuple, and is a fix:
the worker *retries* that one tuple, and then continues with the rest of the frame.

A change under *guard* is rolled back if its configuration fails soon. Until the guard has ended a worker whose chain
has such a change pauses as well, whatever its ``on_error`` is, on the tuple as it arrived at the chain. The FCM of the
rollback arrives ahead of it; or ``Unguard``, and then the operator's error policy applies to the tuple.

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
        """Retry the tuple, since the operator was switched ahead of it."""
        if self.paused:
            self.paused, self._retries = False, True

    def unguarded(self, change: str) -> None:
        """Record that the guard of this change has ended; a tuple that waited for a rollback is retried without it."""
        if self._guard == change:
            self.fixed()
