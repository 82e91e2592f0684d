"""Windows with an offset, of a calendar and by count, and the best rows of windows, against plain definitions."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from window_setting import MANY, Row, Sum, TimedRun, shown, window

import fries_nb as fn
from fries_nb.dataflow import Kind, Operator, calendars
from fries_nb.dataflow.calendars import DAYS, MONTHS, Calendar
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.windowing import AnyWindowing, WindowFunction
from fries_nb.errors import OperatorError
from fries_nb.operators import window_steps
from fries_nb.operators.executors import InterruptFlag, executor_of
from fries_nb.operators.instance import Instance, Ready
from fries_nb.protocol.messages import WorkerId

NS_PER_S, HOUR = 10**9, 3_600
ZONED, NAIVE = pa.timestamp("ns", "UTC"), pa.timestamp("ns")
TOKYO = fn.tumbling(86_400, timezone="Asia/Tokyo")
ZONES = ("Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "America/Havana", "Australia/Lord_Howe", "UTC")


def ns(*when: int, zone: str = "UTC") -> int:
    """Nanoseconds of a local time."""
    return int(datetime(*when, tzinfo=ZoneInfo(zone)).timestamp()) * NS_PER_S  # type: ignore[misc, arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_an_offset_moves_windows(seed: int) -> None:
    """Earlier or later, also where times are below zero; each row is in those whose span its time is in."""
    random = Random(seed)
    every = random.randint(1, 9)
    size, offset = every * random.choice([1, 1, 3]), random.randint(1 - every, every - 1)
    run, sums = TimedRun(window(fn.sliding(size, every, offset=offset))), Counter[int]()
    times = [random.randint(-50, 50) for _ in range(30)]
    run.frame([{"k": 1, "n": n} for n in range(30)], times)
    for n, t in enumerate(times):
        sums.update({s + size: n for s in range(-80, 80) if (s - offset) % every == 0 and s <= t < s + size})
    assert {row["end"]: row["total"] for row in shown(run.fire())} == {
        s + size: sums[s + size] for s in range(-80, 80) if (s - offset) % every == 0
        if any(s <= t < s + size for t in times)
    }  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
def test_days_are_those_of_a_date(zone: str) -> None:
    """Of each hour of the years in which clocks were changed at midnight, or a whole day was left out."""
    days, months, local = Calendar(DAYS, zone), Calendar(MONTHS, zone), ZoneInfo(zone)
    lengths = Counter[int]()
    for year in (1969, 2011, 2012, 2018):
        for hour in range(0, 366 * 24, 7):
            t = ns(year, 1, 1) + hour * HOUR * NS_PER_S
            day = datetime.fromtimestamp(t // NS_PER_S, local).date()
            number = days.number(t)
            assert number == (day - date(1970, 1, 1)).days
            assert days.begin(number) <= t < days.begin(number + 1)
            assert months.number(t) == (day.year - 1970) * 12 + day.month - 1
            lengths[(days.begin(number + 1) - days.begin(number)) // (HOUR * NS_PER_S)] += 1
    assert set(lengths) >= ({24} if zone in ("UTC", "Australia/Lord_Howe") else {23, 24, 25}), lengths


def test_windows_of_days_have_the_hours_of_a_day() -> None:
    """23 where an hour is left out, 25 where one comes twice; the same where they slide, and begin at six."""
    berlin = "Europe/Berlin"
    hours = [ns(2024, 3, 29) + hour * HOUR * NS_PER_S for hour in range(24 * 5)]
    hours += [ns(2024, 10, 25) + hour * HOUR * NS_PER_S for hour in range(24 * 5)]
    for windows, days, begin in (
        (fn.tumbling(24 * HOUR, timezone=berlin), 1, 0),
        (fn.tumbling(24 * HOUR, offset=6 * HOUR, timezone=berlin), 1, 6),
        (fn.sliding(48 * HOUR, 24 * HOUR, timezone=berlin), 2, 0),
    ):
        run, counts = TimedRun(window(windows)), Counter[datetime]()
        run.frame([{"k": 1, "n": 1} for _ in hours], hours, kind=ZONED)
        for t in hours:
            local = datetime.fromtimestamp(t // NS_PER_S, ZoneInfo(berlin)).replace(tzinfo=None)
            day = (local - timedelta(hours=begin)).date()
            ends = (datetime.combine(day + timedelta(days=n), datetime.min.time()) for n in range(1, days + 1))
            moved = ((end + timedelta(hours=begin)).replace(tzinfo=ZoneInfo(berlin)) for end in ends)
            counts.update(end.astimezone(UTC) for end in moved)
        assert {row["end"]: row["rows"] for row in shown(run.fire())} == dict(counts)
        assert {23 * days, 25 * days} <= set(counts.values()) or days > 1


@pytest.mark.parametrize(("n", "zone", "kind"), [(1, "Europe/Berlin", ZONED), (3, None, ZONED), (12, None, NAIVE)])
def test_windows_of_months_end_when_one_begins(n: int, zone: str | None, kind: Any) -> None:
    """Of a quarter and of a year too, before 1970 as well; without a time zone by their own clock."""
    times = [ns(1969, 11, 30, 23, 30) + day * 24 * HOUR * NS_PER_S for day in range(200)]
    run, counts = TimedRun(window(fn.months(n, timezone=zone))), Counter[datetime]()
    run.frame([{"k": 1, "n": 1} for _ in times], times, kind=kind)
    for t in times:
        local = datetime.fromtimestamp(t // NS_PER_S, ZoneInfo(zone or "UTC"))
        months = ((local.year * 12 + local.month - 1) // n + 1) * n
        counts[datetime(months // 12, months % 12 + 1, 1, tzinfo=local.tzinfo).astimezone(UTC)] += 1
    found = {row["end"].replace(tzinfo=row["end"].tzinfo or UTC): row["rows"] for row in shown(run.fire())}
    assert found == dict(counts)


@pytest.mark.parametrize(
    ("windows", "kind", "words"),
    [
        (fn.months(), None, "W has windows of months and gets times that are integers; expected timestamps, or"),
        (TOKYO, NAIVE, "W has windows of days in timezone 'Asia/Tokyo' and gets times w"),
        (TOKYO, None, "W has windows of days in timezone 'Asia/Tokyo' and gets times t"),
    ],
)
def test_a_calendar_needs_timestamps(windows: Any, kind: Any, words: str) -> None:
    """With a time zone, if it has one: in a sentence, on the first row."""
    with pytest.raises(OperatorError, match=words):
        TimedRun(window(windows)).frame([{"k": 1, "n": 1}], [5], kind=kind)


def test_windows_before_a_change_of_the_offset_take_their_rows() -> None:
    """So each row is counted once."""
    run = TimedRun(window(fn.tumbling(10)))
    run.frame([{"k": 1, "n": 1}], [3])
    function = WindowFunction(Sum(), fn.tumbling(10, offset=5))
    run.instance.prepared["u1"] = Ready(function, None)
    run.instance.switch("u1")
    run.executor = run.compiled()
    run.frame([{"k": 1, "n": 10}, {"k": 1, "n": 100}], [9, 10], stamp=(0, 3))
    assert [(row["end"], row["total"]) for row in shown(run.fire())] == [(10, 11), (15, 100)]


# ---- by count


class Numbers:
    """The numbers of a window's rows, and how many there were to be."""

    def process(self, row: Row, state: Row) -> None:
        state.setdefault("rows", []).append(row["n"])

    def close(self, key: Any, time: Any, state: Row) -> Row:
        return {"k": key, "size": time, **state}


class CountRun:
    """A window by count, whose rows have no times."""

    def __init__(self, windows: AnyWindowing, function: Any = None) -> None:
        used = WindowFunction(function or Numbers(), windows)
        operator = Operator("C", MANY, kind=Kind.COUNT_WINDOW, function=used, key=("k",))
        self.instance = Instance(WorkerId("C", 0), operator, used, audit=False)
        self.executor = executor_of((self.instance,), InterruptFlag(), 1, "L")

    def frame(self, numbers: Any, key: int = 1) -> list[tuple[int, list[int]]]:
        """The sizes and the rows of the windows that these rows fill."""
        rows = {"k": [key] * len(numbers), "n": list(numbers)}
        hidden = {DUE: [0] * len(numbers), TRANSACTION: list(numbers)}
        self.executor.load("S", pa.RecordBatch.from_pydict({**rows, **hidden}))
        while self.executor.remaining:
            self.executor.advance(3)
        return [(row["size"], row["rows"]) for _, some in self.executor.results() for row in some.to_pylist()]

    def change(self, windows: AnyWindowing) -> None:
        """Switch to other windows."""
        self.instance.prepared["u"] = Ready(WindowFunction(Numbers(), windows), None)
        self.instance.switch("u")
        self.executor = executor_of((self.instance,), InterruptFlag(), 1, "L")


def test_windows_by_count_take_rows_in_the_order_in_which_they_come() -> None:
    """Of each key by itself; one that is not full has no result."""
    run = CountRun(fn.count(3))
    assert run.frame(range(4)) == [(3, [0, 1, 2])]
    assert run.frame(range(10, 12), key=2) == []
    assert run.frame(range(4, 7)) == [(3, [3, 4, 5])]
    assert run.frame([12], key=2) == [(3, [10, 11, 12])]
    assert list(run.instance.state.live) == [1]


def test_windows_by_count_overlap() -> None:
    """A window begins every so many rows, from the first one on."""
    found = CountRun(fn.count(4, every=3)).frame(range(11))
    assert found == [(4, [0, 1, 2, 3]), (4, [3, 4, 5, 6]), (4, [6, 7, 8, 9])]


def test_open_windows_by_count_keep_their_numbers() -> None:
    """And the next one begins when they would have had it."""
    run = CountRun(fn.count(4))
    run.frame(range(2))
    run.change(fn.count(2))
    assert run.frame(range(2, 8)) == [(4, [0, 1, 2, 3]), (2, [4, 5]), (2, [6, 7])]
    run = CountRun(fn.count(4, every=2))
    run.frame(range(3))
    run.change(fn.count(3, every=3))
    assert run.frame(range(3, 10)) == [(4, [0, 1, 2, 3]), (4, [2, 3, 4, 5]), (3, [4, 5, 6]), (3, [7, 8, 9])]


def test_a_window_by_count_returns_rows_from_close_only() -> None:
    """The message says so."""
    early = type("Early", (Numbers,), {"process": lambda self, row, state: row})()
    with pytest.raises(OperatorError, match="C returned Row from process; a window by count returns its"):
        CountRun(fn.count(2), early).frame([1])


# ---- the best rows


@pytest.mark.parametrize("seed", range(20))
def test_the_best_rows_do_not_depend_on_the_order_in_which_they_come(seed: int) -> None:
    """The greatest or least, ties by all columns in the order of their names; null and NaN are the worst."""
    random = Random(seed)
    rows = [
        {"k": 1, "b": random.choice(["x", "y", None]), "v": random.choice([1.0, 2.5, None, float("nan"), 3.0]), "n": n}
        for n in range(random.randint(1, 12))
    ]
    n, smallest = random.randint(1, 5), random.random() < 0.5

    def place(row: Row) -> Any:
        is_bad = row["v"] is None or row["v"] != row["v"]
        value = 0 if is_bad else row["v"] if smallest else -row["v"]
        return is_bad, value, row["b"] is None, row["b"] or "", row["n"]

    best = [row["n"] for row in sorted(rows, key=place)[:n]]
    random.shuffle(rows)
    run = TimedRun(window(fn.tumbling(60), fn.top(n, by="v", smallest=smallest, rank="rank", end="end")))
    run.frame(rows, [random.randint(0, 59) for _ in rows])
    found = shown(run.fire())
    assert [(row["n"], row["rank"], row["end"]) for row in found] == [(n, at, 60) for at, n in enumerate(best, 1)]


def test_open_windows_keep_the_number_of_their_best_rows() -> None:
    """Rows that were let go do not come back; the next window has the new number."""
    run = TimedRun(window(fn.tumbling(60), fn.top(1, by="n")))
    run.frame([{"k": 1, "n": n} for n in (5, 9)], [1, 2])
    run.instance.prepared["u1"] = Ready(WindowFunction(fn.top(3, by="n"), fn.tumbling(60)), None)
    run.instance.switch("u1")
    run.executor = run.compiled()
    run.frame([{"k": 1, "n": n} for n in (8, 7, 3, 4)], [3, 4, 61, 62], stamp=(0, 1))
    assert [row["n"] for row in shown(run.fire())] == [9, 4, 3]


def test_the_best_rows_of_sessions_are_merged() -> None:
    """As the earlier one was opened."""
    run = TimedRun(window(fn.session(10), fn.top(2, by="n")))
    run.frame([{"k": 1, "n": n} for n in (5, 9, 7, 1)], [20, 0, 2, 10])
    assert [row["n"] for row in shown(run.fire())] == [9, 7]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fn.top(2, by="other"), "a row has no column 'other', by which the best are found; it has k, n, v"),
        (fn.top(2, by="v"), "rows cannot be ordered by v: '<' not supported"),
        (fn.top(2, by="n", rank="k"), "the rows have a column 'k'; expected new names as rank= and end="),
    ],
)
def test_rows_without_an_order_are_refused(function: Any, words: str) -> None:
    """In a sentence that names the column."""
    run = TimedRun(window(fn.tumbling(60), function))

    def play() -> None:
        run.frame([{"k": 1, "n": n, "v": {"a": n}} for n in range(3)], [1, 2, 3])
        run.fire()

    with pytest.raises(OperatorError, match=words):
        play()


# ---- what is wrong is seen


def _found_once(bounds: Any, t: int) -> None:
    FIND(bounds, t)
    bounds._begin, bounds._end = -(2**63), 2**63


FIND = window_steps._CalendarBounds._find
BROKEN = {
    "days are those of UTC": (calendars, "zone_of", lambda timezone: UTC),
    "what was found for a day stays": (window_steps._CalendarBounds, "_find", _found_once),
    "the offset of days is forgotten": (window_steps, "Calendar", lambda unit, zone, offset=0: Calendar(unit, zone)),
    "a month has 30 days": (Calendar, "begin", lambda calendar, number: number * 30 * 24 * HOUR * NS_PER_S),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_definition_sees(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A mutant of the calendars makes other windows."""
    monkeypatch.setattr(*BROKEN[name])
    with pytest.raises(AssertionError):
        test_windows_of_days_have_the_hours_of_a_day()
