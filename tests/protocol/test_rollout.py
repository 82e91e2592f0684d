"""Which rows are new in a canary: of 100,000 cohorts or identities, the same at all operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fries_nb.connectors.source import CohortColumn
from fries_nb.dataflow.columns import COHORT, TRANSACTION
from fries_nb.errors import SourceError
from fries_nb.operators.row_versions import Earlier, runs_of, versions_of
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.partitioning import partition
from fries_nb.protocol.rollout import RolloutStep, are_new
from fries_nb.protocol.trace import ROW_BITS

ROWS = 100_000
ORIGIN = 3
SHARES = (0.05, 0.25, 1.0)
CUSTOMERS = [f"customer {number}" for number in range(ROWS)]
COLUMNS: dict[str, list[Any]] = {
    "identities": [],
    "text": CUSTOMERS,
    "text with nulls": [None if number % 10 == 7 else one for number, one in enumerate(CUSTOMERS)],
    "numbers": [number / 4 for number in range(ROWS)],
}


def rows_of(values: list[Any], first: int = 0) -> pa.RecordBatch:
    """Rows with the cohorts of these values, or of their identities, from a position on."""
    rows = pa.RecordBatch.from_pydict({TRANSACTION: np.arange(first, first + ROWS) + (ORIGIN << ROW_BITS)})
    if not values:
        return rows
    column = CohortColumn("payments", "customer").cohorts(pa.RecordBatch.from_pydict({"customer": values}))
    return rows.append_column(COHORT, column)


def steps_at(cuts: list[int]) -> list[RolloutStep]:
    """The steps of a canary."""
    return [RolloutStep({ORIGIN: cut}, share) for cut, share in zip(cuts, SHARES, strict=False)]


@pytest.mark.parametrize("of", COLUMNS)
def test_a_share_that_rises_moves_no_cohort_back(of: str) -> None:
    """Each share is met within five deviations of a draw, and what is new by one is new by the next."""
    rows, was = rows_of(COLUMNS[of], first=ROWS), np.zeros(ROWS, np.bool_)
    drawn = np.array([value is not None for value in COLUMNS[of] or range(ROWS)])
    for number, share in enumerate(SHARES, 1):
        new = are_new(steps_at([9, 99, 999][:number]), rows)
        assert not (was & ~new).any()
        deviation = (share * (1 - share) / drawn.sum()) ** 0.5
        assert abs(new[drawn].mean() - share) <= 5 * deviation
        assert len({*new[~drawn].tolist()}) <= 1  # nulls are one cohort
        was = new


@pytest.mark.parametrize("of", COLUMNS)
def test_all_operators_decide_alike(of: str) -> None:
    """However rows are divided among workers, batches and slices, and whatever changes an operator has besides."""
    rows, bound = rows_of(COLUMNS[of]), ROWS // 2
    steps = tuple(steps_at([bound, bound + 9_999, bound + 29_999]))
    canary = Earlier("u1", steps, len, None, "", KeyedState(dict))
    new = versions_of([canary], rows) == 1
    parts = np.split(new, [bound + 1, bound + 10_000, bound + 30_000])
    assert [float(part.mean()) for part in parts] == pytest.approx([0, *SHARES], abs=0.09)  # nulls are one
    assert not parts[0].any()
    assert parts[-1].all()
    order = np.random.default_rng(1).permutation(ROWS)
    other = replace(canary, change="u0", steps=(RolloutStep({ORIGIN: bound // 2}),))
    for _, part in partition(rows.take(pa.array(order)), order % 3, 3):
        places = part.column(TRANSACTION).to_numpy() - (ORIGIN << ROW_BITS)
        found = [(number == 2, piece.num_rows) for number, piece in runs_of([other, canary], part)]
        assert np.array_equal(np.repeat(*zip(*found, strict=True)), new[places])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"costumer": ["a"]}, "has cohort='customer', but no such column; expected one of costumer; did you mean"),
        ({"customer": [["a"]]}, r"has cohort='customer', a column of list<.*>; expected numbers, text, bytes"),
        ({TRANSACTION: [7]}, "but no such column"),
    ],
)
def test_a_column_that_makes_no_cohorts_is_refused(values: dict[str, Any], words: str) -> None:
    """When the source is read, for one whose columns are not known before."""
    with pytest.raises(SourceError, match=words):
        CohortColumn("payments", "customer").cohorts(pa.RecordBatch.from_pydict(values))


def test_a_column_of_nulls_is_one_cohort() -> None:
    """As nulls of any type are."""
    columns = [pa.nulls(2), pa.nulls(2, pa.string()), pa.nulls(2, pa.float64()), pa.array([None, None, "a"])[:2]]
    read = [pa.RecordBatch.from_arrays([column], ["customer"]) for column in columns]
    assert len({one for rows in read for one in CohortColumn("payments", "customer").cohorts(rows).to_pylist()}) == 1
