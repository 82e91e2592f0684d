"""Every sink keeps its promises, and a sink that breaks one is caught.

A new kind of sink is one entry of ``KINDS``. What belongs to files alone is in ``test_sinks``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sink_contract
from deltalake import DeltaTable, Field, Schema
from sink_contract import CHECKS, Check, Target

from fries_nb.connectors.parquet_sink import DeltaSink, ParquetSink, TableSink
from fries_nb.connectors.sink import Sink
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.store import ListPort, ListSink
from fries_nb.storage import manifest
from fries_nb.storage.checkpoint_store import SINKS

RUN = "r1"


class Entry:
    """A table's entry in a catalogue, which notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self) -> None:
        """Whether the table is there."""
        self.asked.append("check")

    def refresh(self) -> None:
        """Look at its files again."""
        self.asked.append("refresh")

    def __reduce__(self) -> Any:
        raise TypeError("hosts have no catalogue")


def files(kind: type[ParquetSink], path: Path) -> Target:
    """A directory of files that a flow has claimed; each start claims it again."""

    def sink() -> Sink:
        one = kind(str(path))
        one.claim("flow", RUN)
        return one

    def output() -> list[dict[str, Any]]:
        return [row for file in manifest.committed(str(path), RUN) for row in pq.read_table(file).to_pylist()]

    sink()
    return Target(sink, output, takes_back=kind is ParquetSink)


def memory_of(sink: ListSink) -> Target:
    """Lists, which outlive those that write."""

    def output() -> list[dict[str, Any]]:
        return [row for parts in sink.commits.values() for row in sink.rows_of(parts)]

    return Target(lambda: sink, output, ship=lambda one: one)


def catalogue_table_of(path: Path) -> Target:
    """A table of Spark's catalogue, which holds a row of another origin."""
    path.mkdir()
    columns = pa.schema({"n": pa.int64(), "name": pa.string(), "score": pa.float64()})
    pq.write_table(pa.Table.from_pylist([{"n": 0}], columns), path / "before.parquet")

    def sink() -> Sink:
        one = TableSink("t", str(path), columns, Entry())
        one.claim("flow", RUN)
        return one

    def output() -> list[dict[str, Any]]:
        rows = [row for file in path.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
        rows.remove({"n": 0, "name": None, "score": None})
        return rows

    sink()
    return Target(sink, output)


def partitions_of(path: Path) -> Target:
    """A Delta Lake table with a partition for each number, as deltalake reads it."""
    columns = [Field("n", "long"), Field("name", "string"), Field("score", "double")]
    DeltaTable.create(str(path), Schema(columns), partition_by=["n"])

    def sink() -> Sink:
        one = DeltaSink(str(path), ["n"])
        one.claim("flow", RUN)
        return one

    sink()
    return Target(sink, lambda: DeltaTable(str(path)).to_pyarrow_table().to_pylist(), takes_back=False)


KINDS: dict[str, Callable[[Path], Target]] = {
    "parquet": lambda path: files(ParquetSink, path / "out"),
    "memory": lambda path: files(ParquetSink, path / SINKS / "scored"),
    "delta": lambda path: files(DeltaSink, path / "out"),
    "partitions": lambda path: partitions_of(path / "out"),
    "catalogue table": lambda path: catalogue_table_of(path / "out"),
    "list": lambda path: memory_of(ListSink()),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sink_keeps_its_promises(kind: str, check: Check, tmp_path: Path) -> None:
    """Each kind, each promise."""
    check(KINDS[kind](tmp_path))


@pytest.mark.parametrize("kind", ["parquet", "memory", "delta", "catalogue table"])
def test_a_column_that_changes_its_kind_is_refused(kind: str, tmp_path: Path) -> None:
    """At the sink worker or in front of the commit; what is committed stays, and others can be committed."""
    target = KINDS[kind](tmp_path)
    target.commit(1, target.closed({"n": 1}))
    with pytest.raises(SinkError, match="column 'n'"):
        target.commit(2, target.closed({"n": "x"}, index=1))
    target.commit(2, target.closed({"n": 2}, index=2))
    assert target.seen() == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("kind", ["parquet", "memory", "delta", "partitions"])
@pytest.mark.parametrize("commits", [1, 2])
def test_workers_learn_the_same_column_in_several_ways(kind: str, commits: int, tmp_path: Path) -> None:
    """In another order, or within its family, it is the same one; what would be read as something else is refused."""
    refused = ("beside 'T|only in case", "not exact as floats|does not fit|now double|is double")
    cases: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
        "order": ({"n": 1, "tax": 1, "fee": 2}, {"n": 2, "fee": 3, "tax": 4}, ""),
        "wider": ({"n": 1, "tax": 0.5}, {"n": 2, "tax": 2}, ""),
        "twins": ({"n": 1, "tax": 1}, {"n": 2, "Tax": 2}, refused[0]),
        "inexact": ({"n": 1, "tax": 2**53 + 1}, {"n": 2, "tax": 0.5}, refused[1]),
        "inexact again": ({"n": 1, "tax": 0.5}, {"n": 2, "tax": -(2**53) - 1}, refused[1]),
        "deep": ({"n": 1, "of": {"tax": [2**53 + 1]}}, {"n": 2, "of": {"tax": [0.5]}}, refused[1] + "|now struct"),
    }
    for case, (one, other, error) in cases.items():
        place = tmp_path / case
        place.mkdir()
        target = KINDS[kind](place)
        first, second = target.closed(one), target.closed(other, index=1)
        if commits == 2:
            target.commit(1, first)
        if not error:
            target.commit(2, second if commits == 2 else first + second)
            assert target.seen() == [one, other], case
            continue
        with pytest.raises(SinkError, match=error):
            target.commit(2, second if commits == 2 else first + second)
        assert target.seen() == ([one] if commits == 2 else []), case


def test_a_commit_refreshes_a_table_once(tmp_path: Path) -> None:
    """Spark lists all its files then; in front of the record it is asked only whether the table is there."""
    target = KINDS["catalogue table"](tmp_path)
    sink, parts = target.sink(), target.closed({"n": 1})
    assert isinstance(sink, TableSink)
    sink.prepare(parts)
    sink.commit(1, parts)
    assert sink._catalogued.asked == ["check", "refresh"]


def test_what_is_discarded_leaves_no_files(tmp_path: Path) -> None:
    """Parts that are on no record take no room."""
    target = KINDS["parquet"](tmp_path)
    target.closed({"n": 1})
    target.sink().discard(1, ())
    assert not list(tmp_path.rglob("_fries/pending/*.parquet"))


class BrokenPort(ListPort):
    """Closes a part without its rows, or twice."""

    spoil = ""
    last: tuple[str, ...] = ()

    def close_part(self) -> tuple[str, ...]:
        """Close what was written since the last call."""
        if self.spoil == "what was closed is closed again" and not self._open:
            return self.last
        if self.spoil == "a part keeps growing":
            rows = [row for part in self.parts.values() for row in part]
            self._open = rows + self._open if self._open else []
        self.last = super().close_part()
        return self.last


class Broken(ListSink):
    """Lists that keep a promise less."""

    def __init__(self, spoil: str) -> None:
        super().__init__()
        self.spoil = spoil

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> ListPort:
        """A port that does its part of it."""
        name = f"{worker}.{1 if self.spoil == 'attempts share names' else incarnation}"
        port = BrokenPort(name)
        port.spoil = self.spoil
        self.ports.append(port)
        return port

    def prepare(self, parts: Sequence[str]) -> None:
        """Some commit at once, and some look at nothing."""
        if self.spoil == "what is prepared is output":
            self.commits[0] = tuple(parts)
        if self.spoil != "parts that have gone are passed over":
            super().prepare(parts)

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Some forget, and some remember too much."""
        if self.spoil == "a commit is repeated":
            self.commits[len(self.commits) + 1] = tuple(parts)
        elif self.spoil == "a commit is replaced":
            self.commits[number] = tuple(parts)
        elif self.spoil == "a part is forgotten":
            super().commit(number, parts[:1])
        elif self.spoil == "a host of an old attempt counts" and number not in self.commits:
            kept, self.commits = self.commits, {}
            for part in parts:
                super().commit(number, (part,))
                del self.commits[number]
            self.commits = {**kept, number: tuple(parts)}
        elif self.spoil == "parts that have gone are passed over":
            there = [part for part in parts if any(part in port.parts for port in self.ports)]
            super().commit(number, there)
        else:
            super().commit(number, parts)

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Some leave things as they are."""
        if self.spoil == "what was prepared is forgotten":
            self.discard(10, ())
        if self.spoil == "later commits stay":
            self.commit(number, parts)
        else:
            super().recover(number, parts)

    def discard(self, incarnation: int, spared: Any) -> None:
        """Some delete too much, or nothing."""
        if self.spoil == "what may be on record is deleted":
            super().discard(incarnation, ())
        elif self.spoil == "later attempts are deleted":
            super().discard(10, spared)
        elif self.spoil != "nothing is deleted":
            super().discard(incarnation, spared)


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        ("what is prepared is output", sink_contract.check_unseen),
        ("what was closed is closed again", sink_contract.check_parts),
        ("a part keeps growing", sink_contract.check_parts),
        ("attempts share names", sink_contract.check_names),
        ("a commit is repeated", sink_contract.check_idempotent),
        ("a part is forgotten", sink_contract.check_whole),
        ("parts that have gone are passed over", sink_contract.check_whole),
        ("a commit is replaced", sink_contract.check_one_set),
        ("a host of an old attempt counts", sink_contract.check_incarnations),
        ("a host of an old attempt counts", sink_contract.check_killed_and_forgotten),
        ("what was prepared is forgotten", sink_contract.check_killed_and_resumed),
        ("later commits stay", sink_contract.check_taking_back),
        ("what may be on record is deleted", sink_contract.check_discarding),
        ("later attempts are deleted", sink_contract.check_discarding),
        ("nothing is deleted", sink_contract.check_discarding),
    ],
)
def test_a_broken_sink_is_caught(spoil: str, check: Check) -> None:
    """By its check."""
    check(memory_of(Broken("")))
    with pytest.raises((AssertionError, SinkError, pytest.fail.Exception)):
        check(memory_of(Broken(spoil)))
