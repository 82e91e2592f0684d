"""Timed functions in seeded runs: agendas, raw tokens, tokens that are lost, and tokens that are never dropped."""

from __future__ import annotations

from typing import Any

import pytest
from held_tokens import Hold as Each
from progress_laws import FrontierLaw

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.updates import check_updates
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.cluster import Cluster

ROWS = [{"k": number % 3, "v": number, "at": number} for number in range(40)]


class Stateful:
    """Starts with an empty state."""

    def initial_state(self) -> dict[str, Any]:
        """Nothing."""
        return {}


class Hold(Stateful):
    """Counts rows, and holds a token from the first one until the frontier has passed 20, or nothing can come."""

    def process(self, row: dict[str, Any], state: dict[str, Any], at: Any) -> None:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1
        if "token" not in state:
            state["token"] = at.keep()

    def reached(self, frontier: int | None, state: dict[str, Any], out: Any) -> None:
        """Tell the count, with the right that was kept for it."""
        if (frontier is None or frontier > 20) and "token" in state:
            out.give(state["token"], [{"n": state.pop("n"), "at": state["token"].time}])
            state.pop("token").drop()


class Sum(Stateful):
    """The sum of a window, with its end."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> None:
        """Add a row."""
        state["n"] = state.get("n", 0) + row["count"]

    def close(self, key: int, time: int, state: dict[str, Any]) -> dict[str, Any]:
        """The sum."""
        return {"at": key, "end": time, "n": state["n"]}


class Lose(Stateful):
    """Loses the handle of each token."""

    def process(self, row: dict[str, Any], state: dict[str, Any], at: Any) -> None:
        """Keep a token nowhere."""
        at.keep()


class Keep(Stateful):
    """Never drops a token."""

    def process(self, row: dict[str, Any], state: dict[str, Any], at: Any) -> None:
        """Keep one more."""
        state.setdefault("tokens", []).append(at.keep())


def run_of(function: Any, seed: int) -> Cluster:
    """A finished run in which nothing is outstanding."""
    flow = fn.Dataflow("timed")
    rows = flow.source("S", fn.rate(None), time="at", workers=2)
    rows.map("R", function, key="k", workers=2).map("M", dict).sink("out", fn.memory())
    cluster = Cluster(flow.graph(2), {"S": ROWS}, seed=seed, hosts=2)
    law = FrontierLaw(cluster)
    law.run_until(lambda: False)
    assert (cluster.state, cluster.error) == ("finished", "")
    law.check_end()
    return cluster


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_a_token_gives_account_for_all(seed: int) -> None:
    """Each row is counted once, whenever the frontier was seen to have passed."""
    assert sum(row["n"] for row in run_of(Hold(), seed).rows("out")) == len(ROWS)


@pytest.mark.parametrize("seed", range(10))
def test_each_row_that_a_token_gives_has_its_time_and_a_transaction_of_its_own(seed: int) -> None:
    """Several rows of several times leave in one call; a window below has each where it belongs."""
    flow = fn.Dataflow("held")
    rows = flow.source("S", fn.rate(None), time="at", workers=2).map("M", dict, key="k")
    rows.map("H", Each(copies=2), key="k").window("W", Sum(), fn.tumbling(1), key="at").sink("out", fn.memory())
    supplied = [{"k": number % 3, "at": number // 8} for number in range(80)]
    cluster = Cluster(flow.graph(2), {"S": supplied}, seed=seed, hosts=2)
    cluster.run()
    assert (cluster.state, cluster.error) == ("finished", "")
    assert {row["at"]: (row["end"], row["n"]) for row in cluster.rows("out")} == {t: (t + 1, 16) for t in range(10)}
    assert judge(cluster.records()).serializable


def test_a_lost_token_counts_as_dropped_with_one_warning() -> None:
    """One for each worker, which names operator and time."""
    warnings = run_of(Lose(), seed=1).hosts.warnings
    assert len(warnings) == len({one.worker for one in warnings}) >= 1
    assert "R has lost a token of time" in warnings[0].text


def test_a_function_that_never_drops_its_tokens_does_not_keep_the_run() -> None:
    """When nothing can arrive at it any more, and its channels have ended, they are dropped."""
    assert run_of(Keep(), seed=1).rows("out") == []


class Count(Stateful):
    """Counts the rows of a window."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> None:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1

    def close(self, key: int, time: int, state: dict[str, Any]) -> dict[str, Any]:
        """The count, and the end of the window."""
        return {"k": key, "end": time, "version": self.version, **state}


def configurations(cluster: Cluster) -> set[tuple[int, float]]:
    """The versions and the sizes of windows that the workers run."""
    return {(one.function.function.version, one.function.windowing.size) for one in cluster.instances("W")}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_rollback_brings_windows_back_with_their_function(is_killed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a change that a user could make; also if the driver was killed since, and knows what was decided only."""
    flow = fn.Dataflow("windows")
    rows = flow.source("S", fn.rate(None), time="at")
    rows.window("W", Count(), fn.tumbling(10), key="k").sink("out", fn.memory())
    given = [{"k": number % 3, "at": number} for number in range(300)]
    cluster = Cluster(flow.graph(2), {"S": given}, seed=3, checkpoints=is_killed, commit_interval_ns=1_000_000)
    cluster.hold([WorkerId("S", 0)])
    ship = cluster.changes.ship

    def checked(updates: Any) -> Any:
        check_updates(cluster.graph, updates)
        return ship(updates)

    monkeypatch.setattr(cluster.changes, "ship", checked)

    def done(change: str) -> set[tuple[int, float]]:
        cluster.until(lambda: change in cluster.outcomes)
        assert cluster.outcomes[change].outcome == "done"
        return configurations(cluster)

    assert done(cluster.request({"W": fn.Update(Count(1), windows=fn.tumbling(30))})) == {(1, 30)}
    if is_killed:
        cluster.kill_driver()
    assert done(cluster.request({"W": Count(2)})) == {(2, 30)}
    assert done(cluster.roll_back()) == {(1, 30)}
    if not is_killed:
        assert done(cluster.roll_back()) == {(0, 10)}
    cluster.release()
    cluster.run()
    assert (cluster.state, cluster.error) == ("finished", "")
    assert sum(row["n"] for row in cluster.rows("out")) == len(given)


def test_the_failure_of_a_close_shows_key_and_time() -> None:
    """Since it was made for no tuple: those of the window's last moment."""
    flow = fn.Dataflow("failing")
    rows = flow.source("S", fn.rate(None), time="at")
    function = type("Failing", (Count,), {"close": lambda self, key, time, state: 1 // (key - 1)})()
    rows.window("W", function, fn.tumbling(10), key="k").sink("out", fn.memory())
    cluster = Cluster(flow.graph(1), {"S": [{"k": 1, "at": 5}]}, seed=1)
    cluster.run()
    assert cluster.error.startswith("W failed on a tuple: ZeroDivisionError")
    assert cluster.details.splitlines()[-1] == 'In hand, as it came to W: {"k": 1, "time": 9}'
