"""Executions of operators that call no function: batches pass as they are, at a sink to its port."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from fries_nb.messages import TRANSACTION
from fries_nb.operators.instance import Instance, SinkPort
from fries_nb.operators.outputs import Results
from fries_nb.operators.recent import Recent


class PassExecutor:
    """Operators that only pass batches on: sources, unions, replicates. A slice is the whole frame."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._batch: pa.RecordBatch | None = None
        self._results: Results = []

    def rebuild(self) -> None:
        """Nothing here depends on a function."""

    reads: Sequence[str] = ()

    def samples(self, position: int) -> Sequence[Recent]:
        return ()

    def facing(self) -> pa.RecordBatch | None:
        return None

    def load(self, sender: str, batch: pa.RecordBatch) -> None:
        self._batch = batch

    @property
    def remaining(self) -> int:
        return 0 if self._batch is None else self._batch.num_rows

    def advance(self, quota: int) -> int:
        if self._batch is None:
            return 0
        batch, self._batch = self._batch, None
        self._instance.processed += batch.num_rows
        if self._instance.audit:
            self._instance.log.runs_by(None).extend(batch.column(TRANSACTION).to_pylist())
        self._take(batch)
        return int(batch.num_rows)

    def _take(self, batch: pa.RecordBatch) -> None:
        self._results.append((0, batch))

    def results(self) -> Results:
        taken, self._results = self._results, []
        return taken


class SinkExecutor(PassExecutor):
    """A sink: batches go to the port, their latencies to the meter."""

    def __init__(self, instance: Instance, port: SinkPort, measure: Callable[[pa.RecordBatch], None]) -> None:
        super().__init__(instance)
        self._port = port
        self._measure = measure

    def _take(self, batch: pa.RecordBatch) -> None:
        self._port.write(batch)
        self._measure(batch)
