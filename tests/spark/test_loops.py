"""Loops on real Spark: every row comes out as plain Python says, under stops, little memory and a full disk.

Hosts are killed in ``test_loop_changes``, and nested loops end there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow.parquet as pq
import pytest
from loop_flows import (
    check_circled,
    circling,
)
from run_setting import until

import fries_nb as fn
from fries_nb.run import Run
from fries_nb.workloads.graphs import DAMPING, components_flow, generated, karate, labels, pagerank_flow, ranks

MEMORY_PART = 0.5


def output_of(run: Run) -> list[dict[str, Any]]:
    """What is committed."""
    return [row.asDict() for row in run.output().collect()]


def processed(run: Run) -> dict[str, int]:
    """Operator to the number of rows that it took."""
    return {name: one.processed for name, one in run.metrics().operators.items()}


def spilled(pid: int) -> dict[Path, int]:
    """Size of each unlinked file of spilled rows that a process has mapped, in bytes."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    found = (re.match(r"([0-9a-f]+)-([0-9a-f]+) .* (/.*/fries-spill-.*) \(deleted\)$", line) for line in lines)
    return {Path(one[3]): int(one[2], 16) - int(one[1], 16) for one in found if one is not None}


def own_bytes(pid: int) -> int:
    """Memory of a process that no file backs, in bytes."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the files that a process maps are read from /proc")
def test_rows_that_wait_for_a_head_are_spilled(started: Callable[..., Run], tmp_path: Path) -> None:
    """Two hundred times the budget goes round; the files are unlinked, and memory keeps a part of the rows only.

    Arrow gives the system back what it has freed some time later, so that is waited for while the rows go round.
    """
    go, rows, size, budget = tmp_path / "go", 40_000, 6_000, 1 << 20
    run = started(circling(str(go), rows // 100, size=size), hosts=1, workers=1, buffer_budget_bytes=budget)
    until(lambda: run.wait_flowing(0) and processed(run).get("S", 0) == rows // 100, run)
    [pid] = run.host_processes.values()
    before = own_bytes(pid)
    until(lambda: sum(spilled(pid).values()) > rows * size // 2, run)
    directories = {file.parent for file in spilled(pid)}
    until(lambda: own_bytes(pid) - before < MEMORY_PART * rows * size, run)
    go.touch()
    assert (run.wait(), run.error) == ("finished", "")
    check_circled(output_of(run), rows)
    assert directories
    assert not [file for directory in directories for file in directory.glob("fries-spill-*")]


def test_a_loop_that_never_drains_is_stopped(started: Callable[..., Run], tmp_path: Path) -> None:
    """A drain goes on, says so on a timeout, and cancel() ends it at once."""
    run = started(circling(str(tmp_path / "never"), 10), hosts=2, workers=2)
    until(lambda: processed(run).get("K", 0) > 5_000, run)
    with pytest.raises(TimeoutError, match=r"has not ended after 0.05 s and goes on draining; cancel\(\) ends"):
        run.stop(timeout=0.05)
    met = processed(run)["K"]
    until(lambda: processed(run)["K"] > met, run)
    with pytest.warns(fn.UncommittedWarning):
        run.cancel()
    assert run.state == "stopped"
    assert output_of(run) == []


def test_a_drain_ends_a_loop_whose_rows_leave(started: Callable[..., Run], tmp_path: Path) -> None:
    """An endless source is drained, its rows go round until they leave, and all that was read comes out."""
    go = tmp_path / "go"
    flow = circling(str(go), None, times=1, rate=5_000)
    run = started(flow, hosts=2, workers=2)
    until(lambda: processed(run).get("K", 0) > 2_000, run)
    with pytest.raises(TimeoutError):
        run.stop(timeout=0.05)
    go.touch()
    run.stop()
    assert run.state == "finished"
    check_circled(output_of(run), processed(run)["S"])


class Misplaced:
    """Lets rows that wait be spilled to a directory that does not exist; ends with the operator."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row."""
        os.environ["SPARK_LOCAL_DIRS"] = self.place
        return row


def test_a_full_disk_fails_a_loop_that_grows(started: Callable[..., Run], tmp_path: Path) -> None:
    """The error names the loop and the bytes; the place is that of the host's process, which ends with the run."""
    flow = circling(str(tmp_path / "never"), 300, size=1_000, first=Misplaced(str(tmp_path / "missing")))
    run = started(flow, hosts=1, workers=1, buffer_budget_bytes=1 << 20)
    assert run.wait() == "failed"
    words = r"^\d+ bytes of rows wait in memory for the head of a loop, L, .*cannot be spilled to .*missing"
    assert re.search(words, run.error)


def test_components_and_ranks_are_those_of_networkx(started: Callable[..., Run], tmp_path: Path) -> None:
    """Components of a generated graph exactly, ranks of a real one within the tolerance."""
    table = generated(12, 8_000, seed=1)
    pq.write_table(table, tmp_path / "edges.parquet", row_group_size=1_000)
    run = started(components_flow(fn.replay(tmp_path / "edges.parquet"), fn.memory()), hosts=2, workers=2)
    assert (run.wait(), run.error) == ("finished", "")
    graph = nx.Graph(zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True))
    wanted = {vertex: min(part) for part in nx.connected_components(graph) for vertex in part}
    assert labels(output_of(run)) == wanted
    pq.write_table(karate(), tmp_path / "karate.parquet", row_group_size=20)
    run = started(pagerank_flow(fn.replay(tmp_path / "karate.parquet"), fn.memory()), hosts=2, workers=2)
    assert (run.wait(), run.error) == ("finished", "")
    exact = nx.pagerank(nx.karate_club_graph(), DAMPING, tol=1e-14, max_iter=10_000, weight=None)
    assert ranks(output_of(run)) == pytest.approx(exact, abs=1e-6)
