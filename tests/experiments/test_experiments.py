"""The experiments at their fastest: they run, say what they promise, and have the paper's figures beside.

All run once, in the notebook that draws them; what they have found there is looked at here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from notebook_files import executed, said

import fries_nb as fn
from fries_nb.__main__ import main
from fries_nb.errors import FriesError
from fries_nb.experiments import EXPERIMENTS, experiment
from fries_nb.experiments.fries import LATE_S, PERIOD_S, TABLE4_MS
from fries_nb.experiments.measuring import ExperimentScale, scale_of
from fries_nb.planning import cover
from fries_nb.workloads.tpcds import Tables
from fries_nb.workloads.workflows import w2_flow, w3_flow

NAMES = [f"figure{n}" for n in range(13, 18)] + [f"table{n}" for n in range(4, 8)]
OTHERS = ["nephele2", "nephele7", "nexmark", "rescaling"]
"""Those of the other paper, and those of no paper, which have their own tests."""
FOUND = {
    "surges": "figure13",
    "vain": "figure14",
    "rates": "figure15",
    "costs": "figure16",
    "workers": "figure17",
    "joins": "table4",
    "many": "table5",
    "pruning": "table6",
}
"""The notebook's names for what the experiments have found."""
KEPT = f"""
import json
with open("found.json", "w") as file:
    json.dump([{", ".join(f"{name}.as_json()" for name in FOUND)}], file)
"""
SMALLER = """
import importlib
from fries_nb.experiments import measuring

fries = importlib.import_module("fries_nb.experiments.fries")
fries.REPEATS, measuring.SETTLED_S = 1, 0.6
fries.RATES, fries.WINDOWS = fries.RATES[::4], fries.WINDOWS[::4]
fries.SURGE_COST_MS, fries.CHANGES = 5.0, {120.0: 2.0, 220.0: 1.0}
fries.SURGES = {0.0: 400, 100.0: 800, 200.0: 9_000}
shown = [("W2", "J1"), ("W2", "J1, J4"), ("W3", "J5, J6"), ("W3", "J7, J8, J9")]
fries.TABLE4_MS = {change: fries.TABLE4_MS[change] for change in shown}
"""
"""A cell in front of the notebook: each change is made once, at the ends of a line only, and payments cost less."""
Found = dict[str, dict[str, Any]]
pytestmark = pytest.mark.timeout(1_200)  # nine experiments, on busy cores


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> tuple[nbformat.NotebookNode, Found]:
    """The notebook from top to bottom, and by name what the experiments in it have found."""
    directory = tmp_path_factory.mktemp("experiments")
    notebook = executed("02_paper_experiments.ipynb", directory, KEPT, SMALLER)
    found = json.loads((directory / "found.json").read_text())
    return notebook, {result["name"]: result for result in found}


@pytest.fixture(scope="module")
def found(notebook: tuple[nbformat.NotebookNode, Found]) -> Found:
    """By name, what the experiments have found."""
    return notebook[1]


def by(result: dict[str, Any], column: str) -> dict[Any, dict[str, Any]]:
    """Its rows by what stands in a column."""
    return {row[column]: row for row in result["rows"]}


def fewer_old(rows: Iterable[dict[str, Any]]) -> bool:
    """Over all changes Fries lets fewer old tuples pass; of one alone, on a busy machine, a queue may not be full."""
    found = [(row["old tuples fries"], row["old tuples epoch"]) for row in rows]
    return sum(fries for fries, _ in found) < sum(epoch for _, epoch in found)


def test_the_notebook_draws_them_all(notebook: tuple[nbformat.NotebookNode, Found]) -> None:
    """A table is shown for each figure and table."""
    shown = [said(notebook[0], beginning) for beginning in ("surges", "vain", "rates", "table(costs)", "joins", "many")]
    assert all("fries" in one for one in shown)
    assert "unpruned ms" in said(notebook[0], "pruning")
    assert "epoch ms" in said(notebook[0], "workers")
    assert "6440" in said(notebook[0], "opened.close()")
    assert sorted([*notebook[1], "table7"]) == sorted(NAMES)


def test_every_figure_and_table_is_there():
    """Figures 13 to 17, tables 4 to 7, the figures of the Nephele paper and that of rescales, each with a title."""
    assert sorted(EXPERIMENTS) == sorted([*NAMES, *OTHERS])
    assert all(one.title.replace(" ", "").lower().startswith(f"{name}:") for name, one in EXPERIMENTS.items())


def test_figure_13_has_curves_changes_and_an_outside_row(found: Found) -> None:
    """A run without a change, one by each scheduler, and Structured Streaming."""
    result = found["figure13"]
    rows = by(result, "scheduler")
    assert list(rows) == ["none", "epoch", "fries", "streaming, restarted", "streaming, re-reading"]
    assert {point["scheduler"] for point in result["curves"]} == {"none", "epoch", "fries"}
    assert [mark["kind"] for mark in result["marks"]] == ["request", "done"] * 4
    assert rows["none"]["first delay ms"] is None
    assert all(row["first delay ms"] > 0 for name, row in rows.items() if name != "none")


def test_figure_14_counts_what_was_processed_in_vain(found: Found) -> None:
    """Without a change all that was due after the first rise is invalid; with either scheduler some of it is valid.

    Numbers of invalid payments are not compared: a busy machine processes fewer in one run than in another, and later.
    On a very busy one most changes end after their period, or payments wait until the change after theirs, and all are
    in vain. A payment that is due behind its change, and waits for less than lies between its period and the next
    change, is valid.
    """
    result = found["figure14"]
    rows = by(result, "scheduler")
    assert all(row["invalid"] > 0 for row in rows.values())
    assert (rows["none"]["valid"], rows["none"]["delay ms"]) == (0, None)
    period_ms = result["parameters"]["period s"] * 1000
    for scheduler in ("epoch", "fries"):
        in_effect_ms, longest_ms = rows[scheduler]["in effect ms"], rows[scheduler]["longest wait ms"]
        is_in_vain = in_effect_ms > 0.9 * period_ms or longest_ms > period_ms * LATE_S / PERIOD_S
        assert rows[scheduler]["valid"] > 0 or is_in_vain, rows[scheduler]
    assert len(result["curves"]) == sum(row["invalid"] for row in rows.values())


@pytest.mark.parametrize(
    ("name", "column", "lines"),
    [("figure15", "paper's rate", 2), ("figure16", "amounts", 2), ("figure17", "workers", 2)],
)
def test_figures_of_delays_have_both_schedulers(found: Found, name: str, column: str, lines: int) -> None:
    """A line for each rate, cost or number of workers, with intervals."""
    rows = by(found[name], column)
    assert len(rows) == lines
    assert all(row["fries ms"] > 0 and row["epoch ms"] > 0 and row["fries +-"] >= 0 for row in rows.values())


def test_table_4_goes_past_what_waits(found: Found) -> None:
    """In both flows, with one component and with two; Fries lets fewer old tuples pass."""
    result = found["table4"]
    assert [row["flow"] for row in result["rows"]] == ["W2", "W2", "W3", "W3"]
    assert by(result, "change")["J5, J6"]["components"] == "{J5} {J6}"
    assert fewer_old(result["rows"])


def test_table_4_has_the_papers_changes() -> None:
    """All of them can be planned: the targets are in their components, and the longest path grows with these."""
    tables = Tables(Path())
    for (name, change), (fries_ms, epoch_ms) in TABLE4_MS.items():
        targets = set(change.split(", "))
        covering = cover((w2_flow if name == "W2" else w3_flow)(tables, fn.memory(), 2).graph(2), targets)
        assert targets <= {one for part in covering.components for one in part.operators}
        assert (covering.longest_path == 0) is (len(targets) == len(covering.components))
        assert fries_ms < epoch_ms
    assert len(TABLE4_MS) == 10


def test_table_5_goes_past_what_waits(found: Found) -> None:
    """Fries passes what waits in front of F1; behind U2 what waits in front of FD1 and FD2 goes ahead of it."""
    rows = by(found["table5"], "change")
    assert list(rows) == ["F1, U2", "FD1", "F2"]
    past, behind = rows["F1, U2"], rows["FD1"]
    assert past["old tuples fries"] < min(past["old tuples epoch"], behind["old tuples fries"])
    assert all(row[f"first new {name} ms"] > 0 for row in rows.values() for name in ("fries", "epoch", "cut"))


def test_table_6_shows_what_pruning_saves(found: Found) -> None:
    """A second's work waits in front of FD3 and FD4, and what is pruned goes past it."""
    rows = by(found["table6"], "change")
    assert list(rows) == ["FD4", "F3", "F4", "FD3, FD4", "E1"]
    assert all(rows[name]["pruned ms"] < rows[name]["unpruned ms"] for name in ("FD4", "F3", "E1"))


def test_table_7_is_the_papers():
    """Every number of it."""
    for row in experiment("table7").rows:
        assert (row["all"], row["component"]) == (row["paper all"], row["paper component"])


def test_the_command_prints_and_writes(capsys, tmp_path):
    """A table for readers; JSON to a file."""
    path = tmp_path / "table7.json"
    assert main(["experiment", "table7", "--output", str(path)]) == 0
    assert "6,440" in capsys.readouterr().out
    assert json.loads(path.read_text())["rows"][-1]["component"] == 4_800
    assert main(["experiment", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in [*NAMES, *OTHERS])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tabel7"], "no experiment 'tabel7'; expected one of figure13"),
        (["table7", "--scale", "2"], "scale '2'; expected test, minute, paper"),
        (["table7", "--scale", "small"], "scale 'small'; expected test"),
        (["table7", "--output", "/nowhere/x.json"], "cannot write '/nowhere/x.json'"),
    ],
)
def test_bad_input_is_answered_in_one_line(capsys, arguments, said):
    """Unknown names, scales that are none, files that cannot be written."""
    assert main(["experiment", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_scale_keeps_the_load_of_each_worker():
    """Workers and times shrink, never below the least."""
    assert (ExperimentScale(0.5).workers(), ExperimentScale(0.01).workers()) == (20, 2)
    assert ExperimentScale(0.01).workers(least=4) == 4
    assert (ExperimentScale(0.1).seconds(300), ExperimentScale(0.001).seconds(300, 1.0)) == (30.0, 1.0)
    with pytest.raises(FriesError, match="scale '0'"):
        scale_of("0", {})
