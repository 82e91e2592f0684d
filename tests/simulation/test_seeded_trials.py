"""Trials of changes, at any moment beside changes: nothing of them is left, and each tells what rows would become."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest
from soak import SOAK

import fries_nb as fn
from fries_nb.changes.change_examples import told_examples
from fries_nb.controller.transactions import change_requested
from fries_nb.dataflow.updates import Update
from fries_nb.driver.driver_core import Told
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import Compared
from fries_nb.simulation import Cluster


class Numbered:
    """Numbers the rows of a key by steps; of the last key it fails if it ``fails``."""

    def __init__(self, step: int, fails: bool = False) -> None:
        self.step, self.fails = step, fails

    def initial_state(self) -> dict[str, int]:
        """None yet."""
        return {"count": 0}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with its number."""
        if self.fails and row["k"] == 4:
            raise ValueError("four")
        state["count"] += 1
        return row | {"nth": state["count"], "step": self.step}


class Hearing(Cluster):
    """A cluster that keeps what hosts tell of rehearsals."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.compared: list[Compared] = []
        super().__init__(*args, **options)

    def _told(self, event: Told) -> None:
        if isinstance(event, Compared):
            self.compared.append(event)
        super()._told(event)

    def try_out(self, number: int, update: Update) -> str:
        """Request a trial of K."""
        name, updates = f"t{number}", {"K": update}
        plan, payloads = schedule("fries", self.graph, {"K"}), {"K": cloudpickle.dumps(update)}
        self._say(change_requested(self.graph, name, plan, updates, payloads, examples=20, is_trial=True))
        return name


@pytest.mark.parametrize("seed", range(5 * SOAK))
def test_trials_leave_nothing_behind(seed: int) -> None:
    """Each key is counted without a gap; what is decided are the changes alone, and workers keep nothing prepared."""
    flow = fn.Dataflow("tried")
    rows = flow.source("S", fn.rate(None, count=1), workers=1 + seed % 2)
    rows.map("K", Numbered(1), key="k", workers=1 + seed // 2 % 2).map("M", dict).sink("out", fn.memory())
    given = [{"k": number % 5, "n": number} for number in range(120)]
    cluster = Hearing(flow.graph(2), {"S": given}, seed=seed, hosts=1 + seed % 3, chaining=seed % 2 == 0)
    made, trials = [], []
    for number in range(6):
        cluster.until(lambda least=20 * number // 2: sum(one.processed for one in cluster.instances("K")) > least)
        trials.append(cluster.try_out(number, Update(Numbered(7, fails=number % 2 == 1))))
        if number % 3 == 0:
            made.append(cluster.request({"K": Numbered(2 + number)}, rehearse=True))
    cluster.run()
    assert cluster.state == "finished", cluster.error
    done = [change for change in made if cluster.outcomes[change].outcome == "done"]
    assert [decided.change for decided in cluster.journal] == done
    ended = {name: cluster.outcomes[name] for name in trials}
    assert {one.outcome for one in ended.values()} <= {"rehearsed", "aborted"}
    kept = {change for one in cluster.instances("K") for change in one.prepared}
    assert kept.isdisjoint(trials)
    for key in range(5):
        assert sorted(row["nth"] for row in cluster.rows("out") if row["k"] == key) == [*range(1, 25)]
    for name, outcome in ended.items():
        parts = [one for one in cluster.compared if one.change == name]
        assert bool(parts) == outcome.has_examples
        found = told_examples("", parts, 50, outcome.error)
        assert all(one.after is None or one.after["step"] == 7 for one in found.rows)
        fails = {one.came["k"] == 4 for one in found.rows if one.result == "failed"}
        assert fails <= {True}
        assert "four" in outcome.error or not fails
