"""The queries of Nexmark, q0 to q22, as dataflows of a few operators each; ``nexmark_sql`` has them as SQL.

    house = House.replayed(flow, Nexmark(seed=1), 50_000)
    q5(house).sink("q5", fn.memory())

Where a query of the public suite leaves an order open, both forms decide it: ``ORDER BY price DESC, dateTime, bidder``.
The functions are small classes whose attributes are what a change replaces: a rate, a filter, a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

import fries_nb as fn
from fries_nb.workloads.nexmark import LONGEST_S, PROPORTIONS, ROUND, Nexmark

Row = dict[str, Any]
DAY_S = 86_400
BID = ("auction", "bidder", "price", "dateTime", "extra")
RANKS = ((0, 10_000), (10_000, 1_000_000), (1_000_000, 2**63))
"""Prices of the three ranks of bids, in cents."""


@dataclass
class House:
    """The streams of an auction house, of which a query takes those that it needs.

    Attributes:
        source: declares the source of a kind of events.
        late: where windows send rows that come late; ``None`` if sources know their future.
    """

    source: Callable[[str], fn.Stream]
    late: Any = None
    _declared: dict[str, fn.Stream] = field(default_factory=dict)

    @classmethod
    def replayed(cls, flow: fn.Dataflow, events: Nexmark, count: int, rate: float | None = None) -> House:
        """Of the first ``count`` events; ``rate`` a second, of all kinds, or as fast as they are taken."""

        def source(kind: str) -> fn.Stream:
            share = PROPORTIONS[kind] / ROUND
            return events.replay(flow, kind, int(count * share), None if rate is None else rate * share)

        return cls(source)

    @classmethod
    def generated(cls, flow: fn.Dataflow, events: Nexmark, count: int, rate: float | None = None) -> House:
        """The same, of sources that do not know their future, but how late a row is at most: so none is ever late."""

        def source(kind: str) -> fn.Stream:
            share = PROPORTIONS[kind] / ROUND
            return events.source(flow, kind, int(count * share), None if rate is None else rate * share)

        return cls(source, fn.memory())

    def _of(self, kind: str) -> fn.Stream:
        if kind not in self._declared:
            self._declared[kind] = self.source(kind)
        return self._declared[kind]

    @property
    def person(self) -> fn.Stream:
        """New people."""
        return self._of("person")

    @property
    def auction(self) -> fn.Stream:
        """New auctions."""
        return self._of("auction")

    @property
    def bid(self) -> fn.Stream:
        """Bids."""
        return self._of("bid")


def columns(row: Row, names: tuple[str, ...]) -> Row:
    """These columns of a row."""
    return {name: row[name] for name in names}


@dataclass(frozen=True)
class Suffixed:
    """q0: passes on bids, with a suffix to ``extra``."""

    suffix: str = ""

    def process(self, row: Row) -> Row:
        """The columns of the query."""
        return columns(row, BID) | {"extra": row["extra"] + self.suffix}


def q0(house: House) -> fn.Stream:
    """Pass on each bid."""
    return house.bid.map("q0 pass", Suffixed())


@dataclass(frozen=True)
class Converted:
    """q1: dollars to another currency; exact, as DECIMAL is."""

    rate: str = "0.908"

    def process(self, row: Row) -> Row:
        """The columns of the query."""
        return columns(row, BID) | {"price": Decimal(self.rate) * row["price"]}


def q1(house: House) -> fn.Stream:
    """Prices in euros."""
    return house.bid.map("q1 convert", Converted())


@dataclass(frozen=True)
class Multiple:
    """q2: bids for auctions whose number is a multiple."""

    of: int = 123

    def process(self, row: Row) -> bool:
        """Whether it is one."""
        return bool(row["auction"] % self.of == 0)


def q2(house: House) -> fn.Stream:
    """Bids for some auctions."""
    kept = house.bid.filter("q2 keep", Multiple())
    return kept.map("q2 columns", lambda row: columns(row, ("auction", "price")))


@dataclass(frozen=True)
class Among:
    """Rows with one of these values in a column."""

    column: str
    values: tuple[Any, ...]

    def process(self, row: Row) -> bool:
        """Whether it has one."""
        return row[self.column] in self.values


def in_categories(numbers: str = "10") -> Among:
    """q3, q20: auctions of these categories, listed as in SQL."""
    return Among("category", tuple(map(int, numbers.split(","))))


def bid_times(row: Row) -> Row:
    """A bid beside whose columns those of an auction have room."""
    return {{"dateTime": "bid_dateTime", "extra": "bid_extra"}.get(name, name): value for name, value in row.items()}


class EverJoined:
    """A join without bounds: each row with all of the other side so far. Its state grows for ever, as that of SQL's."""

    def initial_state(self) -> dict[str, list[Row]]:
        """No rows."""
        return {"left": [], "right": []}

    def process(self, row: Row, state: dict[str, list[Row]]) -> Iterator[Row]:
        """The pairs of a row."""
        state[row["side"]].append(dict(row))
        for mate in state["right" if row["side"] == "left" else "left"]:
            yield row | mate


def ever_joined(name: str, left: fn.Stream, right: fn.Stream, left_on: str, right_on: str) -> fn.Stream:
    """Pairs of rows of two streams with equal keys, whenever they come."""
    one, other = left.map(f"{name} left", _Side("left", left_on)), right.map(f"{name} right", _Side("right", right_on))
    return one.union(f"{name} both", other).flat_map(f"{name} pairs", EverJoined(), key="key")


@dataclass(frozen=True)
class _Side:
    """A row of one side with its key; all columns of it, or these, by their names in the pair."""

    side: str
    on: str
    named: Mapping[str, str] | None = None

    def process(self, row: Row) -> Row:
        kept = row if self.named is None else {name: row[of] for name, of in self.named.items()}
        return {**kept, "side": self.side, "key": row[self.on]}


def q3(house: House) -> fn.Stream:
    """People of three states with auctions in a category."""
    people = house.person.filter("q3 states", Among("state", ("OR", "ID", "CA")))
    people = people.map("q3 people", lambda row: {"seller": row["id"], **columns(row, ("name", "city", "state"))})
    auctions = house.auction.filter("q3 auctions", in_categories())
    pairs = ever_joined("q3", auctions, people, "seller", "seller")
    return pairs.map("q3 columns", lambda row: columns(row, ("name", "city", "state", "id")))


class Winning:
    """The winning bid of each auction: the highest between its begin and its end, known when its end has passed."""

    def initial_state(self) -> Row:
        """Neither the auction nor a bid."""
        return {"auction": None, "bids": []}

    def process(self, row: Row, state: Row, at: Any) -> None:
        """Keep an auction until its end, and its bids."""
        if row["side"] == "left":
            state["auction"] = dict(row)
            at.call(row["expires"])
        elif state["bids"] is not None:
            state["bids"].append(dict(row))

    def due(self, key: int, time: Any, state: Row) -> Row | None:
        """The auction with its winning bid; later bids count no more."""
        auction, bids = state["auction"], state["bids"]
        state["auction"] = state["bids"] = None
        valid = [bid for bid in bids if auction["dateTime"] <= bid["bid_dateTime"] <= auction["expires"]]
        best = min(valid, key=lambda bid: (-bid["price"], bid["bid_dateTime"], bid["bidder"]), default=None)
        return None if best is None else auction | best


def winning(name: str, house: House, more: Sequence[str], more_of_bid: Mapping[str, str] = {}) -> fn.Stream:
    """The winning bids of auctions; ``more`` columns of both, those of the bid by their names beside the auction's."""
    of_auction = {one: one for one in ("id", "dateTime", "expires", *more)}
    of_bid = {"bidder": "bidder", "price": "price", "bid_dateTime": "dateTime", **more_of_bid}
    auctions = house.auction.map(f"{name} left", _Side("left", "id", of_auction))
    bids = house.bid.map(f"{name} right", _Side("right", "auction", of_bid))
    return auctions.union(f"{name} both", bids).map(f"{name} winning", Winning(), key="key")


@dataclass(frozen=True)
class Averaged:
    """q4: the mean of the final prices so far, less a fee in percent, and of how many."""

    fee: int = 0

    def initial_state(self) -> dict[str, int]:
        """No auction yet."""
        return {"count": 0, "total": 0}

    def process(self, row: Row, state: dict[str, int]) -> Row:
        """The new mean of the category."""
        state["count"] += 1
        state["total"] += row["price"]
        mean = state["total"] * (100 - self.fee) / 100 / state["count"]
        return {"category": row["category"], "average": mean, "auctions": state["count"]}


def q4(house: House) -> fn.Stream:
    """The mean final price of each category so far."""
    return winning("q4", house, ["category"]).map("q4 mean", Averaged(), key="category")


@dataclass(frozen=True)
class BidCount:
    """q5, q12: the number of bids of a key in a window, if they are enough."""

    key: str
    number: str
    least: int = 0

    def initial_state(self) -> list[int]:
        """None."""
        return [0]

    def process(self, row: Row, state: list[int]) -> None:
        """Count a row."""
        state[0] += 1

    def close(self, key: int, time: Any, state: list[int]) -> Row | None:
        """The key, the end of its window and the number."""
        return {self.key: key, "end": time, self.number: state[0]} if state[0] >= self.least else None


@dataclass(frozen=True)
class Hottest:
    """q5: the rows with the greatest number among those of a time, or with a share of it in percent."""

    share: int = 100

    def initial_state(self) -> list[Row]:
        """No rows."""
        return []

    def process(self, row: Row, state: list[Row]) -> None:
        """Keep a row."""
        state.append(row)

    def close(self, key: Any, time: Any, state: list[Row]) -> list[Row]:
        """Those with enough."""
        most = max(row["num"] for row in state)
        return [row for row in state if row["num"] * 100 >= most * self.share]


def q5(house: House) -> fn.Stream:
    """The auctions with the most bids in each ten seconds, every two seconds."""
    count = BidCount("auction", "num")
    counts = house.bid.window("q5 count", count, fn.sliding(10, every=2), key="auction", late=house.late)
    return counts.reduce("q5 hottest", Hottest(), key="end")


@dataclass(frozen=True)
class LastPrices:
    """q6: the mean of a seller's last prices, in the order of the winning bids' times.

    A winning bid waits for the longest time that an auction is open: all auctions that it came in have ended then.
    """

    preceding: int = 10

    def initial_state(self) -> Row:
        """No auction."""
        return {"waiting": {}, "prices": []}

    def process(self, row: Row, state: Row, at: Any) -> None:
        """Keep an auction until all with earlier winning bids have ended."""
        at.call(over := row["bid_dateTime"] + timedelta(seconds=LONGEST_S))
        state["waiting"].setdefault(over, []).append((row["id"], row["price"]))

    def due(self, key: int, time: Any, state: Row) -> Iterator[Row]:
        """The mean with each auction of that time."""
        for auction, price in sorted(state["waiting"].pop(time)):
            state["prices"] = [*state["prices"], price][-self.preceding - 1 :]
            yield {"seller": key, "id": auction, "average": sum(state["prices"]) / len(state["prices"])}


def q6(house: House) -> fn.Stream:
    """The mean final price of each seller's last auctions."""
    return winning("q6", house, ["seller"]).map("q6 mean", LastPrices(), key="seller")


@dataclass(frozen=True)
class Highest:
    """q7: the rows of a window with the highest price, if it is at least ``least``."""

    least: int = 0

    def initial_state(self) -> list[Row]:
        """No rows."""
        return []

    def process(self, row: Row, state: list[Row]) -> None:
        """Keep a row if none has a higher price."""
        if state and row["price"] > state[0]["price"]:
            state.clear()
        if not state or row["price"] == state[0]["price"]:
            state.append(columns(row, BID))

    def close(self, key: Any, time: Any, state: list[Row]) -> list[Row]:
        """These rows."""
        return [row for row in state if row["price"] >= self.least]


def q7(house: House) -> fn.Stream:
    """The highest bids of each ten seconds."""
    of_auctions = house.bid.window("q7 of auctions", Highest(), fn.tumbling(10), "auction", late=house.late)
    return of_auctions.map("q7 one", lambda row: row | {"all": 0}).window(
        "q7 of all", Highest(), fn.tumbling(10), key="all"
    )


class Once:
    """The first row of a window."""

    def initial_state(self) -> list[Row]:
        """No row."""
        return []

    def process(self, row: Row, state: list[Row]) -> None:
        """Keep the first."""
        if not state:
            state.append(row)

    def close(self, key: Any, time: Any, state: list[Row]) -> list[Row]:
        """That row."""
        return state


@dataclass(frozen=True)
class Ranked:
    """q15, q16: bids, bidders and auctions of a window with enough bids, of all prices and of three ranks."""

    keys: tuple[str, ...]
    least: int = 0

    def initial_state(self) -> Row:
        """No bids."""
        bidders, auctions = [set[int]() for _ in range(4)], [set[int]() for _ in range(4)]
        return {"bids": [0] * 4, "bidders": bidders, "auctions": auctions, "last": None}

    def process(self, row: Row, state: Row) -> None:
        """Count a bid."""
        rank_of_price = next(at for at, (least, most) in enumerate(RANKS, 1) if least <= row["price"] < most)
        for rank in (0, rank_of_price):
            state["bids"][rank] += 1
            state["bidders"][rank].add(row["bidder"])
            state["auctions"][rank].add(row["auction"])
        state["last"] = max(state["last"] or row["dateTime"], row["dateTime"])

    def close(self, key: Any, time: Any, state: Row) -> Row | None:
        """The counts."""
        if state["bids"][0] < self.least:
            return None
        values = key if isinstance(key, tuple) else (key,)
        found: Row = dict(zip(self.keys, values, strict=True))
        if "channel" in self.keys:
            found["minute"] = f"{state['last']:%H:%M}"
        for what in ("bids", "bidders", "auctions"):
            counts = [one if isinstance(one, int) else len(one) for one in state[what]]
            names = (f"total_{what}", *(f"rank{rank}_{what}" for rank in (1, 2, 3)))
            found |= dict(zip(names, counts, strict=True))
        return found


@dataclass(frozen=True)
class Named:
    """q8: a person as a seller."""

    suffix: str = ""

    def process(self, row: Row) -> Row:
        """The number and the name."""
        return {"seller": row["id"], "name": row["name"] + self.suffix}


def q8(house: House) -> fn.Stream:
    """People that opened an auction within the ten seconds in which they came."""
    people = house.person.window("q8 people", Once(), fn.tumbling(10), key="id", late=house.late)
    sellers = house.auction.window("q8 sellers", Once(), fn.tumbling(10), key="seller", late=house.late)
    named = people.map("q8 names", Named())
    numbers = sellers.map("q8 numbers", lambda row: {"seller": row["seller"]})
    return named.join_window("q8 join", numbers, on=["seller"], windows=fn.tumbling(10))


@dataclass(frozen=True)
class AtLeast:
    """Rows with at least so much in a column."""

    column: str
    least: int = 0

    def process(self, row: Row) -> bool:
        """Whether it has as much."""
        return bool(row[self.column] >= self.least)


def q9(house: House) -> fn.Stream:
    """The winning bid of each auction."""
    names = ("id", "itemName", "seller", "category", "expires", "bidder", "price", "bid_dateTime", "bid_extra")
    won = winning("q9", house, ["itemName", "seller", "category"], {"bid_extra": "extra"})
    return won.filter("q9 keep", AtLeast("price")).map("q9 columns", lambda row: columns(row, names))


@dataclass(frozen=True)
class Dated:
    """q10: bids with their day and minute, as directories of files have them."""

    minute: str = "HH:mm"

    def process(self, row: Row) -> Row:
        """The columns of the query."""
        at = row["dateTime"]
        form = self.minute.replace("HH", "%H").replace("mm", "%M")
        return columns(row, BID) | {"dt": f"{at:%Y-%m-%d}", "hm": f"{at:{form}}"}


def q10(house: House) -> fn.Stream:
    """Bids with their day and minute."""
    return house.bid.map("q10 date", Dated())


@dataclass(frozen=True)
class Visits:
    """q11: the bids of a bidder between two pauses, if they are enough."""

    least: int = 0

    def initial_state(self) -> Row:
        """No bid."""
        return {"count": 0, "first": None, "last": None}

    def process(self, row: Row, state: Row) -> None:
        """Count a bid."""
        state["count"] += 1
        state["first"] = min(state["first"] or row["dateTime"], row["dateTime"])
        state["last"] = max(state["last"] or row["dateTime"], row["dateTime"])

    def merge(self, state: Row, other: Row) -> Row:
        """Two sessions that a bid has joined."""
        return {
            "count": state["count"] + other["count"],
            "first": min(state["first"], other["first"]), "last": max(state["last"], other["last"]),
        }  # fmt: skip

    def close(self, key: int, time: Any, state: Row) -> Row | None:
        """The session."""
        if state["count"] < self.least:
            return None
        return {"bidder": key, "bid_count": state["count"], "starttime": state["first"], "last": state["last"]}


def q11(house: House) -> fn.Stream:
    """The sessions of each bidder, which ten seconds without a bid end."""
    return house.bid.window("q11 visits", Visits(), fn.session(10), key="bidder", late=house.late)


def q12(house: House) -> fn.Stream:
    """The bids of each bidder in ten seconds of event time; the public query counts by the clock of the engine."""
    count = BidCount("bidder", "bid_count")
    return house.bid.window("q12 count", count, fn.tumbling(10), key="bidder", late=house.late)


def side_input(word: str = "value") -> pa.Table:
    """q13: the table that bids are joined with."""
    return pa.table({"key": list(range(10_000)), "value": [f"{word} {key}" for key in range(10_000)]})


def q13(house: House) -> fn.Stream:
    """Bids with a value of a table."""
    keyed = house.bid.map("q13 key", lambda row: columns(row, BID[:4]) | {"key": row["auction"] % 10_000})
    joined = keyed.join("q13 join", side_input(), on="key")
    return joined.map("q13 columns", lambda row: columns(row, (*BID[:4], "value")))


@dataclass(frozen=True)
class Calculated:
    """q14: large bids in euros with the kind of their time, and how often a letter is in ``extra``."""

    letter: str = "c"

    def process(self, row: Row) -> Row | None:
        """The columns of the query; ``None`` for a small or a huge bid."""
        price, hour = Decimal("0.908") * row["price"], row["dateTime"].hour
        if not 1_000_000 < price < 50_000_000:
            return None
        kind = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
        return columns(row, BID) | {
            "price": price, "bidTimeType": kind, "c_counts": row["extra"].count(self.letter)
        }  # fmt: skip


def q14(house: House) -> fn.Stream:
    """Large bids with what is computed of them."""
    return house.bid.map("q14 calculate", Calculated())


def _with_day(row: Row) -> Row:
    return columns(row, (*BID, "channel")) | {"day": f"{row['dateTime']:%Y-%m-%d}"}


def q15(house: House) -> fn.Stream:
    """Bids, bidders and auctions of each day."""
    days = house.bid.map("q15 day", _with_day)
    return days.window("q15 count", Ranked(("day",)), fn.tumbling(DAY_S), key="day", late=house.late)


def q16(house: House) -> fn.Stream:
    """Bids, bidders and auctions of each channel and day."""
    days = house.bid.map("q16 day", _with_day)
    keys = ("channel", "day")
    return days.window("q16 count", Ranked(keys), fn.tumbling(DAY_S), list(keys), late=house.late)


@dataclass(frozen=True)
class Prices:
    """q17: the prices of an auction on a day, if there are enough."""

    least: int = 0

    def initial_state(self) -> Row:
        """No bids."""
        return {"ranks": [0, 0, 0], "prices": []}

    def process(self, row: Row, state: Row) -> None:
        """Keep a price."""
        state["prices"].append(row["price"])
        for at, (least, most) in enumerate(RANKS):
            state["ranks"][at] += least <= row["price"] < most

    def close(self, key: Any, time: Any, state: Row) -> Row | None:
        """The statistics."""
        prices = state["prices"]
        if len(prices) < self.least:
            return None
        return {
            "auction": key[0], "day": key[1], "total_bids": len(prices),
            **{f"rank{at}_bids": count for at, count in enumerate(state["ranks"], 1)},
            "min_price": min(prices), "max_price": max(prices), "avg_price": sum(prices) / len(prices),
            "sum_price": sum(prices),
        }  # fmt: skip


def q17(house: House) -> fn.Stream:
    """The prices of each auction and day."""
    days = house.bid.map("q17 day", _with_day)
    return days.window("q17 prices", Prices(), fn.tumbling(DAY_S), ["auction", "day"], late=house.late)


@dataclass(frozen=True)
class Newest:
    """q18: the newest bid so far, with a suffix to ``extra``."""

    suffix: str = ""

    def initial_state(self) -> Row:
        """No bid."""
        return {"best": None}

    def process(self, row: Row, state: Row) -> Row | None:
        """The bid, if it is newer than all before."""
        order = (row["dateTime"], row["price"])
        if state["best"] is not None and order <= state["best"]:
            return None
        state["best"] = order
        return columns(row, (*BID, "channel", "url")) | {"extra": row["extra"] + self.suffix}


def q18(house: House) -> fn.Stream:
    """The last bid of each bidder for each auction."""
    return house.bid.map("q18 last", Newest(), key=["bidder", "auction"])


@dataclass(frozen=True)
class Top:
    """q19: the ten highest bids so far, with a suffix to ``extra``; sends those whose place has changed."""

    suffix: str = ""

    def initial_state(self) -> Row:
        """No bids."""
        return {"best": []}

    def process(self, row: Row, state: Row) -> Iterator[Row]:
        """The bid and those that it has moved down."""
        kept = columns(row, (*BID, "channel", "url")) | {"extra": row["extra"] + self.suffix}
        best = sorted([*state["best"], kept], key=lambda one: (-one["price"], one["dateTime"], one["bidder"]))
        place, state["best"] = best.index(kept), best[:10]
        for number, one in enumerate(state["best"][place:], place + 1):
            yield one | {"rank_number": number}


def q19(house: House) -> fn.Stream:
    """The ten highest bids of each auction."""
    return house.bid.flat_map("q19 top", Top(), key="auction")


def q20(house: House) -> fn.Stream:
    """Bids with their auction, of one category."""
    auctions = house.auction.filter("q20 auctions", in_categories())
    pairs = ever_joined("q20", house.bid.map("q20 bids", bid_times), auctions, "auction", "id")
    kept = ("auction", "bidder", "price", "bid_dateTime", "bid_extra", "itemName", "expires", "seller", "category")
    return pairs.map("q20 columns", lambda row: columns(row, kept))


@dataclass(frozen=True)
class Channel:
    """q21: the number of a bid's channel."""

    names: str = "apple google facebook baidu"

    def process(self, row: Row) -> Row | None:
        """Of the large ones their place, of others what their address says; ``None`` if it says nothing."""
        channel = row["channel"].lower()
        if channel in (names := self.names.split()):
            number = str(names.index(channel))
        elif (found := re.search(r"(?:&|^)channel_id=([^&]*)", row["url"])) is not None:
            number = found[1]
        else:
            return None
        return columns(row, ("auction", "bidder", "price", "channel")) | {"channel_id": number}


def q21(house: House) -> fn.Stream:
    """Bids with the number of their channel."""
    return house.bid.map("q21 number", Channel())


@dataclass(frozen=True)
class Directories:
    """q22: parts of a bid's address."""

    first: int = 3

    def process(self, row: Row) -> Row:
        """The columns of the query."""
        parts = row["url"].split("/")
        found = {f"dir{number}": parts[self.first + number - 1] for number in (1, 2, 3)}
        return columns(row, ("auction", "bidder", "price", "channel")) | found


def q22(house: House) -> fn.Stream:
    """Bids with the directories of their address."""
    return house.bid.map("q22 split", Directories())
