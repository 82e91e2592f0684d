"""Rows that make 20 rounds through a keyed body: in a loop, and in a dataflow in which the body stands 20 times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.experiments.bench.results import DIRECTORY

Row = dict[str, Any]

ROUNDS = 20
KEYS = 5_000
ROW_GROUP = 31_250
PRIME = 2_147_483_647


@dataclass(frozen=True)
class Visit:
    """Changes a number of the row, and counts the visits of the key in its state."""

    def initial_state(self) -> list[int]:
        """No visit."""
        return [0]

    def process(self, row: Row, state: list[int]) -> Row:
        """The row, in its next round."""
        state[0] += 1
        row["x"] = (row["x"] * 31 + row["round"]) % PRIME
        row["round"] += 1
        return row


def is_through(row: Row) -> bool:
    """Whether a row has made its rounds."""
    return bool(row["round"] >= ROUNDS)


def goes_on(row: Row) -> bool:
    """Whether a row may go on in the unrolled body: it always may."""
    return bool(row["round"] <= ROUNDS)


def rounds_file(rows: int, directory: Path = DIRECTORY / "data") -> Path:
    """A Parquet file of rows in front of their first round; created once and kept in ``directory``."""
    path = directory / f"rounds-{rows}.parquet"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        number = pa.array(range(rows), pa.int64())
        keys = pa.array((value * 7919 % KEYS for value in range(rows)), pa.int64())
        table = pa.table({"id": number, "k": keys, "x": number, "round": pa.array([0] * rows, pa.int64())})
        unfinished = path.with_suffix(".unfinished")
        pq.write_table(table, unfinished, row_group_size=ROW_GROUP)
        unfinished.rename(path)
    return path


def looped(source: Path, target: str) -> fn.Dataflow:
    """The body in a loop."""
    flow = fn.Dataflow("looped")
    rows = flow.source("Src", fn.replay(str(source)))
    through = rows.iterate("Loop", lambda again: again.map("Visit", Visit(), key="k").split("Through", is_through))
    through.sink("Sink", fn.parquet(target))
    return flow


def unrolled(source: Path, target: str) -> fn.Dataflow:
    """The body, with a filter in the place of its split, as often as there are rounds."""
    flow = fn.Dataflow("unrolled")
    rows = flow.source("Src", fn.replay(str(source)))
    for number in range(1, ROUNDS + 1):
        rows = rows.map(f"Visit{number}", Visit(), key="k").filter(f"GoesOn{number}", goes_on)
    rows.sink("Sink", fn.parquet(target))
    return flow


def results_of(target: str) -> pa.Table:
    """What a flow has written, in order."""
    return pq.read_table(target, columns=["id", "k", "x", "round"]).sort_by("id")
