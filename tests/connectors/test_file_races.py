"""Files that are renamed, or go, between a listing and the reading, or a reading and a checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from file_setting import opened, rows_of, write_rows
from source_contract import NOW, SECOND, kept, shipped

from fries_nb.connectors import file_listing
from fries_nb.connectors.file_formats import JsonFormat
from fries_nb.connectors.file_listing import FileListing, hashed
from fries_nb.connectors.files import FilesSource
from fries_nb.connectors.source import Position

ROWS = [{"n": n} for n in range(5)]


@pytest.fixture
def before_opening(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Lets something happen once, when a file of JSON is about to be opened."""

    def arranged(happen: Callable[[], Any]) -> None:
        pieces = JsonFormat.pieces

        def late(*arguments: Any) -> Any:
            monkeypatch.undo()
            happen()
            return pieces(*arguments)

        monkeypatch.setattr(JsonFormat, "pieces", late)

    return arranged


def test_a_file_that_is_renamed_as_it_is_opened_is_read_under_its_new_name(
    tmp_path: Path, before_opening: Callable[[Callable[[], Any]], None]
) -> None:
    """Once."""
    write_rows(tmp_path / "a.json", ROWS)
    reader = opened(tmp_path, "json")
    before_opening(lambda: (tmp_path / "a.json").rename(tmp_path / "b.json"))
    assert rows_of(reader) == []
    assert rows_of(reader, NOW + SECOND) == ROWS
    assert rows_of(reader, NOW + 2 * SECOND) == []


def test_a_file_that_goes_as_it_is_opened_is_passed_over_and_read_when_it_comes_back(
    tmp_path: Path, before_opening: Callable[[Callable[[], Any]], None]
) -> None:
    """Under any name: it was not read."""
    write_rows(tmp_path / "a.json", ROWS)
    write_rows(tmp_path / "b.json", [{"n": 7}])
    reader = opened(tmp_path, "json")
    before_opening(lambda: (tmp_path / "a.json").rename(tmp_path / "_a.json"))
    assert rows_of(reader) == []
    assert rows_of(reader, NOW + SECOND) == [{"n": 7}]
    (tmp_path / "_a.json").rename(tmp_path / "c.json")
    assert rows_of(reader, NOW + 2 * SECOND) == ROWS


def test_a_copy_is_a_file_of_its_own(tmp_path: Path) -> None:
    """Even one of the same time, as long as the other is there."""
    write_rows(tmp_path / "a.json", ROWS)
    reader = opened(tmp_path, "json")
    assert rows_of(reader) == ROWS
    write_rows(tmp_path / "b.json", ROWS)
    assert rows_of(reader, NOW + SECOND) == ROWS
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").rename(tmp_path / "c.json")
    assert rows_of(reader, NOW + 2 * SECOND) == []


def test_a_file_that_is_renamed_while_it_is_read_is_read_on_after_a_restart(tmp_path: Path) -> None:
    """By its content."""
    write_rows(tmp_path / "a.json", ROWS)
    reader = opened(tmp_path, "json")
    assert reader.read(2, NOW) is not None
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert rows_of(opened(tmp_path, "json", kept(reader.position or Position()))) == ROWS[2:]
    assert rows_of(reader, NOW + SECOND) == ROWS[2:]


def test_a_renamed_file_is_known_only_as_long_as_the_split_that_has_read_it_knows_it(tmp_path: Path) -> None:
    """The other split may go on from a checkpoint behind its skipping, and the first from one before its reading."""
    names = [[f"{n}.json" for n in range(20) if hashed(f"{n}.json") % 2 == split] for split in (0, 1)]
    source = FilesSource("S", str(tmp_path), "json", most_splits=2)
    there, splits = shipped(source, tuple(source.splits(2)))
    first, second = (there.open(split, Position()) for split in splits)
    write_rows(tmp_path / names[0][0], ROWS)
    assert rows_of(first) == ROWS
    (tmp_path / names[0][0]).rename(tmp_path / names[1][0])
    write_rows(tmp_path / names[1][1], [{"n": 7}])
    assert rows_of(second, NOW + SECOND) == [{"n": 7}]
    for before, expected in ((Position(), ROWS), (kept(first.position), [])):
        again, _ = shipped(source, splits)
        readers = [again.open(splits[0], before), again.open(splits[1], kept(second.position))]
        assert list(itertools.chain.from_iterable(rows_of(one, NOW + 2 * SECOND) for one in readers)) == expected


def test_a_file_is_not_quiet_for_want_of_a_look_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing may take long, and then is rare: what has grown since the last one looks as old as it was then."""
    monkeypatch.setattr(file_listing, "LOOK_NS", 5 * SECOND)
    listing = FileListing("S", str(tmp_path), JsonFormat(), "name", None, quiet_s=1.0)
    write_rows(tmp_path / "a.json", [{"n": 1}], NOW / SECOND)
    [entry] = listing.look(NOW).entries
    write_rows(tmp_path / "a.json", [{"n": 1}, {"n": 2}], NOW / SECOND + 2)
    for passed in (0, 2, 4):
        assert listing.look(NOW + passed * SECOND).entries == (entry,)
        assert listing.content(entry) == b""
    [grown] = listing.look(NOW + 5 * SECOND).entries
    assert grown != entry
    assert listing.content(grown) != b""
