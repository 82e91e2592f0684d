"""What a cell says of a plan that was made for a run: how long the change would take, and who is told."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, told

import fries_nb as fn
from fries_nb.dataflow.regions import regions
from fries_nb.notebook import summaries
from fries_nb.planning import CriticalPath, Prediction
from fries_nb.planning.schedulers import schedule

pytestmark = pytest.mark.usefixtures("with_fraud")


def test_the_plan_of_a_run_says_how_long_it_would_take(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """By the scheduler that was asked for, and by epoch; before anything runs there is no such line."""
    assert "predicted" not in told(shell, "%fries_plan FM MC")
    told(shell, "%fries_run")
    for prediction, line, said in (
        (
            Prediction((CriticalPath(("FM", "MC"), 12.4),), 8_400.0),
            "",
            "predicted delay: time to prepare (not measured yet), then commit 12.4 ms along FM → MC (epoch: 8.4 s)",
        ),
        (Prediction((CriticalPath(("FM",), 2.0),), None), "",
         "predicted delay: time to prepare (not measured yet), then commit 2 ms"),
        (Prediction((CriticalPath(("FM", "MC"), 8_400.0),), 8_400.0, 100.0), "--scheduler epoch",
         "predicted delay 8.5 s: prepare 100 ms, as in changes before, then commit 8.4 s along FM → MC"),
        (Prediction((CriticalPath((), None, ("MC",)),), None), "",
         "predicted delay unknown, since the pace of MC is not known yet"),
        (Prediction((), 1_250_000.0), "--scheduler restart",
         "predicted delay unknown, since a change by restart waits for more than markers (epoch: 20 min 50 s)"),
    ):  # fmt: skip
        stand_ins[0].prediction = prediction
        *_, last, _ = told(shell, f"%fries_plan FM MC {line}").splitlines()
        assert last == said


def test_examples_of_a_change_that_is_not_made(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """As they are asked for, of one or several operators; a notebook marks what differs."""
    told(shell, "%fries_run")
    shown = shell.run_cell("%fries_examples FM=dict MC=lambda row: row -n 20 --of fraud").result
    assert "<mark>0.25</mark>" in shown._repr_html_()
    assert told(shell, "%fries_examples FM=dict").endswith("FM: 1 row differs")
    assert [(sorted(functions), n) for functions, n in stand_ins[0].tried] == [(["FM", "MC"], 20), (["FM"], 10)]
    assert stand_ins[0].changes == ()


def test_a_plan_of_a_later_region_names_what_it_begins_with() -> None:
    """One worker replays what was computed in between, or what an edge has kept."""
    flow = fn.Dataflow("spending")
    payments = flow.source("payments", fn.rate(10))
    total = payments.aggregate("Sum", None, {"total": "sum(value)"})
    total.union("Both", payments).map("FM", dict).sink("out", fn.memory())
    graph = flow.graph(2)
    plan = schedule("epoch", regions(graph)[-1].graph, ["FM"])
    assert summaries.messages(graph, plan) == (
        "epoch sends (to so many workers): FCM to Sum (1); FCM to Replicate(payments) -> Both (1)"
    )
