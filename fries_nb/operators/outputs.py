"""What leaves a chain by one branch: rows, and the batches that rows in front of them have become.

Python rows are heavy. Where one tuple may become many, so many of them at most are kept, whatever the tuple becomes.
A tuple that may have to leave nothing behind has its rows and batches apart from those in front of it (a savepoint, to
a database): they join them as a whole, or are dropped, with the types of columns that were learnt of them.

>>> from fries_nb.operators.output_batches import assemble
>>> from fries_nb.operators.rows import Columns, Reads
>>> columns = Columns(pa.RecordBatch.from_pydict({"n": [1, 2]}), Reads())
>>> output = Output(lambda rows, types: assemble(rows, columns, types), lambda types: None)
>>> apart = Apart(output)
>>> for row in columns.rows():
...     apart.append(row | {"half": row["n"] / 2})
...     apart.join() if row["n"] == 1 else apart.drop()
>>> output.pack()
>>> [batch.to_pydict() for batch in output.take()]
[{'n': [1], 'half': [0.5]}]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from fries_nb.operators.rows import Row

MOST_ROWS = 4096
"""So many Python rows that one tuple has become are kept, before they become a batch, which takes a tenth."""

Types = dict[str, pa.DataType]


class Output(list[Row]):
    """The rows that no batch was made of yet.

    Args:
        assembled: makes a batch of rows, and notes the types of the columns.
        learn: told the types when a batch has been made that will leave; raises an ``OperatorError`` if it must not.

    Attributes:
        batches: made of the rows in front of these.
        types: of the columns that were written to these batches, and before.
    """

    def __init__(self, assembled: Callable[[Sequence[Row], Types], pa.RecordBatch], learn: Callable[[Types], None]):
        super().__init__()
        self.batches: list[pa.RecordBatch] = []
        self.types: Types = {}
        self.assembled = assembled
        self.learn = learn

    def pack(self) -> None:
        """Make a batch of the rows.

        Raises:
            DeclarationError: they make no columns; they stay.
        """
        if self:
            batch = self.assembled(self, self.types)
            self.learn(self.types)
            self.batches.append(batch)
            self.clear()

    def take(self) -> list[pa.RecordBatch]:
        """The batches; from now on there are none."""
        taken, self.batches = self.batches, []
        return taken


class ManyOutputs(Output):
    """The output of a chain in which one tuple may become many."""

    def append(self, row: Row) -> None:
        """Add a row, and pack all of them when there are too many."""
        list.append(self, row)
        if len(self) >= MOST_ROWS:
            self.pack()


class Apart(ManyOutputs):
    """What one tuple becomes, until it is known whether it has failed."""

    def __init__(self, front: Output) -> None:
        super().__init__(front.assembled, lambda types: None)
        self._front = front

    def begin(self) -> None:
        """The next tuple comes; those in front of it may be many enough."""
        self.drop()
        if len(self._front) >= MOST_ROWS:
            self._front.pack()

    def pack(self) -> None:
        """Likewise; what is in front becomes a batch of its own first, with the types that it has by itself."""
        if not self.batches:
            self._front.pack()
            self.types = dict(self._front.types)
        super().pack()

    def join(self) -> None:
        """The tuple has not failed: all of it is behind what is in front."""
        if self.batches:
            self._front.learn(self.types)
            self._front.types = self.types
            self._front.batches += self.take()
        self._front.extend(self)
        self.clear()

    def drop(self) -> None:
        """The tuple has failed, and has left nothing."""
        self.batches.clear()
        self.clear()
