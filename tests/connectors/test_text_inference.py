"""Text as rows: wherever it is cut into files and blocks, rows are those of Python's readers, or refused by name."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from file_setting import opened, rows_of
from soak import SOAK
from source_contract import NOW, kept, shipped

from fries_nb.connectors import text_blocks
from fries_nb.connectors.files import FilesSource
from fries_nb.connectors.inferred_types import Facts, facts_of_cells, type_of
from fries_nb.connectors.source import Position, Skipped, Split
from fries_nb.errors import SourceError

SEEDS = 40 * SOAK

AWARE = ("2024-07-01T12:00:00+02:00", "2024-07-01T12:00:00Z", "2024-07-01 12:00:00.25-0530")
KINDS = {
    "int": ("0", "7", "-12", "123456"),
    "float": ("0.5", "-1.25", "1e5", ".5", "2.", "0.8444218515250481"),
    "bool": ("true", "False"),
    "long": ("12345678901234567890", "-98765432109876543210"),
    "wide": ("9007199254740993", "-9223372036854775808"),
    "date": ("2024-01-02", "0001-01-01"),
    "naive": ("2024-01-02T03:04:05", "2024-01-02 03:04", "2024-01-02T03:04:05.5", "9999-12-31T00:00:00"),
    "aware": AWARE,
    "text": (
        "x", "Köln", "a,b", 'say "hi"', "two\nlines", "007", "1_000", "0x1F", "+5", "2024-02-30", " ",
        "0.1234567890123456789",
    ),
}  # fmt: skip


def value_of(cell: str, kind: pa.DataType) -> Any:
    """A cell as Python reads it, under a type that was inferred over the whole."""
    if pa.types.is_string(kind):
        return cell
    if not cell:
        return None
    if pa.types.is_boolean(kind):
        return cell.lower() == "true"
    if pa.types.is_date(kind):
        return date.fromisoformat(cell)
    if pa.types.is_timestamp(kind):
        at = datetime.fromisoformat(cell)
        return at.astimezone(UTC) if kind.tz else at
    return {"int64": int, "double": float}.get(str(kind), Decimal)(cell)


def exact(rows: list[dict[str, Any]]) -> list[str]:
    """Rows that can be compared: 1 and 1.0 differ, instants in two zones do not."""
    def plain(value: Any) -> Any:
        return value.astimezone(UTC) if getattr(value, "tzinfo", None) else value

    return sorted(repr({name: plain(value) for name, value in sorted(row.items())}) for row in rows)


def drawn(chance: random.Random) -> tuple[list[str], list[list[str]]]:
    """Columns of one kind, or mostly of one."""
    names, columns = [], []
    count = chance.randint(1, 30)
    for number in range(chance.randint(2, 4)):
        main, other = chance.choices(list(KINDS), k=2)
        rare = chance.choice([0.0, 0.0, 0.1, 0.5])
        empty = chance.choice([0.0, 0.2, 0.9])
        column = [chance.choice(KINDS[other if chance.random() < rare else main]) for _ in range(count)]
        columns.append(["" if chance.random() < empty else cell for cell in column])
        names.append(f"c{number}")
    return names, [list(row) for row in zip(*columns, strict=True)]


def cut(rows: list[Any], chance: random.Random) -> list[list[Any]]:
    """Rows in files, of which some are empty."""
    ends = sorted(chance.choices(range(len(rows) + 1), k=chance.randint(0, 4)))
    return [rows[first:last] for first, last in zip([0, *ends], [*ends, len(rows)], strict=True)]


def write(path: Path, number: int, text: str) -> None:
    """A file that is complete."""
    name = path / f"{number}.text"
    name.write_text(text, newline="")
    os.utime(name, (0, 0))


def check_refusal(error: SourceError, names: Iterable[str], seed: int) -> None:
    """It names a file and a column."""
    assert ".text" in str(error)
    assert any(name in str(error) for name in names), f"seed {seed}: {error}"


def test_csv_is_read_as_by_python_wherever_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the type of each column inferred over all of its cells, or it is refused by file and column."""
    refused = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        monkeypatch.setattr(text_blocks, "BLOCK_BYTES", chance.choice([1, 7, 60, 1 << 20]))
        names, rows = drawn(chance)
        place = tmp_path / str(seed)
        place.mkdir()
        for number, some in enumerate(cut(rows, chance)):
            order = chance.sample(range(len(names)), len(names))
            text = io.StringIO()
            writer = csv.writer(text, lineterminator=chance.choice(["\n", "\r\n"]))
            writer.writerows([[row[at] for at in order] for row in [names, *some]])
            write(place, number, text.getvalue())
        try:
            found = rows_of(opened(place, "csv", quiet_s=0))
        except SourceError as error:
            refused += 1
            check_refusal(error, names, seed)
            continue
        columns = [pa.array([cell for cell in column if cell], pa.string()) for column in zip(*rows, strict=True)]
        kinds = [type_of(facts_of_cells(column)) for column in columns]
        kinds = [pa.string() if pa.types.is_null(kind) else kind for kind in kinds]
        expected = [dict(zip(names, map(value_of, row, kinds), strict=True)) for row in rows]
        assert exact(found) == exact(expected), f"seed {seed}: {kinds}"
    assert refused < SEEDS / 3


JSON: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda chance: chance.choice([0, 7, -12, 2**40]),
    "float": lambda chance: chance.choice([0.5, 1e300, 0.8444218515250481, 2.0]),
    "long": lambda chance: chance.choice([12345678901234567890, 3]),
    "text": lambda chance: chance.choice(["x", "Köln", "7", "2024-02-30", "two\nlines", '"', ""]),
    "naive": lambda chance: chance.choice(["2024-01-02T03:04:05", "2024-01-02T03:04:05.5"]),
    "aware": lambda chance: chance.choice(AWARE),
    "bool": lambda chance: chance.choice([True, False]),
    "object": lambda chance: {name: chance.choice([None, 1, 2]) for name in chance.sample("xyz", 2)},
    "list": lambda chance: [chance.choice([1, None, 2]) for _ in range(chance.randint(0, 3))],
}


def as_read(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON under a type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_read(value.get(field.name), field.type) for field in kind}
    if pa.types.is_timestamp(kind):
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if kind.tz else at
    return float(value) if pa.types.is_float64(kind) else Decimal(value) if pa.types.is_decimal(kind) else value


def test_json_is_read_as_by_python_wherever_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are those of the module json; a value of another kind is refused by name."""
    refused = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        monkeypatch.setattr(text_blocks, "BLOCK_BYTES", chance.choice([1, 30, 200, 1 << 20]))
        kinds = {f"c{number}": chance.choice(list(JSON)) for number in range(3)}
        odd = chance.choice([0.0, 0.0, 0.0, 0.1])
        rows = []
        for _ in range(chance.randint(1, 25)):
            others = {name: chance.choice(list(JSON)) for name in kinds if chance.random() < odd}
            row = {
                name: None if chance.random() < 0.3 else JSON[kind](chance) for name, kind in (kinds | others).items()
            }
            rows.append({name: value for name, value in row.items() if value is not None or chance.random() < 0.5})
        rows[0] = {name: rows[0].get(name) for name in kinds}
        place = tmp_path / str(seed)
        place.mkdir()
        for number, some in enumerate(cut(rows, chance)):
            write(place, number, chance.choice(["\n", "\r\n", "\n\n"]).join(json.dumps(row) for row in some))
        try:
            reader = opened(place, "json", quiet_s=0)
            found = rows_of(reader)
        except SourceError as error:
            refused += 1
            check_refusal(error, kinds, seed)
            continue
        assert reader._columns is not None
        schema = reader._columns.schema
        expected = [{field.name: as_read(row.get(field.name), field.type) for field in schema} for row in rows]
        assert exact(found) == exact(expected), f"seed {seed}: {schema}"
    assert refused < SEEDS / 3


def test_what_is_known_adds_up_in_any_order() -> None:
    """So that a type does not depend on where a file ends."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        cells = [chance.choice(KINDS[chance.choice(list(KINDS))]) for _ in range(chance.randint(1, 6))]
        whole = facts_of_cells(pa.array(cells))
        chance.shuffle(cells)
        parts = [facts_of_cells(pa.array([cell])) for cell in cells]
        added = Facts()
        for part in parts:
            added |= part
        assert added.kinds == whole.kinds or "text" in added.kinds
        assert ("text" in added.kinds) == ("text" in whole.kinds)
        assert added.flags == whole.flags or "text" in added.kinds


def one_by_one(source: Any, split: Split) -> tuple[list[int], list[dict[str, Any]], Skipped]:
    """Numbers of rows and what is none, where another reader goes on behind each row, from its position."""
    read: list[int] = []
    letters: list[dict[str, Any]] = []
    reader = source.open(split, Position())
    for _ in range(20):
        batch = reader.read(1, NOW)
        letters += [one.row for one in reader.take_undecoded()]
        assert reader.position is not None
        if batch is not None:
            read += batch["n"].to_pylist()
        reader = source.open(split, kept(reader.position))
    return read, letters, reader.skipped


@pytest.mark.parametrize("block", [5, 1 << 20])
@pytest.mark.parametrize(
    ("broken", "line", "said"),
    [
        (b'3,"cut', 4, "a quote is not closed"),
        (b'3,"cut" here', 4, "there is text behind a closing quote"),
        (b"3", 4, "it has 1 cell, and the header 2"),
        (b"3,a,b", 4, "it has 3 cells, and the header 2"),
        ("3,Köln".encode("latin-1"), 4, r"it is not UTF-8 (byte 0xf6); say encoding='latin-1'"),
        (b"3,a\0b", 4, "it has a NUL byte"),
        (b'"two\nlines",x', 4, "its 'n', 'two\\nlines', is text, and int64 so far; expected one type, or schema="),
    ],
)
def test_a_line_of_csv_that_is_no_row_is_told_by_file_and_line_or_left_out(
    broken: bytes, line: int, said: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its text and the reason; the others are rows, also for a reader that goes on at any of them."""
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block)
    (tmp_path / "a.csv").write_bytes(b"n,s\n1,one\n")
    sources = {
        bad_rows: FilesSource("S", str(tmp_path), "csv", quiet_s=0, most_splits=1, bad_rows=bad_rows)
        for bad_rows in ("fail", "letters", "skip")
    }
    there = {bad_rows: shipped(source, tuple(source.splits(1))) for bad_rows, source in sources.items()}
    (tmp_path / "b.csv").write_bytes(b"n,s\n10,x\n11,y\n" + broken + b"\n12,z\n13,w\n")
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    with pytest.raises(SourceError) as caught:
        rows_of(there["fail"][0].open(there["fail"][1][0], Position()))  # type: ignore[arg-type]
    assert f"line {line} of b.csv" in str(caught.value)
    assert said in str(caught.value)
    expected = [1, 10, 11] if said == "a quote is not closed" else [1, 10, 11, 12, 13]
    for bad_rows in ("letters", "skip"):
        read, letters, skipped = one_by_one(there[bad_rows][0], there[bad_rows][1][0])
        assert read == expected
        assert skipped.count == 1
        if bad_rows == "skip":
            assert letters == []
            return
        check_letter(letters, line, said, broken)


def check_letter(letters: list[dict[str, Any]], line: int, said: str, broken: bytes) -> None:
    """There is one, with all that is known."""
    [letter] = letters
    assert (letter["file"], letter["line"], said in letter["reason"]) == ("b.csv", line, True)
    assert letter["text"].startswith(broken[:1].decode())
