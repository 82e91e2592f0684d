"""What every sink promises, as checks that a test applies to each kind of sink (and to broken ones)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from fries_nb.connectors.sink import Sink, SinkWriter
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId

Rows = list[dict[str, Any]]


def pickled(sink: Sink) -> Sink:
    """As a host gets it."""
    copied: Sink = pickle.loads(pickle.dumps(sink))
    return copied


@dataclass(frozen=True)
class Target:
    """Where a sink writes.

    Attributes:
        sink: for the driver of another process that starts on the target.
        output: the rows that are output.
        ship: brings the sink to a host.
        takes_back: what was committed can be taken back.
    """

    sink: Callable[[], Sink]
    output: Callable[[], Rows]
    ship: Callable[[Sink], Sink] = pickled
    takes_back: bool = True

    def writer(self, index: int = 0, incarnation: int = 1) -> SinkWriter:
        """A worker's."""
        return self.ship(self.sink()).open(WorkerId("scored", index), incarnation)

    def closed(self, *rows: dict[str, Any], index: int = 0, incarnation: int = 1) -> tuple[str, ...]:
        """Parts with these rows, whose worker has died; once for each worker and incarnation."""
        writer = self.writer(index, incarnation)
        for row in rows:
            writer.write(pa.RecordBatch.from_pylist([row]))
        parts: tuple[str, ...] = pickle.loads(pickle.dumps(writer.close_part()))
        return parts

    def commit(self, number: int, parts: tuple[str, ...]) -> None:
        """As a driver does, and then dies."""
        sink = self.sink()
        sink.prepare(parts)
        sink.commit(number, parts)

    def seen(self) -> Rows:
        """The rows that are output, without the columns that they lack."""
        rows = [{name: value for name, value in row.items() if value is not None} for row in self.output()]
        return sorted(rows, key=str)


Check = Callable[[Target], None]


def check_unseen(target: Target) -> None:
    """Nothing is output before its commit, whatever was written, closed or prepared, and whoever starts meanwhile."""
    writer = target.writer()
    writer.write(pa.RecordBatch.from_pylist([{"n": 1}]))
    assert target.seen() == []
    parts = writer.close_part()
    assert target.seen() == []
    sink = target.sink()
    sink.prepare(parts)
    assert target.seen() == []
    sink.commit(1, parts)
    assert target.seen() == [{"n": 1}]


def check_parts(target: Target) -> None:
    """A part has what was written since the last one; nothing written is nothing to commit."""
    writer = target.writer()
    assert writer.close_part() == ()
    writer.write(pa.RecordBatch.from_pylist([{"n": 1}]))
    first = writer.close_part()
    assert writer.close_part() == ()
    writer.write(pa.RecordBatch.from_pylist([{"n": 2}, {"n": 3}]))
    second = writer.close_part()
    target.commit(1, first)
    assert target.seen() == [{"n": 1}]
    target.commit(2, second)
    target.commit(3, ())
    assert target.seen() == [{"n": 1}, {"n": 2}, {"n": 3}]


def check_names(target: Target) -> None:
    """Parts of different workers and attempts are told apart by their names."""
    names = [target.closed({"n": 1}, index=index, incarnation=attempt) for index in (0, 1) for attempt in (1, 2)]
    assert len(set(sum(names, ()))) == 4


def check_idempotent(target: Target) -> None:
    """Committing twice is committing once: a driver may not know how far the one before it came."""
    first, second = target.closed({"n": 1}), target.closed({"n": 2}, index=1)
    for number, parts in [(1, first), (1, first), (2, second), (1, first), (2, second)]:
        target.commit(number, parts)
        target.sink().commit(number, parts)
        assert {"n": number} in target.seen()
    assert target.seen() == [{"n": 1}, {"n": 2}]


def check_whole(target: Target) -> None:
    """A commit takes the parts of all workers, or none if one of them has gone."""
    parts = target.closed({"n": 1}) + target.closed({"n": 2}, index=1)
    gone = tuple(part.replace("1", "7") for part in parts[:1])
    with pytest.raises(SinkError, match="gone"):
        target.commit(1, parts[1:] + gone)
    assert target.seen() == []
    target.commit(1, parts)
    assert target.seen() == [{"n": 1}, {"n": 2}]


def check_one_set(target: Target) -> None:
    """Other parts under the same number are refused, and what is committed stays."""
    target.commit(1, target.closed({"n": 1}))
    with pytest.raises(SinkError, match=r"is committed in .* with other (files|parts)"):
        target.commit(1, target.closed({"n": 2}, index=1))
    assert target.seen() == [{"n": 1}]


def check_incarnations(target: Target) -> None:
    """Parts of an older incarnation are refused, by themselves and together with those of the present one."""
    late = target.closed({"n": 99}, incarnation=1)
    target.commit(1, target.closed({"n": 1}, incarnation=2))
    for parts in (late, late + target.closed({"n": 2}, index=1, incarnation=2)):
        with pytest.raises(SinkError, match=r"is of incarnation 1, and .* is at 2"):
            target.commit(2, parts)
    assert target.seen() == [{"n": 1}]


def check_killed_and_resumed(target: Target) -> None:
    """What was prepared and is on record is committed by the next attempt, however often that is killed as well."""
    parts = target.closed({"n": 1})
    target.sink().prepare(parts)
    for _ in range(3):
        target.sink().recover(1, parts)
        assert target.seen() == [{"n": 1}]
    target.commit(2, target.closed({"n": 2}, incarnation=2))
    assert target.seen() == [{"n": 1}, {"n": 2}]


def check_killed_and_forgotten(target: Target) -> None:
    """What was prepared and is on no record never becomes output; its rows come anew."""
    lost = target.closed({"n": 1})
    target.sink().prepare(lost)
    target.sink().recover(0, ())
    target.commit(1, target.closed({"n": 1}, incarnation=2))
    with pytest.raises(SinkError, match="is of incarnation 1"):
        target.commit(2, lost)
    target.sink().discard(2, ())
    assert target.seen() == [{"n": 1}]


def check_taking_back(target: Target) -> None:
    """A run that goes on from an older checkpoint takes back what was committed since, or is refused."""
    first = target.closed({"n": 1})
    target.commit(1, first)
    target.commit(2, target.closed({"n": 2}, index=1))
    if not target.takes_back:
        with pytest.raises(SinkError, match="would add them again"):
            target.sink().recover(1, first)
        return
    target.sink().recover(1, first)
    assert target.seen() == [{"n": 1}]
    target.commit(2, target.closed({"n": 2}, incarnation=2))
    assert target.seen() == [{"n": 1}, {"n": 2}]


def check_discarding(target: Target) -> None:
    """At the end what is uncommitted goes, but for what may be on a record, or is of a later attempt."""
    committed, left, doubtful, later = (target.closed({"n": n}, index=n, incarnation=1 + n // 3) for n in range(4))
    target.commit(1, committed)
    target.sink().discard(1, doubtful)
    for parts in (doubtful, later):
        target.sink().prepare(parts)
    with pytest.raises(SinkError, match="gone"):
        target.sink().prepare(left)
    assert target.seen() == [{"n": 0}]


def check_columns(target: Target) -> None:
    """Columns may be added, within one commit and from one to the next, and the writer says which there are."""
    writer = target.writer()
    assert writer.columns.names == []
    writer.write(pa.RecordBatch.from_pylist([{"n": 1}]))
    before = writer.columns
    writer.write(pa.RecordBatch.from_pylist([{"n": 2}]))
    assert writer.columns is before, "the same object as long as there are no new ones"
    writer.write(pa.RecordBatch.from_pylist([{"n": 2, "name": "x"}]))
    assert set(writer.columns.names) == {"n", "name"}
    target.commit(1, target.closed({"n": 1}, {"n": 2, "name": "x"}))
    target.commit(2, target.closed({"n": 3, "name": "y", "score": 0.5}, index=1))
    target.commit(3, target.closed({"n": 4}, index=2))
    assert target.seen() == [{"n": 1}, {"n": 2, "name": "x"}, {"n": 3, "name": "y", "score": 0.5}, {"n": 4}]


CHECKS: tuple[Check, ...] = (
    check_unseen, check_parts, check_names, check_idempotent, check_whole, check_one_set, check_incarnations,
    check_killed_and_resumed, check_killed_and_forgotten, check_taking_back, check_discarding, check_columns,
)  # fmt: skip
