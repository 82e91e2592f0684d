"""A row that the audit names is read again by its number, where its source can; else it is told by its number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fries_nb.connectors.own_connectors import OwnSourceCopy
from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.replay import ReplaySource
from fries_nb.connectors.source import RuntimeSource, Split, TimeColumn
from fries_nb.connectors.worker_reader import SourcePlan, planned
from fries_nb.protocol.trace import SourceRow
from fries_nb.simulation.readers import ListSource

ROWS = 1_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Files of several row groups, with times."""
    table = pa.table({"n": list(range(ROWS)), "at": pa.array(range(ROWS), pa.timestamp("us"))})
    for number in range(3):
        part = table.slice(number * 400, 400)
        pq.write_table(part, tmp_path / f"{number}.parquet", row_group_size=70)
    return str(tmp_path)


def every_row(plan: SourcePlan, lengths: dict[int, int]) -> list[SourceRow | None]:
    """All rows of a plan, by the order of its splits."""
    return [plan.row("s", number, row) for number, length in lengths.items() for row in range(length)]


@pytest.mark.parametrize("timed", [False, True])
def test_every_row_of_a_replay_is_found_by_its_number(path: str, timed: bool) -> None:
    """Also where splits are blocks dealt in turn."""
    source = ReplaySource(path)
    splits = source.splits_in_blocks(5, TimeColumn("s", "at")) if timed else source.splits(5)
    plan = SourcePlan(source, tuple(splits), None)
    lengths = {one.number: sum(span["rows"] for span in one.content) for one in splits}
    found = every_row(plan, lengths)
    assert sorted(one.values["n"] for one in found if one is not None) == list(range(ROWS))
    assert all(one is not None and one.number == one.values["n"] and one.source == "s" for one in found)


def test_a_rate_makes_it_again() -> None:
    """With the columns of ``row=``, but without the time at which it was due."""
    plan = planned(RateSource(100, lambda value: {"half": value / 2}), 2, None)
    found = plan.row("numbers", 7, 2)
    assert found is not None
    assert found.values == {"value": found.number, "half": found.number / 2}
    assert found.shown == f"value {found.number}, half {found.number / 2}"


def test_one_that_cannot_is_told_by_its_number() -> None:
    """A function that fails, a file that is gone, and a source of one's own."""

    def broken(value: int) -> dict[str, Any]:
        raise RuntimeError("no")

    class Own(RateSource):
        row_at = RuntimeSource.row_at

    for source, unread in ((RateSource(100, broken), "RuntimeError: no"), (Own(100), "")):
        found = planned(source, 1, None).row("own", 3, 2)
        assert found == SourceRow("own", 3 + 2 * 16, {}, unread)
        assert found.shown == (f"cannot be read again: {unread}" if unread else "")
    assert planned(RateSource(100), 1, None).row("own", 99, 0) is None


def test_a_file_that_is_gone_costs_no_audit(path: str) -> None:
    """The verdict is more than its words."""
    plan = planned(ReplaySource(path), 1, None)
    for file in Path(path).glob("*.parquet"):
        file.unlink()
    found = plan.row("s", 0, 5)
    assert found is not None
    assert (found.number, found.values) == (5, {})
    assert "0.parquet" in found.shown


def test_a_source_of_ones_own_reads_a_row_again_if_it_has_the_method() -> None:
    """What is no row, or cannot be read, is told in its place."""

    class Own(ListSource):
        def __init__(self, values: Any) -> None:
            super().__init__([{"n": 1}])
            self.values = values

        def row_at(self, split: Split, number: int) -> Any:
            return self.values[split.number] | {"n": number} if self.values else 5

    for values, found, unread in (
        ([{"s": 0}, {"s": 1}], {"s": 1, "n": 7}, ""),
        ([{"s": 0}], {}, "source 'own': row_at() of Own raised IndexError: list index out of range"),
        ([], {}, "source 'own': row_at() of Own gave a int; expected a dict of the row's columns"),
    ):
        row = planned(OwnSourceCopy("own", cloudpickle.dumps(Own(values))), 1, None).row("own", 1, 7)
        assert row is not None
        assert (row.values, row.unread.removeprefix("SourceError: ")) == (found, unread)
