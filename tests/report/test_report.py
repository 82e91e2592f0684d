"""The report: one HTML page that stands alone, whatever the run was like."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from changes_asked import FOUND, ChangesAsked, StandInCanaries, StandInShadow
from report_page import NASTY, SECTIONS, stands_alone
from verdicts import verdict_on

from fries_nb.audit import Met, Mixed, Verdict
from fries_nb.changes.change import Change
from fries_nb.changes.change_examples import Example, Examples
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.commands import demo
from fries_nb.constraints.judgements import state_of
from fries_nb.controller.events import Outcome, WorkerOutcome
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.graph import Edge, Emits, Graph, Operator
from fries_nb.errors import RunError
from fries_nb.planning.schedulers import SCHEDULERS, schedule
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import ROW_BITS
from fries_nb.report import Comparison, ComparisonRow, SchedulerTrial, comparison_page, run_page, writable, write_page
from fries_nb.running.results import Place, Story
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier, TimeHolder
from fries_nb.telemetry.history import PlotMark, Point
from fries_nb.telemetry.metrics import Latency, MetricsSnapshot, OperatorMetrics
from fries_nb.workloads.fraud import MerchantModel

GRAPH = Graph(
    "fraud & co",
    (Operator("in"), Operator("J", Emits.ONE_TO_MANY, edgewise_one_to_one=True), Operator("FM", workers=2),
     Operator(NASTY), Operator("out")),
    (Edge("in", "J"), Edge("J", "FM"), Edge("J", NASTY), Edge("FM", "out")),
)  # fmt: skip
PLACE = Place(1_790_000_000.0, 2, 64 << 20)
POINTS = tuple(Point(1_790_000_000.0 + n / 4, 5.0 + n, 20.0 + n * n, 400.0) for n in range(40))
SERIALIZABLE = Verdict(True, (), (), (), 4_000, 1)
SEVEN = (1 << ROW_BITS) + 7
MET = (Met("FM", ("u1",), ()), Met(NASTY, (), ("u1",)), Met("in", (), ()))
MIXED = Verdict(
    False, (Mixed(SEVEN, "u1", ("FM",), (NASTY,)),), (str(SEVEN), "u1"), ("FM", NASTY), 9, 1, cycle_met=(MET, ())
)


def change(number: int, scheduler: str, outcome: Outcome | None) -> Change:
    """A change of FM and the operator with the nasty name, ended or not."""
    one = Change(f"u{number}", schedule(scheduler, GRAPH, ["FM", NASTY]), {}, plan_ms=1.0, run=ChangesAsked())
    if outcome is not None:
        one.resolve(outcome)
    return one


def story() -> Story:
    """A run with nothing remarkable: no change, no trace."""
    operators = {name: OperatorMetrics(1_000, 250.4, 30, 4_096) for name in GRAPH}
    snapshot = MetricsSnapshot(operators, Latency(900, 5.0, 30.0), Latency(4_000, 6.0, 1_234.5))
    return Story(GRAPH, PLACE, "stopped", "", "", POINTS, (), (), snapshot, None)


DONE = Outcome("u1", "fries", "done", prepare_ms=2.5, commit_ms=1.5, delay_ms=14.0, components=(("FM",),),
               per_worker={WorkerId("FM", 0): WorkerOutcome(13.0, 17)})  # fmt: skip


def test_a_run_without_changes_and_trace():
    """All sections are there, and say that there is nothing to say."""
    page = stands_alone(run_page(story()))
    assert page.headings == ["Dataflow fraud & co: a run", *SECTIONS]
    assert "Nothing was changed." in page.text
    assert "audit=True" in page.text
    assert "99 of 100 within 1.2 s" in page.text
    assert "2026-09-21" in page.text
    assert page.tags.count("svg") == 2


def test_times_and_loops_have_sections_where_there_are_some():
    """With the rows of the live view, escaped."""
    frontiers = [OperatorFrontier(NASTY, 40, (TimeHolder("FM", 40, 2, NASTY),)), OperatorFrontier("out", None)]
    loops = [LoopState("L", "asking", attempts=2, change="u1", round=7, rows=1_200)]
    page = stands_alone(run_page(replace(story(), frontiers=frontiers, loops=loops)))
    assert page.headings[1:] == [*SECTIONS[:3], "Times", "Loops", *SECTIONS[3:]]
    for said in (NASTY, "from 40 on", f"FM → {NASTY}: 2 frames", "nothing", "asking for u1", "1,200"):
        assert said in page.texts


def test_a_run_that_has_only_begun():
    """No tuple at a sink yet: no plot, and no error."""
    empty = MetricsSnapshot(story().snapshot.operators)
    page = stands_alone(run_page(replace(story(), state="joining", points=(), snapshot=empty)))
    assert "The run is joining." in page.text
    assert "nothing to draw" in page.text


def test_a_run_with_changes_that_were_done_failed_and_are_under_way():
    """Each has its row; an error is said with its traceback, escaped; the last one is drawn."""
    bad = Outcome("u2", "epoch", "aborted", f"FM: ValueError {NASTY}", f"Traceback: {NASTY}", prepare_ms=3.0)
    changes = (change(1, "fries", DONE), change(2, "epoch", bad), change(3, "naive", None))
    marks = (
        PlotMark(POINTS[8].at_s, "u1", "request", f"{NASTY} by fries"),
        PlotMark(POINTS[9].at_s, "u1", "done", "x"),
    )
    page = stands_alone(run_page(replace(story(), changes=changes, marks=marks, verdict=SERIALIZABLE)))
    assert page.headings[1:] == SECTIONS
    for said in ("15 ms", "17", "under way", f"FM: ValueError {NASTY}", f"Traceback: {NASTY}"):
        assert said in page.texts
    assert {"Fries", "Epoch", "Naive"} <= set(page.texts)
    assert "J pruned" not in page.text  # both its edges lead to targets
    assert "J kept (several_edges)" in page.text
    assert "Serializable: 4,000 source tuples and 1 change judged, none mixed." in page.texts


def test_a_canary_and_a_shadow_show_their_last_comparison():
    """And both versions over time; what is hidden is masked, and what has not been compared has its words alone."""
    plan = schedule("fries", GRAPH, ["FM"])
    asked = ChangesAsked(canaries=StandInCanaries(shares={"u1": 0.25}))
    canary, begun = (Change(name, plan, {}, 1.0, run=asked) for name in ("u1", "u2"))
    for each in (canary, begun):
        each.resolve(replace(DONE, change=each.id))
    shadow = StandInShadow(None, begun, {"FM": None}, ["FM"])  # type: ignore[arg-type, dict-item]
    replays = [ChangeReplay.of(GRAPH, plan, each.result(0)) for each in (canary, begun)]
    told = replace(story(), changes=(canary, begun), replays=replays, shadows=(shadow,))
    page = stands_alone(run_page(told))
    assert "25% of the cohorts since " in page.text
    assert "shadow of FM: open, since " in page.text
    assert "Both versions, by n" not in page.text
    canary.compare("n")
    assert shadow.compare() is FOUND
    page = stands_alone(run_page(told))
    for words in ("Both versions, by n", "<b> mean", "0.75", "•••", "The first that differ", "differ in <b>", "990"):
        assert words in page.text
    assert "4000" not in page.text


def test_a_change_that_has_ended_is_told_in_detail():
    """Where its time went, its functions before and after, and its steps; those of the newest are open."""
    models = {"FM": (MerchantModel(), MerchantModel(window=10)), NASTY: (len, sorted)}
    plan = schedule("fries", GRAPH, ["FM", NASTY])
    one = Change("u1", plan, {}, 1.0, run=ChangesAsked(lambda name: models))
    gone = Change("u2", plan, {}, 1.0, run=ChangesAsked(lambda name: {}[NASTY]))
    for each in (one, gone):
        each.resolve(replace(DONE, change=each.id, components=(("FM", NASTY),)))
    replays = [ChangeReplay.of(GRAPH, plan, each.result(0)) for each in (one, gone)]
    row = Example("FM", 0, {NASTY: 1}, {"p": NASTY}, None, "failed", error=f"ValueError: {NASTY}")
    examples = {"u1": Examples("u1", (row,)), "u2": Examples("u2", (), left_out="its rehearsal took 3 s")}
    page = stands_alone(run_page(replace(story(), changes=(one, gone), replays=replays, examples=examples)))
    assert page.tags.count("mark") == 1
    assert "its rehearsal took 3 s" in page.text
    assert page.tags.count("svg") == 2 + 2 * (1 + len(replays[0].steps))
    for said in ("prepare 2.5 ms", "commit 1.5 ms", "window: 5 -> 10", "Done 15 ms after the request."):
        assert said in page.text
    assert "The functions cannot be read from disk any more: KeyError" in page.text
    assert page.text.count("in detail") == 2
    assert page.text.count("user") == 2


def test_a_run_that_failed_after_its_decision():
    """The run's own error leads."""
    failed = change(1, "fries", Outcome("u1", "fries", "failed", "host 1 was lost"))
    page = stands_alone(run_page(replace(story(), state="failed", error="host 1 was lost", changes=(failed,))))
    assert "The run has failed." in page.text
    assert page.texts.count("host 1 was lost") == 2


def test_who_mixed_versions_is_said_with_a_cycle():
    """Counts, operators, one of the tuples, and the proof."""
    page = stands_alone(run_page(replace(story(), changes=(change(1, "naive", DONE),), verdict=MIXED)))
    assert "Not serializable: 1 of 9 source tuples met an old version and a new one." in page.texts
    assert page.text.count("Step 1 of") == 1
    row = "row 7 of split 1 of source 0"
    assert row in page.texts
    assert f"{row} → (at FM) u1 → (at {NASTY}) {row}" in page.texts


def test_a_trace_without_changes_is_judged_too():
    """Nothing was changed, nothing mixed."""
    page = stands_alone(run_page(replace(story(), verdict=Verdict(True, (), (), (), 1, 0))))
    assert "Serializable: 1 source tuple judged, none mixed." in page.texts


def rows() -> list[ComparisonRow]:
    """What the demonstration might find."""
    return [
        ComparisonRow("fries", "done", 16.3, 9.1, 4.2, 3_481, 12, 4_211, 35, True, 0, 17_204),
        ComparisonRow("epoch", "done", 4_312.7, 9.9, 4_300.1, 3_502, 3_600, 4_198, 36, True, 0, 17_150),
        ComparisonRow("naive", "aborted", 0.0, 9.0, 0.0, 3_490, 11, 4_305, 34, False, 1_022, 17_188),
    ]


def compared(trials: list[SchedulerTrial]) -> Comparison:
    """The comparison that the demonstration makes of these trials."""
    graph = demo.demo_flow("payments.parquet").graph(2)
    return Comparison("Three", demo.SETTING, PLACE, graph, schedule("fries", graph, demo.demo_change()), trials)


def test_the_table_of_the_demonstration_tells_all():
    """Numbers with units, the verdict in words."""
    lines = repr(compared([SchedulerTrial(row, "", POINTS, (), SERIALIZABLE) for row in rows()])).splitlines()
    assert lines[0].split()[:2] == ["scheduler", "delay"]
    assert re.split(r"  +", lines[1])[-1] == "serializable"
    assert "4.3 s" in lines[2]
    assert "NOT serializable: 1,022 of 17,188 mixed" in lines[3]


def test_the_report_of_the_demonstration():
    """A plot for each scheduler, one table, the plan, the verdicts; a failed change has its error."""
    marks = (PlotMark(POINTS[8].at_s, "u1", "request", "FM, MC by fries"),)
    fries, epoch, naive = rows()
    plan, outcome = schedule("fries", GRAPH, ["FM"]), change(1, "fries", DONE).result(0)
    steps = ChangeReplay.of(GRAPH, plan, outcome)
    good = [SchedulerTrial(row, "", POINTS, marks, SERIALIZABLE, outcome, steps) for row in (fries, epoch)]
    trials = [*good, SchedulerTrial(naive, f"FM: {NASTY}", POINTS, (), MIXED)]
    text = comparison_page(compared(trials))
    page = stands_alone(text)
    assert page.tags.count("svg") == 5 + 2 + 2 * (1 + len(steps.steps))
    names = ["Fries", "Epoch", "Naive"]
    assert [heading for heading in page.headings if heading in names] == [*names[:2], *names * 2]
    assert f"Naive: FM: {NASTY}" in page.texts
    assert any(said.startswith("FM, MC change together: the message goes to the head FM") for said in page.texts)
    assert "Fries took 16.3 ms, Epoch took 4.3 s, Naive was aborted" in page.text
    assert "4.3 s" in page.texts
    assert "64 MiB of credit a host" in page.text


def test_it_is_said_when_the_latency_has_come_back():
    """Only for a run whose latency was low at its end."""
    marks = (PlotMark(POINTS[8].at_s, "u1", "request", "FM, MC by fries"),)
    calm = Point(POINTS[-1].at_s + 1.0, 2.0, 9.0, 400.0)
    trials = [SchedulerTrial(rows()[0], "", points, marks, SERIALIZABLE) for points in (POINTS, (*POINTS, calm))]
    captions = stands_alone(comparison_page(compared(trials))).text
    assert captions.count("is below 250 ms for good") == 1
    assert "8.8 s after the request" in captions


def test_a_report_is_written_or_refused_in_words(tmp_path: Path):
    """The path comes back; a directory that does not exist, or a directory, is no place for a file."""
    path = tmp_path / "report.html"
    assert write_page(path, "é") == str(path)
    assert path.read_text(encoding="utf-8") == "é"
    for bad in (tmp_path, tmp_path / "none" / "report.html"):
        with pytest.raises(RunError, match="expected a file name in a directory that exists"):
            writable(bad)


CONSTRAINT = LatencyConstraint(("J", "FM"), latency_ms=100)


def test_a_report_has_constraints_drawn_and_in_figures():
    """One that was judged has a table, one that was not has words; a nasty name does no harm."""
    constraints = [CONSTRAINT, LatencyConstraint((NASTY, "FM"), latency_ms=100)]
    states = [state_of(one, [verdict_on(one, 1_790_000_000.0)]) for one in constraints]
    judged = [state.point(1_790_000_000.0 + second) for state in states for second in range(3)]
    states.append(state_of(LatencyConstraint(("FM",), 3.0), []))
    page = stands_alone(run_page(replace(story(), constraints=states, judged=judged)))
    assert page.tags.count("svg") == 2 + 3
    assert page.tags.count("table") == 1 + 2
    assert "Latency of J -> FM in figures" in page.text
    assert "FM was not measured." in page.text
    assert "bands span mean and worst" in page.text


def test_a_report_without_constraints_says_so():
    """As every section does."""
    assert "No latency constraint was declared." in stands_alone(run_page(story())).text


def test_a_comparison_of_all_schedulers_has_a_line_for_each():
    """Each has a colour of its own."""
    trials = [SchedulerTrial(replace(rows()[0], scheduler=name), "", POINTS, (), SERIALIZABLE) for name in SCHEDULERS]
    drawn = compared(trials)._repr_mimebundle_()["text/html"]
    assert drawn.count("<polyline") == len(SCHEDULERS)
    assert all(f".line{at} {{ stroke: #" in drawn for at in range(len(SCHEDULERS)))
