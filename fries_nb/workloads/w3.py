"""Workflow W3 (Fries, section 8.1; TPC-DS query 71): {J5, J6, J7} -> U1 -> J8 -> J9 -> Sink, a source for each channel.

The sales of a manager's brands at breakfast and dinner time in November 1999, on the web, by catalog and in stores:
each channel's sales are joined with the month (J5, J6, J7), U1 unites them, J8 joins the item and J9 the time of day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fries_nb as fn
from fries_nb.workloads.tpcds import Tables

NAME = "w3"
CHANNELS: Mapping[str, str] = {"Web": "J5", "Catalog": "J6", "Store": "J7"}
JOINS = ("J5", "J6", "J7", "J8", "J9")
RESULT = """
select brand_id, brand, t_hour, t_minute, sum(ext_price) ext_price
from {joined} group by brand, brand_id, t_hour, t_minute
order by ext_price desc nulls first, brand_id nulls first, t_hour nulls first
"""
"""What query 71 makes of the joined rows; ``{joined}`` is what they are called."""


def w3_flow(
    tables: Tables, sink: Any, workers: int | None = None, sources: Mapping[str, Any] | None = None
) -> fn.Dataflow:
    """The pipelined part of query 71, with one worker at the sink.

    Args:
        tables: see ``tpcds``.
        sink: a description, such as ``fn.memory()``.
        workers: of all other operators; the run's default if None.
        sources: descriptions of Web, Catalog and Store, in place of one replay of each.
    """
    flow = fn.Dataflow("W3")
    given = sources or {name: fn.replay(tables.read(NAME, name)) for name in CHANNELS}
    sold = []
    for channel, join in CHANNELS.items():
        sales = flow.source(channel, given[channel], workers=workers)
        month = tables.read(NAME, join)
        sold.append(sales.join(join, month, {"sold_date_sk": "d_date_sk"}, key=True, workers=workers))
    together = sold[0].union("U1", *sold[1:], workers=workers)
    items = together.join("J8", tables.read(NAME, "J8"), {"sold_item_sk": "i_item_sk"}, key=True, workers=workers)
    times = items.join("J9", tables.read(NAME, "J9"), {"time_sk": "t_time_sk"}, key=True, workers=workers)
    times.sink("Sink", sink, workers=1)
    return flow
