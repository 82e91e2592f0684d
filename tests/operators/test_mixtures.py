"""Values of two kinds in one column are refused, and never read as one of them, wherever the batches are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from operator_setting import batch, execution, guarded, instance, letters, outcome

from fries_nb.dataflow import Kind
from fries_nb.dataflow.columns import united
from fries_nb.errors import DeclarationError
from fries_nb.operators.conversion import NOT_ARROW, to_arrow

KINDS: dict[str, Sequence[Any]] = {
    "bool": (True, False, np.True_),
    "number": (0, 7, 2.5, np.int64(3), np.float64(1.5)),
    "text": ("", "ab", np.str_("c")),
    "bytes": (b"", b"bc", b"\xff", bytearray(b"d"), np.bytes_(b"e")),
    "date": (date(2026, 1, 2),),
    "datetime": (datetime(2026, 1, 2, 3),),
    "time": (time(4),),
    "timedelta": (timedelta(5),),
}
MIXED = [(one, other) for one in KINDS for other in KINDS if one != other]
VALUES = [(kind, value) for kind, values in KINDS.items() for value in values] + [("", None)]


def columns(batches: Sequence[Sequence[Any]]) -> list[pa.Array]:
    """Each batch as a column, of the type learnt from those before."""
    made: list[pa.Array] = []
    for values in batches:
        made.append(to_arrow(values, made[-1].type if made else None))
    return made


def type_of(batches: Sequence[Sequence[Any]]) -> pa.DataType | None:
    """The type of the column that all batches have in common, ``None`` if it is refused."""
    whole = pa.schema({"x": pa.null()})
    try:
        for column in columns(batches):
            whole = united(whole, pa.schema({"x": column.type}))
    except NOT_ARROW:
        return None
    return whole.field("x").type


def cuts(values: Sequence[Any]) -> Iterator[list[Sequence[Any]]]:
    """All the ways to cut these values into batches."""
    for bits in range(2 ** (len(values) - 1)):
        ends = [0, *(place for place in range(1, len(values)) if bits >> (place - 1) & 1), len(values)]
        yield [values[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize(("one", "other"), MIXED)
def test_values_of_two_kinds_make_no_column(one: str, other: str) -> None:
    """In one batch, with any of the two's types known; in two, the second is of its own type."""
    for first in KINDS[one]:
        for second in KINDS[other]:
            for known in (None, to_arrow([first], None).type, to_arrow([second], None).type):
                with pytest.raises(NOT_ARROW):
                    to_arrow([first, None, second], known)
            assert type_of([[first], [second]]) is None
            alone = to_arrow([second], to_arrow([first], None).type)
            assert alone.equals(to_arrow([second], None))


@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=5))
@example([("text", "a"), ("bytes", b"bc"), ("bytes", b"bc")])
@example([("number", 1.5), ("bool", True)])
def test_the_type_of_a_column_or_its_refusal_does_not_depend_on_where_batches_are_cut(sampled: Any) -> None:
    """Refused if there are two kinds, and else nothing is read back as anything else."""
    values = [value for _, value in sampled]
    kinds = {kind for kind, _ in sampled} - {""}
    types = [type_of(batches) for batches in cuts(values)]
    assert [kind is None for kind in types] == [len(kinds) > 1] * len(types)
    assert len(set(types)) == 1
    if len(kinds) <= 1:
        for batches in cuts(values):
            back = [value for column in columns(batches) for value in column.to_pylist()]
            assert back == values
            assert [isinstance(value, bool) for value in back] == [isinstance(one, bool | np.bool_) for one in values]


@given(st.lists(st.sampled_from([True, 1, 1.5, "a", b"bc", None]), min_size=1, max_size=5), st.booleans())
@example(["a", b"bc", b"bc"], False)
@example([1.5, True, True], True)
def test_an_operator_refuses_the_same_tuples_wherever_batches_are_cut(values: list[Any], whole: bool) -> None:
    """By name, with the value, and the type that its column had."""

    def put(row: Any) -> Any:
        return {"n": row["n"], "x": values[row["n"]]} if whole else row | {"x": values[row["n"]]}

    outcomes = []
    for frames in cuts(range(len(values))):
        operator, port = guarded(Kind.MAP, put)
        running = execution(operator)
        rows = [row for frame in frames for row in outcome(running, batch(n=list(frame)))]
        bad = [(json.loads(letter["tuple"])["n"], letter["error"]) for letter in letters(port)]
        assert all("G failed on a tuple: column 'x' cannot hold " in error for _, error in bad)
        assert all("before, and a column keeps its type" in error for _, error in bad)
        outcomes.append(([(row["n"], row["x"], isinstance(row["x"], bool)) for row in rows], [n for n, _ in bad]))
    passed, refused = outcomes[0]
    assert outcomes == [(passed, refused)] * len(outcomes)
    assert passed == [(n, values[n], values[n] is True) for n in range(len(values)) if n not in refused]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.5, True], r"^G failed on a tuple: column 'x' cannot hold True \(bool\): it was double before, "),
        ([True, 1], r"^G failed on a tuple: column 'x' cannot hold 1 \(int\): it was bool before, "),
        (["a", b"bc"], r"^G failed on a tuple: column 'x' cannot hold b'bc' \(bytes\): it was string before, "),
        ([b"bc", "a"], r"^G failed on a tuple: column 'x' cannot hold 'a' \(str\): it was binary before, "),
    ],
)
def test_an_operator_that_fails_names_the_value(values: list[Any], said: str) -> None:
    """As any other that clashes with its column."""
    running = execution(instance("G", Kind.MAP, lambda row: row | {"x": values[row["n"]]}))
    with pytest.raises(DeclarationError, match=said):
        outcome(running, batch(n=[0, 1]))


def test_a_column_that_came_as_text_may_leave_as_bytes() -> None:
    """What came does not bind what leaves; an input that becomes bytes frees what was written, too."""
    operator, port = guarded(Kind.MAP, lambda row: row | {"s": row["s"].encode()})
    assert outcome(execution(operator), batch(s=["a", "b"])) == [{"s": b"a"}, {"s": b"b"}]
    assert letters(port) == []
    operator, port = guarded(Kind.MAP, lambda row: row | {"x": row["s"]})
    running = execution(operator)
    assert [outcome(running, batch(s=[value])) for value in ("a", b"a")] == [
        [{"s": value, "x": value}] for value in ("a", b"a")
    ]
    assert letters(port) == []


@pytest.mark.parametrize("known", [None, pa.float64(), pa.decimal128(3, 1)])
def test_whole_numbers_still_go_with_fractions_and_decimals(known: pa.DataType | None) -> None:
    """They are all numbers."""
    assert to_arrow([1, 2.5, np.int64(3), None], known).to_pylist() == [1.0, 2.5, 3.0, None]
    assert to_arrow([1, Decimal("2.5"), None], known).to_pylist() == [1, Decimal("2.5"), None]


@pytest.mark.parametrize(
    ("value", "known"), [(date(2026, 1, 2), pa.timestamp("ns")), (Decimal(5), pa.duration("ns")), (7, pa.time64("ns"))]
)
def test_nothing_becomes_a_time_because_nanoseconds_were_seen(value: Any, known: pa.DataType) -> None:
    """A type that Arrow has to be told, and so takes much for."""
    assert to_arrow([value], known).to_pylist() == [value]
    with pytest.raises(NOT_ARROW):
        to_arrow([pa.array([1], known)[0].as_py(), value], known)


def test_the_message_names_both_kinds_and_the_remedy() -> None:
    """For columns whose operator is not asked: those of a source."""
    with pytest.raises(TypeError, match=r"^a column cannot hold bool beside float; convert the values to one type$"):
        to_arrow([1.5, True], None)
