"""Joins of two streams in seeded runs: out-of-order rows, changes of functions and bounds, kills, moves of bins."""

from __future__ import annotations

from random import Random

import pytest
from interleaving_checks import lacking
from soak import caught, first_tried
from timed_joins import draw_join, joined, play_cut, play_join, play_rescaled_join, play_rolled_back
from timed_rescales import TimedThreads, WatchedHosts

import fries_nb as fn
from fries_nb.dataflow.join_bounds import Latest, StreamJoin, Within
from fries_nb.operators.instance import Instance
from fries_nb.operators.timed_joins import OpenSide, PairedColumns
from fries_nb.planning.schedulers import refused_by_row, schedule
from fries_nb.progress.agenda import Agenda
from fries_nb.simulation.cluster import Cluster
from fries_nb.worker.bin_transfer import TimesTransfer
from fries_nb.worker.outbox import OutChannel


def test_joins_find_what_is_defined() -> None:
    """In all orders of events; between two bounds, what both say is so."""
    wanted = ["done", "mixed", "Within", "Latest", "Windowing", "inner", "left", "right", "full"]
    assert lacking(30, wanted, play_join, most=60) == {}


def try_rescaled(seed: int):
    """What a seed has met."""
    WatchedHosts.met.clear()
    return play_rescaled_join(seed)


def test_open_rows_move_with_their_bins() -> None:
    """With their entries, and with checkpoints, kills and changes."""
    assert lacking(6, ["entries", "views", "last frames", "done"], try_rescaled, most=30) == {}


def test_open_rows_move_with_their_bins_between_hosts_with_threads() -> None:
    """All of a host of Spark, but for its sockets, has what the definition says."""
    wanted = ["done", "Within", "Latest", "Windowing"]
    assert lacking(6, wanted, lambda seed: play_rescaled_join(seed, TimedThreads), most=40) == {}


def test_functions_and_bounds_are_rolled_back() -> None:
    """One after the other, each by itself where it was changed by itself, with kills; the join has what it had."""
    assert lacking(15, ["rolled back", "both at once", "Within", "Latest"], play_rolled_back, most=60) == {}


def test_rows_behind_a_join_follow_cuts() -> None:
    """Pairs by the identity of their second row, rows alone by their own; the join itself is refused."""
    assert lacking(10, ["done", "both", "left", "Within"], play_cut, most=60) == {}
    graph = draw_join(Random(0)).graph
    assert refused_by_row(graph, schedule("cut", graph, ["M"]).covering) == ""
    refused = refused_by_row(graph, schedule("cut", graph, ["J", "M"]).covering)
    assert refused == "what time brings out at J comes of many rows, of old and of new ones"


def test_the_reference_is_what_pandas_finds() -> None:
    """A merge on the key and the bounds, and ``merge_asof``, of the same rows."""
    import pandas as pd

    for seed in range(40):
        drawn = draw_join(Random(seed))
        left, right = (pd.DataFrame(drawn.rows[side], columns=names, dtype="Int64").dropna()
                       for side, names in (("L", ["k", "v", "lat"]), ("R", ["k", "w", "rat"])))  # fmt: skip
        bounds = drawn.bounds[0]
        found = sorted(what for what, _ in joined(bounds, "inner", drawn.rows["L"], drawn.rows["R"]))
        if isinstance(bounds, Latest):
            both = pd.merge_asof(
                left.astype("int64").sort_values("lat"), right.astype("int64").sort_values(["rat", "w"]),
                left_on="lat", right_on="rat", by="k", tolerance=bounds.tolerance,
            ).dropna()  # fmt: skip
        else:
            both = left.merge(right, on="k")
            if isinstance(bounds, Within):
                both = both[(both.rat >= both.lat - bounds.before) & (both.rat <= both.lat + bounds.after)]
            elif bounds.size == bounds.every:
                both = both[both.rat // bounds.size == both.lat // bounds.size]
            else:
                continue
        assert found == sorted(map(tuple, both[["k", "v", "w"]].astype(int).itertuples(index=False)))


def play_few(seed: int, right: str = "w") -> Cluster:
    """A left join by three workers, to one of which all rows of the right side go, the first of all."""
    flow = fn.Dataflow("few")
    left = flow.source("L", fn.rate(None), time="lat", workers=2).map("A", dict)
    few = flow.source("R", fn.rate(None), time="rat").map("B", dict)
    both = left.join_within("J", few, on="k", before=3, how="left", workers=3)
    both.map("M", lambda row: row | {right: row[right]}, workers=2).sink("out", fn.memory())
    rows = {"L": [{"k": n % 20, "v": n, "lat": 50 + n} for n in range(40)], "R": [{"k": 0, right: 1, "rat": 0}]}
    cluster = Cluster(flow.graph(2), rows, seed=seed, hosts=2)
    cluster.run()
    return cluster


@pytest.mark.parametrize("seed", range(5))
def test_all_workers_know_the_columns_of_both_sides(seed: int) -> None:
    """Also those to which no row of one side comes: what leaves alone has its columns, and one of both is refused."""
    cluster = play_few(seed)
    assert (cluster.state, cluster.error) == ("finished", "")
    assert sorted((row["v"], row["w"]) for row in cluster.rows("out")) == [(n, None) for n in range(40)]
    assert "join 'J' with how='left' has the column 'v' on both sides, and a row" in play_few(seed, right="v").error


def test_a_worker_that_is_not_told_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a map that reads such a column."""
    monkeypatch.setattr(OutChannel, "tell", lambda *of: None)
    assert "KeyError" in play_few(0).error


def _forgotten(transfer: TimesTransfer) -> None:
    transfer._waiting.clear()


def _held_back(agenda: Agenda, t: int, key: object, call=Agenda.call) -> None:
    """Rows are opened with no entry, if others of the key are."""
    if not any(key in keys for keys in agenda._entries.values()):
        call(agenda, t, key)


def _own_time(columns: PairedColumns, index: int, t: int, add=PairedColumns.add) -> int:
    return add(columns, index, columns._origin.times()[index])


def _unsorted(side: OpenSide, row, add=OpenSide.add) -> None:
    add(side, row)
    side.rows.remove(row)
    side.rows.append(row)


BROKEN = {
    "entries stay behind": (TimesTransfer, "take_over", _forgotten, try_rescaled),
    "some rows have no entry": (Agenda, "call", _held_back, play_join),
    "pairs have the time of the second row": (PairedColumns, "add", _own_time, play_join),
    "rows are in order of arrival": (OpenSide, "add", _unsorted, play_join),
    "rows stay open": (OpenSide, "drop", lambda *of: None, play_join),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without it some run finds something else, or comes to no end."""
    *rule, play = BROKEN[name]
    monkeypatch.setattr(*rule)
    assert caught(range(60), play, by=Exception) is not None


def test_bounds_of_a_change_are_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose functions change and whose bounds do not is seen."""
    run_function = Instance.run_function

    def kept(instance: Instance, function: object, change: str) -> None:
        if isinstance(function, StreamJoin):
            function = StreamJoin(**{**vars(function), "windowing": Within(10**6, 10**6)})
        run_function(instance, function, change)

    monkeypatch.setattr(Instance, "run_function", kept)
    assert caught(first_tried(0, 60), play_join, by=Exception) is not None
