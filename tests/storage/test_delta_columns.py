"""What a Delta table takes: every value that a part adds can be read in the table's types, and keeps its rules."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import StructType

from fries_nb.connectors.parquet_sink import PartWriter, as_it_comes
from fries_nb.errors import ColumnError, SinkError
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage import delta
from fries_nb.storage.delta import TableColumns
from fries_nb.storage.manifest import claim, commit, recover

LONG = [Field("n", "long")]
UNSIGNED = [(pa.uint8(), pa.int16()), (pa.uint16(), pa.int32()), (pa.uint32(), pa.int64())]
UNSIGNED += [(pa.uint64(), pa.decimal128(20, 0))]


def target(path: Path, *columns: Field) -> str:
    """A target; its table is there if it has columns."""
    if columns:
        DeltaTable.create(str(path), Schema(list(columns)))
    claim(str(path), "fraud", table=True)
    return str(path)


def part(path: str, batch: pa.RecordBatch, fits: bool = True) -> tuple[str, ...]:
    """A part as a sink closes it that knows the table as it is now; or as one does that began before there was one."""
    fit = TableColumns(f"the Delta table {path}", delta.columns(path)).fit if fits else as_it_comes
    serials = count(1 + len(list(Path(path).rglob("part-*"))))
    sink = PartWriter(path, WorkerId("scored", 0), 1, "r1", fit=fit, serials=serials)
    sink.write(batch)
    return sink.close_part()


def rows(path: str) -> list[dict[str, Any]]:
    """What the table holds, by deltalake."""
    return list(DeltaTable(path).to_pyarrow_table().to_pylist())


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize(("given", "kept"), UNSIGNED, ids=lambda kind: str(kind))
def test_unsigned_numbers_are_kept_in_a_type_that_holds_them(
    tmp_path: Path, given: pa.DataType, kept: pa.DataType, fits: bool
) -> None:
    """A table has signed ones only; the largest of each width is read as it was written, in lists too."""
    path, largest = target(tmp_path / "table"), 2**given.bit_width - 1
    values = {"n": pa.array([largest], given), "xs": pa.array([[largest]], pa.list_(given))}
    for epoch in (1, 2):
        commit(path, epoch, part(path, pa.record_batch(values), fits))
    assert delta.columns(path).field("n").type == kept
    assert rows(path) == [{"n": largest, "xs": [largest]}] * 2


def test_columns_are_written_in_the_types_of_the_table(tmp_path: Path) -> None:
    """So that every reader of Delta finds them as the log says, whatever Arrow's type was."""
    path = target(tmp_path / "table", Field("x", "double"), Field("at", "timestamp"), Field("s", "string"))
    at = pa.array([0], pa.timestamp("s", "Europe/Berlin"))
    [file] = part(path, pa.record_batch({"x": [1], "at": at, "s": pa.array(["a"], pa.large_string())}))
    assert delta._read_schema(file) == delta.columns(path)
    commit(path, 1, [file])
    assert [(row["x"], row["s"]) for row in rows(path)] == [(1.0, "a")]


@pytest.mark.parametrize("fits", [True, False], ids=["at the sink", "in front of the record"])
@pytest.mark.parametrize(
    ("column", "row", "said"),
    [
        (Field("x", "double"), {"x": 2**60}, "column 'x' is double in .* and a value does not fit: .*; a column keeps"),
        (Field("x", "long"), {"x": 0.5}, "column 'x' is int64 in .* and now double; a column keeps its type"),
        (Field("x", "integer"), {"x": 1}, "column 'x' is int32 in .* and now int64; a column keeps its type"),
        (Field("x", "float"), {"x": 0.5}, "column 'x' is float in .* and now double; a column keeps its type"),
        (Field("x", "long", nullable=False), {"x": None}, "column 'x' is NOT NULL in .*; give it one in the operator"),
        (Field("x", "long", nullable=False), {"y": 1}, "column 'x' is NOT NULL in .*; give it one in the operator"),
        (Field("x", "long"), {"X": 1}, "column 'X' differs from 'x' in .*; rename it in the operator"),
        (
            Field("x", "long"), {"took": datetime.timedelta(1)},
            "column 'took' is duration.us., a type that no Delta table has; convert it to a number of seconds in",
        ),
    ],
    ids=["value", "type", "wider integers", "wider floats", "null", "missing", "case", "duration"],
)  # fmt: skip
def test_what_the_table_cannot_take_is_refused_by_column(
    tmp_path: Path, column: Field, row: dict[str, Any], said: str, fits: bool
) -> None:
    """By both; the table is told with it, and nothing of the epoch stays to be completed."""
    path = target(tmp_path / "table", column, *LONG)
    batch = pa.RecordBatch.from_pylist([{"n": 1, **row}])
    with pytest.raises(ColumnError, match=said) as caught:
        commit(path, 1, part(path, batch, fits))
    assert caught.value.column == next(iter(row if "y" not in row else "x"))
    assert pa.ipc.read_schema(pa.py_buffer(caught.value.before)).names[:2] == ["x", "n"]
    recover(path)
    claim(path, "fraud", table=True)
    assert rows(path) == []


def test_names_that_differ_in_case_do_not_begin_a_table(tmp_path: Path) -> None:
    """Nor do parts of two workers that spell one differently."""
    path = target(tmp_path / "table")
    files = [part(path, pa.record_batch({name: [1]}), fits=False) for name in ("n", "N")]
    with pytest.raises(ColumnError, match="differs from 'n'"):
        commit(path, 1, [file for [file] in files])
    assert not delta.is_table(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda path: DeltaTable.create(path, Schema(LONG)).alter.add_constraint({"positive": "n > 0"}),
            "has the constraint positive, which a flow does not enforce; expected a table without",
        ),
        (
            lambda path: DeltaTable.create(path, Schema([Field("s", StructType([invariant()])), *LONG])),
            r"has the invariant of 's\.n', which",
        ),
        (
            lambda path: DeltaTable.create(
                path, Schema([*LONG, Field("g", "long", metadata={"delta.generationExpression": "n + 1"})])
            ),
            "has the generated column 'g', which",
        ),
    ],
    ids=["constraint", "invariant", "generated"],
)
def test_a_table_with_rules_of_its_own_is_refused_at_the_start(
    tmp_path: Path, make: Callable[[str], object], said: str
) -> None:
    """They bind whoever writes to it, and a flow does not enforce them."""
    make(str(tmp_path / "table"))
    with pytest.raises(SinkError, match=said):
        target(tmp_path / "table")


def invariant() -> Field:
    """A column with a rule."""
    return Field("n", "long", metadata={"delta.invariants": '{"expression":{"expression":"n > 3"}}'})


def test_whatever_deltalake_raises_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel raises plain exceptions, of many lines."""

    def broken(*given: object, **named: object) -> None:
        raise Exception("External error: no such luck\n   0: <unknown>")

    path = target(tmp_path / "table", *LONG)
    files = part(path, pa.record_batch({"n": [1]}))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", broken)
        with pytest.raises(SinkError, match=r"cannot add epoch 1 to the Delta table .*: External .* luck$"):
            commit(path, 1, files)
    for name in ("transaction_version", "metadata", "__init__"):
        with monkeypatch.context() as patch:
            patch.setattr(deltalake.DeltaTable, name, broken)
            with pytest.raises(SinkError, match=r"cannot read the Delta table .*: External error: no such luck$"):
                claim(path, "fraud", table=True)
    recover(path)
    assert rows(path) == [{"n": 1}]
