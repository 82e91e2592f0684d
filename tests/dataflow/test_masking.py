"""Values that are not to be shown: at any depth, in texts and tables, in what workers say of tuples that failed."""

from __future__ import annotations

import pickle
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.dataflow.masking import checked_hide, masked, masked_text
from fries_nb.dataflow.shown_table import shown_table
from fries_nb.errors import DataflowError, DeclarationError, OperatorError, RunError
from fries_nb.operators.column_types import culprit
from fries_nb.operators.instance import row_as_json
from fries_nb.operators.rows import Columns, Reads
from fries_nb.protocol.messages import RowsSeen, WorkerId
from fries_nb.running.row_table import chosen, refuse_failed, row_table, seen_rows
from fries_nb.worker.alignment import failed_answer

HIDE = frozenset({"card", "pin"})


@dataclass
class Seen:
    """A state with a hidden field."""

    card: str
    count: int


Pair = namedtuple("Pair", "pin other")


@pytest.mark.parametrize(("value", "shown"), [
    ({"card": 1, "n": 2}, {"card": "•••", "n": 2}),
    ({"card": None}, {"card": None}),
    ({1: {"pin": 7}}, {1: {"pin": "•••"}}),
    ([{"pin": 7}, 7], [{"pin": "•••"}, 7]),
    ((7, {"pin": 7}), (7, {"pin": "•••"})),
    (Seen("c", 3), {"card": "•••", "count": 3}),
    ([Pair(1, 2)], [{"pin": "•••", "other": 2}]),
    ("card", "card"),
])  # fmt: skip
def test_what_is_named_so_is_masked_at_any_depth(value: object, shown: object) -> None:
    """All else is as it was."""
    assert masked(value, HIDE) == shown
    assert masked(value, ()) is value


def test_a_text_lacks_hidden_values_as_str_and_repr_show_them() -> None:
    """As words of their own: parts of other words and numbers stay."""
    row = {"card": "40 00", "pin": 7, "more": [{"pin": b"x"}], "n": 3}
    text = "'40 00' and 40 00 of 400 001, 7 but not 77 or x7; b'x'; 3"
    assert masked_text(text, row, HIDE) == "••• and ••• of 400 001, ••• but not 77 or x7; •••; 3"
    assert masked_text(text, row, ()) == text
    assert masked_text("a (b+) c", {"pin": "(b+)"}, HIDE) == "a ••• c"


@pytest.mark.parametrize(("hide", "words"), [
    ("card", "hide='card'; expected names of columns in a list, as in hide=.'card'."),
    (7, "hide=7; expected names of columns in a list"), (["card", 7], "hide= has 7; expected names of columns"),
    ([""], "hide= has ''"),
])  # fmt: skip
def test_names_that_are_none_are_refused(hide: Any, words: str) -> None:
    """Before anything is started."""
    with pytest.raises(DataflowError, match=words):
        checked_hide(hide)
    flow = fn.Dataflow("hiding")
    flow.source("S", fn.rate(1)).sink("out", fn.memory())
    with pytest.raises(DataflowError, match=words):
        flow.run(hide=hide)


def test_a_worker_that_has_failed_says_nothing_of_hidden_values() -> None:
    """Neither in the tuple in hand nor in what the user's code has raised."""
    error = OperatorError("F failed on a tuple: ValueError: bad 4000", "F", "Traceback\nValueError: bad 4000, 'x'\n")
    row = pa.RecordBatch.from_pylist([{"card": 4000, "amount": 3}])
    told = failed_answer(error, WorkerId("F", 0), row, HIDE)
    assert told.error == "F failed on a tuple: ValueError: bad •••"
    assert told.details == (
        "Traceback\nValueError: bad •••, 'x'\nIn hand, as it came to F: {\"card\": \"•••\", \"amount\": 3}\n"
    )
    assert "4000" in failed_answer(error, WorkerId("F", 0), row).details


def test_an_error_knows_the_value_that_it_mentions() -> None:
    """So that it is masked, though another tuple is in hand."""
    came = pa.RecordBatch.from_pylist([{"amount": 3}, {"amount": 3}])
    rows = list(Columns(came, Reads()).rows())
    rows[0]["card"], rows[1]["card"] = 7, {"text": "secret"}
    refused = culprit(["E", "F"], rows, ValueError("no"))
    assert isinstance(refused, DeclarationError)
    assert "secret" in str(refused)
    assert "secret" not in failed_answer(refused, WorkerId("F", 0), came.slice(0, 1), HIDE).error


def test_tables_have_the_values_and_show_masks() -> None:
    """Also what is selected from them; as text and in a notebook."""
    seen = RowsSeen(1, WorkerId("F", 0), pickle.dumps([{"card": 4000, "amount": 3}, {"card": None, "amount": 4}]))
    rows = list(seen_rows([seen], int, lambda identity: None))
    table = row_table(rows, hide=HIDE)
    assert table["card"].tolist()[0] == 4000
    for shown in (table, table.head(1), table[["card"]], table["card"], table.iloc[0], table.sort_values("amount"),
                  table.T.T, table.copy(), table[table["amount"] < 4]):  # fmt: skip
        assert "4000" not in repr(shown)
        assert "•••" in repr(shown)
        assert "4000" not in (getattr(shown, "_repr_html_", str)() or "")
    assert "4000" in table.to_csv()
    assert "4000" in repr(row_table(rows))
    nested = shown_table({"value": [{"card": 4000}, Seen("4000", 1)], "window": [(1, 2), (3, 4)]}, HIDE)
    assert "4000" not in repr(nested)
    assert "(1, 2)" in repr(nested)


def test_the_row_on_which_a_condition_has_raised_is_masked() -> None:
    """Whether it was tried by a worker or here."""
    rows = list(seen_rows([RowsSeen(1, WorkerId("F", 0), pickle.dumps([{"card": 4000}]))], int, lambda identity: None))

    def bad(row: Any) -> bool:
        raise ValueError(f"bad {row['card']}")

    told = 'where raised ValueError: bad ••• on a row that is in: {"card": "•••"}'
    with pytest.raises(RunError) as raised:
        chosen(rows, bad, HIDE)
    assert str(raised.value) == told
    error = "where raised ValueError: bad 4000 on a row that is in"
    with pytest.raises(RunError) as raised:
        refuse_failed([RowsSeen(1, WorkerId("F", 0), error=error, row=pickle.dumps({"card": 4000}))], HIDE)
    assert str(raised.value) == told
    assert row_as_json({"card": 4000, "n": 1}, HIDE) == '{"card": "•••", "n": 1}'
