"""On real Spark: a run tells its times while they advance, what holds them back, and how its loop goes round."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from run_setting import until

import fries_nb as fn
from fries_nb.run import Run
from fries_nb.workloads.payments import payments_path

BEGIN = datetime(2018, 4, 1)
DAY = timedelta(days=1)


class Reminder:
    """Asks for one call a customer and day, at its end."""

    def process(self, row: dict[str, Any], state: dict[str, Any], at: Any) -> None:
        """Ask for it."""
        state["paid"] = state.get("paid", 0) + 1
        at.call(at.time.replace(hour=0, minute=0, second=0, microsecond=0) + DAY)

    def due(self, key: int, time: datetime, state: dict[str, Any]) -> dict[str, Any]:
        """The number of payments since the last call."""
        return {"customer": key, "day": time, "paid": state.pop("paid", 0)}


def test_times_advance_while_a_timed_function_is_called(started: Callable[..., Run]) -> None:
    """They are datetimes, never go back, and end as None; all payments of a day are told at its end."""
    flow = fn.Dataflow("reminded")
    rows = flow.source("pay", fn.replay(payments_path(), rate=6_000), time="TX_DATETIME")
    rows.map("Remind", Reminder(), key="CUSTOMER_ID").sink("out", fn.memory())
    run = started(flow, hosts=2, workers=2)
    told: list[datetime] = []

    def passed() -> bool:
        time = run.metrics().frontier.get("Remind")
        told.extend([time] if time is not None and time not in told[-1:] else [])
        return len(told) > 1 and told[-1] > BEGIN + 2 * DAY

    until(passed, run)
    assert told == sorted(told)
    assert told[0] >= BEGIN
    until(lambda: bool(run.holding("out")), run)
    assert {one.operator for one in run.frontiers()} == {"Remind", "out"}
    run.stop()
    assert run.metrics().frontier == {"pay": None, "Remind": None, "out": None}
    assert run.holding("Remind") == ()
    read = run.metrics().operators["pay"].processed
    rows_of = [row.asDict() for row in run.output().collect()]
    assert sum(row["paid"] for row in rows_of) == read
    assert len({(row["customer"], row["day"]) for row in rows_of}) == len(rows_of)


def test_a_loop_tells_its_rounds_and_its_end(started: Callable[..., Run]) -> None:
    """The largest round is that of the row that goes round most often."""

    def look(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"left": row.get("left", row["value"] % 5) - 1}

    flow = fn.Dataflow("looks")
    looped = flow.source("numbers", fn.rate(None, count=400)).iterate(
        "L", lambda rows: rows.map("Look", look).split("Done", lambda row: 0 if row["left"] > 0 else 1)
    )
    looped.sink("out", fn.memory())
    run = started(flow, hosts=2, workers=2)
    run.wait(600)
    [loop] = run.loops()
    assert (loop.name, loop.phase, loop.waiting) == ("L", "ended", 0)
    assert loop.attempts >= 1
    assert loop.round == 3  # four looks
    assert loop.rows == 400 // 5 * (1 + 2 + 3)
    assert run.metrics().frontier == {}
    assert run.output().count() == 400
