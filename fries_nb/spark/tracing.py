"""The audit trace as the driver keeps it: by worker, so that it can be cut back to a checkpoint.

What happened behind the checkpoint from which a run starts again has not happened: it will happen anew. At the marker
of a checkpoint each worker says ``Done`` behind all its records so far, and their number is noted.

>>> from fries_nb.trace import Ran
>>> trace, worker = Trace(), WorkerId("FM", 0)
>>> trace.add(worker, [Ran("t1", "FM")])
>>> trace.note(worker, epoch=1)
>>> trace.add(worker, [Ran("t2", "FM")])
>>> trace.cut(epoch=1, ended=lambda worker: False)
>>> trace.records()
[Ran(transaction='t1', operator='FM', worker=0)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fries_nb.messages import WorkerId
from fries_nb.spark.packing import Packed


class Trace:
    """Records of all workers, each worker's in its order."""

    def __init__(self) -> None:
        self._records: dict[WorkerId, list[Packed]] = {}
        self._noted: dict[int, dict[WorkerId, int]] = {}

    def add(self, worker: WorkerId, records: Iterable[Packed]) -> None:
        """The next records of a worker."""
        self._records.setdefault(worker, []).extend(records)

    def note(self, worker: WorkerId, epoch: int) -> None:
        """What the worker has said by now lies in front of the marker of this checkpoint."""
        self._noted.setdefault(epoch, {})[worker] = len(self._records.get(worker, ()))

    def cut(self, epoch: int, ended: Callable[[WorkerId], bool]) -> None:
        """Forget what lies behind the checkpoint of this epoch (0: everything).

        Who had ``ended`` in front of its marker keeps all: it does nothing when the run starts again.
        """
        noted = self._noted.get(epoch, {})
        for worker, records in self._records.items():
            if worker in noted or not ended(worker):
                del records[noted.get(worker, 0) :]
        self._noted = {epoch: noted}

    def forget(self, epoch: int) -> None:
        """Nobody will cut back to a checkpoint older than this."""
        self._noted = {known: noted for known, noted in self._noted.items() if known >= epoch}

    def records(self) -> list[Packed]:
        """All records; safe from another thread than that which adds."""
        return [record for records in list(self._records.values()) for record in list(records)]
