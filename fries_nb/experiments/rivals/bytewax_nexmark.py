"""Queries q0 to q8 of Nexmark in bytewax 0.21, each by hand, as the fastest that we can write.

Started once for each process as ``python -m fries_nb.experiments.rivals.bytewax_nexmark QUERY I ADDRESSES EVENTS
TARGET``; prints times as ``bytewax_jobs`` does. ``EVENTS`` is a directory with ``person.parquet`` and its like.

An item is a tuple of the columns that the query uses, with times as numbers of microseconds. bytewax has no frontier
for all keys, and its own windows look at every key whenever something has come. So a query with windows, or with
auctions that end, keeps what it needs of each key and gives it out at the end of the input, which is less than what it
is compared with does: that gives out a result as soon as no row can change it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic

from fries_nb.experiments.rivals.bytewax_jobs import ParquetParts, ParquetRows, of_keyed

Item = Any
US = 1_000_000
TIMES = ("dateTime", "end")


class GivenAtTheEnd(StatefulBatchLogic[Item, Item, Any]):
    """The state of a key, whose rows are given out at the end of the input."""

    def __init__(self, state: Any, take: Callable[[Any, Item], None], give: Callable[[Any], Iterable[Item]]) -> None:
        self._state, self._take, self._give = state, take, give

    def on_batch(self, values: list[Item]) -> tuple[Iterable[Item], bool]:
        """Take items."""
        for value in values:
            self._take(self._state, value)
        return (), False

    def on_eof(self) -> tuple[Iterable[Item], bool]:
        """Give out the rows."""
        return list(self._give(self._state)), True  # bytewax refuses a generator here

    def snapshot(self) -> Any:
        """The state, which is not kept."""
        return None


def read(flow: Any, events: Path, kind: str, *columns: str) -> Any:
    """The rows of a kind, as tuples of these columns."""
    return op.input(kind, flow, ParquetRows(events / f"{kind}.parquet", columns, tuples_of))


def tuples_of(batch: pa.RecordBatch) -> list[Item]:
    """A tuple for each row, with times as integers: datetimes would take twice as long."""
    columns = [array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array for array in batch.columns]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def batch_of(names: Sequence[str], items: list[Item]) -> pa.RecordBatch:
    """Items as a batch of these columns."""
    columns = {
        name: pa.array(values, pa.int64()).cast(pa.timestamp("us")) if name in TIMES else pa.array(values)
        for name, values in zip(names, zip(*items, strict=True), strict=True)
    }
    return pa.RecordBatch.from_pydict(columns)


BID = ("auction", "bidder", "price", "dateTime", "extra")


def q0(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """Pass on each bid."""
    return op.map("pass", read(flow, events, "bid", *BID), lambda bid: bid), BID


def q1(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """Prices in euros."""
    rate = Decimal("0.908")

    def convert(bid: Item) -> Item:
        auction, bidder, price, at, extra = bid
        return auction, bidder, rate * price, at, extra

    return op.map("convert", read(flow, events, "bid", *BID), convert), BID


def q2(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """Bids for some auctions."""
    bids = read(flow, events, "bid", "auction", "price")
    return op.filter("keep", bids, lambda bid: bid[0] % 123 == 0), ("auction", "price")


def q3(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """People of three states with auctions in a category; state of a seller: the person, and auctions before it."""
    people = op.filter("states", read(flow, events, "person", "id", "name", "city", "state"), _is_near)
    auctions = op.filter("ten", read(flow, events, "auction", "seller", "id", "category"), lambda one: one[2] == 10)

    def pair(state: Any, item: Item) -> tuple[Any, Iterable[Item]]:
        person, waiting = state or (None, [])
        if len(item) == 4:
            return (item[1:], []), [(*item[1:], auction) for auction in waiting]
        if person is not None:
            return state, [(*person, item[1])]
        waiting.append(item[1])
        return (None, waiting), ()

    keyed = op.key_on("by_seller", op.merge("both", people, auctions), lambda item: str(item[0]))
    return op.stateful_flat_map("pairs", keyed, pair), ("name", "city", "state", "id")


def _is_near(person: Item) -> bool:
    return person[3] in ("OR", "ID", "CA")


def winning(flow: Any, events: Path, column: str) -> Any:
    """For each auction the values ``column, price, time, id`` of the highest bid between its begin and its end."""
    auctions = read(flow, events, "auction", "id", "dateTime", "expires", column)
    bids = read(flow, events, "bid", "auction", "price", "dateTime")

    def take(state: list[Any], item: Item) -> None:
        if len(item) == 4:
            state[0] = item
        else:
            state[1].append(item)

    def give(state: list[Any]) -> Iterator[Item]:
        if state[0] is None:
            return
        number, begin, end, value = state[0]
        valid = [(-price, at) for _, price, at in state[1] if begin <= at <= end]
        if valid:
            price, at = min(valid)
            yield value, -price, at, number

    keyed = op.key_on("by_auction", op.merge("both", auctions, bids), lambda item: str(item[0]))
    return op.stateful_batch("winning", keyed, lambda _: GivenAtTheEnd([None, []], take, give))


def q4(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """The mean final price of each category so far."""

    def mean(state: Any, item: Item) -> tuple[Any, Item]:
        count, total = state or (0, 0)
        count, total = count + 1, total + item[1]
        return (count, total), (item[0], total / count, count)

    won = op.key_on("by_category", op.key_rm("won", winning(flow, events, "category")), lambda item: str(item[0]))
    return op.stateful_map("mean", won, mean), ("category", "average", "auctions")


def q5(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """The auctions with the most bids in each ten seconds, every two seconds; in two steps, as its windows divide."""
    every = 2 * US

    def take(state: dict[int, list[int]], bid: Item) -> None:
        auction, at = bid
        first = (at // every + 1) * every
        for end in range(first, first + 10 * US, every):
            counted = state.get(end)
            if counted is None:
                state[end] = [auction, 1]
            else:
                counted[1] += 1

    def give(state: dict[int, list[int]]) -> Iterable[Item]:
        return [(auction, number, end) for end, (auction, number) in state.items()]

    def hottest(state: list[Item]) -> Iterable[Item]:
        most = max(number for _, number, _ in state)
        return [item for item in state if item[1] == most]

    keyed = op.key_on("by_auction", read(flow, events, "bid", "auction", "dateTime"), lambda bid: str(bid[0]))
    counts = op.stateful_batch("count", keyed, lambda _: GivenAtTheEnd({}, take, give))
    by_end = op.key_on("by_end", op.key_rm("counts", counts), lambda item: str(item[2]))
    found = op.stateful_batch("hottest", by_end, lambda _: GivenAtTheEnd([], list.append, hottest))
    return found, ("auction", "num", "end")


def q6(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """The mean final price of each seller's last auctions."""

    def means(state: list[Item]) -> Iterator[Item]:
        last: list[int] = []
        for seller, price, _, number in sorted(state, key=lambda item: (item[2], item[3])):
            last = [*last, price][-11:]
            yield seller, number, sum(last) / len(last)

    won = op.key_on("by_seller", op.key_rm("won", winning(flow, events, "seller")), lambda item: str(item[0]))
    found = op.stateful_batch("mean", won, lambda _: GivenAtTheEnd([], list.append, means))
    return found, ("seller", "id", "average")


def q7(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """The highest bids of each ten seconds."""

    def take(state: list[Item], bid: Item) -> None:
        if state and bid[2] > state[0][2]:
            state.clear()
        if not state or bid[2] == state[0][2]:
            state.append(bid)

    keyed = op.key_on("by_window", read(flow, events, "bid", *BID), lambda bid: str(bid[3] // (10 * US)))
    return op.stateful_batch("highest", keyed, lambda _: GivenAtTheEnd([], take, lambda state: state)), BID


def q8(flow: Any, events: Path) -> tuple[Any, Sequence[str]]:
    """People that opened an auction within the ten seconds in which they came."""
    people = read(flow, events, "person", "id", "dateTime", "name")
    sellers = read(flow, events, "auction", "seller", "dateTime")

    def take(state: list[Any], item: Item) -> None:
        span = item[1] // (10 * US)
        if len(item) == 3:
            state[0] = (item[0], item[2], span)
        else:
            state[1].add(span)

    def give(state: list[Any]) -> Iterable[Item]:
        person, spans = state
        return [person[:2]] if person is not None and person[2] in spans else ()

    keyed = op.key_on("by_person", op.merge("both", people, sellers), lambda item: str(item[0]))
    return op.stateful_batch("new", keyed, lambda _: GivenAtTheEnd([None, set()], take, give)), ("seller", "name")


UNKEYED = {"q0": q0, "q1": q1, "q2": q2}
KEYED = {"q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8}


def query_flow(name: str, events: Path, target: Path) -> Any:
    """The dataflow of a query."""
    flow = Dataflow(name)
    found, columns = (UNKEYED | KEYED)[name](flow, events)
    batch = partial(batch_of, columns)
    op.output("out", found, ParquetParts(target, of_keyed(batch) if name in KEYED else batch))
    return flow


def main() -> None:
    """Run one process of a query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=[*UNKEYED, *KEYED])
    parser.add_argument("process", type=int)
    parser.add_argument("addresses", help="host:port of every process, with ';' between")
    parser.add_argument("events", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    addresses = given.addresses.split(";")
    options = {"process_id": given.process, "addresses": addresses} if len(addresses) > 1 else {}
    cli_main(query_flow(given.query, given.events, given.target), **options)


if __name__ == "__main__":
    main()
