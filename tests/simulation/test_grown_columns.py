"""Sources whose columns grow, in seeded runs with kills, checkpoints and changes: rows are those of the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from grown_files import play_grown, play_grown_join
from interleaving_checks import lacking
from soak import caught, first_tried

from fries_nb.connectors.file_columns import FileColumns
from fries_nb.operators.joined_names import JoinedNames
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.threaded_hosts import ThreadedCluster
from fries_nb.worker.outbox import OutChannel

HOSTS: tuple[type[Cluster], ...] = (Cluster, Cluster, ThreadedCluster)


def test_rows_have_what_they_had_and_nulls_elsewhere() -> None:
    """Behind functions of rows, of batches and of keys, whatever a split learns first."""
    wanted = ["done", "recovered", "json", "parquet", "csv"]
    assert lacking(40, wanted, lambda seed: play_grown(seed, HOSTS[seed % 3]), most=80) == {}


def test_pairs_have_what_both_rows_had() -> None:
    """Under one name for each column, whichever side gains it first; where that cannot be, it is refused by name."""
    wanted = ["recovered", "pairs", "left", "clash", "refused"]
    assert lacking(30, wanted, lambda seed: play_grown_join(seed, HOSTS[seed % 3]), most=60) == {}


def _in_their_order(
    columns: FileColumns, batch: pa.RecordBatch, *of: Any, fit: Callable[..., Any] = FileColumns.fit
) -> pa.RecordBatch:
    """Columns are those of the file, in its order."""
    fitted = fit(columns, batch, *of)
    if batch.schema.names == fitted.schema.names or set(batch.schema.names) != set(fitted.schema.names):
        return fitted
    return pa.RecordBatch.from_arrays(batch.columns, fitted.schema.names)


def _of_one_schema(channel: OutChannel, batch: pa.RecordBatch, add: Callable[..., None] = OutChannel.add) -> None:
    """Rows take the columns of those that wait."""
    if channel.buffer and channel.buffer[-1].schema != batch.schema:
        rows, known = batch.to_pylist(), channel.buffer[-1].schema
        batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name in known.names} for row in rows], known)
    add(channel, batch)


def _renamed(names: JoinedNames, left: dict[str, str], right: dict[str, str]) -> None:
    """A column is called as its side and the other one have it now."""
    for side, now in (("left", left), ("right", right)):
        names.known.setdefault(side, {}).update(now)
    names._made.clear()


BROKEN = {
    "a file's columns count by their places": (FileColumns, "fit", _in_their_order, play_grown, 1),
    "rows take the columns of those that wait": (OutChannel, "add", _of_one_schema, play_grown, 0),
    "columns change their names": (JoinedNames, "settle", _renamed, play_grown_join, 49),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without it some row has another value, or none."""
    *rule, play, seed = BROKEN[name]
    monkeypatch.setattr(*rule)
    assert caught(first_tried(seed, 60), play, by=Exception) is not None
