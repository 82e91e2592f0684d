"""The bin of a key is the same in every process, for every type that holds the key, for one row or many."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.errors import KeyTypeError
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.partitioning import (
    BINS,
    Binning,
    bins_of_keys,
    bins_of_values,
    cohorts,
    cohorts_of,
    identities,
    partition,
    routing_table,
)
from fries_nb.protocol.trace import identity_of

INTEGERS = (pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(),
            pa.float64())  # fmt: skip


@given(st.integers(0, 127))
def test_equal_numbers_have_one_bin_whatever_their_type(value: int) -> None:
    """Equal numbers have one bin whatever their type."""
    bins = {int(bins_of_values([pa.array([value], type=kind)])[0]) for kind in INTEGERS}
    assert len(bins) == 1
    if value in (0, 1):
        bins.add(int(bins_of_values([pa.array([bool(value)])])[0]))
    assert len(bins) == 1


@given(st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1).map(float))
def test_a_whole_float_has_the_bin_of_its_integer(value: float) -> None:
    """A whole float has the bin of its integer."""
    bin_ = bins_of_values([pa.array([value])])[0]
    assert 0 <= bin_ < BINS
    if value.is_integer() and -(2**63) <= int(value) < 2**63:
        assert bin_ == bins_of_values([pa.array([int(value)], type=pa.int64())])[0]


KEYS = (
    st.lists(st.text()),
    st.lists(st.integers(-(2**63), 2**64 - 1)),
    st.lists(st.floats()),
    st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1))),
    st.lists(st.none() | st.booleans() | st.integers(0, 9) | st.floats() | st.text() | st.binary()),
)


@given(st.one_of(KEYS))
def test_a_key_has_the_same_bin_alone_and_among_others(keys: list[object]) -> None:
    """Whatever types the others have."""
    assert bins_of_keys(keys).tolist() == [int(bins_of_keys([key])[0]) for key in keys]


def test_strings_have_one_bin_however_they_are_stored() -> None:
    """Strings have one bin however they are stored."""
    plain = pa.array(["a", None, "b", "a"])
    expected = bins_of_values([plain]).tolist()
    for column in (plain.cast(pa.large_string()), plain.dictionary_encode(), plain.slice(0), pa.chunked_array([plain])):
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        assert bins_of_values([column]).tolist() == expected
    encoded = pa.array([5, 6, 5]).dictionary_encode()
    assert bins_of_values([encoded]).tolist() == bins_of_values([pa.array([5, 6, 5])]).tolist()


def test_decimals_have_the_bin_of_their_value_whatever_their_scale() -> None:
    """1.5 and 1.50 are one key of a dict, and Decimal(3) is the same key as 3."""
    halves = [pa.array([Decimal("1.5")], pa.decimal128(10, scale)) for scale in (1, 2, 5)]
    assert len({int(bins_of_values([column])[0]) for column in halves}) == 1
    whole = pa.array([Decimal("3.00")], pa.decimal128(10, 2))
    assert bins_of_values([whole])[0] == bins_of_values([pa.array([3])])[0]


def test_null_is_a_key_with_a_bin_of_its_own_type_regardless() -> None:
    """Null is a key with a bin of its own type regardless."""
    kinds = (pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.null(), pa.date32())
    assert len({int(bins_of_values([pa.array([None], type=kind)])[0]) for kind in kinds}) == 1


PROGRAM = """
import pyarrow as pa
from datetime import date
from fries_nb.protocol.partitioning import bins_of_values
keys = [pa.array(["a", "ü", None]), pa.array([1, 2, 3]), pa.array([1.5, 2.5, None]), pa.array([date(2020, 1, 1)] * 3)]
print([bins_of_values([key]).tolist() for key in keys] + [bins_of_values(keys).tolist()])
"""


def test_bins_do_not_depend_on_the_process() -> None:
    """Bins do not depend on the process."""
    said = set()
    for seed in ("0", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True)
        said.add(ran.stdout)
    assert len(said) == 1


DRAWN_KEYS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.text(), min_size=1),
    st.lists(st.dates(date(1970, 1, 1)), min_size=1),
    st.lists(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)), min_size=1),
    st.lists(st.booleans(), min_size=1),
    st.lists(st.tuples(st.integers(0, 9), st.text(max_size=2)), min_size=1),
)


@given(DRAWN_KEYS)
def test_rows_alone_rows_together_and_kept_states_agree_on_the_bin(keys: list[object]) -> None:
    """What the outbox partitions by is what state moves by."""
    columns = list(zip(*keys, strict=True)) if isinstance(keys[0], tuple) else [keys]
    names = [f"k{i}" for i in range(len(columns))]
    batch = pa.RecordBatch.from_arrays([pa.array(list(column)) for column in columns], names=names)
    together = bins_of_values(batch.columns).tolist()
    binning = Binning(names)
    alone = [int(binning.of(batch.slice(i, 1))[0]) for i in range(len(keys))]
    assert alone == together
    state = KeyedState(dict)
    for key in keys:
        state.touch(key)
    for bin_, states in state.bins().items():
        assert all(together[keys.index(key)] == bin_ for key in states)


def test_a_lone_row_whose_key_cannot_be_one_is_refused_as_many_are() -> None:
    """A lone row whose key cannot be one is refused as many are."""
    lists = pa.RecordBatch.from_pydict({"k": [[1], [2]]})
    for batch in (lists, lists.slice(0, 1)):
        with pytest.raises(KeyTypeError, match="cannot be a key"):
            Binning(["k"]).of(batch)


@given(st.lists(st.integers(0, 4), min_size=1), st.integers(5, 9))
def test_dealing_keeps_order_and_loses_nothing(targets: list[int], workers: int) -> None:
    """Dealing keeps order and loses nothing."""
    batch = pa.RecordBatch.from_pydict({"n": list(range(len(targets)))})
    parts = partition(batch, np.array(targets, dtype=np.int64), workers)
    got = {worker: part.column("n").to_pylist() for worker, part in parts}
    assert len(got) == len(parts)
    assert got == {w: [n for n, target in enumerate(targets) if target == w] for w in set(targets)}


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 256])
def test_bins_are_spread_evenly_in_contiguous_runs(workers: int) -> None:
    """Bins are spread evenly in contiguous runs."""
    table = routing_table(workers)
    counts = np.bincount(table, minlength=workers)
    assert len(table) == BINS
    assert counts.max() - counts.min() <= 1
    assert (np.diff(table) >= 0).all()


def test_keys_spread_over_the_bins() -> None:
    """Keys spread over the bins."""
    for column in (pa.array(range(10_000)), pa.array([str(n) for n in range(10_000)]), pa.array(np.arange(1e4) * 256)):
        counts = np.bincount(bins_of_values([column]), minlength=BINS)
        assert counts.max() < 3 * counts.mean()
        assert counts.min() > 0


AT = datetime(2026, 11, 1, 12)
COHORTS = {
    "a whole number": (
        [5], [*(pa.array([5], kind) for kind in INTEGERS), pa.array([Decimal("5.00")])], 4_988,
    ),
    "text": (["ü"], [pa.array(["ü"], kind) for kind in (pa.string(), pa.large_string())], 20_195),
    "a null": ([None], [pa.array([None], kind) for kind in (pa.null(), pa.int8(), pa.string())], 15_348),
    "a time": ([AT], [pa.array([AT], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")], 34_957),
}  # fmt: skip


@pytest.mark.parametrize("values", COHORTS)
def test_a_value_has_one_cohort_in_every_type_run_and_version(values: str) -> None:
    """So it is fixed here; alone, among others, and as a dictionary."""
    plain, columns, expected = COHORTS[values]
    columns = [*columns, pa.array(plain).dictionary_encode()]
    assert [cohorts_of([column]).tolist() for column in columns] == [[expected]] * len(columns)
    assert cohorts_of([pa.array([*plain, *plain])]).tolist() == [expected] * 2


@pytest.mark.parametrize("splits", [1, 7, 1024])
def test_consecutive_rows_are_spread_over_the_cohorts(splits: int) -> None:
    """Any share of cohorts has that share of rows, at each worker that they go to by a key; within four deviations."""
    rows = 100_000 // splits
    numbers = np.array([identity_of(2, split, 0) for split in range(splits)])[:, None] + np.arange(rows)
    batch = pa.RecordBatch.from_pydict({TRANSACTION: numbers.reshape(-1)})
    found, keys = cohorts(batch), pa.array(range(splits * rows))
    assert found.dtype == np.uint16
    assert identities(batch).ctypes.data == batch.column(0).buffers()[1].address
    for of, bins in ((found, bins_of_values([batch.column(0)])), (cohorts_of([keys]), bins_of_values([keys]))):
        workers = bins * 4 // BINS
        for rows_of in (of, *(of[workers == worker] for worker in range(4))):
            for share in (0.01, 0.05, 0.25, 0.5):
                deviation = (share * (1 - share) / rows_of.size) ** 0.5
                assert abs((rows_of < share * 2**16).mean() - share) < 4 * deviation, share
        groups = np.bincount(of >> 8, minlength=256)
        assert abs(((groups - groups.mean()) ** 2 / groups.mean()).sum() - 255) < 4 * (2 * 255) ** 0.5
