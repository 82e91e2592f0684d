"""Many changes on real Spark while hosts and drivers are killed: nothing is lost, doubled, or half changed."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from chaos_setting import RATE, Killer, carry_out, chaos_flow, check, drawn_changes, end_well
from cluster_setting import PACKAGE, SUPPORT, environment
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from recovery_setting import trial
from run_setting import until
from soak import SOAK

import fries_nb as fn
from fries_nb.storage.checkpoint_store import CheckpointStore

CHANGES, KILLS = (50, 6) if SOAK > 1 else (24, 3)
ROUNDS = [(0, "diamond", "delta", CHANGES)]
SOAKED = [
    (seed, shape, sink, CHANGES)
    for seed in range(2, SOAK if SOAK > 1 else 0)
    for shape, sink in [(("line", "diamond")[seed % 2], ("parquet", "delta", "memory")[seed % 3])]
]


def sink_of(kind: str, path: Path) -> Any:
    """Where rows go."""
    return {"parquet": lambda: fn.parquet(path), "delta": lambda: fn.delta(path), "memory": fn.memory}[kind]()


@pytest.mark.parametrize(("seed", "shape", "sink", "count"), ROUNDS + SOAKED)
def test_hosts_are_killed_during_many_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    seed: int, shape: str, sink: str, count: int,
) -> None:  # fmt: skip
    """At moments that the seed says, also while they come back; more often than Spark would put up with by itself."""
    changes = drawn_changes(seed, count)
    watch = Killer(random.Random(seed), KILLS)
    flow = chaos_flow(shape, sink_of(sink, tmp_path / "out"))
    with trial(flow.graph(2), spark, str(tmp_path / "c"), watch=watch) as run:
        run.watch.until_said("checkpoint", 2)
        watch.aim(run, monkeypatch.setattr)
        outcomes = carry_out(run, changes, lambda drawn, outcome: None)
        watch.until(lambda: watch.survived >= watch.kills, "the last kill")
        end_well(run, changes, outcomes)
        assert set(outcomes.values()) == {"done", "aborted"}


DRIVER = textwrap.dedent(
    """
    import random, sys
    import fries_nb as fn
    from chaos_setting import Killer, carry_out, chaos_flow, drawn_changes
    from recovery_setting import trial
    from fries_nb.spark.session import start_or_find

    path, out, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    lease = start_or_find(hosts=2)
    watch = Killer(random.Random(seed), 3)
    with trial(chaos_flow("line", fn.parquet(out)).graph(2), lease.spark, path, watch=watch) as run:
        run.watch.until_said("checkpoint", 2)
        watch.aim(run, setattr)
        carry_out(run, drawn_changes(seed, 50), lambda drawn, outcome: print(drawn.version, outcome, flush=True))
    """
)


def killed_driver(path: Path, out: Path, seed: int) -> dict[int, str]:
    """Let a process drive chaos until it is killed between two words; returns the outcomes that it has told."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(path), str(out), str(seed)],
        cwd=SUPPORT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert driver.stdout is not None
    lines = [driver.stdout.readline() for _ in range(random.Random(seed).randrange(5, 15))]
    driver.send_signal(signal.SIGKILL)
    lines += driver.communicate()[0].splitlines(keepends=True)
    told = [line.split() for line in lines if line.endswith("\n")]
    return {int(version): outcome for version, outcome in told}


@pytest.mark.parametrize("seed", [3, *(seed for seed in range(4, SOAK // 4) if SOAK > 1)])
def test_a_driver_is_killed_in_the_middle_and_the_run_resumed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """What was decided is done, what was not is not, whether or not the dead driver had the time to say so."""
    path, out = tmp_path / "c", tmp_path / "out"
    told = killed_driver(path, out, seed)
    decided = {
        pickle.loads(next(iter(one.payloads.values()))).function.version
        for one in CheckpointStore.load(str(path))[1].decided
    }
    assert {version for version, outcome in told.items() if outcome == "done"} <= decided
    assert not {version for version, outcome in told.items() if outcome == "aborted"} & decided
    begun = max({*told, *decided})
    changes = drawn_changes(seed, begun + 8)
    outcomes = {drawn.version: "done" if drawn.version in decided else "aborted" for drawn in changes[:begun]}
    flow, shape = chaos_flow("line", fn.parquet(out)), {"workers": 3, "chaining": False}
    run = flow.resume(path, spark, **shape, audit=True, commit_interval_s=0.3)
    try:
        for drawn in changes[begun:]:
            if drawn.version == begun + 4:
                os.kill(run.host_processes[0], signal.SIGKILL)
            outcomes[drawn.version] = run.reconfigure(drawn.updates(), drawn.scheduler).result(PATIENCE_S).outcome
        made = run.metrics().operators["S"].processed
        # The last rows tell whether the last change was made, so some are read after it.
        until(lambda: run.metrics().operators["S"].processed > made + RATE, run)
        run.stop()
        assert run.state == "finished", run.error
        made = run.metrics().operators["S"].processed
        check([row.asDict() for row in run.output().collect()], made, changes, outcomes)
        assert run.audit().serializable
    finally:
        run.cancel()


CLUSTER = textwrap.dedent(
    """
    import random, sys
    from pyspark.sql import SparkSession
    import fries_nb as fn
    import recovery_setting
    from chaos_setting import Killer, carry_out, chaos_flow, drawn_changes, end_well, executor_of
    from recovery_setting import trial

    recovery_setting.PATIENCE_S = 600.0  # an executor of a busy machine may take a minute to come
    path, out, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    builder = SparkSession.builder.master("local-cluster[2,2,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.executor.memory", "512m").config("spark.driver.memory", "512m")
    java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    builder = builder.config("spark.driver.extraJavaOptions", java).config("spark.executor.extraJavaOptions", java)
    builder = builder.config("spark.python.daemon.module", "fries_nb.spark.daemon")
    spark = builder.config("spark.executorEnv.PYTHONPATH", sys.argv[5]).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # it speaks of lost executors at length
    changes, watch = drawn_changes(seed, count), Killer(random.Random(seed), 5, executor_of)
    with trial(chaos_flow("line", fn.parquet(out)).graph(2), spark, path, watch=watch) as run:
        run.watch.until_said("checkpoint", 2)
        watch.aim(run, setattr)
        outcomes = carry_out(run, changes, lambda drawn, outcome: None)
        watch.until(lambda: watch.survived >= watch.kills, "the last kill")
        end_well(run, changes, outcomes)
        print("survived", watch.survived, flush=True)
    """
)


if SOAK > 1:  # a cluster takes its time to begin and to replace an executor

    @pytest.mark.parametrize("seed", range(max(1, SOAK // 10)))
    def test_executors_are_killed(tmp_path: Path, seed: int) -> None:
        """Java processes of a cluster on this machine, each with the host that it runs; only in the long run."""
        said = subprocess.run(
            [sys.executable, "-c", CLUSTER, str(tmp_path / "c"), str(tmp_path / "out"), str(seed), "10", PACKAGE],
            cwd=SUPPORT, env=environment(tmp_path), capture_output=True, text=True, timeout=1800,
            check=False,
        )  # fmt: skip
        assert "survived" in said.stdout.split(), said.stdout + said.stderr[-3000:]
