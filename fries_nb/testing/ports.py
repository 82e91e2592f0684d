"""A sink that keeps its rows in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import united


class ListPort:
    """Keeps rows in parts; a closed part has a name, and its rows count once it is committed.

    >>> port = ListPort("out[0]")
    >>> port.write(pa.RecordBatch.from_pydict({"x": [1]}))
    >>> port.close_part(), port.close_part(), port.parts
    (('out[0]-0',), (), {'out[0]-0': [{'x': 1}]})
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: dict[str, list[dict[str, Any]]] = {}
        self.columns = pa.schema([])
        self._open: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows, hidden columns included."""
        self._open.extend(batch.to_pylist())
        if batch.schema != self.columns:
            self.columns = _holding_both(self.columns, batch.schema)

    def close_part(self) -> tuple[str, ...]:
        """Close the part of the rows since the last call."""
        if not self._open:
            return ()
        part = f"{self.name}-{len(self.parts)}"
        self.parts[part], self._open = self._open, []
        return (part,)


def _holding_both(columns: pa.Schema, new: pa.Schema) -> pa.Schema:
    """A schema for rows of both, or the new one if there is none, since lists hold any value."""
    try:
        return united(columns, new)
    except pa.ArrowException:
        return new
