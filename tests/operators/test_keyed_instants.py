"""Every kind of operator with a key tells two instants of the repeated hour apart, and unites zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from operator_setting import Count, batch, execution, guarded, instance, letters, outcome
from window_setting import Sum, TimedRun

from fries_nb.dataflow import JoinTable, Kind, Operator
from fries_nb.dataflow.windowing import WindowFunction, Windowing
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import WorkerId
from fries_nb.worker.saving import saved
from fries_nb.worker.snapshot import restore

BERLIN = pa.timestamp("us", "Europe/Berlin")
FIRST = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
SECOND = FIRST + timedelta(hours=1)


def instants(*moments: datetime, kind: pa.DataType = BERLIN) -> pa.Array:
    """A column of these instants."""
    return pa.array(moments, pa.timestamp("us", "UTC")).cast(kind)


def again(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its time as a function has made it, in Python."""
    return row | {"at": row["at"].astimezone(ZoneInfo("America/New_York"))}


@pytest.mark.parametrize("count", [6, 600])
@pytest.mark.parametrize("key", [("at",), ("at", "k")])
def test_a_map_counts_instants(count: int, key: tuple[str, ...]) -> None:
    """By the common path and by the inner loop; whether the key came in a column or was written by a function."""
    data = batch(at=instants(*[FIRST, SECOND] * count), k=[1, 1] * count)
    for chain in (
        [instance("M", Kind.MAP, Count(), key=key)],
        [instance("Z", Kind.MAP, again), instance("M", Kind.MAP, Count(), key=key)],
        [instance("Z", Kind.FLAT_MAP, lambda row: [row]), instance("M", Kind.MAP, Count(), key=key)],
    ):
        running = execution(*chain)
        for frame in range(2):
            seen = [row["seen"] for row in outcome(running, data, quota=10**6)]
            assert seen == [frame * count + n // 2 + 1 for n in range(2 * count)]
        assert len(chain[-1].state) == 2


@pytest.mark.parametrize("kind", [BERLIN, pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("s", "America/New_York")])
def test_a_dedup_passes_each_instant_once(kind: pa.DataType) -> None:
    """Also after rows of another zone."""
    dedup = instance("D", Kind.DEDUP, None, key=("at",))
    assert len(outcome(execution(dedup), batch(at=instants(FIRST, SECOND, FIRST, kind=kind)))) == 2
    assert outcome(execution(dedup), batch(at=instants(SECOND, FIRST))) == []


def test_a_self_join_pairs_instants_of_two_zones() -> None:
    """The right side has them in UTC, the other way round."""
    running = execution(instance("J", Kind.SELF_JOIN, "_right", key=("at",)))
    assert outcome(running, batch(at=instants(FIRST, SECOND), l=[1, 2])) == []
    right = outcome(running, batch(at=instants(SECOND, FIRST, kind=pa.timestamp("us", "UTC")), r=[2, 1]), "R")
    assert [(row["l"], row["r"]) for row in right] == [(2, 2), (1, 1)]


def test_a_join_finds_instants() -> None:
    """In a table of another zone and unit."""
    table = pa.table({"at": instants(FIRST, SECOND, kind=pa.timestamp("ms", "Asia/Tokyo")), "v": [1, 2]})
    join = JoinTable("J", table, {"at": "at"})
    join.open()
    assert [
        row["v"] for row in outcome(execution(instance("J", Kind.JOIN, join)), batch(at=instants(SECOND, FIRST)))
    ] == [2, 1]


def test_windows_are_those_of_an_instant() -> None:
    """Two keys of one clock have two windows, and each closes with its own rows."""
    function = WindowFunction(Sum(), Windowing(10, 10))
    operator = Operator("W", kind=Kind.WINDOW, function=function, key=("k",), branches=2)
    run = TimedRun(Instance(WorkerId("W", 0), operator, function, audit=False))
    shown = instants(FIRST, SECOND, FIRST).to_pylist()
    run.frame([{"k": key, "n": n} for key, n in zip(shown, (1, 10, 100), strict=True)], [1, 2, 3])
    assert len(run.instance.state) == 2
    closed = sorted(row["total"] for _, row in run.fire())
    assert closed == [10, 101]
    assert not run.instance.state.live


class Remind:
    """Counts a key's rows, and tells the count when their time has passed."""

    def process(self, row: dict[str, Any], state: dict[str, int], at: Any) -> None:
        state["rows"] = state.get("rows", 0) + 1
        at.call(at.time)

    def due(self, key: Any, time: Any, state: dict[str, int]) -> dict[str, Any]:
        return {"key": key, "rows": state["rows"]}


def test_timed_functions_are_called_for_each_instant_once() -> None:
    """Also for one that two zones have shown."""
    run = TimedRun(
        Instance(WorkerId("R", 0), Operator("R", function=Remind(), key=("k",)), Remind(), audit=False), branches=1
    )
    for kind in (BERLIN, pa.timestamp("us", "UTC")):
        run.frame([{"k": key} for key in instants(FIRST, SECOND, kind=kind).to_pylist()], [5, 5])
    found = [(row["key"].astimezone(UTC), row["rows"]) for _, row in run.fire()]
    assert sorted(found) == [(FIRST, 2), (SECOND, 2)]


def test_a_tuple_that_fails_leaves_the_state_of_its_own_instant() -> None:
    """What it did to the second time is undone there, not at the first."""

    class Picky(Count):
        def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
            counted = super().process(row, state)
            return counted if row["ok"] else 1 / 0

    guard, kept = guarded(Kind.MAP, Picky(), key=("at",))
    rows = outcome(execution(guard), batch(at=instants(FIRST, SECOND, SECOND, FIRST), ok=[True, False, True, True]))
    assert [row["seen"] for row in rows] == [1, 1, 2]
    assert len(letters(kept)) == 1


def test_a_snapshot_has_two_instants_and_restores_them() -> None:
    """In the bins of their rows."""
    one, other = (instance("M", Kind.MAP, Count(), key=("at",)) for _ in range(2))
    outcome(execution(one), batch(at=instants(FIRST, SECOND)))
    restore(other, saved(one), ())
    assert [row["seen"] for row in outcome(execution(other), batch(at=instants(FIRST, SECOND, SECOND)))] == [2, 2, 3]


@pytest.mark.parametrize(
    ("value", "kind"), [([1], "list"), ({"a": 1}, "dict"), (np.array([1]), "(ndarray|list)"), (1j, "complex")], ids=repr
)
def test_a_key_that_can_be_none_is_that_tuples_failure(value: Any, kind: str) -> None:
    """In one sentence, for every kind; the other tuples are counted."""
    for key, make in (
        (("k",), lambda: (Kind.MAP, Count())), (("k", "n"), lambda: (Kind.MAP, Count())),
        (("k",), lambda: (Kind.DEDUP, None)), (("k",), lambda: (Kind.SELF_JOIN, "_right")),
    ):  # fmt: skip
        write = instance("Z", Kind.MAP, lambda row: {"n": row["n"], "k": value if row["n"] == 1 else "a"})
        keyed = instance("K", *make(), key=key)
        with pytest.raises(Exception, match=rf"(\({kind}\) cannot be a key; expected numbers|no column type holds)"):
            outcome(execution(write, keyed), batch(n=[1, 2]))


@pytest.mark.parametrize("kind", [Kind.MAP, Kind.DEDUP])
def test_a_key_that_can_be_none_is_a_dead_letter_of_its_operator(kind: Kind) -> None:
    """Others pass."""
    guard, kept = guarded(kind, Count() if kind is Kind.MAP else None, key=("k",))
    lists = pa.array([[1], None], pa.list_(pa.int64()))
    assert len(outcome(execution(guard), batch(k=lists))) == 1
    (letter,) = letters(kept)
    assert "[1] (list) cannot be a key; expected numbers, text, bytes, times or UUIDs" in letter["error"]
