"""A sink that keeps its rows in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from fries_nb.connectors.sink import Sink
from fries_nb.dataflow.columns import united
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId


class ListPort:
    """Keeps rows in parts; a closed part has a name, and its rows become output when it is committed.

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


class ListSink(Sink):
    """A sink in memory that survives simulated failures: all closed parts, and the commits.

    >>> sink = ListSink()
    >>> port = sink.open(WorkerId("out", 0), incarnation=1)
    >>> port.write(pa.RecordBatch.from_pydict({"x": [1]}))
    >>> parts = port.close_part()
    >>> sink.commit(1, parts)
    >>> parts, sink.rows_of(parts), sink.commits
    (('out[0].1-0',), [{'x': 1}], {1: ('out[0].1-0',)})

    Attributes:
        ports: all ports that were opened.
        commits: commit number to the parts that are output.
    """

    def __init__(self) -> None:
        self.ports: list[ListPort] = []
        self.commits: dict[int, tuple[str, ...]] = {}

    def claim(self, flow: str, run: str) -> None:
        """Nothing to claim: it belongs to one run; see ``Sink``."""

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> ListPort:
        """Open a port for a worker in an incarnation; see ``Sink``."""
        port = ListPort(f"{worker}{f'@{epoch}' if epoch > 1 else ''}.{incarnation}")
        self.ports.append(port)
        return port

    def prepare(self, parts: Sequence[str]) -> None:
        """Check that the parts are closed; see ``Sink``."""
        if gone := [part for part in parts if not any(part in port.parts for port in self.ports)]:
            raise SinkError(f"the parts {gone} have gone")

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Record the commit; see ``Sink``."""
        names = tuple(sorted(parts))
        if not names:
            return
        if self.commits.get(number, names) != names:
            raise SinkError(f"{number} is committed in memory with other files")
        granted = max(map(_incarnation, (*names, *(part for noted in self.commits.values() for part in noted))))
        if old := [part for part in names if _incarnation(part) < granted and number not in self.commits]:
            raise SinkError(f"{old[0]} is of incarnation {_incarnation(old[0])}, and the memory is at {granted}")
        self.prepare(names)
        self.commits[number] = names

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Remove later commits, and record this one; see ``Sink``."""
        for later in [other for other in self.commits if other > number]:
            del self.commits[later]
        self.commit(number, parts)

    def discard(self, incarnation: int, spared: Collection[str]) -> None:
        """Remove parts that are not committed; see ``Sink``."""
        kept = {*spared, *(part for parts in self.commits.values() for part in parts)}
        for port in self.ports:
            for part in [one for one in port.parts if one not in kept and _incarnation(one) <= incarnation]:
                del port.parts[part]

    def rows_of(self, parts: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of closed parts."""
        closed = {name: rows for port in self.ports for name, rows in port.parts.items()}
        return [row for part in parts for row in closed[part]]


def _incarnation(part: str) -> int:
    return int(part.rpartition(".")[2].partition("-")[0])


def _holding_both(columns: pa.Schema, new: pa.Schema) -> pa.Schema:
    """A schema for rows of both; the new one if there is none, since a list of dicts holds any value."""
    try:
        return united(columns, new)
    except pa.ArrowException:
        return new
