"""Messages become rows with stable columns, whatever is among them and however they are cut into batches."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.connectors.kafka_source import MessageDecoder
from fries_nb.errors import SourceError


def encoded(*rows: Any) -> list[bytes]:
    """As JSON."""
    return [json.dumps(row).encode() for row in rows]


def test_the_columns_are_those_of_the_messages_so_far() -> None:
    """New fields are new columns, integers may become floats, and a field that is missing is null."""
    decoder = MessageDecoder()
    first, _ = decoder.batch(encoded({"n": 1}, {"n": 2, "name": "x"}))
    second, _ = decoder.batch(encoded({"n": 2.5}))
    third, _ = decoder.batch(encoded({"n": 3, "tags": ["a"]}))
    assert first.to_pylist() == [{"n": 1, "name": None}, {"n": 2, "name": "x"}]
    assert second.schema == pa.schema({"n": pa.float64(), "name": pa.string()})
    assert third.to_pylist() == [{"n": 3.0, "name": None, "tags": ["a"]}]
    assert decoder.columns == third.schema


def test_text_remains_text() -> None:
    """Whether a value looks like a time depends on the value; columns must not."""
    batch, _ = MessageDecoder().batch(encoded({"at": "2026-01-01 00:00:00"}))
    assert batch.schema == pa.schema({"at": pa.string()})


def test_a_schema_is_kept() -> None:
    """Other fields are ignored, missing ones are null, times are parsed, and a misfit is named."""
    schema = pa.schema({"at": pa.timestamp("us"), "n": pa.int32()})
    decoder = MessageDecoder(schema=schema)
    batch, failures = decoder.batch(
        encoded({"at": "2026-01-01T10:00:00", "n": 1, "x": 1}, {"n": "one"}, {"n": 2}, {"at": "soon"})
    )
    assert batch.schema == schema
    assert batch.to_pylist() == [{"at": datetime.datetime(2026, 1, 1, 10), "n": 1}, {"at": None, "n": 2}]
    assert failures == {1: "its 'n' is 'one'; expected int32", 3: "its 'at' is 'soon'; expected timestamp[us]"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "Input data was truncated"), (b"{", "truncated"), (b"17", "it is JSON, but not an object: 17"),
        (b"\xff\xfe", "JSON is malformed"), (None, "it has no value"), (b"{}", "it has no columns"),
        (b'{"n": 1}{"n": 2}', "malformed"), (b'{"_fries_due": 1}', "a name of the runtime's own"),
        (b'{"n": "text"}', "column 'n' was int64 and is now string"), (b'[{"n": 1}]', "not an object"),
    ],
)  # fmt: skip
def test_a_message_that_is_no_row_is_alone(value: bytes | None, why: str) -> None:
    """The others around it are rows, and it is said why it is none."""
    decoder = MessageDecoder()
    decoder.batch(encoded({"n": 0}))
    good = encoded(*({"n": n} for n in range(20)))
    batch, failures = decoder.batch([*good[:7], value, *good[7:]])
    assert batch["n"].to_pylist() == list(range(20))
    assert list(failures) == [7]
    assert why in failures[7]


def test_two_messages_in_one_and_an_empty_one_do_not_add_up() -> None:
    """As many objects as messages, but not one in each."""
    decoder = MessageDecoder()
    decoder.batch(encoded({"n": 0}))
    batch, failures = decoder.batch([b'{"n": 1}\n{"n": 2}', b'{"n": 3}', b"  "])
    assert batch["n"].to_pylist() == [3]
    assert list(failures) == [0, 2]


def test_a_message_may_be_laid_out() -> None:
    """JSON on several lines, or behind blanks, is JSON."""
    decoder = MessageDecoder()
    batch, failures = decoder.batch([*encoded({"n": 1}), b' {\n "n": 2\n}\n', *encoded({"n": 3})])
    assert batch["n"].to_pylist() == [1, 2, 3]
    assert failures == {}


def halves(value: bytes) -> dict[str, Any]:
    """A format of one's own."""
    left, right = value.decode().split(":")
    return {"left": left, "right": int(right)}


def test_a_function_decodes() -> None:
    """Its exception is said, and what is no dict; columns are inferred, or those of the schema."""
    batch, failures = MessageDecoder(halves).batch([b"a:1", b"b", b"c:x", b"d:4"])
    assert batch.to_pylist() == [{"left": "a", "right": 1}, {"left": "d", "right": 4}]
    assert failures[1].startswith("ValueError: not enough values to unpack")
    assert failures[2].startswith("ValueError: invalid literal for int()")
    narrow, _ = MessageDecoder(halves, pa.schema({"right": pa.int8()})).batch([b"a:1"])
    assert narrow.schema == pa.schema({"right": pa.int8()})
    assert MessageDecoder(lambda value: [1]).batch([b"a"])[1] == {0: "it was decoded, but not to a dict: [1]"}


def test_rows_do_not_depend_on_how_messages_are_cut() -> None:
    """The same rows and the same failures, in batches of any size."""
    chance = random.Random(7)
    kinds: list[Any] = [
        {"n": 1}, {"n": 2.5}, {"n": 3, "s": "x"}, {"s": None}, {"n": "text"}, b"broken", {"deep": {"a": [1]}},
    ]  # fmt: skip
    for _ in range(8):
        drawn = [chance.choice(kinds) for _ in range(40)]
        values = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in drawn]
        whole = cut(values, 40)
        for size in (1, 3, 7):
            assert cut(values, size) == whole


def cut(values: list[bytes], size: int) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows without their nulls, and the failures."""
    decoder, rows, failed = MessageDecoder(), [], []
    for first in range(0, len(values), size):
        batch, failures = decoder.batch(values[first : first + size])
        rows += [{name: value for name, value in row.items() if value is not None} for row in batch.to_pylist()]
        failed += [first + index for index in failures]
    return rows, failed


def test_further_columns_can_be_refused() -> None:
    """Message by message; one that lacks a column is none of them."""
    decoder = MessageDecoder(adds_columns=False)
    decoder.batch([b'{"n": 1, "s": "x"}'])
    batch, failures = decoder.batch([b'{"n": 2}', b'{"n": 3, "tax": 1}', b'{"n": 4, "s": "y"}'])
    assert batch.to_pylist() == [{"n": 2, "s": None}, {"n": 4, "s": "y"}]
    assert list(failures) == [1]
    assert failures[1].startswith("it has a column 'tax', which messages before lack; expected the same columns")


@pytest.mark.parametrize("source", [partial(fn.files, "in", "json"), partial(fn.kafka, "h:1", "t")])
def test_what_becomes_of_new_columns_is_one_of_two(source: Callable[..., object]) -> None:
    """And not said beside given columns."""
    with pytest.raises(SourceError, match=r"got new_columns='ad'; expected 'add' or 'refuse'"):
        source(new_columns="ad")
    with pytest.raises(SourceError, match=r"got schema= and new_columns='refuse'; columns beside those of a schema"):
        source(schema=pa.schema({"n": pa.int64()}), new_columns="refuse")
