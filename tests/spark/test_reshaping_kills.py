"""Every edit of a running dataflow on Spark, under load, with a host killed at each step of the change.

Each row carries the way that it has taken: all that came of it is what one of the programs makes of it. In ``make
test`` every edit and every step is there once; with ``FRIES_SOAK`` every edit alone meets every step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import kill_at, until
from soak import SOAK

import fries_nb as fn
from fries_nb.controller.states import ReshapingPhase
from fries_nb.run import Run
from fries_nb.simulation.reshaping_cluster import Program, Statement

RATE = 600

BASE = Program([
    Statement("S", "source"), Statement("A", "keyed", ("S",)), Statement("B", "map", ("A",)),
    Statement("T", "source"), Statement("C", "map", ("T",)), Statement("U", "union", ("B", "C")),
    Statement("D", "map", ("U",)), Statement("out", "sink", ("D",)),
    Statement("E", "filter", ("B",)), Statement("even", "sink", ("E",)),
])  # fmt: skip

LOOPED = Program([
    Statement("S", "source"), Statement("A", "keyed", ("S",)), Statement("L", "loop", ("A",)),
    Statement("D", "map", ("L",)), Statement("out", "sink", ("D",)),
])  # fmt: skip


def without(program: Program, *names: str, **inputs: tuple[str, ...]) -> Program:
    """The program without these statements, and others with these inputs."""
    left = [one for one in program.statements if one.name not in names]
    return Program(
        [replace(one, inputs=inputs[one.name]) if one.name in inputs else one for one in left], program.functions
    )


def among(program: Program, before: str, *added: Statement, **inputs: tuple[str, ...]) -> Program:
    """The program with further statements in front of one, and others with these inputs."""
    found = without(program, **inputs).statements
    at = next((place for place, one in enumerate(found) if one.name == before), len(found))
    return Program([*found[:at], *added, *found[at:]], program.functions)


def replaced_input(program: Program, name: str, was: str, now: str) -> dict[str, tuple[str, ...]]:
    """The inputs of a statement, one of them another one."""
    return {name: tuple(now if one == was else one for one in program.by_name[name].inputs)}


def inserted(program: Program) -> Program:
    """A map between U and D, or whatever is in front of D."""
    [of] = program.by_name["D"].inputs
    return among(program, "D", Statement("N", "map", (of,)), D=("N",))


def entered(program: Program) -> Program:
    """A map in front of the loop."""
    return among(program, "L", Statement("F", "map", program.by_name["L"].inputs), L=("F",))


def forked(program: Program) -> Program:
    """What leaves the loop goes to a sink of its own as well."""
    return among(program, "", Statement("G", "map", ("L",)), Statement("fork", "sink", ("G",)))


def removed(program: Program) -> Program:
    """B is left out."""
    inputs = {
        one.name: tuple("A" if name == "B" else name for name in one.inputs)
        for one in program.statements
        if "B" in one.inputs
    }
    return without(program, "B", **inputs)


def branched(program: Program) -> Program:
    """Rows behind D are counted, and go to a sink of their own."""
    return among(program, "", Statement("M", "keyed", ("D",)), Statement("more", "sink", ("M",)))


def cut(program: Program) -> Program:
    """The filter and its sink are left out."""
    return without(program, "E", "even")


def fed(program: Program) -> Program:
    """A third source joins in front of D."""
    [of] = program.by_name["D"].inputs
    return among(program, "D", Statement("V", "source"), Statement("W", "union", (of, "V")), D=("W",))


def unfed(program: Program) -> Program:
    """The second source is left out, with the union."""
    names = {one.name for one in program.statements if "U" in one.inputs}
    inputs: dict[str, tuple[str, ...]] = {}
    for name in names:
        inputs |= replaced_input(program, name, "U", program.by_name["U"].inputs[0])
    return without(program, "T", "C", "U", **inputs)


def rewired(program: Program) -> Program:
    """The filter gets the rows behind D."""
    found = without(program, "E", "even").statements
    return Program([*found, Statement("E", "filter", ("D",)), Statement("even", "sink", ("E",))], program.functions)


def renewed(program: Program) -> Program:
    """D runs another function."""
    found = (replace(one, version=one.version + 1) if one.name == "D" else one for one in program.statements)
    return Program(list(found), program.functions)


def placed(program: Program) -> Program:
    """A and B change places, if B is there."""
    if "B" not in program.by_name:
        return program
    other, of = {"A": "B", "B": "A"}, program.by_name["A"].inputs
    inputs = {one.name: tuple(other.get(name, name) for name in one.inputs) for one in program.statements}
    inputs |= {"B": of, "A": ("B",)}
    moved = [program.by_name[other.get(one.name, one.name)] for one in program.statements]
    return without(Program(moved, program.functions), **inputs)


Edit = Callable[[Program], Program]
EDITS: tuple[Edit, ...] = (inserted, removed, branched, cut, fed, unfed, rewired, renewed, placed)
STEPS = (
    ReshapingPhase.SEPARATING, ReshapingPhase.WIRING, ReshapingPhase.WIRED, ReshapingPhase.SWITCHING,
    ReshapingPhase.CLEARING,
)  # fmt: skip
TRIALS: list[tuple[Program, tuple[Edit, ...], ReshapingPhase]] = [
    (BASE, (inserted, branched), STEPS[0]), (BASE, (removed, rewired), STEPS[1]), (BASE, (cut, fed), STEPS[2]),
    (BASE, (unfed,), STEPS[3]), (BASE, (renewed, inserted), STEPS[4]), (BASE, (placed, branched), STEPS[3]),
    (LOOPED, (entered, inserted), STEPS[2]), (LOOPED, (inserted, forked, renewed), STEPS[3]),
]  # fmt: skip
if SOAK > 1:
    TRIALS += [(BASE, (edit,), step) for edit in EDITS if edit is not renewed for step in STEPS]
    TRIALS += [(LOOPED, (edit,), step) for edit in (entered, inserted, forked) for step in STEPS]
    pairs = [pair for pair in itertools.combinations(EDITS, 2) if pair != (cut, rewired)]
    TRIALS += [(BASE, pair, STEPS[number % len(STEPS)]) for number, pair in enumerate(pairs)]


def read(name: str) -> Any:
    """Rows that know their source."""
    return fn.rate(RATE, row=lambda value: {"of": name, "key": value % 4, "way": "", "numbers": ""})


def declared(program: Program) -> fn.Dataflow:
    """The program as a dataflow."""
    flow = fn.Dataflow("edited")
    program.declare(flow, read)
    return flow


def judge(run: Run, programs: Sequence[Program]) -> set[int]:
    """Check every row against the programs, of which the last one runs; returns the numbers of those that fit some."""
    ways: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for sink in {one.name for program in programs for one in program.statements if one.kind == "sink"}:
        for row in run.output(sink).select("of", "value", "way").collect():
            ways.setdefault((row["of"], row["value"]), []).append((sink, row["way"]))
    used: set[int] = set()
    end = 1 + max(value for _, value in ways)
    for source in {one.name for program in programs for one in program.statements if one.kind == "source"}:
        unread = {value for value in range(end) if (source, value) not in ways}
        [count] = {one.graph().operator(source).workers for one in programs if source in one.by_name}
        for index in range(count):  # each worker has stopped somewhere
            of_worker = sorted(value for value in unread if value % count == index)
            assert of_worker == list(range(of_worker[0], end, count)) if of_worker else True, (source, of_worker[:5])
        for value in set(range(end)) - unread:
            row, found = {"value": value, "way": "", "numbers": ""}, sorted(ways[source, value])
            known = [number for number, one in enumerate(programs) if source in one.by_name]
            fits = [number for number in known if programs[number].outputs(source, row) == found]
            assert fits, (source, value, found, [programs[number].outputs(source, row) for number in known])
            used |= set(fits)
    return used


def title(part: Any) -> str:
    """A part of the name of a trial."""
    if isinstance(part, Program):
        return "looped" if part is LOOPED else "base"
    return part.value if isinstance(part, ReshapingPhase) else " ".join(edit.__name__ for edit in part)


@pytest.mark.parametrize(("base", "edits", "step"), TRIALS, ids=title)
def test_a_host_dies_at_a_step_of_a_change(
    base: Program, edits: tuple[Edit, ...], step: ReshapingPhase, spark: SparkSession, kept: Callable[[Run], Run],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The change is made or not, wholly; a decided one is in effect behind the restart. It can be made again."""
    after = base
    for edit in edits:
        after = edit(after)
    flow = declared(base)
    run = kept(flow.run(spark, hosts=2, workers=2, checkpoint=tmp_path / "c", commit_interval_s=0.3, audit=True))
    until(lambda: bool(run.checkpoints) and run.metrics().operators["out"].processed > 100, run)
    killed = kill_at(step, run, monkeypatch)
    drop = [one.name for one in base.statements if one.kind == "keyed" and one.name not in after.by_name]
    outcome = run.apply(declared(after), drop=drop).settled(PATIENCE_S)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    assert killed
    is_decided = outcome.outcome == "done"
    if step is not ReshapingPhase.WIRED:  # from there it goes on at once, unless functions are to be prepared
        assert is_decided == (step in (ReshapingPhase.SWITCHING, ReshapingPhase.CLEARING)), outcome.error
    assert not run.diff(declared(after if is_decided else base))
    if not is_decided:
        assert run.apply(declared(after), drop=drop).settled(PATIENCE_S).outcome == "done"
    passed = run.metrics().operators["out"].processed
    until(lambda: run.metrics().operators["out"].processed > passed + 100, run)
    run.stop(timeout=PATIENCE_S)
    assert 1 in judge(run, [base, after])
    verdict = run.audit()
    assert (verdict.serializable, verdict.claim) == (True, "complete"), str(verdict)
