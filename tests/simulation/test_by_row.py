"""Changes that are decided row by row: whatever is between their targets, no transaction meets two versions.

The judge computes the function of every row again, from the cut and the row's identity, and finds one order of all
changes if all of a run are of this kind. Each rule of the protocol is broken once, and a seed shows it.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from interleaving_checks import LAWS, lacking, try_seed
from soak import SHOWN_BY, caught, first_tried

from fries_nb.controller import cuts
from fries_nb.controller.commits import Recovery
from fries_nb.controller.cuts import Cuts
from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.operators import instance, row_versions
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import KeyedState
from fries_nb.protocol import rollout
from fries_nb.protocol.checkpoints import in_effect
from fries_nb.protocol.messages import Freeze
from fries_nb.protocol.partitioning import COHORTS, cohorts, identities
from fries_nb.protocol.rollout import RolloutStep
from fries_nb.protocol.trace import ROW_BITS
from fries_nb.simulation.scenarios import draw_by_row, draw_canaries, draw_forms
from fries_nb.simulation.stamp_functions import stamps
from fries_nb.worker import snapshot
from fries_nb.worker.freezing import Freezing
from fries_nb.worker.snapshot import _DecidedChanges

BOUND = 400
"""Seeds within which each broken build must be caught."""


def follows_the_journal(played):
    """Each row shows the versions that the cuts in the journal say, in whatever incarnation it was processed.

    If all changes are of this kind: another one, once a restart finds it decided, is followed by all rows, and before
    it begins a marker may end what the cuts say.
    """
    if any(wish.scheduler != "cut" for wish in played.changes.values()):
        return
    decided = [one for one in in_effect(played.cluster.journal) if one.payloads]
    for sink in played.scenario.graph.sinks:
        for row in played.cluster.rows(sink):
            for stamp in stamps(row["trail"]):
                own = (one for one in decided if stamp.operator in one.targets)
                mine = [one for one in own if _is_new(one.steps, row[TRANSACTION])]
                version = played.changes[mine[-1].change].version if mine else 0
                assert stamp.version == version, f"{row['trail']} shows {stamp}, and the journal says {version}"


def _is_new(steps, identity):
    [cohort] = cohorts(pa.RecordBatch.from_pydict({TRANSACTION: [identity]}))
    above = [step for step in steps if identity & ((1 << ROW_BITS) - 1) > step.cut.get(identity >> ROW_BITS, -1)]
    return bool(above) and int(cohort) < above[-1].share * COHORTS


def tried(seed):
    """Play a seed with its laws."""
    return try_seed(seed, draw_by_row, laws=[*LAWS, follows_the_journal])


def _met(seed):
    cluster = tried(seed).cluster
    done = [outcome for outcome in cluster.outcomes.values() if outcome.outcome == "done"]
    by_row = [outcome for outcome in done if outcome.scheduler == "cut"]
    met = Counter({"done": len(by_row), "of several operators": sum(len(one.components) > 1 for one in by_row)})
    met["one after another"] += len(by_row) > 1
    met["before another kind"] += bool(by_row) and len(done) > len(by_row)
    met["some had ended"] += any(how.ended for one in by_row for how in one.per_worker.values())
    met["with a restart"] += bool(by_row) and bool(cluster.recoveries)
    met["a fix before it"] += any(decided.before in cluster.outcomes for decided in cluster.journal if decided.before)
    return met


def test_every_row_follows_one_version():
    """With fixes, restarts, other changes between them, and workers that have ended."""
    wanted = ("done", "of several operators", "one after another", "before another kind", "some had ended",
              "with a restart", "a fix before it")  # fmt: skip
    assert lacking(60, wanted, _met, most=120, shown=(248,)) == {}


def tried_canary(seed):
    """Likewise, with canaries."""
    return try_seed(seed, draw_canaries, laws=[*LAWS, follows_the_journal])


def tried_forms(seed):
    """Likewise, with canaries that transform the states of a few keys."""
    return try_seed(seed, draw_forms, laws=[*LAWS, follows_the_journal])


def _met_of_canaries(seed, tried=tried_canary):
    played = tried(seed)
    wishes, done = played.changes, {name for name, one in played.cluster.outcomes.items() if one.outcome == "done"}
    steps = [wish.share for name, wish in wishes.items() if wish.is_step and name in done]
    canaries = {name for name, wish in wishes.items() if wish.share < 1 and not wish.is_step and name in done}
    met = Counter({"canaries": len(canaries), "promoted": steps.count(1.0), "rolled back": steps.count(0.0)})
    met["raised"] += steps.count(0.7)
    met["another change behind it"] += bool(canaries) and len(done) > len(canaries) + len(steps)
    met["with a restart"] += bool(canaries) and bool(played.cluster.recoveries)
    return met


@pytest.mark.parametrize("tried", [tried_canary, tried_forms])
def test_every_row_of_a_canary_follows_its_cohort(tried):
    """At all operators, in all incarnations, whatever share comes next; and meets states in the form of its version."""
    wanted = ("canaries", "promoted", "rolled back", "raised", "another change behind it", "with a restart")
    assert lacking(40, wanted, partial(_met_of_canaries, tried=tried), most=120) == {}


def _never_back(states, transform, back, beside=KeyedState.beside):
    return beside(states, transform, None if back is None else _as_it_is)


def _as_it_is(state):
    return state


def _settled_as_it_is(states, forms):
    for form in forms:
        states._form.states.update(form.states)
        form.states.clear()


def _closed_as_it_is(states, versions, close=KeyedState.close):
    for other in states._all()[:-1]:
        states._form.states.update(other)
        other.clear()
    close(states, versions)


def _only_here(instance, version, made=row_versions._with):
    other = made(instance, version)
    other.state = instance.state
    return other


BROKEN_FORMS = {
    "versions share the newest form": (row_versions, "_with", _only_here),
    "no state goes back": (KeyedState, "beside", _never_back),
    "a snapshot has each key in the form that it was left in": (KeyedState, "_settle", _settled_as_it_is),
    "the form is forgotten when the earlier function is dropped": (KeyedState, "close", _closed_as_it_is),
    "a restart transforms again": (_DecidedChanges, "_lacks", lambda changes, change: True),
    "a restart takes all forms for the newest": (_DecidedChanges, "_lacks", lambda changes, change: False),
    "the form of a canary is kept": (instance, "is_declared", lambda steps: True),
    "a snapshot forgets what is a canary": (Instance, "canaries", ()),
}
FIRST_FORMS = {"a snapshot has each key in the form that it was left in": 9, "a restart transforms again": 8,
               "the form is forgotten when the earlier function is dropped": 1226, "the form of a canary is kept": 2,
               "a restart takes all forms for the newest": 36, "a snapshot forgets what is a canary": 410}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN_FORMS)
def test_a_broken_form_of_state_is_caught(monkeypatch, rule):
    """A function meets a state of another form, or a checksum tells that it was transformed too often or not at all."""
    monkeypatch.setattr(*BROKEN_FORMS[rule])
    assert caught(first_tried(FIRST_FORMS.get(rule, 1), BOUND), tried_forms, SHOWN_BY) is not None


def _own_cohorts(batch):
    return np.random.default_rng(int(identities(batch)[0]) % 7).integers(0, COHORTS, batch.num_rows)


def _first_alone(instance, change, steps, decide=Instance.decide_rows):
    if len(steps) == 1:
        decide(instance, change, steps)


def _same_cut(cuts, change, targets, begun, share, decide=Cuts.decide):
    first, *further = decide(cuts, change, targets, begun, share)
    return first, *(RolloutStep(first.cut, one.share) for one in further)


BROKEN_OF_CANARIES = {
    "cohorts are drawn for each batch": (rollout, "cohorts", _own_cohorts),
    "other changes do not wait": (Cuts, "canary", property(lambda cuts: "")),
    "a further step is not told": (Instance, "decide_rows", _first_alone),
    "a further step has the cut of the first": (Cuts, "decide", _same_cut),
}


FIRST = {"other changes do not wait": 12, "a further step has the cut of the first": 18}


@pytest.mark.parametrize("rule", BROKEN_OF_CANARIES)
def test_a_broken_rule_of_canaries_is_caught(monkeypatch, rule):
    """Likewise."""
    monkeypatch.setattr(*BROKEN_OF_CANARIES[rule])
    assert caught(first_tried(FIRST.get(rule, 6), BOUND), tried_canary) is not None


def _only(choose):
    """A cut that is chosen otherwise from the positions."""

    def decide(cuts, change, targets, begun, share, decide=Cuts.decide):
        return decide(cuts, change, targets, choose(list(begun)), share)

    return decide


def _without_ended(cuts, worker, begun):
    """How far ended workers had begun is forgotten."""


def _own_cut(instance, change, steps, decide=Instance.decide_rows):
    """Each worker takes its own position as the cut."""
    if instance.worker.index:
        steps = (RolloutStep({origin: position - 1 for origin, position in steps[-1].cut.items()}),)
    decide(instance, change, steps)


def _thaws_with_its_first_operator(freezing, change, operator):
    freezing._frozen.clear()


def _frozen_if_begun(freezing, action, operator, remaining, apply=Freezing.apply):
    """Only what has begun a row is frozen."""
    begun = apply(freezing, action, operator, remaining)
    if isinstance(action, Freeze) and not begun:
        freezing.thaw(action.change, operator)
    return begun


def _frozen_for_a_while(freezing):
    freezing.looks = getattr(freezing, "looks", 0) + 1
    if freezing.looks % 40 == 0:
        freezing._frozen.clear()
    return bool(freezing._frozen)


def _without_steps(recovery, *args, decide=Recovery.decide, **named):
    return decide(recovery, *args[:-1], **named)


BROKEN = {
    "only what has begun is frozen": (Freezing, "apply", _frozen_if_begun),
    "a frozen worker goes on in time": (Freezing, "is_frozen", property(_frozen_for_a_while)),
    "a frozen worker goes on": (Freezing, "is_frozen", property(lambda freezing: False)),
    "the lowest position": (Cuts, "decide", _only(lambda begun: [_lowest(begun)])),
    "one answer alone": (Cuts, "decide", _only(lambda begun: begun[:1])),
    "each worker for itself": (Instance, "decide_rows", _own_cut),
    "the ended are forgotten": (Cuts, "ended", _without_ended),
    "no floor": (Cuts, "floor", property(lambda cuts: {}, lambda cuts, floor: None)),
    "a chain goes on with its first target": (Freezing, "thaw", _thaws_with_its_first_operator),
    "what is in hand is not begun": (Freezing, "positions", lambda freezing, remaining: freezing._begun.positions),
    "the earlier function is dropped at once": (row_versions, "are_new", lambda steps, batch: [True] * batch.num_rows),
    "the cut is not in the journal": (Recovery, "decide", _without_steps),
    "a restart forgets earlier functions": (snapshot, "open_by_row", lambda decided, read: frozenset()),
    "the next commit drops earlier functions": (cuts, "is_over", lambda steps, read: True),
    "the cut itself is new": (rollout, "_LOW", None),
}
SHOWN = {"only what has begun is frozen": 75, "a frozen worker goes on in time": 115, "the ended are forgotten": 12,
         "no floor": 251, "a chain goes on with its first target": 50,
         "the cut is not in the journal": 28, "a restart forgets earlier functions": 17,
         "the next commit drops earlier functions": 62}  # fmt: skip


def _lowest(begun):
    found = rollout.highest(begun)
    return {origin: min(one.get(origin, -1) for one in begun) for origin in found}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch, rule):
    """Without it some seed shows two versions of one transaction, or a row by another one than the cut says."""
    where, name, broken = BROKEN[rule]
    if broken is None:
        monkeypatch.setattr(rollout, "are_above", lambda cut, rows, above=rollout.are_above: above(_less(cut), rows))
    else:
        monkeypatch.setattr(where, name, broken, raising=False)
    assert caught(first_tried(SHOWN.get(rule, 4), BOUND), tried) is not None


def _less(cut):
    return {origin: position - 1 for origin, position in cut.items()}
