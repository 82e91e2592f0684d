"""Sessions, shifted windows, windows by count and best rows, on hosts that come, go and die, with changes."""

from __future__ import annotations

import pytest
from interleaving_checks import lacking
from soak import caught
from window_draws import Extents, play_windows

import fries_nb as fn
from fries_nb.dataflow import top_rows
from fries_nb.dataflow.windowing import ShiftedWindowing
from fries_nb.operators import count_steps, window_steps
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.cluster import Cluster


def test_windows_have_their_rows_whatever_happens():
    """With rows out of order, kills, checkpoints, rescales and changes: as plain Python makes them of the rows."""
    wanted = ["changes", "restarts", "rescales", "moved bins", "sessions of several rows", "windows by count",
              "changes by row"]  # fmt: skip
    assert lacking(8, wanted, play_windows, most=30) == {}


class Deaf:
    """Has no ``merge``."""

    def process(self, row, state):
        """Nothing."""

    def close(self, key, time, state):
        """Nothing."""


def test_a_function_that_cannot_merge_is_refused_where_sessions_run():
    """Whatever the windows were declared as: the change is aborted, and the old function goes on."""
    flow = fn.Dataflow("sessions")
    rows = flow.source("S", fn.rate(None), time="at")
    rows.window("W", Extents(), fn.tumbling(5), key="k").sink("out", fn.memory())
    given = [{"k": 1, "v": number, "at": number} for number in range(100)]
    cluster = Cluster(flow.graph(2), {"S": given}, seed=1)
    cluster.hold([WorkerId("S", 0)])
    windows = fn.session(3)
    for update, outcome in (
        (fn.Update(Extents(windows), windows=windows), "done"), (fn.Update(Deaf()), "aborted"),
        (fn.Update(Deaf(), windows=fn.tumbling(9)), "done"),
    ):  # fmt: skip
        change = cluster.request({"W": update})
        cluster.until(lambda change=change: change in cluster.outcomes)
        assert cluster.outcomes[change].outcome == outcome
        assert outcome == "done" or "has no merge()" in cluster.outcomes[change].error


def _counted_twice(windows, counted=count_steps._counted):
    full = counted(windows)
    windows.update({(1, *span[1:]): window for span, window in full})
    return full


def _last_only(instance, merger=window_steps._merger):
    merged = merger(instance)

    def last(key, windows, met, alone, lateness):
        for span in sorted(met, key=window_steps._start_of)[:-1]:
            windows.pop(span)
        return merged(key, windows, [span for span in met if span in windows], alone, lateness)

    return last


BROKEN = {
    "an extended session has no new entry": (window_steps, "_start_of", lambda span: span[0]),
    "sessions that a row joins lose rows": (window_steps, "_merger", _last_only),
    "states are not merged": (Extents, "merge", lambda function, state, other: None),
    "a row at exactly a gap is out": (window_steps._SessionBounds, "session", lambda bounds, t, rounds: (
        bounds._windowing.extent(t, bounds._gap, bounds._longest)[1] - 1, bounds._gap, 0, *rounds)),
    "a window that is full stays": (count_steps, "_counted", _counted_twice),
    "ties fall to the row that came first": (top_rows, "_text", lambda row, name: (False, "", 0)),
    "an offset is forgotten": (ShiftedWindowing, "shift", lambda windowing, is_timestamp: 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch, name):
    """Without it some run has other rows."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(range(60), play_windows, by=Exception) is not None
