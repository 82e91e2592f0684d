"""Fifty changes on real Spark while hosts and drivers are killed: nothing is lost, doubled, or half changed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from chaos_setting import Drawn, Killer, carry_out, chaos_flow, check, drawn_changes, still
from conftest import SOAK
from pyspark.sql import SparkSession
from recovery_setting import Trial, trial

import fries_nb as fn
from fries_nb.controller import events as said

CHANGES = 50
KILLS = 6
ROUNDS = [(0, "line", "parquet", CHANGES), (1, "diamond", "delta", 10)]
SOAKED = [
    (seed, shape, sink, CHANGES)
    for seed in range(2, SOAK if SOAK > 1 else 0)
    for shape, sink in [(("line", "diamond")[seed % 2], ("parquet", "delta", "memory")[seed % 3])]
]


def sink_of(kind: str, path: Path) -> Any:
    """Where rows go."""
    return {"parquet": lambda: fn.parquet(path), "delta": lambda: fn.delta(path), "memory": fn.memory}[kind]()


def end_well(run: Trial, changes: list[Drawn], outcomes: dict[int, str]) -> None:
    """Let the source halt, the rest come out, and see that it is right."""
    run.launched.driver.post(said.RateRequested("S", 0.0))
    made = still(run.watch)
    assert run.end() == ("finished", "")
    check(run.rows(), made, changes, outcomes)
    verdict = run.audit()
    assert verdict.serializable, verdict.mixed[:3]


@pytest.mark.parametrize(("seed", "shape", "sink", "count"), ROUNDS + SOAKED)
def test_hosts_are_killed_during_fifty_changes(
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
        watch.until(lambda: not watch.kills and watch.survived > 4, "the last kill")
        end_well(run, changes, outcomes)
        assert set(outcomes.values()) == {"done", "aborted"}
