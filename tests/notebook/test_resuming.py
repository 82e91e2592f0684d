"""Checkpoints, resuming and merging by magic, in IPython shells on real Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import ipython, refused, told
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

from fries_nb.errors import CheckpointError
from fries_nb.run import Run

COUNT = 20_000
NUMBERS = f"""%%fries_dataflow numbers
passed = flow.source("S", fn.rate(300, count={COUNT})).map("A", lambda row: row | {{"a": 1}})
passed.map("B", lambda row: row | {{"b": 1}}).map("C", lambda row: row | {{"c": 1}}).sink("out", fn.memory())
"""
# Its workers prepare until there is a file, and what is asked for meanwhile waits.
GATED = """from pathlib import Path
from threading import Event
class Gated:
    def __init__(self, gate): self.gate = Path(gate)
    def open(self):
        while not self.gate.exists(): Event().wait(0.01)
    def process(self, row): return row | {"a": 2}
"""


def run_in(shell: InteractiveShell) -> Run:
    """What the variable ``run`` holds."""
    run = shell.user_ns["run"]
    assert isinstance(run, Run)
    return run


def until_more_comes_out(run: Run) -> None:
    """Wait until tuples that are read later than now have reached the sink."""
    seen = run.metrics().operators["S"].processed
    until(lambda: run.metrics().operators["out"].processed > seen, run)


def test_a_run_goes_on_by_magic_in_a_new_shell(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change of the first shell is in effect in the second, and no row is missing or there twice."""
    place = tmp_path / "my place"
    begin = f'%fries_run --hosts 1 --workers 1 --commit-interval 0.3 --checkpoint "{place}" --signing-key phrase'
    with ipython(tmp_path / "first") as shell:
        told(shell, NUMBERS)
        shell.user_ns["phrase"] = "known to nobody else"
        told(shell, begin)
        run = run_in(shell)
        try:
            until_more_comes_out(run)
            told(shell, f"%fries_reconfigure A=lambda row: row | {{'a': 2}} --wait {PATIENCE_S}")
            until_more_comes_out(run)
            known = len(run.checkpoints)
            until(lambda: len(run.checkpoints) > known, run)
            assert told(shell, "%fries_stop --now").startswith("'numbers' has stopped")
        finally:
            run.cancel()
        assert type(refused(shell, begin, capsys)) is CheckpointError
    with ipython(tmp_path / "second") as shell:
        told(shell, NUMBERS)
        resume = f'%fries_run --hosts 1 --checkpoint "{place}" --resume'
        assert "it is signed; give the signing_key=" in str(refused(shell, resume, capsys))
        shell.user_ns["phrase"] = b"known to nobody else"
        told(shell, f"{resume} --signing-key phrase")
        again = run_in(shell)
        try:
            again.set_rate("S", 100_000)
            assert again.wait(PATIENCE_S) == "finished", again.error
        finally:
            again.cancel()
    rows = sorted((row["value"], row["a"]) for row in again.output().collect())
    assert [value for value, _ in rows] == list(range(COUNT))
    versions = [version for _, version in rows]
    assert versions == sorted(versions)
    assert set(versions) == {1, 2}
    assert run.metrics().operators["S"].processed < COUNT


def test_changes_that_wait_are_merged_by_magic(spark: SparkSession, tmp_path: Path) -> None:
    """Two that wait behind a third come as one: the later function of an operator counts, no row is in between."""
    gate = tmp_path / "gate"
    with ipython(tmp_path / "ipython") as shell:
        told(shell, NUMBERS)
        told(shell, GATED)
        told(shell, "%fries_run --hosts 1 --workers 1 --audit")
        run = run_in(shell)
        try:
            until_more_comes_out(run)
            told(shell, f"%fries_reconfigure A=Gated({str(gate)!r}) --wait 0 -o first")
            told(shell, "%fries_reconfigure B=lambda row: row | {'b': 2} --wait 0 -o second")
            told(shell, "%fries_reconfigure B=lambda row: row | {'b': 3} C=lambda row: row | {'c': 3} --wait 0 --merge")
            gate.touch()
            names = shell.user_ns
            ends = [names[name].result(PATIENCE_S) for name in ("first", "second", "change")]
            assert [end.outcome for end in ends] == ["done"] * 3
            assert ends[1].components == ends[2].components == (("B", "C"),)
            until_more_comes_out(run)
            told(shell, f"%fries_stop --wait {PATIENCE_S}")
        finally:
            gate.touch()
            run.cancel()
    seen = Counter((row["a"], row["b"], row["c"]) for row in run.output().collect())
    assert {(b, c) for _, b, c in seen} == {(1, 1), (3, 3)}
    assert {a for a, _, _ in seen} == {1, 2}
    assert run.audit().serializable
