"""``%%fries_compare``: the same load and change under several schedulers, from a cell."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import refused, told

DECLARED = """%%fries_dataflow slow
class Slow:
    def __init__(self, version, cost_ms): self.version, self.cost_ms = version, cost_ms
    def process(self, row):
        if self.cost_ms: import time; time.sleep(self.cost_ms / 1_000)
        return row | {"version": self.version}
class Pair:
    def __init__(self, version): self.version = version
    def process(self, row): return row | {"pair": self.version}
rows = flow.source("rows", fn.rate(100))
rows.map("A", Slow(1, 4)).map("B", Pair(1)).sink("out", fn.memory())
"""
CHANGED = """%%fries_compare slow --surge rows=1000 --after rows=10 --before 0.7 --calm 0.2 --workers 1 --hosts 1
A = Slow(2, 0)
B = Pair(2)
"""


@pytest.mark.usefixtures("spark")
def test_the_same_change_by_each_scheduler(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure and a table in the cell; consistent but for naive; Epoch takes the time of the queue."""
    told(shell, DECLARED)
    shown = told(shell, CHANGED)
    found = shell.user_ns["comparison"]
    frame = found.to_pandas().set_index("scheduler")
    assert [*frame.index] == ["fries", "epoch", "naive"]
    assert set(frame["outcome"]) == {"done"}
    assert frame["serializable"]["fries"]
    assert frame["serializable"]["epoch"]
    assert frame["waiting"].min() > 0
    assert frame["old_tuples"]["fries"] < frame["old_tuples"]["epoch"]
    assert shown.startswith("scheduler ")
    html = found._repr_mimebundle_()["text/html"]
    assert html.count("<polyline") == 3
    assert "[epoch] done after" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused_before_anything_runs(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence, with what was expected."""
    told(shell, DECLARED)
    for line, said in (
        ("", "without a surge no queue builds up; expected --surge SOURCE=RATE"),
        ("--surge rows", "rows: expected SOURCE=RATE, rows a second above 0, as in payments=400"),
        ("--surge rows=0", "rows=0: expected SOURCE=RATE, rows a second above 0, as in payments=400"),
        ("--surge row=9", "no source 'row'; expected one of rows; did you mean 'rows'?"),
        ("--surge rows=9 --schedulers fires", "no scheduler 'fires'"),
        ("--surge rows=9 --schedulers fries,fries", "schedulers ['fries', 'fries']; expected one or more names"),
    ):
        error = refused(shell, f"%%fries_compare slow {line}\nB = Pair(2)", capsys)
        assert str(error).startswith(said), error
