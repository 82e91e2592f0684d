"""Hosts and drivers that are killed on real Spark: what comes out is what would have come out without."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from recovery_setting import PATIENCE_S, check_counted, counting, trial

from fries_nb.controller.events import StopRequested
from fries_nb.driver import driver
from fries_nb.errors import CheckpointError
from fries_nb.spark import stage


def test_hosts_are_asked_for_when_there_are_executors_for_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark itself would look again only after 15 s; one executor after the other comes back here."""
    rooms = [0, 1, 2]
    with trial(counting(8_000), spark, str(tmp_path / "c")) as run:
        run.watch.until_said("checkpoint")
        monkeypatch.setattr(stage, "room_of", lambda spark: rooms.pop(0))
        run.kill(0, 1)
        run.watch.until_said("recovered")
        assert rooms == []
        assert run.end(drain=False) == ("finished", "")
        check_counted(run.rows(), 8_000)


def test_without_executors_spark_is_asked_in_the_end(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the last word on what it lacks; here it lacks nothing."""
    monkeypatch.setattr(stage, "ROOM_S", 0.2)
    monkeypatch.setattr(stage, "room_of", lambda spark: 0)
    with trial(counting(100), spark) as run:
        assert run.end(drain=False) == ("finished", "")


def test_a_run_that_is_stopped_before_there_are_executors_gets_none_of_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its hosts would come when nobody waits for them any more."""
    monkeypatch.setattr(driver, "RELEASE_S", 0.2)
    monkeypatch.setattr(stage, "ROOM_S", 10 * PATIENCE_S)
    waits = threading.Event()

    def no_room(spark: SparkSession) -> int:
        waits.set()
        return 0

    monkeypatch.setattr(stage, "room_of", no_room)
    with trial(counting(None), spark) as run:
        assert waits.wait(PATIENCE_S)
        [job] = [thread for thread in threading.enumerate() if thread.name == f"fries-{run.launched.run}-1"]
        run.launched.driver.post(StopRequested())
        run.watch.until_said("closed")
        job.join(PATIENCE_S)
        assert not job.is_alive()
        assert not spark.sparkContext.statusTracker().getJobIdsForGroup(f"fries-{run.launched.run}-1")


def test_a_place_that_cannot_serve_is_refused_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    """Taken, damaged, of another flow: in one sentence, and a place whose launch fails is not left taken."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"), trial(counting(10), spark, str(tmp_path / "file")):
        pass
    path = str(tmp_path / "c")
    with trial(counting(4_000), spark, path) as run:
        assert run.end(drain=False) == ("finished", "")
    with (
        pytest.raises(CheckpointError, match="holds a run of flow 'counting' already"),
        trial(counting(10), spark, path),
    ):
        pass
    with trial(counting(4_000, workers=3), spark, path, resumed=True) as run:  # it has finished: nothing is left
        assert run.end(drain=False) == ("finished", "")
        check_counted(run.rows(), 4_000)
