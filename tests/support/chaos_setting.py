"""Chaos drawn from a seed: changes of a stateful flow, hosts that are killed in the middle, and what must come out.

A change's number is the version of the functions that it brings, and every row says by which versions it was made.
So a plain fold over the rows of a key, in the order in which they were counted, tells what the key's state must have
been at each of them, changes included. Kills are counted off by what the driver hears and writes, never by a clock.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recovery_setting import Trial, Watch

import fries_nb as fn
from fries_nb.controller import events
from fries_nb.driver.driver_core import HostsRestarted, Told
from fries_nb.protocol.messages import Report

RATE = 300.0
KEYED = {"FC": "customer", "FM": "terminal"}
OPERATORS = (*KEYED, "MC")
SCHEDULERS = ("fries", "fries", "epoch", "multiversion", "minibatch", "restart")
STILL = 4
"""Reports in a row in which a source that was stopped has come no further."""

Row = dict[str, Any]
State = dict[str, Any]


class Recent:
    """Numbers the rows of a key, and sums up the last of their values: as many as its version says."""

    def __init__(self, name: str, version: int = 0, fails: bool = False) -> None:
        self.name = name
        self.version = version
        self.fails = fails

    def open(self) -> None:
        """As a model that is not there."""
        if self.fails:
            raise FileNotFoundError(f"no model {self.version}")

    def initial_state(self) -> State:
        """A key that was never seen."""
        return {"n": 0, "recent": []}

    def process(self, row: Row, state: State) -> Row:
        """The row, with its number, the sum and the version."""
        state["n"] += 1
        state["recent"] = remembered(state["recent"], row["value"], self.version)
        name = self.name
        return row | {f"{name}_n": state["n"], f"{name}_sum": sum(state["recent"]), f"{name}_by": self.version}


class Combine:
    """Adds up what the two others found."""

    def __init__(self, version: int = 0, fails: bool = False) -> None:
        self.version = version
        self.fails = fails

    def open(self) -> None:
        """As a model that is not there."""
        if self.fails:
            raise FileNotFoundError(f"no model {self.version}")

    def process(self, row: Row) -> Row:
        """The row, with the version."""
        return row | {"MC_sum": row["FC_sum"] + row["FM_sum"], "MC_by": self.version}


class Rework:
    """A state transformation that tells how often it was applied, and in which order with others."""

    def __init__(self, version: int, fails: bool = False) -> None:
        self.version = version
        self.fails = fails

    def __call__(self, state: State) -> State:
        """Another state."""
        if self.fails:
            raise KeyError(f"no such field in version {self.version}")
        return {"n": state["n"], "recent": reworked(state["recent"], self.version)}


def remembered(recent: list[int], value: int, version: int) -> list[int]:
    """The last values, with another one."""
    return [*recent, value][-(3 + version % 4) :]


def reworked(recent: list[int], version: int) -> list[int]:
    """What a change makes of them."""
    return [(31 * value + version) % 1_000_003 for value in recent]


@dataclass(frozen=True)
class Drawn:
    """A change: its version, its targets, those whose state it transforms, by whom, and who fails at what."""

    version: int
    targets: tuple[str, ...]
    reworks: frozenset[str]
    scheduler: str
    fails: str = ""
    fails_at: str = ""
    waits: bool = True

    def updates(self) -> dict[str, fn.Update]:
        """As a run takes them."""
        return {name: self._update(name) for name in self.targets}

    def _update(self, name: str) -> fn.Update:
        in_open = self.fails == name and self.fails_at == "open"
        if name == "MC":
            return fn.Update(Combine(self.version, in_open))
        in_state = self.fails == name and self.fails_at == "state"
        state = Rework(self.version, in_state) if name in self.reworks else None
        return fn.Update(Recent(name, self.version, in_open), state=state)


def drawn_changes(seed: int, count: int) -> list[Drawn]:
    """Changes number 1 to ``count``, about one in five of which cannot be prepared."""
    draw = random.Random(seed)
    return [_drawn(draw, version) for version in range(1, count + 1)]


def _drawn(draw: random.Random, version: int) -> Drawn:
    targets = tuple(draw.sample(OPERATORS, draw.choice((1, 2, 2, 3))))
    reworks = frozenset(name for name in targets if name in KEYED and draw.random() < 0.5)
    change = Drawn(version, targets, reworks, draw.choice(SCHEDULERS), waits=draw.random() < 0.7)
    if draw.random() < 0.8:
        return change
    fails = draw.choice(targets)
    return replace(change, fails=fails, fails_at="state" if fails in reworks else "open")


def chaos_flow(shape: str, sink: Any) -> fn.Dataflow:
    """Two keyed operators and a combiner: in a line with a dedup, or side by side in front of a self-join."""
    flow = fn.Dataflow(f"chaos {shape}")
    source = fn.rate(RATE, row=lambda value: {"customer": value % 13, "terminal": value * 7 % 11})
    rows = flow.source("S", source, identity="value")
    if shape == "line":
        customers = rows.map("FC", Recent("FC"), key="customer")
        marked = customers.map("FM", Recent("FM"), key="terminal").dedup("D", "value")
    else:
        customers = rows.map("FC", Recent("FC"), key="customer")
        marked = customers.self_join("J", rows.map("FM", Recent("FM"), key="terminal"), on="value")
    marked.map("MC", Combine()).sink("out", sink)
    return flow


class Killer(Watch):
    """Hears what a driver says, and kills hosts after so many words of it.

    Args:
        draw: when and whom.
        kills: so many recoveries from lost hosts (a kill while the run starts again anyway is none).
        victim: what is killed for a host, given its process: the process itself, or its executor.
    """

    def __init__(self, draw: random.Random, kills: int, victim: Callable[[int], int] = int) -> None:
        super().__init__()
        self.kills = kills
        self._victim = victim
        self._draw = draw
        self._words = self._gap()
        self._run: Trial | None = None

    def aim(self, run: Trial, patch: Callable[[object, str, object], None]) -> None:
        """Begin; what is written to the checkpoint place counts as well, before and after."""
        for name in ("decide", "keep"):
            patch(run.launched.place, name, self._between(getattr(run.launched.place, name)))
        self._run = run

    def _between(self, write: Callable[[Any], None]) -> Callable[[Any], None]:
        def counted(what: Any) -> None:
            self._count()
            write(what)
            self._count()

        return counted

    def _gap(self) -> int:
        return self._draw.choice((0, 3, 10, 30, 100)) + self._draw.randrange(30)

    def _count(self) -> None:
        self._words -= 1
        if self._words <= 0 and self._run is not None and self.survived < self.kills:
            self._words = self._gap()
            hosts = self._draw.choice(([0], [1], [0, 1]))
            pids = self._run.pids
            for host in set(hosts) & set(pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._victim(pids[host]), signal.SIGKILL)

    def answered(self, event: events.Answered) -> None:
        super().answered(event)
        if not isinstance(event.answer, Report):
            self._count()

    def __call__(self, event: Told) -> None:
        super().__call__(event)
        if isinstance(event, events.CheckpointEnded):
            self._count()
        elif isinstance(event, HostsRestarted):
            self._words = self._gap()

    @property
    def survived(self) -> int:
        """Recoveries from lost hosts."""
        return sum("was lost" in recover.reason for recover in self.heard_of("recovering"))


def carry_out(run: Trial, changes: Iterable[Drawn], told: Callable[[Drawn, str], None]) -> dict[int, str]:
    """Have them made, some while others wait; returns the outcome of each version."""
    outcomes: dict[int, str] = {}
    open_changes: list[tuple[str, Drawn]] = []
    for drawn in changes:
        open_changes.append((run.change(drawn.updates(), drawn.scheduler), drawn))
        if drawn.waits:
            outcomes |= _outcomes(run, open_changes, told)
            open_changes = []
    return outcomes | _outcomes(run, open_changes, told)


def _outcomes(run: Trial, changes: list[tuple[str, Drawn]], told: Callable[[Drawn, str], None]) -> dict[int, str]:
    outcomes: dict[int, str] = {}
    for name, drawn in changes:
        outcome = run.outcome(name)
        assert outcome.outcome in ("done", "aborted"), outcome
        assert (outcome.outcome == "done") is (not outcome.error), outcome
        assert not drawn.fails or outcome.outcome == "aborted", outcome
        outcomes[drawn.version] = outcome.outcome
        told(drawn, outcome.outcome)
    return outcomes


def executor_of(pid: int) -> int:
    """The Java process that a Python worker of this machine belongs to.

    Raises:
        ProcessLookupError: the worker has gone, or its executor has.
    """
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError as gone:
            raise ProcessLookupError(f"process {pid} has gone") from gone
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["Name"] == "java":
            return pid
        pid = int(fields["PPid"])
    raise ProcessLookupError("the executor has gone")


def processed(watch: Watch) -> list[int]:
    """The number of rows that the source has made, of each of its reports."""
    return [one.processed for one in watch.heard_of("report") if one.worker.operator == "S"]


def halt(run: Trial) -> None:
    """Halt the source, and wait for as many reports since as show that it stands still."""
    before = len(processed(run.watch))
    run.launched.driver.post(events.RateRequested("S", 0.0))

    def stands() -> bool:
        last = processed(run.watch)[before:][-STILL:]
        return len(last) == STILL and len(set(last)) == 1

    run.watch.until(stands, "a source that stands still")


def end_well(run: Trial, changes: list[Drawn], outcomes: dict[int, str]) -> None:
    """Let the source halt, the rest come out, and see that it is right."""
    halt(run)
    assert run.end() == ("finished", "")
    made = processed(run.watch)[-1]  # hosts may be killed after the halt, and its rows of then are read no more
    check(run.rows(), made, changes, outcomes)
    verdict = run.audit()
    assert verdict.serializable, verdict.mixed[:3]


def check(rows: list[Row], made: int, changes: Iterable[Drawn], outcomes: Mapping[int, str]) -> None:
    """All rows once, each by one configuration, every key's state as the changes that were done have made it."""
    assert sorted(row["value"] for row in rows) == list(range(made))
    done = [drawn for drawn in changes if outcomes[drawn.version] == "done"]
    for name in OPERATORS:
        assert {row[f"{name}_by"] for row in rows} <= {0, *(one.version for one in done if name in one.targets)}
    for drawn in done:
        for row in rows:
            sides = {row[f"{name}_by"] >= drawn.version for name in drawn.targets}
            assert len(sides) == 1, f"change {drawn} has made half of {row}"
    last = max(rows, key=lambda row: row["value"])
    for name in OPERATORS:
        assert last[f"{name}_by"] == max((one.version for one in done if name in one.targets), default=0)
    for name, key in KEYED.items():
        for value in {row[key] for row in rows}:
            check_key(name, [row for row in rows if row[key] == value], done)
    assert all(row["MC_sum"] == row["FC_sum"] + row["FM_sum"] for row in rows)


def check_key(name: str, rows: list[Row], done: list[Drawn]) -> None:
    """One key's rows, counted without gap, by versions that only grow, with the sums that its state gives."""
    ordered = sorted(rows, key=lambda row: row[f"{name}_n"])
    assert [row[f"{name}_n"] for row in ordered] == list(range(1, len(rows) + 1))
    recent: list[int] = []
    before = ordered[0][f"{name}_by"]
    for row in ordered:
        version = row[f"{name}_by"]
        assert version >= before, f"{row} was made by an older version than the row before it"
        for drawn in done:
            if before < drawn.version <= version and name in drawn.reworks:
                recent = reworked(recent, drawn.version)
        recent = remembered(recent, row["value"], version)
        assert row[f"{name}_sum"] == sum(recent), f"{name} has another state at {row}; expected {recent}"
        before = version
