"""On real Spark: chains are fused and split while rows flow and are counted, and while changes are made."""

from __future__ import annotations

from collections import Counter
from typing import Any

from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs, until, wait_for_more

import fries_nb as fn
from fries_nb.protocol.messages import WorkerId
from fries_nb.run import Run
from fries_nb.simulation.seeded_changes import ChainRequested, StepRequests

KEYS = 6


class Count:
    """Counts by key."""

    def __init__(self, version: int) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state[0] += 1
        return row | {"FM": self.version, "seen": state[0]}


def named(name: str, version: int) -> Any:
    """Names a version."""
    return lambda row: row | {name: version}


def counting_flow() -> fn.Dataflow:
    """numbers -> FK -> FM (keyed) -> MC -> FX -> FY -> out; FM, MC and FX may be a chain."""
    flow = fn.Dataflow("chains")
    numbers = flow.source("numbers", fn.rate(2_000), workers=1)
    counted = numbers.map("FK", lambda row: row | {"key": row["value"] % KEYS}).map("FM", Count(1), key="key")
    apart = counted.map("MC", named("MC", 1)).map("FX", named("FX", 1)).map("FY", named("FY", 1), chain=False)
    apart.sink("out", fn.memory())
    return flow


def asked(run: Run, index: int, *operators: str) -> tuple[tuple[str, ...], str]:
    """The chain that a worker has after it was asked for.

    Asked again, after more rows, for a fuse that was given up, and for one of a worker that has a thread of its own for
    now, since the machine was busy with something else for as long as its tuples are to take.
    """
    worker, telemetry = WorkerId(operators[0], index), run._telemetry
    listed = run._runner.launched[0].driver.controller.coordinators
    if not any(isinstance(coordinator, StepRequests) for coordinator in listed):
        listed.append(StepRequests(listed))
        listed[-1].started(0)
    while True:
        before = telemetry.chains.get(worker)
        run._runner.post(ChainRequested(worker, operators))
        until(lambda before=before: telemetry.chains.get(worker) is not before, run)
        answer = telemetry.chains[worker]
        # On a busy machine a host also changes a chain by itself, as one function seems slow, and tells that.
        is_own = not answer.error and answer.operators != operators
        if not is_own and not any(words in answer.error for words in ("was left as it was", "a thread of its own")):
            return answer.operators, answer.error
        flows(run)


def flows(run: Run) -> None:
    """Rows come out."""
    wait_for_more(run, 300)


def changed(run: Run, version: int) -> None:
    """All three operators of the chain are changed together."""
    functions = {"FM": Count(version), "MC": named("MC", version), "FX": named("FX", version)}
    assert run.reconfigure(functions).result(PATIENCE_S).outcome == "done"


def test_chains_are_fused_and_split_while_rows_flow(spark: SparkSession) -> None:
    """Every number comes out once, counted once, by functions of one version, whatever shares a worker meanwhile."""
    with ended_runs() as runs:
        run: Run = counting_flow().run(spark, hosts=2, workers=2, audit=True, chaining=False)
        runs.append(run)
        flows(run)
        assert run.chains() == ()
        assert asked(run, 0, "FM", "MC") == (("FM", "MC"), "")
        assert [str(chain) for chain in run.chains()] == ["FM + MC (worker 0 of 2)"]
        flows(run)
        changed(run, 2)
        assert asked(run, 1, "MC", "FX") == (("MC", "FX"), "")
        assert asked(run, 0, "FM", "MC", "FX") == (("FM", "MC", "FX"), "")
        flows(run)
        changed(run, 3)
        chain, error = asked(run, 1, "FM", "MC", "FX", "FY")
        assert (chain, "are declared with chain=False" in error) == (("FM", "MC", "FX"), True)
        for index in range(2):
            flows(run)
            assert asked(run, index, "MC", "FX") == (("MC", "FX"), "")
            assert asked(run, index, "MC") == (("MC",), "")
        changed(run, 4)
        assert run.chains() == ()
        assert len(run.history.chains) > 4
        flows(run)
        run.stop()
        rows = run.output().collect()
        values = Counter(row["value"] for row in rows)
        assert set(values.values()) == {1}
        assert set(values) == set(range(len(values)))
        assert {(row["FM"], row["MC"], row["FX"]) for row in rows} == {(one, one, one) for one in (1, 2, 3, 4)}
        for key in range(KEYS):
            seen = sorted(row["seen"] for row in rows if row["value"] % KEYS == key)
            assert seen == list(range(1, len(seen) + 1))
        assert run.audit().serializable
