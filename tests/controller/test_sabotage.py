"""The laws of the interleavings are not empty: without any one of these rules they fail for some seed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_endings import (
    ask_only_the_living,
    ends_well,
    ends_well_after_losses,
    is_mended,
    is_rolled_back,
    recovers_well,
    rests_well,
)
from msgspec import structs
from soak import first_tried

from fries_nb.controller import commits as recovery
from fries_nb.controller import known_changes
from fries_nb.controller.change_steps import Changes
from fries_nb.controller.commits import Checkpoints, CommitNumbers, Recovery
from fries_nb.controller.controller import Controller
from fries_nb.controller.events import Resolved
from fries_nb.controller.failure_rules import FailureRules
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.states import ChangeState
from fries_nb.controller.transactions import Transaction
from fries_nb.errors import ProtocolError
from fries_nb.planning.schedulers import Send, Stage
from fries_nb.protocol.checkpoints import Restoration


def _only_to_the_living(lane, sends, action, start=MarkerCoordinator.start):
    """Save the FCMs to workers that have ended, as if they had no part in it."""
    return [tell for tell in start(lane, sends, action) if tell.worker not in lane._workers.ended]


def _tell_one_to_forget(change, forgotten=known_changes._forgotten):
    """The others keep what they prepared."""
    return forgotten(change)[:1]


def _close_as_if_in_front(epochs, sink, files, behind_cut=False, hand_in=CommitNumbers.hand_in):
    """What a sink closes behind the cut counts with it."""
    hand_in(epochs, sink, files)


def _do_not_wait_for_snapshots(checkpoints, settle=Checkpoints.settle):
    """Keep the record as soon as the marker has retired."""
    if checkpoints.phase == "saving":
        checkpoints._attempt.owing = set()
    return settle(checkpoints)


def _commit_before_the_record(checkpoints, keep=Checkpoints._keep):
    """Make the files output while the record is still being written."""
    return [*checkpoints._commit(), *keep(checkpoints)]


def _forget_who_asked(checkpoints):
    """The attempt is over, and nobody waits for the next."""
    checkpoints.move("idle")


def _snapshot_of_no_change(checkpoints, epoch, checkpoint, new=Checkpoints._new):
    """The record does not say which changes were applied."""
    return replace(new(checkpoints, epoch, checkpoint), decided=())


def _recover_at_once(life, why, now_ns, recover=Lifecycle.recover):
    """Do not wait for the record that is being written."""
    said = recover(life, why, now_ns)
    return said + life.start_again(now_ns) if life.checkpoints.keeping else said


def _listen_to_the_dead(controller, event, now_ns, received=Controller._received):
    """What an older incarnation says is taken for the present one's."""
    return received(controller, replace(event, incarnation=0), now_ns)


def _start_from_functions_of_old(recovery, reason, hosts, again=Recovery.again):
    """The restoration leaves out what was decided."""
    recover = again(recovery, reason, hosts)
    return replace(recover, restoration=Restoration(recover.restoration.checkpoint))


def _abort_what_was_decided(changes, why, now_ns, lost=Changes.lost):
    """A change whose hosts are lost is aborted, decided or not."""
    said = lost(changes, why, now_ns)
    for change in changes._under_way():
        change.state = ChangeState.PREPARING
        said.append(Resolved(change.resolve(ChangeState.ABORTED, now_ns, why)))
        changes._release(change)
    return said


def _resolve_nothing(changes, now_ns):
    """A change that was decided is carried out, and nobody says so."""
    changes.in_flight = None
    return []


def _count_every_stage(transaction, worker, done, now_ns, acknowledged=Transaction.acknowledged):
    """A target that has let a hold pass has switched."""
    stages = transaction.stages
    transaction.stages = tuple(Stage(stage.sends, stage.awaits) for stage in stages)
    acknowledged(transaction, worker, done, now_ns)
    transaction.stages = stages


def _fix_like_any_other(lane, operator, action):
    """A fix takes the lane, as if nothing could be stuck on it."""
    return MarkerCoordinator.start(lane, [Send(operator, frozenset({operator}))], action)


def _drop_all_that_is_behind(ordered, applied):
    """Only what the checkpoint has not applied is kept, as if workers started with the functions in their snapshots."""
    return [change if change.change not in applied else structs.replace(change, payloads={}) for change in ordered]


def _tell_no_columns(recovery, reason, hosts, again=Recovery.again):
    """The operators are told no types."""
    recover = again(recovery, reason, hosts)
    return replace(recover, restoration=structs.replace(recover.restoration, columns={}))


def _guard_all(changes, change, guarded=Changes._guarded):
    """A guard begins, whatever the workers were told."""
    change.guard = change.request.guard
    return guarded(changes, change)


def _a_rollback_may_be_a_fix(changes, next_fix=Changes._next_fix):
    """As if it still had to be prepared."""
    for waiting in changes._queue:
        if waiting.undoes and waiting.alone() in changes._paused.operators:
            changes._queue.remove(waiting)
            return waiting
    return next_fix(changes)


BROKEN = {
    "the ended not told": (MarkerCoordinator, "start", _only_to_the_living, rests_well),
    "ends do not count": (MarkerCoordinator, "end", lambda lane, worker: [], ends_well),
    "lane freed too early": (MarkerCoordinator, "_retire", MarkerCoordinator.clear, ends_well),
    "the ended not tried": (Changes, "_begin", ask_only_the_living, ends_well),
    "not all forget": (known_changes, "_forgotten", _tell_one_to_forget, rests_well),
    "no journal": (Changes, "_decide", lambda changes, change, now_ns: changes._next_stage(change, now_ns), ends_well),
    "epoch lost": (CommitNumbers, "cancel", lambda epochs, now_ns: epochs.close(), ends_well),
    "cut torn": (CommitNumbers, "hand_in", _close_as_if_in_front, recovers_well),
    "snapshots not awaited": (Checkpoints, "settle", _do_not_wait_for_snapshots, recovers_well),
    "commit before record": (Checkpoints, "_keep", _commit_before_the_record, recovers_well),
    "requests forgotten": (Checkpoints, "_take_back", _forget_who_asked, recovers_well),
    "changes not in the record": (Checkpoints, "_new", _snapshot_of_no_change, recovers_well),
    "files of the lost kept": (CommitNumbers, "forget", lambda epochs: None, recovers_well),
    "record overtaken": (Lifecycle, "recover", _recover_at_once, recovers_well),
    "the dead heard": (Controller, "_received", _listen_to_the_dead, recovers_well),
    "same incarnation": (Recovery, "lose", lambda recovery, tables: None, recovers_well),
    "old checkpoint": (Recovery, "keep", lambda recovery, record: None, recovers_well),
    "decided left out": (Recovery, "again", _start_from_functions_of_old, recovers_well),
    "decided aborted": (Changes, "lost", _abort_what_was_decided, recovers_well),
    "never resolved": (Changes, "started", _resolve_nothing, recovers_well),
    "no last record": (Checkpoints, "last", Checkpoints.rest, ends_well_after_losses),
    "old markers kept": (MarkerCoordinator, "clear", lambda lane: None, recovers_well),
    "holding is switching": (Transaction, "acknowledged", _count_every_stage, ends_well),
    "no fix goes ahead": (Changes, "_next_fix", lambda changes: None, is_mended),
    "a fix waits in line": (MarkerCoordinator, "start_bypass", _fix_like_any_other, is_mended),
    "not fixed in its version": (Changes, "_is_paused_before", lambda changes, operator: False, is_mended),
    "fix behind the change": (recovery, "insert_decided", list.append, is_mended),
    "not rehearsed": (Transaction, "rehearse", lambda transaction, added: None, ends_well),
    "functions dropped": (recovery, "without_superseded", _drop_all_that_is_behind, recovers_well),
    "columns not told": (Recovery, "again", _tell_no_columns, is_rolled_back),
    "a guard that nobody keeps": (Changes, "_guarded", _guard_all, is_rolled_back),
    "a guard that does not end": (Changes, "let_go", lambda changes, change, reason: [], is_rolled_back),
    "a guard that no failure concerns": (FailureRules, "_undone", lambda *of: [], is_rolled_back),
    "a rollback as a fix": (Changes, "_next_fix", _a_rollback_may_be_a_fix, is_rolled_back),
    "waits for nothing": (FailureRules, "_failed_under_guard", lambda rules, paused, now_ns: [], is_rolled_back),
    "what prepares is not aborted": (Changes, "pause", lambda changes, operator, error, now_ns: [], is_mended),
}


SHOWN = {
    "the ended not told": 34, "ends do not count": 132, "cut torn": 22, "record overtaken": 44, "the dead heard": 44,
    "never resolved": 3, "fix behind the change": 243, "a guard that does not end": 63, "waits for nothing": 50,
    "a guard that no failure concerns": 165, "a rollback as a fix": 237,
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_controller_is_caught(monkeypatch, broken):
    """Each of these builds breaks a law for some seed."""
    room, name, replacement, law = BROKEN[broken]
    monkeypatch.setattr(room, name, replacement)
    with pytest.raises((AssertionError, ProtocolError)):
        _try_all(law, SHOWN.get(broken, 0))


def _try_all(law, shown) -> None:
    for seed in first_tried(shown, 300):
        law(seed)
