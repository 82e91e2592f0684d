"""Taps at one worker: what they find, the time that they take, what they drop, and how they end."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import ChannelId, Data, LookAtRows, RowsSeen, WorkerId
from fries_nb.protocol.topology import Topology, wire
from fries_nb.worker.events import Arrived, Granted
from fries_nb.worker.looks import PIECE_NS
from fries_nb.worker.row_taps import BETWEEN_LOOKS, SAVED_NS, SHARE, TOLD_NS, RowTap, TapBudget
from fries_nb.worker.worker import Worker


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    """The row with a further column."""
    return row | {"double": 2 * row["n"]}


def thirds(row: dict[str, Any]) -> dict[str, Any]:
    """The row with yet another one."""
    return row | {"third": row["n"] / 3}


class Clock:
    """Goes on when it is told to."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Tapped:
    """A worker of a map, or of two in a chain, with a tap at one of its operators."""

    def __init__(
        self, where: Any, most: int = 100, lasts_ns: int = 10**9, of: str = "M", chained: bool = False
    ) -> None:
        operators = [Operator("M", function=doubled)] + [Operator("L", function=thirds)] * chained
        ends = Operator("S", kind=Kind.SOURCE, emits=Emits.ONE_TO_ONE), Operator("out", kind=Kind.SINK)
        names = ["S", *(one.name for one in operators), "out"]
        edges = tuple(Edge(*pair) for pair in pairwise(names))
        topology = Topology.dealt(Graph("g", (ends[0], *operators, ends[1]), edges), hosts=1, chaining=False)
        wiring = wire(topology, tuple(one.name for one in operators), 0)
        made = [Instance(WorkerId(one.name, 0), one, one.function, audit=False) for one in wiring.chain]
        self.clock = Clock()
        self.worker = Worker(wiring, made, 1 << 40, self.clock)
        self.channel: ChannelId = wiring.incoming[0]
        self.worker.handle(Granted(wiring.edges[0].channels[0], 1 << 40))
        self.where, self.most, self.lasts_ns, self.of = where, most, lasts_ns, of
        self.budget = TapBudget(self.clock)
        self.parts: list[RowsSeen] = []

    def begin(self) -> RowTap:
        """Open the tap."""
        order = LookAtRows(7, self.most, cloudpickle.dumps(self.where), self.lasts_ns)
        self.tap = RowTap(order, WorkerId(self.of, 0), self.worker, self.budget, self.clock)
        self.worker.passed = []
        return self.tap

    def process(self, *numbers: int) -> None:
        """Process rows with these numbers."""
        rows = [{"n": number, "_fries_due": 0} for number in numbers]
        self.worker.handle(Arrived(self.channel, Data(pa.RecordBatch.from_pylist(rows))))
        while self.worker.run():
            pass
        self.worker.outbox.flush()
        self.worker.take()

    def advance(self) -> RowsSeen | None:
        """Let the tap go on for a piece."""
        part = self.tap.advance(self.worker, self.worker.passed or [])
        (self.worker.passed or []).clear()
        self.parts += [part] if part is not None else []
        return part

    def found(self, side: str = "went") -> list[int]:
        """The numbers of the rows that were found."""
        return [row["n"] for part in self.parts for rows in pickle.loads(getattr(part, side) or pickle.dumps([]))
                for row in (rows.to_pylist() if isinstance(rows, pa.RecordBatch) else [rows])]  # fmt: skip


def test_kept_rows_are_tried_first_then_those_that_pass() -> None:
    """Each once; what the operator adds is there on the way out only, and counts as absent on the way in."""
    tapped = Tapped(lambda row: row["double"] > 10)
    tapped.process(4, 6, 7)
    tapped.begin()
    tapped.advance()
    assert tapped.found() == [7, 6]
    tapped.process(1, 9)
    tapped.process(8)
    tapped.advance()
    assert tapped.advance() is None
    assert (tapped.found(), tapped.found("came")) == ([7, 6, 9, 8], [])
    tapped.clock.now_ns = 10**9
    last = tapped.advance()
    assert last is not None
    assert (last.is_last, last.error, last.lacked, last.columns) == (True, "", "", ("n", "double"))
    assert sum(part.counts.seen for part in tapped.parts) == 12
    assert tapped.advance() is None


def test_of_each_side_some_rows_are_tried_though_no_time_is_left() -> None:
    """So that a wrong column is told; all others are dropped."""
    tapped = Tapped(lambda row: row["n"] > 0, most=100, lasts_ns=10**12)
    tapped.process(*range(1, 21))
    with tapped.budget.piece():
        tapped.clock.now_ns += 10**9  # another tap has taken long
    tapped.begin()
    for _ in range(2):
        tapped.process(*range(21, 30))
        tapped.advance()
        assert len(tapped.found()) == len(tapped.found("came")) == BETWEEN_LOOKS
    wrong = Tapped(lambda row: row["price"], lasts_ns=10**12)
    with wrong.budget.piece():
        wrong.clock.now_ns += 10**9
    wrong.process(1, 2)
    wrong.begin()
    part = wrong.advance()
    assert part is not None
    assert "KeyError: 'price' on a row that is in; it has the columns n" in part.error


def test_a_tap_that_finds_nothing_tells_what_it_has_seen_once_a_second() -> None:
    """Since it may end with its host."""
    tapped = Tapped(lambda row: False, lasts_ns=10**12)
    tapped.begin()
    for second in range(3):
        tapped.clock.now_ns = second * TOLD_NS
        tapped.process(second)
        tapped.advance()
        assert tapped.advance() is None
        assert sum(part.counts.seen for part in tapped.parts) == (second + 1) * 2 * (second > 0)


def test_a_tap_ends_with_the_rows_that_were_asked_for() -> None:
    """No further row is told."""
    tapped = Tapped(lambda row: row["n"] > 0, most=3)
    tapped.begin()
    tapped.process(1, 2, 3, 4, 5)
    part = tapped.advance()
    assert part is not None
    assert (tapped.found(), part.counts.went, part.is_last) == ([1, 2, 3], 3, True)


def test_a_tap_whose_asker_is_gone_ends_by_its_time() -> None:
    """Without a row that passes, when its worker is run next."""
    tapped = Tapped(lambda row: False, lasts_ns=5)
    tapped.begin()
    assert tapped.advance() is None
    tapped.clock.now_ns = 5
    part = tapped.advance()
    assert part is not None
    assert part.is_last


def test_rows_for_which_no_time_is_left_are_dropped_and_counted() -> None:
    """Its share is the limit, over any time."""
    tapped = Tapped(lambda row: row["n"] >= 0, most=10**6, lasts_ns=10**12)
    tapped.begin()

    def slow(row: dict[str, Any]) -> bool:
        tapped.clock.now_ns += PIECE_NS // 4
        tapped.spent_ns += PIECE_NS // 4  # type: ignore[attr-defined]
        return True

    tapped.spent_ns = 0  # type: ignore[attr-defined]
    tapped.tap._condition._where = slow
    for _ in range(300):
        tapped.process(*range(64))
        tapped.clock.now_ns += 10**6
        tapped.advance()
    counts = [part.counts for part in tapped.parts]
    assert sum(one.seen for one in counts) > sum(one.dropped for one in counts) > 0
    assert sum(one.seen for one in counts) == sum(one.dropped + one.judged for one in counts)
    pieces = SAVED_NS + SHARE * tapped.clock.now_ns + 8 * PIECE_NS // 4  # the last rows of a piece may take longer
    assert tapped.spent_ns <= pieces  # type: ignore[attr-defined]


@pytest.mark.parametrize(("where", "error", "lacked", "row"), [
    (lambda row: 1 / (row["n"] - 2), "where raised ZeroDivisionError: division by zero on a row that is in", "",
     {"n": 2}),
    (lambda row: row["price"] > 1, "where raised KeyError: 'price' on a row that is in; it has the columns n", "same",
     None),
])  # fmt: skip
def test_a_condition_that_raises_ends_the_tap(where: Any, error: str, lacked: str, row: Any) -> None:
    """With the row, or with the columns that are there."""
    tapped = Tapped(where)
    tapped.begin()
    tapped.process(1, 2, 3)
    part = tapped.advance()
    assert part is not None
    assert (part.is_last, part.error, part.lacked) == (True, error, error if lacked else "")
    assert (pickle.loads(part.row) if part.row else None) == row


def test_a_condition_that_cannot_be_unpickled_ends_the_tap() -> None:
    """At once."""
    tapped = Tapped(None)
    tap = RowTap(LookAtRows(7, 5, b"cshop\nTotal\n.", 10), WorkerId("M", 0), tapped.worker, tapped.budget, tapped.clock)
    part = tap.advance(tapped.worker, [])
    assert part is not None
    assert part.is_last
    assert part.error.startswith("where cannot be unpickled at M[0]: ModuleNotFoundError")


def test_between_two_functions_the_rows_that_are_kept_are_tried_and_the_others_counted() -> None:
    """None of them twice."""
    tapped = Tapped(lambda row: row["double"] >= 0, of="M", chained=True)
    tapped.process(1)
    tapped.begin()
    tapped.advance()
    assert tapped.found() == [1]
    for numbers in ((2, 3, 4), (5,), ()):
        tapped.process(*numbers)
        tapped.advance()
    found = tapped.found()
    assert len(found) == len(set(found)) < 5
    assert set(found) <= {1, 2, 3, 4, 5}
    tapped.clock.now_ns = 10**9
    tapped.advance()
    counts = [part.counts for part in tapped.parts]
    assert sum(one.seen for one in counts) == 10
    assert sum(one.judged for one in counts) == len(found)
    assert sum(one.dropped for one in counts) == 5 - len(found)
    tapped = Tapped(lambda row: row["third"] >= 0, of="L", chained=True)
    tapped.begin()
    tapped.process(1, 2)
    tapped.advance()
    assert tapped.found() == [1, 2]  # behind the last function rows are batches


def test_copies_of_rows_in_a_chain_take_of_the_same_time_and_leave_some_to_try_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows are found all the time, however long copies take, and not too many."""
    tapped, spent = Tapped(lambda row: row["n"] >= 0, most=10**6, lasts_ns=10**12, of="M", chained=True), 0
    samples = tapped.worker.executor.samples

    def slow(position: int) -> Any:
        nonlocal spent
        spent += PIECE_NS // 2
        tapped.clock.now_ns += PIECE_NS // 2
        return samples(position)

    monkeypatch.setattr(tapped.worker.executor, "samples", slow)
    tapped.begin()
    found = []
    for number in range(600):
        tapped.process(number)
        tapped.clock.now_ns += 2_000_000
        tapped.advance()
        found.append(len(tapped.found()))
    assert found[199] < found[399] < found[599]
    assert spent <= SAVED_NS + SHARE * tapped.clock.now_ns + PIECE_NS
