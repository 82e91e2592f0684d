"""The queries of Nexmark in SQL, whose results over the finished input are those of the dataflows; and what may change.

Queries without windows whose result grows, such as an average of all auctions so far, send an update whenever a row
changes; ``NexmarkQuery.updates`` names the columns by which the last update is the result.

Each query has one value that may be replaced while it runs (a rate, a filter, a limit); its SQL has it as ``{value}``.
What a run in which it was replaced may contain follows from the two results, see ``wrong_rows``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any

import fries_nb as fn
from fries_nb.workloads import nexmark_queries as queries
from fries_nb.workloads.nexmark_queries import House


@dataclass(frozen=True)
class NexmarkQuery:
    """A query.

    Attributes:
        declare: declares its operators, whose names begin with that of the query.
        operator: the operator whose function has the value.
        function: from a value to this function.
        sql: the same for Spark SQL, over the views ``person``, ``auction`` and ``bid``; ``{value}`` is ``value``.
        value: what may be replaced while it runs.
        changed: another one.
        shows: the columns in which it shows, if each row has its counterpart by the other value; empty if a value lets
            through all rows that the other one does, and more.
        updates: the columns by which the last row is the result; empty if each row is one.
        newest: what is greater in a later update.
    """

    declare: Callable[[House], fn.Stream]
    operator: str
    function: Callable[[Any], Any]
    value: Any
    changed: Any
    shows: str
    sql: str
    updates: tuple[str, ...] = ()
    newest: Callable[[Mapping[str, Any]], Any] = len

    @property
    def title(self) -> str:
        """What it asks, in one line."""
        return (self.declare.__doc__ or "").splitlines()[0]


WON = """
    SELECT * FROM (
        SELECT A.*, B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
               ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime, B.bidder) AS place
        FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
    ) WHERE place = 1
"""



def _ranked(keys: str, first: str) -> str:
    """The counts of q15 and q16."""
    ranks = {"total": "", "rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000",
             "rank3": "price >= 1000000"}  # fmt: skip
    counts = {"bids": "*", "bidders": "DISTINCT bidder", "auctions": "DISTINCT auction"}
    counted = [
        f"COUNT({what}) {f'FILTER (WHERE {limits})' if limits else ''} AS {rank}_{name}"
        for name, what in counts.items()
        for rank, limits in ranks.items()
    ]
    grouped = f"GROUP BY {keys} {DAY} HAVING COUNT(*) >= {{value}}"
    return f"SELECT {keys} {DAY} AS day, {first} {', '.join(counted)} FROM bid {grouped}"


NAMES, OTHER_NAMES = "apple google facebook baidu", "baidu apple google facebook"
DAY = "DATE_FORMAT(dateTime, 'yyyy-MM-dd')"
HOPS = """
    SELECT auction, COUNT(*) AS num, window.end AS end FROM bid
    GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
"""

QUERIES: Mapping[str, NexmarkQuery] = {
    "q0": NexmarkQuery(queries.q0, "q0 pass", queries.Suffixed, "", "!", "extra", """
        SELECT auction, bidder, price, dateTime, CONCAT(extra, '{value}') AS extra FROM bid"""),
    "q1": NexmarkQuery(queries.q1, "q1 convert", queries.Converted, "0.908", "0.920", "price", """
        SELECT auction, bidder, {value} * price AS price, dateTime, extra FROM bid"""),
    "q2": NexmarkQuery(queries.q2, "q2 keep", queries.Multiple, 123, 41, "", """
        SELECT auction, price FROM bid WHERE auction % {value} = 0"""),
    "q3": NexmarkQuery(queries.q3, "q3 auctions", queries.in_categories, "10", "10, 11", "", """
        SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category IN ({value}) AND P.state IN ('OR', 'ID', 'CA')"""),
    "q4": NexmarkQuery(queries.q4, "q4 mean", queries.Averaged, 0, 5, "average", f"""
        SELECT category, SUM(price) * (100 - {{value}}) / 100 / COUNT(*) AS average, COUNT(*) AS auctions
        FROM ({WON}) GROUP BY category""", ("category",), itemgetter("auctions")),
    "q5": NexmarkQuery(queries.q5, "q5 hottest", queries.Hottest, 100, 50, "", f"""
        SELECT auction, num, end FROM (SELECT *, MAX(num) OVER (PARTITION BY end) AS most FROM ({HOPS}))
        WHERE num * 100 >= most * {{value}}"""),
    "q6": NexmarkQuery(queries.q6, "q6 mean", queries.LastPrices, 10, 2, "average", f"""
        SELECT seller, id, AVG(price) OVER (
            PARTITION BY seller ORDER BY bid_dateTime, id ROWS BETWEEN {{value}} PRECEDING AND CURRENT ROW
        ) AS average FROM ({WON})"""),
    "q7": NexmarkQuery(queries.q7, "q7 of all", queries.Highest, 0, 99_000_000, "", """
        SELECT auction, bidder, price, dateTime, extra FROM (
            SELECT *, MAX(price) OVER (PARTITION BY window(dateTime, '10 seconds')) AS most FROM bid
        ) WHERE price = most AND price >= {value}"""),
    "q8": NexmarkQuery(queries.q8, "q8 names", queries.Named, "", "!", "name", """
        SELECT DISTINCT P.id AS seller, CONCAT(P.name, '{value}') AS name
        FROM (SELECT *, window(dateTime, '10 seconds') AS span FROM person) P
        JOIN (SELECT *, window(dateTime, '10 seconds') AS span FROM auction) A
        ON P.id = A.seller AND P.span = A.span"""),
    "q9": NexmarkQuery(queries.q9, "q9 keep", partial(queries.AtLeast, "price"), 0, 1_000_000, "", f"""
        SELECT id, itemName, seller, category, expires, bidder, price, bid_dateTime, bid_extra FROM ({WON})
        WHERE price >= {{value}}"""),
    "q10": NexmarkQuery(queries.q10, "q10 date", queries.Dated, "HH:mm", "HH", "hm", """
        SELECT auction, bidder, price, dateTime, extra, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS dt,
               DATE_FORMAT(dateTime, '{value}') AS hm FROM bid"""),
    "q11": NexmarkQuery(queries.q11, "q11 visits", queries.Visits, 0, 3, "", """
        SELECT bidder, COUNT(*) AS bid_count, MIN(dateTime) AS starttime, MAX(dateTime) AS last FROM bid
        GROUP BY bidder, session_window(dateTime, '10 seconds') HAVING COUNT(*) >= {value}"""),
    "q12": NexmarkQuery(queries.q12, "q12 count", partial(queries.BidCount, "bidder", "bid_count"), 0, 3, "", """
        SELECT bidder, window.end AS end, COUNT(*) AS bid_count FROM bid
        GROUP BY bidder, window(dateTime, '10 seconds') HAVING COUNT(*) >= {value}"""),
    "q13": NexmarkQuery(queries.q13, "q13 join", queries.side_input, "value", "other", "value", """
        SELECT auction, bidder, price, dateTime, CONCAT('{value} ', auction % 10000) AS value FROM bid"""),
    "q14": NexmarkQuery(queries.q14, "q14 calculate", queries.Calculated, "c", "a", "c_counts", """
        SELECT auction, bidder, 0.908 * price AS price, CASE
            WHEN HOUR(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, LENGTH(extra) - LENGTH(REPLACE(extra, '{value}', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000"""),
    "q15": NexmarkQuery(queries.q15, "q15 count", partial(queries.Ranked, ("day",)), 0, 1_000, "", _ranked("", "")),
    "q16": NexmarkQuery(queries.q16, "q16 count", partial(queries.Ranked, ("channel", "day")), 0, 3, "", _ranked(
        "channel,", "MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS minute,")),
    "q17": NexmarkQuery(queries.q17, "q17 prices", queries.Prices, 0, 3, "", f"""
        SELECT auction, {DAY} AS day, COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
            COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
            COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids, MIN(price) AS min_price, MAX(price) AS max_price,
            AVG(price) AS avg_price, SUM(price) AS sum_price
        FROM bid GROUP BY auction, {DAY} HAVING COUNT(*) >= {{value}}"""),
    "q18": NexmarkQuery(queries.q18, "q18 last", queries.Newest, "", "!", "extra", """
        SELECT auction, bidder, price, dateTime, CONCAT(extra, '{value}') AS extra, channel, url FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC) AS place
            FROM bid) WHERE place = 1""", ("bidder", "auction"), itemgetter("dateTime", "price")),
    "q19": NexmarkQuery(queries.q19, "q19 top", queries.Top, "", "!", "extra", """
        SELECT * FROM (
            SELECT auction, bidder, price, dateTime, CONCAT(extra, '{value}') AS extra, channel, url,
                   ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder) AS rank_number
            FROM bid) WHERE rank_number <= 10""", ("auction", "rank_number"),
        lambda row: (row["price"], -row["dateTime"].timestamp(), -row["bidder"])),
    "q20": NexmarkQuery(queries.q20, "q20 auctions", queries.in_categories, "10", "10, 11", "", """
        SELECT auction, bidder, price, B.dateTime AS bid_dateTime, B.extra AS bid_extra, itemName, expires, seller,
               category FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category IN ({value})"""),
    "q21": NexmarkQuery(queries.q21, "q21 number", queries.Channel, NAMES, OTHER_NAMES, "channel_id", """
        SELECT * FROM (SELECT auction, bidder, price, channel, CASE
            WHEN LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')
                THEN STRING(ARRAY_POSITION(SPLIT('{value}', ' '), LOWER(channel)) - 1)
            ELSE NULLIF(REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id FROM bid)
        WHERE channel_id IS NOT NULL"""),
    "q22": NexmarkQuery(queries.q22, "q22 split", queries.Directories, 3, 2, "dir1 dir2 dir3", """
        SELECT auction, bidder, price, channel, SPLIT(url, '/')[{value}] AS dir1, SPLIT(url, '/')[{value} + 1] AS dir2,
               SPLIT(url, '/')[{value} + 2] AS dir3 FROM bid"""),
}  # fmt: skip
"""Name to query."""


def plain(value: Any) -> Any:
    """A value as both engines have it: decimals without trailing zeros, floats to nine digits, times in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, Decimal):
        return value.normalize()
    return float(f"{value:.9g}") if isinstance(value, float) else value


def result(
    query: NexmarkQuery, rows: Iterable[Mapping[str, Any]], without: Collection[str] = ()
) -> Counter[tuple[Any, ...]]:
    """The result that rows amount to: how often each comes, with its values in the order of the names of columns.

    >>> result(QUERIES["q4"], [{"category": 10, "average": 2.5, "auctions": at} for at in (2, 1)])
    Counter({(2, 2.5, 10): 1})
    """
    found = list(rows)
    if query.updates:
        last: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        for row in sorted(found, key=query.newest):
            last[tuple(row[name] for name in query.updates)] = row
        found = list(last.values())
    return Counter(tuple(plain(row[name]) for name in sorted(row.keys() - set(without))) for row in found)


Rows = Collection[Mapping[str, Any]]


def wrong_rows(query: NexmarkQuery, found: Rows, before: Rows, after: Rows) -> Counter[tuple[Any, ...]]:
    """The rows of a run, in which the value was replaced, that it should not have, or lacks.

    Each row is one by the value before or by the one after. None is lost or doubled: but for what the value shows in,
    they are the same; where it decides which rows there are, those are there that both let through.

    >>> one, two, three = ({"auction": 1, "hm": "12:30"}, {"auction": 2, "hm": "12:31"}, {"auction": 2, "hm": "12"})
    >>> wrong_rows(QUERIES["q10"], [one, three], before=[one, two], after=[{"auction": 1, "hm": "12"}, three])
    Counter()
    >>> wrong_rows(QUERIES["q10"], [three], before=[one, two], after=[{"auction": 1, "hm": "12"}, three])
    Counter({(1,): 1})
    >>> some, more = {"auction": 123}, {"auction": 82}
    >>> wrong_rows(QUERIES["q2"], [more], before=[some], after=[some, more])
    Counter({(123,): 1})
    """
    was, now, is_ = (result(query, rows) for rows in (before, after, found))
    wrong = is_ - (was | now)
    if not query.shows:
        return wrong + ((was & now) - is_)
    same, there = (result(query, rows, query.shows.split()) for rows in (before, found))
    return wrong + (same - there) + (there - same)
