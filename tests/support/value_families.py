"""Values of every family that a column holds, as functions return them; and how a value is told with its types."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa

WEST, BERLIN = dt.timezone(dt.timedelta(hours=-5)), "Europe/Berlin"
NOON = dt.datetime(2024, 7, 1, 12)
LATE = dt.datetime(2024, 10, 27, 0, 30)  # an hour before Berlin repeats one
ZONE = ZoneInfo(BERLIN)


class Whole(enum.IntEnum):
    A = 1


class Word(enum.StrEnum):
    A = "a"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "other"


class Fields(dict[str, Any]):
    pass


class Day(dt.datetime):
    pass


Pair = collections.namedtuple("Pair", "a b")

HELD: dict[str, list[Any]] = {
    "integers": [1, None, 2],
    "floats and integers": [0.5, float("inf"), 1.5],
    "times of several zones": [
        NOON.replace(tzinfo=dt.UTC), NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))),
        NOON.replace(tzinfo=WEST)],
    "the repeated hour and the one left out": [
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZONE), dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZONE, fold=1),
        dt.datetime(2024, 3, 31, 2, 30, tzinfo=ZONE)],
    "times without a zone": [NOON, NOON.replace(fold=1), None],
    "own times": [Day(2024, 1, 1, tzinfo=WEST), Day(2024, 1, 2, tzinfo=dt.UTC), None],
    "numbers of numpy": [np.int8(1), np.int64(2), np.uint16(3)],
    "floats of numpy": [np.float32(0.5), np.float64(0.25), np.float16(1.5)],
    "text and bytes of numpy": [np.str_("a"), np.str_("b"), None],
    "booleans of numpy": [np.bool_(True), False, None],
    "times of numpy": [np.datetime64("2024-01-01T00:01"), np.datetime64("NaT"), np.datetime64("2024-01-01T01", "ns")],
    "days of numpy": [np.datetime64("2024-01-01"), None, np.datetime64("2024-02")],
    "durations of numpy": [np.timedelta64(1, "h"), np.timedelta64("NaT"), np.timedelta64(1500, "ms")],
    "arrays": [np.array([1, 2]), np.array([], np.int64), np.array([3])],
    "arrays of two dimensions": [np.ones((2, 2)), np.zeros((1, 2)), None],
    "whole enums": [Whole.A, 2, None],
    "text enums": [Word.A, "b", Text("c")],
    "tuples": [(1, 2), (), (3,)],
    "named tuples": [Pair(1, 2), Pair(3, 4), None],
    "sets": [{1}, frozenset([2]), set()],
    "buffers": [bytearray(b"a"), memoryview(b"b"), b"c"],
    "own dicts": [Fields(a=1), collections.OrderedDict(a=2), collections.Counter("a")],
    "decimals": [Decimal("1.50"), Decimal("2.25"), Decimal("0.10")],
    "pandas' times": [pd.Timestamp("2024-07-01T12:00+02:00"), pd.NaT, pd.Timestamp("2024-07-01T12:00", tz=BERLIN)],
    "pandas' durations": [pd.Timedelta(1, "h"), pd.NaT, pd.Timedelta(1500, "ms")],
    "pandas' nulls": [pd.NA, 1, pd.NaT],
    "durations": [dt.timedelta(microseconds=1), dt.timedelta(days=-1), None],
    "times of day": [dt.time(1, 2, 3), None, dt.time(4)],
    "days": [dt.date(2024, 1, 1), None, dt.date(1, 1, 1)],
    "UUIDs": [uuid.UUID(int=1), None, uuid.UUID(int=2)],
    "lists of times": [[NOON.replace(tzinfo=WEST), NOON.replace(tzinfo=dt.UTC)], [], None],
    "dicts in lists": [[{"a": {"b": (1,)}}], [{"a": {"b": {2}}}], []],
    "nulls in lists": [[pd.NaT, pd.NA, 1], [None], [2]],
    "sets in dicts": [{"a": {1}, "t": NOON.replace(tzinfo=WEST)}, {"a": [2], "t": None}, None],
    "scalars of Arrow": [pa.scalar(1), pa.scalar(2), None],
}  # fmt: skip


def described(value: Any) -> str:
    """A value with the types of all its parts."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {described(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + "[" + ", ".join(map(described, value)) + "]"
    return f"{type(value).__name__} {value}"
