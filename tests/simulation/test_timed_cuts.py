"""Changes decided row by row below windows: each row that time brings out follows the cuts, by its own identity."""

from __future__ import annotations

from collections import Counter

import pytest
from interleaving_checks import lacking
from msgspec.structs import replace
from soak import SHOWN_BY, caught, first_tried
from timed_cuts import play_timed_cuts

import fries_nb as fn
from fries_nb.controller.change_steps import Changes
from fries_nb.controller.commits import Recovery
from fries_nb.controller.cuts import Cuts
from fries_nb.errors import DataflowError
from fries_nb.planning.schedulers import refused_by_row, schedule
from fries_nb.protocol import rollout
from fries_nb.protocol.rollout import BroughtOut, Reach, is_brought_out
from fries_nb.worker.freezing import Freezing
from fries_nb.worker.saving import OperatorSaving


def _met(seed):
    play = play_timed_cuts(seed)
    cluster, outcomes = play.cluster, play.cluster.outcomes
    done = [name for name in play.versions if name in outcomes and outcomes[name].outcome == "done"]
    steps = [step for one in cluster.journal for step in one.steps]
    met = Counter({"several changes": len(done) > 1, "restarts": bool(cluster.recoveries)})
    met["rescales between them"] += bool(cluster.adopted) and len(done) > 1
    met["cuts of what time brings out"] += sum(any(map(is_brought_out, step.cut)) for step in steps)
    met["canaries"] += any(0 < step.share < 1 for step in steps)
    met["both versions below windows"] += len({row["M"] for row in cluster.rows("out")}) > 1
    return met


def test_what_time_brings_out_follows_the_cuts():
    """With restarts, rescales and canaries; windows have the results of a run without changes."""
    wanted = ("several changes", "restarts", "rescales between them", "cuts of what time brings out", "canaries",
              "both versions below windows")  # fmt: skip
    assert lacking(10, wanted, _met, most=60) == {}


def _unsaved(saving, number, end=OperatorSaving.end):
    return replace(end(saving, number), brought_out={})


def _of_sources_only(cuts, action, worker, done, passed=Cuts.passed):
    is_source = cuts._workers.graph.operator(worker.operator).traits.is_source
    return passed(cuts, action, worker, done if done is None or is_source else replace(done, begun={}))


BROKEN = {
    "counters are not in snapshots": (OperatorSaving, "end", _unsaved),
    "counters do not move with bins": (BroughtOut, "receive", lambda counters, last: None),
    "no jump at a marker": (BroughtOut, "jump", lambda counters, position: None),
    "a marker says no position": (Recovery, "beyond", property(lambda recovery: -1)),
    "two operators have the same origins": (rollout, "timed_number", lambda operator: 7),
    "only sources say how far they are": (Cuts, "passed", _of_sources_only),
    "what fires is not begun": (Freezing, "brought_out", property(lambda freezing: None, lambda freezing, to: None)),
    "what time brings out is always over": (Reach, "has_passed", lambda reach, origin, position: (
        origin < 0 or position <= reach.read.get(origin, -1))),
}  # fmt: skip
SHOWN = {"a marker says no position": 3, "only sources say how far they are": 8,
         "what time brings out is always over": 7}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch, rule):
    """Without it some seed shows a row by another version than the cuts say, or an identity twice, or has no end."""
    monkeypatch.setattr(*BROKEN[rule])
    assert caught(first_tried(SHOWN.get(rule, 2), 100), play_timed_cuts, by=SHOWN_BY) is not None


def test_a_rescale_that_does_not_wait_for_a_cut_is_caught(monkeypatch):
    """Two conditions keep it back, each of which suffices: nothing is queued or open, and nothing is unsettled."""
    for name in ("quiet", "is_settled"):
        kept = getattr(Changes, name).fget

        def without_cuts(changes, kept=kept):
            with monkeypatch.context() as patch:
                patch.setattr(Cuts, "open", ())
                return kept(changes)

        monkeypatch.setattr(Changes, name, property(without_cuts))
    assert caught(first_tried(16, 100), play_timed_cuts, by=SHOWN_BY) is not None


def windowed(first: str = "W", second: str = "V"):
    """Two windows, and a map below each."""
    flow = fn.Dataflow("windows")
    rows = flow.source("S", fn.rate(None), time="at")
    for name in (first, second):
        function = type("Count", (), {"initial_state": dict, "process": lambda self, row, state: None,
                                      "close": lambda self, key, time, state: {"k": key}})()  # fmt: skip
        rows.window(name, function, fn.tumbling(5), key="k").map(f"{name}-map", dict).sink(f"{name}-out", fn.memory())
    return flow.graph()


def test_a_window_itself_is_not_changed_by_the_cut():
    """Its result is made of old and of new rows; what is below it can be changed."""
    graph = windowed()
    assert refused_by_row(graph, schedule("cut", graph, ["W-map", "V-map"]).covering) == ""
    refused = refused_by_row(graph, schedule("cut", graph, ["W", "W-map"]).covering)
    assert refused == "what time brings out at W comes of many rows, of old and of new ones"


def test_operators_whose_names_have_one_number_are_refused():
    """Their rows would have the same identities."""
    with pytest.raises(DataflowError, match=r"W46 and W81 have one number, by their names, .*; expected another name"):
        windowed("W46", "W81")
