"""Rows before and after a change as values: what differs, how rows are paired, and who waits for them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from patience import looks
from queue_setting import Desk, function

from fries_nb.changes.change_effect import ChangeEffect, EffectFigure
from fries_nb.changes.change_examples import (
    CHANGES_HEARD,
    Example,
    Examples,
    HeardExamples,
    checked_number,
    examples_of,
    is_same,
    told_examples,
)
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.updates import Update
from fries_nb.errors import PlanError, RunError
from fries_nb.protocol.messages import Compared, Rehearse, WorkerId
from fries_nb.report.change_rows import effect_parts, example_parts
from fries_nb.worker.side_by_side import ComparedTuple, Made, told

NAN = float("nan")


def made(came: dict[str, Any], before: Any, after: Any) -> list[tuple[str, tuple[str, ...]]]:
    """What becomes of a row, and the columns that differ."""
    sides = [one if isinstance(one, Made) else Made(tuple(one)) for one in (before, after)]
    return [(one.result, one.differs) for one in examples_of(ComparedTuple("M", 0, came, *sides))]


def test_values_are_the_same_as_far_as_a_user_can_tell() -> None:
    """NaN is NaN, also inside of lists; a truth value is no number; what raises when compared is compared as bytes."""

    class Vague:
        """Says of nothing whether it is equal."""

        def __eq__(self, other: object) -> bool:
            """Not known."""
            raise TypeError("no")

        def __reduce__(self) -> Any:
            """As text."""
            return str, ("vague",)

    alike = [(NAN, NAN), ([NAN, {"a": [1]}], [NAN, {"a": [1.0]}]), (None, None), (1, 1.0), (Vague(), Vague())]
    assert [is_same(*pair) for pair in alike] == [True] * 5
    others = [(NAN, 1.0), (True, 1), ([1], [1, 2]), ({"a": 1}, {"b": 1}), (None, NAN), ("1", 1)]
    assert [is_same(*pair) for pair in others] == [False] * 6


def test_rows_are_paired_by_what_is_the_same_in_front_and_behind() -> None:
    """So one row that is dropped of several does not make all behind it differ."""
    rows = [{"p": number} for number in range(4)]
    assert made({}, rows, [rows[0], rows[2], rows[3]]) == [("same", ()), ("dropped", ()), ("same", ()), ("same", ())]
    assert made({}, rows[:1], [rows[0], {"p": 9}]) == [("same", ()), ("added", ())]
    assert made({}, rows[:2], [rows[0], {"p": 9}]) == [("same", ()), ("differs", ("p",))]
    assert made({}, [], []) == [("dropped as before", ())]
    assert made({}, [{"p": NAN, "q": 1}], [{"p": NAN, "r": 1}]) == [("differs", ("q", "r"))]


def test_failures_are_told_with_the_sentence() -> None:
    """Of the new function, or of the present one, which it mends."""
    row, failed = [{"p": 1}], Made((), "M failed on a tuple: no")
    assert made({}, row, failed) == [("failed", ())]
    assert made({}, failed, row) == [("mended", ())]
    assert made({}, failed, failed) == [("fails as before", ())]
    [one] = examples_of(ComparedTuple("M", 0, {}, Made(tuple(row)), failed))
    assert (one.error, one.before, one.after) == ("M failed on a tuple: no", {"p": 1}, None)


def shown(*tuples: ComparedTuple) -> Examples:
    """As a user gets them."""
    return told_examples("u1", [told(Rehearse("u1", {}), WorkerId("M", 0), tuples)], 10, "")


def test_the_table_has_what_is_passed_on_once() -> None:
    """Columns that a function only passes on are not doubled; a removed one is, and so is one that it overwrites."""
    came = {"n": 1, "gone": "x", "p (before)": 3}
    after = {"n": 1, "p (before)": 3, "p": 0.25}
    found = shown(ComparedTuple("M", 2, came, Made((came | {"p": 0.5},)), Made((after,))))
    assert found.changed == ("gone", "p")
    assert list(found.table) == [
        "n", "gone", "p (before)", "gone (before)", "gone (after)", "p (before)'", "p (after)", "_result", "_differs",
        "_error", "_operator", "_worker",
    ]  # fmt: skip
    [row] = found.table.to_dict("records")
    assert (row["_differs"], row["_worker"], row["gone (after)"]) == (("gone", "p"), 2, None)
    assert "<mark>0.25</mark>" in found._repr_html_()
    assert found.words == "M: 1 row differs"
    assert shown().words == "no row"


def test_the_time_of_a_row_is_the_median_of_those_that_fail_on_neither_side() -> None:
    """An operator that was not reached, or not timed, has none."""
    times = ((1_000_000, 2_000_000, ""), (3_000_000, 1_500_000, ""), (9_000_000, 9, "no"), (2_000_000, 8_000_000, ""))
    rows = [ComparedTuple("M", 0, {}, Made(ns=one), Made(ns=two, error=why)) for one, two, why in times]
    found = shown(*rows, ComparedTuple("N", 0, {}, Made(ns=5), Made()))
    assert found.took_ms == {"M": (2.0, 2.0)}


def test_what_is_left_out_is_said_and_what_cannot_be_told_is_refused() -> None:
    """By the host's own words."""
    worker = WorkerId("M", 0)
    found = told_examples("u1", [Compared("u1", worker, cut=3, uncopied=1)], 10, "no")
    assert found.words == "3 more are left out, since all are larger than 256 KiB; 1 cannot be pickled"
    assert repr(found).endswith("Refused: no")
    with pytest.raises(RunError, match="there are no examples of u1: its rehearsal took 3 s"):
        told_examples("u1", [Compared("u1", worker, error="its rehearsal took 3 s")], 10, "")
    with pytest.raises(RunError, match="examples cannot be shown here"):
        told_examples("u1", [Compared("u1", worker, (b"cshop\nTotal\n.",))], 10, "")
    for count in (0, 51, True, 2.0, "10"):
        with pytest.raises(PlanError, match="expected a whole number from 1 to 50"):
            checked_number(count)


def outcome(change: str, kind: Any = "done", **values: Any) -> Outcome:
    """An end."""
    return Outcome(change, "fries", kind, **values)


def test_who_waits_gets_what_is_told_or_learns_that_nothing_will_be() -> None:
    """Of a change that ends without a rehearsal; and of one that is an old one."""
    heard = HeardExamples()
    assert heard.wait("u1", lambda: outcome("u1"), 10.0) == []
    with pytest.raises(TimeoutError, match="change u1 has not been rehearsed within"):
        heard.wait("u1", lambda: outcome("u1", has_examples=True), 0.01)
    part = Compared("u1", WorkerId("M", 0))
    threading.Thread(target=heard.hear, args=[part]).start()
    assert heard.wait("u1", lambda: None, 60.0) == [part]
    for number in range(CHANGES_HEARD):
        heard.hear(Compared(f"u{number + 2}", WorkerId("M", 0)))
    with pytest.raises(PlanError, match="examples are kept of the last 64 changes; u1 is an earlier one"):
        heard.wait("u1", lambda: None, 60.0)


def test_a_trial_is_waited_for_to_its_end_and_forgotten() -> None:
    """Ends of changes are no concern; a run that is over ends the wait."""

    def over() -> None:
        raise RunError("the run has ended")

    heard = HeardExamples()
    heard.ended(outcome("u1"))
    heard.expect("t1")
    part = Compared("t1", WorkerId("M", 0))
    heard.hear(part)
    end = outcome("t1", "rehearsed", has_examples=True)
    threading.Thread(target=heard.ended, args=[end]).start()
    assert heard.wait_for_trial("t1", lambda: None, 60.0) == (end, [part])
    assert (heard._parts, heard._trials) == ({}, {})
    heard.expect("t2")
    with pytest.raises(RunError, match="has ended"):
        heard.wait_for_trial("t2", over, 60.0)


def test_a_trial_is_carried_out_in_the_region_that_runs_and_is_no_change() -> None:
    """Its end is told to the thread that waits; a region that has not begun has no rows; a late one is cancelled."""
    desk = Desk()
    found: list[Examples] = []
    updates = {"A": Update(function("other"))}
    waits = threading.Thread(target=lambda: found.append(desk.queue.try_out(updates, 20, 60.0)))
    waits.start()
    for _ in looks():
        if desk.orders:
            break
    assert (desk.orders, desk.last is not None and desk.last.is_trial and desk.last.examples) == (["0:t1"], 20)
    pair = ComparedTuple("A", 0, {"n": 1}, Made(({"n": 1},)), Made())
    desk.queue.heard.hear(told(Rehearse("t1", {}), WorkerId("A", 0), [pair]))
    assert desk.end(0, "t1", "aborted", "A drops every row", has_examples=True) == []
    waits.join()
    assert ([one.result for one in found[0].rows], found[0].refusal) == (["dropped"], "A drops every row")
    assert desk.queue.changes == ()
    with pytest.raises(RunError, match="C: its region of the dataflow has not begun"):
        desk.queue.try_out({"C": Update(function("other"))}, 10, 60.0)
    with pytest.raises(TimeoutError, match="not rehearsed within"):
        desk.queue.try_out(updates, 10, 0.01)
    assert desk.orders[-2:] == ["0:t2", "0:t2"]
    for text in ("0", None, -1):
        with pytest.raises(PlanError, match="n="):
            desk.queue.try_out(updates, text, 1.0)  # type: ignore[arg-type]


def test_examples_and_effects_are_refused_by_name() -> None:
    """Of a change that is under way, was not rehearsed or not made; of one that nothing was seen of."""
    desk = Desk()
    change, _ = desk.ask(A=function("one"))
    with pytest.raises(PlanError, match="change u1 is still under way"):
        change.effect()
    with pytest.raises(TimeoutError, match="u1 has not been rehearsed within"):
        change.examples(timeout=0.01)
    desk.end(0, "u1", "aborted", "no room")
    with pytest.raises(PlanError, match="change u1 is aborted, so it has no effect: no room"):
        change.effect()
    with pytest.raises(PlanError, match="change u1 has no examples: no room"):
        change.examples()
    change, _ = desk.ask(A=function("one"))
    desk.end(0, "u2")
    with pytest.raises(PlanError, match="of change u2 nothing was seen when it began"):
        change.effect()
    with pytest.raises(PlanError, match="window=0"):
        change.effect(0)
    with pytest.raises(PlanError, match="timeout=None; expected a number above 0"):
        change.effect(timeout=None)  # type: ignore[arg-type]


def test_hidden_columns_are_masked_where_examples_are_shown() -> None:
    """Not in the values: the table has them, and whether they differ is known before."""
    rows = (
        Example("FM", 0, {"card": 4000, "n": 1}, {"card": 4000}, {"card": 4001}, "differs", ("card",)),
        Example("FM", 0, {"card": 4002, "n": 2}, None, None, "failed", error="FM failed on a tuple: no card 4002"),
    )
    found = Examples("u1", rows, hide=frozenset({"card"}))
    assert found.table["card"].tolist() == [4000, 4002]
    for shown in (repr(found), str(example_parts(found))):
        assert "400" not in shown
        assert "differs" in shown
        assert "no card •••" in shown


def test_hidden_columns_are_masked_where_an_effect_is_shown() -> None:
    """But for the share of nulls."""
    figures = (
        EffectFigure("FM", "card", "nulls", 0.25, 0.5), EffectFigure("FM", "card", "top values", "4000 50 %", None),
        EffectFigure("FM", "n", "mean", 1.5, 2.5),
    )  # fmt: skip
    found = ChangeEffect("u1", figures, hide=frozenset({"card"}))
    assert found.table["before"].tolist() == [0.25, "4000 50 %", 1.5]
    for shown in (repr(found), str(effect_parts(found))):
        assert "4000" not in shown
        assert "•••" in shown
        assert "0.25" in shown
        assert "2.5" in shown
