"""What ``fn.files`` says of files: which are complete, in which order they come, their columns, and what is refused."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from file_setting import LONG_AGO_S, TEXT, opened, rows_of, write_rows
from source_contract import NOW, SECOND, kept, reader_of

from fries_nb.connectors.file_formats import FORMATS
from fries_nb.connectors.file_listing import KEPT_GONE, SAY_NS, FileListing, KnownFiles, hashed
from fries_nb.connectors.files import FilesSource
from fries_nb.connectors.source import Position
from fries_nb.connectors.text_blocks import BLOCK_BYTES
from fries_nb.connectors.worker_reader import planned
from fries_nb.dataflow import DataflowBuilder
from fries_nb.dataflow.stream_endpoints import files
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import SourceError


@pytest.mark.parametrize("format", FORMATS)
def test_names_that_begin_with_a_mark_are_not_read(format: str, tmp_path: Path) -> None:
    """Those of directories neither."""
    for name in ("_a", ".a", "_temporary/a", "deep/.hidden/a", "deep/a"):
        write_rows(tmp_path / f"{name}.{format}", [{"name": name}])
    assert rows_of(opened(tmp_path, format)) == [{"name": "deep/a"}]


@pytest.mark.parametrize("format", TEXT)
def test_a_file_of_text_is_read_when_it_has_not_changed_for_a_second(format: str, tmp_path: Path) -> None:
    """Whatever the clock of the file system says; others are read meanwhile."""
    for ahead_s in (-0.5, 5_000):
        place = tmp_path / str(ahead_s)
        write_rows(place / f"a.{format}", [{"n": 1}], NOW / 1e9 + ahead_s)
        write_rows(place / f"b.{format}", [{"n": 2}])
        reader = opened(place, format)
        assert rows_of(reader) == [{"n": 2}]
        with (place / f"a.{format}").open("a") as file:
            file.write('{"n": 3}\n' if format == "json" else "3\n")
        os.utime(place / f"a.{format}", ns=(NOW, NOW + int((ahead_s + 0.5) * 1e9)))
        assert rows_of(reader, NOW + SECOND * 6 // 10) == []
        assert rows_of(reader, NOW + SECOND * 17 // 10) == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize("format", TEXT)
def test_a_file_without_content_is_not_complete(format: str, tmp_path: Path) -> None:
    """It was only made."""
    (tmp_path / f"a.{format}").touch()
    os.utime(tmp_path / f"a.{format}", (0, 0))
    reader = opened(tmp_path, format)
    assert rows_of(reader) == []
    write_rows(tmp_path / f"a.{format}", [{"n": 1}])
    assert rows_of(reader, NOW + SECOND) == [{"n": 1}]


def test_a_parquet_file_is_read_when_its_footer_is_there(tmp_path: Path) -> None:
    """However many of its bytes are."""
    write_rows(tmp_path / "_whole.parquet", [{"n": n} for n in range(50)])
    whole = (tmp_path / "_whole.parquet").read_bytes()
    reader = opened(tmp_path, "parquet")
    for step, count in enumerate(range(0, len(whole), 97)):
        (tmp_path / "a.parquet").write_bytes(whole[:count])
        assert rows_of(reader, NOW + step * SECOND) == []
    (tmp_path / "b.parquet").write_bytes(b"PAR1 is at both ends, and no footer" + b"\xff\xff\xff\x7f" + b"PAR1")
    (tmp_path / "a.parquet").write_bytes(whole)
    assert len(rows_of(reader, NOW + 10**6 * SECOND)) == 50


@pytest.mark.parametrize("order", ["name", "time"])
def test_files_come_in_order(order: str, tmp_path: Path) -> None:
    """Of names or of times; a late file comes when it is there."""
    for number, name in enumerate("cab"):
        write_rows(tmp_path / f"{name}.json", [{"name": name}], LONG_AGO_S + number)
    reader = opened(tmp_path, "json", order=order)
    assert "".join(row["name"] for row in rows_of(reader)) == ("abc" if order == "name" else "cab")
    write_rows(tmp_path / "a0.json", [{"name": "late"}], LONG_AGO_S)
    assert rows_of(reader, NOW + SECOND) == [{"name": "late"}]


def test_a_glob_chooses_names(tmp_path: Path) -> None:
    """Below the directory in front of it."""
    for name in ("a.json", "deep/b.json", "deep/er/c.json", "deep/c.txt", "b1.json"):
        write_rows(tmp_path / name, [{"name": name}])

    def names(glob: str) -> list[str]:
        return [row["name"] for row in rows_of(opened(tmp_path / glob, "json"))]

    assert names("*.json") == ["a.json", "b1.json"]
    assert names("**/*.json") == ["a.json", "b1.json", "deep/b.json", "deep/er/c.json"]
    assert names("deep/*.json") == ["deep/b.json"]
    assert names("[!b]?json") == ["a.json"]
    assert names("d*/**/?.json") == ["deep/b.json", "deep/er/c.json"]


def test_the_marker_ends_the_source_when_all_is_read(tmp_path: Path) -> None:
    """Also one that comes with the marker, and one that is not complete yet."""
    write_rows(tmp_path / "a.json", [{"n": 1}])
    reader = opened(tmp_path, "json", until="_END")
    assert rows_of(reader) == [{"n": 1}]
    assert reader.position is not None
    write_rows(tmp_path / "b.json", [{"n": 2}])
    write_rows(tmp_path / "c.json", [{"n": 3}], NOW / 1e9 + 1)
    (tmp_path / "_END").touch()
    assert rows_of(reader, NOW + SECOND) == [{"n": 2}]
    assert reader.position is not None
    assert rows_of(reader, NOW + 4 * SECOND) == [{"n": 3}]
    assert reader.position is None


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_file_without_content_does_not_hold_up_the_end(format: str, tmp_path: Path) -> None:
    """As Spark writes for a partition without rows."""
    write_rows(tmp_path / f"a.{format}", [{"n": 1}])
    for name in (f"b.{format}", "_END"):
        (tmp_path / name).touch()
    reader = opened(tmp_path, format, until="_END")
    assert rows_of(reader, NOW + 4 * SECOND) == [{"n": 1}]
    assert reader.position is None


def test_a_file_that_comes_before_the_marker_is_read_though_the_first_listing_missed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing is no snapshot."""
    (tmp_path / "_END").touch()
    listed = FileListing._all

    def late(self: FileListing) -> Any:
        found = listed(self)
        write_rows(tmp_path / "a.json", [{"n": 1}])
        return found

    reader = opened(tmp_path, "json", until="_END")
    monkeypatch.setattr(FileListing, "_all", late)
    assert rows_of(reader) == [{"n": 1}]


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no directory": (lambda path: opened(path / "no", "csv"), r"there is no directory .*/no; expected one, mayb"),
    "a file": (lambda path: opened(path / "a.csv", "csv"), r"a.csv is a file; expected a directory that grows, or"),
    "a reserved name": (lambda path: rows_of(opened(path / "r", "csv")), r"a.csv has a column _fries_due, a name that"),
    "a name twice": (lambda path: rows_of(opened(path / "t", "csv")), r"a.csv has several columns 'n'; a row is a di"),
    "damaged": (
        lambda path: rows_of(opened(path / "d", "csv")),
        r"line 1,048,578 of a.csv \(of .*/d\) cannot be read: it has 2 cells, and the header 1; mend it, or leave",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    """Which names it."""
    for name, text in (
        ("a.csv", "n\n1\n"), ("r/a.csv", "_fries_due\n1\n"), ("t/a.csv", "n,n\n1,2\n"),
        ("d/a.csv", "n\n" + "1\n" * BLOCK_BYTES + "1,2\n"),
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (0, 0))
    make, said = REFUSED[case]
    with pytest.raises(SourceError, match=said):
        make(tmp_path)


def test_a_file_that_was_read_and_has_another_size_is_refused(tmp_path: Path) -> None:
    """Its new rows would be lost, or its old ones read twice; also if that is seen after a restart only."""
    write_rows(tmp_path / "a.json", [{"n": 1}])
    reader = opened(tmp_path, "json")
    assert rows_of(reader) == [{"n": 1}]
    assert reader.position is not None
    os.utime(tmp_path / "a.json", (0, 0))
    assert rows_of(reader, NOW + SECOND) == []
    write_rows(tmp_path / "a.json", [{"n": 1}, {"n": 2}])
    for one in (reader, opened(tmp_path, "json", kept(reader.position))):
        with pytest.raises(SourceError, match=r"a.json of .* was read and has another size now, 18 bytes; expected"):
            rows_of(one, NOW + 2 * SECOND)


def test_a_file_that_vanishes_is_passed_over_or_ends_the_run(tmp_path: Path) -> None:
    """By whether it was begun."""
    for name in "ab":
        write_rows(tmp_path / f"{name}.json", [{"n": n} for n in range(5)])
    reader = opened(tmp_path, "json")
    batch = reader.read(3, NOW)
    assert batch is not None
    assert reader.position is not None
    position = kept(reader.position)
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").unlink()
    assert len(rows_of(reader)) == 2, "what is in memory is read, and b.json was not begun"
    with pytest.raises(SourceError, match=r"a.json of .*, a file of \d+ bytes of which 3 rows were read, has gone"):
        rows_of(opened(tmp_path, "json", position))
    write_rows(tmp_path / "a.json", [{"n": 1}])
    with pytest.raises(SourceError, match=r"a.json of .* of which 3 rows were read, has 9 bytes; expected files"):
        rows_of(opened(tmp_path, "json", position))


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_is_read_on_from_any_row_and_by_blocks(format: str, tmp_path: Path) -> None:
    """Of which it has several: no more than a few are in memory."""
    text = "x" * 997
    rows = [{"n": n, "s": f"{n} {text}"} for n in range(4_000)]
    write_rows(tmp_path / f"a.{format}", rows)
    reader = opened(tmp_path, format)
    most = 0
    for row in range(0, 4_000, 700):
        again = opened(tmp_path, format, None if reader.position is None else kept(reader.position))
        assert rows_of(again, limit=10_000) == rows[row:]
        left = 700
        while left:
            batch = reader.read(left, NOW)
            assert batch is not None
            left -= batch.num_rows
            most = max(most, 0 if reader._piece is None else reader._piece.batch.nbytes)
            if reader._current is None:
                break
    assert most < 3 * BLOCK_BYTES


def test_long_lines_and_blank_ones(tmp_path: Path) -> None:
    """A line may be longer than a block, and the last one lack its end."""
    rows = [{"s": "x" * (BLOCK_BYTES * factor // 10)} for factor in (25, 1, 9, 11)]
    (tmp_path / "a.json").write_text("\n\n".join(json.dumps(row) for row in rows))
    os.utime(tmp_path / "a.json", (0, 0))
    assert rows_of(opened(tmp_path, "json")) == rows


def test_all_splits_of_a_host_share_a_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a directory is listed five times a second, however many splits there are."""
    for number in range(40):
        write_rows(tmp_path / f"{number}.json", [{"n": number}])
    plan = planned(FilesSource("S", str(tmp_path), "json"), 1, None)
    listed, looks = FileListing._all, []
    monkeypatch.setattr(FileListing, "_all", lambda self: looks.append(1) or listed(self))
    reader, rows = reader_of(plan, 0, 1), 0
    for now in range(NOW, NOW + SECOND, 10_000_000):
        batch, _ = reader.read(now, 3)
        rows += 0 if batch is None else batch.num_rows
    assert rows == 40
    assert 3 <= len(looks) <= 5


def test_a_source_that_waits_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After ten seconds without anything to read: there is no file, or none that is complete."""
    reader = opened(tmp_path, "parquet")
    with caplog.at_level(logging.WARNING, "fries_nb"):
        for now in range(NOW, NOW + 3 * SAY_NS, SECOND):
            assert rows_of(reader, now) == []
        assert [one.message for one in caplog.records] == [
            f"source 'S' waits for files in {tmp_path}: there is none yet"
        ]
        write_rows(tmp_path / "a.parquet", [{"n": 1}])
        (tmp_path / "b.parquet").write_text("PAR1 and nothing else")
        assert rows_of(reader, NOW + 4 * SAY_NS) == [{"n": 1}]
        for now in range(NOW + 5 * SAY_NS, NOW + 7 * SAY_NS, SECOND):
            assert rows_of(reader, now) == []
    assert "b.parquet not complete yet (its end is missing)" in caplog.records[1].message
    assert len(caplog.records) == 2


def test_a_position_does_not_grow_with_files_that_have_gone() -> None:
    """But for the last ones."""
    known = KnownFiles()
    for number in range(KEPT_GONE + 500):
        known.add(hashed(f"{number}"), number, number)
    there = {hashed("0"), hashed("7")}
    assert known.forget_gone(there) == [number for number in range(500) if number not in (0, 7)]
    assert len(known) == KEPT_GONE + 2
    again = KnownFiles(known.packed)
    assert again.packed == known.packed
    assert [hashed(str(number)) in again for number in (0, 1, 7, 499, 500)] == [True, False, True, False, True]
    assert known.forget_gone(there) == []
    assert len(msgspec.msgpack.encode(Position(9, (known.packed, None)))) < 20 * (KEPT_GONE + 4)


def test_with_times_a_worker_has_one_share_whose_bound_follows_the_latest_row(tmp_path: Path) -> None:
    """A late file has late rows."""
    for name, at in (("a", 5), ("c", 9)):
        write_rows(tmp_path / f"{name}.json", [{"at": at}])
    source = FilesSource("S", str(tmp_path), "json", most_splits=1)
    reader = reader_of(planned(source, 1, None, EventTime("at", late=2), "S"), 0, 1)
    bounds = []
    for _ in range(2):
        reader.read(NOW, 1)
        bounds.append(reader.bounds)
    write_rows(tmp_path / "b.json", [{"at": 1}])
    assert bounds == [{0: 3}, {0: 7}]
    batch, _ = reader.read(NOW + SECOND, 1)
    assert batch["at"].to_pylist() == [1]
    assert (reader.bounds, reader.least) == ({0: 7}, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": ""}, "files takes the path of a directory or a glob; got ''"),
        ({"format": "cvs"}, r"files got format='cvs'; expected parquet, csv or json .*; did you mean 'csv'\?"),
        ({"format": None}, "files got format=None"),
        ({"order": "size"}, "files got order='size'; expected 'name' or 'time'"),
        ({"schema": {"n": int}}, r"files got schema=.*; expected a pyarrow.Schema with a column, or None"),
        ({"until": ""}, "files got until=''; expected the name of a file"),
        ({"quiet_s": -1}, "files got quiet_s=-1; expected seconds, 0 or more"),
        ({"rate": 0}, "rate is a number of rows a second above 0"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], said: str) -> None:
    """By the call."""
    with pytest.raises(SourceError, match=said):
        files(**{"path": "in", "format": "csv", **options})


def test_a_description_is_a_source() -> None:
    """With a rate as any other."""
    flow = DataflowBuilder("flow")
    flow.source("in", files("in", "parquet", rate=5))
    assert flow.graph().operator("in").function.rate == 5.0


def test_a_reader_says_where_it_is_and_how_long_files_have_waited(tmp_path: Path) -> None:
    """For ``run.explain()``; what is waited for is not known in rows."""
    (tmp_path / "empty").mkdir()
    for number in range(3):
        write_rows(tmp_path / f"{number}.json", [{"n": n} for n in range(5)], NOW / 1e9 - 10 * (number + 1))
    reader = opened(tmp_path, "json")
    assert (reader.place, opened(tmp_path / "empty", "json").behind(NOW)) == ("", (0, 0))
    reader.read(3, NOW)
    assert reader.place == "0.json, row 3"
    assert reader.behind(NOW) == (None, 30 * SECOND)
    rows_of(reader)
    assert (reader.place, reader.behind(NOW)) == ("split 0 waits: 3 files read", (0, 0))


def test_one_column_that_looks_like_several_is_refused(tmp_path: Path) -> None:
    """With the option that divides it; if the delimiter is given, it is as given."""
    (tmp_path / "a.csv").write_text("n;name\n1;x\n")
    os.utime(tmp_path / "a.csv", (NOW / 1e9 - 10,) * 2)
    with pytest.raises(SourceError, match=r"a.csv .*only column is 'n;name'; likely csv={'delimiter': ';'}"):
        rows_of(opened(tmp_path, "csv"))
    assert rows_of(opened(tmp_path, "csv", csv={"delimiter": ";"})) == [{"n": 1, "name": "x"}]
    assert rows_of(opened(tmp_path, "csv", csv={"delimiter": ","})) == [{"n;name": "1;x"}]
