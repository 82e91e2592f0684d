"""TPC-DS at any scale, made by DuckDB and kept as Parquet: the tables, and what W2 and W3 read of them.

The paper considers the probing half of each join (Fries, section 8.1), so what a query selects and filters before it
joins is done here once, as Spark's optimiser would: ``Tables.read`` has the columns and rows that a source, or the
build side of a join, needs. Spark SQL's own answer to the query is taken from the whole tables, ``Tables.whole``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fries_nb as fn
from fries_nb.workloads.cache import kept

if TYPE_CHECKING:
    import duckdb

VERSION = 1
SCALE = 0.05
ROW_GROUP = 8_192
WHOLE = (
    "catalog_sales", "catalog_returns", "store_sales", "web_sales", "item", "date_dim", "warehouse", "time_dim",
)  # fmt: skip

SALES_40 = "cs_order_number, cs_item_sk, cs_warehouse_sk, cs_sold_date_sk, cs_sales_price"
NOVEMBER = "select d_date_sk from date_dim where d_moy = 11 and d_year = 1999"
READ: Mapping[str, str] = {
    "w2/Src": f"select {SALES_40} from catalog_sales",
    "w2/J1": "select cr_order_number, cr_item_sk, cr_refunded_cash from catalog_returns",
    "w2/J2": "select i_item_sk, i_item_id from item where i_current_price between 0.99 and 1.49",
    "w2/J3": "select d_date_sk, d_date from date_dim where d_date between date '2000-02-10' and date '2000-04-10'",
    "w2/J4": "select w_warehouse_sk, w_state from warehouse",
    **{
        f"w3/{source}": f"select {short}_ext_sales_price as ext_price, {short}_sold_date_sk as sold_date_sk, "
        f"{short}_item_sk as sold_item_sk, {short}_sold_time_sk as time_sk from {table}"
        for source, short, table in (
            ("Web", "ws", "web_sales"), ("Catalog", "cs", "catalog_sales"), ("Store", "ss", "store_sales"),
        )
    },
    "w3/J5": NOVEMBER,
    "w3/J6": NOVEMBER,
    "w3/J7": NOVEMBER,
    "w3/J8": "select i_item_sk, i_brand_id as brand_id, i_brand as brand from item where i_manager_id = 1",
    "w3/J9": "select t_time_sk, t_hour, t_minute from time_dim where t_meal_time in ('breakfast', 'dinner')",
}  # fmt: skip
"""What each source, and each join's table, selects from the tables; by workflow and operator."""


@dataclass(frozen=True)
class Tables:
    """A directory of TPC-DS tables."""

    directory: Path

    def whole(self, table: str) -> str:
        """The Parquet file of a table, with all its columns."""
        return str(self.directory / f"{table}.parquet")

    def read(self, workflow: str, operator: str) -> str:
        """The Parquet file that a source or a join of a workflow reads."""
        return str(self.directory / workflow / f"{operator}.parquet")

    def query(self, number: int) -> str:
        """The text of a query of the benchmark: 40 or 71."""
        return (self.directory / f"query{number}.sql").read_text()


def tpcds(scale: float = SCALE) -> Tables:
    """The tables at a scale factor (1 is a gigabyte), made once in the user's cache directory; 0.05 takes seconds.

    Raises:
        FriesError: DuckDB or its extension is not installed.
        SourceError: a bad scale; the cache directory cannot be written.
    """
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 < scale < float("inf"):
        raise fn.SourceError(f"tpcds(scale={scale!r}): expected a number above 0; 1 is a gigabyte")
    return Tables(kept(f"tpcds-v{VERSION}-{scale:g}", "TPC-DS tables", lambda path: _make(path, scale)))


def _make(directory: Path, scale: float) -> None:
    directory.mkdir()
    with _duckdb() as database:
        database.execute(f"call dsdgen(sf={scale})")
        for table in WHOLE:
            _copy(database, f"select * from {table}", directory / f"{table}.parquet")
        for name, query in READ.items():
            _copy(database, query, directory / f"{name}.parquet")
        for number in (40, 71):
            found = database.execute(f"select query from tpcds_queries() where query_nr = {number}").fetchall()
            (directory / f"query{number}.sql").write_text(found[0][0].strip().removesuffix(";"))


def _copy(database: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    database.execute(f"copy ({query}) to '{path}' (format parquet, row_group_size {ROW_GROUP})")


def _duckdb() -> duckdb.DuckDBPyConnection:
    """A database in memory that can make TPC-DS; the extension comes from PyPI, so that nothing is downloaded."""
    try:
        import duckdb
        import duckdb_extension_tpcds
    except ModuleNotFoundError as error:
        raise fn.FriesError("TPC-DS tables are made by DuckDB: pip install 'fries_nb[tpcds]'") from error
    extension = next(Path(duckdb_extension_tpcds.__file__).parent.rglob("*.duckdb_extension"))
    database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    database.execute("set enable_progress_bar = false")
    database.execute(f"load '{extension}'")
    return database
