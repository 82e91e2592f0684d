"""The user's own sources and sinks: mistakes are refused in one sentence that names the operator, and readers close."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.connectors.own_connectors import OwnSinkCopy, OwnSourceCopy
from fries_nb.connectors.source import splits_of
from fries_nb.connectors.worker_reader import WorkerReader, planned
from fries_nb.dataflow import DataflowBuilder, memory, rate
from fries_nb.dataflow.endpoints import described
from fries_nb.errors import ColumnError, DataflowError
from fries_nb.protocol.messages import WorkerId
from fries_nb.spark.shipping import pickled
from fries_nb.storage.flow_shape import difference, flow_of
from fries_nb.workloads.connector_examples import FeedReader, SqliteSink

ROW = pa.RecordBatch.from_pylist([{"n": 1}])


class Numbers(fn.Source):
    """Two endless splits of one row a read; a test replaces what it does wrongly."""

    def __init__(self, read: Any = lambda limit: ROW, after: Any = lambda row: fn.Position(row), **others: Any) -> None:
        self.reads, self.after, self.others = read, after, others
        self.rate = others.get("rate")

    def splits(self, count: int) -> Any:
        return self.others["splits"]() if "splits" in self.others else [fn.Split(0), fn.Split(1)]

    def open(self, split: fn.Split, position: fn.Position) -> Any:
        return self.others["open"](position) if "open" in self.others else Reader(self, position)


class Reader:
    """Reads as its source says; notes in a file that it was closed."""

    def __init__(self, source: Numbers, position: fn.Position) -> None:
        self.source, self.position = source, position

    def read(self, limit: int, now_ns: int) -> Any:
        batch = self.source.reads(limit)
        self.position = self.source.after(self.position.row + (batch.num_rows if hasattr(batch, "num_rows") else 0))
        return batch

    def close(self) -> None:
        with open(self.source.others["note"], "a") as note:
            note.write("closed\n")


def raising(*_: Any) -> Any:
    """As a connection that is refused."""
    raise ConnectionError("refused")


def reader_of(source: Any, rate: float | None = None) -> WorkerReader:
    """The reader of its only worker."""
    plan = planned(OwnSourceCopy("feed", cloudpickle.dumps(source)), 1, rate)
    return WorkerReader(plan.source, splits_of(plan.splits, 0, 1), plan.rate or float("inf"))


READ_BADLY: dict[str, tuple[Callable[[], Any], str]] = {
    "no splits": (lambda: Numbers(splits=list), r"splits\(\) of Numbers gave \[\]; expected a list of fn.Split, at le"),
    "splits that are none": (lambda: Numbers(splits=lambda: ["a"]), r"gave \['a'\]; expected a list of fn.Split"),
    "content": (lambda: Numbers(splits=lambda: [fn.Split(0, object())]), r"gave content <object.*; expected numb"),
    "splits that raise": (lambda: Numbers(splits=raising), r"splits\(\) of Numbers raised ConnectionError: refused"),
    "open that raises": (lambda: Numbers(open=raising), r"open\(\) of Numbers raised ConnectionError: refused"),
    "no reader": (lambda: Numbers(open=lambda position: None), r"gave a NoneType; expected a reader with read\(\) and"),
    "a batch": (lambda: Numbers(open=lambda position: ROW), r"gave a RecordBatch; expected a reader with"),
    "another position": (
        lambda: Numbers(open=lambda position: Reader(Numbers(), fn.Position(7))),
        r"gave a reader with position Position\(row=7, at=None\), but it was opened at Position\(row=0, at=None\)",
    ),
    "a list": (lambda: Numbers(lambda limit: [{"n": 1}]), r"read\(\) of Reader gave a list; expected a pyarrow"),
    "a table": (lambda: Numbers(lambda limit: pa.table({"n": [1]})), r"gave a Table; expected a pyarrow.RecordB"),
    "too many": (
        lambda: Numbers(lambda limit: pa.record_batch({"n": range(limit + 1)})),
        r"gave 4 rows; expected at most the 3 that it was asked for",
    ),
    "no position": (lambda: Numbers(after=lambda row: row), r"gave 1 rows from row 0 on and left position at 1"),
    "a position that stays": (lambda: Numbers(after=lambda row: fn.Position()), r"expected fn.Position\(1\), or Non"),
    "a position beyond checkpoints": (
        lambda: Numbers(after=lambda row: fn.Position(row, {1, 2} and threading)),
        r"gave Position.at <module 'threading'.*; expected numbers, text",
    ),
    "a reserved column": (
        lambda: Numbers(lambda limit: pa.record_batch({"_fries_due": [1]})), r"gave a column '_fries_due', a name of t",
    ),
    "a column twice": (
        lambda: Numbers(lambda limit: pa.RecordBatch.from_arrays([[1], [2]], names=["n", "n"])), r"several columns 'n'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", READ_BADLY)
def test_a_source_that_reads_badly_is_refused_in_a_sentence(mistake: str) -> None:
    """Which names the source, the method and the class."""
    make, said = READ_BADLY[mistake]
    with pytest.raises(fn.SourceError, match=f"^source 'feed': .*{said}"):
        reader_of(make()).read(0, 3)


def test_an_exception_of_a_reader_is_its_own() -> None:
    """The host reports it with its traceback."""
    with pytest.raises(ConnectionError):
        reader_of(Numbers(read=raising)).read(0, 3)


def test_each_reader_is_closed_once(tmp_path: Any) -> None:
    """That of a split that is given up at once, the others at the end; reading ends with it."""
    note = tmp_path / "note"
    reader = reader_of(Numbers(note=str(note)))
    assert reader.read(0, 3)[0] is not None
    assert not note.exists()
    reader.give_up([1], 0)
    assert note.read_text() == "closed\n"
    reader.close()
    reader.close()
    assert note.read_text() == "closed\n" * 2
    assert reader.exhausted


def test_a_reader_is_closed_at_the_end_of_its_split(tmp_path: Any) -> None:
    """By itself."""
    note = tmp_path / "note"
    reader = reader_of(Numbers(after=lambda row: None, note=str(note)))
    while not reader.exhausted:
        reader.read(0, 3)
    assert note.read_text() == "closed\n" * 2


def test_a_feed_is_disconnected(tmp_path: Any) -> None:
    """Closing its generator ends its ``with``."""
    note = tmp_path / "note"

    def feed(since: int) -> Any:
        try:
            while True:
                yield {"n": since}
        finally:
            note.write_text("disconnected")

    rows = feed(0)
    reader = FeedReader(rows, fn.Position())
    assert reader.read(3, 0) is not None
    reader.close()
    assert note.read_text() == "disconnected"
    assert rows.gi_frame is None


class Unfinished:
    """Lacks a method."""

    def splits(self, count: int) -> Any:
        return []

    def prepare(self, parts: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Numbers, r"source 'feed' got the class Numbers; an instance of it is meant, as in Numbers\(\); expected"),
        (Unfinished(), r"source 'feed' got a Unfinished without open\(\); expected replay\(path or DataFrame\), rat"),
        (memory(), r"source 'feed' got Memory\(\); expected replay\("),
        (3, r"source 'feed' got 3; expected replay\("),
    ],
)
def test_what_is_no_source_is_refused(given: Any, said: str) -> None:
    """By the call that declares it."""
    with pytest.raises(DataflowError, match=said):
        DataflowBuilder("flow").source("feed", given)


@pytest.mark.parametrize("bad", [0, -1, "fast", float("nan")])
def test_a_rate_that_is_none_is_refused(bad: Any) -> None:
    """Of an own source as of any other."""
    with pytest.raises(fn.SourceError, match="rate is a number of rows a second above 0"):
        DataflowBuilder("flow").source("feed", Numbers(rate=bad))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (SqliteSink, r"got the class SqliteSink; an instance of it is meant, as in SqliteSink\(\); expected a sink"),
        (Unfinished(), r"got a Unfinished without claim\(\), open\(\), commit\(\); expected a sink: memory\(\)"),
        (rate(1), r"got Rate\(.*\); expected a sink"),
    ],
)
def test_what_is_no_sink_is_refused(given: Any, said: str) -> None:
    """By the call that declares it, also for dead letters."""
    rows = DataflowBuilder("flow").source("feed", rate(1))
    with pytest.raises(DataflowError, match=f"sink 'out' {said}"):
        rows.sink("out", given)
    with pytest.raises(DataflowError, match="operator 'M' has on_error="):
        rows.map("M", lambda row: row, on_error=given)


def test_a_subclass_without_a_method_cannot_be_made() -> None:
    """Python says which."""

    class Half(fn.Source):
        def splits(self, count: int) -> Any:
            return []

    with pytest.raises(TypeError, match=r"Half.*open"):
        Half()  # type: ignore[abstract]


def test_what_cannot_be_pickled_is_refused() -> None:
    """With the operator's name."""
    with pytest.raises(DataflowError, match=r"the source of feed cannot be pickled: TypeError: .*lock.*; open file"):
        pickled("feed", Numbers(lock=threading.Lock()), "source")


class Scored(SqliteSink):
    """A test replaces what it does wrongly."""

    def prepare(self, parts: Any) -> None:
        raise RuntimeError("disk I/O error")


def sink_of(given: Any) -> OwnSinkCopy:
    """As the driver has it."""
    return OwnSinkCopy("out", cloudpickle.dumps(given))


def test_a_sink_that_raises_is_told_in_a_sentence(tmp_path: Any) -> None:
    """Which names the sink, the method and the class."""
    sink = sink_of(Scored(str(tmp_path), "scored", ("n",)))
    with pytest.raises(fn.SinkError, match=r"^sink 'out': claim\(\) of Scored raised OperationalError: unable to open"):
        sink.claim("flow", "r1")
    with pytest.raises(fn.SinkError, match=r"^sink 'out': prepare\(\) of Scored raised RuntimeError: disk I/O error"):
        sink.prepare(["a"])


class Writer:
    """Closes what no name is."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts

    def write(self, batch: pa.RecordBatch) -> None:
        """Nothing."""

    def close_part(self) -> Any:
        return self.parts


class Opens(SqliteSink):
    """Opens something else."""

    def open(self, writer_id: str) -> Any:
        return self.columns


@pytest.mark.parametrize("parts", ["part", None, (1,)])
def test_parts_are_names(parts: Any) -> None:
    """A name alone would be many."""
    writer = sink_of(Opens("", "", Writer(parts))).open(WorkerId("out", 0), 1)  # type: ignore[arg-type]
    with pytest.raises(fn.SinkError, match=r"^sink 'out': close_part\(\) of Writer gave .*; expected a tuple of the"):
        writer.close_part()


def test_a_writer_has_its_methods() -> None:
    """Or is refused when it is opened."""
    with pytest.raises(fn.SinkError, match=r"open\(\) of Opens gave a tuple; expected a writer with write\(\) and clo"):
        sink_of(Opens("", "", ())).open(WorkerId("out", 0), 1)


def test_a_column_that_changes_its_type_is_refused(tmp_path: Any) -> None:
    """As at any sink; columns of the runtime's own do not arrive."""
    sink = sink_of(SqliteSink(str(tmp_path / "out.db"), "scored", ("n", "_fries_due")))
    sink.claim("flow", "r1")
    writer = sink.open(WorkerId("out", 0), 1)
    writer.write(pa.record_batch({"n": [1], "_fries_due": [7]}))
    sink.commit(1, writer.close_part())
    assert sink.sink.rows() == [{"n": 1, "_fries_due": None}]  # type: ignore[attr-defined]
    with pytest.raises(ColumnError, match="column 'n' was int64 and is now string"):
        writer.write(pa.record_batch({"n": ["x"]}))


def test_a_second_run_adds_to_the_first_though_its_commits_have_the_same_numbers(tmp_path: Any) -> None:
    """Since the table knows the run of each part."""
    given = SqliteSink(str(tmp_path / "out.db"), "scored", ("n",))
    for index, run in enumerate(("r1", "r2")):
        sink = sink_of(given)
        sink.claim("flow", run)
        writer = sink.open(WorkerId("out", index), 1)
        writer.write(ROW)
        sink.commit(1, writer.close_part())
    assert given.rows() == [{"n": 1}, {"n": 1}]


class Other(Numbers):
    """Another class."""


def test_a_checkpoint_knows_a_source_by_its_class_and_a_sink_by_its_repr() -> None:
    """A resumed run may read from another address, and must write to the same table."""

    def graph(source: Any, sink: Any) -> Any:
        flow = DataflowBuilder("flow")
        flow.source("feed", source).sink("out", sink)
        return flow.graph()

    flow = flow_of(graph(Numbers(), SqliteSink("a.db", "t", ("n",))), "r1")
    assert difference(flow, graph(Numbers(rate=7.0), SqliteSink("a.db", "t", ("n",)))) == ""
    assert "feed: source by Numbers; this one has feed: source by Other" in difference(flow, graph(Other(), memory()))
    moved = difference(flow, graph(Numbers(), SqliteSink("b.db", "t", ("n",))))
    assert f"out: sink into SqliteSink(path='{os.path.abspath('a.db')}'" in moved
    assert f"this one has out: sink into SqliteSink(path='{os.path.abspath('b.db')}'" in moved
    assert described(Numbers()) == described(Numbers())


class Sparse(Numbers):
    """Twenty splits, of which the last two have rows."""

    def splits(self, count: int) -> Any:
        return [fn.Split(number, number >= 14) for number in range(count)]

    def open(self, split: fn.Split, position: fn.Position) -> Any:
        return Reader(self if split.content else Numbers(lambda limit: None), position)


def test_splits_without_rows_do_not_hold_up_those_that_have_some() -> None:
    """All are asked in turn until one gives rows; and no more rows come than are due."""
    reader = reader_of(Sparse())
    assert [reader.read(0, 3)[0].num_rows for _ in range(10)] == [1] * 10
    assert {split: at.row for split, at in reader.moved.items() if at is not None and at.row} == {15: 5}
    slow = reader_of(Numbers(lambda limit: pa.record_batch({"n": range(limit)}), rate=1), rate=1)
    assert slow.read(0, 100)[0].num_rows == 1
