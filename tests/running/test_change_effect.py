"""The effect of a change as figures: windows of the same length, columns, and of what nothing is known."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from fries_nb.changes.change_effect import ChangeEffect, EffectFigure, Seen, measures_of, span_of
from fries_nb.dataflow.columns import DUE
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.driver.open_questions import Looked
from fries_nb.protocol.messages import RowsSeen, WorkerId
from fries_nb.running import change_records
from fries_nb.running.change_records import same_spans, told_of, watched
from fries_nb.telemetry.history import CountSample

FLOW = Graph(
    "flow",
    (
        Operator("S", kind=Kind.SOURCE), Operator("A"), Operator("B"), Operator("C"), Operator("D"),
        Operator("out", kind=Kind.SINK), Operator("other", kind=Kind.SINK),
    ),
    (
        Edge("S", "A"), Edge("A", "B"), Edge("B", "C", Partitioning.BROADCAST), Edge("C", "out"), Edge("S", "D"),
        Edge("D", "other"),
    ),
)  # fmt: skip


def samples(*counts: tuple[float, int, int]) -> list[CountSample]:
    """What A had done by some moments."""
    return [CountSample(at_s, {"A": (done, failed, done)}) for at_s, done, failed in counts]


def test_windows_have_one_length_and_none_is_told_of_too_little() -> None:
    """The shorter side counts; workers that were restarted have no figures."""
    before = samples((0, 0, 0), (5, 500, 0), (10, 1_000, 5))
    after = samples((20, 2_000, 5), (25, 2_250, 9))
    first, second = same_spans(before, after, 60.0)
    assert (first.seconds, first.counts) == (5, {"A": (500, 5, 500)})
    assert (second.seconds, second.counts) == (5, {"A": (250, 4, 250)})
    assert same_spans(before, after[:1], 60.0)[0].seconds == 0
    assert same_spans([], after, 60.0)[1].counts == {}
    assert span_of(samples((0, 900, 0), (5, 100, 0)), 5).counts == {}


def test_the_sinks_below_are_watched() -> None:
    """Targets that are gone are left out."""
    assert watched(FLOW, ["B", "gone"]) == ["B", "out"]
    assert set(watched(FLOW, ["S"])) == {"S", "out", "other"}


def figures(before: list[Any], after: list[Any]) -> dict[str, tuple[Any, Any]]:
    """The figures of a column."""
    sides = [Seen(rows={"A": [{"p": value} for value in side]}) for side in (before, after)]
    return {one.name: (one.before, one.after) for one in measures_of(["A"], *sides)}


def test_figures_of_columns() -> None:
    """NaN is missing; a truth value is no number; nested values are counted as they are written."""
    nan = float("nan")
    assert figures([1, 2.5, nan, None], [True, False, True, True]) == {
        "nulls": (0.5, 0.0), "mean": (1.75, None), "p10": (1.15, None), "p50": (1.75, None), "p90": (2.35, None),
        "top values": (None, "True 75 %, False 25 %"),
    }  # fmt: skip
    assert figures([[1], [1]], []) == {"nulls": (0.0, None), "top values": ("[1] 100 %", None)}
    assert figures([None], [None]) == {"nulls": (1.0, 1.0)}


def test_what_is_not_known_is_not_told() -> None:
    """No rates without windows; a selectivity of nothing is none."""
    assert list(measures_of(["A"], Seen(), Seen())) == []
    found = list(measures_of(["A"], Seen({"A": (0, 0, 0)}, 2.0), Seen({"A": (4, 0, 2)}, 2.0)))
    assert [(one.name, one.before, one.after) for one in found] == [
        ("rows/s", 0.0, 2.0), ("failures", 0, 0), ("selectivity", None, 0.5),
    ]  # fmt: skip
    assert "no rates, since less than 2 s was seen" in told_of(["A"], [Seen(), Seen()], [])
    assert told_of(["A"], [Seen(seconds=5.0), Seen(seconds=5.0, rows={"A": [{}]})], ["u2"]) == (
        "counts are of 5.0 s before the change began and of the last 5.0 s; columns are of the newest rows then and "
        "now: A 0 and 1; u2 changed the same since"
    )


@pytest.mark.parametrize(("operator", "from_s", "values"), [
    ("A", 5.0, [1, 2, 3]), ("out", 0.0, [7, 8]), ("out", 5.0, [8]),
])  # fmt: skip
def test_rows_of_operators_and_those_of_sinks_that_were_due_since(
    operator: str, from_s: float, values: list[int]
) -> None:
    """Workers keep no results of a changed operator from before; at a sink the time at which a row was due tells."""
    went = pickle.dumps([pa.RecordBatch.from_pydict({"p": [1, 2], DUE: [0, 0]}), {"p": 3}])
    came = pickle.dumps([pa.RecordBatch.from_pydict({"p": [7, 8], DUE: [4_000_000_000, 6_000_000_000]})])
    seen = [RowsSeen(1, WorkerId(operator, 0), came, went)]
    found = change_records._rows(FLOW, operator, seen, from_s)
    assert [row["p"] for row in found] == values
    assert not any(DUE in row for row in found)


def test_what_cannot_be_copied_before_a_change_is_left_out() -> None:
    """The others are kept."""
    before = change_records._Before(0.0, (), FLOW)
    parts = RowsSeen(1, WorkerId("A", 0)), RowsSeen(1, WorkerId("A", 1), error="no")
    change_records._keep(before, "A", Looked(1, parts))
    assert before.rows["A"] == [parts[0]]


def test_an_effect_is_a_table_in_which_what_differs_is_marked() -> None:
    """Words below say of what it is."""
    figures = EffectFigure("A", "p", "mean", 0.5, 0.25), EffectFigure("A", "", "failures", 0, 0)
    effect = ChangeEffect("u1", figures, "of 5 s")
    assert list(effect.table) == ["operator", "column", "measure", "before", "after"]
    assert effect._repr_html_().count("<mark>") == 1
    assert repr(effect).endswith("of 5 s")
