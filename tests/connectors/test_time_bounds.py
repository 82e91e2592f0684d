"""Bounds of sources that do not know their rows, and what the seeded cluster's sources supply."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_contract import NOW, reader_of

import fries_nb as fn
from fries_nb.connectors import row_times
from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.source import Position, RuntimeSource, Split
from fries_nb.connectors.worker_reader import WorkerReader, planned
from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import SourceError
from fries_nb.progress.times import EARLIEST
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.readers import ListReader, ListSource, Supply
from fries_nb.worker.events import Supplied


class Live(RuntimeSource):
    """A source of the user's own: four splits, in an order or not, and it knows no row before it is read."""

    def __init__(self, times: list[Any], step: int, kind: pa.DataType | None = None) -> None:
        self.times, self.step = times, step
        self.rows = pa.record_batch({"at": pa.array(times, kind), "row": pa.array(range(len(times)), pa.int64())})

    def splits(self, count: int) -> list[Split]:
        """Row n is in split n % 4."""
        return [Split(number, None, number, self.step) for number in range(4)]

    def open(self, split: Split, position: Position) -> ListReader:
        """Its rows are in memory."""
        return ListReader(self.rows.take(pa.array(range(split.number, len(self.times), 4), pa.int64())), position)


def reader(source: Any, time: EventTime, **how: Any) -> WorkerReader:
    """The only worker of a source that is called ``pay``."""
    plan = planned(source, 1, None, time, "pay")
    return reader_of(plan, 0, 1, how.get("positions"), how.get("bounds"))


def check_latest(chance: random.Random) -> None:
    """The bound is the latest time less ``late``: of the split, or of all that are read in an order; also resumed."""
    times = [chance.randint(0, 50) for _ in range(chance.randint(4, 30))]
    late, step = chance.choice([None, 0, 3]), chance.choice([0, 4])
    source = Live(times, step)
    model = dict.fromkeys(range(4), EARLIEST)
    positions: dict[int, Position | None] = {}
    read: set[int] = set()
    while len(read) < len(times):
        one = reader(source, EventTime("at", late=late), positions=positions, bounds=model)
        for _ in range(chance.randint(1, 5)):
            rows = {split: [row for row in range(split, len(times), 4) if row not in read] for split in range(4)}
            model = {split: bound for split, bound in model.items() if rows[split]}
            assert one.bounds == model
            assert one.next_time == min(model.values(), default=None)
            batch, _ = one.read(NOW, chance.randint(1, 4))
            positions.update(one.moved)
            if batch is None:
                break
            read.update(batch["row"].to_pylist())
            latest = max(batch[TIME].to_pylist()) - (late or 0)
            for split in model if step else one.moved:
                model[split] = max(model[split], latest)
    assert one.exhausted
    assert one.bounds == {}


@given(st.randoms(use_true_random=False))
def test_bounds_follow_the_latest_row(chance: random.Random) -> None:
    """They never decrease, whatever comes; a reader that goes on has the bounds that it is given."""
    check_latest(chance)


def earliest_row(self: Any, moved: Any, times: Any, advance: Any = row_times.LatestBounds.advance) -> None:
    """The least time of a batch for the largest."""
    least = None if times is None else pa.array([min(times.to_pylist())])
    advance(self, moved, least)


def not_begun(self: Any, splits: Any, late: Any, saved: Any, begin: Any = row_times.LatestBounds.__init__) -> None:
    """Bounds of the checkpoint do not count."""
    begin(self, splits, late, {})


def never_late(self: Any, splits: Any, late: Any, saved: Any, begin: Any = row_times.LatestBounds.__init__) -> None:
    """``late`` does not count."""
    begin(self, splits, 0, saved)


def in_order(self: Any, splits: Any, late: Any, saved: Any, begin: Any = row_times.LatestBounds.__init__) -> None:
    """The bound of one split counts for all."""
    begin(self, splits, late, saved)
    self._ordered = True


@pytest.mark.parametrize(
    ("name", "defect"),
    [("advance", earliest_row), ("__init__", not_begun), ("__init__", never_late), ("__init__", in_order)],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_defect_of_bounds_is_found(name: str, defect: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a few random sources."""

    def check() -> None:
        for seed in range(30):
            check_latest(random.Random(seed))

    monkeypatch.setattr(row_times.LatestBounds, name, defect)
    with pytest.raises((AssertionError, KeyError)):
        check()


@pytest.mark.parametrize("time", ["value", "timestamp"])
def test_rows_of_rate_are_never_late(time: str) -> None:
    """Neither their values nor the times when they were due decrease."""
    one = reader_of(planned(RateSource(200), 1, 10_000.0, EventTime(time), "pay"), 0, 1)
    for step in range(40):
        bound, (batch, _) = one.next_time, one.read(NOW + step * 1_000_000, 100)
        if batch is not None:
            assert bound is not None
            assert bound <= min(batch[TIME].to_pylist())
    assert one.exhausted


def test_how_far_to_read_ahead_is_known_with_the_first_row() -> None:
    """In the unit of the times."""
    for kind, ahead in ((pa.timestamp("s"), 1_500_000_000), (pa.int16(), 2)):
        one = reader(Live([3, 4], 0, kind), EventTime("at", ahead=1.5))
        assert one.ahead_ticks is None
        one.read(NOW, 1)
        assert one.ahead_ticks == ahead
        assert reader(Live([3, 4], 0, kind), EventTime("at")).ahead_ticks is None


@pytest.mark.parametrize("step", [0, 4])
def test_a_row_without_a_time_is_named(step: int) -> None:
    """By its number in its split, and by its values."""
    one = reader(Live([1, 2, 3, 4, 5, 6, None, 8], step), EventTime("at"))
    with pytest.raises(SourceError, match=r"null in row 1 of split 2, \{'at': None, 'row': 6\}; expected a time in"):
        list(iter(lambda: one.read(NOW, 8), None))


@pytest.mark.parametrize(
    ("times", "kind", "said"),
    [
        ([1.5], None, "a column of double; expected timestamps, dates or integers"),
        ([2**63], pa.uint64(), "a time of which is out of range"),
    ],
)
def test_times_of_a_live_source_are_refused_when_they_are_read(times: Any, kind: Any, said: str) -> None:
    """Its columns are not known before."""
    with pytest.raises(SourceError, match=f"source 'S' has time='at', {said}"):
        reader(Live(times, 0, kind), EventTime("at")).read(NOW, 1)
    with pytest.raises(SourceError, match=r"has time='row_', but no such column; .* did you mean 'row'"):
        reader(Live([1], 0), EventTime("row_")).read(NOW, 1)


def test_times_do_not_change_their_type_on_the_way() -> None:
    """Numbers of both kinds cannot be compared."""
    source = Live([1, 2], 0)
    one = reader(source, EventTime("at"))
    one.read(NOW, 1)
    for open_split in one._open:
        open_split.reader = ListReader(Live([1, 2], 0, pa.timestamp("s")).rows, open_split.position)
    with pytest.raises(SourceError, match=r"makes times of type timestamp\[ns\] in some rows and int64 in others"):
        one.read(NOW, 1)


class Count:
    """Reads the times of rows."""

    def initial_state(self) -> list[int]:
        """No row."""
        return []

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Nothing."""

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """A row a window."""
        return {"n": key}


@pytest.mark.parametrize("source", [RateSource(20), ListSource([{"value": value} for value in range(20)])])
def test_times_that_no_operator_reads_are_not_carried(source: Any) -> None:
    """Their bounds are the same."""
    with_times, without = (
        reader(source, EventTime("value", ahead=1, carried=carried)) for carried in (True, False)
    )
    while not without.exhausted:
        batch, _ = without.read(NOW, 3)
        assert batch is not None
        assert TIME not in batch.schema.names
        with_times.read(NOW, 3)
        assert without.bounds == with_times.bounds
        assert without.ahead_ticks == 1


def test_the_seeded_cluster_supplies_times_and_bounds() -> None:
    """Exact ones, before the first row and after each batch, until the end of each worker."""
    flow = fn.Dataflow("timed")
    payments = flow.source("S", fn.rate(None), workers=3, time="at", ahead=7)
    payments.window("W", Count(), fn.tumbling(4), key="n").sink("Sink", fn.memory())
    times = [5, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3] * 5
    graph = flow.graph()
    supply = Supply(graph, {"S": [{"n": n, "at": at} for n, at in enumerate(times)]}, random.Random(1), NOW)
    rest = set(range(len(times)))
    assert set(supply.ahead_ticks.values()) == {7}
    while rest:
        assert min(min(bounds.values()) for bounds in supply.bounds.values() if bounds) == min(times[n] for n in rest)
        for source in supply.sources:
            supplied = supply.next(source)
            if isinstance(supplied, Supplied) and supplied.batch is not None:
                assert supplied.batch[TIME].to_pylist() == supplied.batch["at"].to_pylist()
                rest -= set(supplied.batch["n"].to_pylist())
    assert not any(supply.bounds.values())
    assert supply.bounds.keys() == {WorkerId("S", index) for index in range(3)}


def test_the_seeded_cluster_supplies_no_bounds_without_times() -> None:
    """As before."""
    flow = fn.Dataflow("untimed")
    flow.source("S", fn.rate(None), workers=2).sink("Sink", fn.memory())
    supply = Supply(flow.graph(), {"S": [{"n": 1}]}, random.Random(1), NOW)
    assert set(map(str, supply.bounds.values())) == {"{}"}
    assert set(supply.ahead_ticks.values()) == {None}
    supplied = supply.next(WorkerId("S", 0))
    assert isinstance(supplied, Supplied)
    assert supplied.batch is not None
    assert TIME not in supplied.batch.schema.names
