"""A tuple on which an operator failed is kept, until a fix of the operator gets past it.

An operator whose ``on_error`` is "pause" runs alone in its chain. When its function fails, the tuples in front have
been taken and the failed one has not: its rows did not leave, its state is as before, no count includes it (see
``guarding`` and ``chaining``). The worker *stands*: it takes no tuple, while it hears control as ever; markers that
came behind the tuple wait behind it. So a marker that switches the operator meanwhile came as an FCM, in front of the
tuple, and is a fix: the worker *retries* that one tuple; past it, it goes on with the rest of the frame.

    state      the tuple passes      the tuple fails      a fix
    running    -> running            -> stands: Paused    -> running
    stands     -                     -                    -> retries
    retries    -> running: Resumed   -> stands: Paused    -> retries

>>> import pyarrow as pa
>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.messages import WorkerId
>>> from fries_nb.worker.chaining import Attention, execution_of
>>> instance = Instance(WorkerId("R", 0), Operator("R", on_error="pause"), lambda row: {"y": 1 / row["x"]}, audit=False)
>>> execution = execution_of([instance], Attention(), 1, "", None, print)
>>> execution.load("S", pa.RecordBatch.from_pydict({"x": [2, 0, 4]}))
>>> standing = Standing(instance, lambda told: print(type(told).__name__, getattr(told, "row", "")))
>>> standing.advance(execution, 100), standing.stands, execution.remaining
Paused {"x": 0}
(1, True, 2)
>>> instance.function = lambda row: {"y": 1.0}
>>> execution.rebuild()
>>> standing.fixed()
>>> standing.advance(execution, 100), standing.advance(execution, 100), standing.stands
Resumed
(1, 1, False)
"""

from __future__ import annotations

from collections.abc import Callable

from fries_nb.errors import OperatorError
from fries_nb.messages import Paused, Resumed
from fries_nb.worker.chaining import Execution
from fries_nb.worker.instance import Instance
from fries_nb.worker.shown import row_as_json


class Standing:
    """Whether a worker stands in front of a tuple.

    Attributes:
        stands: it takes no tuple until there is a fix.
    """

    def __init__(self, instance: Instance, tell: Callable[[Paused | Resumed], None]) -> None:
        self.stands = False
        self._worker = instance.worker
        self._pauses: bool = instance.operator.on_error == "pause"
        self._tell = tell
        self._retries = False

    def advance(self, execution: Execution, quota: int) -> int:
        """Have it process at most so many tuples; returns how many were taken from the frame.

        Raises:
            OperatorError: a function failed, and its operator does not pause.
        """
        if not self._pauses:
            return execution.advance(quota)
        left = execution.remaining
        try:
            taken = execution.advance(1 if self._retries else quota)
        except OperatorError as error:
            self._stand(error, execution)
            return left - execution.remaining
        if self._retries and taken:
            self._retries = False
            self._tell(Resumed(self._worker))
        return taken

    def _stand(self, error: OperatorError, execution: Execution) -> None:
        self.stands, self._retries = True, False
        row = execution.facing()
        self._tell(
            Paused(self._worker, str(error), error.details, row_as_json(row.to_pylist()[0]) if row is not None else "")
        )

    def fixed(self) -> None:
        """The operator was switched in front of the tuple, which is tried again by what it runs now."""
        if self.stands:
            self.stands, self._retries = False, True
