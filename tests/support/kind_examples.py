"""One small dataflow for each kind of operator, with the operator ``X`` of that kind, for the contract of kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fries_nb.dataflow import DataflowBuilder, Graph, Stream, memory, rate
from fries_nb.dataflow.columns import HIDDEN
from fries_nb.dataflow.traits import Kind
from fries_nb.dataflow.windowing import count, tumbling

Row = dict[str, Any]
ROWS: list[Row] = [{"k": number % 4, "x": number, "items": [number, number]} for number in range(60)]
NAMES = pa.table({"k": [0, 1, 2, 3], "name": ["a", "b", "c", "d"]})
OTHER_NAMES = pa.table({"k": [0, 1, 2, 3], "name": ["e", "f", "g", "h"]})


@dataclass(frozen=True)
class KindExample:
    """How an operator of the kind is declared, and what is to come of it.

    Attributes:
        declare: given the builder and a stream of ``ROWS`` (whose producer is ``A``), declares ``X`` and returns its
            streams.
        expected: the rows that leave ``X``, all branches and copies together; ``None`` where no worker runs it.
        new: what it can be changed to, if it can.
        time: the column with the time of rows, if the kind needs it.
    """

    declare: Callable[[DataflowBuilder, Stream], tuple[Stream, ...]]
    expected: list[Row] | None
    new: Any = None
    time: str | None = None


class Counted:
    """Counts the rows of a key, in a window or of a time."""

    def process(self, row: Row, state: Row) -> None:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1

    def close(self, key: int, time: int, state: Row) -> Row:
        """The count."""
        return {"k": key, "time": time, "n": state["n"]}


class Doubled(Counted):
    """Counts each row twice."""

    def close(self, key: int, time: int, state: Row) -> Row:
        """Twice the count."""
        return {**super().close(key, time, state), "n": 2 * state["n"]}


def graph_of(kind: Kind, workers: int = 2) -> Graph:
    """``S -> A -> X -> B0, B1 ... -> Z0, Z1 ...``; rows come from every source, in ``S`` with cohorts of ``k``."""
    flow = DataflowBuilder(kind)
    source = flow.source("S", rate(None, count=1), identity="x", time=KIND_EXAMPLES[kind].time, cohort="k")
    before = source.map("A", lambda row: row)
    behind = KIND_EXAMPLES[kind].declare(flow, before)
    for number, stream in enumerate(behind):
        stream.map(f"B{number}", lambda row: row).sink(f"Z{number}", memory())
    return flow.graph(workers)


def plain(rows: list[Row]) -> list[tuple[tuple[str, str], ...]]:
    """Rows without hidden columns, in an order that does not depend on the interleaving."""
    return sorted(tuple(sorted((name, str(row[name])) for name in row if name not in HIDDEN)) for row in rows)


def _source(flow: DataflowBuilder, before: Stream) -> tuple[Stream, ...]:
    before.sink("Y", memory())
    return (flow.source("X", rate(None, count=1)),)


def _union(flow: DataflowBuilder, before: Stream) -> tuple[Stream, ...]:
    return (before.union("X", flow.source("T", rate(None, count=1))),)


def _self_join(flow: DataflowBuilder, before: Stream) -> tuple[Stream, ...]:
    left, right = before.replicate("R")
    left = left.map("L", lambda row: {"x": row["x"], "l": 1})
    return (left.self_join("X", right.map("M", lambda row: {"x": row["x"], "r": 2}), on="x"),)


def _other(flow: DataflowBuilder, before: Stream) -> Stream:
    """The same rows from another source, with a column of their own and a null key in every seventh."""
    other = flow.source("T", rate(None, count=1), time="x", cohort="k")
    return other.map("N", lambda row: {"k": row["k"] if row["x"] % 7 else None, "y": row["x"]})


def _pairs(is_pair: Callable[[int, int], bool]) -> list[Row]:
    """All pairs of ``before`` and ``_other`` that have equal keys and times of which this is true."""
    rows = [row["x"] for row in ROWS]
    return [
        {**ROWS[x], "y": y} for x in rows for y in rows if y % 7 and (x - y) % 4 == 0 and is_pair(x, y)
    ]  # fmt: skip


def _newest() -> list[Row]:
    """The rows of ``before``, each with the newest one of ``_other`` that is at most 4 older."""
    return [{**row, "y": next((y for y in (row["x"], row["x"] - 4) if y >= 0 and y % 7), None)} for row in ROWS]


def _merged(left: Row | None, right: Row | None) -> Row | None:
    """The columns of both, of which those of the right are negative."""
    return None if left is None else {**left, "y": None if right is None else -right["y"]}


def _joined(table: pa.Table) -> list[Row]:
    names = dict(zip(table["k"].to_pylist(), table["name"].to_pylist(), strict=True))
    return [{**row, "name": names[row["k"]]} for row in ROWS]


def _sink(flow: DataflowBuilder, before: Stream) -> tuple[Stream, ...]:
    before.sink("X", memory())
    return ()


def _twice(row: Row) -> list[Row]:
    return [row, row | {"x": -1}]


def _loop(flow: DataflowBuilder, before: Stream) -> tuple[Stream, ...]:
    """Each row goes round until it has made as many rounds as its key says."""

    def body(inside: Stream) -> tuple[Stream, Stream]:
        once = inside.map("I", lambda row: row | {"k": row["k"] - 1})
        ready, again = once.split("SP", lambda row: row["k"] >= 0)
        return again, ready

    return (before.iterate("X", body),)


KIND_EXAMPLES: dict[Kind, KindExample] = {
    Kind.SOURCE: KindExample(_source, ROWS),
    Kind.MAP: KindExample(
        lambda flow, before: (before.map("X", lambda row: row | {"y": row["x"] + 1}),),
        [{**row, "y": row["x"] + 1} for row in ROWS], lambda row: row | {"y": 0},
    ),
    Kind.FILTER: KindExample(
        lambda flow, before: (before.filter("X", lambda row: row["x"] % 2 == 0),),
        [row for row in ROWS if row["x"] % 2 == 0], lambda row: row["x"] % 3 == 0,
    ),
    Kind.FLAT_MAP: KindExample(
        lambda flow, before: (before.flat_map("X", _twice),),
        [out for row in ROWS for out in _twice(row)], lambda row: [row],
    ),
    Kind.SPLIT: KindExample(lambda flow, before: before.split("X", lambda row: row["x"] % 2), ROWS, lambda row: 0),
    Kind.UNION: KindExample(_union, ROWS + ROWS),
    Kind.REPLICATE: KindExample(lambda flow, before: before.replicate("X"), ROWS + ROWS),
    Kind.UNNEST: KindExample(
        lambda flow, before: (before.unnest("X", "items"),),
        [{**row, "items": item} for row in ROWS for item in row["items"]],
    ),
    Kind.SELF_JOIN: KindExample(_self_join, [{"x": row["x"], "l": 1, "r": 2} for row in ROWS]),
    Kind.JOIN: KindExample(lambda flow, before: (before.join("X", NAMES, on="k"),), _joined(NAMES), OTHER_NAMES),
    Kind.DEDUP: KindExample(
        lambda flow, before: (before.map("K", lambda row: {"k": row["k"]}).dedup("X", on="k"),),
        [{"k": key} for key in range(4)],
    ),
    Kind.DEDUP_WITHIN: KindExample(
        lambda flow, before: (before.map("K", lambda row: {"k": row["k"]}).dedup("X", on="k", within=60),),
        [{"k": key} for key in range(4)], None, "x",
    ),
    Kind.WINDOW: KindExample(
        lambda flow, before: (before.window("X", Counted(), tumbling(20), key="k"),),
        [{"k": key, "time": end, "n": 5} for key in range(4) for end in (20, 40, 60)], Doubled(), "x",
    ),
    Kind.REDUCE: KindExample(
        lambda flow, before: (before.reduce("X", Counted(), key="k"),),
        [{"k": row["k"], "time": row["x"], "n": 1} for row in ROWS], Doubled(), "x",
    ),
    Kind.JOIN_WITHIN: KindExample(
        lambda flow, before: (before.join_within("X", _other(flow, before), on="k", before=8, after=4),),
        _pairs(lambda x, y: -8 <= y - x <= 4), _merged, "x",
    ),
    Kind.JOIN_LATEST: KindExample(
        lambda flow, before: (before.join_latest("X", _other(flow, before), on="k", tolerance=4, how="left"),),
        _newest(), _merged, "x",
    ),
    Kind.JOIN_WINDOW: KindExample(
        lambda flow, before: (before.join_window("X", _other(flow, before), on="k", windows=tumbling(20)),),
        _pairs(lambda x, y: x // 20 == y // 20), _merged, "x",
    ),
    Kind.COUNT_WINDOW: KindExample(
        lambda flow, before: (before.window("X", Counted(), count(5), key="k"),),
        [{"k": key, "time": 5, "n": 5} for key in range(4) for _ in range(3)], Doubled(),
    ),
    Kind.LOOP: KindExample(_loop, [row | {"k": -1} for row in ROWS]),
    Kind.AGGREGATE: KindExample(lambda flow, before: (before.aggregate("X", "k", {"total": "sum(x)"}),), None),
    Kind.SORT: KindExample(lambda flow, before: (before.sort("X", "x"),), None),
    Kind.SINK: KindExample(_sink, ROWS),
}  # fmt: skip
