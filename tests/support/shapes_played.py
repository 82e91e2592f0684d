"""Seeded runs whose program is edited while they run, and the check that each row went through one of the programs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fries_nb import audit
from fries_nb.dataflow.graph import ends_of
from fries_nb.errors import PlanError
from fries_nb.planning.difference import Difference
from fries_nb.planning.shape import refuse_unsupported
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.reshaping_cluster import KINDS, Program, ReshapingCluster, drawn_program


@dataclass
class Played:
    """A run whose program was edited once or twice.

    Attributes:
        cluster: the run, which has ended.
        first: the program with which it began.
        asked: id of each requested change to the program that it makes.
    """

    cluster: ReshapingCluster
    first: Program
    asked: dict[str, Program]

    @property
    def programs(self) -> list[Program]:
        """The first one, and those whose change was decided."""
        return [self.first, *(self.asked[one.change] for one in self.cluster.journal if one.shape)]


def rows_of(programs: list[Program], count: int) -> dict[str, list[dict[str, Any]]]:
    """Rows for each source of any of the programs; the values differ over all of them."""
    names = sorted({one.name for program in programs for one in program.statements if one.kind == "source"})
    return {
        name: [{"value": row * 100 + place, "key": row % 4, "way": "", "numbers": ""} for row in range(count)]
        for place, name in enumerate(names)
    }


def drawn_settings(chance: random.Random, kills: int) -> dict[str, Any]:
    """The hosts, window and chaining of a run; with kills also faults, and checkpoints to recover from."""
    settings: dict[str, Any] = {
        "hosts": chance.choice((1, 2)), "window": chance.choice((200, 1000, 5000)), "chaining": chance.random() < 0.6,
    }  # fmt: skip
    if kills:
        faults = Faults(chance.choice((0.0002, 0.0005, 0.001)), host_kills=kills, driver_kills=1)
        settings |= {"checkpoints": True, "commit_interval_ns": chance.choice((500_000, 3_000_000)), "faults": faults}
    return settings


def play(
    seed: int, kills: int = 0, edited: Callable[[Program, random.Random], Program] = Program.edited,
    kinds: Sequence[str] = KINDS,
) -> tuple[Played, dict[str, list[dict[str, Any]]]]:  # fmt: skip
    """Edit a drawn program while it runs; sources mostly keep their last rows until that is over."""
    chance = random.Random(f"reshaping {seed}")
    programs = [drawn_program(chance, kinds)]
    for _ in range(chance.choice((1, 1, 2))):
        programs.append(edited(programs[-1], chance))
    rows = rows_of(programs, chance.choice((10, 30, 60)))
    settings = drawn_settings(chance, kills)
    if not kills and chance.random() < 0.5:
        settings["commit_interval_ns"] = 1_000_000
    cluster = ReshapingCluster(programs[0].graph(), rows, seed=seed, **settings)
    if holds := chance.random() < 0.8:
        graph = cluster.graph
        cluster.hold(WorkerId(name, index) for name in graph.sources for index in range(graph.operator(name).workers))
    played = edit(cluster, programs, chance)
    if holds:
        cluster.steps(chance.choice((0, 50, 300)))
        cluster.release()
    cluster.run()
    return played, rows


def around_loops(program: Program, chance: random.Random) -> Program:
    """The program after edits that a run with loops applies."""
    for _ in range(20):
        edited = program.edited(chance)
        found = Difference.of(program.graph(), edited.graph())
        try:
            refuse_unsupported(found, found.lost)
            return edited
        except PlanError:
            continue
    return program


def edit(cluster: ReshapingCluster, programs: list[Program], chance: random.Random) -> Played:
    """Apply the later programs one after the other, as long as each is made."""
    asked: dict[str, Program] = {}
    past = set[tuple[str, str]]()
    for program in programs[1:]:
        cluster.steps(chance.choice((0, 20, 200, 600)))
        if cluster.state != "running":
            break
        try:
            found = Difference.of(cluster.graph, program.graph())
            refuse_unsupported(found, found.lost, past=past)
            past |= ends_of(cluster.graph)
            change = cluster.reshape(program.graph(), order=not cluster.graph.heads or chance.random() < 0.8)
        except PlanError:  # nothing is changed
            continue
        asked[change] = program
        if program is not programs[-1] or chance.random() < 0.7:
            cluster.until(partial(is_over, cluster, change))
        if change not in cluster.outcomes or cluster.outcomes[change].outcome != "done":
            break
    return Played(cluster, programs[0], asked)


def is_over(cluster: ReshapingCluster, change: str) -> bool:
    """Whether a change has ended, or its driver has died with it."""
    return change in cluster.outcomes or change not in cluster.controller.changes


def judge(played: Played, rows: dict[str, list[dict[str, Any]]]) -> Counter[int]:
    """Check every row; returns how many were processed by each program."""
    cluster = played.cluster
    assert cluster.state == "finished", (cluster.error, cluster.details)
    programs = played.programs
    decided = {one.change for one in cluster.journal if one.shape}
    for change, outcome in cluster.outcomes.items():
        assert (outcome.outcome == "done") == (change in decided), outcome
    verdict = audit.judge(cluster.records())
    assert verdict.serializable, verdict
    ways: dict[int, list[tuple[str, str]]] = {}
    for sink in {one.name for program in programs for one in program.statements if one.kind == "sink"}:
        for row in cluster.rows(sink):
            ways.setdefault(row["value"], []).append((sink, row["way"]))
    used: Counter[int] = Counter()
    for source, given in rows.items():
        for row in given:
            found = sorted(ways.get(row["value"], []))
            known = [(at, one) for at, one in enumerate(programs) if source in one.by_name]
            fits = [at for at, one in known if one.outputs(source, row) == found]
            unread = not found and (source not in programs[-1].by_name)  # removed before it came to it
            assert fits or unread, (source, row, found, [one.outputs(source, row) for one in programs])
            used.update(fits[:1])
    return used
