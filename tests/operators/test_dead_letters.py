"""What a dead letter keeps of a row comes back as it was: types, order and columns; what cannot come back is told."""

from __future__ import annotations

import base64
import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from operator_setting import batch, execution, guarded, instance, letters, outcome

from fries_nb.dataflow import Kind, batched
from fries_nb.dataflow.columns import COHORT, DUE, TRANSACTION
from fries_nb.errors import DataflowError
from fries_nb.operators.dead_letters import LETTER, requeued_row, returned_rows, unpacked_row
from fries_nb.protocol.partitioning import BINS, Binning, bins_of_keys

ROWS = pa.RecordBatch.from_pydict(
    {
        "k": pa.array([1, 2], pa.int32()),
        "at": pa.array([datetime.datetime(2026, 1, 2), None], pa.timestamp("ns", "Europe/Rome")),
        "of": pa.array([[{"a": 1.5}], []], pa.list_(pa.struct({"a": pa.float32()}))),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "name": pa.array(["Zürich", None], pa.large_string()),
    }
)


def fails(row: dict[str, Any]) -> Any:
    """On all rows."""
    row["more"] = 1
    raise ValueError("no")


def test_a_row_comes_back_with_its_columns_in_their_types() -> None:
    """Whatever the function has done to it, or written to others."""
    operator, port = guarded(Kind.MAP, fails)
    outcome(execution(operator), batch(**{name: ROWS.column(name) for name in ROWS.schema.names}))
    found = letters(port)
    assert [unpacked_row(letter).equals(ROWS.slice(at, 1)) for at, letter in enumerate(found)] == [True, True]
    [together] = returned_rows([requeued_row(letter, Binning(["k"])) for letter in found])
    assert together.rows.equals(ROWS)
    assert together.with_hidden(5, identities=False).schema.names == [*ROWS.schema.names, DUE]
    assert [requeued_row(letter, Binning(["k"])).bin for letter in found] == bins_of_keys([1, 2]).tolist()
    assert all(0 <= requeued_row(letter, None).bin < BINS for letter in found)


def test_a_row_comes_back_with_its_cohort() -> None:
    """And an identity of its own; with neither to a run whose rows have none."""
    for function in (fails, batched(fails)):
        operator, port = guarded(Kind.MAP, function)
        outcome(execution(operator), batch(k=[1, 2], **{COHORT: pa.array([700, 60_000], pa.uint16())}))
        found = letters(port)
        assert [unpacked_row(letter).schema.names for letter in found] == [["k"]] * 2
        [together] = returned_rows([requeued_row(letter, Binning(["k"])) for letter in found])
        back = together.with_hidden(5, identities=True)
        assert back.column(COHORT).equals(pa.array([700, 60_000], pa.uint16()))
        assert max(back.column(TRANSACTION).to_pylist()) < 0
        assert together.with_hidden(5, identities=False).schema.names == ["k", DUE]


def test_a_batched_function_fails_on_single_rows() -> None:
    """Those that it takes alone go on."""

    @batched
    def half(rows: pa.RecordBatch) -> pa.RecordBatch:
        if 2 in rows.column("k").to_pylist():
            raise ValueError("no")
        return rows

    operator, port = guarded(Kind.MAP, half)
    rows = outcome(execution(operator), batch(**{name: ROWS.column(name) for name in ROWS.schema.names}))
    assert [row["k"] for row in rows] == [1]
    [letter] = letters(port)
    assert unpacked_row(letter).equals(ROWS.slice(1))


def test_inside_a_chain_a_row_has_what_was_written_before() -> None:
    """In the type that a column would have, beside the columns of the source."""
    first = instance("A", Kind.MAP, lambda row: row | {"half": row["k"] / 2, "set": {row["k"]}})
    second, port = guarded(Kind.MAP, fails)
    outcome(execution(first, second), batch(k=pa.array([1], pa.int32())))
    [kept] = [unpacked_row(letter) for letter in letters(port)]
    assert kept.schema.field("k").type == pa.int32()
    assert kept.to_pylist() == [{"k": 1, "half": 0.5, "set": [1]}]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"row": None}, "has no row that could go back"),
        ({"row": "no base64"}, "was damaged"),
        ({"row": base64.b64encode(b"no stream").decode()}, "was damaged"),
    ],
)
def test_a_letter_that_was_damaged_is_refused(told: dict[str, Any], words: str) -> None:
    """Before anything goes back."""
    letter = dict.fromkeys(LETTER.names) | {"letter": "FM[0].1.1.7", "tries": 1} | told
    with pytest.raises(DataflowError, match=f"FM.0..1.1.7 {words}"):
        requeued_row(letter, None)
