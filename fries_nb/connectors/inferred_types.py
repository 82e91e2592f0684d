"""The types of columns of text: what is known of their values, and the narrowest type that holds all of them unchanged.

What is known of some values (``Facts``) and of others adds up to what is known of all, in any order: so a type does not
depend on where a block or a file ends.

>>> first, later = facts_of_cells(pa.array(["1", "2"])), facts_of_cells(pa.array(["2.5"]))
>>> str(type_of(first)), str(type_of(first | later)), str(type_of(first | facts_of_cells(pa.array(["007"]))))
('int64', 'double', 'string')
>>> type_of(facts_of_strings(pa.array(["2024-01-02T03:04:05", "2024-01-02T03:04:05+02:00"])))
Traceback (most recent call last):
    ...
fries_nb.connectors.inferred_types.NoTypeError: has times with an offset beside times without one
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from itertools import permutations
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EXACT = 2**53
"""Integers up to this one are exact as floats."""
FLOAT_DIGITS = 17
"""Number of significant digits that a float keeps; of 16 and 17 digits not all numbers."""
DECIMAL_DIGITS = 38
"""Maximum number of digits of a decimal."""
LONG = pa.decimal128(DECIMAL_DIGITS, 0)
"""The type of integers of more than 64 bits."""
SAMPLE = 64
"""Number of values at the beginning of which each shows that the column is text."""

FAMILIES = {
    "int": "numbers", "float": "numbers", "bool": "true or false", "text": "text", "date": "text", "naive": "text",
    "aware": "text", "object": "objects", "array": "lists",
}  # fmt: skip
"""Kind of a value to what JSON has for it."""

_DAY = r"\d{4}-\d{2}-\d{2}"
_CLOCK = r"\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?"
_ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)"
_MORE_THAN_MICROSECONDS = r"\.\d{7}"


class NoTypeError(Exception):
    """No column type holds the values; the message is a predicate."""


@dataclass(frozen=True)
class Facts:
    """What is known of some values."""

    # the keys of ``FAMILIES`` that occur; ``empty`` for cells of CSV without a value
    kinds: frozenset[str] = frozenset()
    # what is more than usual: ``wide``, an integer that is not exact as a float; ``long``, one of more than 64 bits;
    # ``endless``, one of more than 38 digits; ``inexact``, a fraction with more digits than a float has; ``nanos``, a
    # time with more than microseconds; ``far``, one that nanoseconds do not hold
    flags: frozenset[str] = frozenset()
    fields: Mapping[str, Facts] = field(default_factory=dict)  # name to what is known of the field, of objects
    item: Facts | None = None  # what is known of the values in lists

    def __or__(self, other: Facts) -> Facts:
        """What is known of the values of both."""
        if not other.kinds:
            return self
        if not self.kinds:
            return other
        fields = dict(self.fields)
        for name, more in other.fields.items():
            fields[name] = fields[name] | more if name in fields else more
        items = [facts for facts in (self.item, other.item) if facts is not None]
        item = reduce(or_, items) if items else None
        return Facts(self.kinds | other.kinds, self.flags | other.flags, fields, item)


NOTHING = Facts()
EMPTY = Facts(frozenset({"empty"}))


@dataclass(frozen=True)
class CellFormat:
    """How cells of CSV are written; of empty ones, and other nulls, nothing is known."""

    decimal_point: str = "."  # between a number and its fraction
    booleans: tuple[str, ...] = ("true", "True", "TRUE", "false", "False", "FALSE")  # the cells that are true or false
    time_formats: tuple[str, ...] = ()  # formats of times, as ``strptime`` has them
    iso_times: bool = True  # whether times may be as in ISO 8601


PLAIN = CellFormat()

_Ladder = Sequence[tuple[Callable[[pa.Array], pa.Array], Callable[[pa.Array], Facts]]]
"""Kinds of text, in turn: which values are of it, and what there is to know of these."""


def facts_of_cells(values: pa.Array, written: CellFormat = PLAIN) -> Facts:
    """What is known of cells of CSV: numbers, times and others as the text says."""
    found = _facts(values, [*_numbers(written), _is_bool(written), *_times(written)])
    return EMPTY if len(values) and not found.kinds else found


def facts_of_strings(values: pa.Array) -> Facts:
    """What is known of strings of JSON: of times and of text."""
    return _facts(values, _times(PLAIN))


def _facts(values: pa.Array, ladder: _Ladder) -> Facts:
    values = values.drop_null()
    if len(values) > SAMPLE:
        sample = values.slice(0, SAMPLE)
        if "text" in _climbed(sample, ladder).kinds:
            return TEXT
        ladder = sorted(ladder, key=lambda kind: not pc.any(kind[0](sample)).as_py())  # the likely ones first
    return _climbed(values, ladder)


def _climbed(values: pa.Array, ladder: _Ladder) -> Facts:
    """Each value is of the first kind that takes it; one of none is text, and text says all."""
    found = NOTHING
    for takes, facts_of in ladder:
        if not len(values):
            return found
        taken = takes(values)
        if pc.any(taken).as_py():
            found |= facts_of(values.filter(taken))
            values = values.filter(pc.invert(taken))
        if "text" in found.kinds:
            return TEXT
    return TEXT if len(values) else found


TEXT = Facts(frozenset({"text"}))


def _matching(pattern: str) -> Callable[[pa.Array], pa.Array]:
    return lambda values: pc.match_substring_regex(values, pattern)


def _numbers(written: CellFormat) -> _Ladder:
    point = re.escape(written.decimal_point)
    whole, blank = r"-?(?:0|[1-9]\d*)", r"[ \t]*"
    fraction = rf"-?(?:(?:0|[1-9]\d*){point}\d*|{point}\d+)"
    power = rf"(?:{whole}|{fraction})[eE][+-]?\d+"
    special = r"[+-]?(?:inf|Inf|INF|infinity|Infinity|nan|NaN|NAN)"

    def plain(values: pa.Array) -> pa.Array:
        return pc.utf8_trim(values, " \t").cast(pa.string())

    def dotted(values: pa.Array) -> pa.Array:
        return pc.replace_substring(plain(values), written.decimal_point, ".")

    return [
        (_matching(rf"^{blank}{whole}{blank}$"), lambda values: _facts_of_integers(plain(values))),
        (_matching(rf"^{blank}{fraction}{blank}$"), lambda values: _facts_of_fractions(dotted(values))),
        (_matching(rf"^{blank}{power}{blank}$"), lambda values: _facts_of_powers(dotted(values))),
        (_matching(rf"^{blank}{special}{blank}$"), lambda values: Facts(frozenset({"float"}))),
    ]


def _facts_of_integers(values: pa.Array) -> Facts:
    longest = pc.max(pc.utf8_length(values)).as_py()
    if longest <= 15:
        return Facts(frozenset({"int"}))
    try:
        numbers = values.cast(pa.int64())
    except pa.ArrowInvalid:
        digits = pc.max(pc.utf8_length(pc.utf8_ltrim(values, "-"))).as_py()
        flags = {"wide", "long", "endless"} if digits > DECIMAL_DIGITS else {"wide", "long"}
        return Facts(frozenset({"int"}), frozenset(flags))
    return facts_of_int64(numbers)


def facts_of_int64(numbers: pa.Array) -> Facts:
    """What is known of integers of 64 bits."""
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None:
        return NOTHING
    is_wide = ends["min"] < -EXACT or ends["max"] > EXACT
    return Facts(frozenset({"int"}), frozenset({"wide"} if is_wide else ()))


def _facts_of_fractions(values: pa.Array) -> Facts:
    values = values.filter(pc.greater(pc.utf8_length(values), 16))
    flags: frozenset[str] = frozenset()
    if len(values):
        digits = pc.utf8_length(pc.replace_substring_regex(values, r"^-?0*\.?0*|\.", ""))
        whole = pc.match_substring_regex(values, r"^-?\d{16}")
        again = pc.equal(values.cast(pa.float64()).cast(pa.string()), values)
        doubtful = pc.and_(pc.greater(digits, 15), pc.or_(whole, pc.invert(again)))
        if any(not is_exact(Decimal(text)) for text in values.filter(doubtful).to_pylist()):
            flags = frozenset({"inexact"})
    return Facts(frozenset({"float"}), flags)


def is_exact(number: Decimal) -> bool:
    """Whether a float has all digits of a number.

    >>> is_exact(Decimal("0.1")), is_exact(Decimal("0.1234567890123456789")), is_exact(Decimal("9007199254740993.0"))
    (True, False, False)
    """
    as_float = float(number)
    return bool(np.isfinite(as_float)) and Decimal(repr(as_float)) == number


def _facts_of_powers(values: pa.Array) -> Facts:
    if not pc.all(pc.is_finite(values.cast(pa.float64()))).as_py():
        return TEXT
    return Facts(frozenset({"float"}))


def _is_bool(written: CellFormat) -> tuple[Callable[[pa.Array], pa.Array], Callable[[pa.Array], Facts]]:
    known = pa.array(written.booleans, pa.string())
    return (lambda values: pc.is_in(values, value_set=known.cast(values.type)), lambda _: Facts(frozenset({"bool"})))


def _times(written: CellFormat) -> _Ladder:
    ladder: list[tuple[Callable[[pa.Array], pa.Array], Callable[[pa.Array], Facts]]] = []
    for format in written.time_formats:
        kind = "aware" if "%z" in format else "naive"
        ladder.append((_parsed_by(format), lambda _, kind=kind: Facts(frozenset({kind}))))  # type: ignore[misc]
    ladder.append((_matching(rf"^{_DAY}$"), _facts_of_days))
    if written.iso_times:
        ladder.append((_matching(rf"^{_DAY}[ T]{_CLOCK}$"), lambda values: _facts_of_times(values, "naive")))
        ladder.append((_matching(rf"^{_DAY}[ T]{_CLOCK}{_ZONE}$"), lambda values: _facts_of_times(values, "aware")))
    return ladder


def _parsed_by(format: str) -> Callable[[pa.Array], pa.Array]:
    return lambda values: pc.is_valid(pc.strptime(values, format=format, unit="us", error_is_null=True))


def _facts_of_days(values: pa.Array) -> Facts:
    try:
        values.cast(pa.date32())
    except pa.ArrowInvalid:
        return TEXT
    return Facts(frozenset({"date"}))


def _facts_of_times(values: pa.Array, kind: str) -> Facts:
    zone, flags = None if kind == "naive" else "UTC", set()
    has_nanos = pc.match_substring_regex(values, _MORE_THAN_MICROSECONDS)
    try:
        times = values.filter(pc.invert(has_nanos)).cast(pa.timestamp("us", zone))
        if pc.any(has_nanos).as_py():
            flags.add("nanos")
            values.filter(has_nanos).cast(pa.timestamp("ns", zone))
    except pa.ArrowInvalid:
        return TEXT
    try:
        times.cast(pa.timestamp("ns", zone))
    except pa.ArrowInvalid:
        flags.add("far")
    return Facts(frozenset({kind}), frozenset(flags))


def facts_of_values(values: Sequence[Any]) -> Facts:
    """What is known of values of JSON, where numbers with a fraction or an exponent are decimals."""
    found, strings, objects, items = NOTHING, [], [], []
    for value in values:
        if isinstance(value, str):
            strings.append(value)
        elif isinstance(value, dict):
            objects.append(value)
        elif isinstance(value, list):
            items.append(value)
        elif value is not None:
            found |= _facts_of_number(value)
    if strings:
        found |= facts_of_strings(pa.array(strings))
    if objects:
        names = dict.fromkeys(name for object_ in objects for name in object_)
        fields = {name: facts_of_values([object_.get(name) for object_ in objects]) for name in names}
        found |= Facts(frozenset({"object"}), fields=fields)
    if items:
        found |= Facts(frozenset({"array"}), item=facts_of_values([inner for item in items for inner in item]))
    return found


def _facts_of_number(value: bool | int | float | Decimal) -> Facts:
    if isinstance(value, bool):
        return Facts(frozenset({"bool"}))
    if not isinstance(value, int):
        is_known = isinstance(value, float) or is_exact(value)  # floats are NaN and the infinities
        return Facts(frozenset({"float"}), frozenset(() if is_known else {"inexact"}))
    flags = {"wide"} if abs(value) > EXACT else set()
    if not -(2**63) <= value < 2**63:
        flags |= {"long"} if abs(value) < 10**DECIMAL_DIGITS else {"long", "endless"}
    return Facts(frozenset({"int"}), frozenset(flags))


def facts_of_array(values: pa.Array) -> Facts:
    """What is known of values of JSON, of which times are still strings and no number has lost a digit."""
    kind = values.type
    if values.null_count == len(values):
        return NOTHING
    if pa.types.is_struct(kind):
        valid = values.drop_null()
        fields = {kind.field(at).name: facts_of_array(column) for at, column in enumerate(valid.flatten())}
        return Facts(frozenset({"object"}), fields=fields)
    if pa.types.is_list(kind):
        return Facts(frozenset({"array"}), item=facts_of_array(values.flatten()))
    if pa.types.is_string(kind):
        return facts_of_strings(values)
    if pa.types.is_int64(kind):
        return facts_of_int64(values)
    return Facts(frozenset({"bool" if pa.types.is_boolean(kind) else "float"}))


def type_of(facts: Facts, is_json: bool = False) -> pa.DataType:
    """The type of a column with such values: of text, in CSV, if they have nothing else in common."""
    kinds, flags = facts.kinds - EMPTY.kinds, facts.flags
    if not kinds:
        return pa.string() if facts.kinds else pa.null()
    families = sorted({FAMILIES[kind] for kind in kinds})
    if len(families) > 1:
        if is_json:
            raise NoTypeError(f"has {families[0]} beside {families[1]}")
        return pa.string()
    if "object" in kinds:
        return pa.struct([pa.field(name, type_of(inner, is_json)) for name, inner in facts.fields.items()])
    if "array" in kinds:
        return pa.list_(type_of(facts.item or NOTHING, is_json))
    if kinds & {"int", "float"}:
        return _number_type(kinds, flags, is_json)
    if "bool" in kinds:
        return pa.bool_()
    return _time_type(kinds, flags)


def _number_type(kinds: frozenset[str], flags: frozenset[str], is_json: bool) -> pa.DataType:
    if "float" in kinds and not flags & {"wide", "inexact"}:
        return pa.float64()
    if "float" not in kinds and "endless" not in flags:
        return LONG if "long" in flags else pa.int64()
    if is_json:
        raise NoTypeError("has numbers with more digits than a float holds")
    return pa.string()


def _time_type(kinds: frozenset[str], flags: frozenset[str]) -> pa.DataType:
    if "text" in kinds or {"nanos", "far"} <= flags:
        return pa.string()
    if "aware" in kinds and len(kinds) > 1:
        raise NoTypeError("has times with an offset beside times without one")
    if kinds == {"date"}:
        return pa.date32()
    return pa.timestamp("ns" if "nanos" in flags else "us", "UTC" if "aware" in kinds else None)


def widened(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The type for values of both, where rows of the known one are out already; ``None`` if there is none.

    Such a type leaves values as they were, or makes floats of integers; fields may be added to structs.

    >>> str(widened(pa.int64(), pa.float64())), widened(pa.int64(), pa.string())
    ('double', None)
    """
    if known == new or pa.types.is_null(new):
        return known
    if pa.types.is_null(known):
        return new
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        return _widened_struct(known, new)
    if pa.types.is_list(known) and pa.types.is_list(new):
        item = widened(known.value_type, new.value_type)
        return None if item is None else pa.list_(item)
    return _WIDER.get((known, new))


def _widened_struct(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    types = {field.name: field.type for field in known}
    for one in new:
        wider = widened(types[one.name], one.type) if one.name in types else one.type
        if wider is None:
            return None
        types[one.name] = wider
    return pa.struct([pa.field(name, kind) for name, kind in types.items()])


_FLOAT, _INT = pa.float64(), pa.int64()
_WIDER: dict[tuple[pa.DataType, pa.DataType], pa.DataType] = {
    (_INT, _FLOAT): _FLOAT, (_FLOAT, _INT): _FLOAT, (_INT, LONG): LONG, (LONG, _INT): LONG,
    (pa.timestamp("us"), pa.date32()): pa.timestamp("us"), (pa.timestamp("ns"), pa.date32()): pa.timestamp("ns"),
} | {
    pair: pa.timestamp("ns", zone)
    for zone in (None, "UTC")
    for pair in permutations((pa.timestamp("us", zone), pa.timestamp("ns", zone)))
}  # fmt: skip


def partition_type(values: Sequence[str]) -> pa.DataType:
    """The type of a column whose values are in the names of directories, as Spark infers it.

    >>> [str(partition_type(some)) for some in (["01", "12"], ["2024-01-02", NO_VALUE], ["1", "x"])]
    ['int64', 'date32[day]', 'string']
    """
    some = [value for value in values if value != NO_VALUE]
    if some and all(re.fullmatch(r"-?\d{1,18}", value) for value in some):
        return pa.int64()
    try:
        kind = type_of(facts_of_cells(pa.array(some, pa.string())))
    except NoTypeError:
        return pa.string()
    return pa.string() if pa.types.is_null(kind) or pa.types.is_boolean(kind) else kind


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of a partition whose value is null."""


# ---- numbers that pyarrow would cut, found in bytes

def is_digit(codes: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which bytes are digits."""
    return (codes - np.uint8(ord("0"))) < np.uint8(10)


def has_long_fraction(data: bytes) -> bool:
    """Whether a text has a number with a point and more digits than a float has.

    >>> [has_long_fraction(text) for text in (b"1,0.8444218515250481", b"9007199254740993", b"1." + b"7" * 18)]
    [False, False, True]
    """
    codes = np.frombuffer(data, np.uint8)
    inside = is_digit(codes) | (codes == ord("."))
    run = inside
    for step in (1, 2, 4, 8, 3):
        run = run[:-step] & run[step:]
    if not run.any():  # 19 characters
        return False
    edges = np.flatnonzero(np.diff(inside.view(np.int8), prepend=0, append=0))
    starts, ends = edges[::2], edges[1::2]
    is_long = ends - starts > FLOAT_DIGITS + 1 + (codes[starts] == ord("0"))
    for start, end in zip(starts[is_long].tolist(), ends[is_long].tolist(), strict=True):
        whole, point, rest = data[start:end].partition(b".")
        if point and len((whole + rest).lstrip(b"0")) > FLOAT_DIGITS:
            return True
    return False


def has_huge_float(values: pa.RecordBatch | pa.Array) -> bool:
    """Whether a float, at any depth, is so large that its text may be an integer of more digits."""
    if isinstance(values, pa.RecordBatch):
        return any(map(has_huge_float, values.columns))
    if pa.types.is_struct(values.type) or pa.types.is_list(values.type):
        inner = values.flatten()
        return any(map(has_huge_float, inner)) if isinstance(inner, list) else has_huge_float(inner)
    if not pa.types.is_float64(values.type):
        return False
    huge = pc.and_(pc.greater_equal(pc.abs(values), float(EXACT)), pc.is_finite(values))
    return bool(pc.any(huge).as_py())
