"""Execution of blocking operators between two regions: Spark SQL over the rows kept by earlier regions."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fries_nb.dataflow.endpoints import Rate, Replay, Source
from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.regions import Kept, Rows
from fries_nb.errors import DataflowError
from fries_nb.spark import interrupt


def source_of(spark: SparkSession, rows: Rows, read: Callable[[Kept], DataFrame]) -> Source:
    """The source that replays the input of a region from earlier ones; Spark computes its rows when it is launched.

    If an earlier region has kept no rows, the columns are unknown, and the source is empty without a computation.

    Args:
        spark: the session.
        rows: the rows kept by an earlier region, or the blocking operator over them.
        read: reads the kept rows of one sink.

    Raises:
        DataflowError: Spark cannot compute the blocking operator over the existing columns.
    """
    frame = _frame(spark, rows, read)
    return Rate(None, 0) if frame is None else Replay(frame, may_be_empty=True)


def check_query(spark: SparkSession, operator: Operator) -> None:
    """Check that Spark can parse the query of a blocking operator; its columns are not known yet.

    Raises:
        DataflowError: it is not valid SQL.
    """
    try:
        spark._jsparkSession.sessionState().sqlParser().parsePlan(operator.function.sql("rows"))
    except PySparkException as error:
        raise _refused(operator, error) from error


@contextlib.contextmanager
def job_group(spark: SparkSession, group: str) -> Iterator[None]:
    """Assigns Spark jobs of this thread to the group: Ctrl-C does not cancel them, and ``cancel`` does."""
    context = spark.sparkContext
    interrupt.spare(group)
    context.setJobGroup(group, "fries_nb between two regions", interruptOnCancel=False)
    try:
        yield
    finally:
        interrupt.forget(group)
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # null removes the property


def cancel(spark: SparkSession, group: str) -> None:
    """Cancel the jobs of this group. Later jobs are refused, except stages of an adaptive query."""
    spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group, "the fries_nb run was stopped")


def _frame(spark: SparkSession, rows: Rows, read: Callable[[Kept], DataFrame]) -> DataFrame | None:
    if isinstance(rows, Kept):
        kept = read(rows)
        return kept if kept.columns else None
    frames = [frame for one in rows.inputs if (frame := _frame(spark, one, read)) is not None]
    if not frames:
        return None
    whole = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    view = f"fries_{uuid.uuid4().hex}"
    whole.createOrReplaceTempView(view)
    try:
        return spark.sql(rows.operator.function.sql(view))
    except PySparkException as error:
        raise _refused(rows.operator, error, whole.columns) from error
    finally:
        spark.catalog.dropTempView(view)


def _refused(operator: Operator, error: PySparkException, columns: list[str] | None = None) -> DataflowError:
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    over = f" over the columns {', '.join(columns)}" if columns else ""
    return DataflowError(f"Spark cannot compute {operator.name!r}{over}: {reason}")
