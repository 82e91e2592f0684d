"""The events of Nexmark: people, auctions and bids of an auction house, in the public proportions, from a seed.

Event ``n`` of the stream happens at ``n * 1e6 / rate`` microseconds; of 50 events in a row the first is a new person,
three are new auctions, and 46 are bids. A table is made of any range of its own rows, always with the same values, so
a source needs no memory and goes on anywhere:

>>> events = Nexmark(seed=1)
>>> events.auctions(3, 5).equals(events.auctions(0, 5).slice(3))
True
>>> [events.number("person", 2), events.number("auction", 4), events.number("bid", 46)]
[100, 52, 54]
>>> bids = events.bids(0, 1_000).to_pandas()
>>> bids["dateTime"].is_monotonic_increasing, len(bids["auction"].unique()) < 200
(True, True)

Rows out of order: with ``disorder_s`` a row happens up to so many seconds earlier than its place in the stream says.

>>> Nexmark(seed=1, disorder_s=0.5).bids(0, 1_000).to_pandas()["dateTime"].is_monotonic_increasing
False

Half of the bids go to the newest of the hot auctions, three of four are of a hot bidder, and three of four auctions
of a hot seller, as in the public generator (Tucker, Tufte, Papadimos and Maier, "NEXMark", 2004, in the form of
Apache Beam and of Flink's ``nexmark``). The numbers differ from theirs, since ours depend on a row's number only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import fries_nb as fn

PROPORTIONS: Mapping[str, int] = {"person": 1, "auction": 3, "bid": 46}
"""Kind of event to its number in each round of ``ROUND`` events, in the order in which they come."""
ROUND = sum(PROPORTIONS.values())
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
ACTIVE_PEOPLE, IN_FLIGHT = 1_000, 100
"""Number of the newest people that act, and of the newest auctions that get bids."""
HOT_AUCTION, HOT_SELLER, HOT_BIDDER = 2, 4, 4
"""One of so many draws is *not* of the hot one."""
HOT_AMONG = 100
"""One of so many auctions or people is hot at a time."""
LONGEST_S = 60
"""Seconds of event time for which no auction is open."""
BASE_US = 1_436_918_400_000_000
"""The time of the first event, in microseconds: the 15th of July 2015, 0:00 UTC, as in the public generator."""
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
CHUNK = 2_048
"""Number of rows that a source makes at a time."""
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Seattle", "Cheyenne")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")

Ints = npt.NDArray[np.int64]
Draws = npt.NDArray[np.uint64]


def _mixed(values: Draws) -> Draws:
    """The finaliser of splitmix64: one well spread number for each."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@dataclass(frozen=True)
class Nexmark:
    """A stream of auctions, by its parameters.

    Attributes:
        rate: events per second of event time, of all kinds.
        disorder_s: how much earlier than its place in the stream an event may happen, at most, in seconds.
    """

    seed: int = 0
    rate: float = 10_000.0
    disorder_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.longest_s < LONGEST_S or not self.disorder_s >= 0:
            raise ValueError(
                f"Nexmark got rate={self.rate!r}, disorder_s={self.disorder_s!r}; expected at least 60 events a "
                f"second, so that no auction is open for {LONGEST_S} s, and a disorder of 0 or more"
            )

    @staticmethod
    def number(kind: str, row: int) -> int:
        """The number of the event that is row ``row`` of a kind."""
        kinds = list(PROPORTIONS)
        before = sum(PROPORTIONS[one] for one in kinds[: kinds.index(kind)])
        rounds, place = divmod(row, PROPORTIONS[kind])
        return rounds * ROUND + before + place

    @property
    def longest_s(self) -> float:
        """The longest time for which an auction is open, in seconds."""
        return 2 * IN_FLIGHT * ROUND / PROPORTIONS["auction"] / self.rate

    def source(self, flow: fn.Dataflow, kind: str, count: int, rate: float | None = None) -> fn.Stream:
        """A source of the first ``count`` rows of a kind, ``rate`` a second; ``None`` for as fast as they are taken."""
        late = self.disorder_s + 1e-6
        rows = fn.rate(rate, count, NexmarkRow(self, kind))
        declared: fn.Stream = flow.source(kind, rows, time="dateTime", late=late, workers=1)
        return declared

    def replay(self, flow: fn.Dataflow, kind: str, rows: int, rate: float | None = None) -> fn.Stream:
        """A source that replays the first ``rows`` rows of a kind, made before; so it knows its future."""
        known = fn.replay(self.table(kind, 0, rows), rate)
        declared: fn.Stream = flow.source(kind, known, time="dateTime", workers=1)
        return declared

    def table(self, kind: str, start: int, stop: int) -> pa.Table:
        """The rows from ``start`` up to ``stop`` of a kind: ``person``, ``auction`` or ``bid``."""
        return {"person": self.people, "auction": self.auctions, "bid": self.bids}[kind](start, stop)

    def _events(self, kind: str, start: int, stop: int) -> Ints:
        rows, per_round = np.arange(start, stop, dtype=np.int64), PROPORTIONS[kind]
        return rows // per_round * ROUND + self.number(kind, 0) + rows % per_round

    def _draw(self, events: Ints, what: int) -> Draws:
        """A random number for each event, another one for each ``what``."""
        with np.errstate(over="ignore"):
            salt = np.uint64(self.seed * 1_000_003 + what) * np.uint64(0x9E3779B97F4A7C15)
            return _mixed(_mixed(events.astype(np.uint64) + salt) + salt)

    def _below(self, events: Ints, what: int, bound: Ints | int) -> Ints:
        return (self._draw(events, what) % np.asarray(bound, dtype=np.uint64)).astype(np.int64)

    def _times(self, events: Ints) -> Ints:
        """The time of each event in microseconds since 1970."""
        at_us = BASE_US + np.rint(events * (1e6 / self.rate)).astype(np.int64)
        earlier = self._below(events, 1, max(1, round(self.disorder_s * 1e6)))
        return np.asarray(at_us - earlier, dtype=np.int64)

    def _text(self, events: Ints, what: int, least: int = 8) -> list[str]:
        drawn = self._draw(events, what)
        return [f"{value:016x}"[: least + value % 8] for value in drawn.tolist()]

    def people(self, start: int, stop: int) -> pa.Table:
        """Rows of people."""
        events = self._events("person", start, stop)
        first, last = self._below(events, 2, len(FIRST_NAMES)), self._below(events, 3, len(LAST_NAMES))
        card, place = self._draw(events, 4), self._below(events, 5, len(CITIES))
        state = self._below(events, 6, len(STATES))
        names = [f"{FIRST_NAMES[one]} {LAST_NAMES[two]}" for one, two in zip(first, last, strict=True)]
        digits = [f"{value % 10**16:016d}" for value in card.tolist()]
        return pa.table({
            "id": FIRST_ID + np.arange(start, stop, dtype=np.int64), "name": pa.array(names, pa.string()),
            "emailAddress": pa.array([f"{name.replace(' ', '.').lower()}@example.com" for name in names], pa.string()),
            "creditCard": pa.array([f"{d[:4]} {d[4:8]} {d[8:12]} {d[12:]}" for d in digits], pa.string()),
            "city": pa.array([CITIES[one] for one in place], pa.string()),
            "state": pa.array([STATES[one] for one in state], pa.string()),
            "dateTime": _timestamps(self._times(events)), "extra": pa.array(self._text(events, 7), pa.string()),
        })  # fmt: skip

    def auctions(self, start: int, stop: int) -> pa.Table:
        """Rows of auctions."""
        events = self._events("auction", start, stop)
        at_us, longest_us = self._times(events), max(1, int(self.longest_s * 1e6))
        initial = self._prices(events, 12)
        return pa.table({
            "id": FIRST_ID + np.arange(start, stop, dtype=np.int64),
            "itemName": pa.array(self._text(events, 8), pa.string()),
            "description": pa.array(self._text(events, 9), pa.string()),
            "initialBid": initial, "reserve": initial + self._prices(events, 13),
            "dateTime": _timestamps(at_us), "expires": _timestamps(at_us + 1 + self._below(events, 10, longest_us)),
            "seller": self._person(events, 14, HOT_SELLER),
            "category": FIRST_CATEGORY + self._below(events, 11, CATEGORIES),
            "extra": pa.array(self._text(events, 7), pa.string()),
        })  # fmt: skip

    def bids(self, start: int, stop: int) -> pa.Table:
        """Rows of bids."""
        events = self._events("bid", start, stop)
        newest = events // ROUND * PROPORTIONS["auction"] + PROPORTIONS["auction"] - 1
        hot = newest // HOT_AMONG * HOT_AMONG
        oldest = np.maximum(newest - IN_FLIGHT, 0)
        cold = oldest + self._below(events, 16, newest - oldest + 1)
        auction = np.where(self._below(events, 15, HOT_AUCTION) > 0, hot, cold)
        channels, urls = self._channels(events)
        return pa.table({
            "auction": FIRST_ID + auction, "bidder": self._person(events, 17, HOT_BIDDER),
            "price": self._prices(events, 18), "channel": pa.array(channels, pa.string()),
            "url": pa.array(urls, pa.string()), "dateTime": _timestamps(self._times(events)),
            "extra": pa.array(self._text(events, 7), pa.string()),
        })  # fmt: skip

    def _person(self, events: Ints, what: int, hot: int) -> Ints:
        """The number of an active person for each event; mostly of the hot one."""
        newest = events // ROUND
        cold = newest - self._below(events, what + 100, np.minimum(newest, ACTIVE_PEOPLE) + 1)
        return FIRST_ID + np.where(self._below(events, what, hot) > 0, newest // HOT_AMONG * HOT_AMONG, cold)

    def _prices(self, events: Ints, what: int) -> Ints:
        """Prices in cents, as many of each order of magnitude up to a million dollars."""
        share = self._draw(events, what).astype(np.float64) / 2.0**64
        return np.rint(10.0 ** (share * 6.0) * 100.0).astype(np.int64)

    def _channels(self, events: Ints) -> tuple[list[str], list[str]]:
        """The channel of each bid and its address: of half of them one of the four large ones."""
        hot, which = self._below(events, 19, 2), self._below(events, 20, CHANNELS)
        channels, urls = [], []
        for is_hot, one, path in zip(hot.tolist(), which.tolist(), self._text(events, 21), strict=True):
            channel = HOT_CHANNELS[one % len(HOT_CHANNELS)] if is_hot else f"channel-{one}"
            channels.append(channel)
            query = "" if is_hot or one % 10 == 0 else f"&channel_id={one}"
            urls.append(f"https://www.nexmark.example/{path[:4]}/{path[4:6]}/{path[6:]}/item.htm?query=1{query}")
        return channels, urls


def _timestamps(at_us: Ints) -> pa.Array:
    return pa.array(at_us, pa.int64()).cast(pa.timestamp("us"))


@lru_cache(maxsize=8)
def _chunk(events: Nexmark, kind: str, number: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = events.table(kind, number * CHUNK, (number + 1) * CHUNK).to_pylist()
    return rows


@dataclass(frozen=True)
class NexmarkRow:
    """A row of a kind by its number, for ``fn.rate``."""

    events: Nexmark
    kind: str

    def __call__(self, value: int) -> Mapping[str, Any]:
        """The columns of the row."""
        return _chunk(self.events, self.kind, value // CHUNK)[value % CHUNK]
