"""Changes by the cut on real Spark: two hosts, rows that are multiplied between the targets, hosts that die.

Each row shows by which version it was processed. The version that it should show is computed here once more, from its
identity and the decisions as they are on disk.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until, wait_for_more

import fries_nb as fn
from fries_nb.changes.change import Change
from fries_nb.controller.change_steps import Changes
from fries_nb.run import Run
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.durable import SEAL_BYTES

SPLITS = 32
"""Of a source with two workers, each of which reads 16 in turn."""
TAKEN = 500
"""Number of rows above the cut of a step before the next one."""


class Mark:
    """Says by which version, in a column of its own."""

    def __init__(self, column: str, version: int = 0) -> None:
        self.column = column
        self.version = version

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, marked."""
        return {**row, self.column: self.version}


def doubled_flow() -> fn.Dataflow:
    """Rows are marked by A, doubled by B, and marked by C, another worker of which gets the second of the two."""
    flow = fn.Dataflow("doubled")
    marked = flow.source("numbers", fn.rate(4_000), workers=2).map("A", Mark("a"))
    twice = marked.flat_map("B", lambda row: [{**row, "twin": row["value"] + number} for number in (0, 1)])
    twice.map("C", Mark("c"), key="twin").sink("out", fn.memory())
    return flow


class Again(Mark):
    """The same in each round of a loop: -1 if it was another version in an earlier one."""

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, marked."""
        before = row.get("c", self.version)
        return {**row, "round": row.get("round", 0) + 1, "c": self.version if before == self.version else -1}


def looped_flow() -> fn.Dataflow:
    """Rows are marked by A, and then in each of 20 rounds by C, wherever each round's worker is."""
    flow = fn.Dataflow("looped")
    marked = flow.source("numbers", fn.rate(4_000), workers=2).map("A", Mark("a"))
    rounds = marked.iterate("L", lambda again: again.map("C", Again("c")).split("R", lambda row: row["round"] == 20))
    rounds.sink("out", fn.memory())
    return flow


def change_to(run: Run, version: int) -> dict[str, Mark]:
    """Both targets change to a version."""
    return {name: type(run.graph.operator(name).function)(name.lower(), version) for name in "AC"}


def end_well(run: Run) -> dict[int, int]:
    """Each value twice, or once, of one version all over, and audited; returns the version of each value."""
    run.stop(drain=True)
    twins = Counter((row["value"], row["a"], row["c"]) for row in run.output().collect())
    assert set(twins.values()) == {2 if "B" in run.graph else 1}
    assert all(a == c for _, a, c in twins)
    versions = {value: a for value, a, _ in twins}
    assert len(versions) == len(twins)
    for split in range(SPLITS):  # each has stopped somewhere
        of_split = sorted(value for value in versions if value % SPLITS == split)
        assert of_split == list(range(split, of_split[-1] + 1, SPLITS))
    verdict = run.audit()
    assert (verdict.serializable, verdict.stale) == (True, ()), str(verdict)
    return versions


def test_cuts_right_behind_each_other_and_fries_behind_them(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """No row and no twin is half new, though no marker waits for the rows between the targets."""
    run = kept(doubled_flow().run(spark=spark, hosts=2, workers=2, audit=True))
    wait_for_more(run, 2_000)
    changes = [run.reconfigure(change_to(run, n), scheduler) for n, scheduler in ((1, "cut"), (2, "cut"), (3, "fries"))]
    assert [change.result(PATIENCE_S).outcome for change in changes] == ["done"] * 3
    wait_for_more(run, 2_000)
    assert {*end_well(run).values()} >= {0, 3}


class Deaths:
    """Kills a host at a moment of a change, and keeps what the journal has on disk."""

    def __init__(self, run: Run, decisions: Path, patch: pytest.MonkeyPatch) -> None:
        self.run = run
        self.journal: dict[str, list[tuple[dict[int, int], float]]] = {}  # change to its steps, in order
        self.count = 0  # of hosts that died
        self._armed = ""
        decide, freeze = CheckpointStore.decide, Changes._freeze

        def decided(store: CheckpointStore, change: Any) -> None:
            decide(store, change)
            read = max(decisions.glob("*.msgpack")).read_bytes()  # as a restart of the driver would find it
            found = msgspec.msgpack.decode(read[SEAL_BYTES:], strict=False)
            steps = [(step["cut"], step["share"]) for step in found["steps"]]
            self.journal[found.get("step_of") or found["change"]] = steps
            self._at("decided")

        def frozen(changes: Changes, *args: Any) -> Any:
            self._at("frozen")  # before it is told, so that it cannot answer
            return freeze(changes, *args)

        patch.setattr(CheckpointStore, "decide", decided)
        patch.setattr(Changes, "_freeze", frozen)

    def _at(self, moment: str) -> None:
        if self._armed == moment:
            self._armed = ""
            self.kill()

    def kill(self) -> None:
        """Kill a host."""
        self.count += 1
        os.kill(self.run.host_processes[1], signal.SIGKILL)

    def arm(self, moment: str) -> None:
        """Kill a host when the next change comes to a moment, if it is one within the change."""
        self._armed = moment

    def recovered(self) -> None:
        """Wait until the run has started again after all of them."""
        runs = self.run
        until(lambda: len(runs.recoveries) == self.count and runs.recoveries[-1].seconds is not None, runs)

    def beyond(self, rows: int) -> None:
        """Wait until A has had so many rows above the last cut, behind all restarts."""
        wait_for_more(self.run, rows, "A")  # what was told before a restart is of rows that are read again
        cut = [steps[-1][0] for steps in self.journal.values()][-1] if self.journal else {}
        least = sum(position + 1 for position in cut.values()) + rows
        until(lambda: self.run.metrics().operators["A"].processed >= least, self.run)

    def expected(self, value: int, versions: dict[str, int]) -> int:
        """The version of a value: that of the last change for which it is new."""
        split, position, version = value % SPLITS, value // SPLITS, 0
        for change, steps in self.journal.items():
            shares = [share for cut, share in steps if position > cut.get(split, -1)]
            if cohort((split << 40) + position) < (shares[-1] if shares else 0) * 65_536:
                version = versions[change]
        return version


def opened(run: Run) -> tuple[str, ...]:
    """The changes of which rows of both versions may come."""
    controller = run._runner.launched[0].driver.core.controller
    return controller._life.changes.cuts.open


def cohort(identity: int) -> int:
    """The upper bits of splitmix64, the first of all cohorts being another one."""
    mixed = identity
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> shift) * factor % 2**64
    return (mixed ^ mixed >> 31) >> 48 ^ 0xA5C3


Ask = Callable[[Run, Change, int], Change]
STEPS: dict[str, Ask] = {
    "change": lambda run, last, version: run.reconfigure(change_to(run, version), "cut"),
    "canary": lambda run, last, version: run.reconfigure(change_to(run, version), canary=0.05),
    "ramp": lambda run, last, version: last.ramp(0.25),
    "promote": lambda run, last, version: last.promote(),
    "rollback": lambda run, last, version: last.rollback(),
}
SCRIPTS = {
    doubled_flow: [
        "change frozen, change decided, change switched, change uncommitted",
        "canary frozen, canary decided, ramp frozen, ramp decided, promote frozen, promote decided",
        "canary switched, ramp committed, promote switched, canary committed, ramp switched, promote committed",
        "canary decided, rollback frozen, rollback decided, canary switched, rollback switched",
    ],
    looped_flow: [
        "change frozen, change decided, change committed, change switched",
        "canary frozen, canary decided, ramp committed, promote switched, canary committed, rollback decided",
    ],
}
"""Steps of changes, and when a host dies: while targets are frozen, when the decision is on disk and no worker has it,
when all have it, behind a commit after it, or behind one that has only rows from before it."""


@pytest.mark.parametrize(("flow", "script"), [(flow, one) for flow, scripts in SCRIPTS.items() for one in scripts])
def test_a_host_dies_at_each_step(
    flow: Callable[[], fn.Dataflow], script: str, spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A step is decided or not, wholly; each row has the version that the journal says, whatever is read again."""
    options = {"checkpoint": tmp_path / "c", "commit_interval_s": 3_600, "audit": True}
    run = kept(flow().run(spark, hosts=2, workers=2, **options))
    deaths, versions, last = Deaths(run, tmp_path / "c" / "decisions", monkeypatch), dict[str, int](), None
    wait_for_more(run, TAKEN)
    run.checkpoint(PATIENCE_S)
    for name, moment in (part.split() for part in script.split(", ")):
        deaths.arm(moment)
        change = STEPS[name](run, last, len(versions) + 1)
        assert change.result(PATIENCE_S).outcome == ("aborted" if moment == "frozen" else "done")
        if name in ("change", "canary") and moment != "frozen":
            last, versions[change.id] = change, len(versions) + 1
        run.set_rate("numbers", None)
        if moment == "switched":
            deaths.kill()
        elif moment == "committed":
            deaths.beyond(TAKEN)
            run.checkpoint(PATIENCE_S)
            run.set_rate("numbers", 0)  # so that the next step finds workers that have begun nothing
            deaths.kill()
        elif moment == "uncommitted":
            run.set_rate("numbers", 0)
            deaths.kill()
            deaths.recovered()
            run.checkpoint(PATIENCE_S)
            assert change.id in opened(run)
            deaths.kill()
            deaths.recovered()
            run.set_rate("numbers", None)
        deaths.recovered()
        if moment != "committed":
            deaths.beyond(TAKEN)
    run.set_rate("numbers", None)
    deaths.beyond(TAKEN)
    found = end_well(run)
    assert found == {value: deaths.expected(value, versions) for value in found}
    assert {*found.values()} == {0, *versions.values()}


class Tally:
    """Counts the rows of a key, in a list; later versions in a dict."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def initial_state(self) -> Any:
        """Nothing counted."""
        return {"count": 0} if self.version else [0]

    def process(self, row: dict[str, Any], state: Any) -> dict[str, Any]:
        """The row, numbered; fails on a state of the other form."""
        place = "count" if self.version else 0
        state[place] += 1
        return {**row, "nth": state[place], "version": self.version}


def test_a_canary_of_another_form_of_state(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key counts each of its rows once, in whichever form; a host dies in the canary, and behind the promotion."""
    flow = fn.Dataflow("tallied")
    rows = flow.source("numbers", fn.rate(4_000, row=lambda n: {"value": n, "key": n % 50}), workers=2)
    rows.map("A", Tally(), key="key").sink("out", fn.memory())
    options = {"checkpoint": tmp_path / "c", "commit_interval_s": 3_600, "audit": True}
    run = kept(flow.run(spark, hosts=2, workers=2, **options))
    deaths = Deaths(run, tmp_path / "c" / "decisions", monkeypatch)
    wait_for_more(run, TAKEN)
    new = fn.Update(Tally(1), state=lambda old: {"count": old[0]}, back=lambda state: [state["count"]])
    canary = run.reconfigure({"A": new}, canary=0.3)
    assert canary.result(PATIENCE_S).outcome == "done"
    for ask, form in ((None, "value_0"), (canary.promote, "count")):
        assert ask is None or ask().result(PATIENCE_S).outcome == "done"
        deaths.beyond(TAKEN)
        assert form in run.state("A").columns
        deaths.kill()
        deaths.recovered()
        deaths.beyond(TAKEN)
        run.checkpoint(PATIENCE_S)
        deaths.kill()
        deaths.recovered()
    deaths.beyond(TAKEN)
    assert run.rollback().result(PATIENCE_S).outcome == "done"
    wait_for_more(run, TAKEN, "A")
    run.stop(drain=True)
    found = [(row["key"], row["nth"], row["value"], row["version"]) for row in run.output().collect()]
    counts = Counter(key for key, *_ in found)
    assert {one[:2] for one in found} == {(key, nth + 1) for key, count in counts.items() for nth in range(count)}
    assert {version for *_, version in found} == {0, 1}
    assert run.audit().serializable

class InWindow:
    """Counts the rows of a key in a window."""

    def initial_state(self) -> list[int]:
        """None yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Count a row."""
        state[0] += 1

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The count, and which window it is of."""
        return {"key": key, "end": time, "count": state[0]}


def windowed_flow() -> fn.Dataflow:
    """Counts of windows are marked by A, doubled by B, and marked by C, another worker of which gets the second one."""
    flow = fn.Dataflow("windowed")
    keyed = flow.source("numbers", fn.rate(4_000), workers=2, time="value").map("K", keyed_by_37)
    marked = keyed.window("W", InWindow(), fn.tumbling(74), key="key").map("A", Mark("a"))
    twice = marked.flat_map("B", lambda row: [{**row, "twin": row["end"] + number} for number in (0, 1)])
    twice.map("C", Mark("c"), key="twin").sink("out", fn.memory())
    return flow


def keyed_by_37(row: dict[str, Any]) -> dict[str, Any]:
    """One of 37 keys, each of which is twice in each window."""
    return {**row, "key": row["value"] % 37}


def test_below_a_window_hosts_die_while_a_map_is_changed_and_is_a_canary(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What time brings out has one version all over and follows the cut; no window is lost or doubled."""
    options = {"checkpoint": tmp_path / "c", "commit_interval_s": 1, "audit": True}
    run = kept(windowed_flow().run(spark, hosts=2, workers=2, **options))
    deaths = Deaths(run, tmp_path / "c" / "decisions", monkeypatch)

    def followed(change: Change) -> None:
        assert change.result(PATIENCE_S).outcome == "done"
        deaths.recovered()
        wait_for_more(run, TAKEN, "A")
        run.checkpoint(PATIENCE_S)

    wait_for_more(run, TAKEN, "A")
    run.checkpoint(PATIENCE_S)
    deaths.arm("decided")
    followed(run.reconfigure(change_to(run, 1), "cut"))
    canary = run.reconfigure(change_to(run, 2), canary=0.3)
    canary.result(PATIENCE_S)
    deaths.kill()
    followed(canary)
    deaths.arm("decided")
    followed(canary.promote())
    followed(run.reconfigure(change_to(run, 3), "fries"))
    run.stop(drain=True)
    rows = run.output().collect()
    assert set(Counter((row["key"], row["end"], row["a"], row["c"]) for row in rows).values()) == {2}
    windows = {(row["key"], row["end"]): (row["count"], row["a"]) for row in rows}
    assert 2 * len(windows) == len(rows)
    assert {version for _, version in windows.values()} == {0, 1, 2, 3}
    assert all(row["a"] == row["c"] for row in rows)
    complete = max(end for _, end in windows) - 74 * 32  # each split has stopped somewhere
    assert {count for (_, end), (count, _) in windows.items() if end <= complete} == {2}
    verdict = run.audit()
    assert (verdict.serializable, verdict.stale) == (True, ()), str(verdict)
