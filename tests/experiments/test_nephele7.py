"""Figures 7 to 9 of the Nephele paper: the constraint of the paper, what is told of each element, and a short run."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from fries_nb.constraints.judgements import ConstraintState
from fries_nb.constraints.reactions import ConstraintStatus, ElementLatency
from fries_nb.experiments import experiment
from fries_nb.experiments.nephele import LIMIT_MS, OUTSIDE, VIDEO_MODES, Measured, constrained_flow, rows_of


def test_the_constraint_is_the_papers() -> None:
    """Five channels and four tasks (equation 4), behind the source and the Partitioner, which are one in the paper."""
    [constraint] = constrained_flow(15.0).constraints()
    assert constraint.latency_ms == LIMIT_MS
    assert constraint.tasks == ("Partitioner", "Decoder", "Merger", "Overlay", "Encoder")
    assert [str(one) for one in constraint.edges][:: len(constraint.edges) - 1] == [
        "Src -> Partitioner",
        "Encoder -> Server",
    ]


def test_a_channels_latency_is_split_into_buffer_and_transport() -> None:
    """A task has neither."""
    [constraint] = constrained_flow(15.0).constraints()
    elements = (ElementLatency("Encoder -> Server", 10.0, 12.0, 7.0), ElementLatency("Encoder", 3.0, 4.0))
    state = ConstraintState(constraint, ConstraintStatus.MET, "", 13.0, 16.0, (), elements)
    channel, task, sequence = rows_of("none", Measured(state, 13.5, 15.5, 4.0, 40.0))
    assert (channel["buffer ms"], channel["transport ms"], channel["task ms"]) == (7.0, 3.0, None)
    assert (task["buffer ms"], task["transport ms"], task["task ms"]) == (None, None, 3.0)
    assert (sequence["mean ms"], sequence["worst ms"], sequence["met after s"]) == (13.5, 15.5, 4.0)
    assert (sequence["paper mean ms"], sequence["paper worst ms"]) == (4_500.0, 5_500.0)


def test_each_mode_is_measured(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the run, and few the streams. Whether the constraint is met depends on what the machine does."""
    module = import_module("fries_nb.experiments.nephele")  # its function has the same name
    monkeypatch.setattr(module, "STREAMS", 8)
    monkeypatch.setattr(module, "WORKERS", 2)
    found = experiment("nephele7", "test")
    sequences = {row["mode"]: row for row in found.rows if row["element"] == "sequence"}
    assert list(sequences) == [*VIDEO_MODES, OUTSIDE]
    assert sequences["flush"]["mean ms"] > 0
    assert sequences[OUTSIDE]["mean ms"] > 0
    assert sequences[OUTSIDE]["frames/s"] > 0
    assert {row["element"] for row in found.rows if row["mode"] == "flush"} >= {"Decoder", "Encoder -> Server"}
