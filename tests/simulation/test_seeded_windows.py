"""Sessions, shifted windows, windows by count and best rows, on hosts that come, go and die, with changes."""

from __future__ import annotations

import pytest
from interleaving_checks import lacking
from soak import caught, first_tried
from window_draws import Extents, play_windows

from fries_nb.dataflow import top_rows
from fries_nb.dataflow.top_rows import TopRows
from fries_nb.dataflow.windowing import ShiftedWindowing
from fries_nb.operators import count_steps, window_steps


def test_windows_have_their_rows_whatever_happens():
    """With rows out of order, kills, checkpoints, rescales and changes: as plain Python makes them of the rows."""
    wanted = ["changes", "restarts", "rescales", "moved bins", "sessions of several rows", "windows by count"]
    assert lacking(8, wanted, play_windows, most=30) == {}


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


def _of_new_number(function, row, state, process=TopRows.process):
    state["n"] = function.n
    process(function, row, state)


BROKEN = {
    "an extended session has no new entry": (window_steps, "_start_of", lambda span: span[0]),
    "sessions that a row joins lose rows": (window_steps, "_merger", _last_only),
    "states are not merged": (Extents, "merge", lambda function, state, other: None),
    "a row at exactly a gap is out": (window_steps._SessionBounds, "session", lambda bounds, t, rounds: (
        bounds._windowing.extent(t, bounds._gap, bounds._longest)[1] - 1, bounds._gap, 0, *rounds)),
    "a window that is full stays": (count_steps, "_counted", _counted_twice),
    "open windows take the number of the last function": (TopRows, "process", _of_new_number),
    "ties fall to the row that came first": (top_rows, "_text", lambda row, name: (False, "", 0)),
    "an offset is forgotten": (ShiftedWindowing, "shift", lambda windowing, is_timestamp: 0),
}  # fmt: skip
SHOWN = {"open windows take the number of the last function": 36, "ties fall to the row that came first": 8}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch, name):
    """Without it some run has other rows."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(first_tried(SHOWN.get(name, 0), 60), play_windows, by=Exception) is not None
