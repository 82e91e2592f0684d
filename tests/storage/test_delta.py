"""Delta tables as targets: an epoch is one transaction of the log, once, whatever stops in between."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fries_nb.connectors.parquet_sink import DeltaSink, PartWriter
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId
from fries_nb.spark import catalog
from fries_nb.storage import delta, manifest
from fries_nb.storage.manifest import claim, commit, committed, recover, see_unchanged, sweep, take_back


def part(path: Path, run: str = "r1", **columns: Any) -> tuple[str, ...]:
    """A closed part with these columns."""
    serials = count(1 + len(list(path.rglob("part-*"))))
    one = PartWriter(str(path), WorkerId("scored", 0), 1, run, serials=serials)
    one.write(pa.record_batch(columns))
    return one.close_part()


def rows(path: Path) -> list[dict[str, Any]]:
    """What the table holds, by deltalake."""
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["n"])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A target that is to become a table."""
    path = tmp_path / "table"
    claim(str(path), "fraud", table=True)
    return path


def test_each_epoch_is_one_transaction_and_repeating_it_is_harmless(table: Path) -> None:
    """The log has the run and the epoch; readers see no file before."""
    first = part(table, n=[1, 2])
    second = part(table, n=[3])
    commit(str(table), 0, first)
    commit(str(table), 0, first)
    assert (rows(table), delta.last_epoch(str(table), "r1")) == ([{"n": 1}, {"n": 2}], 0)
    version = DeltaTable(str(table)).version()
    commit(str(table), 1, second)
    for epoch, files in ((0, first), (1, second)):
        commit(str(table), epoch, files)
        delta.add(str(table), "r1", epoch, [Path(file).name for file in files])
    assert [row["n"] for row in rows(table)] == [1, 2, 3]
    assert DeltaTable(str(table)).version() == version + 1
    assert DeltaTable(str(table)).get_add_actions().num_rows == 2


@pytest.mark.parametrize("stopped", ["_move", "_publish"])
def test_whoever_comes_next_completes_a_commit(table: Path, stopped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped behind the manifest: the files, and then the transaction, follow at the next claim or commit."""

    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    files = part(table, n=[1])
    with monkeypatch.context() as patch:
        patch.setattr(manifest, stopped, stop)
        with pytest.raises(KeyboardInterrupt):
            commit(str(table), 0, files)
    assert not delta.is_table(str(table))
    if stopped == "_move":
        claim(str(table), "fraud", table=True)
        assert [row["n"] for row in rows(table)] == [1]
    commit(str(table), 1, part(table, n=[2]))
    recover(str(table))
    assert [row["n"] for row in rows(table)] == [1, 2]


def test_columns_come_and_widen_within_what_a_table_takes(table: Path) -> None:
    """New ones are added; those of nothing but nulls wait for a type; whole numbers fit among floats."""
    commit(str(table), 1, part(table, n=[1], x=[0.5], later=pa.nulls(1)))
    commit(str(table), 2, part(table, n=[2], x=[1], later=["now"], xs=[[1]]))
    assert rows(table) == [
        {"n": 1, "x": 0.5, "later": None, "xs": None}, {"n": 2, "x": 1.0, "later": "now", "xs": [1]}
    ]  # fmt: skip


def test_a_type_that_the_table_cannot_take_changes_nothing(table: Path) -> None:
    """Refused in front of the manifest, by name."""
    commit(str(table), 1, part(table, n=[1]))
    with pytest.raises(SinkError, match=r"column 'n' is int64 in the Delta table .* and now double; a column keeps"):
        commit(str(table), 2, part(table, n=[1.5]))
    recover(str(table))
    assert rows(table) == [{"n": 1}]
    other = table.parent / "other"
    claim(str(other), "fraud", table=True)
    nulls = part(other, n=pa.nulls(1))
    with pytest.raises(SinkError, match="cannot begin with rows of nothing but nulls"):
        commit(str(other), 1, nulls)


def test_rows_of_a_damaged_checkpoint_are_not_added_twice(table: Path) -> None:
    """Its run goes on from an older checkpoint only when the table has been restored; then with further epochs."""
    for epoch in (1, 2):
        commit(str(table), epoch, part(table, n=[epoch]))
    with pytest.raises(SinkError, match=r"has rows of epoch 2 of run r1, whose checkpoint is damaged; .* restore"):
        take_back(str(table), "r1", 1)
    DeltaTable(str(table)).restore(DeltaTable(str(table)).version() - 1)
    assert rows(table) == [{"n": 1}]
    take_back(str(table), "r1", 1)
    commit(str(table), 3, part(table, n=[2]))
    assert rows(table) == [{"n": 1}, {"n": 2}]


def test_two_that_complete_a_commit_at_once_add_it_once(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log refuses the second, which finds that its work is done."""
    commit(str(table), 1, part(table, n=[1]))
    files, action = part(table, n=[2]), delta._action

    def other_first(*given: Any) -> Any:
        monkeypatch.undo()
        commit(str(table), 2, files)
        return action(*given)

    monkeypatch.setattr(delta, "_action", other_first)
    commit(str(table), 2, files)
    assert rows(table) == [{"n": 1}, {"n": 2}]


def test_runs_add_to_one_table_and_are_told_apart(table: Path) -> None:
    """Epoch 1 of each is in it; what was never committed is swept; what others rewrote is theirs."""
    commit(str(table), 1, part(table, n=[1]))
    commit(str(table), 1, part(table, "r2", n=[2]))
    part(table, "r2", n=[3])
    sweep(str(table), "r2", 1)
    assert [len(committed(str(table), run)) for run in ("r1", "r2", None)] == [1, 1, 2]
    assert [row["n"] for row in rows(table)] == [1, 2]
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    recover(str(table))
    assert committed(str(table)) == []
    assert [row["n"] for row in rows(table)] == [1, 2]


def test_rows_of_a_table_that_was_rewritten_are_not_left_out_in_silence(table: Path) -> None:
    """Compaction leaves none of the files that were committed; an epoch that is on its way is not missed."""
    commit(str(table), 1, part(table, n=[1]))
    commit(str(table), 1, part(table, "r2", n=[2]))
    see_unchanged(str(table))
    DeltaTable(str(table)).optimize.compact()
    commit(str(table), 2, part(table, "r2", n=[3]))
    for run, gone in (("r1", "1 of the 1"), ("r2", "1 of the 2"), (None, "2 of the 3")):
        with pytest.raises(SinkError, match=f"has been rewritten since .*: {gone} files .* read that: spark.read"):
            see_unchanged(str(table), run)


@pytest.mark.parametrize(
    ("rewrite", "left"),
    [
        (lambda table: table.optimize.compact(), [1, 2]),
        (lambda table: table.delete("n = 1"), [2]),
        (lambda table: write_deltalake(table, pa.table({"n": [9]}), mode="overwrite"), [9]),
        (lambda table: table.restore(table.version() - 1), [1]),
    ],
    ids=["optimize", "delete", "overwrite", "restore"],
)
def test_a_table_that_is_rewritten_while_it_is_read_is_refused_and_added_to(
    table: Path, rewrite: Callable[[DeltaTable], object], left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes in front of the list of files is seen behind it; the run that writes there goes on."""
    for epoch in (1, 2):
        commit(str(table), epoch, part(table, n=[epoch]))

    def rewritten_first(path: str, run: str | None) -> list[str]:
        rewrite(DeltaTable(path))
        return committed(path, run)

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=object()))
    monkeypatch.setattr(catalog, "committed", rewritten_first)
    with pytest.raises(SinkError, match=r"has been rewritten since .* of the 2 files that were committed"):
        catalog.output(spark, str(table), "r1")
    files = part(table, n=[3])
    sink = DeltaSink(str(table))
    sink.claim("fraud", "r1")
    sink.prepare(files)
    commit(str(table), 3, files)
    assert [row["n"] for row in rows(table)] == sorted([*left, 3])


def test_an_epoch_that_is_not_in_the_log_yet_is_not_missed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its manifest is written first."""
    commit(str(table), 1, part(table, n=[1]))
    monkeypatch.setattr(manifest, "_publish", lambda path, run: None)
    commit(str(table), 2, part(table, n=[2]))
    see_unchanged(str(table))


def test_a_table_that_is_there_is_added_to(tmp_path: Path) -> None:
    """Whoever made it; but not if it is partitioned, and no Parquet target becomes a table."""
    write_deltalake(str(tmp_path / "a"), pa.table({"n": [1]}))
    claim(str(tmp_path / "a"), "fraud", table=True)
    commit(str(tmp_path / "a"), 1, part(tmp_path / "a", n=[2]))
    assert [row["n"] for row in rows(tmp_path / "a")] == [1, 2]
    write_deltalake(str(tmp_path / "b"), pa.table({"n": [1], "p": [1]}), partition_by=["p"])
    claim(str(tmp_path / "c"), "fraud")
    refused: dict[str, tuple[Callable[[], None], str]] = {
        "b": (lambda: claim(str(tmp_path / "b"), "fraud", table=True), "is partitioned by p, and the sink is not"),
        "c": (lambda: claim(str(tmp_path / "c"), "fraud", table=True), "holds Parquet files, not a Delta table"),
        "a": (lambda: claim(str(tmp_path / "a"), "fraud"), "holds a Delta table, not Parquet files"),
    }
    for case, said in refused.values():
        with pytest.raises(SinkError, match=said):
            case()


def test_a_log_that_cannot_be_read_is_one_line(table: Path) -> None:
    """Broken JSON, say."""
    commit(str(table), 1, part(table, n=[1]))
    for file in (table / "_delta_log").glob("*.json"):
        file.write_text("{")
    with pytest.raises(SinkError, match=r"cannot read the Delta table .*: .*") as caught:
        claim(str(table), "fraud", table=True)
    assert "\n" not in str(caught.value)


def test_without_the_package_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything runs."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SinkError, match=r"needs the package deltalake: pip install 'fries_nb\[delta\]'"):
        claim(str(tmp_path / "t"), "fraud", table=True)
