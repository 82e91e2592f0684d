"""A driver that dies between the record of a checkpoint and its commits: all sinks have each row once in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sinks_flow
from deltalake import DeltaTable
from dying_driver import see_die
from pyspark.sql import SparkSession
from recovery_setting import check_counted
from run_setting import ended_runs, until
from sinks_flow import TABLE, own_sink, run_in


def rows_of(spark: SparkSession, place: Path) -> dict[str, list[dict[str, Any]]]:
    """What each sink has, as its readers see it."""
    return {
        "own": own_sink(place).rows(),
        "delta": DeltaTable(str(place / "delta")).to_pyarrow_table().to_pylist(),
        "table": [row.asDict() for row in spark.read.parquet(f"file://{place}/table/*.parquet").collect()],
    }


def test_a_driver_that_dies_behind_the_record_loses_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """When others have committed, and the Delta table is about to: the run that is resumed commits to it as well."""
    (tmp_path / "table").mkdir()
    see_die(sinks_flow.__file__, str(tmp_path))
    died = {name: len(rows) for name, rows in rows_of(spark, tmp_path).items()}
    assert 0 < died["delta"] < max(died.values())
    with ended_runs() as runs:
        runs.append(run_in(spark, tmp_path))
        until(lambda: len(own_sink(tmp_path).rows()) > max(died.values()), runs[0])
        runs[0].stop()
        count = len(own_sink(tmp_path).rows())
        for rows in rows_of(spark, tmp_path).values():
            check_counted(rows, count)
        assert spark.table(TABLE).count() == count
        assert runs[0].output("delta").count() == count
    spark.sql(f"DROP TABLE {TABLE}")
