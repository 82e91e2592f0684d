"""Odd data and odd names: taken as they are, or refused in a sentence at their operator."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_setting import rate_reader, span_reader

from fries_nb.connectors.parquet_sink import PartWriter
from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.row_groups import plan_replay
from fries_nb.connectors.source import SPLITS_PER_SOURCE
from fries_nb.connectors.worker_reader import open_reader, planned
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.endpoints import memory
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, Partitioning
from fries_nb.dataflow.operators import batched
from fries_nb.errors import OperatorError, SinkError, SourceError
from fries_nb.operators.conversion import to_arrow
from fries_nb.operators.executors import InterruptFlag, executor_of
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import bins_of_values
from fries_nb.protocol.topology import Topology, wire
from fries_nb.protocol.trace import identity_of
from fries_nb.worker.events import Grant
from fries_nb.worker.saving import saved
from fries_nb.worker.snapshot import restore
from fries_nb.worker.worker import Worker

Row = dict[str, Any]
NAN = float("nan")
OTHER_NAN = float(np.array([0xFFF8000000000001], dtype=np.uint64).view(np.float64)[0])

# ---- keys


class Count:
    """Counts the tuples of a key."""

    def process(self, row: Row, state: Row) -> Row:
        state["n"] = state.get("n", 0) + 1
        return row | {"n": state["n"]}


def counting(kind: Kind = Kind.MAP, **more: Any) -> Instance:
    """An operator that is keyed by ``k``."""
    function = Count() if kind is Kind.MAP else None
    return Instance(WorkerId("C", 0), Operator("C", kind=kind, function=function, key=("k",), **more), function, False)


def outcome(instance: Instance, *batches: pa.RecordBatch) -> list[Row]:
    """What leaves, without hidden columns."""
    running = executor_of([instance], InterruptFlag(), 1, "")
    rows: list[Row] = []
    for batch in batches:
        running.load("S", batch)
        running.advance(100)
        rows += [row for _, out in running.results() for row in out.to_pylist()]
    return [{name: value for name, value in row.items() if name != DUE} for row in rows]


def keyed(*keys: Any) -> pa.RecordBatch:
    """Tuples with these keys."""
    return pa.RecordBatch.from_pydict({"k": list(keys), DUE: list(range(len(keys)))})


@pytest.mark.parametrize("policy", ["fail", "pause"])
def test_nan_is_one_key(policy: str) -> None:
    """In one batch, in the next one, and behind a checkpoint."""
    first, second = counting(on_error=policy), counting(on_error=policy)
    before = outcome(first, keyed(NAN, 1.0, OTHER_NAN), keyed(NAN))
    restore(second, saved(first), ())
    after = outcome(second, keyed(OTHER_NAN, NAN))
    assert [row["n"] for row in before + after] == [1, 1, 2, 3, 4, 5]
    assert len(second.state) == 2


def test_zeros_of_either_sign_are_one_key() -> None:
    """As they are to a dict, and to the hash by which tuples are partitioned."""
    instance = counting()
    assert [row["n"] for row in outcome(instance, keyed(0.0, -0.0), keyed(-0.0))] == [1, 2, 3]
    assert len(set(bins_of_values([pa.array([0.0, -0.0])]).tolist())) == 1
    assert len(instance.state.bins()) == 1


def test_dedup_knows_nan() -> None:
    """Once, whatever its bits are."""
    assert len(outcome(counting(Kind.DEDUP), keyed(NAN, OTHER_NAN, 1.0, NAN))) == 2


def test_tuples_with_nan_go_to_one_worker() -> None:
    """All NaN have one bin, alone and beside other keys."""
    column = pa.array([NAN, OTHER_NAN, -NAN])
    assert len(set(bins_of_values([column]).tolist())) == 1
    assert len(set(bins_of_values([column, pa.array([1, 1, 1])]).tolist())) == 1


KEYS = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.booleans(), st.floats(), st.text(max_size=3), st.none(), st.binary(max_size=3),
    st.decimals(-1000, 1000, places=2), st.datetimes(),
)  # fmt: skip


@given(st.lists(KEYS, max_size=8), st.booleans())
def test_a_keys_state_lies_in_the_bin_of_its_tuples(keys: list[Any], pairs: bool) -> None:
    """Whatever types the keys of one operator have: a checkpoint finds each key's bin."""
    state = KeyedState(dict)
    for key in keys:
        state.touch((key, 7) if pairs else key)
    found = {repr(key): number for number, states in state.bins().items() for key in states}
    assert sum(map(len, state.bins().values())) == len(state)
    for key in state.live:
        column = (
            pa.array([key[0] if pairs else key])
            if not _is_large(key[0] if pairs else key)
            else pa.array([key[0] if pairs else key], type=pa.uint64())
        )
        columns = [column, pa.array([7])] if pairs else [column]
        assert found[repr(key)] == bins_of_values(columns)[0]


def _is_large(key: Any) -> bool:
    return isinstance(key, int) and key >= 2**63


@pytest.mark.parametrize("keys", [[2**63, 1], [2**64 - 1], [True, 7], [7, True, "x", None], [(True, "a"), (7, "b")]])
def test_keys_of_several_types_are_saved_and_restored(keys: list[Any]) -> None:
    """Unsigned numbers past 2**63, and ``True`` beside 7, broke the checkpoint."""
    first, second = counting(), counting()
    for number, key in enumerate(keys):
        first.state.touch(key)["n"] = number
    restore(second, saved(first), ())
    assert [second.state.touch(key)["n"] for key in keys] == list(range(len(keys)))


def test_equal_numbers_of_several_types_have_one_bin() -> None:
    """They are one key of a dict."""
    number = 2**63
    columns = [
        pa.array([number], pa.uint64()), pa.array([float(number)]), pa.array([Decimal(number)], pa.decimal128(20, 0)),
    ]  # fmt: skip
    assert len({int(bins_of_values([column])[0]) for column in columns}) == 1


# ---- sources


def test_all_columns_of_made_up_rows_are_there() -> None:
    """The first row of a batch does not decide."""
    reader = rate_reader(0, 1, math.inf, 4, lambda n: {"even": n} if n % 2 == 0 else {"odd": float(n), "even": None})
    batch, _ = reader.read(0, 100)
    assert batch is not None
    assert batch.column("even").to_pylist() == [0, None, 2, None]
    assert batch.column("odd").to_pylist() == [None, 1.0, None, 3.0]


def test_a_column_of_made_up_rows_keeps_its_type() -> None:
    """A whole number after floats, in a batch of its own."""
    reader = rate_reader(0, 1, math.inf, 2, lambda n: {"x": 0.5 if n == 0 else 2})
    types = [
        batch.schema.field("x").type for batch in (reader.read(0, 1)[0], reader.read(0, 1)[0]) if batch is not None
    ]
    assert types == [pa.float64(), pa.float64()]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (lambda n: n, "row= of rate returned a int for the value 0; expected a dict of further columns"),
        (lambda n: {DUE: n}, "row= of rate gave the column '_fries_due', a name for the runtime's own use"),
        (lambda n: {"x": object()}, "row= of rate gave values that make no column 'x'"),
    ],
)
def test_what_made_up_rows_cannot_have_is_said(row: Callable[[int], Row], said: str) -> None:
    """By the source, in a sentence."""
    with pytest.raises(SourceError, match=said):
        rate_reader(0, 1, math.inf, 2, row).read(0, 10)


def test_sources_past_number_32_can_be_audited() -> None:
    """A tuple's identity has room for a thousand splits of thousands of sources."""
    seen: set[int] = set()
    for source in (31, 32, 33, 1000, 8191):
        worker = WorkerId("S", SPLITS_PER_SOURCE - 1)
        plan = planned(RateSource(2 * SPLITS_PER_SOURCE), SPLITS_PER_SOURCE, rate=None)
        reader = open_reader(plan, worker, SPLITS_PER_SOURCE, source, identities=True)
        batch, _ = reader.read(0, 10)
        assert batch is not None
        seen.update(batch.column(TRANSACTION).to_pylist())
    assert len(seen) == 10
    assert 0 < identity_of(8191, 63, 1) < 2**63


def test_a_file_may_have_no_rows(tmp_path: Path) -> None:
    """As an aggregate of none has, or an extract of a quiet day; only a directory without a file may be a mistake."""
    pa.parquet.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    plan = plan_replay(str(tmp_path), 2)
    assert [span_reader(spans, math.inf).exhausted for spans in plan] == [True, True]
    (tmp_path / "none.parquet").unlink()
    assert plan_replay(str(tmp_path), 2, may_be_empty=True) == [(), ()]
    with pytest.raises(SourceError, match="holds no Parquet files"):
        plan_replay(str(tmp_path), 2)


# ---- names


def test_an_operator_may_be_called_as_the_reader_was() -> None:
    """Its receiver grants it credit, without which it would wait for ever."""
    operators = (Operator("<reader>", kind=Kind.UNION), Operator("M", function=dict))
    graph = Graph("g", operators, (Edge("<reader>", "M", Partitioning.FORWARD),))
    instance = Instance(WorkerId("M", 0), operators[1], dict, audit=False)
    worker = Worker(wire(Topology.dealt(graph, 1), ("M",), 0), [instance], 1000, lambda: 0)
    [grant] = [one for one in worker.take() if isinstance(one, Grant)]
    assert [channel.sender.operator for channel in grant.sizes] == ["<reader>"]


def names_of(*names: str) -> Any:
    """A batched function whose output has these columns."""

    @batched
    def named(rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([rows.column(0)] * len(names), names=list(names))

    return named


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (names_of("x", "x"), "the column 'x' more than once"),
        (names_of("x", DUE), "the column name '_fries_due' is for the runtime's own use"),
        (names_of("A", "a"), "Spark does not tell the columns 'A' and 'a' apart"),
        (lambda row: row | {"K": 1}, "Spark does not tell the columns 'k' and 'K' apart"),
        (lambda row: {"a": 1, "A": 2}, "Spark does not tell the columns 'a' and 'A' apart"),
    ],
)
def test_columns_that_nobody_could_tell_apart_are_refused_by_name(function: Any, said: str) -> None:
    """Where they are made, not where they are written."""
    operator = Operator("M", Emits.ONE_TO_ONE, kind=Kind.MAP, function=function)
    with pytest.raises(OperatorError, match=f"M (returned|produced).*{said}"):
        outcome(Instance(WorkerId("M", 0), operator, function, audit=False), keyed(1, 2))


def test_columns_that_came_alike_are_let_pass() -> None:
    """A session may tell cases apart; it is not for the operator behind to say."""
    data = pa.RecordBatch.from_pydict({"k": [1], "K": [2], DUE: [0]})
    operator = Operator("M", kind=Kind.MAP, function=lambda row: row | {"x": 3})
    assert outcome(Instance(WorkerId("M", 0), operator, operator.function, audit=False), data) == [
        {"k": 1, "K": 2, "x": 3}
    ]


# ---- types


def test_maps_stay_maps() -> None:
    """Looked at, changed in place, or written by a whole row; in a row they are dicts."""
    kind = pa.map_(pa.string(), pa.int64())
    data = pa.RecordBatch.from_arrays([pa.array([[("a", 1)], None, []], kind), pa.array([0, 1, 2])], names=["m", DUE])

    def function(row: Row) -> Row:
        if row["m"]:
            row["m"]["b"] = 2
        return {**row, "size": len(row["m"] or ())}

    operator = Operator("M", kind=Kind.MAP, function=function)
    running = executor_of([Instance(WorkerId("M", 0), operator, function, False)], InterruptFlag(), 1, "")
    running.load("S", data)
    running.advance(10)
    [(_, out)] = running.results()
    assert out.schema.field("m").type == kind
    assert out.column("m").to_pylist() == [[("a", 1), ("b", 2)], None, []]


@pytest.mark.parametrize("known", [None, pa.timestamp("ns")])
def test_nanoseconds_are_not_cut(known: pa.DataType | None) -> None:
    """Arrow takes a time of pandas for one of microseconds."""
    times = [pd.Timestamp(1_000_000_001), None, datetime(2026, 1, 1)]
    column = to_arrow(times, known)
    assert column.type == pa.timestamp("ns")
    assert column.cast(pa.int64()).to_pylist()[0] == 1_000_000_001


def test_a_sink_refuses_nanoseconds_that_it_would_cut(tmp_path: Path) -> None:
    """Spark reads microseconds; what has no more than these is written."""
    sink = PartWriter(str(tmp_path / "out"), WorkerId("Sink", 0), 1, "run")
    sink.write(pa.RecordBatch.from_pydict({"t": pa.array([1_000], pa.timestamp("ns"))}))
    with pytest.raises(SinkError, match=r"Sink\[0\] got values of 't' with nanoseconds, .*; round them"):
        sink.write(pa.RecordBatch.from_pydict({"t": pa.array([1_001], pa.timestamp("ns"))}))
    assert len(sink.close_part()) == 1


UUIDS = pa.array([bytes(16)], pa.uuid())
UNREAD = {
    "at": pa.array([1], pa.time64("us")),
    "digits": pa.array([Decimal(10) ** 45], pa.decimal256(50)),
    "nothing": pa.array([{}], pa.struct([])),
    "id": UUIDS,
    "ids": pa.ListArray.from_arrays([0, 1], UUIDS),
    "inner": pa.array([[{"at": 1}]], pa.list_(pa.struct([("at", pa.time32("s"))]))),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_sink_refuses_what_spark_does_not_read(tmp_path: Path, name: str) -> None:
    """A run that kept it would finish, and nobody could read its output, the rows of before included."""
    sink = PartWriter(str(tmp_path / "out"), WorkerId("Sink", 0), 1, "run")
    sink.write(pa.RecordBatch.from_pydict({"n": [1]}))
    with pytest.raises(SinkError, match=rf"got '{name}' as .*, a type that Spark does not read; (convert|expec)"):
        sink.write(pa.RecordBatch.from_pydict({name: UNREAD[name]}))


def test_a_sink_refuses_columns_that_spark_cannot_tell_apart(tmp_path: Path) -> None:
    """Also where they come in batches of their own, as behind a change."""
    sink = PartWriter(str(tmp_path / "out"), WorkerId("Sink", 0), 1, "run")
    sink.write(pa.RecordBatch.from_pydict({"score": [1]}))
    with pytest.raises(SinkError, match=r"got 'score' beside 'Score', which Spark does not tell apart"):
        sink.write(pa.RecordBatch.from_pydict({"Score": [2]}))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (pa.string(), pa.binary()),
        (pa.float64(), pa.decimal128(5, 2)),
        (pa.decimal128(22, 20), pa.decimal128(31, 0)),
    ],
)
def test_a_column_is_not_read_as_another_kind_of_value(tmp_path: Path, was: pa.DataType, now: pa.DataType) -> None:
    """Arrow would make one type of both; what was committed as text would be read as bytes."""
    sink = PartWriter(str(tmp_path / "out"), WorkerId("Sink", 0), 1, "run")
    sink.write(pa.RecordBatch.from_pydict({"x": pa.array([None], was)}))
    with pytest.raises(SinkError, match=r"column 'x' was .* and is now .*; a column keeps its type"):
        sink.write(pa.RecordBatch.from_pydict({"x": pa.array([None], now)}))


class NoBoolean:
    """As a missing value of pandas is."""

    def __bool__(self) -> bool:
        raise TypeError("neither true nor false")


@pytest.mark.parametrize("answer", [NoBoolean, lambda: sys.exit(3)])
def test_an_answer_that_is_none_is_a_failure_on_its_tuple(answer: Callable[[], Any]) -> None:
    """So it goes the way of its operator's error policy."""

    def judge(row: dict[str, Any]) -> Any:
        return answer() if row["n"] == 2 else True

    operator = Operator("F", kind=Kind.FILTER, function=judge, on_error=memory())
    instance = Instance(WorkerId("F", 0), operator, judge, audit=False)
    instance.has_dead_letters = True
    execution = executor_of([instance], InterruptFlag(), 1, "")
    execution.load("A[0]", pa.RecordBatch.from_pydict({"n": [1, 2, 3]}))
    execution.advance(3)
    assert [row["n"] for _, batch in execution.results() for row in batch.to_pylist()] == [1, 3]
    assert [row["operator"] for letter in instance.take_letters() for row in letter.to_pylist()] == ["F"]
