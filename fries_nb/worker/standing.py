"""A tuple on which an operator failed is kept, until a fix of the operator gets past it.

An operator whose ``on_error`` is "pause" runs alone in its chain. When its function fails, the tuples in front have
been taken and the failed one has not: its rows did not leave, its state is as before, no count includes it. The worker
*stands*: it takes no tuple, while it hears control as ever. A change of just this operator makes it *retry* that one
tuple; past it, it goes on with the rest of the frame, or it stands again.

    state      the tuple passes   the tuple fails   fix
    running    -> running         -> stands: Paused  (any switch)
    stands     -                  -                 -> retries
    retries    -> running: Resumed  -> stands: Paused  -

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.messages import WorkerId
>>> def reciprocal(row):
...     return row | {"y": 1 / row["x"]}
>>> instance = Instance(WorkerId("R", 0), Operator("R", on_error=PAUSE), reciprocal, audit=False)
>>> execution = Retrying([instance], Attention(), 1, "", lambda paused: print(paused.row, paused.error))
>>> execution.load("S", pa.RecordBatch.from_pydict({"x": [2, 0, 4]}))
>>> execution.advance(100), execution.stands, execution.remaining
{"x": 0} R failed on a tuple: ZeroDivisionError: division by zero
(1, True, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from fries_nb.errors import OperatorError
from fries_nb.messages import HIDDEN, Paused, Resumed
from fries_nb.worker.chaining import Attention, Execution, RowExecution, execution_of
from fries_nb.worker.instance import Instance, SinkPort
from fries_nb.worker.rows import Row
from fries_nb.worker.shown import row_as_json

PAUSE = "pause"
"""The ``on_error`` of an operator that waits for a fix."""


class Retrying(RowExecution):
    """An operator's execution that stands in front of a tuple it fails on, instead of failing the run.

    Attributes:
        stands: it takes no tuple until ``retry``.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        attention: Attention,
        branches: int,
        left: str,
        tell: Callable[[Paused | Resumed], None],
    ) -> None:
        self.stands = False
        self._retries = False
        self._tell = tell
        self._in_hand: Row
        super().__init__(instances, attention, branches, left)

    def rebuild(self) -> None:
        super().rebuild()
        step = self._first

        def noted(row: Row) -> None:
            self._in_hand = row
            step(row)

        self._first = noted

    def advance(self, quota: int) -> int:
        try:
            taken = super().advance(1 if self._retries else quota)
        except OperatorError as error:
            return self._stand(error)
        if self._retries and taken:
            self._retries = False
            self._tell(Resumed(self._instances[0].worker))
        return taken

    def _stand(self, error: OperatorError) -> int:
        """Count the tuples in front of the one in hand, and stop there."""
        instance = self._instances[0]
        taken = self._in_hand.index - self._position
        self._position += taken
        instance.processed += taken
        instance.take_back()
        self.stands = True
        batch = self._in_hand.columns.batch.slice(self._position, 1)
        values = {name: value for name, value in batch.to_pylist()[0].items() if name not in HIDDEN}
        self._tell(Paused(instance.worker, str(error), error.details, row_as_json(values)))
        return taken

    def retry(self) -> None:
        """Try the tuple again by the present function, as if nobody had touched it."""
        self.load(self._sender, self._in_hand.columns.batch.slice(self._position))
        self.stands, self._retries = False, True


def execution_for(
    instances: Sequence[Instance],
    attention: Attention,
    branches: int,
    left: str,
    port: SinkPort | None,
    measure: Callable[[pa.RecordBatch], None],
    tell: Callable[[Paused | Resumed], None],
) -> Execution:
    """The way in which this chain runs, standing where its operator asks for that; see ``execution_of``."""
    execution = execution_of(instances, attention, branches, left, port, measure)
    if instances[0].operator.on_error == PAUSE and isinstance(execution, RowExecution):
        return Retrying(instances, attention, branches, left, tell)
    return execution
