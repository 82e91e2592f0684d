"""Generated payments: the columns of the public data set, determined by the seed, and of a likely shape."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fries_nb.errors import SourceError
from fries_nb.workloads import payments as paths
from fries_nb.workloads.payments import SCHEMA, payments, payments_path


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No public data set beside the checkout, no variable, and a cache directory that is empty."""
    monkeypatch.delenv(paths.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "BESIDE", paths.BESIDE.with_name("none"))
    monkeypatch.setattr(paths, "MONTH", 5_000)
    monkeypatch.setattr(paths, "ROW_GROUP", 1_024)
    return tmp_path


def column(table: pa.Table, name: str) -> np.ndarray:
    """A column as numpy values."""
    return table[name].to_numpy()


def test_equal_arguments_make_equal_payments():
    """The seed decides, and nothing else does."""
    assert payments(2_000, seed=3).equals(payments(2_000, seed=3))
    assert not payments(2_000, seed=3).equals(payments(2_000, seed=4))


@pytest.mark.parametrize("rows", [0, 1, 2, 777])
@pytest.mark.parametrize(("customers", "terminals"), [(1, 1), (3, 100), (5_000, 10_000)])
def test_as_many_as_asked_for_with_the_public_columns(rows, customers, terminals):
    """Any number of payments, customers and terminals; no nulls; identifiers within their range."""
    table = payments(rows, customers=customers, terminals=terminals)
    assert table.schema.equals(SCHEMA)
    assert table.num_rows == rows
    assert sum(chunk.null_count for chunk in table.itercolumns()) == 0
    if rows:
        assert 0 <= column(table, "CUSTOMER_ID").min() <= column(table, "CUSTOMER_ID").max() < customers
        assert 0 <= column(table, "TERMINAL_ID").min() <= column(table, "TERMINAL_ID").max() < terminals


def test_columns_agree_with_each_other():
    """Time is one thing told three ways, in order; a fraud is a payment with a scenario; amounts are in cents."""
    table = payments(20_000)
    seconds = column(table, "TX_TIME_SECONDS").astype(np.int64)
    assert (np.diff(seconds) >= 0).all()
    assert (column(table, "TX_TIME_DAYS") == seconds // 86_400).all()
    assert (
        column(table, "TX_DATETIME").astype(np.int64)
        == np.datetime64("2018-04-01", "ns").astype(np.int64) + seconds * 10**9
    ).all()
    assert (column(table, "TRANSACTION_ID") == np.arange(20_000)).all()
    assert ((column(table, "TX_FRAUD_SCENARIO") > 0) == column(table, "TX_FRAUD")).all()
    amounts = column(table, "TX_AMOUNT")
    assert (amounts >= 0).all()
    assert np.array_equal(amounts, np.round(amounts, 2))


def test_a_month_looks_like_the_public_month():
    """30 days, half of a percent or so of fraud of every kind, customers that pay nearby, and means of their own."""
    table = payments(288_062)
    assert column(table, "TX_TIME_DAYS").max() == 29
    assert 0.003 < column(table, "TX_FRAUD").mean() < 0.02
    assert set(np.unique(column(table, "TX_FRAUD_SCENARIO"))) == {0, 1, 2, 3}
    assert 45 < column(table, "TX_AMOUNT").mean() < 65
    per_customer = table.group_by("CUSTOMER_ID").aggregate([("TERMINAL_ID", "count_distinct"), ("TX_AMOUNT", "mean")])
    assert 15 < column(per_customer, "TERMINAL_ID_count_distinct").mean() < 45
    assert column(per_customer, "TX_AMOUNT_mean").std() > 20


def test_a_compromised_terminal_makes_frauds_for_days_and_then_stops():
    """Scenario 2 comes in runs: a terminal's frauds lie within 28 days, and all it does in them is fraud."""
    table = payments(60_000, customers=500, terminals=600)
    compromised = table.filter(pc.equal(table["TX_FRAUD_SCENARIO"], 2))
    terminal = column(compromised, "TERMINAL_ID")[0]
    days = column(table.filter(pc.equal(table["TERMINAL_ID"], terminal)), "TX_TIME_DAYS")
    frauds = column(compromised.filter(pc.equal(compromised["TERMINAL_ID"], terminal)), "TX_TIME_DAYS")
    assert frauds.max() - frauds.min() < 28
    assert len(days) > len(frauds)


@pytest.mark.parametrize(
    "bad", [{"rows": -1}, {"rows": 1.5}, {"rows": 9, "customers": 0}, {"rows": 9, "terminals": "3"}]
)
def test_a_number_out_of_range_is_refused(bad):
    """Says which argument and what was expected."""
    with pytest.raises(SourceError, match="expected a whole number from"):
        payments(**bad)
    with pytest.raises(SourceError, match="TX_TIME_SECONDS can say"):
        payments(1_000_000, customers=1)


def test_the_variable_comes_first(alone, monkeypatch):
    """FRIES_PAYMENTS names the file, whatever else is there."""
    path = alone / "mine.parquet"
    pq.write_table(payments(10), path)
    monkeypatch.setenv(paths.VARIABLE, str(path))
    assert payments_path() == payments_path(10) == str(path)
    assert pq.read_table(payments_path(25)).num_rows == 25


def test_the_file_beside_the_checkout_comes_second(alone, monkeypatch):
    """It is looked for in the directories above the checkout."""
    checkout = alone / "above" / "checkout"
    monkeypatch.setattr(paths, "__file__", str(checkout / "fries_nb" / "workloads" / "payments.py"))
    beside = alone / paths.BESIDE
    beside.parent.mkdir(parents=True)
    pq.write_table(payments(10), beside)
    assert payments_path() == str(beside)


def test_a_month_is_generated_last_and_kept(alone):
    """It has several row groups, is made once, and lies in the user's cache directory."""
    path = payments_path()
    file = pq.ParquetFile(path)
    assert path.startswith(str(alone / "cache" / "fries_nb"))
    assert file.schema_arrow.equals(SCHEMA)
    assert file.metadata.num_rows == 5_000
    assert file.metadata.num_row_groups == 5
    before = [(entry.name, entry.stat().st_mtime_ns) for entry in (alone / "cache" / "fries_nb").iterdir()]
    assert payments_path() == payments_path(5_000) == path
    assert [(entry.name, entry.stat().st_mtime_ns) for entry in (alone / "cache" / "fries_nb").iterdir()] == before


def test_more_rows_repeat_the_month_later_and_under_new_numbers(alone):
    """Transaction numbers stay unique, time goes on, the rest is as in the first month."""
    month, more = pq.read_table(payments_path()), pq.read_table(payments_path(12_345))
    assert more.num_rows == 12_345
    assert more.slice(0, 5_000).equals(month)
    assert len(np.unique(column(more, "TRANSACTION_ID"))) == 12_345
    seconds = column(more, "TX_TIME_SECONDS")
    assert (np.diff(seconds) >= 0).all()
    assert (column(more, "TX_TIME_DAYS") == seconds // 86_400).all()
    assert more.slice(5_000, 5_000)["TX_AMOUNT"].to_pylist() == month["TX_AMOUNT"].to_pylist()
    with pytest.raises(SourceError, match="TX_TIME_SECONDS"):
        payments_path(10**12)


def test_a_file_that_is_not_of_payments_is_refused(alone, monkeypatch):
    """No file, no Parquet, other columns, no rows: each in one line."""
    bad = {"none": None, "text": b"hello", "columns": pa.table({"a": [1]}), "empty": SCHEMA.empty_table()}
    for name, content in bad.items():
        path = alone / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            pq.write_table(content, path)
        monkeypatch.setenv(paths.VARIABLE, str(path))
        with pytest.raises(SourceError) as refused:
            payments_path()
        assert name in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_cache_that_cannot_be_written_is_told(alone, monkeypatch):
    """The message says what to set."""
    (alone / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(alone / "file"))
    with pytest.raises(SourceError, match="set XDG_CACHE_HOME"):
        payments_path()
