"""The laws of a replay, over drawn dataflows and all schedulers; its words, and its pictures."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_graphs import loop_changes
from planning_draws import changes
from planning_graphs import drawn

from fries_nb.changes.change_replay import (
    ChangeReplay,
    ReplayKind,
    ReplayStep,
    operations_around,
    replay_steps,
    row_versions,
)
from fries_nb.controller.events import Outcome, WorkerOutcome
from fries_nb.dataflow.graph import Graph
from fries_nb.planning.schedulers import SCHEDULERS, Plan, schedule
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import Ran, RanMany, Updated

VERSIONS = ("old", "both", "new")
"""The versions of a target, in the only order in which they may follow each other."""


def ended(plan: Plan, delays: dict[str, tuple[float, ...]], outcome: str = "done", **more: Any) -> Outcome:
    """The result of a change by a plan; of each target the delays of its workers."""
    workers = {
        WorkerId(name, index): WorkerOutcome(delay, index)
        for name, each in delays.items()
        for index, delay in enumerate(each)
    }
    parts = tuple(tuple(sorted(part.operators)) for part in plan.covering.components)
    longest = max((delay for each in delays.values() for delay in each), default=0.0)
    times = {"plan_ms": 0.5, "prepare_ms": 1.0, "commit_ms": 2.0, "delay_ms": longest + 0.5}
    error = "" if outcome == "done" else "no"
    given_: dict[str, Any] = {"components": parts, "per_worker": workers} | more
    return Outcome("u1", plan.scheduler, outcome, error, **times, **given_)


def marked(graph: Graph, plan: Plan) -> list[tuple[str, str]]:
    """The edges inside the scopes of a plan's markers, each as often as a marker passes it."""
    scopes = [scope for stage in plan.stages for scope in dict.fromkeys(send.scope for send in stage.sends)]
    return [(edge.source, edge.to) for scope in scopes for edge in graph.edges if {edge.source, edge.to} <= scope]


def check_laws(graph: Graph, plan: Plan, steps: tuple[ReplayStep, ...]) -> None:
    """The laws of a change that is done."""
    switched = [name for step in steps if step.kind is ReplayKind.SWITCHED for name in step.operators]
    assert sorted(switched) == sorted(plan.targets)
    for before, after in pairwise(steps):
        ranks = [{name: VERSIONS.index(one) for name, one in step.versions.items()} for step in (before, after)]
        assert all(ranks[0][name] <= ranks[1][name] for name in plan.targets)
        assert after.travelled[: len(before.travelled)] == before.travelled
    assert set(steps[0].versions.values()) == {"old"}
    assert set(steps[-1].versions.values()) == {"new"}
    assert sorted(steps[-1].travelled) == sorted(marked(graph, plan))
    told = {name for step in steps if step.kind is ReplayKind.SENT for name in step.operators}
    reached: set[str] = set()
    for step in steps:
        for source, to in step.edges:
            assert source in reached
            reached.add(to)
        if not step.edges and step.kind in (ReplayKind.PASSED, ReplayKind.SWITCHED):
            assert plan.scheduler == "restart" or set(step.operators) <= told
            reached.update(step.operators)
    seen = [row_versions(graph, steps, number) for number in range(len(steps))]
    below = set(plan.targets)
    for name in graph.order:
        below |= {name} if any(edge.source in below and not edge.feedback for edge in graph.in_edges(name)) else set()
    for before, after in pairwise([dict.fromkeys(seen[0], "old"), *seen, dict.fromkeys(seen[0], "new")]):
        for ends in (ends for ends in seen[0] if ends[0] in below):
            assert VERSIONS.index(before[ends]) <= VERSIONS.index(after[ends]), (ends, steps)
    assert all(each[ends] == "waits" for each in seen for ends in each if ends[0] not in below)
    kinds = [step.kind for step in steps]
    assert kinds.count(ReplayKind.ENDED) == 1
    back = {(edge.source, edge.to) for edge in graph.edges if edge.feedback}
    assert kinds.count(ReplayKind.RETURNED) == sum(ends in back for ends in marked(graph, plan))


@given(st.one_of(changes(), loop_changes()), st.sampled_from(sorted(SCHEDULERS)), st.data())
def test_a_replay_obeys_its_laws(change: tuple[Graph, frozenset[str]], scheduler: str, data: st.DataObject) -> None:
    """Each target switches once and never back; each marked edge is passed once, behind the operator before it."""
    graph, targets = change
    plan = schedule(scheduler, graph, targets)
    some_ms = st.lists(st.floats(0.1, 9.0), min_size=1, max_size=2).map(tuple)
    delays = {name: data.draw(some_ms) for name in sorted(targets)}
    steps = replay_steps(graph, plan, ended(plan, delays))
    check_laws(graph, plan, steps)
    if scheduler == "naive":
        times = [step.at_ms or 0.0 for step in steps if step.kind is ReplayKind.SWITCHED]
        assert times == sorted(max(each) + 0.5 for each in delays.values())


def lines(graph: Graph, scheduler: str, delays: dict[str, tuple[float, ...]], **more: Any) -> list[str]:
    """The steps of a change in words."""
    plan = schedule(scheduler, graph, delays)
    return [step.words for step in replay_steps(graph, plan, ended(plan, delays, **more))]


CHAIN = drawn("S > R > A > B > T")
CHANGED = {"A": (1.0, 1.5), "B": (2.0,)}


WORDS = {
    "fries": """
The message leaves the controller for A, past all queued tuples.
A takes it between two tuples; A switches 2 ms after the request (its 2 workers from 1.5 ms on), 1 tuple with the old
The marker from A reaches B; B switches 2.5 ms after the request, 0 tuples with the old function meanwhile.
Done 2.5 ms after the request.""",
    "epoch": """
The message leaves the controller for S
S takes it between two tuples, and sends a marker behind the tuples that it has sent.
The marker passes R.
The marker from R reaches A; A switches 2 ms
The marker from A reaches B; B switches 2.5 ms
The marker passes T.
Done""",
    "naive": """
Messages leave the controller for A and B, past all queued tuples.
A takes it between two tuples; A switches 2 ms
B takes it between two tuples; B switches 2.5 ms
Done""",
    "multiversion": """
The message leaves the controller for S
S tags the tuples that it reads from now on as new: both versions run, by the tag of a tuple.
The marker passes R.
The marker from R reaches A; no tuple with the old tag is left there, and A drops its old function 2 ms
The marker from A reaches B; no tuple with the old tag is left there, and B drops its old function 2.5 ms
The marker passes T.
Done""",
    "cut": """
Messages leave the controller for A and B: begin no tuple, and say how far you are.
A begins no tuple, and says how far it is.
B begins no tuple, and says how far it is.
The highest positions of all answers are the cut: tuples above it are new, wherever they come.
Messages leave the controller for A and B, past all queued tuples.
A takes it between two tuples; A switches 2 ms
B takes it between two tuples; B switches 2.5 ms
Done""",
    "minibatch": """
A message leaves the controller for S: stop reading.
S stops reading, and sends a marker behind the tuples that it has sent.
The marker passes R → A → B → T.
No tuple is on its way any more.
Messages leave the controller for A and B
A takes it between two tuples; A switches 2 ms
B takes it between two tuples; B switches 2.5 ms
A message leaves the controller for S: continue to read.
S continues to read.
Done""",
    "restart": """
The message leaves the controller for S
S takes it, and sends the marker of a checkpoint behind the tuples that it has sent.
The marker passes R → A → B → T.
The checkpoint is complete. The job ends and starts again from it; A and B run their new functions.
Done""",
}
"""How each step of a change of A and B begins."""


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_the_words_say_what_the_scheduler_does(scheduler: str) -> None:
    """Step by step."""
    said = WORDS[scheduler].strip().splitlines()
    found = lines(CHAIN, scheduler, CHANGED)
    assert len(found) == len(said)
    assert [line[: len(begin)] for line, begin in zip(found, said, strict=True)] == said


def test_times_are_those_of_the_result() -> None:
    """With planning from the request on, and from when tuples flowed if they did not yet."""
    plan = schedule("fries", CHAIN, CHANGED)
    result = replace(ended(plan, CHANGED), delay_ms=2.0, waited_ms=900.0)
    *_, last, done = (step.words for step in replay_steps(CHAIN, plan, result))
    assert "B switches 2 ms after tuples flowed, " in last
    assert done == "Done 2 ms after tuples flowed."


def test_both_versions_run_between_the_tags_and_the_marker() -> None:
    """With multi-version only."""
    plan = schedule("multiversion", CHAIN, CHANGED)
    steps = replay_steps(CHAIN, plan, ended(plan, CHANGED))
    versions = list(dict.fromkeys(step.versions["B"] for step in steps))
    assert versions == ["old", "both", "new"]
    assert steps[1].states == {"A": "both", "B": "both", "S": "here"}


def test_other_outcomes_are_told_as_they_were() -> None:
    """Aborted, failed, rolled back by a guard, begun with the change, withdrawn, and workers that had ended."""
    assert lines(CHAIN, "fries", {"A": ()}, outcome="aborted") == [
        "Aborted before any message was sent, so nothing changed: no."
    ]
    [failed] = lines(CHAIN, "fries", {"A": (1.0,)}, outcome="failed")
    assert failed == "The run failed while the change was carried out; A[0] had switched by then: no."
    back = lines(CHAIN, "fries", CHANGED, outcome="rolled_back")
    assert back[-1] == "Later its guard has restored the old functions: no."
    began = lines(CHAIN, "epoch", {"A": (0.0,)}, components=())
    assert began[0] == "A runs its new function from the first tuple on: the change came before it."
    assert len(began) == 2
    [nothing] = lines(CHAIN, "fries", {"A": ()}, components=())
    assert nothing.startswith("Nothing had to switch")
    gone = {WorkerId("A", 0): WorkerOutcome(1.0, ended=True), WorkerId("B", 0): WorkerOutcome(2.0)}
    assert lines(CHAIN, "fries", CHANGED, per_worker=gone)[1].endswith("A had ended before, and does not switch.")


def test_operations_in_the_trace_are_counted_around_the_switch() -> None:
    """Of workers that switched once; those of other changes do not count."""
    records = [
        Ran("t1", "A"), Updated("u0", "A"), RanMany(("t2", "t3"), "A"), Updated("u1", "A"), Ran("t4", "A"),
        Ran("t1", "A", 1), Updated("u1", "A", 1), Updated("u1", "B"), Ran("t4", "B"), Updated("u1", "B"),
    ]  # fmt: skip
    assert operations_around(records, "u1") == {"A": (4, 1)}
    plan = schedule("fries", CHAIN, ["A"])
    replay = ChangeReplay.of(CHAIN, plan, ended(plan, {"A": (1.0,)}), operations_around(records, "u1"))
    assert "; the trace has 4 operations before and 1 after." in repr(replay)


def test_a_replay_is_shown_as_pictures_and_a_large_one_in_words() -> None:
    """In a large dataflow only the part is drawn in which something happens."""
    plan = schedule("fries", CHAIN, CHANGED)
    bundle = ChangeReplay.of(CHAIN, plan, ended(plan, CHANGED))._repr_mimebundle_()
    assert bundle["text/html"].count("<svg") == 4
    assert bundle["text/html"].count('data-state="marked"') == 2
    assert bundle["text/html"].count(">marker<") == 1
    assert bundle["text/plain"].splitlines()[3] == "4. Done 2.5 ms after the request."
    long = drawn("S > " + " > ".join(f"O{number}" for number in range(80)) + " > T")
    for targets, drawings in ((["O3", "O4"], 4), ([f"O{number}" for number in range(80)], 0)):
        plan = schedule("fries", long, targets)
        shown = ChangeReplay.of(long, plan, ended(plan, dict.fromkeys(targets, (1.0,))))._repr_html_()
        assert shown.count("<svg") == drawings
        assert shown.count('class="node"') == 2 * drawings
