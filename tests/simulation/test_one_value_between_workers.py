"""The contract of an edge, for operators that stand alone or meet two streams: union, self-join, windows, loops.

Whatever stands between an operator that writes values and one that looks at them, chained or not, the second sees what
it would see directly behind the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from value_families import HELD, described

import fries_nb as fn
from fries_nb.dataflow.streams import Stream
from fries_nb.simulation.cluster import Cluster

Row = dict[str, Any]


def same(row: Row) -> Row:
    """What came."""
    return row


class Kept:
    """Keeps the values of a time, and gives them when it is over."""

    def initial_state(self) -> Row:
        """Nothing yet."""
        return {"values": []}

    def process(self, row: Row, state: Row) -> None:
        """Keep a value."""
        state["values"].append(row["v"])

    def close(self, key: int, time: int, state: Row) -> Iterator[Row]:
        """All that was kept."""
        for value in state["values"]:
            yield {"n": key, "v": value}


class Reminded:
    """Gives a value later, from the state of its key."""

    def initial_state(self) -> Row:
        """Nothing yet."""
        return {}

    def process(self, row: Row, state: Row, at: Any) -> None:
        """Keep the value, and ask to be called."""
        state["v"] = row["v"]
        at.call(at.time + 1)

    def due(self, key: int, time: int, state: Row) -> Row:
        """The value."""
        return {"n": key, "v": state["v"]}


def united(stream: Stream) -> Stream:
    """Two copies come together."""
    one, other = stream.replicate("R")
    return one.union("X", other.map("O", same))


def paired(right: bool) -> Callable[[Stream], Stream]:
    """The value of one side; the other has come before it, or waits for it."""

    def declare(stream: Stream) -> Stream:
        one, other = stream.replicate("R")
        taken = one.self_join("X", other.map("O", same), on="n", suffix="_right")
        return taken.map("T", (lambda row: row | {"v": row["v_right"]}) if right else same)

    return declare


def circled(stream: Stream) -> Stream:
    """Two rounds."""

    def body(rows: Stream) -> tuple[Stream, Stream]:
        rows = rows.map("B", lambda row: row | {"round": row.get("round", 0) + 1})
        again, done = rows.split("E", lambda row: int(row["round"] > 2))
        return again, done

    return stream.iterate("X", body)


BETWEEN: dict[str, Callable[[Stream], Stream]] = {
    "union": united,
    "left side": paired(right=False),
    "right side": paired(right=True),
    "window": lambda stream: stream.window("X", Kept(), fn.tumbling(2), key="n"),
    "sliding window": lambda stream: stream.window("X", Kept(), fn.sliding(4, every=2), key="n"),
    "reduce": lambda stream: stream.reduce("X", Kept(), key="n"),
    "timed function": lambda stream: stream.map("X", Reminded(), key="n"),
    "loop": circled,
    "dedup": lambda stream: stream.dedup("X", on="n"),
}  # fmt: skip
TIMED = {"window", "sliding window", "reduce", "timed function"}


@cache
def seen(family: str, between: str, chaining: bool, seed: int = 0) -> dict[int, set[str]]:
    """The number of a row to what the last operator saw of its value."""
    values = HELD[family]
    flow = fn.Dataflow("values")
    source = flow.source("S", fn.rate(1), time="n" if between in TIMED else None, identity="n", workers=1)
    written = source.map("A", lambda row: {"n": row["n"], "v": values[row["n"]]})
    passed = BETWEEN[between](written) if between else written
    passed.map("C", lambda row: {"n": row["n"], "seen": described(row["v"])}).sink("out", fn.memory())
    rows = [{"n": n} for n in range(len(values))]
    cluster = Cluster(flow.graph(workers=2), {"S": rows}, hosts=2, seed=seed, chaining=chaining)
    cluster.run()
    assert (cluster.state, cluster.error) == ("finished", "")
    found: dict[int, set[str]] = {}
    for row in cluster.rows("out"):
        found.setdefault(row["n"], set()).add(row["seen"])
    return found


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("family", HELD)
def test_what_stands_between_changes_no_value(family: str, between: str) -> None:
    """Chained and apart, and beside rows of other families of workers."""
    direct = seen(family, "", chaining=True)
    assert len(direct) == len(HELD[family])
    for chaining in (True, False):
        assert seen(family, between, chaining, seed=chaining) == direct
