"""The columns of a directory's files: those of the first one, or given ones; nothing else is mixed in."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_setting import TEXT, opened, rows_of, write_rows
from soak import SOAK
from source_contract import NOW, SECOND, reader_of

from fries_nb.connectors.file_formats import FORMATS
from fries_nb.connectors.files import FilesReader, FilesSource
from fries_nb.connectors.source import Position
from fries_nb.connectors.worker_reader import planned
from fries_nb.errors import SourceError

COLUMNS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "missing": ({"n": 1, "s": "x"}, {"n": 2}, [{"n": 1, "s": "x"}, {"n": 2, "s": None}]),
    "more": ({"n": 1}, {"n": 2, "tax": 0.5}, [{"n": 1}, {"n": 2, "tax": 0.5}]),
    "twins": ({"n": 1}, {"n": 2, "N": 3}, r"b.\w+ has a column 'N', which differs from 'n' of .* only by case; Spark"),
    "hidden": ({"n": 1}, {"n": 2, "_fries_due": 3}, r"b.\w+ has a column _fries_due, a name that fries_nb keeps"),
    "text": ({"n": 1}, {"n": "x"}, r"(b.\w+ .*a.\w+|line 1 of b.json .* and int64 so far; .*schema=)"),
}


@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_later_file_has_the_columns_that_are_known(format: str, case: str, tmp_path: Path) -> None:
    """It may lack some, and add some; a name that is not free, or another type, is refused by name."""
    first, second, expected = COLUMNS[case]
    write_rows(tmp_path / f"a.{format}", [first])
    reader = opened(tmp_path, format)
    write_rows(tmp_path / f"b.{format}", [second])
    if case == "text" and format == "csv":
        expected = r"line 2 of b.csv .* its 'n', 'x', is text, and int64 so far; .*schema="
    if isinstance(expected, list):
        assert rows_of(reader) == expected
    else:
        with pytest.raises(SourceError, match=expected):
            rows_of(reader)


@pytest.mark.parametrize("format", TEXT)
@pytest.mark.parametrize("later", [False, True])
def test_integers_become_fractions_where_these_are_exact(format: str, later: bool, tmp_path: Path) -> None:
    """Of all rows, if the files are there in time."""
    write_rows(tmp_path / f"a.{format}", [{"n": 1}])
    reader = opened(tmp_path, format) if later else None
    write_rows(tmp_path / f"b.{format}", [{"n": 1.5}])
    reader = reader or opened(tmp_path, format)
    batches = [reader.read(1, NOW), reader.read(1, NOW)]
    kinds = [str(batch.schema.field("n").type) for batch in batches if batch]
    assert kinds == ["int64" if later else "double", "double"]


def test_integers_are_not_mixed_into_fractions(tmp_path: Path) -> None:
    """Where a file has types of its own."""
    write_rows(tmp_path / "a.parquet", [{"n": 1.5}])
    write_rows(tmp_path / "b.parquet", [{"n": 1}])
    with pytest.raises(SourceError, match=r"column 'n' of b.parquet is int64, and double in the first file, a.parquet"):
        rows_of(opened(tmp_path, "parquet"))


@pytest.mark.parametrize("format", FORMATS)
def test_given_columns_are_those_of_all_rows(format: str, tmp_path: Path) -> None:
    """Values are converted if nothing is lost, missing ones null, others not read."""
    schema = pa.schema({"n": pa.float64(), "s": pa.string()})
    for name, row in (("a", {"n": 1}), ("b", {"more": 3, "n": 2.5, "s": "x"})):
        write_rows(tmp_path / f"{name}.{format}", [row])
    reader = opened(tmp_path, format, schema=schema)
    batch = reader.read(1, NOW)
    assert batch is not None
    assert batch.schema == schema
    assert batch.to_pylist() + rows_of(reader) == [{"n": 1.0, "s": None}, {"n": 2.5, "s": "x"}]
    write_rows(tmp_path / f"c.{format}", [{"n": "x"}])
    with pytest.raises(SourceError, match=rf"c.{format}"):
        rows_of(reader, NOW + SECOND)


@pytest.mark.parametrize("format", TEXT)
def test_a_column_without_a_value_in_the_first_file_holds_text(format: str, tmp_path: Path) -> None:
    """Since no other type holds all that may come."""
    write_rows(tmp_path / f"a.{format}", [{"n": 1, "s": None}])
    write_rows(tmp_path / f"b.{format}", [{"n": 1, "s": "x"}])
    assert [row["s"] for row in rows_of(opened(tmp_path, format))] == [None if format == "json" else "", "x"]


def test_splits_of_all_hosts_have_the_columns_of_one_file(tmp_path: Path) -> None:
    """Of those that were there when the run began; a checkpoint keeps them."""
    write_rows(tmp_path / "a.csv", [{"n": 1}])
    plan = planned(FilesSource("S", str(tmp_path), "csv"), 1, None)
    write_rows(tmp_path / "0.csv", [{"n": "x"}])
    reader = reader_of(plan, 0, 1)
    with pytest.raises(SourceError, match=r"line 2 of 0.csv .* and int64 so far"):
        [reader.read(NOW + step, 100) for step in range(3)]


def test_spark_writes_int96_and_dictionaries(tmp_path: Path) -> None:
    """They come as plain columns, in every file."""
    table = pa.table({"s": pa.array(["x", "y"]).dictionary_encode(), "t": pa.array([1, 2], pa.timestamp("ns"))})
    for name in "ab":
        pq.write_table(table, tmp_path / f"{name}.parquet", use_deprecated_int96_timestamps=True)
    reader = opened(tmp_path, "parquet")
    batch = reader.read(10, NOW)
    assert batch is not None
    assert [str(field.type) for field in batch.schema] == ["string", "timestamp[us, tz=UTC]"]
    assert len(rows_of(reader)) == 2




KINDS: dict[str, list[Any]] = {"i": [1, -7], "f": [0.5, 2.25], "t": ["x", "a text"], "b": [True, False]}
"""First letter of a column: values of its type."""


def _grown_rows(chance: random.Random) -> list[list[dict[str, Any]]]:
    """The rows of files that gain and lose columns; the first of a file has all of its columns."""
    columns, files = ["i0"], []
    for number in range(5):
        if number and chance.random() < 0.7:
            columns = [*columns, chance.choice(list(KINDS)) + str(number)]
        lacks = set(chance.sample(columns[1:], chance.randint(0, len(columns) - 1)))
        names = [name for name in columns if name not in lacks]
        files.append([{name: chance.choice(KINDS[name[0]]) for name in names} for _ in range(chance.randint(1, 4))])
    return files


@pytest.mark.parametrize("seed", range(10 * SOAK))
@pytest.mark.parametrize("format", FORMATS)
def test_columns_that_come_are_those_of_arrow_and_stay_after_a_death(format: str, seed: int, tmp_path: Path) -> None:
    """A reader that starts again from any position goes on with the same columns, and types, in the same order."""
    chance = random.Random(seed)
    files = _grown_rows(chance)
    write_rows(tmp_path / f"0.{format}", files[0])
    [split] = FilesSource("S", str(tmp_path), format, quiet_s=0).splits(1)

    def begun(position: Position) -> FilesReader:
        """A reader in another process."""
        return FilesSource("S", str(tmp_path), format, quiet_s=0).open(split, position)

    reader = begun(Position())
    for number, rows in enumerate(files[1:], 1):
        write_rows(tmp_path / f"{number}.{format}", rows)
    wanted = [row for rows in files for row in rows]
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < len(wanted):
        batch = reader.read(chance.randint(1, 3), NOW + len(batches) * SECOND)
        assert batch is not None
        batches.append(batch)
        if chance.random() < 0.4 and reader.position is not None:
            reader = begun(reader.position)
    whole = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")
    names = list(dict.fromkeys(name for row in wanted for name in row))
    assert sorted(whole.schema.names) == sorted(names)
    assert whole.to_pylist() == [{name: row.get(name) for name in whole.schema.names} for row in wanted]
    kinds = {"i": "int64", "f": "double", "t": "string", "b": "bool"}
    assert {field.name: str(field.type) for field in whole.schema} == {name: kinds[name[0]] for name in names}
    grown = [batch.schema.names for batch in batches]
    assert all(after[: len(before)] == before for before, after in pairwise(grown)), "columns are added at the end"


@pytest.mark.parametrize("format", FORMATS)
def test_new_columns_can_be_refused(format: str, tmp_path: Path) -> None:
    """By file and column, as before the file was read."""
    write_rows(tmp_path / f"a.{format}", [{"n": 1}])
    reader = opened(tmp_path, format, adds_columns=False)
    write_rows(tmp_path / f"b.{format}", [{"n": 2, "tax": 0.5}])
    with pytest.raises(SourceError, match=r"b.\w+ has a column 'tax', which the first file, a.\w+ lacks; expected"):
        rows_of(reader)


@pytest.mark.parametrize("format", FORMATS)
def test_a_column_that_was_added_keeps_its_type(format: str, tmp_path: Path) -> None:
    """As one of the first file does."""
    write_rows(tmp_path / f"a.{format}", [{"n": 1}])
    reader = opened(tmp_path, format)
    write_rows(tmp_path / f"b.{format}", [{"n": 2, "tax": 7}])
    write_rows(tmp_path / f"c.{format}", [{"n": 3, "tax": "x"}])
    with pytest.raises(SourceError, match=r"(c\.parquet is string, and int64 in the first file, a.parquet, or a later|"
                                          r"line \d of c\.\w+ .* its 'tax', 'x', is (text|string), and int64 so far)"):
        rows_of(reader)
