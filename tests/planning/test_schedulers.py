"""What each scheduler sends: to whom, with which scope, and what ends the stage."""

from __future__ import annotations

import pytest
from planning_graphs import FIGURE_7, W3, W4, W5

from fries_nb.errors import PlanError
from fries_nb.planning import cover
from fries_nb.planning.schedulers import SCHEDULERS, Plan, StageAction, foretold, schedule

W5_ALL = {"Src", "RE", "FD3", "S1", "F3", "F4", "FD4", "SJ", "E1", "Sink"}


def sends(plan: Plan) -> set[tuple[str, frozenset[str]]]:
    """Receivers and scopes of a plan of one stage."""
    [stage] = plan.stages
    return {(send.operator, send.scope) for send in stage.sends}


def test_fries_sends_to_heads():
    """Algorithm 2: an FCM to each head, the marker within the component."""
    plan = schedule("fries", FIGURE_7, ["C", "F", "G"])
    assert sends(plan) == {("C", frozenset("CDEF")), ("G", frozenset("G"))}


def test_heads_of_one_component_share_their_scope():
    """Hence one marker, aligned where their ways meet."""
    plan = schedule("fries", W3, ["J5", "J6", "J7", "J8"])
    scope = frozenset(("J5", "J6", "J7", "U1", "J8"))
    assert sends(plan) == {("J5", scope), ("J6", scope), ("J7", scope)}


def test_epoch_sends_to_all_sources():
    """The marker goes through the whole graph."""
    plan = schedule("epoch", W3, ["J8"])
    assert {operator for operator, _ in sends(plan)} == {"S5", "S6", "S7"}
    assert {scope for _, scope in sends(plan)} == {frozenset(W3)}
    assert sends(schedule("epoch", W5, ["FD4"])) == {("Src", frozenset(W5_ALL))}


def test_naive_sends_to_each_target():
    """And nothing travels in band."""
    assert sends(schedule("naive", W5, ["FD3", "FD4"])) == {("FD3", frozenset(["FD3"])), ("FD4", frozenset(["FD4"]))}


def test_multiversion_tags_at_all_sources():
    """The marker goes where epoch's goes; it tags instead of switching, and ends when the targets have drained."""
    plan = schedule("multiversion", W3, ["J8"])
    [stage] = plan.stages
    assert sends(plan) == sends(schedule("epoch", W3, ["J8"]))
    assert (stage.does, stage.awaits) == (StageAction.TAG, {"J8"})


def test_a_restart_is_one_stage_that_everybody_takes_part_in():
    """A checkpoint concerns all."""
    [stage] = schedule("restart", W5, ["FD4"]).stages
    assert (stage.does, stage.awaits) == (StageAction.RESTART, W5_ALL)
    assert {(send.operator, send.scope) for send in stage.sends} == {("Src", frozenset(W5_ALL))}


def test_minibatch_holds_switches_and_releases():
    """Everything is through before the first target switches; only sources are told to go on."""
    hold, switch, release = schedule("minibatch", W3, ["J5", "J8"]).stages
    expected = [StageAction.HOLD, StageAction.SWITCH, StageAction.RELEASE]
    assert [stage.does for stage in (hold, switch, release)] == expected
    assert {(send.operator, send.scope) for send in hold.sends} == sends(schedule("epoch", W3, ["J8"]))
    assert hold.awaits == set(W3)
    assert {(send.operator, send.scope) for send in switch.sends} == {(j, frozenset([j])) for j in ("J5", "J8")}
    assert switch.awaits == {"J5", "J8"}
    assert {(send.operator, send.scope) for send in release.sends} == {(s, frozenset([s])) for s in ("S5", "S6", "S7")}
    assert release.awaits == {"S5", "S6", "S7"}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_plan_awaits_its_targets_and_explains_itself(name):
    """Some stage ends when all targets are done; the covering says what would have been needed."""
    plan = schedule(name, W5, ["F3", "E1"])
    assert (plan.scheduler, plan.targets) == (name, {"F3", "E1"})
    assert any(stage.awaits >= plan.targets for stage in plan.stages)
    assert plan.covering == cover(W5, ["F3", "E1"])
    for stage in plan.stages:
        assert all(send.operator in send.scope for send in stage.sends)
        assert stage.awaits <= frozenset().union(*(send.scope for send in stage.sends))


def test_where_naive_is_safe_fries_sends_the_same():
    """The verdict's meaning: then the two plans are one."""
    for change in (["FD4"], ["F3"], ["E1"]):
        fries, naive = schedule("fries", W5, change), schedule("naive", W5, change)
        assert fries.covering.naive_safe
        assert sends(fries) == sends(naive)


def test_pruning_can_be_switched_off():
    """Fries then starts at the Replicate."""
    assert {operator for operator, _ in sends(schedule("fries", W5, ["E1"], pruning=False))} == {"RE"}


@pytest.mark.parametrize(
    ("graph", "change", "against", "taken", "why"),
    [
        (W4, ["FD1"], "", "cut", "the markers of fries would begin at U2, which makes several rows"),
        (W4, ["F2"], "", "cut", "at U2"),
        (W4, ["F1", "U2"], "", "fries", "begin at the operators that change"),
        (W4, ["FD1"], "rows have none", "fries", "begin at U2, since the cut cannot be taken: rows have none"),
        (W5, ["E1"], "", "fries", "begin at the operators that change"),  # RE is pruned
        (W3, ["J5", "J8"], "", "fries", "begin at the operators that change"),
    ],
)
def test_auto_takes_the_cut_where_fries_would_begin_above_the_targets(graph, change, against, taken, why):
    """The plan is that of the scheduler that is taken, and says why."""
    plan = schedule("auto", graph, change, against_cut=against)
    assert plan == schedule(taken, graph, change)
    assert plan.reason.startswith(f"auto takes {taken}")
    assert why in plan.reason
    assert plan.reason in foretold(plan)


def test_an_unknown_scheduler_is_refused():
    """The closest one is suggested."""
    with pytest.raises(PlanError, match=r"no scheduler 'freis'; expected one of fries, epoch, .*did you mean 'fries'"):
        schedule("freis", W5, ["E1"])
    for wrong in (None, ["fries"]):
        with pytest.raises(PlanError, match="no scheduler "):
            schedule(wrong, W5, ["E1"])


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize(("change", "said"), [([], "empty"), (["Src"], "is a source"), (["X"], "no operator 'X'")])
def test_every_scheduler_refuses_what_cannot_be_planned(name, change, said):
    """Whatever it would send."""
    with pytest.raises(PlanError, match=said):
        schedule(name, W5, change)
