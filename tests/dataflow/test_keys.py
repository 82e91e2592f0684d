"""Equal keys are one key wherever keys are compared: in state, in routing, in joins; by values and by columns alike."""

from __future__ import annotations

import enum
import math
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fries_nb.dataflow.keys import canonical_key, is_key_type
from fries_nb.dataflow.tables import JoinTable
from fries_nb.errors import DataflowError, KeyTypeError
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.partitioning import Binning, bins_of_keys, bins_of_values

BERLIN, NEW_YORK, LORD_HOWE = map(ZoneInfo, ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"))
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "+05:30")
REPEATED = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
SKIPPED = datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN)


class Text(str):
    """A subclass of text."""


class Colour(str, enum.Enum):  # noqa: UP042 (its hash is that of a member)
    """Members that are text."""

    RED = "r"


class Level(enum.IntEnum):
    """Members that are numbers."""

    LOW = 1


class Plain(enum.Enum):
    """Members that are neither."""

    ONE = 1


ONE_KEY = {
    "whole numbers": [1, 1.0, True, Decimal(1), Decimal("1.00"), np.int8(1), np.float32(1), np.bool_(True), Level.LOW],
    "fractions": [0.5, Decimal("0.5"), Decimal("0.500"), np.float16(0.5), np.float64(0.5)],
    "zero": [0, 0.0, -0.0, False, Decimal("-0")],
    "NaN": [math.nan, -math.nan, float("nan"), np.float64("nan"), np.float32("nan"), Decimal("NaN"), Decimal("sNaN")],
    "infinity": [math.inf, Decimal("Infinity"), np.float32("inf")],
    "large": [2**70, float(2**70), Decimal(2**70)],
    "larger": [10**40, Decimal(10**40), Decimal("1E+40")],
    "text": ["r", Text("r"), np.str_("r"), Colour.RED],
    "bytes": [b"r", bytearray(b"r"), memoryview(b"r"), np.bytes_(b"r")],
    "nothing": [None, pd.NaT, pd.NA, np.datetime64("NaT", "s")],
    "the first time": [
        REPEATED, REPEATED.astimezone(UTC), REPEATED.astimezone(NEW_YORK), REPEATED.astimezone(LORD_HOWE),
        REPEATED.astimezone(timezone(timedelta(hours=2))), pd.Timestamp(REPEATED),
        pd.Timestamp(REPEATED).tz_convert(NEW_YORK),
        pd.Timestamp("2024-10-27 00:30", tz="UTC"),
    ],
    "the second time": [
        REPEATED.replace(fold=1), datetime(2024, 10, 27, 1, 30, tzinfo=UTC), pd.Timestamp(REPEATED.replace(fold=1)),
    ],
    "a time that no clock shows": [SKIPPED, SKIPPED.astimezone(UTC), datetime(2024, 3, 31, 3, 30, tzinfo=BERLIN)],
    "a time without a zone": [
        datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 2, 30, fold=1), pd.Timestamp("2024-10-27 02:30"),
        np.datetime64("2024-10-27T02:30:00"), np.datetime64("2024-10-27T02:30:00.000000000"),
    ],
    "nanoseconds": [pd.Timestamp(1, tz="UTC"), pd.Timestamp(1, tz="UTC").tz_convert(BERLIN)],
    "days": [date(2024, 10, 27), type("Day", (date,), {})(2024, 10, 27)],
    "durations": [timedelta(hours=1), pd.Timedelta(hours=1), np.timedelta64(3600, "s")],
    "a short duration": [pd.Timedelta(1001)],
    "times of day": [time(2, 30), time(2, 30, fold=1)],
    "UUIDs": [uuid.UUID(int=7), uuid.UUID(int=7)],
    "two columns": [(1, REPEATED), (1.0, REPEATED.astimezone(UTC)), (True, REPEATED.astimezone(NEW_YORK))],
    "NaN in two columns": [(math.nan, "a"), (float("nan"), "a"), (np.float64("nan"), Text("a"))],
    "another pair": [(1, REPEATED.replace(fold=1)), (1, datetime(2024, 10, 27, 1, 30, tzinfo=UTC))],
}  # fmt: skip
"""Values that are one key; those of two lines are two keys."""


@pytest.mark.parametrize("name", ONE_KEY)
def test_equal_values_have_one_state_and_one_bin(name):
    """Whichever of them comes first, and whether state is found as it is or by the canonical key."""
    values = ONE_KEY[name]
    for first in values:
        state = KeyedState(list)
        for value in values if first is values[0] else (first, *values):
            found = _found(state, value)
            (state.touch(value) if found is None else found).append(value)
        assert len(state) == 1, f"{name}: {state.keys()} beginning with {first!r}"
    assert len({int(bins_of_keys([canonical_key(value)])[0]) for value in values}) == 1


def _found(state, value):
    """The state as operators find it first."""
    try:
        return state.find(value)
    except TypeError:
        return None


def test_other_values_have_other_states():
    """No value of one line finds the state of another line."""
    state = KeyedState(list)
    for name, values in ONE_KEY.items():
        state.put(values[0], name)
    assert len(state) == len(ONE_KEY)
    for name, values in ONE_KEY.items():
        for value in values:
            if not (isinstance(value, np.timedelta64) and _found(state, value)):  # compares equal to plain numbers
                assert _found(state, value) in (None, name), value
            assert state.get(value) == name, value


NO_KEYS = [
    [1], {"a": 1}, {1}, frozenset([1]), np.array([1]), 1j, Plain.ONE, object(), time(1, tzinfo=UTC), [[1]],
    datetime(1, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")), ("a", [1]), ("a", (1, 2)), Fraction(1, 2), pd.Period("2024"),
]  # fmt: skip


@pytest.mark.parametrize("value", NO_KEYS, ids=lambda value: type(value).__name__)
def test_what_can_be_no_key_is_refused_in_one_sentence(value):
    """By its type, with what can be one."""
    with pytest.raises(KeyTypeError, match="key") as refused:
        KeyedState(list).touch(value)
    assert "\n" not in str(refused.value)


def test_an_object_without_a_repr_is_refused_all_the_same():
    """What says why is not lost in the object's own failure."""

    class Silent:
        def __repr__(self):
            raise ZeroDivisionError

    with pytest.raises(KeyTypeError, match=r"<its repr fails with ZeroDivisionError> \(Silent\) cannot be a key"):
        canonical_key(Silent())


def _near(moment):
    """Times around a change of the clock, each shown once for each instant."""
    return st.integers(-90, 90).map(lambda by: (moment.astimezone(UTC) + timedelta(minutes=by)).astimezone(BERLIN))


MOMENTS = _near(REPEATED) | _near(SKIPPED) | st.datetimes(
    datetime(2024, 1, 1), datetime(2024, 12, 31),
    timezones=st.sampled_from([UTC, BERLIN, NEW_YORK, LORD_HOWE, timezone(timedelta(hours=-3))]),
)  # fmt: skip
NUMBERS = st.integers() | st.floats() | st.booleans() | st.decimals() | st.integers(-3, 3).map(float)
VALUES = (
    st.none() | NUMBERS | st.text(max_size=2) | st.binary(max_size=2) | MOMENTS | st.datetimes() | st.dates()
    | st.times() | st.timedeltas() | st.uuids()
)  # fmt: skip
KEYS = VALUES | st.tuples(VALUES, VALUES)


@given(st.lists(KEYS, max_size=8), st.data())
def test_equal_canonical_keys_are_what_one_state_is_and_have_one_bin(keys, data):
    """And a canonical key is its own."""
    keys += [data.draw(st.sampled_from(keys)) for _ in keys]
    keys += [
        key.astimezone(NEW_YORK) for key in keys if isinstance(key, datetime) and key.tzinfo and 1 < key.year < 9999
    ]
    state, of, bins = KeyedState(object), {}, {}
    for key in keys:
        own = canonical_key(key)
        assert canonical_key(own) == own or own != own
        found = _found(state, key)
        found = state.touch(key) if found is None else found
        assert of.setdefault(own, found) is found
        (bin_,) = bins_of_keys([own]).tolist()
        assert bins.setdefault(own, bin_) == bin_
    assert len(state) == len(of) == len(set(map(id, of.values())))


COLUMNS = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "float64": (pa.float64(), st.floats() | st.integers(-3, 3).map(float)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float16": (pa.float16(), st.floats(width=16).map(np.float16)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=3)),
    "large text": (pa.large_string(), st.text(max_size=3)),
    "text views": (pa.string_view(), st.text(max_size=20)),
    "bytes": (pa.binary(), st.binary(max_size=3)),
    "fixed bytes": (pa.binary(2), st.binary(min_size=2, max_size=2)),
    "decimals": (pa.decimal128(20, 5), st.decimals(-(10**9), 10**9, places=3)),
    "dates": (pa.date32(), st.dates()),
    "dates in ms": (pa.date64(), st.dates()),
    "times of day": (pa.time64("us"), st.times()),
    "times of day in s": (pa.time32("s"), st.times().map(lambda one: one.replace(microsecond=0))),
    "naive": (pa.timestamp("us"), st.datetimes()),
    "naive in s": (pa.timestamp("s"), st.datetimes().map(lambda one: one.replace(microsecond=0))),
    "Berlin": (pa.timestamp("us", "Europe/Berlin"), MOMENTS),
    "New York in ms": (
        pa.timestamp("ms", "America/New_York"), MOMENTS.map(lambda one: one.replace(microsecond=0)),
    ),
    "Berlin in ns": (
        pa.timestamp("ns", "Europe/Berlin"),
        st.integers(0, 2**60) | st.integers(1729989000000000000, 1729989000000002000),
    ),
    "naive in ns": (pa.timestamp("ns"), st.integers(-(2**60), 2**60)),
    "durations": (pa.duration("us"), st.timedeltas(timedelta(-(10**6)), timedelta(10**6))),
    "durations in ns": (pa.duration("ns"), st.integers(-(2**60), 2**60)),
    "UUIDs": (pa.uuid(), st.uuids()),
    "nothing": (pa.null(), st.none()),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=25)
@given(st.data())
def test_a_column_has_the_bins_of_its_values(name, data):
    """What rows are routed by is what state moves by, alone, together, sliced, encoded; with nulls among them."""
    kind, values = COLUMNS[name]
    assert is_key_type(kind)
    drawn = data.draw(st.lists(values | st.none(), min_size=1, max_size=6))
    storage = pa.int64() if name.endswith("in ns") else None
    column = pa.array(drawn, storage).view(kind) if storage else pa.array(drawn, kind)
    expected = bins_of_keys(list(map(canonical_key, column.to_pylist()))).tolist()
    encoded = (
        [column] if name in ("UUIDs", "float16", "nothing", "text views") else [column, column.dictionary_encode()]
    )
    for each in (*encoded, pa.concat_arrays([column, column]).slice(1, len(column) - 1)):
        wanted = expected if len(each) == len(column) else expected[1:]
        assert bins_of_values([each]).tolist() == wanted
    batch, binning = pa.record_batch({"k": column}), Binning(("k",))
    alone = [int(binning.of(batch.slice(at, 1))[0]) for at in range(len(column))]
    assert alone == binning.of(batch).tolist() == expected


@given(st.lists(MOMENTS, min_size=1))
def test_an_instant_has_one_bin_and_one_state_in_every_zone_and_unit(moments):
    """Whatever zones the columns of two streams have."""
    moments = [one.replace(microsecond=0) for one in moments]
    state, bins = KeyedState(list), set()
    for zone in ZONES:
        for unit in ("s", "ms", "us", "ns"):
            column = pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, zone))
            bins.add(tuple(bins_of_values([column]).tolist()))
            for value in column.to_pylist():
                state.touch(value)
    assert len(bins) == 1
    assert len(state) == len({one.astimezone(UTC) for one in moments})


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int8()), pa.list_view(pa.int8()), pa.list_(pa.int8(), 1), pa.struct({"a": pa.int8()}),
     pa.map_(pa.string(), pa.int8()), pa.month_day_nano_interval()],
    ids=str,
)  # fmt: skip
def test_columns_that_can_be_no_key_are_refused_by_name(kind):
    """Of one row, of many, of none; and in the table of a join, where it is declared."""
    assert not is_key_type(kind)
    column = pa.nulls(2, kind)
    batch = pa.record_batch({"k": column})
    for some in (batch, batch.slice(0, 1), batch.slice(0, 0)):
        with pytest.raises(KeyTypeError, match=r"column 'k' is .*, which cannot be a key; expected numbers, text"):
            Binning(("k",)).of(some)
    with pytest.raises(DataflowError, match=r"the table of join 'J': column 'k' is .*, which cannot be a key"):
        JoinTable("J", pa.table({"k": column, "v": [1, 2]}), {"k": "k"})


def test_a_join_finds_instants_whatever_zones_show_them():
    """02:30 comes twice; and the other key of the row is compared as ever."""
    shown = pa.array([1729989000000000, 1729992600000000], pa.timestamp("us", "Europe/Berlin"))
    table = JoinTable(
        "J", pa.table({"at": shown, "n": [1.0, math.nan], "v": ["first", "second"]}), {"at": "at", "n": "n"}
    )
    table.open()
    for zone in (BERLIN, UTC, NEW_YORK, LORD_HOWE):
        first, second = (
            REPEATED.astimezone(UTC).astimezone(zone),
            REPEATED.replace(fold=1).astimezone(UTC).astimezone(zone),
        )
        assert table.find((first, 1)) == [{"v": "first"}]
        assert table.find((second, float("nan"))) == [{"v": "second"}]
        assert table.find((second, 1)) == []
    with pytest.raises(TypeError, match="is a time, and in the table it is a time with a time zone"):
        table.find((datetime(2024, 10, 27, 2, 30), 1))
    with pytest.raises(KeyTypeError, match=r"\[1\] \(list\) cannot be a key"):
        table.find(([1], 1))
