"""W2 and W3 on real Spark: whatever is changed meanwhile to an equal table, Spark SQL's own answer to the query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE_S

import fries_nb as fn
from fries_nb.workloads.tpcds import WHOLE, Tables, tpcds
from fries_nb.workloads.workflows import CHANNELS, W2, W3, w2_flow, w3_flow

SLOW, FAST = 200.0, 1_000_000.0
SCALE = 0.01


@pytest.fixture(scope="module")
def tables() -> Tables:
    """The least that answers both queries with some rows."""
    return tpcds(SCALE)


def answer(spark: Any, tables: Tables, query: int) -> list[Any]:
    """Spark SQL's own."""
    for table in WHOLE:
        spark.read.parquet(tables.whole(table)).createOrReplaceTempView(table)
    return spark.sql(tables.query(query)).collect()


def ours(spark: Any, run: Any, workflow: Any) -> list[Any]:
    """The end of the query over what the run's sink holds."""
    run.output().createOrReplaceTempView("joined")
    return spark.sql(workflow.result.format(joined="joined")).collect()


def flow_of(workflow: Any, tables: Tables, rate: float = SLOW) -> fn.Dataflow:
    """The pipelined part, its largest source at this rate and the others in proportion: a minute, unless let end."""
    if workflow is W2:
        return w2_flow(tables, fn.memory(), source=fn.replay(tables.read("w2", "Src"), rate=rate))
    rows = {name: pq.read_metadata(tables.read("w3", name)).num_rows for name in CHANNELS}
    sources = {
        name: fn.replay(tables.read("w3", name), rate=rate * count / max(rows.values())) for name, count in rows.items()
    }
    return w3_flow(tables, fn.memory(), sources=sources)


def let_end(run: Any) -> None:
    """Let the rest flow as fast as it may."""
    for source in ("Src",) if run.graph.name == "W2" else CHANNELS:
        run.set_rate(source, FAST)
    assert run.wait(PATIENCE_S) == "finished", run.error


@pytest.mark.parametrize(("workflow", "query", "scheduler"), [(W2, 40, "epoch"), (W3, 71, "fries")], ids=["W2", "W3"])
def test_the_answer_is_spark_sqls_before_during_and_after_a_change(spark, tables, workflow, query, scheduler):
    """Joins are changed to equal tables while rows flow, each by itself and all together."""
    run = flow_of(workflow, tables).run(spark=spark, hosts=2, workers=2, chaining=False, audit=True)
    equal = {join: pq.read_table(tables.read(workflow.name, join)) for join in workflow.joins}
    assert run.wait_flowing(PATIENCE_S)
    changes = [{workflow.joins[0]: equal[workflow.joins[0]]}, equal, {workflow.joins[-1]: equal[workflow.joins[-1]]}]
    results = [run.reconfigure(change, scheduler=scheduler).result(PATIENCE_S) for change in changes]
    assert [(result.outcome, result.error) for result in results] == [("done", "")] * len(changes)
    let_end(run)
    expected = answer(spark, tables, query)
    assert len(expected) > 1
    assert ours(spark, run, workflow) == expected
    verdict = run.audit()
    assert verdict.serializable
    assert verdict.updates == len(changes)


def test_another_table_would_show(spark, tables):
    """The comparison is not empty: a warehouse moved to another state in mid-run changes the answer."""
    run = flow_of(W2, tables).run(spark=spark, hosts=2, workers=2, chaining=False)
    assert run.wait_flowing(PATIENCE_S)
    warehouses = pq.read_table(tables.read("w2", "J4"))
    moved = warehouses.set_column(1, "w_state", pa.array(["XX"] * len(warehouses)))
    assert run.reconfigure({"J4": moved}).result(PATIENCE_S).outcome == "done"
    let_end(run)
    assert ours(spark, run, W2) != answer(spark, tables, 40)
