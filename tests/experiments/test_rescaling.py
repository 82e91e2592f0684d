"""Measurements of rescales at their fastest: what they count, that no row is wrong, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from notebook_files import executed, said

from fries_nb.experiments.bench import rescale_costs
from fries_nb.experiments.bench.apart import keyed_jobs
from fries_nb.experiments.bench.pairs import BenchError
from fries_nb.experiments.bench.rescale_costs import Gaps
from fries_nb.experiments.rescaling import Migration
from fries_nb.workloads.accounts import wrong_rows

KEPT = """
import json
with open("found.json", "w") as file:
    json.dump(found.as_json(), file)
"""

MODES = ("none", "adaptive", "all at once")
SMALLER = f"""
import importlib

module = importlib.import_module("fries_nb.experiments.rescaling")
module.SIZES = (1.0,)
module.MODES = {{mode: module.MODES[mode] for mode in {MODES}}}
"""
"""A cell in front of the notebook: at the size of tests both sizes have a key for each bin, and are the same."""


def migration(latency_ms: list[float]) -> Migration:
    """A run of four seconds, a span each, with rows at equal distances."""
    due_s = np.linspace(0, 4, len(latency_ms), endpoint=False)
    names = "steady", "joining", "moving", "after"
    spans = {name: (float(at), at + 1.0) for at, name in enumerate(names)}
    return Migration(due_s, np.array(latency_ms), spans, wrong=0)


def test_a_row_belongs_to_the_span_in_which_it_was_due() -> None:
    """However late it was."""
    row = migration([2.0, 2.0, 3.0, 3.0, 10.0, 2_500.0, 4.0, 4.0]).row()
    assert (row["steady p99 ms"], row["joining p99 ms"], row["worst ms"]) == (2.0, 3.0, 2_500.0)
    assert row["times steady"] == pytest.approx(row["moving p99 ms"] / 2.0)
    assert (row["joining s"], row["moving s"]) == (1.0, 1.0)


def test_a_gap_is_the_longest_time_without_a_row() -> None:
    """Before the request none counts."""
    assert migration([0.0] * 8).gap_ms == pytest.approx(500)
    assert migration([0.0, 0.0, 0.0, 0.0, 400.0, 0.0, 0.0, 0.0]).gap_ms == pytest.approx(900)


def test_points_of_a_curve_have_the_rows_of_a_tenth_of_a_second() -> None:
    """Rows before the steady span, in which the accounts were filled, have none."""
    found = Migration(np.array([-1.0, 0.01, 0.02, 0.25]), np.array([9.0, 1.0, 3.0, 5.0]), {}, 0).curve()
    assert [(round(point["at_s"], 1), point["p50_ms"], point["worst_ms"]) for point in found] == [
        (0.0, 2.0, 3.0),
        (0.2, 5.0, 5.0),
    ]


def test_wrong_rows_are_counted() -> None:
    """One lost, one doubled, one that met no state."""
    assert wrong_rows([0, 1, 2, 3], [1, 1, 2, 2], accounts=2) == 0
    assert wrong_rows([0, 1, 3], [1, 1, 2], accounts=2) == 1
    assert wrong_rows([0, 0, 1], [1, 2, 1], accounts=2) == 1
    assert wrong_rows([0, 1, 2, 3], [1, 1, 1, 2], accounts=2) == 1


def test_the_notebook_shows_latency_while_a_host_joins(tmp_path: Path) -> None:
    """In three of its modes; no row is lost, doubled, or meets another state."""
    notebook = executed("09_rescaling_evaluation.ipynb", tmp_path, KEPT, SMALLER)
    assert said(notebook, "print") == "0 rows were lost or doubled, or met another state\n"
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["moves"] for row in found["rows"]] == [*MODES]
    assert all(row["moving s"] > 0 for row in found["rows"])
    assert {mark["kind"] for mark in found["marks"]} == {"steady", "joining", "moving", "after"}
    assert {point["moves"] for point in found["curves"]} == {*MODES}


def test_the_time_until_a_new_host_takes_rows_is_measured(spark: Any) -> None:
    """From its first line, dealt in turn and by key."""
    dealt, keyed = rescale_costs.joining(scale=0.02, runs=1).targets
    assert dealt.got > 0
    assert keyed.got > 0


def test_a_second_host_is_measured_where_functions_wait(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one run, whose rows wait a millisecond only, however short the time that is asked for."""
    monkeypatch.setattr(rescale_costs, "COST_MS", 1.0)
    [result] = rescale_costs.second_host(scale=0.0, runs=1).pairs
    assert result.ratio_median > 0


def test_our_gap_and_that_of_a_restarted_query_have_no_wrong_row(spark: Any) -> None:
    """Structured Streaming keeps the partitions of its checkpoint."""
    gaps = Gaps(spark, accounts=20, seconds=0.5)
    assert gaps.streaming() > 0
    assert (gaps.wrong["Structured Streaming"], gaps.partitions) == (0, 1)


@pytest.mark.parametrize(("last", "wrong"), [([2, 2], 0), ([2, 1], 1)])
def test_the_gap_of_bytewax_and_its_wrong_rows_are_counted(
    monkeypatch: pytest.MonkeyPatch, last: list[int], wrong: int
) -> None:
    """Of rows as it writes them, since the extra that installs it is not that of the tests."""
    rows = [[0, 1, 0], [1, 1, 1_000_000], [*last, 9_000_000]]
    module = import_module("fries_nb.experiments.bench.rescale_costs")  # its function has the same name
    monkeypatch.setattr(module, "bytewax_resumed", lambda *of: (rows, 2_000_000))
    gaps = Gaps(None, accounts=2, seconds=0.5)
    assert gaps.bytewax() == 8.0
    assert gaps.wrong["bytewax"] == wrong


def test_idle_bins_compare_two_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own start deducted."""
    asked: list[str] = []

    @contextmanager
    def jobs(commit: str) -> Iterator[Callable[[str, Path], float]]:
        yield lambda hosts, path: asked.append(commit) or (2.0 if commit else 1.0) * (path.name != "payments-1.parquet")

    monkeypatch.setattr(rescale_costs, "keyed_jobs", jobs)
    monkeypatch.setattr(rescale_costs, "payments_file", lambda rows: Path(f"payments-{rows}.parquet"))
    [result] = rescale_costs.idle_bins(scale=0.0001, runs=2).pairs
    assert result.ratios == (2.0, 2.0)
    assert set(asked) == {"", rescale_costs.BEFORE}


def test_a_version_that_is_not_there_is_named() -> None:
    """As in an installation without the repository."""
    with pytest.raises(BenchError, match="no version 0000000 of fries_nb"), keyed_jobs("0000000"):
        pass
