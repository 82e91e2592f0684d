"""Windows at work: which rows they count, when their results come, and with what time."""

from __future__ import annotations

from typing import Any

import pytest
from window_setting import Sum, TimedRun, reduce, shown, window

from fries_nb.dataflow.columns import DUE, TIME
from fries_nb.dataflow.windowing import sliding, tumbling
from fries_nb.errors import OperatorError


def test_a_window_is_closed_when_no_row_of_it_can_come() -> None:
    """Not before its last moment has passed; the result has that moment as its time, and nothing is left."""
    run = TimedRun(window(tumbling(60)))
    rows = [{"k": 1, "n": 1}, {"k": 2, "n": 10}, {"k": 1, "n": 100}, {"k": 1, "n": 1000}]
    assert run.frame(rows, [5, 0, 59, 60]) == []
    assert run.fire((0, 59)) == []
    results = run.fire((0, 60))
    assert shown(results) == [{"k": 1, "end": 60, "total": 101, "rows": 2}, {"k": 2, "end": 60, "total": 10, "rows": 1}]
    assert {(row[TIME], row[DUE]) for _, row in results} == {(59, 7)}
    assert shown(run.fire()) == [{"k": 1, "end": 120, "total": 1000, "rows": 1}]
    assert (len(run.counts), run.instance.state.live, len(run.agenda)) == (0, {}, 0)


def test_rows_of_sliding_windows_are_counted_in_each() -> None:
    """Also where times are below zero."""
    run = TimedRun(window(sliding(60, every=20)))
    run.frame([{"k": 1, "n": 1}, {"k": 1, "n": 10}], [-1, 25])
    ends = [(row["end"], row["total"]) for row in shown(run.fire())]
    assert ends == [(0, 1), (20, 1), (40, 11), (60, 10), (80, 10)]


def test_a_reduce_makes_one_result_of_each_key_and_time() -> None:
    """With the time of the rows itself, and of each round in a loop."""
    run = TimedRun(reduce())
    run.frame([{"k": 1, "n": 1}, {"k": 1, "n": 2}, {"k": 1, "n": 4}], [5, 5, 6], stamp=(0, 5, 1))
    run.frame([{"k": 1, "n": 8}], [5], stamp=(0, 5, 2))
    assert shown(run.fire((0, 5, 2), (0, 6, 1))) == [{"k": 1, "end": 5, "total": 3, "rows": 2}]
    assert [row["total"] for row in shown(run.fire())] == [8, 4]


def test_a_late_row_leaves_on_the_branch_of_late_rows() -> None:
    """With all of its columns; the window that is closed is not opened again."""
    run = TimedRun(window(tumbling(60)))
    run.frame([{"k": 1, "n": 1}], [5])
    run.fire((0, 60))
    late = run.frame([{"k": 1, "n": 2}, {"k": 1, "n": 3}], [6, 70], stamp=(0, 60))
    assert shown(late, 1) == [{"k": 1, "n": 2}]
    assert late[0][1][TIME] == 6
    assert [row["total"] for row in shown(run.fire())] == [3]


def test_a_result_is_corrected_once_after_the_lateness() -> None:
    """If late rows came; what comes later still is late."""
    run = TimedRun(window(tumbling(60), lateness=20))
    run.frame([{"k": 1, "n": 1}, {"k": 2, "n": 1}], [5, 5])
    assert len(run.fire((0, 60))) == 2
    assert run.frame([{"k": 1, "n": 2}, {"k": 3, "n": 4}], [6, 6], stamp=(0, 61)) == []
    corrected = run.fire((0, 80))
    assert shown(corrected) == [
        {"k": 1, "end": 60, "total": 3, "rows": 2}, {"k": 3, "end": 60, "total": 4, "rows": 1},
    ]  # fmt: skip
    assert {row[TIME] for _, row in corrected} == {79}
    assert shown(run.frame([{"k": 1, "n": 2}], [6], stamp=(0, 80)), 1) == [{"k": 1, "n": 2}]
    assert not run.instance.state.live


def test_a_window_that_ends_after_all_times_is_refused() -> None:
    """Its end would fit in no column: the message names the operator, and the window's last moment."""
    run = TimedRun(window(tumbling(10)))
    with pytest.raises(OperatorError, match="TokenError: W cannot call for time 9223372036854775809; expected"):
        run.frame([{"k": 1, "n": 1}], [2**63 - 1])


@pytest.mark.parametrize("audit", [False, True])
@pytest.mark.parametrize("every", [10, 5])
def test_a_window_may_keep_its_rows(audit: bool, every: int) -> None:
    """They are its own then, and may leave when it is closed; under audit as well."""

    class Keep:
        def initial_state(self) -> list[Any]:
            return []

        def process(self, row: Any, state: list[Any]) -> None:
            state.append(row)

        def close(self, key: Any, time: Any, state: list[Any]) -> list[Any]:
            return [{**row, "end": time} for row in state]

    run = TimedRun(window(sliding(10, every=every), Keep(), audit=audit))
    run.frame([{"k": 1, "n": 1}, {"k": 1, "n": 2}, {"k": 1, "n": 3}], [1, 2, 11])
    ends = {10: [(1, 10), (2, 10), (3, 20)], 5: [(1, 5), (2, 5), (1, 10), (2, 10), (3, 15), (3, 20)]}
    assert [(row["n"], row["end"]) for row in shown(run.fire())] == ends[every]


def test_rows_before_the_result_are_declared() -> None:
    """A window is told how; a reduce has none."""
    early = type("Early", (Sum,), {"process": lambda self, row, state: row})()
    for made, words in ((window(tumbling(10), early), "with early=True"), (reduce(early), "from close only")):
        with pytest.raises(OperatorError, match=words):
            TimedRun(made).frame([{"k": 1, "n": 1}], [5])


def test_keys_of_types_that_no_column_holds_are_refused_by_name() -> None:
    """As two splits may learn them apart; wider ones of a family are one key."""
    run = TimedRun(window(tumbling(10)))
    run.frame([{"k": 2.5, "n": 1}, {"k": 1.0, "n": 1}], [3, 3])
    run.frame([{"k": 1, "n": 1}], [3])
    assert sorted((row["k"], row["rows"]) for _, row in run.fire()) == [(1, 2), (2.5, 1)]
    run = TimedRun(window(tumbling(10)))
    run.frame([{"k": 1, "n": 1}], [3])
    run.frame([{"k": "1", "n": 1}], [3])
    with pytest.raises(OperatorError, match=r"W is by 'k', of which it has keys of several types .* int beside str"):
        run.fire()
