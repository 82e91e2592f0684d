"""Dialects of CSV, and directories that are not on the local disk by a plain path."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from file_setting import opened, rows_of, write_rows
from pyarrow import fs
from source_contract import NOW, SECOND

from fries_nb.connectors import file_listing, text_blocks
from fries_nb.dataflow.stream_endpoints import CSV_OPTIONS, csv_options, files
from fries_nb.errors import SourceError
from fries_nb.storage.durable import locate

GERMAN = {
    "delimiter": ";", "quote_char": "'", "column_names": ["n", "price", "town"], "skip_rows": 1, "encoding": "latin-1",
    "null_values": ["NA"], "strings_can_be_null": True, "decimal_point": ",",
}  # fmt: skip


def test_csv_of_another_dialect_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host as well; a host that goes on in the middle of a file reads the same. Lines may be torn by blocks."""
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 28)
    text = "exported on Monday\n1;1,5;'Köln;\nam\nRhein'\n2;NA;NA\n3;-0,25;'Ulm'\n"
    (tmp_path / "a.csv").write_bytes(codecs.encode(text, "latin-1"))
    reader = opened(tmp_path, "csv", csv=GERMAN, quiet_s=0)
    first = reader.read(1, NOW)
    rest = [
        {"n": 2, "price": None, "town": None},
        {"n": 3, "price": -0.25, "town": "Ulm"},
    ]
    assert first is not None
    assert first.to_pylist() == [{"n": 1, "price": 1.5, "town": "Köln;\nam\nRhein"}]
    assert rows_of(opened(tmp_path, "csv", reader.position, csv=GERMAN, quiet_s=0)) == rest
    typed = opened(tmp_path, "csv", csv=GERMAN, quiet_s=0, schema=pa.schema({"town": pa.string(), "n": pa.float32()}))
    assert rows_of(typed)[1] == {"town": None, "n": 2.0}


def test_every_option_is_one_of_pyarrow() -> None:
    """With a value that is not its default, it is set where pyarrow has it."""
    for kind, names in zip(csv_options({}), CSV_OPTIONS.values(), strict=True):
        assert [name for name in names if not hasattr(kind, name)] == []
    _, parse, convert = csv_options({"delimiter": "|", "true_values": ["ja"]})
    assert (parse.delimiter, convert.true_values) == ("|", ["ja"])
    assert files("in", "csv", csv=GERMAN).csv == GERMAN
    assert hash(files("in", "csv", csv=GERMAN))


@pytest.mark.parametrize(
    ("format", "csv", "words"),
    [
        ("json", {"delimiter": ";"}, "files got csv= for format='json'; leave it out"),
        ("csv", {"delimeter": ";"}, "no option of csv= 'delimeter'; expected one of .*; did you mean 'delimiter'"),
        ("csv", {"block_size": 5}, "no option of csv= 'block_size'; expected one of"),
        ("csv", {"delimiter": ";;"}, "which pyarrow.csv does not take: "),
        ("csv", {"column_names": 5}, "which pyarrow.csv does not take: "),
    ],
)
def test_options_that_are_none_are_refused(format: str, csv: dict[str, Any], words: str) -> None:
    """Where they are declared, in one sentence."""
    with pytest.raises(SourceError, match=words) as caught:
        files("in", format, csv=csv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("glob", ["", "/**/[ab].json"])
def test_a_uri_of_a_file_system_is_read(glob: str, tmp_path: Path) -> None:
    """As its path is, with blanks encoded."""
    place = tmp_path / "to be read"
    for name in ("a", "deep/b"):
        write_rows(place / f"{name}.json", [{"name": name}])
    uri = f"file://{str(place).replace(' ', '%20')}{glob}"
    assert rows_of(opened_at(uri)) == [{"name": "a"}, {"name": "deep/b"}]


def opened_at(uri: str) -> Any:
    """A reader of a URI, which is no path."""
    return opened(uri, "json", until="_END")  # type: ignore[arg-type]


def test_a_store_of_objects_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has no directories before there are files in them, and whose URI has a query; here a part of the disk."""
    asked: list[str] = []

    def located(place: str) -> tuple[fs.FileSystem, str]:
        asked.append(place)
        store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
        assert place.startswith("s3://")
        return store, place.removeprefix("s3://").partition("?")[0]

    monkeypatch.setattr(file_listing, "locate", located)
    for glob in ("", "/*.json"):
        reader = opened_at(f"s3://bucket/in{glob}?endpoint_override=localhost%3A9000&scheme=http")
        assert rows_of(reader) == ([] if not glob else [{"n": 1}, {"n": 2}])
        for step, name in enumerate(("a", "b"), start=1):
            write_rows(tmp_path / "bucket" / "in" / f"{name}.json", [{"n": step}])
            assert rows_of(reader, NOW + step * SECOND) == ([] if glob else [{"n": step}])
        (tmp_path / "bucket" / "in" / "a.json").rename(tmp_path / "bucket" / "in" / "c.json")
        assert rows_of(reader, NOW + 3 * SECOND) == []
        (tmp_path / "bucket" / "in" / "c.json").rename(tmp_path / "bucket" / "in" / "a.json")
        (tmp_path / "bucket" / "in" / "_END").touch()
        assert rows_of(reader, NOW + 4 * SECOND) == []
        assert reader.position is None
        (tmp_path / "bucket" / "in" / "_END").unlink()
    assert set(asked) == {"s3://bucket/in?endpoint_override=localhost%3A9000&scheme=http"}


def test_what_is_no_uri_is_told() -> None:
    """A scheme that pyarrow has no file system for."""
    with pytest.raises(ValueError, match="cannot open 'memory://in'"):
        locate("memory://in")
    with pytest.raises(SourceError, match=r"cannot look at memory://in: cannot open 'memory://in'"):
        opened_at("memory://in")
