"""Workflow W2 (Fries, section 8.1; TPC-DS query 40): Src -> J1 -> J2 -> J3 -> J4 -> Sink.

For items priced 0.99 to 1.49, the sales of a 60-day period with refunds, and the state of the warehouse. Every join is
with a primary key and partitions its input by that key, so each edge between joins has as many channels as the square
of their workers; with one worker at the sink, that makes 4p^2 + p (table 7).
"""

from __future__ import annotations

from typing import Any

import fries_nb as fn
from fries_nb.workloads.tpcds import Tables

NAME = "w2"
JOINS = ("J1", "J2", "J3", "J4")
RESULT = """
select w_state, i_item_id,
  sum(case when d_date < date '2000-03-11' then cs_sales_price - coalesce(cr_refunded_cash, 0) else 0 end) sales_before,
  sum(case when d_date >= date '2000-03-11' then cs_sales_price - coalesce(cr_refunded_cash, 0) else 0 end) sales_after
from {joined} group by w_state, i_item_id order by w_state, i_item_id limit 100
"""
"""What query 40 makes of the joined rows; ``{joined}`` is what they are called."""


def w2_flow(tables: Tables, sink: Any, workers: int | None = None, source: Any = None) -> fn.Dataflow:
    """The pipelined part of query 40, with one worker at the sink.

    Args:
        tables: see ``tpcds``.
        sink: a description, such as ``fn.memory()``.
        workers: of all other operators; the run's default if None.
        source: a description, in place of one replay of catalog_sales.
    """

    def table(join: str) -> str:
        return tables.read(NAME, join)

    flow = fn.Dataflow("W2")
    sales = flow.source("Src", source or fn.replay(tables.read(NAME, "Src")), workers=workers)
    returned = {"cs_order_number": "cr_order_number", "cs_item_sk": "cr_item_sk"}
    joined = sales.join("J1", table("J1"), returned, how="left", key=True, workers=workers)
    joined = joined.join("J2", table("J2"), {"cs_item_sk": "i_item_sk"}, key=True, workers=workers)
    joined = joined.join("J3", table("J3"), {"cs_sold_date_sk": "d_date_sk"}, key=True, workers=workers)
    joined = joined.join("J4", table("J4"), {"cs_warehouse_sk": "w_warehouse_sk"}, key=True, workers=workers)
    joined.sink("Sink", sink, workers=1)
    return flow
