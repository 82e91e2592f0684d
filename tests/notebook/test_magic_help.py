"""The help of each magic has examples, and each example runs as it is printed: none can grow stale."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, told

from fries_nb.notebook import questions
from fries_nb.run import Dataflow

BLOCK = re.compile(r"::\n\n((?: {4}.*\n|\n)+)")
"""A literal block of a docstring."""
DECLARED = """import fries_nb as fn
class MerchantModel:
    def __init__(self, window=5, cost_ms=0): self.window = window
    def process(self, row, state): return row
class Combine:
    def __init__(self, weights): self.weights = weights
    def process(self, row): return row
def pad_to_ten(state): return state
def better(row): return row | {"better": True}
class Count:
    def process(self, row, state): state["n"] = state.get("n", 0) + 1
    def close(self, key, time, state): return state
counts = {7: {"n": 1}}
better_models = {"FM": {"ten payments": MerchantModel(window=10)}}
new_model = MerchantModel(window=10)
small_models = fn.lighter({"FM": MerchantModel(window=1)})
flow = fn.Dataflow("fraud")
payments = flow.source("payments", fn.rate(10), time="timestamp")
models = payments.map("FC", better).map("FM", MerchantModel(), key="value")
models.map("my operator", better).map("MC", Combine([0.4, 0.6])).sink("scored", fn.memory())
payments.window("W", Count(), fn.tumbling(60), key="value").sink("firsts", fn.memory())
payments.window("my window", Count(), fn.tumbling(60), key="value").sink("others", fn.memory())
"""
"""What the examples take for granted: the quickstart's dataflow, with the other operators that they name."""
STARTS = ("%%fries_dataflow", "%fries_run", "%%fries_compare")
"""The magics whose examples are for a dataflow that does not run yet."""


def examples(shell: InteractiveShell, magic: str) -> Iterator[str]:
    """The cells in the help of a magic: each line of a block is one, or the whole block if it is a cell magic's."""
    magics = shell.magics_manager.magics
    described = (magics["line"].get(magic) or magics["cell"][magic]).parser.description
    first, _, others = described.partition("\n")
    for block in BLOCK.findall(f"{first}\n{textwrap.dedent(others)}\n"):
        text = textwrap.dedent(block).strip()
        yield from [text] if text.startswith("%%") else text.splitlines()


@pytest.fixture
def ready(
    shell: InteractiveShell, stand_ins: list[StandIn], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[StandIn]:
    """A directory with the files that examples name; runs and comparisons are stand-ins, and these are the runs."""

    def resume(flow: Dataflow, path: str, **options: Any) -> StandIn:
        stand_ins.append(StandIn(flow.graph(options["workers"] or 2), path=path, **options))
        return stand_ins[-1]

    def compare(flow: Dataflow, change: dict[str, Any], schedulers: list[str], **options: Any) -> list[str]:
        assert {*options["surge"], *options["after"]} <= {*flow.graph().sources}
        return [StandIn(flow.graph()).reconfigure(change, scheduler).plan.scheduler for scheduler in schedulers]

    monkeypatch.setattr(Dataflow, "resume", resume)
    monkeypatch.setattr(questions, "compare", compare)
    (tmp_path / "my reports").mkdir()
    (tmp_path / "payments.parquet").touch()
    monkeypatch.chdir(tmp_path)
    return stand_ins


def test_every_example_in_the_help_of_a_magic_runs(shell: InteractiveShell, ready: list[StandIn]) -> None:
    """As a cell of its own, each with a fresh run where one is needed; none raises, and each has a result."""
    magics = sorted({name for kind in shell.magics_manager.magics.values() for name in kind if name[:6] == "fries_"})
    found = {magic: list(examples(shell, magic)) for magic in magics}
    assert len(found) >= 14
    assert [magic for magic, cells in found.items() if not any(magic in cell for cell in cells)] == []
    for magic, cells in found.items():
        for cell in cells:
            assert re.match(rf"%%?{magic}\b", cell), f"{magic}: {cell}"
            shell.run_cell(DECLARED).raise_error()
            for run in ready:
                run.state = "stopped"
            if not cell.startswith(STARTS) or "--replace" in cell:
                told(shell, "%fries_run fraud --audit")
                told(shell, "%fries_reconfigure FM=better")  # that there is one to roll back
            if magic == "fries_canary":  # there is one to look at
                told(shell, "%fries_canary FM=better")
            if magic == "fries_shadow":
                told(shell, "%fries_shadow FM=better")
            if cell.startswith("%fries_apply"):  # there is a difference
                shell.run_cell(DECLARED.replace("[0.4, 0.6]", "[0.5, 0.5]")).raise_error()
            result = told(shell, cell)
            assert result not in ("", "None") or magic == "fries_dashboard", cell  # which publishes what it shows
    assert {"second", "small_models", "comparison"} <= shell.user_ns.keys()
    assert [run.options["path"] for run in ready if "path" in run.options] == ["fraud-checkpoint"] * 2


def test_the_help_of_a_magic_shows_its_options_and_examples(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """``%fries_run?``, as IPython prints it."""
    shell.run_cell("%fries_run?")
    shown = capsys.readouterr().out
    for text in ("--hosts HOSTS", "Spark tasks that share the workers (2)", "%fries_run fraud --replace -o second"):
        assert text in shown
