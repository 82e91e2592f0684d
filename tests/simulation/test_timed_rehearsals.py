"""Rehearsals let time pass: a function that fails only when a window is closed is refused before the switch."""

from __future__ import annotations

from typing import Any

import pytest
from kind_examples import ROWS, Counted

import fries_nb as fn
from fries_nb.changes.change_examples import told_examples
from fries_nb.dataflow import DataflowBuilder, Update, memory, rate
from fries_nb.protocol.messages import Compared
from fries_nb.simulation.cluster import Cluster
from fries_nb.worker import rehearsal
from fries_nb.worker.side_by_side import compared


class Failing(Counted):
    """Fails when it is closed."""

    def close(self, key: int, time: int, state: Any) -> Any:
        """Fail."""
        raise ValueError("cannot close")


class Renamed(Counted):
    """Does not emit what the operator below reads."""

    def close(self, key: int, time: int, state: Any) -> Any:
        """Another column."""
        return {"k": key, "m": 1}


class Joined(Counted):
    """Counts in sessions too."""

    def merge(self, state: Any, other: Any) -> None:
        """Both counts."""
        state["n"] += other["n"]


class Unjoined(Joined):
    """Fails when it is closed."""

    close = Failing.close


def changed(update: Any, windows: Any = None) -> Any:
    """The result of a change of a window while rows flow."""
    flow, windows = DataflowBuilder("rehearsed"), windows or fn.tumbling(20)
    pay = flow.source("S", rate(None, count=1), time="x").window("X", Joined(), windows, key="k")
    pay.map("D", lambda row: row | {"twice": row["n"] * 2}).sink("Z", memory())
    cluster = Cluster(flow.graph(2), {"S": ROWS * 10}, seed=1, hosts=2)
    cluster.until(lambda: any(instance.processed for instance in cluster.instances("X")))
    change = cluster.request({"X": update}, rehearse=True)
    cluster.run()
    assert cluster.state == "finished"
    return cluster.outcomes[change]


def test_a_close_that_fails_is_found_in_the_rehearsal() -> None:
    """And what it makes is tried downstream; the running dataflow is undisturbed."""
    assert "cannot close" in changed(Update(Failing())).error
    refused = changed(Update(Renamed()))
    assert "D" in refused.error
    assert "'n'" in refused.error
    assert changed(Update(Counted(), windows=fn.tumbling(10))).outcome == "done"


@pytest.mark.parametrize("windows", [fn.session(3), fn.session(30), fn.count(2), fn.tumbling(9, offset=4)])
def test_what_other_windows_make_is_found_in_the_rehearsal(windows: Any) -> None:
    """Sessions are closed as others are; a window by count if recent rows fill it."""
    assert "cannot close" in changed(Update(Unjoined()), windows).error
    assert "'n'" in changed(Update(type("Other", (Joined,), {"close": Renamed.close})()), windows).error
    assert changed(Update(Joined(), windows=windows), windows).outcome == "done"


def changed_join(update: Any, how: str = "full", at: str = "X", **more: Any) -> Any:
    """The result of a change of a join of two streams, or of what is in front of it, while rows flow."""
    flow = DataflowBuilder("rehearsed join")
    left = flow.source("S", rate(None, count=1), time="x").map("L", lambda row: {"k": row["k"], "x": row["x"]})
    right = flow.source("T", rate(None, count=1), time="x").map("R", lambda row: {"k": row["k"], "y": row["x"]})
    both = left.join_within("X", right, on="k", before=8, how=how, **{"function": joined, **more})
    both.map("D", lambda row: row | {"twice": row["x" if "x" in row else "n"] * 2}).sink("Z", memory())
    cluster = Cluster(flow.graph(2), {"S": ROWS * 10, "T": ROWS * 10}, seed=1, hosts=2)
    cluster.until(lambda: any(one.processed for one in cluster.instances("X")))
    cluster.until(lambda: at == "X" or all(one.names.is_plain for one in cluster.instances("X")))
    change = cluster.request({at: update}, rehearse=True)
    cluster.run()
    assert (cluster.state, cluster.error) == ("finished", "")
    return cluster.outcomes[change]


def joined(left: Any, right: Any) -> Any:
    """The number of a pair."""
    return {"n": (left["x"] if left else 0) + (right["y"] if right else 0)}


def alone_only(left: Any, right: Any) -> Any:
    """Fails on what has found no partner."""
    return {"n": left["x"] + right["y"]}


def test_rows_that_find_no_partner_leave_in_the_rehearsal() -> None:
    """So a new function is tried on them, with what is behind it."""
    assert "not subscriptable" in changed_join(Update(alone_only)).error
    assert "'n'" in changed_join(Update(lambda left, right: {"m": 1})).error
    assert changed_join(Update(joined, windows=fn.within(5, 5))).outcome == "done"


def test_a_column_that_another_one_of_the_join_has_had_is_found_in_the_rehearsal() -> None:
    """It would rename the other side's, which has left under its own name; one that is new to both sides is none."""
    refused = changed_join(lambda row: {"k": row["k"], "x": row["x"], "y": 0}, "inner", at="L", function=None)
    assert "X has passed on 'y' of the right side as 'y', which would be 'y_y' from now on" in refused.error
    added = changed_join(lambda row: {"k": row["k"], "x": row["x"], "z": 0}, "inner", at="L", function=None)
    assert added.outcome == "done"


def test_what_is_chained_behind_a_window_is_rehearsed() -> None:
    """On what the window has made, though no row comes to it any more when time brings that out."""
    flow = DataflowBuilder("behind")
    rows = flow.source("S", rate(None, count=1), time="x").window("X", Counted(), fn.tumbling(2), key="k")
    made = rows.map("D", lambda row: row | {"twice": row["n"] * 2})
    made.map("E", lambda row: row["twice"] and row).sink("Z", memory())
    for function, words in (
        (lambda row: row | {"twice": row["absent"]}, "new D failed in a rehearsal on a recent tuple"),
        (lambda row: {"n": row["n"]}, "E, which stays as it is, failed in a rehearsal on a recent tuple as new D"),
        (lambda row: row | {"twice": 2}, ""),
    ):
        cluster = Cluster(flow.graph(1), {"S": ROWS * 10}, seed=1)
        cluster.until(lambda cluster=cluster: bool(cluster.instances("D")[0].processed))
        change = cluster.request({"D": function}, rehearse=True)
        cluster.run()
        assert (cluster.state, cluster.error) == ("finished", "")
        assert cluster.outcomes[change].error.startswith(words)
        assert cluster.outcomes[change].outcome == ("aborted" if words else "done")


def test_what_windows_make_before_and_after_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """When time has passed in the rehearsal: rows come in then and nothing goes out."""
    told: list[Compared] = []
    monkeypatch.setattr(rehearsal, "compared", lambda *how: told.append(compared(*how)) or told[-1])

    class Tenfold(Counted):
        """Closes with ten times as many."""

        def close(self, key: int, time: int, state: Any) -> Any:
            """The row, with another number."""
            row = super().close(key, time, state)
            return row | {"n": row["n"] * 10}

    assert changed(Update(Tenfold())).outcome == "done"
    found = told_examples("u1", told, 50, "")
    assert (len(found.rows) > 0, {one.result for one in found.rows}, found.changed[-1]) == (True, {"differs"}, "n")
    assert all((one.came, one.after["n"]) == ({}, one.before["n"] * 10) for one in found.rows)
