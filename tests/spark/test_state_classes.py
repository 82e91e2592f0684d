"""A run that is resumed in a new process finds the classes of its state again, by module and qualified name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

BESIDE = """
import enum

class Mode(enum.Enum):
    SLOW = 1
    CALM = 1
"""
SCRIPT = """
import os, sys, time
import fries_nb as fn
from beside import Mode

STEP = int(sys.argv[2])

class Unseen:  # no function refers to it: the state's own method does, once
    n = STEP

class Total:
    def __init__(self):
        self.total, self.mode, self.held = 0, Mode.CALM, [globals()["Unseen"]()] if "Unseen" in globals() else []
    def add(self):
        self.total += STEP

class Summed:
    def initial_state(self):
        return Total()
    def process(self, row, state):
        before = state.total
        state.add()
        same = isinstance(state, Total) and state.mode is Mode.SLOW
        return row | {"added": state.total - before, "same": same}

flow = fn.Dataflow("totals")
rows = flow.source("rows", fn.rate(200, count=400, row=lambda n: {"n": n, "k": n % 3}))
rows.map("sum", Summed(), key="k").sink("out", fn.memory())
if sys.argv[1] == "begin":
    run = flow.run(hosts=2, workers=2, checkpoint=sys.argv[3])
    run.wait_flowing(60)
    while run.metrics().operators["out"].processed < 20:
        time.sleep(0.02)
    run.suspend()
else:
    run = flow.resume(sys.argv[3], hosts=1, workers=1)
    run.wait(120)
    rows = run.output().collect()
    print(run.state, len(rows), max((row["n"], row["added"]) for row in rows)[1], all(row["same"] for row in rows))
    del Total
    try:
        flow.resume(sys.argv[4], hosts=1, workers=1)
    except fn.FriesError as refused:
        print(refused)
sys.stdout.flush()
os._exit(0)
"""


def told(folder: Path, *arguments: str) -> list[str]:
    """The last two lines that the script prints in a process of its own."""
    ran = subprocess.run(
        [sys.executable, str(folder / "flow.py"), *arguments],
        cwd=folder.parent, env=os.environ | {"FRIES_PROGRESS": "0"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip().splitlines()[-2:]


def test_a_resumed_run_uses_the_classes_of_the_restarted_program(tmp_path: Path) -> None:
    """An Enum of a module beside the script is the same, a corrected method works, a class that went is named."""
    folder, place = tmp_path / "scripts", tmp_path / "place"
    folder.mkdir()
    (folder / "beside.py").write_text(BESIDE)
    (folder / "flow.py").write_text(SCRIPT)
    told(folder, "begin", "1", str(place))
    shutil.copytree(place, tmp_path / "copy")
    resumed, refused = told(folder, "resume", "100", str(place), str(tmp_path / "copy"))
    assert resumed == "finished 400 100 True"
    assert refused.startswith("the state of sum in the checkpoint at ")
    assert "holds Total of __main__, which is not defined there any more" in refused
